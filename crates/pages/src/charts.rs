//! Charts as SVG. Knows points and names, not their meaning.
//!
//! A chart is readable without its style; with it the colours follow the page's. Lines differ by dashes as well as by
//! colour, and each chart has a title and a description in words.

use std::fmt::Write;
use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

/// A chart, ready for [`crate::figure`].
pub struct Chart {
    /// Its title.
    pub title: String,
    /// The drawing.
    pub svg: String,
    /// Names of the lines, or of the parts of bars, in the order of their colours.
    pub legend: Vec<String>,
    /// The legend's colours fill areas.
    pub filled: bool,
    /// A remark below the chart.
    pub note: Option<String>,
}

/// A line with its name in the legend.
pub struct Line {
    /// Name of the line in the legend; empty for none.
    pub name: String,
    /// Its points, in the order of x.
    pub points: Vec<(f64, f64)>,
}

/// Scale of a horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// Numbers.
    Plain,
    /// Whole numbers, such as those of runs.
    Whole,
    /// Shares of requests: the numbers are decades of the remaining share, and 3 means 99.9 %.
    Percentiles,
}

/// Labels and scales of a chart's axes.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// Title of the chart.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis.
    pub y: &'a str,
    /// The vertical axis is logarithmic; points at zero are then drawn at the bottom.
    pub logarithmic: bool,
    /// Scale of the horizontal axis.
    pub across: Across,
    /// Points are joined by lines; otherwise each is a mark.
    pub joined: bool,
}

/// Stacked bars, one for each name.
pub struct Bar {
    /// Name of the bar.
    pub name: String,
    /// The parts, from the left, in the order of the legend.
    pub parts: Vec<f64>,
}

/// An estimate with its interval.
pub struct Interval {
    /// Name of the figure.
    pub name: String,
    /// The lower end.
    pub low: f64,
    /// The estimate.
    pub at: f64,
    /// The upper end.
    pub high: f64,
}

/// The reason why a chart could not be drawn.
pub type DrawError = Box<dyn std::error::Error>;

const SIZE: (u32, u32) = (860, 320);
/// Colours that can be distinguished, also with a colour vision deficiency.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 128, 93),
    RGBColor(176, 86, 138),
    RGBColor(176, 118, 0),
    RGBColor(47, 143, 196),
    RGBColor(120, 94, 40),
    RGBColor(80, 80, 80),
];
/// Dashes of lines.
const DASHES: [&str; 3] = ["", "9 4", "2 3"];
/// Largest number of lines that differ by colour and dashes.
const LOOKS: usize = COLOURS.len() * DASHES.len();
/// Smallest start of a logarithmic axis.
const LEAST: f64 = 0.001;
/// Height of a row of bars.
const ROW: u32 = 24;
/// Largest number of characters of a name beside a row.
const NAME_CHARS_MAX: usize = 44;

/// Returns the places of a line's colour and dashes.
pub fn look(place: usize) -> (usize, usize) {
    (place % COLOURS.len(), place % DASHES.len())
}

/// Returns a stand-in for the look of a line or part, which [`finished`] replaces.
fn stand_in(place: usize) -> RGBColor {
    RGBColor(1, 254, (place % LOOKS) as u8)
}

/// Returns a chart of lines over a common axis.
pub fn lines(axes: &Axes<'_>, lines: &[Line]) -> Result<Chart, DrawError> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let (left, mut right) = range(points().map(|point| point.0));
    if axes.across == Across::Percentiles {
        right = right.max(1.0);
    }
    let (_, most) = range(points().map(|point| point.1));
    let svg = if axes.logarithmic {
        let above = points().map(|point| point.1).filter(|y| *y > 0.0);
        let bottom = range(above).0.max(LEAST) * 0.8;
        let top = (most * 1.5).max(bottom * 10.0);
        let keys = decades(bottom, top);
        let upright = Scale {
            logarithmic: true,
            ..Scale::new(bottom..top, keys)
        };
        draw(axes, lines, left..right, upright, bottom)?
    } else {
        let top = if most > 0.0 { most * 1.1 } else { 1.0 };
        let upright = Scale::new(0.0..top, ticks(0.0, top, 6));
        draw(axes, lines, left..right, upright, 0.0)?
    };
    let named = lines.iter().filter(|line| !line.name.is_empty());
    Ok(Chart {
        title: axes.title.to_owned(),
        svg,
        legend: named.map(|line| crate::plain(&line.name)).collect(),
        filled: false,
        note: None,
    })
}

