//! Whether each check can fail: all of them on observations that were tampered with.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Fault, Site, TapPoint};
use package::Package;

use crate::row::{Check, Row};
use crate::rows::SECTIONS;
use crate::sequence::{Kv, Pass};
use crate::subject::Subject;
use crate::tally::Tally;

/// Rows whose check runs the model or the tokenizer itself, past what can be tampered with here:
/// the round trip of a text, values that are changed in the cache, the whole list of candidates.
const BY_THEMSELVES: [u16; 3] = [18, 70, 105];

type Tamper = (&'static str, fn(&mut Pass), fn(&mut Kv));

const TAMPERS: [Tamper; 7] = [
    ("numbers are moved", move_numbers, |kv| kv.change(|at, number| number + 1.0 + at as f32)),
    ("all numbers are one", one_number, |kv| kv.change(|_, _| 0.5)),
    ("the last row is missing", cut, |kv| kv.change(|_, _| 0.0)),
    ("the last column is missing", narrow, |_| {}),
    ("the order is reversed", |pass| pass.order.reverse(), |kv| kv.layers -= 1),
    ("everything is twice", |pass| pass.order.extend_from_within(..), |kv| kv.number_bytes += 1),
    ("logits in a layer", stray_logits, |kv| kv.heads -= 1),
];

/// Moves numbers, in each tensor and each row by another amount.
fn move_numbers(pass: &mut Pass) {
    for (place, point) in pass.order.clone().into_iter().enumerate() {
        let tensor = pass.tensor_mut(point);
        let width = tensor.width().max(1);
        for (at, number) in tensor.values.iter_mut().enumerate() {
            *number += 1.0 + number.abs() + place as f32 + (at / width) as f32;
        }
    }
    pass.logits.iter_mut().enumerate().for_each(|(at, logit)| *logit += (at % 7) as f32);
}

fn one_number(pass: &mut Pass) {
    for point in pass.order.clone() {
        pass.tensor_mut(point).values.fill(0.5);
    }
    pass.logits.fill(0.5);
}

fn cut(pass: &mut Pass) {
    for point in pass.order.clone() {
        let tensor = pass.tensor_mut(point);
        tensor.values.truncate(tensor.values.len() - tensor.width());
        tensor.shape[0] -= 1;
    }
    pass.logits.pop();
}

fn narrow(pass: &mut Pass) {
    for point in pass.order.clone() {
        let tensor = pass.tensor_mut(point);
        let width = tensor.shape.pop().unwrap_or(0);
        let rows = tensor.values.chunks_exact(width);
        tensor.values = rows.flat_map(|row| &row[1..]).copied().collect();
        tensor.shape.push(width - 1);
    }
}

fn stray_logits(pass: &mut Pass) {
    let point = TapPoint { layer: Some(0), site: Site::Logits };
    let logits = pass.tensor_mut(TapPoint::from(Site::Logits)).clone();
    pass.order.push(point);
    *pass.tensor_mut(point) = logits;
}

fn all_rows() -> impl Iterator<Item = &'static Row> {
    SECTIONS.iter().flat_map(|section| section.rows)
}

/// The rows whose check of the model fails, of those that have one.
fn not_ok(subject: &mut Subject) -> BTreeSet<u16> {
    let fails = |row: &&Row| {
        let mut tally = Tally::default();
        match row.check {
            Check::Model(check) => check(subject, &mut tally).is_err() || tally.comparisons == 0,
            _ => false,
        }
    };
    all_rows().filter(fails).map(|row| row.number).collect()
}

/// The same for checks of the package.
fn not_ok_of_package(package: &Arc<Package>) -> BTreeSet<u16> {
    let fails = |row: &&Row| {
        let mut tally = Tally::default();
        match row.check {
            Check::Package(check) => check(package, &mut tally).is_err() || tally.comparisons == 0,
            _ => false,
        }
    };
    all_rows().filter(fails).map(|row| row.number).collect()
}

fn goldens(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/goldens").join(name)
}

fn random_distilgpt2() -> Package {
    let vocabulary = std::env::var("REFRAIN_GPT2_VOCAB");
    let vocabulary = PathBuf::from(vocabulary.expect("`cargo xtask test` names the vocabulary"));
    let [ids, merges] = ["encoder.json", "vocab.bpe"].map(|name| vocabulary.join(name));
    let folder = tempfile::tempdir().unwrap().keep();
    random_model::write_distilgpt2(&folder, &ids, &merges).unwrap();
    Package::open(&folder).unwrap()
}

#[test]
fn each_check_can_fail() {
    let mut package = random_distilgpt2();
    let folder = package.path.clone();
    let sound = Arc::new(package);
    assert_eq!(not_ok_of_package(&sound), BTreeSet::new());
    let mut subject = Subject::load(&sound, None).unwrap();
    assert_eq!(not_ok(&mut subject), BTreeSet::new());
    let mut noticed: BTreeSet<u16> = BY_THEMSELVES.into();
    for (what, of_pass, of_kv) in TAMPERS {
        subject.tamper(of_pass, of_kv).unwrap();
        let rows = not_ok(&mut subject);
        println!("{what}: {rows:?}");
        noticed.extend(rows);
    }
    // What two observations of the cache have in common can only be broken in the engine.
    subject.set_fault(Some(Fault::CacheShort));
    noticed.extend(not_ok(&mut subject));
    drop(subject);

    // Another model's weights, tokenizer and files under a configuration that is no one's.
    package = Package::open(&goldens("gpt2-prefix")).unwrap();
    package.path = goldens("gpt2-plain");
    package.config.layers = 5;
    package.config.heads = 11;
    package.config.hidden = 767;
    package.config.head_dim = 63;
    let rows = not_ok_of_package(&Arc::new(package));
    println!("another package: {rows:?}");
    noticed.extend(rows);
    std::fs::remove_dir_all(folder).unwrap();

    let checked = |row: &&Row| matches!(row.check, Check::Model(_) | Check::Package(_));
    let blind =
        all_rows().filter(checked).map(|row| row.number).filter(|row| !noticed.contains(row));
    assert_eq!(blind.collect::<Vec<_>>(), [0; 0], "rows that noticed nothing");
}
