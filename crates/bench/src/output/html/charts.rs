//! Charts of a report, as SVG. Knows points and names, not their meaning.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// A line with its name in the legend.
pub struct Line {
    /// Name of the line in the legend.
    pub name: String,
    /// Its points, in the order of x.
    pub points: Vec<(f64, f64)>,
}

/// Labels of a chart's axes, and the scale of the vertical one.
pub struct Axes<'a> {
    /// Title of the chart.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis.
    pub y: &'a str,
    /// The vertical axis is logarithmic; points at zero are then drawn at the bottom.
    pub logarithmic: bool,
    /// The horizontal axis shows shares of requests: its numbers are decades of the remaining share, and 3 means 99.9 %.
    pub percentiles: bool,
}

/// Stacked bars, one for each name.
pub struct Bar {
    /// Name under the bar.
    pub name: String,
    /// The parts, from the bottom up, in the order of the legend.
    pub parts: Vec<f64>,
}

/// The reason why a chart could not be drawn.
pub type DrawError = Box<dyn std::error::Error>;

const SIZE: (u32, u32) = (860, 320);
/// Colours that can be distinguished, also with a colour vision deficiency.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 40),
    RGBColor(80, 80, 80),
];
/// Smallest start of a logarithmic axis.
const LEAST: f64 = 0.1;

/// Returns a chart of lines over a common axis.
pub fn lines(axes: &Axes<'_>, lines: &[Line]) -> Result<String, DrawError> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let (left, right) = range(points().map(|point| point.0));
    let (least, most) = range(points().map(|point| point.1));
    if axes.logarithmic {
        let bottom = least.max(LEAST) * 0.8;
        let top = (most * 1.5).max(bottom * 10.0);
        draw(axes, lines, left..right, (bottom..top).log_scale(), bottom)
    } else {
        let top = if most > 0.0 { most * 1.1 } else { 1.0 };
        draw(axes, lines, left..right, 0.0..top, 0.0)
    }
}

fn draw<Y>(
    axes: &Axes<'_>,
    lines: &[Line],
    across: std::ops::Range<f64>,
    upright: Y,
    bottom: f64,
) -> Result<String, DrawError>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .caption(axes.title, ("sans-serif", 16))
            .x_label_area_size(42)
            .y_label_area_size(76)
            .build_cartesian_2d(across, upright)?;
        let label = |x: &f64| {
            if axes.percentiles {
                percentile(*x)
            } else {
                plain(*x)
            }
        };
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(axes.x)
            .y_desc(axes.y)
            .x_label_formatter(&label)
            .y_label_formatter(&|y| plain(*y))
            .draw()?;
        for (index, line) in lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let points = thinned(&line.points).into_iter();
            let points = points.map(|(x, y)| (x, y.max(bottom)));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(line.name.as_str())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
            // A single point is no line.
            if let [(x, y)] = line.points.as_slice() {
                let point = Circle::new((*x, y.max(bottom)), 3, colour.filled());
                chart.draw_series(std::iter::once(point))?;
            }
        }
        if lines.len() > 1 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.85))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }
        root.present()?;
    }
    Ok(svg)
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

/// Returns a chart of stacked bars side by side; `parts` names the stacked parts.
pub fn bars(axes: &Axes<'_>, parts: &[&str], bars: &[Bar]) -> Result<String, DrawError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let highest = bars.iter().map(|bar| bar.parts.iter().sum::<f64>());
        let highest = highest.fold(0.0, f64::max);
        let top = if highest > 0.0 { highest * 1.15 } else { 1.0 };
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .caption(axes.title, ("sans-serif", 16))
            .x_label_area_size(42)
            .y_label_area_size(76)
            .build_cartesian_2d(-0.5..bars.len() as f64 - 0.5, 0.0..top)?;
        let name = |x: &f64| {
            let index = x.round();
            let bar = bars.get(index as usize);
            bar.filter(|_| (x - index).abs() < 1e-6)
                .map_or(String::new(), |bar| bar.name.clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .y_desc(axes.y)
            .x_labels(2 * bars.len() + 1)
            .x_label_formatter(&name)
            .y_label_formatter(&|y| plain(*y))
            .draw()?;
        for (part, &title) in parts.iter().enumerate() {
            let colour = COLOURS[part % COLOURS.len()];
            let boxes = bars.iter().enumerate().map(|(index, bar)| {
                let below: f64 = bar.parts[..part].iter().sum();
                let x = index as f64;
                let corners = [(x - 0.3, below), (x + 0.3, below + bar.parts[part])];
                Rectangle::new(corners, colour.filled())
            });
            chart
                .draw_series(boxes)?
                .label(title)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}

/// Returns the bounds of the values, apart from each other.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
        let (least, most) = ends.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    });
    match ends {
        Some((least, most)) if most > least => (least, most),
        Some((only, _)) => (only, only + 1.0),
        None => (0.0, 1.0),
    }
}

/// Returns the shortest text of a number.
fn plain(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude >= 1e6 {
        format!("{}M", trimmed(number / 1e6))
    } else if magnitude >= 1e4 {
        format!("{}k", trimmed(number / 1e3))
    } else {
        trimmed(number)
    }
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the percentage at a place on the axis of percentiles: 2 is 99 %.
fn percentile(decades: f64) -> String {
    let left = 100.0 / 10f64.powf(decades);
    format!("{} %", trimmed_long(100.0 - left))
}

fn trimmed_long(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
            percentiles: false,
        }
    }

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line {
            name: name.into(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn every_line_is_drawn_and_named() {
        for logarithmic in [false, true] {
            let two = [
                line("one", &[(0.0, 1.0), (1.0, 5.0), (2.0, 0.0)]),
                line("two", &[(0.0, 300.0), (2.0, 2e6)]),
            ];
            let svg = lines(&axes(logarithmic), &two).unwrap();
            assert_eq!(svg.matches("stroke=\"#0072B2\"").count(), 2, "{svg}");
            assert_eq!(svg.matches("stroke=\"#D55E00\"").count(), 2);
            for text in ["Title", "across", "upright", "one", "two"] {
                assert!(svg.contains(text), "{text}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }

    #[test]
    fn nothing_and_a_single_point_can_be_drawn() {
        assert!(lines(&axes(true), &[]).unwrap().contains("<svg"));
        let svg = lines(&axes(false), &[line("x", &[(1.0, 1.0)])]).unwrap();
        assert!(svg.contains("<circle"));
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
        let two = [
            Bar {
                name: "generator".into(),
                parts: vec![1.0, 2.0],
            },
            Bar {
                name: "server".into(),
                parts: vec![3.0, 4.0],
            },
        ];
        let svg = bars(&axes(false), &["user", "kernel"], &two).unwrap();
        for text in ["generator", "server", "user", "kernel"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(
            svg.matches("fill=\"#0072B2\"").count(),
            3,
            "two bars and the legend"
        );
        assert_eq!(svg.matches("fill=\"#D55E00\"").count(), 3);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(plain(1_500_000.0), "1.5M");
        assert_eq!(plain(25_000.0), "25k");
        assert_eq!(plain(0.25), "0.25");
        assert_eq!(percentile(0.0), "0 %");
        assert_eq!(percentile(3.0), "99.9 %");
    }
}
