//! `refrain trace`: every step of one prompt's way through the model.

mod compare;
mod layer;
mod names;
mod npy;
mod paper;
mod report;
mod selection;
mod tensor_file;
mod walk;

use std::io::Write;
use std::path::Path;

use engine::EngineOptions;
use engine::trace::{Options, Step, Tensor, TensorName, Trace, TraceError, trace};
use package::Package;
use serde::Serialize;
use serde_json::json;

use super::answer::conversation;
use crate::cli::TraceArguments;
use crate::explain::Language;
use crate::failure::Failure;
use crate::loading;
use crate::screen::Screen;
use crate::terminal::Terminal;
use crate::words::counted;
use compare::{Comparison, compare};
use names::Names;
use selection::Selection;
use tensor_file::{Contents, Document, Format, Origin};

pub(crate) fn run(arguments: &TraceArguments, terminal: &Terminal) -> Result<(), Failure> {
    let selections = arguments.tensor.iter().map(|text| Selection::parse(text));
    let selections = selections.collect::<Result<Vec<_>, _>>()?;
    names::check_steps(&selections, arguments.decode)?;
    let reference = reference(arguments, &selections)?;
    if let Some(path) = &arguments.save {
        tensor_file::check(path, &selections)?;
    }
    let package = loading::open(arguments.model.as_deref(), terminal)?;
    let names = Names::default();
    let keep = |name: TensorName| {
        names.note(name);
        match selections.as_slice() {
            // The shapes of a decode step are those of its tensors.
            [] if arguments.list => name.decode == Some(0),
            [] => {
                let text = || name.to_string();
                let compared =
                    |contents: &Contents| contents.tensors.iter().any(|t| t.name == text());
                arguments.save.is_some() || reference.as_ref().is_some_and(compared)
            }
            chosen => chosen.iter().any(|one| one.names(name, package.config.architecture)),
        }
    };
    let mut trace = collect(arguments, &package, &keep, terminal)?;
    if arguments.list {
        return list(arguments, &names, &trace, &package);
    }
    names.check(&selections, package.config.architecture, &package.name)?;
    let tensors = cut(&selections, std::mem::take(&mut trace.tensors), &package)?;
    if let Some(path) = &arguments.save {
        save(path, &tensors, &trace, &package, terminal)?;
    }
    let shown = match reference {
        Some(contents) => report_comparison(arguments, &selections, &tensors, contents),
        None => show(arguments, &selections, &tensors, &trace, &package),
    };
    match (shown, damage(&trace)) {
        (Ok(()) | Err(Failure::CheckFailed), Some(problem)) => Err(Failure::Failed(problem)),
        (shown, _) => shown,
    }
}

/// What is wrong with the numbers, if the logits are none: where that begins.
fn damage(trace: &Trace) -> Option<String> {
    let sound = |step: &&Step| step.stats.sum.is_finite();
    trace.steps.iter().rfind(|step| step.name == "logits").filter(|step| !sound(step))?;
    let first = trace.steps.iter().find(|step| !sound(step))?;
    Some(format!(
        "the model's logits are not numbers; the weights are damaged: the first tensor that is not \
         finite is {}",
        first.name
    ))
}

fn show(
    arguments: &TraceArguments,
    selections: &[Selection],
    tensors: &[Tensor],
    trace: &Trace,
    package: &Package,
) -> Result<(), Failure> {
    let screen = Screen::detect();
    match (arguments.json, selections.is_empty()) {
        (true, true) => print(trace),
        (true, false) => print(&Document::new(tensors)),
        (false, true) => {
            let detected = || arguments.lang.unwrap_or_else(Language::detect);
            let language = (arguments.explain || arguments.lang.is_some()).then(detected);
            Ok(walk::draw(screen, trace, package, arguments.rows, language)?)
        }
        // What is in a file is not shown too.
        (false, false) => Ok(report::tensors(screen, tensors, arguments.save.is_none())?),
    }
}

fn list(
    arguments: &TraceArguments,
    names: &Names,
    trace: &Trace,
    package: &Package,
) -> Result<(), Failure> {
    let document = names.list(trace, &package.config);
    if arguments.json {
        return print(&document);
    }
    Ok(names::draw(Screen::detect(), &document, arguments.decode)?)
}

