//! The result of a failover as text for a terminal. Opens nothing and measures nothing.

use std::fmt::Write;

use super::FailoverResult;

/// Largest number of lines of the timeline; the JSON has all.
const LINES_MAX: usize = 400;

/// Returns the final report for the user.
pub fn text(result: &FailoverResult) -> String {
    let mut out = String::new();
    let run = &result.run;
    let server = run.target.server.as_deref().unwrap_or("unknown server");
    let _ = writeln!(out, "{} ({server})", run.target.address);
    let offered = run.settings.offered_rps.unwrap_or(0.0);
    let _ = writeln!(
        out,
        "  {offered:.0} writes/s for {:.1} s, {} connections to each node",
        run.elapsed_s, run.settings.connections
    );
    happened(&mut out, result);
    timeline(&mut out, result);
    let _ = writeln!(out, "\n{} writes acknowledged", result.acknowledged);
    let _ = writeln!(out, "{} of them read back", result.found);
    let _ = writeln!(out, "{} of them gone", result.gone);
    if result.unread > 0 {
        let _ = writeln!(out, "{} of them could not be read back", result.unread);
    }
    let shown = result.gone_numbers.iter().take(8);
    for (first, last) in shown {
        let _ = writeln!(
            out,
            "  {} to {}",
            format_args!("{}{first}", result.key_prefix),
            last
        );
    }
    let waiting = run.requests.unanswered + run.requests.unsent;
    if waiting > 0 {
        let _ = writeln!(out, "{waiting} were not answered when the run ended");
    }
    if result.outages.is_empty() {
        out.push_str("no shard was without service\n");
        for pause in &result.longest_pauses {
            let _ = writeln!(
                out,
                "the longest time of {} without an acknowledged write was {:.3} s, from {:.2} s on",
                pause.node, pause.seconds, pause.from_s
            );
        }
    }
    for outage in &result.outages {
        let _ = writeln!(
            out,
            "the shard of {} was without service for {:.2} s from {:.2} s on",
            outage.node, outage.seconds, outage.from_s
        );
    }
    for (kind, times) in &result.trouble {
        let _ = writeln!(out, "  {times:>8} x {kind}");
    }
    for warning in &run.warnings {
        let _ = writeln!(out, "WARNING: {warning}");
    }
    out
}

fn happened(out: &mut String, result: &FailoverResult) {
    let happened = &result.happened;
    let Some(started_s) = happened.started_s else {
        let _ = writeln!(out, "  never run: {}", result.command);
        return;
    };
    let _ = write!(out, "  at {started_s:.2} s: {}", result.command);
    let _ = match (&happened.status, happened.ended_s) {
        (Some(status), Some(ended_s)) => writeln!(out, " ({status}, at {ended_s:.2} s)"),
        _ => writeln!(out, " (had not ended when the run did)"),
    };
}

fn timeline(out: &mut String, result: &FailoverResult) {
    let run = &result.run;
    let interval_s = run.settings.interval_s;
    let _ = write!(
        out,
        "\n{:>8}{:>12}{:>10}{:>10}",
        "s", "answered/s", "p50, ms", "p99, ms"
    );
    for node in &run.target.nodes {
        let port = node.address.rsplit(':').next().unwrap_or(&node.address);
        let _ = write!(out, "{:>11}", format!("CPU :{port}"));
    }
    out.push('\n');
    let mut trouble = result.trouble_over_time.iter().peekable();
    for point in run.series.iter().take(LINES_MAX) {
        let _ = write!(
            out,
            "{:>8.2}{:>12.0}{:>10.2}{:>10.2}",
            point.at_s,
            point.answered as f64 / interval_s,
            point.p50_us as f64 / 1000.0,
            point.p99_us as f64 / 1000.0
        );
        for place in 0..run.target.nodes.len() {
            let _ = match point.node_cpus.get(place).copied().flatten() {
                // With one node the sum is its own.
                None if run.target.nodes.len() == 1 && point.server_cpus.is_some() => {
                    write!(out, "{:>9.0} %", 100.0 * point.server_cpus.unwrap_or(0.0))
                }
                Some(cpus) => write!(out, "{:>9.0} %", 100.0 * cpus),
                None => write!(out, "{:>11}", "-"),
            };
        }
        if point.unanswered > 0 {
            let _ = write!(out, "  {} never answered", point.unanswered);
        }
        while let Some(piece) = trouble.next_if(|piece| piece.at_s < point.at_s + interval_s / 2.0)
        {
            for (kind, times) in &piece.kinds {
                let _ = write!(out, "  {times} {kind}");
            }
        }
        out.push('\n');
    }
}
