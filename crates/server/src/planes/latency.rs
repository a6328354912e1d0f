//! LATENCY: what took long, and how the times of commands are distributed.
//!
//! Must not know: how time is taken.

use std::fmt::Write;

use redline_commands::Error;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

use crate::{exec::Halt, latency::Series, session::Session, worker::Worker};

pub(crate) fn latency_latest(
    worker: &mut Worker,
    session: &mut Session,
    _: Args<'_>,
) -> Result<(), Halt> {
    let events = worker.shared.latency_events.all();
    let mut reply = session.reply();
    reply.array(events.len());
    for (name, series) in events {
        let (at_s, ms) = series.samples.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.integer(at_s);
        reply.integer(ms as i64);
        reply.integer(series.worst_ms as i64);
    }
    Ok(())
}

pub(crate) fn latency_history(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    let found = worker.shared.latency_events.find(&args[2]);
    let series = found.map(|(_, series)| series).unwrap_or_default();
    let mut reply = session.reply();
    reply.array(series.samples.len());
    for (at_s, ms) in series.samples {
        reply.array(2);
        reply.integer(at_s);
        reply.integer(ms as i64);
    }
    Ok(())
}

pub(crate) fn latency_reset(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    let names = args.from(2);
    let named = |name: &str| names.iter().any(|word| word == name.as_bytes());
    let events = &worker.shared.latency_events;
    let count = events.reset(|name| names.is_empty() || named(name));
    session.reply().integer(count as i64);
    Ok(())
}

