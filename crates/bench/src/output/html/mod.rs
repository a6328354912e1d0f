//! Results as one HTML page that needs no network and no script.
//!
//! Knows results, and not their measurement.

pub mod charts;

use std::fmt::Write;

use crate::load::result::{Latency, Point, RunResult};
use crate::output::text::rate;
use charts::{Axes, Bar, DrawError, Line};

/// Returns a page of text as a terminal shows it, with charts under it.
pub fn page_of_text(title: &str, text: &str, charts: &[String]) -> String {
    let mut out = String::new();
    begin(&mut out, title);
    let _ = writeln!(out, "<pre>{}</pre>", escaped_lines(text));
    for chart in charts {
        let _ = writeln!(out, "<figure>{chart}</figure>");
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// Returns the page of one result, or of several side by side, each with its name.
pub fn page(results: &[(String, RunResult)]) -> Result<String, DrawError> {
    let mut out = String::new();
    let title = match results {
        [(name, _)] => format!("redline bench: {name}"),
        many => format!("redline bench: {} results", many.len()),
    };
    begin(&mut out, &title);
    for (name, result) in results {
        summary(&mut out, name, result, results.len() > 1);
    }
    table(&mut out, results);
    for chart in drawn(results)? {
        let _ = writeln!(out, "<figure>{chart}</figure>");
    }
    for (name, result) in results {
        details(&mut out, name, result);
    }
    out.push_str("</body>\n</html>\n");
    Ok(out)
}

/// Prevents the browser from fetching or running anything for the page, whatever it contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}figure{margin:1.2em 0}svg{max-width:100%;height:auto}\
.verdict{border-left:4px solid #0072b2;padding:.2em 1em;background:#f3f7fa}.warning{color:#8a4b00}\
code{background:#f2f2f2;padding:0 .25em}pre{font-size:12px;overflow-x:auto}";

fn begin(out: &mut String, title: &str) {
    let title = escaped(title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
}

fn summary(out: &mut String, name: &str, result: &RunResult, named: bool) {
    if named {
        let _ = writeln!(out, "<h2>{}</h2>", escaped(name));
    }
    let server = result.target.server.as_deref().unwrap_or("unknown server");
    let _ = write!(
        out,
        "<p>{} ({}); {} requests/s",
        escaped(&result.target.address),
        escaped(server),
        rate(result.achieved_rps)
    );
    if let Some(offered) = result.settings.offered_rps {
        let _ = write!(out, " of {} offered", rate(offered));
    }
    let _ = write!(out, " over {:.1} s", result.elapsed_s);
    if let Some(reason) = &result.ended_early {
        let _ = write!(out, " (partial: {})", escaped(reason));
    }
    out.push_str("</p>\n<div class=\"verdict\"><p>");
    let _ = write!(out, "{}</p><ul>", escaped(&result.verdict.text));
    for line in &result.verdict.evidence {
        let _ = write!(out, "<li>{}</li>", escaped(line));
    }
    out.push_str("</ul>");
    if let Some(advice) = &result.verdict.advice {
        let _ = write!(out, "<p>{}</p>", escaped(advice));
    }
    out.push_str("</div>\n");
}

/// Writes rates, latencies and cost, a column for each result.
fn table(out: &mut String, results: &[(String, RunResult)]) {
    out.push_str("<table><tr><th></th>");
    for (name, _) in results {
        let _ = write!(out, "<th>{}</th>", escaped(name));
    }
    out.push_str("</tr>\n");
    let mut row = |name: &str, figure: &dyn Fn(&RunResult) -> Option<String>| {
        let figures: Vec<_> = results.iter().map(|(_, result)| figure(result)).collect();
        if figures.iter().all(Option::is_none) {
            return;
        }
        let _ = write!(out, "<tr><td>{}</td>", escaped(name));
        for figure in figures {
            let _ = write!(out, "<td>{}</td>", escaped(&figure.unwrap_or_default()));
        }
        out.push_str("</tr>\n");
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
    out.push_str("</table>\n");
}

fn drawn(results: &[(String, RunResult)]) -> Result<Vec<String>, DrawError> {
    let several = results.len() > 1;
    let named = |name: &str, what: &str| match (several, what) {
        (false, what) => what.to_owned(),
        (true, "") => name.to_owned(),
        (true, what) => format!("{name}: {what}"),
    };
    let over_time =
        |name: &str, result: &RunResult, what: &str, y: &dyn Fn(&Point) -> Option<f64>| {
            let points = result.series.iter();
            Line {
                name: named(name, what),
                points: points
                    .filter_map(|point| Some((point.at_s, y(point)?)))
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
        percentiles: false,
    };
    let rates = each(&|name, result| {
        let interval = result.settings.interval_s;
        let rate = |point: &Point| Some(point.answered as f64 / interval);
        vec![over_time(name, result, "", &rate)]
    });
    let latencies = each(&|name, result| {
        // Without replies or given-up requests there is no latency, and the line has a gap.
        let known = |point: &Point, us: u64| {
            (point.answered + point.unanswered > 0).then_some(us as f64 / 1000.0)
        };
        let mut lines = vec![over_time(name, result, "p99", &|p| known(p, p.p99_us))];
        if !several {
            lines.push(over_time(name, result, "p50", &|p| known(p, p.p50_us)));
            lines.push(over_time(name, result, "max", &|p| known(p, p.max_us)));
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
        let mut lines = vec![over_time(name, result, "proxy", &|point| point.proxy_cpus)];
        if result.series.iter().all(|point| point.node_cpus.is_empty()) {
            let server = |point: &Point| point.server_cpus;
            lines.insert(0, over_time(name, result, "server", &server));
        }
        // Each of several servers has its own line.
        for (place, node) in result.target.nodes.iter().enumerate() {
            let cpus = |point: &Point| point.node_cpus.get(place).copied().flatten();
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
    let mut drawn = vec![
        charts::lines(&axes("Throughput", "seconds", "requests/s", false), &rates)?,
        charts::lines(
            &axes("Response time over time", "seconds", "ms", true),
            &latencies,
        )?,
        charts::lines(
            &Axes {
                percentiles: true,
                ..axes("Latency by percentile", "share of requests", "ms", true)
            },
            &curves,
        )?,
        charts::bars(
            &axes("CPU per request", "", "us", false),
            &["user", "kernel"],
            &cost,
        )?,
    ];
    if !cpus.is_empty() {
        let axes = axes("CPUs used over time", "seconds", "CPUs", false);
        drawn.push(charts::lines(&axes, &cpus)?);
    }
    Ok(drawn)
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

/// Writes the settings of the run, figures by command, and warnings.
fn details(out: &mut String, name: &str, result: &RunResult) {
    let settings = &result.settings;
    let _ = writeln!(out, "<h2>Details of {}</h2>\n<ul>", escaped(name));
    for command in &settings.commands {
        let _ = writeln!(
            out,
            "<li>{} &times; <code>{}</code></li>",
            command.weight,
            escaped(&command.template)
        );
    }
    let _ = writeln!(
        out,
        "<li>{} connections, {} under way on each, {} threads; redline {}</li>\n</ul>",
        settings.connections,
        settings.pipeline,
        settings.threads,
        escaped(&result.redline_version)
    );
    out.push_str("<table><tr><th>command</th><th>requests/s</th><th>hit rate</th><th>errors</th><th>mean, ms</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th></tr>\n");
    for command in &result.commands {
        let hits = command.hit_rate;
        let hits = hits.map_or(String::new(), |rate| format!("{:.1} %", 100.0 * rate));
        let latency = &command.response_us;
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{:.0}</td><td>{hits}</td><td>{}</td><td>{:.3}</td>",
            escaped(&command.name),
            command.rps,
            command.errors,
            latency.mean / 1000.0
        );
        for us in [latency.p50, latency.p99, latency.p99_9, latency.max] {
            let _ = write!(out, "<td>{:.3}</td>", us as f64 / 1000.0);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    for warning in &result.warnings {
        let _ = writeln!(
            out,
            "<p class=\"warning\">Warning: {}</p>",
            escaped(warning)
        );
    }
}

/// Returns [`escaped`] text of several lines.
fn escaped_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escaped).collect();
    lines.join("\n")
}

/// Escapes text for the page: text of a server or a command line is no markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in a page.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_no_markup() {
        assert_eq!(
            escaped("<script>'\"&\u{1}</script>"),
            "&lt;script&gt;&#39;&quot;&amp;\u{fffd}&lt;/script&gt;"
        );
        let page = page_of_text("<t>", "<b>\n1 & 2", &["<svg></svg>".to_owned()]);
        assert!(
            page.contains("<pre>&lt;b&gt;\n1 &amp; 2</pre>\n<figure><svg>"),
            "{page}"
        );
        assert!(page.contains("<title>&lt;t&gt;</title>") && page.contains("default-src 'none'"));
    }
}
