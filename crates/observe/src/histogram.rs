//! Distributions of command times: counts in buckets whose width is a 32nd of what they hold.
//!
//! The same idea as HdrHistogram's (buckets that double, each cut into equal parts), with one writer and plain stores, and
//! at most 7 KiB for a command that has run on a worker. A figure read back is at most 3 % above the time that was taken.
//! Must not know: which command.

use crate::Counter;

/// Number of equal parts between two powers of two.
const PARTS: u64 = 32;
const PART_BITS: u32 = PARTS.ilog2();
/// Longest time that is told apart, in nanoseconds; longer ones count as this.
const NS_MAX: u64 = 1_000_000_000;
const BUCKETS: usize = bucket(NS_MAX) + 1;

/// Counts with one writer.
pub struct Histogram(Box<[Counter]>);

impl Default for Histogram {
    fn default() -> Self {
        Histogram((0..BUCKETS).map(|_| Counter::default()).collect())
    }
}

/// Returns the bucket of a time.
const fn bucket(ns: u64) -> usize {
    if ns < PARTS {
        return ns as usize;
    }
    let shift = ns.ilog2() - PART_BITS;
    (PARTS * shift as u64 + (ns >> shift)) as usize
}

/// Returns the longest time of a bucket, in nanoseconds.
fn longest_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    ((bucket - PARTS * shift + 1) << shift) - 1
}

/// The place of a time in any histogram.
#[derive(Clone, Copy, Debug)]
pub struct Bucket(usize);

impl Bucket {
    /// Returns the bucket of a time in nanoseconds.
    #[inline]
    pub fn of(ns: u64) -> Bucket {
        Bucket(bucket(ns.min(NS_MAX)))
    }
}

impl Histogram {
    /// Adds `times` commands that took so long each; only the owning worker may.
    #[inline]
    pub fn record(&self, ns: u64, times: u64) {
        self.record_at(Bucket::of(ns), times);
    }

    /// Does the same as [`Histogram::record`] where the bucket is known: it is computed once for several histograms.
    #[inline]
    pub fn record_at(&self, bucket: Bucket, times: u64) {
        self.0[bucket.0].add(times);
    }
}

/// Counts of several histograms together.
#[derive(Clone, Debug, Default)]
pub struct Distribution(Vec<u64>);

impl Distribution {
    /// Adds what a histogram has counted.
    pub fn add(&mut self, histogram: &Histogram) {
        self.0.resize(BUCKETS, 0);
        for (sum, count) in self.0.iter_mut().zip(&histogram.0) {
            *sum += count.get();
        }
    }

    /// Subtracts what was counted before.
    pub fn subtract(&mut self, earlier: &Distribution) {
        for (now, then) in self.0.iter_mut().zip(&earlier.0) {
            *now = now.saturating_sub(*then);
        }
    }

    /// Returns the number of commands that were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the number of them that took less than `bound_ns`, which is a power of two.
    pub fn below(&self, bound_ns: u64) -> u64 {
        let end = match bound_ns {
            ..=NS_MAX => bucket(bound_ns).min(self.0.len()),
            _ => self.0.len(),
        };
        self.0[..end].iter().sum()
    }

    /// Returns the time that `percent` of the commands did not exceed, in nanoseconds; `None`: there were none.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let wanted = ((self.count() as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        self.0
            .iter()
            .position(|count| {
                seen += count;
                seen >= wanted
            })
            .map(longest_ns)
    }

    /// Returns pairs of a bound in nanoseconds and the commands below it; bounds double from 1,024 on, and those at
    /// which nothing is added are left out.
    pub fn doubling(&self) -> Vec<(u64, u64)> {
        const FIRST_NS: u64 = 1024;
        let (mut pairs, mut sum, mut at) = (Vec::new(), 0, 0);
        let mut bound_ns = FIRST_NS;
        while at < self.0.len() {
            let end = bucket(bound_ns.min(NS_MAX)).max(at + 1).min(self.0.len());
            let end = if bound_ns > NS_MAX { self.0.len() } else { end };
            let added: u64 = self.0[at..end].iter().sum();
            sum += added;
            if added > 0 {
                pairs.push((bound_ns, sum));
            }
            at = end;
            bound_ns *= 2;
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut next_ns = 0;
        for at in 0..BUCKETS {
            assert_eq!(bucket(next_ns), at, "{next_ns}");
            assert_eq!(bucket(longest_ns(at)), at, "{at}");
            next_ns = longest_ns(at) + 1;
        }
        assert!(next_ns > NS_MAX);
    }

    #[test]
    fn percentiles_are_at_most_three_percent_above() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.record(us * 1000, 3));
        let mut all = Distribution::default();
        all.add(&histogram);
        assert_eq!(all.count(), 3000);
        for percent in [0.1, 50.0, 99.0, 99.9, 100.0] {
            let right = (percent * 10_000.0) as u64;
            let ns = all.percentile_ns(percent).unwrap();
            assert!(
                (right..right + right / 32 + 1).contains(&ns),
                "{percent}: {ns}"
            );
        }
        assert_eq!(Distribution::default().percentile_ns(50.0), None);
    }

    #[test]
    fn doubling_bounds_add_up() {
        let histogram = Histogram::default();
        for ns in [1, 1023, 1024, 5000, u64::MAX] {
            histogram.record(ns, 1);
        }
        let mut all = Distribution::default();
        all.add(&histogram);
        let pairs = all.doubling();
        assert_eq!(pairs, [(1024, 2), (2048, 3), (8192, 4), (1 << 30, 5)]);
        let below = [1024, 2048, 4096, 8192, 1 << 30].map(|bound_ns| all.below(bound_ns));
        assert_eq!(below, [2, 3, 3, 4, 5]);
        assert_eq!(Distribution::default().below(1024), 0);
        let before = all.clone();
        all.subtract(&before);
        assert_eq!((all.count(), all.doubling().len()), (0, 0));
    }
}
