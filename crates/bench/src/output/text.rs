//! The result of a run as text for a terminal.
//!
//! Opens nothing and measures nothing.

use std::fmt::Write;

use crate::load::cause::parties::Memory;
use crate::load::result::{CommandResult, Latency, Node, Party, RunResult};

/// Returns the final report for the user.
pub fn text(result: &RunResult) -> String {
    let mut out = String::new();
    head(&mut out, result);
    figures(&mut out, result);
    if result.commands.len() > 1 {
        commands(&mut out, &result.commands);
    }
    parties(&mut out, &result.parties);
    counters(&mut out, &result.target.nodes);
    if let Some(own) = &result.own_cost {
        let _ = writeln!(
            out,
            "{:<16}{:>10.2}{:>10.2}{:>10.2}{:>37}with a server that does nothing: p50 {:.3} ms, p99 {:.3} ms",
            "  by itself",
            own.user_us_per_request,
            own.system_us_per_request,
            own.user_us_per_request + own.system_us_per_request,
            "",
            own.response_us.p50 as f64 / 1000.0,
            own.response_us.p99 as f64 / 1000.0
        );
    }
    let _ = writeln!(out, "\n{}", result.verdict.text);
    for line in &result.verdict.evidence {
        let _ = writeln!(out, "  - {line}");
    }
    if let Some(advice) = &result.verdict.advice {
        let _ = writeln!(out, "  {advice}");
    }
    for warning in &result.warnings {
        let _ = writeln!(out, "WARNING: {warning}");
    }
    out
}

fn head(out: &mut String, result: &RunResult) {
    let settings = &result.settings;
    let server = result.target.server.as_deref().unwrap_or("unknown server");
    let _ = writeln!(out, "{} ({server})", result.target.address);
    if result.target.nodes.len() > 1 {
        for node in &result.target.nodes {
            let _ = match node.replies {
                Some(replies) => writeln!(out, "  node {}: {replies} replies", node.address),
                None => writeln!(out, "  server {}", node.address),
            };
        }
    }
    for command in &settings.commands {
        if settings.commands.len() > 1 {
            let _ = writeln!(out, "  {} x {}", command.weight, command.template);
        } else {
            let _ = writeln!(out, "  {}", command.template);
        }
    }
    let manner = match settings.offered_rps {
        Some(rate) => format!("open loop, {rate} requests/s"),
        None => "closed loop".to_owned(),
    };
    let pipeline = match (
        settings.pipeline,
        settings.window || settings.offered_rps.is_some(),
    ) {
        (1, _) => "no pipeline".to_owned(),
        (depth, true) => format!("up to {depth} under way on each"),
        (depth, false) => format!("batches of {depth}"),
    };
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let _ = writeln!(
        out,
        "  {manner}, {} connection{}, {pipeline}, {} thread{}; {:.2} s measured{}",
        settings.connections,
        plural(settings.connections),
        settings.threads,
        plural(settings.threads),
        result.elapsed_s,
        match &result.ended_early {
            Some(reason) => format!(" (partial: {reason})"),
            None => String::new(),
        }
    );
}

fn figures(out: &mut String, result: &RunResult) {
    let requests = &result.requests;
    let _ = write!(out, "\n{} requests/s", rate(result.achieved_rps));
    if let Some(offered) = result.settings.offered_rps {
        let _ = write!(out, " of {} offered", rate(offered));
    }
    let _ = write!(
        out,
        "; {} answered",
        requests.values + requests.nulls + requests.errors
    );
    for (count, what) in [
        (requests.errors, "errors"),
        (requests.unsent, "due and never sent"),
        (requests.unanswered, "not answered"),
        (requests.lost, "lost with their connections"),
    ] {
        if count > 0 {
            let _ = write!(out, ", {count} {what}");
        }
    }
    if let Some(rate) = result.hit_rate {
        let _ = write!(out, "; hit rate {:.1} %", 100.0 * rate);
    }
    let _ = writeln!(
        out,
        "; {:.1} Mbit/s out, {:.1} in",
        megabits(result.sent_bytes, result.elapsed_s),
        megabits(result.received_bytes, result.elapsed_s)
    );
    if let Some(found) = &result.redirects {
        let _ = writeln!(
            out,
            "on their way: {} moved, {} asked elsewhere, {} sent again for split keys, {} for nodes that could not \
             serve, {} for lost connections",
            found.moved, found.asked, found.try_again, found.refused, found.resent
        );
    }
    let _ = writeln!(
        out,
        "\n{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "latency, ms", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"
    );
    let rows = [
        (
            if result.service_us.is_some() {
                "response time"
            } else {
                "closed loop"
            },
            Some(&result.response_us),
        ),
        ("service time", result.service_us.as_ref()),
        ("schedule lag", result.schedule_lag_us.as_ref()),
    ];
    for (name, latency) in rows {
        if let Some(latency) = latency {
            latency_row(out, name, latency);
        }
    }
}

