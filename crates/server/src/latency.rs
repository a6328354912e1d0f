//! The latency monitor: events that took as long as `latency-monitor-threshold`, the worst of each second.
//!
//! Must not know: what the events are, how they are shown.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard},
};

use crate::worker::Worker;

/// Samples kept of an event.
const SAMPLES_MAX: usize = 160;

/// What the samples of an event say.
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

    /// Something took so long.
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

    /// All that happened, in the order of their names.
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        let events = self.events();
        let pairs = events.iter();
        pairs
            .map(|(name, series)| (*name, series.clone()))
            .collect()
    }

    /// One of them.
    pub fn find(&self, event: &[u8]) -> Option<(&'static str, Series)> {
        let events = self.events();
        let mut pairs = events.iter();
        let found = pairs.find(|(name, _)| name.as_bytes() == event);
        found.map(|(name, series)| (*name, series.clone()))
    }

    /// Forgets those that `which` says; how many there were.
    pub fn reset(&self, which: impl Fn(&str) -> bool) -> usize {
        let mut events = self.events();
        let before = events.len();
        events.retain(|name, _| !which(name));
        before - events.len()
    }
}

impl Worker {
    /// Something took so long: an event of the latency monitor, if it is on and that is long enough.
    pub(crate) fn note_latency(&self, event: &'static str, ns: u64) {
        let (threshold_ms, ms) = (self.settings.latency_monitor_threshold_ms, ns / 1_000_000);
        if threshold_ms != 0 && ms >= threshold_ms {
            let at_s = self.now_ms / 1000;
            self.shared.latency_events.add(event, at_s, ms);
        }
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
}