/// An axis: its range, and the points that have a label and a line of the grid.
struct Scale {
    range: Range<f64>,
    keys: Vec<f64>,
    logarithmic: bool,
}

impl Scale {
    fn new(range: Range<f64>, keys: Vec<f64>) -> Scale {
        Scale {
            range,
            keys,
            logarithmic: false,
        }
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let place = |value: f64| match self.logarithmic {
            true => value.max(f64::MIN_POSITIVE).ln(),
            false => value,
        };
        let (from, to) = (place(self.range.start), place(self.range.end));
        let share = (place(*value) - from) / (to - from);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.keys.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

fn draw(
    axes: &Axes<'_>,
    lines: &[Line],
    across: Range<f64>,
    upright: Scale,
    bottom: f64,
) -> Result<String, DrawError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = grid(&root, axes, across, upright, &|y| number(*y))?;
        for (place, line) in lines.iter().enumerate() {
            let colour = stand_in(place);
            let points = thinned(&line.points).into_iter();
            let points: Vec<_> = points.map(|(x, y)| (x, y.max(bottom))).collect();
            // A single point is no line.
            if axes.joined && points.len() > 1 {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            } else {
                let marks = points.into_iter();
                chart.draw_series(marks.map(|point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        root.present()?;
    }
    let said = lines.iter().map(|line| {
        let said = match ends(line.points.iter().map(|point| point.1)) {
            None => "no points".to_owned(),
            Some((least, most)) => format!(
                "{} points from {} to {}",
                line.points.len(),
                number(least),
                number(most)
            ),
        };
        match line.name.as_str() {
            "" => said,
            name => format!("{name}: {said}"),
        }
    });
    let said: Vec<String> = said.collect();
    Ok(finished(svg, axes, &said.join("; ")))
}

/// Returns the range of a horizontal axis with its labelled points.
fn key_points(across: Across, range: Range<f64>) -> Scale {
    let keys = match across {
        Across::Plain => ticks(range.start, range.end, 10),
        Across::Whole => {
            let step = ((range.end - range.start) / 12.0).ceil().max(1.0);
            let first = range.start.ceil();
            let steps = ((range.end - first) / step).floor().max(0.0) as usize;
            (0..=steps).map(|n| first + n as f64 * step).collect()
        }
        // 0 %, 50 %, and then a nine more for each decade.
        Across::Percentiles => [0.0, 2f64.log10()]
            .into_iter()
            .chain((1..=range.end.floor() as usize).map(|decade| decade as f64))
            .collect(),
    };
    Scale::new(range, keys)
}

/// Returns about `count` round numbers between two.
fn ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    let rough = ((to - from) / count as f64).max(f64::MIN_POSITIVE);
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * decade);
    let step = step
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (from / step).ceil();
    let last = (to / step).floor();
    (0..=(last - first).max(0.0) as usize)
        .map(|n| (first + n as f64) * step)
        .collect()
}

/// Returns the powers of ten between two numbers; with few of them also their doubles and fives.
fn decades(from: f64, to: f64) -> Vec<f64> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let factors: &[f64] = match last - first {
        ..=3 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let all = (first..=last).flat_map(|power| {
        let decade = 10f64.powi(power);
        factors.iter().map(move |factor| factor * decade)
    });
    all.filter(|key| (from..=to).contains(key)).collect()
}

/// Returns the distinguishable points: of those in one column of pixels the first, the last, the lowest, the highest.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let columns = SIZE.0 as usize;
    if points.len() <= 4 * columns {
        return points.to_vec();
    }
    let (left, right) = range(points.iter().map(|point| point.0));
    let column = |x: f64| ((x - left) / (right - left) * columns as f64) as usize;
    let mut thin = Vec::new();
    for together in points.chunk_by(|a, b| column(a.0) == column(b.0)) {
        let by_y = |a: &usize, b: &usize| together[*a].1.total_cmp(&together[*b].1);
        let places = 0..together.len();
        let lowest = places.clone().min_by(by_y).unwrap_or(0);
        let highest = places.max_by(by_y).unwrap_or(0);
        let mut kept = vec![0, lowest, highest, together.len() - 1];
        kept.sort_unstable();
        kept.dedup();
        thin.extend(kept.into_iter().map(|place| together[place]));
    }
    thin
}

/// Returns a chart of stacked bars, one below the other; `parts` names the stacked parts.
pub fn bars(axes: &Axes<'_>, parts: &[&str], bars: &[Bar]) -> Result<Chart, DrawError> {
    let whole = |bar: &Bar| bar.parts.iter().sum::<f64>();
    let highest = bars.iter().map(whole).fold(0.0, f64::max);
    let right = if highest > 0.0 { highest * 1.15 } else { 1.0 };
    let names: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size_of_rows(bars.len())).into_drawing_area();
        let mut chart = rows(&root, axes, 0.0..right, &names)?;
        for part in 0..parts.len() {
            let boxes = bars.iter().enumerate().map(|(index, bar)| {
                let before: f64 = bar.parts[..part].iter().sum();
                let y = (bars.len() - 1 - index) as f64;
                let corners = [(before, y - 0.32), (before + bar.parts[part], y + 0.32)];
                Rectangle::new(corners, stand_in(part).filled())
            });
            let is_there = |bar: &Bar| bar.parts[part] > 0.0;
            let boxes = boxes.zip(bars).filter(|(_, bar)| is_there(bar));
            chart.draw_series(boxes.map(|(shape, _)| shape))?;
        }
        let figures = bars.iter().enumerate().map(|(index, bar)| {
            let place = (whole(bar), (bars.len() - 1 - index) as f64);
            let text = Text::new(number(whole(bar)), (6, -6), ("sans-serif", 12));
            EmptyElement::at(place) + text
        });
        chart.draw_series(figures)?;
        root.present()?;
    }
    let said: Vec<String> = bars
        .iter()
        .map(|bar| format!("{}: {}", bar.name, number(whole(bar))))
        .collect();
    Ok(Chart {
        title: axes.title.to_owned(),
        svg: finished(svg, axes, &said.join("; ")),
        legend: parts.iter().map(|part| crate::plain(part)).collect(),
        filled: true,
        note: None,
    })
}

