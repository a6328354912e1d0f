//! Queries of a range of a series: filters, buckets of time and what is made of each. Must not know keys or replies.

use std::ops::ControlFlow;

use super::{
    Sample, Series,
    aggregate::{Aggregation, Aggregator},
};

/// The time that a bucket is reported under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// Its beginning.
    #[default]
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// Buckets of time, and what is made of the samples of each.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// The aggregation of the samples, if there is one.
    pub how: Aggregation,
    /// Length in milliseconds: at least 1.
    pub span: u64,
    /// A time at which a bucket begins.
    pub align: u64,
    /// Time that a bucket is reported under.
    pub stamp: Stamp,
    /// Buckets without a sample are reported between those that have some.
    pub empty: bool,
}

/// A query of a series. Samples before the retention are no part of it.
#[derive(Clone, Debug)]
pub struct Query {
    /// First time, inclusive.
    pub from: u64,
    /// Last time, inclusive.
    pub to: u64,
    /// From the last sample to the first.
    pub reverse: bool,
    /// The only times that count, in order.
    pub times: Option<Vec<u64>>,
    /// The only values that count: the least and the greatest.
    pub values: Option<(f64, f64)>,
    /// Largest number of results.
    pub count: usize,
    /// Buckets, if samples are aggregated.
    pub buckets: Option<Buckets>,
}

/// Results of a query above which buckets without samples are not reported any more, but an error.
pub const RESULTS_MAX: usize = 1 << 24;

/// A query whose results are too many: see [`RESULTS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// A bucket: where it begins and ends. The first one may begin before time 0 and is cut there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// First time.
    pub start: u64,
    /// First time behind it.
    pub end: u64,
    /// Where it begins, time 0 or not.
    uncut: i128,
}

impl Bucket {
    /// Returns the bucket of a time.
    pub fn of(time: u64, span: u64, align: u64) -> Bucket {
        let (time, span) = (i128::from(time), i128::from(span));
        Bucket::at(time - (time - i128::from(align)).rem_euclid(span), span)
    }

    fn at(uncut: i128, span: i128) -> Bucket {
        let cut = |time: i128| u64::try_from(time.max(0)).unwrap_or(u64::MAX);
        Bucket {
            start: cut(uncut),
            end: cut(uncut + span),
            uncut,
        }
    }

    /// Returns the bucket behind this one, or before it.
    fn next(self, span: u64, reverse: bool) -> Bucket {
        let span = i128::from(span);
        let step = if reverse { -span } else { span };
        Bucket::at(self.uncut + step, span)
    }

    fn stamp(self, span: u64, stamp: Stamp) -> u64 {
        match stamp {
            Stamp::Start => self.start,
            Stamp::Middle => self.start.saturating_add(span / 2),
            Stamp::End => self.start.saturating_add(span),
        }
    }
}

impl Query {
    /// Returns the query of a whole range.
    pub fn range(from: u64, to: u64) -> Query {
        Query {
            from,
            to,
            reverse: false,
            times: None,
            values: None,
            count: usize::MAX,
            buckets: None,
        }
    }

    fn wants(&self, sample: Sample) -> bool {
        let is_in = |(least, greatest)| (least..=greatest).contains(&sample.value);
        self.values.is_none_or(is_in)
            && self
                .times
                .as_ref()
                .is_none_or(|times| times.binary_search(&sample.time).is_ok())
    }

    /// Returns the results, in the query's order. `latest` is a sample that the series does not have yet: that of the bucket
    /// which its source has not finished.
    ///
    /// # Errors
    ///
    /// If buckets without samples make the results too many.
    pub fn run(&self, series: &Series, latest: Option<Sample>) -> Result<Vec<Sample>, TooMany> {
        self.run_within(series, latest, RESULTS_MAX)
    }

    /// Does the same with another limit than [`RESULTS_MAX`]: that of a call on several series is for all of them together.
    ///
    /// # Errors
    ///
    /// If buckets without samples make the results more than this.
    pub fn run_within(
        &self,
        series: &Series,
        latest: Option<Sample>,
        results_max: usize,
    ) -> Result<Vec<Sample>, TooMany> {
        let mut results = Results::new(self, series, results_max);
        let latest = latest.filter(|latest| (self.from..=self.to).contains(&latest.time));
        if self.reverse
            && let Some(latest) = latest
            && results.take(latest)?.is_break()
        {
            return Ok(results.given);
        }
        let mut fault = None;
        series.visit(self.from, self.to, self.reverse, |sample| {
            results.take(sample).unwrap_or_else(|too_many| {
                fault = Some(too_many);
                ControlFlow::Break(())
            })
        });
        if let Some(too_many) = fault {
            return Err(too_many);
        }
        if !self.reverse
            && let Some(latest) = latest
            && !results.is_full()
        {
            let _ = results.take(latest)?;
        }
        results.end(series);
        Ok(results.given)
    }
}

