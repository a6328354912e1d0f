//! Confidence of a ratio, of many short runs: Wilcoxon's signed ranks on pairs.
//!
//! Pure arithmetic: knows no run.
//!
//! # The method
//!
//! On a machine with other load, the rate of a short run depends on the CPU time left: most pairs are fair, and some
//! were disturbed. A mean, and the spread around it, follow the few disturbed ones. Ranks do not: the estimate is the
//! median of the means of all pairs of logarithms of ratios (Hodges and Lehmann), and the interval's ends are those of
//! the same means beyond which the signed-rank statistic falls too seldom.
//!
//! The interval's validity does not depend on the distribution of the noise, but on the coin that decides the order
//! within a pair. If both sides are equal, the coin alone decides a pair's sign, whatever the machine did meanwhile, and
//! however pairs depend on earlier ones. So the statistic's distribution is that of independent fair signs, which is
//! computed exactly here; above [`COUNTED_MAX`] pairs it is the normal one to many digits. A ratio other than one is the
//! same statement with one side's figures multiplied by it.

use super::bootstrap::{Ratio, normal_quantile};

/// Number of pairs from which the statistic has enough values for intervals of any confidence.
pub const PAIRS_MIN: usize = 20;
/// Largest number of pairs whose distribution is computed exactly.
const COUNTED_MAX: usize = 150;

/// Returns the ratio whose logarithms are these, at least one, with an interval that misses the truth with at most the
/// probability `error`.
pub fn ratio(logs: &[f64], error: f64) -> Ratio {
    let mut means: Vec<f64> = Vec::with_capacity(logs.len() * (logs.len() + 1) / 2);
    for (index, first) in logs.iter().enumerate() {
        means.extend(logs[index..].iter().map(|second| (first + second) / 2.0));
    }
    // Four of the means are wanted, and those in the middle first: looking for them takes less than sorting.
    let half = means.len() / 2;
    let above = nth(&mut means, half);
    let middle = match means.len() % 2 {
        0 => (nth(&mut means[..half], half - 1) + above) / 2.0,
        _ => above,
    };
    let beyond = ranks_beyond(logs.len(), error / 2.0);
    // If no arrangement of signs is rare enough, nothing can be excluded.
    let (low, high) = match beyond.checked_sub(1) {
        Some(at) => {
            let from_end = means.len() - 1 - at;
            (nth(&mut means, at), nth(&mut means, from_end))
        }
        None => (f64::NEG_INFINITY, f64::INFINITY),
    };
    Ratio {
        estimate: middle.exp(),
        low: low.exp(),
        high: high.exp(),
    }
}

/// Returns the figure that is at this place of the sorted ones; reorders them.
fn nth(figures: &mut [f64], place: usize) -> f64 {
    *figures.select_nth_unstable_by(place, f64::total_cmp).1
}

/// Returns how many of the lowest sums of ranks of `pairs` fair signs have together a probability of at most `tail`.
fn ranks_beyond(pairs: usize, tail: f64) -> usize {
    let sums = pairs * (pairs + 1) / 2 + 1;
    if pairs > COUNTED_MAX {
        let (count, sums) = (pairs as f64, sums as f64);
        let deviation = (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt();
        let last = (sums - 1.0) / 2.0 + normal_quantile(tail) * deviation;
        return last.floor().max(0.0) as usize;
    }
    // For each sum of the lower half, the share of all arrangements of signs with it; the upper half mirrors it.
    let mut shares = vec![0.0; sums / 2 + 1];
    shares[0] = 1.0;
    for rank in 1..=pairs {
        let largest = (rank * (rank + 1) / 2).min(sums / 2);
        for sum in (rank..=largest).rev() {
            shares[sum] = (shares[sum] + shares[sum - rank]) / 2.0;
        }
        shares[..rank.min(largest + 1)]
            .iter_mut()
            .for_each(|share| *share /= 2.0);
    }
    let mut below = 0.0;
    let fits = |share: &&f64| {
        below += **share;
        below <= tail
    };
    shares.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_ranks_are_counted_as_tables_have_them() {
        // The largest T that is significant on both sides together, from any table of Wilcoxon's test.
        for (pairs, error, table) in [
            (8, 0.01, 0),
            (10, 0.05, 8),
            (12, 0.01, 7),
            (20, 0.01, 37),
            (20, 0.05, 52),
            (25, 0.01, 68),
        ] {
            assert_eq!(
                ranks_beyond(pairs, error / 2.0),
                table + 1,
                "{pairs} {error}"
            );
        }
        assert_eq!(ranks_beyond(7, 0.005), 0, "128 arrangements are too few");
    }

    #[test]
    fn the_normal_distribution_takes_over_where_counting_ends() {
        for error in [0.01, 0.001] {
            let counted = ranks_beyond(COUNTED_MAX, error / 2.0) as f64;
            let next = ranks_beyond(COUNTED_MAX + 1, error / 2.0) as f64;
            let step = next - counted;
            assert!((0.0..100.0).contains(&step), "{counted} {next}");
        }
    }

    #[test]
    fn some_pairs_that_were_hit_do_not_matter() {
        let log = f64::ln(0.9);
        let mut logs: Vec<f64> = (0..30)
            .map(|n| log + f64::from(n % 7 - 3) / 300.0)
            .collect();
        logs[3] = 2.0;
        logs[11] = 1.5;
        logs[20] = -3.0;
        let ratio = ratio(&logs, 0.01);
        assert!((ratio.estimate - 0.9).abs() < 0.01, "{ratio:?}");
        assert!(ratio.low > 0.88 && ratio.high < 0.92, "{ratio:?}");
    }

    #[test]
    fn too_few_pairs_exclude_nothing() {
        let ratio = ratio(&[-0.1; 5], 0.01);
        assert_eq!((ratio.low, ratio.high), (0.0, f64::INFINITY));
        assert!(!ratio.is_shown());
    }
}
