//! The status page of a running process: figures with their last ten minutes, charts and tables. Must not know what the
//! figures mean.
//!
//! Style and script are resources of their own ([`STYLE_PATH`], [`SCRIPT_PATH`]), so that the page's policy allows
//! nothing inline. The script swaps in the main part each second; without it the page is whole, and loads itself again.

use std::collections::VecDeque;
use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::charts::{Across, Axes, Chart, DrawError, Line, heat, lines};
use crate::{Page, figure, plain, table};

/// Path of the page.
const PAGE_PATH: &str = "/";
/// Query for the main part of the page alone.
const PART_QUERY: &str = "part";
/// Path of the style.
const STYLE_PATH: &str = "/status.css";
/// Path of the script.
const SCRIPT_PATH: &str = "/status.js";
/// Path of the icon: browsers ask for one.
const ICON_PATH: &str = "/status.svg";
/// The icon.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <path d=\"M1 11l4-5 4 3 6-7\" fill=\"none\" stroke=\"#d03030\" stroke-width=\"2.5\"/></svg>";
/// Headers of the icon.
const ICON_HEADERS: &str = "Content-Type: image/svg+xml\r\nX-Content-Type-Options: nosniff\r\n";
/// The script.
const SCRIPT: &str = include_str!("status.js");
/// Headers of the page: nothing but its own style, script and icon, nothing inline, nothing kept, no frame around it.
const HEADERS: &str = "Content-Type: text/html; charset=utf-8\r\n\
    Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";

/// Headers of the style and of the script.
const STYLE_HEADERS: &str = "Content-Type: text/css; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";
/// See [`STYLE_HEADERS`].
const SCRIPT_HEADERS: &str = "Content-Type: text/javascript; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";

/// Headers of an error.
const ERROR_HEADERS: &str = "Content-Type: text/plain; charset=utf-8\r\n";

/// A resource of the page.
pub struct Resource {
    /// Status of the reply, with its reason.
    pub status: &'static str,
    /// Headers as whole lines.
    pub headers: &'static str,
    /// The body.
    pub body: String,
}

impl Resource {
    /// Returns true if a path is that of the page, or of a part of it.
    pub fn is_at(path: &str) -> bool {
        [PAGE_PATH, STYLE_PATH, SCRIPT_PATH, ICON_PATH].contains(&path)
    }

    /// Returns the resource at a path for which [`Resource::is_at`] is true. `contents` is asked for the page alone.
    pub fn at(
        path: &str,
        query: &str,
        contents: impl FnOnce() -> Result<Status, DrawError>,
    ) -> Resource {
        let ok = |headers, body| Resource {
            status: "200 OK",
            headers,
            body,
        };
        match path {
            STYLE_PATH => ok(STYLE_HEADERS, crate::STYLE.to_owned()),
            SCRIPT_PATH => ok(SCRIPT_HEADERS, SCRIPT.to_owned()),
            ICON_PATH => ok(ICON_HEADERS, ICON.to_owned()),
            _ => match contents() {
                Ok(status) if query == PART_QUERY => ok(HEADERS, status.part()),
                Ok(status) => ok(HEADERS, status.page()),
                Err(error) => Resource {
                    status: "500 Internal Server Error",
                    headers: ERROR_HEADERS,
                    body: format!("{error}\n"),
                },
            },
        }
    }
}

/// Number of points that are kept: ten minutes at one a second.
const POINTS_MAX: usize = 600;

/// Figures of the last ten minutes.
pub struct History<const N: usize> {
    points: VecDeque<[f64; N]>,
}

impl<const N: usize> Default for History<N> {
    fn default() -> History<N> {
        History {
            points: VecDeque::with_capacity(POINTS_MAX),
        }
    }
}

impl<const N: usize> History<N> {
    /// Adds the figures of a second; one that is not a number is unknown.
    pub fn push(&mut self, figures: [f64; N]) {
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(figures);
    }

    /// Returns the newest of a figure; 0 without one.
    pub fn newest(&self, figure: usize) -> f64 {
        self.points.back().map_or(0.0, |figures| figures[figure])
    }

    /// Returns a figure over time, as seconds before now, where it is known.
    pub fn over_time(&self, figure: usize) -> Vec<(f64, f64)> {
        let newest = self.points.len() as f64 - 1.0;
        let points = self.points.iter().enumerate();
        points
            .map(|(place, figures)| (place as f64 - newest, figures[figure]))
            .filter(|(_, value)| value.is_finite())
            .collect()
    }

    /// Returns a chart of counts over time, ten seconds together: each figure is a row, from the bottom, with its name.
    pub fn heat(&self, title: &str, unit: &str, rows: &[String]) -> Result<Chart, DrawError> {
        const TOGETHER: usize = 10;
        let axes = Axes {
            title,
            x: "seconds before now",
            y: unit,
            logarithmic: false,
            across: Across::Plain,
            joined: false,
        };
        let points: Vec<&[f64; N]> = self.points.iter().collect();
        // The newest column is whole, the oldest one need not be.
        let mut columns: Vec<Vec<f64>> = points
            .rchunks(TOGETHER)
            .map(|seconds| {
                let sum = |row: usize| seconds.iter().map(|figures| figures[row]).sum::<f64>();
                (0..N).map(sum).collect()
            })
            .collect();
        columns.reverse();
        let width = TOGETHER as f64;
        let left = -width * columns.len() as f64;
        heat(&axes, (left, width), rows, &columns)
    }

