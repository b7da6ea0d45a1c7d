//! Lines over numbers, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

pub struct Line {
    name: String,
    pub points: Vec<(f64, f64)>,
}

impl Line {
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        let name = name.to_owned();
        Self { name, points }
    }
}

const COLOURS: [RGBColor; 3] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 39),
    RGBColor(44, 140, 60),
];

/// Draws lines over one pair of axes, from 0 up unless `free` leaves the left end where it is.
pub fn draw(
    path: &Path,
    title: &str,
    axes: (&str, &str),
    lines: &[Line],
    free: bool,
) -> Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let left = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let left = if free { left } else { left.min(0.0) };
    let (right, top) = (most(|point| point.0), most(|point| point.1) * 1.15);
    let area = SVGBackend::new(path, (640, 360)).into_drawing_area();
    let wrong = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| wrong(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(left..right, 0.0..top)
        .map_err(|error| wrong(&error))?;
    chart
        .configure_mesh()
        .x_desc(axes.0)
        .y_desc(axes.1)
        .light_line_style(WHITE)
        .draw()
        .map_err(|error| wrong(&error))?;
    for (line, colour) in lines.iter().zip(COLOURS.into_iter().cycle()) {
        let series = LineSeries::new(thinned(&line.points), colour.stroke_width(2));
        let drawn = chart.draw_series(series).map_err(|error| wrong(&error))?;
        drawn
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(|error| wrong(&error))?;
    area.present().map_err(|error| wrong(&error))
}

/// As many points as a plot can show: of each stretch the highest.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(600).max(1);
    let highest = |part: &[(f64, f64)]| part.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    points.chunks(stretch).filter_map(highest).collect()
}
