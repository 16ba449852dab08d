//! How cost grows: a picture of prefill by length and of decode by depth.

use std::path::Path;

use super::run::{LIMIT, OURS, Run, Spread, Test};
use crate::failure::Failure;
use crate::plot::{self, Curve, Panel, Point, SeriesLabelPosition};

const PREFILLS: [u32; 7] = [256, 512, 1_024, 2_048, 4_096, 6_144, 8_000];
const DEPTHS: [u32; 6] = [0, 1_024, 2_048, 4_096, 6_144, 8_000];
/// Tokens decoded at each depth.
const DECODED: u32 = 32;

pub(super) fn tests() -> Vec<Test> {
    let prefills = PREFILLS.map(|tokens| Test::Prefill { tokens, depth: 0 });
    let decodes = DEPTHS.map(|depth| Test::Decode { tokens: DECODED, depth });
    prefills.into_iter().chain(decodes).collect()
}

/// Writes the picture of all `runs`, of each program at its best setting.
pub(super) fn draw(runs: &[Run], path: &Path) -> Result<(), Failure> {
    let prefill = |test: Test, rate: f64| match test {
        Test::Prefill { tokens, .. } => Some((f64::from(tokens), f64::from(tokens) * 1e3 / rate)),
        _ => None,
    };
    let decode = |test: Test, rate: f64| match test {
        Test::Decode { depth, .. } => Some((f64::from(depth), 1e3 / rate)),
        _ => None,
    };
    let panel = |title, curves| {
        let label = |number: &f64| number.to_string();
        Panel {
            title,
            curves,
            x_min: 0.0,
            x_label: label,
            y_label: label,
            marked: true,
            names: SeriesLabelPosition::UpperLeft,
            head_room: 1.05,
        }
    };
    let panels = [
        panel("Prefill, ms, by tokens", curves(runs, prefill)),
        panel("Decode, ms a token, by tokens before it", curves(runs, decode)),
    ];
    plot::draw(&panels, path)
}

/// Each program's points, ours first.
fn curves(runs: &[Run], point: impl Fn(Test, f64) -> Option<Point>) -> Vec<Curve> {
    let mut programs: Vec<&str> = vec![OURS];
    for run in runs {
        if run.program != LIMIT && !programs.contains(&run.program.as_str()) {
            programs.push(&run.program);
        }
    }
    let curve = |program: &str| {
        let mut points: Vec<Point> = Vec::new();
        for test in tests() {
            let of_test = || runs.iter().filter(|run| run.program == program && run.test == test);
            let medians = of_test().filter_map(|run| {
                let alike = of_test().filter(|other| other.setting == run.setting);
                Spread::of(alike.map(|run| run.value)).map(|spread| spread.median)
            });
            points.extend(medians.reduce(f64::max).and_then(|rate| point(test, rate)));
        }
        Curve { name: program.to_owned(), points }
    };
    programs.into_iter().map(curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("growth.svg");
        let mut runs = Vec::new();
        for program in [OURS, "another"] {
            for test in super::tests() {
                let (program, setting) = (program.to_owned(), String::new());
                let (model, unit) = (String::new(), test.unit());
                let value = 100.0;
                runs.push(Run { model, test, threads: 1, program, setting, unit, value });
            }
        }
        draw(&runs, &path).expect("a picture");
        let picture = std::fs::read_to_string(&path).expect("a file");
        assert!(picture.contains(OURS) && picture.contains("another"));
    }
}