/// Returns a chart of intervals, one below the other, beside a line at the ratio 1.
pub fn intervals(axes: &Axes<'_>, all: &[Interval]) -> Result<Chart, DrawError> {
    let values = all.iter().flat_map(|one| [one.low, one.high, one.at, 1.0]);
    let (least, most) = range(values);
    let room = 0.06 * (most - least);
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size_of_rows(all.len())).into_drawing_area();
        let mut chart = rows(&root, axes, least - room..most + room, &names)?;
        let one = [(1.0, -0.5), (1.0, all.len() as f64 - 0.5)];
        chart.draw_series(LineSeries::new(one, stand_in(1).stroke_width(2)))?;
        let place = |index: usize| (all.len() - 1 - index) as f64;
        for (index, one) in all.iter().enumerate() {
            let (y, style) = (place(index), stand_in(0).stroke_width(3));
            chart.draw_series(LineSeries::new([(one.low, y), (one.high, y)], style))?;
            for end in [one.low, one.high] {
                let tick = [(end, y - 0.2), (end, y + 0.2)];
                chart.draw_series(LineSeries::new(tick, style))?;
            }
        }
        let points = all.iter().enumerate();
        let points =
            points.map(|(index, one)| Circle::new((one.at, place(index)), 5, stand_in(0).filled()));
        chart.draw_series(points)?;
        root.present()?;
    }
    let said: Vec<String> = all
        .iter()
        .map(|one| {
            format!(
                "{}: {} ({} to {})",
                one.name,
                number(one.at),
                number(one.low),
                number(one.high)
            )
        })
        .collect();
    Ok(Chart {
        title: axes.title.to_owned(),
        svg: finished(svg, axes, &said.join("; ")),
        legend: vec![
            "estimate and interval".to_owned(),
            "no difference".to_owned(),
        ],
        filled: false,
        note: None,
    })
}