pub(crate) fn latency_graph(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    let Some((name, series)) = worker.shared.latency_events.find(&args[2]) else {
        // Up to a zero byte, as the reference prints it.
        let event = args[2].split(|byte| *byte == 0).next().unwrap_or_default();
        let event = String::from_utf8_lossy(event);
        let text = format!("ERR No samples available for event '{event}'");
        return Err(Error::Line(text.into()).into());
    };
    let text = graph(name, &series, worker.now_ms / 1000);
    session.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn latency_doctor(
    worker: &mut Worker,
    session: &mut Session,
    _: Args<'_>,
) -> Result<(), Halt> {
    let events = worker.shared.latency_events.all();
    let text = if worker.settings.latency_monitor_threshold_ms == 0 && events.is_empty() {
        "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> switches it on.\n".into()
    } else if events.is_empty() {
        format!(
            "Nothing has taken {} ms or longer since the latency monitor was switched on or reset.\n",
            worker.settings.latency_monitor_threshold_ms
        )
    } else {
        report(&events)
    };
    session.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn latency_histogram(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    let distributions = worker.shared.distributions();
    let mut wanted: Vec<CommandId> = Vec::new();
    for name in args.iter().skip(2) {
        let mut words = name.splitn(2, |byte| *byte == b'|');
        let first = words.next().unwrap_or_default();
        let names = &worker.shared.names;
        match words.next() {
            Some(_) => wanted.extend(names.resolve(first, words_after_bar(name)).ok()),
            None => {
                if let Some(id) = names.lookup(first) {
                    wanted.push(id);
                    wanted.extend(spec::table::subcommands(id).map(|row| row.id));
                }
            }
        }
    }
    if args.len() == 2 {
        wanted.extend(CommandId::ALL);
    }
    wanted.retain(|id| distributions[*id as usize].count() > 0);
    let mut reply = session.reply();
    reply.map(wanted.len());
    for id in wanted {
        let distribution = &distributions[id as usize];
        reply.bulk(spec::row(id).full_name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(distribution.count() as i64);
        reply.bulk(b"histogram_usec");
        let pairs = distribution.doubling();
        reply.map(pairs.len());
        for (below_ns, count) in pairs {
            reply.integer((below_ns / 1000) as i64);
            reply.integer(count as i64);
        }
    }
    Ok(())
}

fn words_after_bar(name: &[u8]) -> Option<&[u8]> {
    let bar = name.iter().position(|byte| *byte == b'|')?;
    Some(&name[bar + 1..])
}

/// The events in words: how often, how long, how regular.
fn report(events: &[(&'static str, Series)]) -> String {
    let mut text = String::from("Events that took long, the worst of each second:\n\n");
    for (number, (name, series)) in events.iter().enumerate() {
        let count = series.samples.len() as u64;
        let times = || series.samples.iter().map(|(_, ms)| *ms);
        let mean_ms = times().sum::<u64>() / count.max(1);
        let deviation_ms = times().map(|ms| ms.abs_diff(mean_ms)).sum::<u64>() / count.max(1);
        let first_s = series.samples.front().map_or(0, |(at_s, _)| *at_s);
        let last_s = series.samples.back().map_or(0, |(at_s, _)| *at_s);
        let period_s = (last_s - first_s) as f64 / count.max(1) as f64;
        let _ = writeln!(
            text,
            "{}. {name}: {count} seconds with such an event, {mean_ms} ms on average (mean deviation {deviation_ms} ms), one every {period_s:.2} s, the worst {} ms.",
            number + 1,
            series.worst_ms
        );
    }
    text.push('\n');
    for (name, advice) in ADVICE {
        if events.iter().any(|(event, _)| event == name) {
            let _ = writeln!(text, "- {name}: {advice}");
        }
    }
    text
}

const ADVICE: &[(&str, &str)] = &[
    (
        "command",
        "SLOWLOG GET names the calls. Where one works on a large collection, ask for parts of it (the SCAN family, ranges), or spread it over several keys.",
    ),
    (
        "fast-command",
        "such commands do little by themselves. Look for calls with very many arguments, for a machine without free memory (swapping), and for neighbours that take the CPU.",
    ),
    (
        "expire-cycle",
        "many keys end at the same moment. Give their times to live some random spread, or lower active-expire-effort.",
    ),
    (
        "eviction-cycle",
        "memory is at maxmemory and large values go. Raise maxmemory, or set times to live so that less has to be evicted.",
    ),
];

/// Rows of the graph.
const GRAPH_ROWS: usize = 4;
/// Samples side by side; more go below.
const GRAPH_COLUMNS: usize = 80;

/// The samples as columns, each with its age below.
fn graph(name: &str, series: &Series, now_s: i64) -> String {
    const MARKS: [char; 3] = ['_', 'o', '#'];
    let times = || series.samples.iter().map(|(_, ms)| *ms);
    let (low, high) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let mut text = format!(
        "{name} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.worst_ms,
        "-".repeat(GRAPH_COLUMNS)
    );
    let levels = (GRAPH_ROWS * MARKS.len()) as u64;
    let columns: Vec<(usize, String)> = series
        .samples
        .iter()
        .map(|(at_s, ms)| {
            let level = (ms - low) * levels / (high - low).max(1);
            (level.min(levels - 1) as usize, age(now_s - at_s))
        })
        .collect();
    for (number, part) in columns.chunks(GRAPH_COLUMNS).enumerate() {
        if number > 0 {
            text.push('\n');
        }
        for row in (0..GRAPH_ROWS).rev() {
            text.extend(part.iter().map(|(level, _)| match level / MARKS.len() {
                top if top == row => MARKS[level % MARKS.len()],
                top if top > row => '|',
                _ => ' ',
            }));
            text.push('\n');
        }
        text.push_str(&" ".repeat(part.len()));
        text.push('\n');
        let longest = part.iter().map(|(_, age)| age.len()).max().unwrap_or(0);
        for at in 0..longest {
            text.extend(
                part.iter()
                    .map(|(_, age)| age.chars().nth(at).unwrap_or(' ')),
            );
            text.push('\n');
        }
    }
    text
}

/// `12s`, `3m`, `5h`, `2d`.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_grow_with_the_time() {
        let series = Series {
            samples: [(98, 20), (99, 50), (100, 5)].into(),
            worst_ms: 70,
        };
        let text = graph("command", &series, 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "command - high 50 ms, low 5 ms (all time high 70 ms)"
        );
        assert_eq!(
            lines[2..],
            [" # ", " | ", "o| ", "||_", "   ", "210", "sss"]
        );
    }

    #[test]
    fn ages() {
        let ages = [0, 59, 60, 3599, 7200, 200_000].map(age);
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "2h", "2d"]);
    }
}