    /// Returns a chart of figures over time, each with its name.
    pub fn chart(&self, title: &str, unit: &str, of: &[(&str, usize)]) -> Result<Chart, DrawError> {
        let axes = Axes {
            title,
            x: "seconds before now",
            y: unit,
            logarithmic: false,
            across: Across::Plain,
            joined: true,
        };
        let all: Vec<Line> = of
            .iter()
            .map(|(name, figure)| Line {
                name: (*name).to_owned(),
                points: self.over_time(*figure),
            })
            .collect();
        lines(&axes, &all)
    }
}

/// A figure now, with its line over the last ten minutes.
pub struct Tile {
    /// Its name.
    pub name: &'static str,
    /// The figure with its unit.
    pub figure: String,
    /// Its past.
    pub past: Vec<(f64, f64)>,
}

/// A part of the page below a heading.
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// Contents.
    pub body: Markup,
}

impl Section {
    /// Returns a table, or a sentence if it has no rows.
    pub fn table(title: &'static str, head: &[&str], rows: &[Vec<String>]) -> Section {
        let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
        let body = match rows {
            [] => html! { p { "There is none." } },
            rows => table(title, &head, rows),
        };
        Section { title, body }
    }
}

/// The contents of a status page.
pub struct Status {
    /// Title of the page.
    pub title: String,
    /// A line about the process.
    pub about: String,
    /// Faults of this moment, in words.
    pub problems: Vec<String>,
    /// Figures.
    pub tiles: Vec<Tile>,
    /// Charts of the last ten minutes.
    pub charts: Vec<Chart>,
    /// Further parts.
    pub sections: Vec<Section>,
}

impl Status {
    /// Returns the whole page.
    pub fn page(&self) -> String {
        Page {
            title: &self.title,
            head: html! {
                link rel="stylesheet" href=(STYLE_PATH);
                link rel="icon" type="image/svg+xml" href=(ICON_PATH);
                script src=(SCRIPT_PATH) defer {}
                noscript { meta http-equiv="refresh" content="5"; }
            },
            intro: html! { p #state { "The figures are those of the moment the page was loaded." } },
            main: self.main(),
        }
        .render()
    }

    /// Returns the main part.
    pub fn part(&self) -> String {
        self.main().into_string()
    }

    fn main(&self) -> Markup {
        html! {
            p { (plain(&self.about)) }
            h2 { "State" }
            @if self.problems.is_empty() { p { "Nothing is wrong." } }
            @else { ul.text { @for problem in &self.problems { li.bad { (plain(problem)) } } } }
            h2 { "Now" }
            ul.tiles { @for tile in &self.tiles { li.tile {
                h3 { (tile.name) }
                p.figure { (plain(&tile.figure)) }
                (PreEscaped(sparkline(tile)))
            } } }
            h2 { "Last ten minutes" }
            div.charts { @for chart in &self.charts { (figure(chart)) } }
            div.sections { @for section in &self.sections {
                section { h2 { (section.title) } (section.body) }
            } }
        }
    }
}

/// Returns a figure's past as a line without axes.
fn sparkline(tile: &Tile) -> String {
    const WIDTH: f64 = 240.0;
    const HEIGHT: f64 = 40.0;
    let most = tile.past.iter().map(|point| point.1).fold(0.0, f64::max);
    let scale = if most > 0.0 {
        (HEIGHT - 4.0) / most
    } else {
        0.0
    };
    let step = WIDTH / (POINTS_MAX as f64 - 1.0);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{0}, last ten minutes\"><title>{0}, last ten minutes</title>\
         <desc>up to {1}</desc><polyline class=\"c0\" fill=\"none\" stroke=\"#0072B2\" stroke-width=\"1.5\" points=\"",
        tile.name,
        crate::charts::number(most)
    );
    for (before, value) in &tile.past {
        let (x, y) = (WIDTH + before * step, HEIGHT - 2.0 - value * scale);
        let _ = write!(out, "{x:.1},{y:.1} ");
    }
    out.push_str("\"/></svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let mut history = History::<2>::default();
        for second in 0..700 {
            history.push([f64::from(second), 1.0]);
        }
        Status {
            title: "redline <server>".into(),
            about: "<b>".into(),
            problems: vec!["<i>memory</i>".into()],
            tiles: vec![Tile {
                name: "requests",
                figure: "1 </p>".into(),
                past: history.over_time(0),
            }],
            charts: vec![
                history
                    .chart("Throughput", "requests/s", &[("all", 0)])
                    .unwrap(),
            ],
            sections: vec![Section::table("Slow log", &["<u>"], &[vec!["<s>".into()]])],
        }
    }

    #[test]
    fn ten_minutes_are_kept_and_no_more() {
        let mut history = History::<1>::default();
        (0..1000).for_each(|second| history.push([f64::from(second)]));
        let past = history.over_time(0);
        assert_eq!(past.len(), POINTS_MAX);
        assert_eq!(
            (past[0], past[POINTS_MAX - 1]),
            ((-599.0, 400.0), (0.0, 999.0))
        );
        assert_eq!(history.newest(0), 999.0);
        history.push([f64::NAN]);
        assert_eq!(history.over_time(0).last(), Some(&(-1.0, 999.0)));
    }

    #[test]
    fn nothing_is_inline_and_text_from_outside_is_no_markup() {
        let page = status().page();
        for tag in [
            "<style", "<b>", "<i>", "<u>", "<s>", " style=", "onclick", "<script>",
        ] {
            assert!(!page.contains(tag), "{tag}: {page}");
        }
        assert!(page.contains("&lt;i&gt;memory") && page.contains("<title>redline &lt;server&gt;"));
        assert!(page.contains("<polyline class=\"c0\""));
        assert!(!HEADERS.contains("unsafe") && HEADERS.ends_with("\r\n"));
        let inside = page.split_once("<main>").unwrap().1;
        let inside = inside.split_once("</main>").unwrap().0;
        assert_eq!(inside, status().part());
    }
}