/// Returns a chart of counts by time and size: the darker a cell, the more. `columns` begin at `left` and are `width`
/// wide; each has a count for each of `rows`, from the bottom, which are named by their lower bounds.
pub fn heat(
    axes: &Axes<'_>,
    (left, width): (f64, f64),
    rows: &[String],
    columns: &[Vec<f64>],
) -> Result<Chart, DrawError> {
    /// Opacity of the smallest count.
    const FAINTEST: f64 = 0.12;
    let most = columns.iter().flatten().copied().fold(1.0, f64::max);
    let right = left + width * columns.len().max(1) as f64;
    let every = rows.len().div_ceil(8).max(1);
    let keys = (0..rows.len()).step_by(every).map(|row| row as f64);
    let upright = Scale::new(0.0..rows.len().max(1) as f64, keys.collect());
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let name = |y: &f64| rows.get(*y as usize).cloned().unwrap_or_default();
        let mut chart = grid(&root, axes, left..right, upright, &name)?;
        let cells = columns.iter().enumerate().flat_map(|(place, column)| {
            let x = left + width * place as f64;
            let counts = column.iter().take(rows.len()).enumerate();
            counts
                .filter(|(_, count)| **count > 0.0)
                .map(move |(row, count)| {
                    let share = (1.0 + count).ln() / (1.0 + most).ln();
                    let opacity = FAINTEST + (1.0 - FAINTEST) * share;
                    let opacity = (opacity * 100.0).round() / 100.0;
                    let corners = [(x, row as f64), (x + width, row as f64 + 1.0)];
                    Rectangle::new(corners, stand_in(0).mix(opacity).filled())
                })
        });
        chart.draw_series(cells)?;
        root.present()?;
    }
    let has_counts = columns.iter().flatten().any(|count| *count > 0.0);
    let said = match has_counts {
        true => format!("up to {} in a cell", number(most)),
        false => "no points".to_owned(),
    };
    Ok(Chart {
        title: axes.title.to_owned(),
        svg: finished(svg, axes, &said),
        legend: Vec::new(),
        filled: true,
        note: has_counts.then(|| format!("The darker, the more calls; {said}.")),
    })
}

fn size_of_rows(rows: usize) -> (u32, u32) {
    (SIZE.0, ROW * rows.max(1) as u32 + 66)
}

type Root<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Begun<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

/// Begins a chart with this many pixels for labels at the left.
fn begun<'a, 'b>(
    root: &'a Root<'b>,
    room: u32,
    across: Scale,
    upright: Scale,
) -> Result<Begun<'a, 'b>, DrawError> {
    let chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(42)
        .y_label_area_size(room)
        .build_cartesian_2d(across, upright)?;
    Ok(chart)
}

/// Begins a chart with numbers on both axes, and a grid. `name` tells those of the vertical one.
fn grid<'a, 'b>(
    root: &'a Root<'b>,
    axes: &Axes<'_>,
    across: Range<f64>,
    upright: Scale,
    name: &dyn Fn(&f64) -> String,
) -> Result<Begun<'a, 'b>, DrawError> {
    let mut chart = begun(root, 76, key_points(axes.across, across), upright)?;
    let label = |x: &f64| match axes.across {
        Across::Percentiles => percentile(*x),
        Across::Plain | Across::Whole => number(*x),
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&label)
        .y_label_formatter(&name)
        .draw()?;
    Ok(chart)
}

