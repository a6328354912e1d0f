//! Evaluation of pairs of runs: the ratio of a figure, and whether it is decided.
//!
//! Pure arithmetic: knows no run.

use super::bootstrap::{self, Ratio, normal_quantile};
use super::metric::Metric;
use super::ranks;

/// Fixed, so that the same runs give the same interval.
const SEED: u64 = 1;

/// Returns the ratio B / A of pairs `(a, b)` of a figure, with an interval that misses the truth with at most the probability
/// `error`. `None` for too few pairs, or with a figure that is not positive.
pub fn ratio(metric: Metric, pairs: &[(f64, f64)], error: f64) -> Option<Ratio> {
    let rounded = metric.is_rounded();
    if pairs.len() < ranks::PAIRS_MIN {
        return bootstrap::ratio(pairs, rounded, 1.0 - error, SEED);
    }
    if pairs.iter().any(|&(a, b)| a <= 0.0 || b <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
    let mut ratio = ranks::ratio(&logs, error);
    if rounded {
        let steps = -normal_quantile(error / 2.0) * bootstrap::rounding_error(pairs);
        ratio.low = ratio.low.min(ratio.estimate * (-steps).exp());
        ratio.high = ratio.high.max(ratio.estimate * steps.exp());
    }
    Some(ratio)
}

/// Aim of a comparison for a figure.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// Largest difference in percent that is irrelevant.
    pub resolve_percent: f64,
    /// B fails if it is worse by this many percent.
    pub fail_percent: Option<f64>,
}

impl Aim {
    /// Returns true if more pairs would not change the result.
    pub fn is_reached(&self, metric: Metric, ratio: &Ratio) -> bool {
        let step = 1.0 + self.resolve_percent / 100.0;
        let is_same = ratio.low >= 1.0 / step && ratio.high <= step;
        is_same
            || match self.fail_percent {
                None => ratio.is_shown(),
                // Both ends are on the same side of it.
                Some(percent) => {
                    metric.is_worse(ratio.low, percent) == metric.is_worse(ratio.high, percent)
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bootstrap::normal;
    use super::super::looks::Looks;
    use super::*;

    /// A machine with other load: its free share drifts, and now and then drops for a while.
    struct Machine {
        random: fastrand::Rng,
        drift: f64,
        hit: bool,
    }

    impl Machine {
        /// Returns the current speed of a run, beside other load, as a logarithm.
        fn speed(&mut self) -> f64 {
            self.drift = 0.9 * self.drift + 0.03 * normal(&mut self.random);
            self.hit = self.random.f64() < if self.hit { 0.7 } else { 0.06 };
            let hit = if self.hit { self.random.f64() } else { 0.0 };
            self.drift - hit + 0.06 * normal(&mut self.random)
        }
    }

    /// Returns a comparison of servers whose rates differ by `truth`, on such a machine, until it is decided or
    /// `planned` pairs are done: the number of pairs, and the final ratio.
    fn compared(truth: f64, planned: usize, seed: u64) -> (usize, Ratio) {
        let random = fastrand::Rng::with_seed(seed);
        let mut coin = fastrand::Rng::with_seed(!seed);
        let mut machine = Machine {
            random,
            drift: 0.0,
            hit: false,
        };
        let aim = Aim {
            resolve_percent: 1.0,
            fail_percent: None,
        };
        let (mut pairs, mut looks) = (Vec::new(), Looks::until(planned));
        loop {
            let (first, second) = (machine.speed(), machine.speed());
            let (a, b) = if coin.bool() {
                (first, second)
            } else {
                (second, first)
            };
            pairs.push((a.exp(), truth * b.exp()));
            let is_last = pairs.len() == planned;
            let Some(share) = looks.share(pairs.len(), is_last) else {
                continue;
            };
            let ratio = ratio(Metric::Rps, &pairs, 0.01 * share).unwrap();
            if is_last || aim.is_reached(Metric::Rps, &ratio) {
                return (pairs.len(), ratio);
            }
        }
    }

    #[test]
    fn on_a_noisy_machine_intervals_hold_the_truth_whichever_look_was_the_last() {
        for (truth, planned) in [(1.0, 60), (1.0, 240), (0.9, 240)] {
            let held = (0..1000).filter(|&seed| {
                let (_, ratio) = compared(truth, planned, seed);
                ratio.low <= truth && truth <= ratio.high
            });
            let held = held.count();
            // 99 % of a thousand, and three standard errors of that number of trials.
            assert!(held >= 981, "{truth}, {planned} pairs: {held} of 1000");
        }
    }

    #[test]
    fn on_a_noisy_machine_a_difference_of_a_tenth_is_found_and_mostly_soon() {
        let all: Vec<(usize, Ratio)> = (0..200).map(|seed| compared(0.9, 400, seed)).collect();
        let found = all.iter().filter(|(_, ratio)| ratio.high < 1.0).count();
        assert!(found >= 196, "{found} of 200");
        let early = all.iter().filter(|(pairs, _)| *pairs <= 200).count();
        assert!(early >= 100, "{early} of 200");
    }

    #[test]
    fn what_is_small_enough_or_clear_of_the_limit_is_decided() {
        let ratio = |low, high| Ratio {
            estimate: f64::sqrt(low * high),
            low,
            high,
        };
        let aim = |fail_percent| Aim {
            resolve_percent: 2.0,
            fail_percent,
        };
        let rps = |aim: Aim, ratio| aim.is_reached(Metric::Rps, &ratio);
        assert!(rps(aim(None), ratio(0.985, 1.015)) && rps(aim(None), ratio(0.9, 0.99)));
        assert!(!rps(aim(None), ratio(0.97, 1.015)));
        // Shown to be slower, and not yet by how much.
        assert!(!rps(aim(Some(5.0)), ratio(0.9, 0.99)) && rps(aim(Some(5.0)), ratio(0.9, 0.94)));
        // No difference shown, and none that would count.
        assert!(rps(aim(Some(5.0)), ratio(0.96, 1.1)));
        assert!(aim(Some(5.0)).is_reached(Metric::P99, &ratio(0.9, 1.04)));
        assert!(!aim(Some(5.0)).is_reached(Metric::P99, &ratio(0.9, 1.06)));
    }

    #[test]
    fn a_step_of_rounding_is_no_difference_of_many_runs_either() {
        let shown = |a: f64, b: f64| ratio(Metric::P50, &[(a, b); 30], 0.01).unwrap().is_shown();
        assert!(!shown(40.0, 41.0) && !shown(1.0, 2.0) && shown(40.0, 60.0));
        assert_eq!(ratio(Metric::Rps, &[(0.0, 1.0); 30], 0.01), None);
    }
}
