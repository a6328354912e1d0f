//! Distributions of keys' numbers.
//!
//! Knows no bytes and no clock. Each load thread has its own generators; counts that threads share are atomic numbers.
//!
//! # Zipf
//!
//! Ranks are drawn by rejection from an integral of the density ("rejection-inversion", Hörmann and Derflinger 1996),
//! which needs neither tables nor a sum over all keys, works for every exponent above zero, and rejects less than one
//! draw in four. Rank 1, the most frequent, is the first number of the range.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A distribution of numbers in a range.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Each number with the same probability.
    Uniform,
    /// Ascending, from the start again at the end; threads divide the numbers among themselves.
    Sequential,
    /// By rank, with this exponent.
    Zipf(f64),
    /// Normally distributed, with this mean and standard deviation, both as numbers of the range.
    Gauss {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
    /// The first `share_of_keys` of the range gets `share_of_draws`; uniform in both parts.
    Hotspot {
        /// 0 to 1.
        share_of_keys: f64,
        /// 0 to 1.
        share_of_draws: f64,
    },
    /// By rank from the newest number of [`Shape::Insert`] backwards, with this exponent.
    Latest(f64),
    /// A new number: the one after the newest.
    Insert,
}

/// A range of numbers, and their distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// The smallest.
    pub first: u64,
    /// Number of numbers, at least 1.
    pub count: u64,
    /// The distribution.
    pub shape: Shape,
}

impl Distribution {
    /// Returns the largest number, except for [`Shape::Insert`] and [`Shape::Latest`], which grow beyond it.
    pub fn last(&self) -> u64 {
        self.first + (self.count - 1)
    }

    /// Returns the source that draws numbers on thread `thread` of `threads`. `inserted` counts the numbers of
    /// [`Shape::Insert`] on all.
    pub fn source(&self, thread: usize, threads: usize, inserted: &Arc<AtomicU64>) -> Source {
        let draw = match &self.shape {
            Shape::Uniform => Draw::Uniform,
            Shape::Sequential => Draw::Sequential {
                next: thread as u64,
                step: threads as u64,
            },
            Shape::Zipf(exponent) => Draw::Zipf(Zipf::new(self.count, *exponent)),
            Shape::Gauss { mean, deviation } => Draw::Gauss {
                mean: *mean,
                deviation: *deviation,
            },
            Shape::Hotspot {
                share_of_keys,
                share_of_draws,
            } => Draw::Hotspot {
                hot: ((self.count as f64 * share_of_keys) as u64).clamp(1, self.count),
                share_of_draws: *share_of_draws,
            },
            Shape::Latest(exponent) => Draw::Latest {
                zipf: Zipf::new(self.count, *exponent),
                inserted: Arc::clone(inserted),
            },
            Shape::Insert => Draw::Insert(Arc::clone(inserted)),
        };
        Source {
            first: self.first,
            count: self.count,
            draw,
        }
    }
}

/// Draws numbers of one distribution, on one thread.
#[derive(Clone, Debug)]
pub struct Source {
    first: u64,
    count: u64,
    draw: Draw,
}

#[derive(Clone, Debug)]
enum Draw {
    Uniform,
    Sequential {
        next: u64,
        step: u64,
    },
    Zipf(Zipf),
    Gauss {
        mean: f64,
        deviation: f64,
    },
    Hotspot {
        hot: u64,
        share_of_draws: f64,
    },
    Latest {
        zipf: Zipf,
        inserted: Arc<AtomicU64>,
    },
    Insert(Arc<AtomicU64>),
}

impl Source {
    /// Returns the next number.
    #[inline]
    pub fn next(&mut self, random: &mut fastrand::Rng) -> u64 {
        let (first, count) = (self.first, self.count);
        let offset = match &mut self.draw {
            Draw::Uniform => random.u64(..count),
            Draw::Sequential { next, step } => {
                let offset = *next % count;
                *next = next.wrapping_add(*step);
                offset
            }
            Draw::Zipf(zipf) => zipf.rank(random) - 1,
            Draw::Gauss { mean, deviation } => {
                return gauss(first, count, *mean, *deviation, random);
            }
            Draw::Hotspot {
                hot,
                share_of_draws,
            } => {
                if *hot == count || random.f64() < *share_of_draws {
                    random.u64(..*hot)
                } else {
                    random.u64(*hot..count)
                }
            }
            // Relaxed: only the count is shared.
            Draw::Latest { zipf, inserted } => {
                let newest = count - 1 + inserted.load(Ordering::Relaxed);
                newest - (zipf.rank(random) - 1)
            }
            Draw::Insert(inserted) => count + inserted.fetch_add(1, Ordering::Relaxed),
        };
        first + offset
    }
}

/// Largest number of draws until one is in the range: a mean far outside would never be.
const GAUSS_DRAWS_MAX: usize = 64;

fn gauss(first: u64, count: u64, mean: f64, deviation: f64, random: &mut fastrand::Rng) -> u64 {
    let last = first + (count - 1);
    let mut number = mean;
    for _ in 0..GAUSS_DRAWS_MAX {
        // Box and Muller; 1 - x, since 0 has no logarithm.
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
        number = (mean + deviation * normal).round();
        if number >= first as f64 && number <= last as f64 {
            break;
        }
    }
    // A float beyond the range of u64 becomes its nearest bound.
    (number as u64).clamp(first, last)
}

/// Ranks from 1 to a count, each with a probability proportional to its power of minus the exponent.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    integral_of_first: f64,
    integral_of_last: f64,
    /// Draws this near to their rank are accepted without a further test.
    near: f64,
}