/// Begins a chart of rows with names at their left; the first is at the top.
fn rows<'a, 'b>(
    root: &'a Root<'b>,
    axes: &Axes<'_>,
    across: Range<f64>,
    names: &[&str],
) -> Result<Begun<'a, 'b>, DrawError> {
    let count = names.len();
    let shown: Vec<String> = names.iter().map(|name| shortened(name)).collect();
    let longest = shown.iter().map(|name| name.chars().count()).max();
    let room = 24 + 7 * longest.unwrap_or(0) as u32;
    let places = (0..count).map(|place| place as f64).collect();
    let across = key_points(Across::Plain, across);
    let upright = Scale::new(-0.5..count.max(1) as f64 - 0.5, places);
    let mut chart = begun(root, room, across, upright)?;
    let name = |y: &f64| {
        let place = (count as f64 - 1.0 - y).round();
        shown.get(place as usize).cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .disable_y_mesh()
        .x_desc(axes.x)
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(&name)
        .draw()?;
    Ok(chart)
}

/// Returns a name that fits beside a row.
fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_CHARS_MAX - 1).collect();
    format!("{start}\u{2026}")
}

/// Gives a drawing its colours and dashes, a title and a description.
fn finished(svg: String, axes: &Axes<'_>, said: &str) -> String {
    let mut out = String::with_capacity(svg.len() + 512);
    let (head, rest) = svg.split_once('>').unwrap_or(("<svg", ""));
    let _ = write!(
        out,
        "{head} role=\"img\" aria-label=\"{0}\">\n<title>{0}</title>\n<desc>{1}</desc>",
        escaped(axes.title),
        escaped(said)
    );
    let mut rest = rest;
    // A stand-in is an attribute's value: within texts quotation marks are escaped.
    while let Some(at) = rest.find("=\"#01FE") {
        let (before, after) = rest.split_at(at);
        let digits = after.get(7..9).unwrap_or_default();
        let place = usize::from_str_radix(digits, 16).unwrap_or(0);
        let (colour, dash) = look(place);
        let RGBColor(red, green, blue) = COLOURS[colour];
        let value = format!("=\"#{red:02X}{green:02X}{blue:02X}\"");
        if let Some(before) = before.strip_suffix("stroke") {
            let _ = write!(out, "{before}class=\"c{colour}\" ");
            if dash > 0 {
                let _ = write!(out, "stroke-dasharray=\"{}\" ", DASHES[dash]);
            }
            let _ = write!(out, "stroke{value}");
        } else if let Some(before) = before.strip_suffix("fill") {
            let _ = write!(out, "{before}class=\"f{colour}\" fill{value}");
        } else {
            let _ = write!(out, "{before}{value}");
        }
        rest = after.get(10..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

fn escaped(text: &str) -> String {
    maud::html! { (crate::plain(text)) }.into_string()
}

/// Returns the smallest and the largest of the values.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends: Option<(f64, f64)>, value| {
        let (least, most) = ends.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    })
}

/// Returns the bounds of the values, apart from each other.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    match ends(values) {
        Some((least, most)) if most > least => (least, most),
        Some((only, _)) => (only, only + 1.0),
        None => (0.0, 1.0),
    }
}

/// Returns the shortest text of a number with three significant digits.
pub fn number(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude >= 1e9 {
        format!("{}G", trimmed(number / 1e9, 2))
    } else if magnitude >= 1e6 {
        format!("{}M", trimmed(number / 1e6, 2))
    } else if magnitude >= 1e4 {
        format!("{}k", trimmed(number / 1e3, 2))
    } else if magnitude >= 1.0 || magnitude == 0.0 {
        trimmed(number, 2)
    } else {
        trimmed(number, (2.0 - magnitude.log10().floor()).min(9.0) as usize)
    }
}

