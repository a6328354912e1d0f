//! Rules: what a series makes of its samples for other series. Must not know keys, nor how the results are stored.
//!
//! A rule keeps the values of the bucket that is not over yet, so that adding a sample costs the same whatever the bucket
//! holds, and samples that leave by retention count. A change of the past reads the bucket's samples again.

use std::ops::ControlFlow;

use super::{Added, Aggregation, Sample, Series, aggregate::Aggregator, range::Bucket};

/// A rule: the buckets of a series as samples of another one.
#[derive(Clone, Debug)]
pub struct Rule {
    target: Box<[u8]>,
    how: Aggregation,
    span_ms: u64,
    align: u64,
    /// Where the bucket begins that is not over yet, and its values.
    open: Option<(u64, Aggregator)>,
}

/// Effect of a change on the target of a rule: samples, which the caller stores.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Name of the target.
    pub target: Box<[u8]>,
    /// Times whose samples are gone: the first and the last.
    pub gone: Option<(u64, u64)>,
    /// Samples that replace those of their times.
    pub samples: Vec<Sample>,
}

impl Rule {
    /// Returns a rule. `span_ms` is at least 1.
    pub fn new(target: &[u8], how: Aggregation, span_ms: u64, align: u64) -> Rule {
        Rule {
            target: target.into(),
            how,
            span_ms,
            align,
            open: None,
        }
    }

    /// Returns the name of the series that it writes.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// Returns what is made of a bucket.
    pub fn how(&self) -> Aggregation {
        self.how
    }

    /// Returns the length of a bucket.
    pub fn span_ms(&self) -> u64 {
        self.span_ms
    }

    /// Returns a time at which a bucket begins.
    pub fn align(&self) -> u64 {
        self.align
    }

    /// Returns where the bucket begins that is not over yet, and its values.
    pub fn open(&self) -> Option<(u64, &Aggregator)> {
        let open = self.open.as_ref();
        open.map(|(start, aggregator)| (*start, aggregator))
    }

    /// Sets the bucket that is not over yet.
    pub fn set_open(&mut self, open: Option<(u64, Aggregator)>) {
        self.open = open;
    }

    /// Returns an aggregator of no values for the bucket of a time.
    pub fn aggregator(&self, time: u64, before: Option<Sample>) -> Aggregator {
        Aggregator::new(self.how, self.bucket(time).start, before)
    }

    /// Returns the bytes on the heap, its own included.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Rule>() + self.target.len()
    }

    fn bucket(&self, time: u64) -> Bucket {
        Bucket::of(time, self.span_ms, self.align)
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            target: self.target.clone(),
            gone: None,
            samples: Vec::new(),
        }
    }

    /// Adds the last sample of the series; returns the sample of a bucket that it ends.
    fn push(&mut self, sample: Sample) -> Option<Sample> {
        let bucket = self.bucket(sample.time);
        let (mut ended, mut before) = (None, None);
        if let Some((start, aggregator)) = &self.open
            && *start != bucket.start
        {
            let end = self.bucket(*start).end;
            ended = aggregator.value(end, Some(sample)).map(|value| Sample {
                time: *start,
                value,
            });
            before = aggregator.last_met();
            self.open = None;
        }
        let (how, start) = (self.how, bucket.start);
        let (_, aggregator) = self
            .open
            .get_or_insert_with(|| (start, Aggregator::new(how, start, before)));
        aggregator.push(sample);
        ended
    }

    /// Returns the bucket of a time as the samples say now, with the time where it begins.
    fn read(&self, series: &Series, time: u64) -> (u64, Aggregator, Option<Sample>) {
        let bucket = self.bucket(time);
        let (mut before, mut after) = (None, None);
        if self.how == Aggregation::Twa {
            before = bucket
                .start
                .checked_sub(1)
                .and_then(|to| series.next_to(to, true));
            after = series.next_to(bucket.end, false);
        }
        let mut aggregator = Aggregator::new(self.how, bucket.start, before);
        series.visit(
            bucket.start,
            bucket.end.saturating_sub(1),
            false,
            |sample| {
                aggregator.push(sample);
                ControlFlow::Continue(())
            },
        );
        (bucket.start, aggregator, after)
    }

    /// Reads the bucket that is not over yet again.
    fn reopen(&mut self, series: &Series) {
        let open = series.last().map(|last| {
            let (start, aggregator, _) = self.read(series, last.time);
            (start, aggregator)
        });
        self.open = open;
    }

    /// Returns the sample of a bucket that is over, or its time if it has none.
    fn over(&self, series: &Series, time: u64) -> Result<Sample, u64> {
        let (start, aggregator, after) = self.read(series, time);
        let value = aggregator.value(self.bucket(time).end, after);
        value
            .map(|value| Sample { time: start, value })
            .ok_or(start)
    }
}