impl Zipf {
    /// Returns the distribution for `count` ranks, at least 1, and an exponent above 0.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        let count = count as f64;
        Zipf {
            count,
            exponent,
            integral_of_first: integral(1.5, exponent) - 1.0,
            integral_of_last: integral(count + 0.5, exponent),
            near: 2.0
                - inverse_integral(integral(2.5, exponent) - density(2.0, exponent), exponent),
        }
    }

    /// Returns a rank.
    #[inline]
    pub fn rank(&self, random: &mut fastrand::Rng) -> u64 {
        loop {
            let u = self.integral_of_last
                + random.f64() * (self.integral_of_first - self.integral_of_last);
            let x = inverse_integral(u, self.exponent);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.near
                || u >= integral(rank + 0.5, self.exponent) - density(rank, self.exponent)
            {
                return rank as u64;
            }
        }
    }
}

/// Returns the probability of the rank `x`, not normalised.
fn density(x: f64, exponent: f64) -> f64 {
    (-exponent * x.ln()).exp()
}

/// Returns an antiderivative of [`density`], continuous in the exponent at 1, where it is the logarithm.
fn integral(x: f64, exponent: f64) -> f64 {
    let ln = x.ln();
    let t = (1.0 - exponent) * ln;
    // (e^t - 1) / t * ln x
    if t.abs() < 1e-8 {
        ln * (1.0 + t / 2.0)
    } else {
        ln * t.exp_m1() / t
    }
}

fn inverse_integral(y: f64, exponent: f64) -> f64 {
    let t = (y * (1.0 - exponent)).max(-1.0);
    // ln(1 + t) / t * y
    let ln = if t.abs() < 1e-8 {
        y * (1.0 - t / 2.0)
    } else {
        y * t.ln_1p() / t
    };
    ln.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shape: Shape, first: u64, count: u64, draws: usize) -> Vec<u64> {
        let distribution = Distribution {
            first,
            count,
            shape,
        };
        let mut source = distribution.source(0, 1, &Arc::default());
        let mut random = fastrand::Rng::with_seed(11);
        (0..draws).map(|_| source.next(&mut random)).collect()
    }

    #[test]
    fn zipf_has_the_frequencies_of_its_formula() {
        const DRAWS: usize = 200_000;
        for exponent in [0.2, 0.99, 1.0, 1.1, 2.5, 5.0] {
            let numbers = drawn(Shape::Zipf(exponent), 0, 1000, DRAWS);
            let total: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1u64, 2, 3, 10, 100, 1000] {
                let share = (rank as f64).powf(-exponent) / total;
                let seen = numbers.iter().filter(|&&number| number == rank - 1).count() as f64;
                let expected = share * DRAWS as f64;
                // Five standard deviations of a count.
                assert!(
                    (seen - expected).abs() <= 5.0 * expected.sqrt() + 1.0,
                    "exponent {exponent}, rank {rank}: {seen} of {expected}"
                );
            }
        }
    }

    #[test]
    fn every_shape_stays_in_its_range_and_reaches_its_ends() {
        let gauss = Shape::Gauss {
            mean: 150.0,
            deviation: 60.0,
        };
        let hotspot = Shape::Hotspot {
            share_of_keys: 0.2,
            share_of_draws: 0.8,
        };
        for shape in [
            Shape::Uniform,
            Shape::Sequential,
            Shape::Zipf(0.3),
            gauss,
            hotspot,
        ] {
            let numbers = drawn(shape.clone(), 100, 100, 20_000);
            assert_eq!(numbers.iter().min(), Some(&100), "{shape:?}");
            assert_eq!(numbers.iter().max(), Some(&199), "{shape:?}");
            assert_eq!(drawn(shape, 5, 1, 3), [5, 5, 5]);
        }
    }

    #[test]
    fn a_gauss_far_outside_its_range_gives_the_nearest_end() {
        let shape = Shape::Gauss {
            mean: 1e300,
            deviation: 1.0,
        };
        assert_eq!(drawn(shape, 10, 5, 2), [14, 14]);
    }

    #[test]
    fn the_hot_keys_get_their_share() {
        let shape = Shape::Hotspot {
            share_of_keys: 0.1,
            share_of_draws: 0.9,
        };
        let numbers = drawn(shape, 0, 1000, 100_000);
        let hot = numbers.iter().filter(|&&number| number < 100).count();
        assert!((89_000..91_000).contains(&hot), "{hot}");
    }

    #[test]
    fn threads_cover_a_sequence_together() {
        let distribution = Distribution {
            first: 1,
            count: 10,
            shape: Shape::Sequential,
        };
        let mut random = fastrand::Rng::with_seed(1);
        let mut all: Vec<u64> = (0..3)
            .flat_map(|thread| {
                let mut source = distribution.source(thread, 3, &Arc::default());
                let share = (10 - thread).div_ceil(3);
                (0..share)
                    .map(|_| source.next(&mut random))
                    .collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn latest_follows_what_is_inserted() {
        let inserted = Arc::default();
        let mut random = fastrand::Rng::with_seed(3);
        let of = |shape| Distribution {
            first: 0,
            count: 100,
            shape,
        };
        let mut insert = of(Shape::Insert).source(0, 1, &inserted);
        let mut latest = of(Shape::Latest(3.0)).source(0, 1, &inserted);
        for round in 0..1000 {
            assert_eq!(insert.next(&mut random), 100 + round);
            let number = latest.next(&mut random);
            assert!(number <= 100 + round && number > round, "{number}");
        }
        let newest = (0..1000).filter(|_| latest.next(&mut random) == 1099);
        assert!(newest.count() > 700, "the newest is the most frequent");
    }
}