fn trimmed(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the percentage at a place on the axis of percentiles: 2 is 99 %.
fn percentile(decades: f64) -> String {
    let left = 100.0 / 10f64.powf(decades);
    format!("{} %", trimmed(100.0 - left, decades.max(0.0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(logarithmic: bool) -> Axes<'static> {
        Axes {
            title: "Title",
            x: "across",
            y: "upright",
            logarithmic,
            across: Across::Plain,
            joined: true,
        }
    }

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line {
            name: name.into(),
            points: points.to_vec(),
        }
    }

    fn bar(name: &str, parts: &[f64]) -> Bar {
        Bar {
            name: name.into(),
            parts: parts.to_vec(),
        }
    }

    /// Returns the texts of a drawing.
    fn texts(svg: &str) -> Vec<String> {
        let pieces = svg.split("<text").skip(1);
        let texts = pieces.filter_map(|piece| piece.split_once('>')?.1.split_once("</text>"));
        texts.map(|(text, _)| text.trim().to_owned()).collect()
    }

    #[test]
    fn every_line_is_drawn_and_named() {
        for logarithmic in [false, true] {
            let two = [
                line("one", &[(0.0, 1.0), (1.0, 5.0), (2.0, 0.0)]),
                line("two", &[(0.0, 300.0), (2.0, 2e6)]),
            ];
            let chart = lines(&axes(logarithmic), &two).unwrap();
            let svg = &chart.svg;
            assert_eq!(svg.matches("stroke=\"#0072B2\"").count(), 1, "{svg}");
            assert_eq!(svg.matches("stroke=\"#D55E00\"").count(), 1);
            assert_eq!(chart.legend, ["one", "two"]);
            for text in ["<title>Title", "across", "upright", "<desc>one: 3 points"] {
                assert!(svg.contains(text), "{text}: {svg}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("01FE"));
        }
    }

    #[test]
    fn a_legend_stood_over_curves_and_colour_alone_told_them_apart() {
        let three: Vec<Line> = ["a", "b", "c"]
            .map(|name| line(name, &[(0.0, 1.0), (1.0, 2.0)]))
            .into();
        let chart = lines(&axes(false), &three).unwrap();
        assert!(!texts(&chart.svg).iter().any(|text| text == "a"));
        assert_eq!(chart.svg.matches("stroke-dasharray=\"9 4\"").count(), 1);
        assert_eq!(chart.svg.matches("stroke-dasharray=\"2 3\"").count(), 1);
        let looks: std::collections::HashSet<_> = (0..LOOKS).map(look).collect();
        assert_eq!(looks.len(), LOOKS);
    }

    #[test]
    fn the_axis_of_percentiles_had_ticks_such_as_68_377223_percent() {
        let axes = Axes {
            across: Across::Percentiles,
            ..axes(true)
        };
        let curve = line("", &[(0.0, 0.1), (2.0, 1.0), (4.7, 30.0)]);
        let texts = texts(&lines(&axes, &[curve]).unwrap().svg);
        let shown: Vec<&str> = texts
            .iter()
            .map(String::as_str)
            .filter(|text| text.contains('%'))
            .collect();
        assert_eq!(
            shown,
            ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"],
            "{texts:?}"
        );
    }

    #[test]
    fn the_axis_of_runs_had_ticks_between_two_of_them() {
        let axes = Axes {
            across: Across::Whole,
            joined: false,
            ..axes(false)
        };
        let runs = line("A", &[(1.0, 10.0), (2.0, 11.0), (3.0, 10.5)]);
        let chart = lines(&axes, &[runs]).unwrap();
        let texts = texts(&chart.svg);
        assert!(["1", "2", "3"].iter().all(|n| texts.iter().any(|t| t == n)));
        assert!(
            !texts.iter().any(|t| t.contains('.') && t.starts_with('1')),
            "{texts:?}"
        );
        assert_eq!(chart.svg.matches("<circle").count(), 3, "marks, no line");
    }

    #[test]
    fn nothing_and_a_single_point_can_be_drawn() {
        assert!(lines(&axes(true), &[]).unwrap().svg.contains("<svg"));
        let chart = lines(&axes(false), &[line("x", &[(1.0, 1.0)])]).unwrap();
        assert!(chart.svg.contains("<circle"));
        let least = [Interval {
            name: "x".into(),
            low: 1.0,
            at: 1.0,
            high: 1.0,
        }];
        for all in [&[][..], &least] {
            let svg = intervals(&axes(false), all).unwrap().svg;
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
        assert!(bars(&axes(false), &["p"], &[]).unwrap().svg.contains("svg"));
    }

    #[test]
    fn of_a_million_points_those_are_drawn_that_can_be_told_apart() {
        let many: Vec<(f64, f64)> = (0..1_000_000)
            .map(|at| {
                (
                    f64::from(at),
                    if at == 123_456 {
                        9e6
                    } else {
                        f64::from(at % 7)
                    },
                )
            })
            .collect();
        let thin = thinned(&many);
        assert!(thin.len() <= 4 * (SIZE.0 as usize + 1), "{}", thin.len());
        assert!(thin.contains(&many[123_456]) && thin.contains(&many[0]));
        assert_eq!(thin.last(), many.last());
        assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(thinned(&many[..100]), many[..100]);
    }

    #[test]
    fn bars_are_stacked() {
        let two = [bar("generator", &[1.0, 2.0]), bar("server", &[3.0, 4.0])];
        let chart = bars(&axes(false), &["user", "kernel"], &two).unwrap();
        let texts = texts(&chart.svg);
        for text in ["generator", "server", "3", "7"] {
            assert!(texts.iter().any(|t| t == text), "{text}: {texts:?}");
        }
        assert_eq!(chart.legend, ["user", "kernel"]);
        assert_eq!(chart.svg.matches("fill=\"#0072B2\"").count(), 2);
        assert_eq!(chart.svg.matches("fill=\"#D55E00\"").count(), 2);
    }

    #[test]
    fn names_of_many_bars_were_printed_over_each_other() {
        let many: Vec<Bar> = (0..40)
            .map(|n| bar(&format!("a rather long name of run {n}"), &[1.0]))
            .collect();
        let chart = bars(&axes(false), &["p"], &many).unwrap();
        let mut heights: Vec<f64> = chart
            .svg
            .split("<text")
            .filter(|text| text.contains("a rather long name"))
            .filter_map(|text| text.split_once(" y=\"")?.1.split('"').next()?.parse().ok())
            .collect();
        heights.sort_by(f64::total_cmp);
        assert_eq!(heights.len(), 40);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] > 15.0));
    }

    #[test]
    fn an_interval_is_drawn_beside_the_line_of_no_difference() {
        let one = Interval {
            name: "requests/s".into(),
            low: 1.1,
            at: 1.15,
            high: 1.3,
        };
        let chart = intervals(&axes(false), &[one]).unwrap();
        assert!(chart.svg.contains("requests/s: 1.15 (1.1 to 1.3)"));
        assert!(chart.svg.contains("<circle") && chart.svg.contains("#D55E00"));
    }

    #[test]
    fn cells_without_a_count_are_not_drawn() {
        let rows = ["1", "2", "4"].map(str::to_owned);
        let columns = [vec![0.0, 3.0, 0.0], vec![1.0, 0.0, 900.0]];
        let svg = heat(&axes(false), (-20.0, 10.0), &rows, &columns)
            .unwrap()
            .svg;
        assert_eq!(svg.matches("class=\"f0\"").count(), 3, "{svg}");
        assert!(svg.contains("opacity=\"1\"") && svg.contains("up to 900 in a cell"));
        let empty = heat(&axes(false), (0.0, 1.0), &[], &[]).unwrap().svg;
        assert!(!empty.contains("NaN") && !empty.contains("inf") && empty.contains("no points"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(1_500_000.0), "1.5M");
        assert_eq!(number(25_000.0), "25k");
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(0.0025), "0.0025");
        assert_eq!(number(120.0), "120");
        assert_eq!(percentile(0.0), "0 %");
        assert_eq!(percentile(2f64.log10()), "50 %");
        assert_eq!(percentile(3.0), "99.9 %");
    }

    #[test]
    fn a_hostile_title_is_text() {
        let axes = Axes {
            title: "<b>\"",
            ..axes(false)
        };
        let hostile = line("=\"#01FE00", &[(0.0, 1.0), (1.0, 1.0)]);
        let svg = lines(&axes, &[hostile]).unwrap().svg;
        assert!(!svg.contains("<b>"), "{svg}");
    }
}
