//! How cost grows: a picture of prefill by length and of decode by depth.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::full_palette::GREY_600;

use super::run::{LIMIT, OURS, Run, Spread, Test};
use crate::failure::Failure;

const PREFILLS: [u32; 7] = [256, 512, 1_024, 2_048, 4_096, 6_144, 8_000];
const DEPTHS: [u32; 6] = [0, 1_024, 2_048, 4_096, 6_144, 8_000];
/// Tokens decoded at each depth.
const DECODED: u32 = 32;
const SIZE: (u32, u32) = (1_000, 440);

/// Tokens and milliseconds.
type Point = (f64, f64);

pub(super) fn tests() -> Vec<Test> {
    let prefills = PREFILLS.map(|tokens| Test::Prefill { tokens, depth: 0 });
    let decodes = DEPTHS.map(|depth| Test::Decode { tokens: DECODED, depth });
    prefills.into_iter().chain(decodes).collect()
}

/// Whether the picture can be written, which is better known before an hour of measuring.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
        let path = path.display();
        return Err(Failure::Usage(format!("--plot draws an .svg file, not {path}")));
    }
    let opened = std::fs::File::options().create(true).append(true).open(path);
    opened
        .map(drop)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Writes the picture of all `runs`, of each program at its best setting.
pub(super) fn draw(runs: &[Run], path: &Path) -> Result<(), Failure> {
    let drawn = try_draw(runs, path);
    drawn.map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

fn try_draw(runs: &[Run], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    let prefill = |test: Test, rate: f64| match test {
        Test::Prefill { tokens, .. } => Some((f64::from(tokens), f64::from(tokens) * 1e3 / rate)),
        _ => None,
    };
    let decode = |test: Test, rate: f64| match test {
        Test::Decode { depth, .. } => Some((f64::from(depth), 1e3 / rate)),
        _ => None,
    };
    panel(&left, "Prefill, ms, by tokens", &curves(runs, prefill))?;
    panel(&right, "Decode, ms a token, by tokens before it", &curves(runs, decode))?;
    area.present()?;
    Ok(())
}

/// Each program's points, ours first.
fn curves(runs: &[Run], point: impl Fn(Test, f64) -> Option<Point>) -> Vec<(String, Vec<Point>)> {
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
        (program.to_owned(), points)
    };
    programs.into_iter().map(curve).collect()
}

fn panel<DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    title: &str,
    curves: &[(String, Vec<Point>)],
) -> Result<(), Box<dyn std::error::Error>>
where
    DB::ErrorType: 'static,
{
    let all = || curves.iter().flat_map(|(_, points)| points);
    let x_max = all().map(|point| point.0).fold(1.0, f64::max);
    let y_max = all().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY_600.mix(0.2))
        .draw()?;
    for (index, (program, points)) in curves.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
        chart
            .draw_series(line)?
            .label(program)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
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
        assert!(check(&path).is_ok());
        for bad in ["no/growth.svg", "growth.txt", "growth"] {
            assert!(check(&folder.path().join(bad)).is_err(), "{bad}");
        }
    }
}