/// The results of a query so far.
struct Results<'a> {
    query: &'a Query,
    /// Results above which buckets without samples are an error.
    results_max: usize,
    given: Vec<Sample>,
    open: Option<(Bucket, Aggregator)>,
    /// Sample in front of the range, for the line of a time-weighted average.
    before: Option<Sample>,
}

impl<'a> Results<'a> {
    fn new(query: &'a Query, series: &Series, results_max: usize) -> Results<'a> {
        let mut results = Results {
            query,
            results_max,
            given: Vec::new(),
            open: None,
            before: None,
        };
        if results.draws_line() {
            results.before = results.neighbour(series, !query.reverse);
        }
        results
    }

    fn draws_line(&self) -> bool {
        let is_line = |buckets: Buckets| buckets.how == Aggregation::Twa;
        self.query.buckets.is_some_and(is_line)
            && self.query.values.is_none()
            && self.query.times.is_none()
    }

    /// Returns the sample next to the range, on the side of earlier times or of later ones.
    fn neighbour(&self, series: &Series, earlier: bool) -> Option<Sample> {
        let (from, to) = match earlier {
            true => (0, self.query.from.checked_sub(1)?),
            false => (self.query.to.checked_add(1)?, u64::MAX),
        };
        let mut found = None;
        series.visit(from, to, earlier, |sample| {
            found = Some(sample);
            ControlFlow::Break(())
        });
        found
    }

    fn is_full(&self) -> bool {
        self.given.len() >= self.query.count
    }

    fn take(&mut self, sample: Sample) -> Result<ControlFlow<()>, TooMany> {
        if !self.query.wants(sample) {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(buckets) = self.query.buckets else {
            self.given.push(sample);
            return Ok(self.flow());
        };
        if let Some((open, _)) = self.open
            && !(open.start..open.end).contains(&sample.time)
        {
            self.close(Some(sample));
            if buckets.empty {
                self.fill(open, sample, buckets)?;
            }
            if self.is_full() {
                self.open = None;
                return Ok(ControlFlow::Break(()));
            }
        }
        let is_other =
            |(open, _): &(Bucket, Aggregator)| !(open.start..open.end).contains(&sample.time);
        if self.open.as_ref().is_none_or(is_other) {
            let bucket = Bucket::of(sample.time, buckets.span, buckets.align);
            let before = self
                .open
                .as_ref()
                .and_then(|(_, aggregator)| aggregator.last_met());
            let before = before.or(self.before);
            let bound = self.bounds(bucket).0;
            self.open = Some((bucket, Aggregator::new(buckets.how, bound, before)));
        }
        if let Some((_, aggregator)) = &mut self.open {
            aggregator.push(sample);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the bounds of a bucket within the range, in the order in which they are met.
    fn bounds(&self, bucket: Bucket) -> (u64, u64) {
        let (from, to) = (
            bucket.start.max(self.query.from),
            bucket.end.min(self.query.to),
        );
        match self.query.reverse {
            false => (from, to),
            true => (to, from),
        }
    }

    fn flow(&self) -> ControlFlow<()> {
        match self.is_full() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Reports the open bucket, behind which a sample is or none.
    fn close(&mut self, after: Option<Sample>) {
        let (Some((bucket, aggregator)), Some(buckets)) = (&self.open, self.query.buckets) else {
            return;
        };
        let value = aggregator.value(self.bounds(*bucket).1, after);
        self.given.push(Sample {
            time: bucket.stamp(buckets.span, buckets.stamp),
            value: value.expect("a bucket is opened with a sample"),
        });
    }

    /// Reports the buckets between the open one and that of a sample.
    fn fill(&mut self, open: Bucket, sample: Sample, buckets: Buckets) -> Result<(), TooMany> {
        let reverse = self.query.reverse;
        let until = Bucket::of(sample.time, buckets.span, buckets.align);
        let aggregator = self.open.as_ref().map(|(_, aggregator)| aggregator);
        let last = aggregator.map_or(0.0, |aggregator| aggregator.state().last);
        let neighbour = aggregator.and_then(|aggregator| aggregator.last_met());
        let mut bucket = open.next(buckets.span, reverse);
        while bucket.uncut != until.uncut {
            if self.is_full() {
                return Ok(());
            }
            if self.given.len() >= self.results_max {
                return Err(TooMany);
            }
            let bounds = (bucket.start, bucket.end);
            let neighbours = neighbour.map(|neighbour| (neighbour, sample));
            self.given.push(Sample {
                time: bucket.stamp(buckets.span, buckets.stamp),
                value: Aggregator::empty_value(buckets.how, bounds, neighbours, last),
            });
            bucket = bucket.next(buckets.span, reverse);
        }
        Ok(())
    }

    fn end(&mut self, series: &Series) {
        if self.open.is_some() && !self.is_full() {
            let after = match self.draws_line() {
                true => self.neighbour(series, self.query.reverse),
                false => None,
            };
            self.close(after);
        }
        self.given.truncate(self.query.count);
    }
}
