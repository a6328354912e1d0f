//! The latency monitor: events that took as long as `latency-monitor-threshold`, the worst of each second.
//!
//! Must not know: what the events mean.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write,
    sync::{Mutex, MutexGuard},
};

use redline_resp::Reply;

/// Samples kept of an event.
const SAMPLES_MAX: usize = 160;

/// Samples of an event, and the worst of them.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Unix time in seconds, and the worst of that second in milliseconds; oldest first.
    pub samples: VecDeque<(i64, u64)>,
    /// The worst since the start, or since the event was reset.
    pub worst_ms: u64,
}

/// All events, by name.
#[derive(Default)]
pub struct Events(Mutex<BTreeMap<&'static str, Series>>);

impl Events {
    fn events(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.0.lock().expect("no panic under the latency events")
    }

    /// Records an event and how long it took.
    pub fn add(&self, event: &'static str, at_s: i64, took_ms: u64) {
        let mut events = self.events();
        let series = events.entry(event).or_default();
        series.worst_ms = series.worst_ms.max(took_ms);
        match series.samples.back_mut() {
            Some((last_s, worst_ms)) if *last_s == at_s => *worst_ms = took_ms.max(*worst_ms),
            _ => {
                if series.samples.len() == SAMPLES_MAX {
                    series.samples.pop_front();
                }
                series.samples.push_back((at_s, took_ms));
            }
        }
    }

    /// Returns all events, in the order of their names.
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        let events = self.events();
        let pairs = events.iter();
        pairs
            .map(|(name, series)| (*name, series.clone()))
            .collect()
    }

    /// Returns the event of this name, with its samples.
    pub fn find(&self, event: &[u8]) -> Option<(&'static str, Series)> {
        let events = self.events();
        let mut pairs = events.iter();
        let found = pairs.find(|(name, _)| name.as_bytes() == event);
        found.map(|(name, series)| (*name, series.clone()))
    }

    /// Removes the events that `which` selects, and returns their number.
    pub fn reset(&self, which: impl Fn(&str) -> bool) -> usize {
        let mut events = self.events();
        let before = events.len();
        events.retain(|name, _| !which(name));
        before - events.len()
    }
}

/// Writes the reply of LATENCY LATEST.
pub fn write_latest(events: &[(&'static str, Series)], reply: &mut Reply<'_>) {
    reply.array(events.len());
    for (name, series) in events {
        let (at_s, ms) = series.samples.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.integer(at_s);
        reply.integer(ms as i64);
        reply.integer(series.worst_ms as i64);
    }
}

/// Writes the reply of LATENCY HISTORY.
pub fn write_history(series: &Series, reply: &mut Reply<'_>) {
    reply.array(series.samples.len());
    for (at_s, ms) in &series.samples {
        reply.array(2);
        reply.integer(*at_s);
        reply.integer(*ms as i64);
    }
}

/// Returns a report on the events: how often, how long, how regular, and the advice for those that have one.
pub fn report(events: &[(&'static str, Series)], advice: &[(&str, &str)]) -> String {
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
    for (name, advice) in advice {
        if events.iter().any(|(event, _)| event == name) {
            let _ = writeln!(text, "- {name}: {advice}");
        }
    }
    text
}

/// Number of rows of the graph.
const GRAPH_ROWS: usize = 4;
/// Number of samples side by side; more go below.
const GRAPH_COLUMNS: usize = 80;

/// Returns the samples as columns, each with its age below.
pub fn graph(name: &str, series: &Series, now_s: i64) -> String {
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

/// Returns an age as `12s`, `3m`, `5h`, `2d`.
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
    fn the_worst_of_each_second_is_kept() {
        let events = Events::default();
        for (at_s, ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            events.add("command", at_s, ms);
        }
        let (_, series) = events.find(b"command").unwrap();
        assert_eq!(series.samples, [(1, 9), (2, 3)]);
        assert_eq!(series.worst_ms, 9);
        (3..500).for_each(|at_s| events.add("command", at_s, 1));
        let series = &events.all()[0].1;
        assert_eq!(series.samples.len(), SAMPLES_MAX);
        assert_eq!(series.samples.back(), Some(&(499, 1)));
        assert_eq!(events.reset(|name| name == "other"), 0);
        assert_eq!(events.reset(|_| true), 1);
        assert!(events.find(b"command").is_none());
    }

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
