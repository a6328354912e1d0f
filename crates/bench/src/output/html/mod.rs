//! Results as one HTML page that needs no network and no script.
//!
//! Knows results, and not their measurement.

use maud::{Markup, html};
use redline_net::clock;
use redline_pages::charts::{self, Across, Axes, Bar, Chart, DrawError, Line};
use redline_pages::{Page, figure, inline_style, plain, table};

use crate::load::origin::Origin;
use crate::load::result::{Latency, Point, RunResult};
use crate::output::text::rate;

/// Facts about a page's figures, for its head.
#[derive(Default)]
pub struct About<'a> {
    /// Start of the measurement, if it is known: milliseconds since 1970.
    pub started_unix_ms: Option<u64>,
    /// The server's name and version.
    pub server: Option<&'a str>,
    /// Version of the program that measured.
    pub redline_version: Option<&'a str>,
    /// The machine and the command line.
    pub origin: Option<&'a Origin>,
}

impl<'a> About<'a> {
    /// Returns the facts of a run.
    pub fn of(result: &'a RunResult) -> About<'a> {
        About {
            started_unix_ms: Some(result.started_unix_ms),
            server: result.target.server.as_deref(),
            redline_version: Some(&result.redline_version),
            origin: result.origin.as_ref(),
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let origin = self.origin;
        let facts = [
            ("Date", self.started_unix_ms.map(date)),
            (
                "Command line",
                origin.map(|origin| origin.command_line.clone()),
            ),
            ("Server", self.server.map(str::to_owned)),
            (
                "Measured by",
                self.redline_version
                    .map(|version| format!("redline {version}")),
            ),
            ("Machine", origin.map(Origin::machine)),
            (
                "Kernel",
                origin.map(|origin| format!("Linux {}", origin.kernel)),
            ),
        ];
        let known = facts.into_iter();
        known
            .filter_map(|(name, fact)| Some((name, fact?)))
            .collect()
    }
}

/// Returns a time as `2026-11-21 22:10:00 +01:00`.
fn date(unix_ms: u64) -> String {
    let time = clock::local(unix_ms / 1000);
    let (sign, minutes) = match time.offset_s {
        offset @ ..0 => ('-', -offset / 60),
        offset => ('+', offset / 60),
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02} {sign}{:02}:{:02}",
        time.year,
        time.month,
        time.day,
        time.hour,
        time.minute,
        time.second,
        minutes / 60,
        minutes % 60
    )
}

/// Prevents the browser from fetching or running anything for the page, whatever it contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns a page: its facts, its main part, and charts under it.
pub fn document(title: &str, about: &About<'_>, main: &Markup, charts: &[Chart]) -> String {
    let facts = about.facts();
    let page = Page {
        title,
        head: html! {
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            (inline_style())
        },
        intro: html! {
            @if !facts.is_empty() {
                dl.facts { @for (name, fact) in &facts { dt { (name) } dd { (plain(fact)) } } }
            }
        },
        main: html! {
            (main)
            @if !charts.is_empty() {
                h2 { "Charts" }
                div.charts { @for chart in charts { (figure(chart)) } }
            }
        },
    };
    page.render()
}

/// Returns the page of one result, or of several side by side, each with its name.
pub fn page(results: &[(String, RunResult)]) -> Result<String, DrawError> {
    let title = match results {
        [(name, _)] => format!("redline bench: {name}"),
        many => format!("redline bench: {} results", many.len()),
    };
    let is_one = results.len() == 1;
    let about = results.first().filter(|_| is_one);
    let about = about.map_or_else(About::default, |(_, result)| About::of(result));
    let main = html! {
        @for (name, result) in results { (summary(name, result, !is_one)) }
        h2 { "Figures" }
        (figures(results))
        @for (name, result) in results { (details(name, result, !is_one)) }
    };
    Ok(document(&title, &about, &main, &drawn(results)?))
}

fn summary(name: &str, result: &RunResult, named: bool) -> Markup {
    let server = result.target.server.as_deref().unwrap_or("unknown server");
    let mut head = format!(
        "{} ({server}); {} requests/s",
        result.target.address,
        rate(result.achieved_rps)
    );
    if let Some(offered) = result.settings.offered_rps {
        head += &format!(" of {} offered", rate(offered));
    }
    head += &format!(" over {:.1} s", result.elapsed_s);
    if let Some(reason) = &result.ended_early {
        head += &format!(" (partial: {reason})");
    }
    html! {
        @if named { h2 { (plain(name)) } }
        p { (plain(&head)) }
        div.verdict {
            p { (plain(&result.verdict.text)) }
            ul { @for line in &result.verdict.evidence { li { (plain(line)) } } }
            @if let Some(advice) = &result.verdict.advice { p { (plain(advice)) } }
        }
    }
}

/// Returns rates, latencies and cost, a column for each result.
fn figures(results: &[(String, RunResult)]) -> Markup {
    let mut head = vec![String::new()];
    head.extend(results.iter().map(|(name, _)| name.clone()));
    let mut rows = Vec::new();
    let mut row = |name: &str, figure: &dyn Fn(&RunResult) -> Option<String>| {
        let figures: Vec<_> = results.iter().map(|(_, result)| figure(result)).collect();
        if figures.iter().any(Option::is_some) {
            let mut cells = vec![name.to_owned()];
            cells.extend(figures.into_iter().map(Option::unwrap_or_default));
            rows.push(cells);
        }
    };
    row("requests/s", &|result| Some(rate(result.achieved_rps)));
    row("hit rate", &|result| {
        result.hit_rate.map(|rate| format!("{:.1} %", 100.0 * rate))
    });
    row("errors", &|result| {
        (result.requests.errors > 0).then(|| result.requests.errors.to_string())
    });
    row("not answered", &|result| {
        let lost = result.requests.unsent + result.requests.unanswered;
        (lost > 0).then(|| lost.to_string())
    });
    type Pick = fn(&RunResult) -> Option<&Latency>;
    let latencies: [(&str, Pick); 3] = [
        ("response", |result| Some(&result.response_us)),
        ("service", |result| result.service_us.as_ref()),
        ("schedule lag", |result| result.schedule_lag_us.as_ref()),
    ];
    for (what, pick) in latencies {
        for (name, figure) in [
            ("mean", (|latency| latency.mean) as fn(&Latency) -> f64),
            ("p50", |latency| latency.p50 as f64),
            ("p99", |latency| latency.p99 as f64),
            ("p99.9", |latency| latency.p99_9 as f64),
            ("max", |latency| latency.max as f64),
        ] {
            row(&format!("{what} {name}, ms"), &|result| {
                pick(result).map(|latency| format!("{:.3}", figure(latency) / 1000.0))
            });
        }
    }
    for role in ["generator", "server", "proxy"] {
        row(
            &format!("{role}: CPU us/request (user + kernel)"),
            &|result| {
                let party = result.parties.iter().find(|party| party.role == role)?;
                Some(format!(
                    "{:.2} + {:.2}",
                    party.user_us_per_request, party.system_us_per_request
                ))
            },
        );
    }
    table("Figures", &head, &rows)
}

fn drawn(results: &[(String, RunResult)]) -> Result<Vec<Chart>, DrawError> {
    let several = results.len() > 1;
    let named = |name: &str, what: &str| match (several, what) {
        (false, what) => what.to_owned(),
        (true, "") => name.to_owned(),
        (true, what) => format!("{name}: {what}"),
    };
    let over_time =
        |name: &str, result: &RunResult, what: &str, y: &dyn Fn(&Point, f64) -> Option<f64>| {
            let points = result.whole_pieces();
            Line {
                name: named(name, what),
                points: points
                    .filter_map(|(point, length)| Some((point.at_s, y(point, length)?)))
                    .collect(),
            }
        };
    let each = |line: &dyn Fn(&str, &RunResult) -> Vec<Line>| -> Vec<Line> {
        let lines = results.iter().flat_map(|(name, result)| line(name, result));
        lines.filter(|line| !line.points.is_empty()).collect()
    };
    let axes = |title, x, y, logarithmic| Axes {
        title,
        x,
        y,
        logarithmic,
        across: Across::Plain,
        joined: true,
    };
    let rates = each(&|name, result| {
        let rate = |point: &Point, length: f64| Some(point.answered as f64 / length);
        vec![over_time(name, result, "", &rate)]
    });
    let latencies = each(&|name, result| {
        // Without replies or given-up requests there is no latency, and the line has a gap.
        let known = |point: &Point, us: u64| {
            (point.answered + point.unanswered > 0).then_some(us as f64 / 1000.0)
        };
        let mut lines = vec![over_time(name, result, "p99", &|p, _| known(p, p.p99_us))];
        if !several {
            lines.push(over_time(name, result, "p50", &|p, _| known(p, p.p50_us)));
            lines.push(over_time(name, result, "max", &|p, _| known(p, p.max_us)));
        }
        lines
    });
    let curves = each(&|name, result| {
        let mut lines = vec![Line {
            name: named(name, "response time"),
            points: curve(&result.response_us),
        }];
        if let Some(service) = &result.service_us {
            lines.push(Line {
                name: named(name, "service time"),
                points: curve(service),
            });
        }
        lines
    });
    let cpus = each(&|name, result| {
        let mut lines = vec![over_time(name, result, "proxy", &|point, _| {
            point.proxy_cpus
        })];
        if result.series.iter().all(|point| point.node_cpus.is_empty()) {
            let server = |point: &Point, _: f64| point.server_cpus;
            lines.insert(0, over_time(name, result, "server", &server));
        }
        // Each of several servers has its own line.
        for (place, node) in result.target.nodes.iter().enumerate() {
            let cpus = |point: &Point, _: f64| point.node_cpus.get(place).copied().flatten();
            lines.push(over_time(name, result, &node.address, &cpus));
        }
        lines
    });
    let cost: Vec<Bar> = results
        .iter()
        .flat_map(|(name, result)| {
            result.parties.iter().map(move |party| Bar {
                name: named(name, &party.role),
                parts: vec![party.user_us_per_request, party.system_us_per_request],
            })
        })
        .collect();
    let left_out: Vec<String> = results
        .iter()
        .filter_map(|(name, result)| left_out(result).map(|note| named(name, &note)))
        .collect();
    let note = (!left_out.is_empty()).then(|| left_out.join("; "));
    let with_note = |axes: &Axes<'_>, lines: &[Line]| {
        let chart = charts::lines(axes, lines)?;
        Ok::<Chart, DrawError>(Chart {
            note: note.clone(),
            ..chart
        })
    };
    let mut drawn = vec![
        with_note(&axes("Throughput", "seconds", "requests/s", false), &rates)?,
        with_note(
            &axes("Response time over time", "seconds", "ms", true),
            &latencies,
        )?,
        charts::lines(
            &Axes {
                across: Across::Percentiles,
                ..axes("Latency by percentile", "share of requests", "ms", true)
            },
            &curves,
        )?,
        charts::bars(
            &axes("CPU time per request", "microseconds", "", false),
            &["user", "kernel"],
            &cost,
        )?,
    ];
    if !cpus.is_empty() {
        let axes = axes("CPUs used over time", "seconds", "CPUs", false);
        drawn.push(with_note(&axes, &cpus)?);
    }
    Ok(drawn)
}

