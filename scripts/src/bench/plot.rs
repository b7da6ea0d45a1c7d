//! Line and bar plots, as SVG.

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;
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

/// An axis: its title and its scale.
pub struct Axis(pub &'static str, pub Scale);

/// The kind of a scale. Sizes and powers of ten are logarithmic; the others are linear.
#[derive(Clone, Copy)]
pub enum Scale {
    /// Linear, from 0.
    Even,
    /// Linear from 0, with integer labels.
    Whole,
    /// Bytes, labelled at each power of 16.
    Bytes,
    /// Logarithmic, from a power of ten to a power of ten.
    Tens,
}

/// The range of a scale.
struct Ruler {
    scale: Scale,
    /// Linear coordinates: values, or their logarithms.
    places: Range<f64>,
}

impl Ruler {
    /// Margin above the highest value, as a fraction of the range.
    fn new(scale: Scale, values: impl Iterator<Item = f64>, room: f64) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for place in values.map(|value| scale.place(value)) {
            (least, most) = (least.min(place), most.max(place));
        }
        let (from, to) = match scale {
            Scale::Even | Scale::Whole => (least.min(0.0), most),
            Scale::Bytes => (least, most),
            Scale::Tens => (least.floor(), most.ceil()),
        };
        let places = from..to + (to - from) * room;
        Self { scale, places }
    }
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Even | Self::Whole => value,
            Self::Bytes => value.log2(),
            Self::Tens => value.log10(),
        }
    }

    fn value(self, place: f64) -> f64 {
        match self {
            Self::Even | Self::Whole => place,
            Self::Bytes => place.exp2(),
            Self::Tens => 10_f64.powf(place),
        }
    }
}

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.places.clone()).map(&self.scale.place(*value), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let step = match self.scale {
            Scale::Even => return RangedCoordf64::from(self.places.clone()).key_points(hint),
            Scale::Whole | Scale::Tens => 1,
            Scale::Bytes => 4,
        };
        let (first, last) = (self.places.start.ceil() as i32, self.places.end as i32);
        let places = (first..=last).step_by(step).map(f64::from);
        places.map(|place| self.scale.value(place)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.scale.value(self.places.start)..self.scale.value(self.places.end)
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, value: &f64) -> String {
        match self.scale {
            Scale::Even => RangedCoordf64::format(value),
            Scale::Tens if *value < 1.0 => format!("{value:.1}"),
            Scale::Whole | Scale::Tens => format!("{value:.0}"),
            Scale::Bytes => bytes(*value as u64),
        }
    }
}

/// A size that is a power of two.
pub fn bytes(size: u64) -> String {
    match size.checked_ilog2() {
        Some(20..) => format!("{} MiB", size >> 20),
        Some(10..) => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    }
}

const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 39),
    RGBColor(44, 140, 60),
    RGBColor(130, 90, 170),
    RGBColor(110, 110, 110),
];

/// Lines with at most this many points have a mark at each.
const MAX_MARKED_POINTS: usize = 16;

/// Draws lines over a horizontal and a vertical axis.
pub fn draw(path: &Path, title: &str, axes: [Axis; 2], lines: &[Line]) -> Result<()> {
    let [Axis(across, x), Axis(up, y)] = axes;
    let points = || lines.iter().flat_map(|line| &line.points);
    let wide = Ruler::new(x, points().map(|point| point.0), 0.0);
    // Space for the legend above the plot.
    let high = Ruler::new(y, points().map(|point| point.1), 0.15);
    let area = SVGBackend::new(path, (640, 360)).into_drawing_area();
    let wrong = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| wrong(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(wide, high)
        .map_err(|error| wrong(&error))?;
    chart
        .configure_mesh()
        .x_desc(across)
        .y_desc(up)
        .light_line_style(WHITE)
        .draw()
        .map_err(|error| wrong(&error))?;
    for (line, colour) in lines.iter().zip(COLOURS.into_iter().cycle()) {
        if line.points.len() <= MAX_MARKED_POINTS {
            let dots = line
                .points
                .iter()
                .map(|at| Circle::new(*at, 3, colour.filled()));
            chart.draw_series(dots).map_err(|error| wrong(&error))?;
        }
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

/// Draws grouped bars. A series has one bar in each group; a point is the group's number and the bar's
/// height.
pub fn bars(path: &Path, title: &str, up: Axis, groups: &[&str], lines: &[Line]) -> Result<()> {
    let Axis(up, y) = up;
    let heights = lines.iter().flat_map(|line| &line.points);
    let high = Ruler::new(y, heights.map(|point| point.1), 0.35);
    let foot = high.range().start;
    // One position for each bar, and one between groups.
    let each = lines.len() + 1;
    let area = SVGBackend::new(path, (640, 360)).into_drawing_area();
    let wrong = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| wrong(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d((0..groups.len() * each).into_segmented(), high)
        .map_err(|error| wrong(&error))?;
    let name = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(place) if place % each == lines.len() / 2 => {
            groups[place / each].to_owned()
        }
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_desc(up)
        .x_labels(groups.len() * each)
        .x_label_formatter(&name)
        .light_line_style(WHITE)
        .draw()
        .map_err(|error| wrong(&error))?;
    for (nth, (line, colour)) in lines.iter().zip(COLOURS.into_iter().cycle()).enumerate() {
        let bar = |(group, height): &(f64, f64)| {
            let place = *group as usize * each + nth;
            let corners = [
                (SegmentValue::Exact(place), foot),
                (SegmentValue::Exact(place + 1), *height),
            ];
            Rectangle::new(corners, colour.filled())
        };
        let drawn = chart.draw_series(line.points.iter().map(bar));
        drawn
            .map_err(|error| wrong(&error))?
            .label(&line.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(|error| wrong(&error))?;
    area.present().map_err(|error| wrong(&error))
}

/// At most as many points as a plot can show: the highest of each stretch.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(600).max(1);
    let highest = |part: &[(f64, f64)]| part.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    points.chunks(stretch).filter_map(highest).collect()
}
