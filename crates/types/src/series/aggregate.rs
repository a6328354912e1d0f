//! Aggregators: values of a bucket of time to one value. Must not know series, chunks or queries.
//!
//! The time-weighted average is the area under the line from sample to sample, divided by the time that it covers. The line
//! goes on to the neighbours of the bucket's samples, where there are any, and is cut at the bucket's bounds.

use super::Sample;

/// The ways to make one value of those of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // a variant is its name
pub enum Aggregation {
    Min,
    Max,
    Sum,
    Avg,
    Count,
    First,
    Last,
    Range,
    StdP,
    StdS,
    VarP,
    VarS,
    Twa,
}

/// Names, with the numbers that files have for them.
const NAMES: [(Aggregation, &str, u64); 13] = [
    (Aggregation::Min, "MIN", 1),
    (Aggregation::Max, "MAX", 2),
    (Aggregation::Sum, "SUM", 3),
    (Aggregation::Avg, "AVG", 4),
    (Aggregation::Count, "COUNT", 5),
    (Aggregation::First, "FIRST", 6),
    (Aggregation::Last, "LAST", 7),
    (Aggregation::Range, "RANGE", 8),
    (Aggregation::StdP, "STD.P", 9),
    (Aggregation::StdS, "STD.S", 10),
    (Aggregation::VarP, "VAR.P", 11),
    (Aggregation::VarS, "VAR.S", 12),
    (Aggregation::Twa, "TWA", 13),
];

impl Aggregation {
    /// Returns the aggregation of this name, in any case.
    pub fn of_name(name: &[u8]) -> Option<Aggregation> {
        let is_it = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let found = NAMES.iter().find(|(_, known, _)| is_it(known));
        found.map(|(aggregation, ..)| *aggregation)
    }

    /// Returns the aggregation that has this number in files.
    pub fn of_number(number: u64) -> Option<Aggregation> {
        let found = NAMES.iter().find(|(.., known)| *known == number);
        found.map(|(aggregation, ..)| *aggregation)
    }

    /// Returns the name, in upper case.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Returns the number that files have for it.
    pub fn number(self) -> u64 {
        NAMES[self as usize].2
    }
}

/// The values of one bucket so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregator {
    how: Aggregation,
    count: u64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
    first: f64,
    last: f64,
    /// The sum has left the range of doubles: it is an average.
    is_average: bool,
    line: Line,
}

/// The area under the line, for a time-weighted average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Line {
    area: f64,
    /// Time where the line begins; any, as long as there is no sample.
    from: u64,
    /// Last point of the line, which may be of an earlier bucket.
    last: Option<Sample>,
    /// Bound of the bucket from which its samples are met.
    bound: u64,
}

impl Line {
    fn go_on(&mut self, to: Sample) {
        if let Some(last) = self.last {
            self.area += (last.value + to.value) * last.time.abs_diff(to.time) as f64 / 2.0;
        }
        self.last = Some(to);
    }
}

/// Returns the value at a time on the line through two samples of different times.
fn between(a: Sample, b: Sample, time: u64) -> f64 {
    let (from, to) = match a.time < b.time {
        true => (a, b),
        false => (b, a),
    };
    let part = time.saturating_sub(from.time) as f64 / (to.time - from.time) as f64;
    from.value + (to.value - from.value) * part
}