/// Returns a remark on a last piece that is not drawn.
fn left_out(result: &RunResult) -> Option<String> {
    let last = result.series.last()?;
    let is_drawn = result.whole_pieces().any(|(point, _)| point == last);
    let ms = 1000.0 * (result.elapsed_s - last.at_s).max(0.0);
    (!is_drawn).then(|| format!("the last {ms:.0} ms, less than half an interval, are left out"))
}

/// Returns a curve over decades of the remaining share of requests.
fn curve(latency: &Latency) -> Vec<(f64, f64)> {
    let most = (latency.count.max(1) as f64).log10();
    let points = latency.curve.iter().map(|&(percentile, us)| {
        let left = (100.0 - percentile) / 100.0;
        let decades = if left > 0.0 { -left.log10() } else { most };
        (decades.min(most), us as f64 / 1000.0)
    });
    points.collect()
}

/// Returns the settings of the run, figures by command, and warnings.
fn details(name: &str, result: &RunResult, named: bool) -> Markup {
    let settings = &result.settings;
    let title = match named {
        true => format!("Details of {name}"),
        false => "Details".to_owned(),
    };
    let head = [
        "command",
        "requests/s",
        "hit rate",
        "errors",
        "mean, ms",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        "max, ms",
    ];
    let rows: Vec<Vec<String>> = result
        .commands
        .iter()
        .map(|command| {
            let hits = command.hit_rate;
            let latency = &command.response_us;
            let mut cells = vec![
                command.name.clone(),
                format!("{:.0}", command.rps),
                hits.map_or(String::new(), |rate| format!("{:.1} %", 100.0 * rate)),
                command.errors.to_string(),
                format!("{:.3}", latency.mean / 1000.0),
            ];
            let times = [latency.p50, latency.p99, latency.p99_9, latency.max];
            cells.extend(times.map(|us| format!("{:.3}", us as f64 / 1000.0)));
            cells
        })
        .collect();
    html! {
        h2 { (plain(&title)) }
        ul.text {
            @for command in &settings.commands {
                li { (command.weight) " \u{d7} " code { (plain(&command.template)) } }
            }
            li {
                (counted(settings.connections, "connection")) ", "
                (settings.pipeline) " under way on each, "
                (counted(settings.threads, "thread")) "; redline " (plain(&result.redline_version))
            }
            // Side by side, the facts of each stand with its details.
            @if named { @for (name, fact) in About::of(result).facts() { li { (name) ": " (plain(&fact)) } } }
        }
        (table(&title, &head.map(str::to_owned), &rows))
        @for warning in &result.warnings { p.warning { "Warning: " (plain(warning)) } }
    }
}

/// Returns a number with a noun in its singular or plural.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_no_markup() {
        let main = table("<t>", &["<b>".into()], &[vec!["1 & 2\u{1}".into()]]);
        let page = document("<t>", &About::default(), &main, &[]);
        assert!(
            page.contains("&lt;b&gt;") && page.contains("1 &amp; 2\u{fffd}"),
            "{page}"
        );
        assert!(page.contains("<title>&lt;t&gt;</title>") && page.contains("default-src 'none'"));
    }

    #[test]
    fn one_is_not_a_plural() {
        assert_eq!(counted(1, "thread"), "1 thread");
        assert_eq!(counted(2, "thread"), "2 threads");
    }
}
