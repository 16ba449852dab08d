//! An answer's text to its parts, piece by piece.

use crate::attempt::{Arguments, Attempt, Started};
use crate::format::Format;
use crate::part::Part;
use crate::scan::{End, Scan};
use crate::shape::{Body, Place, Shape, Tags};
use crate::tagged_call::Element;
use crate::tools::Tools;
use crate::{json_call, named_call, python_call, tagged_call};

/// Longest piece that is looked at at once, so that no work grows with the square of an answer.
const PIECE_BYTES_MAX: usize = 4 << 10;
/// Most of what may become a call that is held back.
const HELD_BYTES_MAX: usize = 64 << 10;
/// Longest parameter of a call that is written in elements, whole files included.
const PARAMETER_BYTES_MAX: usize = 1 << 20;
/// Most white space that is held back before what may be a mark.
const SPACE_BYTES_MAX: usize = 1 << 10;
/// Most line breaks at the end of reasoning that are none of it.
const LINES_MAX: usize = 8;

/// Reads an answer as it is generated.
///
/// Reasoning is only what an answer begins with. Inside the arguments of a call nothing is a
/// mark. A call of a tool that was not declared is still a call where marks show what is meant,
/// since clients answer it with an error that the model understands; where a call is bare JSON or
/// code, it may be what the user asked for, and is text. What is no call comes out as text,
/// unchanged, as soon as it cannot become one. Only these are left out: the marks, what
/// surrounds name and arguments in a call, line breaks around reasoning and white space around
/// calls, as templates write them.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    tools: Tools,
    state: State,
    /// What was not said yet, from `at` on.
    pending: String,
    at: usize,
    /// How many calls have begun.
    calls: usize,
    /// Whether any text was said.
    has_text: bool,
    /// Whether a grammar holds the answer to calls, or to a text.
    is_held: bool,
}

#[derive(Debug, Clone)]
enum State {
    /// Nothing was said yet; with `thinks`, reasoning may begin, and with `skips_lines`, line
    /// breaks are none of the text.
    Beginning {
        thinks: bool,
        skips_lines: bool,
    },
    Reasoning {
        begun: bool,
    },
    Text,
    /// All that comes is text.
    OnlyText,
    /// In the arguments of a call.
    Arguments {
        series: Series,
        scan: Scan,
    },
    /// Behind them, in the object around them.
    Object(Series),
    /// In a call that is written in elements.
    Parameters {
        series: Series,
        tags: &'static Tags,
        name: String,
        any: bool,
        searched: usize,
    },
    /// Behind a call, where another may follow.
    Between(Series),
}

/// The calls of one opening.
#[derive(Debug, Clone, Copy)]
struct Series {
    shape: &'static Shape,
    /// Whether they are items of a list that is open.
    in_list: bool,
    /// How many of the shape's closings came, or were passed over.
    closed: usize,
}

/// What looking for a call came to.
enum Trial {
    No,
    More,
    /// What may become a call is too long to be held back.
    TooLong,
    /// One that begins with an opening of so many bytes.
    Call(&'static Shape, Started),
}

impl Reader {
    /// A reader of one answer. `tools` are those that the answer may call, none where it may not;
    /// `in_reasoning` says that the prompt ended inside reasoning
    /// ([`Format::opens_reasoning`]).
    pub fn new(format: Format, tools: Tools, in_reasoning: bool) -> Reader {
        let state = match in_reasoning && format.has_reasoning() {
            true => State::Reasoning { begun: false },
            false => State::Beginning { thinks: true, skips_lines: false },
        };
        let pending = String::new();
        Reader { format, tools, state, pending, at: 0, calls: 0, has_text: false, is_held: false }
    }

    /// A reader of an answer that a grammar holds to calls in the format's
    /// [`call_shape`](Format::call_shape), or to a text of another form: one that does not begin
    /// with such a call is text as a whole, whatever it looks like.
    pub fn held(format: Format, tools: Tools) -> Reader {
        Reader { is_held: true, ..Reader::new(format, tools, false) }
    }