fn commands(out: &mut String, commands: &[CommandResult]) {
    for command in commands {
        latency_row(out, &command.name, &command.response_us);
    }
    out.push('\n');
    for command in commands {
        let _ = write!(out, "{:<16}{:>10.0} requests/s", command.name, command.rps);
        if let Some(rate) = command.hit_rate {
            let _ = write!(out, ", hit rate {:.1} %", 100.0 * rate);
        }
        if command.errors > 0 {
            let _ = write!(out, ", {} errors", command.errors);
        }
        out.push('\n');
    }
}

fn parties(out: &mut String, parties: &[Party]) {
    let _ = writeln!(
        out,
        "\n{:<16}{:>10}{:>10}{:>10}{:>12}{:>10}{:>13}  process",
        "CPU, us/request", "user", "kernel", "both", "CPUs used", "busiest", "memory, MB"
    );
    for party in parties {
        let wall = party.wall_s.max(1e-9);
        let _ = writeln!(
            out,
            "{:<16}{:>10.2}{:>10.2}{:>10.2}{:>12.2}{:>8.0} %{:>13}  {}",
            party.role,
            party.user_us_per_request,
            party.system_us_per_request,
            party.user_us_per_request + party.system_us_per_request,
            (party.user_s + party.system_s) / wall,
            100.0 * party.busiest_share,
            party.memory.as_ref().map_or(String::new(), megabytes),
            match (&party.name, party.pid) {
                (Some(name), Some(pid)) => format!("{name} ({pid})"),
                _ => party.measured_by.clone(),
            }
        );
    }
}

/// Writes the counters of each server, except zeroes.
fn counters(out: &mut String, nodes: &[Node]) {
    for node in nodes {
        let counted = node.counters.iter().filter(|&(_, &grown)| grown > 0);
        let counted: Vec<String> = counted
            .map(|(name, grown)| format!("{name} {grown}"))
            .collect();
        if !counted.is_empty() {
            let _ = writeln!(out, "counted by {}: {}", node.address, counted.join(", "));
        }
    }
}

/// Returns the maximum, and its growth since the start, if any.
fn megabytes(memory: &Memory) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let grown = memory.max_bytes.saturating_sub(memory.first_bytes);
    if mb(grown) < 0.1 {
        return format!("{:.1}", mb(memory.max_bytes));
    }
    format!("{:.1} (+{:.1})", mb(memory.max_bytes), mb(grown))
}

fn latency_row(out: &mut String, name: &str, latency: &Latency) {
    let ms = |us: u64| us as f64 / 1000.0;
    let _ = writeln!(
        out,
        "{name:<16}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}",
        latency.mean / 1000.0,
        ms(latency.p50),
        ms(latency.p90),
        ms(latency.p99),
        ms(latency.p99_9),
        ms(latency.p99_99),
        ms(latency.max)
    );
}

/// Formats requests per second; small rates with decimals.
pub fn rate(rps: f64) -> String {
    let digits = if rps < 10.0 { 2 } else { 0 };
    format!("{rps:.digits$}")
}

fn megabits(bytes: u64, seconds: f64) -> f64 {
    if seconds == 0.0 {
        // There were no replies.
        return 0.0;
    }
    bytes as f64 * 8.0 / 1e6 / seconds
}
