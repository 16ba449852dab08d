//! Limits on what a template computes with.
//!
//! The engine's own measure of work counts what it copies, but values share their parts: a list
//! that is added to itself sixty times is small, and what reads it never ends. So whatever makes a
//! value is followed by a filter that measures the value as if nothing were shared, and looks at
//! the clock. Nothing is then larger than [`WEIGHT_MAX`], which bounds every single step.

use minijinja::machinery::{Instruction, Instructions, get_compiled_template, make_string_output};
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Name of the filter; no template can write it.
const FILTER: &str = "*guard*";
/// A filter that is looked up by its name each time.
const NOT_CACHED: u8 = u8::MAX;
/// Largest value, its shared parts counted wherever they are: [`VALUE_BYTES`] for each value in it
/// and the bytes of its texts. Four times the longest text that is rendered.
const WEIGHT_MAX: u64 = 64 << 20;
/// What a value weighs beside its text: about the memory that it takes in a map, as JSON.
const VALUE_BYTES: u64 = 128;
/// Bytes of weight that cost one unit of work.
const BYTES_PER_FUEL: u64 = 2048;
/// Longest time of one rendering. Only what the measure of work does not see gets here.
const TIME_MAX: Duration = Duration::from_secs(2);

thread_local! {
    /// When the rendering of this thread began.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets `environment` up for [`render`].
pub(super) fn set_up(environment: &mut Environment<'_>) {
    environment.add_filter(FILTER, |state: &State<'_, '_>, value: Value| {
        check(state, &value)?;
        Ok::<Value, Error>(at_once(value))
    });
    environment.set_formatter(|out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value| {
        check(state, value)?;
        minijinja::escape_formatter(out, state, value)
    });
}

/// Renders the template called `name` within the limits.
///
/// # Errors
/// As the engine has them; [`ErrorKind::OutOfFuel`] beyond a limit.
pub(super) fn render(
    environment: &Environment<'_>,
    name: &str,
    variables: Value,
) -> Result<String, Error> {
    let template = environment.get_template(name)?;
    let compiled = get_compiled_template(&template);
    let instructions = guarded(&compiled.instructions);
    let blocks = compiled.blocks.iter().map(|(name, block)| (*name, guarded(block))).collect();
    BEGAN.set(Some(Instant::now()));
    let mut text = String::new();
    let mut out = make_string_output(&mut text);
    let escape = AutoEscape::None;
    minijinja::machinery::eval(environment, &instructions, variables, &blocks, &mut out, escape)?;
    drop(out);
    Ok(text)
}

/// The same instructions with the filter behind each one that makes a value.
fn guarded<'source>(plain: &Instructions<'source>) -> Instructions<'source> {
    let all: Vec<&Instruction<'source>> = (0..).map_while(|index| plain.get(index)).collect();
    // Where each instruction comes to stand, and the end.
    let mut places = Vec::with_capacity(all.len() + 1);
    let mut place = 0;
    for instruction in &all {
        places.push(place);
        place += 1 + u32::from(makes_value(instruction));
    }
    places.push(place);
    let moved = |target: u32| places.get(target as usize).copied().unwrap_or(place);
    let mut guarded = Instructions::new(plain.name(), plain.source());
    for (index, &instruction) in (0..).zip(&all) {
        let own = match instruction {
            Instruction::Iterate(target) => Instruction::Iterate(moved(*target)),
            Instruction::Jump(target) => Instruction::Jump(moved(*target)),
            Instruction::JumpIfFalse(target) => Instruction::JumpIfFalse(moved(*target)),
            Instruction::JumpIfFalseOrPop(target) => Instruction::JumpIfFalseOrPop(moved(*target)),
            Instruction::JumpIfTrueOrPop(target) => Instruction::JumpIfTrueOrPop(moved(*target)),
            Instruction::BuildMacro(name, target, flags) => {
                Instruction::BuildMacro(name, moved(*target), *flags)
            }
            other => other.clone(),
        };
        let span = plain.get_span(index);
        let line = plain.get_line(index).and_then(|line| u16::try_from(line).ok());
        let guard = makes_value(instruction).then_some(Instruction::ApplyFilter(
            FILTER,
            Some(1),
            NOT_CACHED,
        ));
        for instruction in [Some(own), guard].into_iter().flatten() {
            match (span, line) {
                (Some(span), _) => guarded.add_with_span(instruction, span),
                (None, Some(line)) => guarded.add_with_line(instruction, line),
                (None, None) => guarded.add(instruction),
            };
        }
    }
    guarded
}

/// Whether an instruction leaves a value on the stack that can be larger than what it was made of,
/// or that may have taken long.
fn makes_value(instruction: &Instruction<'_>) -> bool {
    matches!(
        instruction,
        Instruction::Add
            | Instruction::Mul
            | Instruction::StringConcat
            | Instruction::BuildList(_)
            | Instruction::BuildTuple(_)
            | Instruction::BuildMap(_)
            | Instruction::Slice
            | Instruction::Eq
            | Instruction::Ne
            | Instruction::Gt
            | Instruction::Gte
            | Instruction::Lt
            | Instruction::Lte
            | Instruction::In
            | Instruction::ApplyFilter(..)
            | Instruction::PerformTest(..)
            | Instruction::CallFunction(..)
            | Instruction::CallMethod(..)
            | Instruction::CallObject(_)
    )
}

/// Checks a value and the clock, and charges for it.
///
/// # Errors
/// [`ErrorKind::OutOfFuel`] beyond a limit.
pub(super) fn check(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    if BEGAN.get().is_some_and(|began| began.elapsed() > TIME_MAX) {
        return Err(Error::new(ErrorKind::OutOfFuel, "it takes too long"));
    }
    let too_large = || Error::new(ErrorKind::OutOfFuel, "a value is too large");
    state.consume_fuel(weight(value).ok_or_else(too_large)? / BYTES_PER_FUEL)
}

/// A list for what would be gone through item by item each time that it is read, through all that
/// it was made of; in Python it is a list too.
fn at_once(value: Value) -> Value {
    match value.try_iter() {
        Ok(items) if value.kind() == ValueKind::Iterable && value.len().is_some() => {
            Value::from(items.collect::<Vec<_>>())
        }
        _ => value,
    }
}

/// What a value weighs; `None` over [`WEIGHT_MAX`].
fn weight(value: &Value) -> Option<u64> {
    let mut weight = 0;
    let mut add = |bytes: usize| {
        weight += VALUE_BYTES + bytes as u64;
        (weight <= WEIGHT_MAX).then_some(())
    };
    let mut open: Vec<Value> = Vec::new();
    let mut next = Some(value.clone());
    while let Some(value) = next {
        add(value.as_str().map_or(0, str::len))?;
        match value.kind() {
            ValueKind::Map => {
                for key in value.try_iter().into_iter().flatten() {
                    add(0)?;
                    open.extend(value.get_item(&key).ok());
                    open.push(key);
                }
            }
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter().into_iter().flatten() {
                    // Counted again when it is looked at: what waits must be bounded too.
                    add(0)?;
                    open.push(item);
                }
            }
            _ => {}
        }
        next = open.pop();
    }
    Some(weight)
}
