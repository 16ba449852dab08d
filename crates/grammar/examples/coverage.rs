//! Writes COVERAGE.md, the table of what the sample of MaskBench asks and what of it is supported:
//! `REFRAIN_SMOLLM2=<file> cargo run --release -p grammar --example coverage`.

#[path = "../tests/sample/order.rs"]
mod order;
#[path = "../tests/sample/mod.rs"]
mod sample;
#[path = "../tests/sample/survey.rs"]
mod survey;

use std::fmt::Write;
use std::path::Path;
use survey::Survey;

fn main() -> std::io::Result<()> {
    let (Some(cases), Some(tokenizer)) = (sample::cases(), sample::tokenizer()) else {
        println!("not run: no data");
        return Ok(());
    };
    let survey = Survey::of(&cases, &tokenizer);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("COVERAGE.md");
    std::fs::write(&path, document(&survey))?;
    println!("{} is written", path.display());
    Ok(())
}

fn document(survey: &Survey) -> String {
    let mut out = String::from(HEAD);
    let valid = survey.valid_as_given + survey.valid_in_order;
    let rows = [
        ("schemas", survey.schemas),
        ("schemas that are supported", survey.supported),
        ("valid instances of these, accepted", valid),
        ("of them with the keys in another order than they had", survey.valid_in_order),
        ("valid instances, refused", survey.valid_refused.len()),
        ("invalid instances, refused", survey.invalid_refused),
        ("invalid instances, accepted", survey.invalid_accepted.len()),
        ("instances that failed for lack of steps", survey.failed.len()),
    ];
    out.push_str("\n| what | count |\n| --- | ---: |\n");
    for (what, count) in rows {
        writeln!(out, "| {what} | {count} |").expect("a string");
    }
    out.push_str("\n## Why schemas are refused\n\n| what is not supported | schemas |\n");
    out.push_str("| --- | ---: |\n");
    for (feature, count) in &survey.refused {
        writeln!(out, "| {feature} | {count} |").expect("a string");
    }
    out.push_str("\n## By keyword\n\n| keyword | schemas with it | of them supported |\n");
    out.push_str("| --- | ---: | ---: |\n");
    for (keyword, (all, supported)) in &survey.keywords {
        writeln!(out, "| `{keyword}` | {all} | {supported} |").expect("a string");
    }
    out
}

const HEAD: &str = "# What of JSON Schema is supported\n\n\
    Written by `cargo run --release -p grammar --example coverage`, over 2,000 schemas of \
    [MaskBench](https://github.com/guidance-ai/jsonschemabench) with their instances, by \
    SmolLM2's tokenizer. A schema is supported as a whole or refused as a whole, before an answer \
    begins; the keyword that a schema is refused for need not be the one of a row below.\n";