impl Series {
    /// Returns the sample nearest to a time, itself included, on the side of earlier or of later times.
    fn next_to(&self, time: u64, earlier: bool) -> Option<Sample> {
        let (from, to) = if earlier { (0, time) } else { (time, u64::MAX) };
        let mut found = None;
        self.visit(from, to, earlier, |sample| {
            found = Some(sample);
            ControlFlow::Break(())
        });
        found
    }

    /// Makes the rules take in a sample that was added; returns what they make of it.
    pub fn note_added(&mut self, sample: Sample, added: Added) -> Vec<Outcome> {
        if self.rules.is_empty() || added == Added::Ignored {
            return Vec::new();
        }
        let mut rules = std::mem::take(&mut self.rules);
        let mut outcomes = Vec::new();
        for rule in &mut rules {
            let mut outcome = rule.outcome();
            if added == Added::Last {
                outcome.samples.extend(rule.push(sample));
            } else if rule.is_open(self, sample.time) {
                rule.reopen(self);
            } else if let Ok(over) = rule.over(self, sample.time) {
                outcome.samples.push(over);
            }
            if !outcome.samples.is_empty() {
                outcomes.push(outcome);
            }
        }
        self.rules = rules;
        outcomes
    }

    /// Makes the rules take in that samples of a range are gone; returns what they make of it: a target has the samples of
    /// those buckets that are over, and no others.
    pub fn note_deleted(&mut self, from: u64, to: u64) -> Vec<Outcome> {
        let mut rules = std::mem::take(&mut self.rules);
        let mut outcomes = Vec::new();
        for rule in &mut rules {
            rule.reopen(self);
            let open = rule.open.as_ref().map_or(u64::MAX, |(start, _)| *start);
            let (first, last) = (rule.bucket(from), rule.bucket(to));
            let mut outcome = rule.outcome();
            outcome.gone = Some((first.start.min(open), last.start));
            // The buckets at both ends may have samples left; those between have none.
            for bucket in [first, last] {
                let is_done =
                    outcome.samples.last().map(|sample| sample.time) == Some(bucket.start);
                if bucket.start < open
                    && !is_done
                    && let Ok(sample) = rule.over(self, bucket.start)
                {
                    outcome.samples.push(sample);
                }
            }
            outcomes.push(outcome);
        }
        self.rules = rules;
        outcomes
    }

    /// Returns the sample that a target would get if the bucket that is not over yet ended now.
    pub fn latest_of(&self, target: &[u8]) -> Option<Sample> {
        let rule = self.rules.iter().find(|rule| rule.target() == target)?;
        let (start, aggregator) = rule.open()?;
        let value = aggregator.value(rule.bucket(start).end, None)?;
        Some(Sample { time: start, value })
    }

    /// Reads the open buckets of time-weighted averages, which files do not have in full.
    pub(super) fn rebuild_lines(&mut self) {
        let mut rules = std::mem::take(&mut self.rules);
        for rule in &mut rules {
            if rule.how == Aggregation::Twa && rule.open.is_some() {
                rule.reopen(self);
            }
        }
        self.rules = rules;
    }
}

impl Rule {
    /// Returns true if a time lies in the bucket of the last sample, which is not over yet.
    fn is_open(&self, series: &Series, time: u64) -> bool {
        let last = series.last().map(|last| self.bucket(last.time).start);
        last.is_some_and(|start| time >= start)
    }
}