impl Aggregator {
    /// Returns an aggregator of no values, for a bucket whose samples come from one of its bounds on; `before` is the sample
    /// met last in front of it.
    pub fn new(how: Aggregation, bound: u64, before: Option<Sample>) -> Aggregator {
        Aggregator {
            how,
            count: 0,
            sum: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            first: 0.0,
            last: 0.0,
            is_average: false,
            line: Line {
                area: 0.0,
                from: bound,
                last: before,
                bound,
            },
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sample met last, in the bucket or in front of it; kept for a time-weighted average alone.
    pub fn last_met(&self) -> Option<Sample> {
        self.line.last
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: Sample) {
        let value = sample.value;
        if self.how == Aggregation::Twa {
            self.push_to_line(sample);
        }
        self.count += 1;
        if self.how == Aggregation::Avg {
            self.add_to_average(value);
        } else {
            self.sum += value;
        }
        self.squares += value * value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        if self.count == 1 {
            self.first = value;
        }
        self.last = value;
    }

    fn add_to_average(&mut self, value: f64) {
        let count = self.count as f64;
        if self.is_average {
            self.sum = self.sum * ((count - 1.0) / count) + value / count;
        } else if (self.sum + value).is_finite() || !self.sum.is_finite() {
            self.sum += value;
        } else {
            self.sum = self.sum / count + value / count;
            self.is_average = true;
        }
    }

    fn push_to_line(&mut self, sample: Sample) {
        let line = &mut self.line;
        if self.count == 0 {
            match line.last {
                Some(before) if before.time != line.bound => {
                    line.last = Some(Sample {
                        time: line.bound,
                        value: between(before, sample, line.bound),
                    });
                    line.from = line.bound;
                }
                Some(_) => line.from = line.bound,
                None => line.from = sample.time,
            }
        }
        line.go_on(sample);
    }

    /// Returns the value of the bucket, which ends at `bound`; `after` is the sample behind it. `None` without a sample.
    pub fn value(&self, bound: u64, after: Option<Sample>) -> Option<f64> {
        let count = self.count as f64;
        if self.count == 0 {
            return None;
        }
        Some(match self.how {
            Aggregation::Min => self.min,
            Aggregation::Max => self.max,
            Aggregation::Range => self.max - self.min,
            Aggregation::Sum => self.sum,
            Aggregation::Count => count,
            Aggregation::First => self.first,
            Aggregation::Last => self.last,
            Aggregation::Avg if self.is_average => self.sum,
            Aggregation::Avg => self.sum / count,
            Aggregation::VarP => self.variance(),
            Aggregation::VarS => self.variance_of_samples(),
            Aggregation::StdP => self.variance().sqrt(),
            Aggregation::StdS => self.variance_of_samples().sqrt(),
            Aggregation::Twa => self.weighted(bound, after),
        })
    }

    /// Returns the value of a bucket without a sample, between two that have some: see [`Aggregator::value`]. `last` is the
    /// value that LAST had in the bucket before.
    pub fn empty_value(
        how: Aggregation,
        bounds: (u64, u64),
        neighbours: Option<(Sample, Sample)>,
        last: f64,
    ) -> f64 {
        match (how, neighbours) {
            (Aggregation::Sum | Aggregation::Count, _) => 0.0,
            (Aggregation::Last, _) => last,
            (Aggregation::Twa, Some((a, b))) if a.time != b.time => {
                (between(a, b, bounds.0) + between(a, b, bounds.1)) / 2.0
            }
            _ => f64::NAN,
        }
    }

    fn variance(&self) -> f64 {
        let count = self.count as f64;
        let average = self.sum / count;
        // In this order the digits are those of RedisTimeSeries.
        let twice = 2.0 * self.sum * self.sum / count;
        (self.squares - twice + average * average * count) / count
    }

    fn variance_of_samples(&self) -> f64 {
        match self.count {
            1 => 0.0,
            count => self.variance() * count as f64 / (count - 1) as f64,
        }
    }

    fn weighted(&self, bound: u64, after: Option<Sample>) -> f64 {
        let mut line = self.line;
        let last = line.last.expect("there is a sample");
        if let Some(after) = after
            && after.time != last.time
        {
            line.go_on(Sample {
                time: bound,
                value: between(last, after, bound),
            });
        }
        let end = line.last.expect("as above").time;
        match line.from.abs_diff(end) {
            0 => self.last,
            covered => line.area / covered as f64,
        }
    }

    /// Returns the state, in the order in which files have it.
    pub fn state(&self) -> AggregatorState {
        AggregatorState {
            count: self.count,
            sum: self.sum,
            squares: self.squares,
            min: self.min,
            max: self.max,
            first: self.first,
            last: self.last,
            is_average: self.is_average,
        }
    }

    /// Sets the state to one of a file; for anything but a time-weighted average.
    pub fn restore(&mut self, state: AggregatorState) {
        self.count = state.count;
        (self.sum, self.squares) = (state.sum, state.squares);
        (self.min, self.max) = (state.min, state.max);
        (self.first, self.last) = (state.first, state.last);
        self.is_average = state.is_average;
    }
}

/// The state of an aggregator, for files: each aggregation needs some of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // a field is its name
pub struct AggregatorState {
    pub count: u64,
    pub sum: f64,
    pub squares: f64,
    pub min: f64,
    pub max: f64,
    pub first: f64,
    pub last: f64,
    /// The sum is an average, since it has left the range of doubles.
    pub is_average: bool,
}