fn save(
    path: &Path,
    tensors: &[Tensor],
    trace: &Trace,
    package: &Package,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let origin = Origin {
        model: &package.name,
        tokens: trace.tokens.iter().map(|token| token.id).collect(),
        decoded: trace.decode.iter().map(|step| step.token.id).collect(),
    };
    tensor_file::save(path, tensors, &origin)?;
    let text = format!("{} ({})", path.display(), counted(tensors.len(), "tensor"));
    terminal.status("Saved", &text);
    Ok(())
}

/// The tensors of the file to compare with. A file without names holds the one that was chosen.
fn reference(
    arguments: &TraceArguments,
    selections: &[Selection],
) -> Result<Option<Contents>, Failure> {
    let Some(path) = &arguments.compare else { return Ok(None) };
    let unnamed = match selections {
        [one] => one.name.as_str(),
        _ if Format::of(path)? == Format::Npy => {
            let message = "a .npy file does not say what it holds: name one tensor by --tensor";
            return Err(Failure::Usage(message.to_owned()));
        }
        _ => "",
    };
    tensor_file::read(path, unnamed).map(Some)
}

fn collect(
    arguments: &TraceArguments,
    package: &Package,
    keep: &dyn Fn(TensorName) -> bool,
    terminal: &Terminal,
) -> Result<Trace, Failure> {
    let prompt = prompt(arguments, package)?;
    let options =
        EngineOptions { threads: arguments.threads.map(usize::from), ..EngineOptions::default() };
    let work = terminal.work("Loading");
    let progress = |done, total| work.set(done, total);
    let mut model = options.load(package, &progress).map_err(Failure::new)?;
    drop(work);
    let options = Options {
        layer: arguments.layer,
        head: arguments.head,
        query: arguments.query,
        decode: arguments.decode,
        top: usize::from(arguments.top),
        keep,
    };
    trace(&mut model, package, &prompt, &options).map_err(|error| match error {
        TraceError::Empty
        | TraceError::TooLong { .. }
        | TraceError::Decode { .. }
        | TraceError::Absent { .. } => Failure::Usage(error.to_string()),
        error => Failure::new(error),
    })
}

/// The prompt's token ids.
fn prompt(arguments: &TraceArguments, package: &Package) -> Result<Vec<u32>, Failure> {
    if arguments.chat {
        if arguments.prompt.trim().is_empty() {
            return Err(Failure::Usage("the prompt is empty: give some text".to_owned()));
        }
        let message = json!({"role": "user", "content": arguments.prompt});
        let rendered = conversation(package, &[message], "leave --chat out");
        let (_, encoding) = rendered.map_err(|failure| match failure {
            Failure::Failed(error) if package.chat_template.is_none() => Failure::Usage(error),
            other => other,
        })?;
        return Ok(encoding.ids);
    }
    Ok(package.tokenizer.encode(&arguments.prompt, true).map_err(Failure::new)?.ids)
}

/// The chosen parts of the tensors that were kept, in the order of the flags; all, where none was
/// chosen.
fn cut(
    selections: &[Selection],
    kept: Vec<(TensorName, Tensor)>,
    package: &Package,
) -> Result<Vec<Tensor>, Failure> {
    if selections.is_empty() {
        return Ok(kept.into_iter().map(|(_, tensor)| tensor).collect());
    }
    let mut tensors = Vec::new();
    for selection in selections {
        let meant = |name: &TensorName| selection.names(*name, package.config.architecture);
        for (_, tensor) in kept.iter().filter(|(name, _)| meant(name)) {
            tensors.push(selection.of(tensor)?);
        }
    }
    Ok(tensors)
}

fn report_comparison(
    arguments: &TraceArguments,
    selections: &[Selection],
    tensors: &[Tensor],
    mut contents: Contents,
) -> Result<(), Failure> {
    // The one tensor of a .npy file may have been named by an alias.
    if let ([one], [theirs]) = (tensors, contents.tensors.as_mut_slice())
        && selections.iter().any(|selection| selection.name == theirs.name)
    {
        theirs.name.clone_from(&one.name);
    }
    let chosen = !selections.is_empty();
    let comparison: Comparison = compare(tensors, contents, chosen, arguments.tolerance);
    if arguments.json {
        print(&comparison)?;
    } else {
        report::comparison(Screen::detect(), &comparison)?;
    }
    if comparison.passed { Ok(()) } else { Err(Failure::CheckFailed) }
}

fn print(document: &impl Serialize) -> Result<(), Failure> {
    let document = serde_json::to_string(document).map_err(Failure::new)?;
    Ok(writeln!(anstream::stdout(), "{document}")?)
}