    /// Takes the next piece, and returns what is known with it. However a text is cut into
    /// pieces, its parts joined are the same.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut rest = piece;
        while !rest.is_empty() {
            let (first, other) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES_MAX));
            self.pending.push_str(first);
            self.advance(false, &mut parts);
            rest = other;
        }
        parts
    }

    /// The answer has ended: what was held back.
    pub fn finish(mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        self.advance(true, &mut parts);
        parts
    }

    fn advance(&mut self, ends: bool, parts: &mut Vec<Part>) {
        while self.step(ends, parts) {}
        self.pending.drain(..self.at);
        self.at = 0;
        self.has_text |= has_text(parts);
    }

    fn rest(&self) -> &str {
        &self.pending[self.at..]
    }

    /// Goes on as far as one state reaches; false where more text is needed.
    fn step(&mut self, ends: bool, parts: &mut Vec<Part>) -> bool {
        match self.state.clone() {
            State::Beginning { thinks, skips_lines } => {
                if skips_lines {
                    self.at += count(self.rest().chars(), '\n');
                }
                self.beginning(thinks, ends, parts)
            }
            State::Reasoning { begun } => self.reasoning(begun, ends, parts),
            State::Text => self.text(ends, parts),
            State::OnlyText => {
                say(parts, self.rest());
                self.at = self.pending.len();
                false
            }
            State::Arguments { series, scan } => self.arguments(series, scan, parts),
            State::Object(series) => self.object(series, ends),
            State::Parameters { .. } => self.parameters(ends, parts),
            State::Between(series) => self.between(series, ends, parts),
        }
    }

    /// Whether the answer begins as a grammar has calls begin; `None` where that is to be seen.
    fn begins_as_held(&self) -> Option<bool> {
        let (shape, text) = (self.format.call_shape(), self.rest());
        let mut may_come = false;
        for name in self.tools.names() {
            let beginning = format!("{}{}", shape.before, shape.prefix(name));
            if text.starts_with(&beginning) {
                return Some(true);
            }
            may_come |= beginning.starts_with(text);
        }
        (!may_come).then_some(false)
    }

    fn beginning(&mut self, thinks: bool, ends: bool, parts: &mut Vec<Part>) -> bool {
        if self.is_held {
            match self.begins_as_held() {
                Some(true) => {}
                None if !ends => return false,
                _ => {
                    self.state = State::OnlyText;
                    return true;
                }
            }
        }
        let text = self.rest().trim_ascii_start();
        let from = self.pending.len() - text.len();
        let mut may_come = false;
        if from - self.at < SPACE_BYTES_MAX {
            if let Some(thinking) = self.format.thinking.filter(|_| thinks) {
                if text.starts_with(thinking.open) {
                    self.at = from + thinking.open.len();
                    self.state = State::Reasoning { begun: false };
                    return true;
                }
                may_come = thinking.open.starts_with(text);
            }
            match self.trial(from, true) {
                Trial::No => {}
                Trial::More => may_come = true,
                Trial::TooLong => {
                    self.state = State::OnlyText;
                    return true;
                }
                Trial::Call(shape, started) => {
                    self.begin(shape, from + shape.opening.len(), started, parts);
                    return true;
                }
            }
        }
        if may_come && !ends {
            return false;
        }
        self.state = State::Text;
        true
    }

    fn reasoning(&mut self, begun: bool, ends: bool, parts: &mut Vec<Part>) -> bool {
        if !begun {
            self.at += count(self.rest().chars(), '\n');
            self.state = State::Reasoning { begun: !self.rest().is_empty() };
        }
        let Some(thinking) = self.format.thinking else {
            self.state = State::Text;
            return true;
        };
        let rest = self.rest();
        let close = rest.find(thinking.close);
        let until = close.unwrap_or_else(|| match ends {
            true => rest.len(),
            false => rest.len() - partial(rest, thinking.close),
        });
        let lines = count(rest[..until].chars().rev(), '\n').min(LINES_MAX);
        let said = &rest[..until - lines];
        if !said.is_empty() {
            parts.push(Part::Reasoning(said.to_owned()));
        }
        match close {
            Some(close) => {
                self.at += close + thinking.close.len();
                self.state = State::Beginning { thinks: false, skips_lines: true };
            }
            None if ends => self.at = self.pending.len(),
            None => self.at += said.len(),
        }
        close.is_some()
    }

    fn text(&mut self, ends: bool, parts: &mut Vec<Part>) -> bool {
        let family = self.format.family;
        let rest = self.rest();
        let is_open = |shape: &&Shape| shape.place == Place::Anywhere && !self.tools.is_empty();
        let openings = family.shapes.iter().filter(is_open).map(|shape| shape.opening);
        let markers: Vec<&'static str> = family.silent.iter().copied().chain(openings).collect();
        let found = |marker: &&'static str| Some((rest.find(*marker)?, marker.len(), *marker));
        let first = markers.iter().filter_map(found).min();
        let held = markers.iter().map(|marker| partial(rest, marker)).max().unwrap_or(0);
        let sure = if ends { rest.len() } else { rest.len() - held };
        let before = family.shapes.first().map_or("", |shape| shape.before);
        let without = |text: &str| text.strip_suffix(before).unwrap_or(text).len();
        let Some((index, length, marker)) = first.filter(|(index, ..)| *index <= sure) else {
            let until = if ends { sure } else { without(&rest[..sure]) };
            say(parts, &rest[..until]);
            self.at += until;
            return false;
        };
        let trial = match family.silent.contains(&marker) {
            true => None,
            false => Some(self.trial(self.at + index, false)),
        };
        let rest = self.rest();
        let (said, taken) = match &trial {
            None => (index, index + length),
            Some(Trial::Call(..)) => (without(&rest[..index]), index),
            Some(Trial::More) if !ends => (without(&rest[..index]), without(&rest[..index])),
            Some(Trial::TooLong) => (0, 0),
            Some(_) => (index + length, index + length),
        };
        say(parts, &rest[..said]);
        self.at += taken;
        match trial {
            Some(Trial::More) => return ends,
            Some(Trial::TooLong) => self.state = State::OnlyText,
            Some(Trial::Call(shape, started)) => {
                self.begin(shape, self.at + shape.opening.len(), started, parts);
            }
            _ => {}
        }
        true
    }

    /// Looks whether a call begins at `from`.
    fn trial(&self, from: usize, at_beginning: bool) -> Trial {
        if self.tools.is_empty() {
            return Trial::No;
        }
        let text = &self.pending[from..];
        for shape in self.format.family.shapes {
            if shape.place == Place::Beginning && !at_beginning {
                continue;
            }
            match text.strip_prefix(shape.opening) {
                None if shape.opening.starts_with(text) => return Trial::More,
                None => {}
                Some(body) => {
                    let series = Series { shape, in_list: false, closed: 0 };
                    match self.attempt(series, body, shape.declared_only) {
                        Trial::No => {}
                        other => return other,
                    }
                }
            }
        }
        Trial::No
    }

    /// Looks whether a text is the body of a call.
    fn attempt(&self, series: Series, body: &str, declared_only: bool) -> Trial {
        let Series { shape, in_list, .. } = series;
        let (text, is_full) = window(body, HELD_BYTES_MAX);
        let attempt = match &shape.body {
            Body::Json => json_call::attempt(text, in_list, &self.tools, declared_only),
            Body::Python => python_call::attempt(text, in_list, &self.tools, declared_only),
            Body::Named { id, between } => named_call::attempt(text, id, between),
            Body::Tagged(tags) => tagged_call::attempt(text, tags),
        };
        match attempt {
            Attempt::Bad => Trial::No,
            Attempt::More if is_full => Trial::TooLong,
            Attempt::More => Trial::More,
            Attempt::Call(started) => Trial::Call(shape, started),
        }
    }

    /// Begins a call whose body begins at `from`.
    fn begin(
        &mut self,
        shape: &'static Shape,
        from: usize,
        started: Started,
        parts: &mut Vec<Part>,
    ) {
        let Started { name, consumed, in_list, arguments } = started;
        self.at = from + consumed;
        self.calls += 1;
        parts.push(Part::CallStart { index: self.calls - 1, name: name.clone() });
        let series = Series { shape, in_list, closed: 0 };
        self.state = match (arguments, &shape.body) {
            (Arguments::Whole { json, inside }, _) => {
                self.argue(&json, true, parts);
                if inside { State::Object(series) } else { State::Between(series) }
            }
            (Arguments::Tagged, Body::Tagged(tags)) => {
                State::Parameters { series, tags, name, any: false, searched: 0 }
            }
            _ => State::Arguments { series, scan: Scan::default() },
        };
    }

    /// Says more of the open call's arguments, and with `ends` that they are whole.
    fn argue(&self, fragment: &str, ends: bool, parts: &mut Vec<Part>) {
        let index = self.calls - 1;
        if !fragment.is_empty() {
            parts.push(Part::CallArguments { index, fragment: fragment.to_owned() });
        }
        if ends {
            parts.push(Part::CallEnd { index });
        }
    }

    fn arguments(&mut self, series: Series, mut scan: Scan, parts: &mut Vec<Part>) -> bool {
        let end = scan.end(self.rest());
        let length = end.unwrap_or(self.rest().len());
        self.argue(&self.rest()[..length], end.is_some(), parts);
        self.at += length;
        self.state = match (end, &series.shape.body) {
            (None, _) => State::Arguments { series, scan },
            (Some(_), Body::Json) => State::Object(series),
            (Some(_), _) => State::Between(series),
        };
        end.is_some()
    }

    /// Where the object around the arguments does not go on as one, the call has ended already.
    fn object(&mut self, series: Series, ends: bool) -> bool {
        let (text, is_full) = window(self.rest(), HELD_BYTES_MAX);
        match json_call::rest_of_object(text) {
            Ok(length) => self.at += length,
            Err(End::More) if !ends && !is_full => return false,
            Err(_) => {}
        }
        self.state = State::Between(series);
        true
    }

    fn parameters(&mut self, ends: bool, parts: &mut Vec<Part>) -> bool {
        let State::Parameters { series, tags, name, any, searched } = &mut self.state else {
            return false;
        };
        let (series, is_first) = (*series, !*any);
        let (text, is_full) = window(&self.pending[self.at..], PARAMETER_BYTES_MAX);
        match tagged_call::element(text, name, tags, &self.tools, searched) {
            Ok(Element::Parameter { member, end }) => {
                *any = true;
                self.at += end;
                let fragment = format!("{}{member}", if is_first { "{" } else { ", " });
                self.argue(&fragment, false, parts);
            }
            Ok(Element::End(end)) => {
                self.at += end;
                self.argue(if is_first { "{}" } else { "}" }, true, parts);
                self.state = State::Between(series);
            }
            Err(End::More) if !ends && !is_full => return false,
            Err(End::More) => self.state = State::OnlyText,
            Err(_) => self.state = State::Text,
        }
        true
    }

    fn between(&mut self, series: Series, ends: bool, parts: &mut Vec<Part>) -> bool {
        let Series { shape, in_list, closed } = series;
        let text = self.rest().trim_ascii_start();
        let from = self.pending.len() - text.len();
        if text.is_empty() && ends {
            self.at = from;
            return false;
        }
        if from - self.at >= SPACE_BYTES_MAX {
            self.state = State::Text;
            return true;
        }
        if in_list && text.starts_with(']') {
            self.at = from + 1;
            self.state = State::Between(Series { in_list: false, ..series });
            return true;
        }
        let mut may_come = text.is_empty();
        let closings = shape.closings.iter().enumerate().skip(closed);
        let closings = closings.map(|(index, mark)| (index + 1, mark));
        let silent = self.format.family.silent.iter().map(|mark| (closed, mark));
        for (closed, mark) in closings.chain(silent) {
            if text.starts_with(mark) {
                self.at = from + mark.len();
                self.state = State::Between(Series { closed, ..series });
                return true;
            }
            may_come |= mark.starts_with(text);
        }
        let trials = [self.next_in_series(series, from), self.marked(from)];
        for (begins, trial) in trials {
            match trial {
                Trial::Call(shape, started) => {
                    self.begin(shape, begins, started, parts);
                    return true;
                }
                Trial::More => may_come = true,
                Trial::No | Trial::TooLong => {}
            }
        }
        if may_come && !ends {
            return false;
        }
        // Where calls come first, a text is set apart from them, not from other text.
        if !self.has_text && !has_text(parts) {
            self.at = from;
        }
        self.state = State::Text;
        true
    }

    /// Looks for another call of the series at `from`, and says where its body would begin.
    fn next_in_series(&self, series: Series, from: usize) -> (usize, Trial) {
        let Series { shape, in_list, .. } = series;
        let text = &self.pending[from..];
        let separator = if in_list { ',' } else { ';' };
        let body = match text.strip_prefix(separator) {
            Some(body) => body,
            None if in_list => return (from, Trial::No),
            None => text,
        };
        let begins = self.pending.len() - body.len();
        match shape.body {
            Body::Json | Body::Python => {
                // What no opening marks may be text.
                let declared_only = shape.declared_only || !in_list;
                (begins, self.attempt(series, body, declared_only))
            }
            Body::Named { .. } | Body::Tagged(_) => (begins, Trial::No),
        }
    }

    /// Looks for a marked call at `from`, and says where its body would begin.
    fn marked(&self, from: usize) -> (usize, Trial) {
        let trial = self.trial(from, false);
        match &trial {
            Trial::Call(shape, _) => (from + shape.opening.len(), trial),
            _ => (from, trial),
        }
    }
}

/// Adds a text, to the last part if that is one too.
fn say(parts: &mut Vec<Part>, text: &str) {
    if text.is_empty() {
        return;
    }
    match parts.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

fn has_text(parts: &[Part]) -> bool {
    parts.iter().any(|part| matches!(part, Part::Text(_)))
}

/// How many of the first characters are this one.
fn count(characters: impl Iterator<Item = char>, wanted: char) -> usize {
    characters.take_while(|character| *character == wanted).count()
}

/// Bytes at the end of `text` that begin `marker`, but are not all of it.
fn partial(text: &str, marker: &str) -> usize {
    let lengths = marker.char_indices().map(|(index, _)| index).rev();
    lengths.filter(|length| text.ends_with(&marker[..*length])).max().unwrap_or(0)
}

/// What of a text is looked at, and whether that is all that ever will be.
fn window(text: &str, limit: usize) -> (&str, bool) {
    (&text[..text.floor_char_boundary(limit)], text.len() >= limit)
}
