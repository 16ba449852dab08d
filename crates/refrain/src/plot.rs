//! Pictures of curves, as SVG files.

use std::path::Path;

pub(crate) use plotters::chart::SeriesLabelPosition;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::full_palette::GREY_600;

use crate::failure::Failure;

const SIZE: (u32, u32) = (1_000, 440);

/// A place in a panel: across, and up.
pub(crate) type Point = (f64, f64);

/// A line through points.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// One of the pictures that stand side by side in a file.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) curves: Vec<Curve>,
    /// Where the scale across begins.
    pub(crate) x_min: f64,
    /// What is written at a number of the scale across.
    pub(crate) x_label: fn(&f64) -> String,
    /// What is written at a number of the scale up, which begins at 0.
    pub(crate) y_label: fn(&f64) -> String,
    /// Whether the points are marked.
    pub(crate) marked: bool,
    /// Where the curves' names stand.
    pub(crate) names: SeriesLabelPosition,
    /// The scale up goes to this many times the highest point.
    pub(crate) head_room: f64,
}

/// Whether a picture can be written, which is better known before an hour of work.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
        let path = path.display();
        return Err(Failure::Usage(format!("--plot draws an .svg file, not {path}")));
    }
    let opened = std::fs::File::options().create(true).append(true).open(path);
    opened
        .map(drop)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Writes a picture of `panels`, side by side.
pub(crate) fn draw(panels: &[Panel; 2], path: &Path) -> Result<(), Failure> {
    let drawn = try_draw(panels, path);
    drawn.map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

fn try_draw(panels: &[Panel; 2], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    let [first, second] = panels;
    first.draw(&left)?;
    second.draw(&right)?;
    area.present()?;
    Ok(())
}

impl Panel {
    fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        DB::ErrorType: 'static,
    {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let x_max = all().map(|point| point.0).fold(self.x_min + 1.0, f64::max);
        let y_max = all().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max) * self.head_room;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(self.x_min..x_max, 0.0..y_max)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY_600.mix(0.2))
            .x_label_formatter(&self.x_label)
            .y_label_formatter(&self.y_label)
            .draw()?;
        for (index, curve) in self.curves.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let points = curve.points.iter().copied();
            let size = if self.marked { 3 } else { 0 };
            let line = LineSeries::new(points, colour.stroke_width(2)).point_size(size);
            chart.draw_series(line)?.label(&curve.name).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
            });
        }
        chart
            .configure_series_labels()
            .position(self.names.clone())
            .background_style(WHITE.mix(0.8))
            .label_font(("sans-serif", 13))
            .draw()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_an_svg_file_that_can_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(check(&folder.path().join("growth.svg")).is_ok());
        for bad in ["no/growth.svg", "growth.txt", "growth"] {
            assert!(check(&folder.path().join(bad)).is_err(), "{bad}");
        }
    }
}
