//! The times at which a comparison without a fixed length is evaluated, and the share of its error for each look.
//!
//! Pure arithmetic: knows no run.
//!
//! Evaluating after each pair, and stopping at the first apparent difference, would find one between anything and
//! itself. So there are few looks, planned by numbers of pairs that do not depend on the measurements, and each has a
//! share of the whole's error: as large as the part of the plan that was done since the look before. The shares add up
//! to one, so whichever look ends the comparison, its interval misses the truth no more often than allowed. The last
//! look keeps half of the error: earlier looks cost about a tenth more pairs if the whole plan is needed, and save up to
//! seven eighths if it is not.

use super::ranks;

/// The parts of a plan after which there is a look, before its end.
const PARTS: [f64; 3] = [0.125, 0.25, 0.5];

/// The remaining looks.
#[derive(Clone, Debug)]
pub struct Looks {
    planned: usize,
    /// Numbers of pairs, ascending.
    at: Vec<usize>,
    /// The share of the error of earlier looks.
    spent: f64,
}

impl Looks {
    /// Returns one look, at the end.
    pub fn once() -> Looks {
        Looks {
            planned: 0,
            at: Vec::new(),
            spent: 0.0,
        }
    }

    /// Returns the looks of a plan of this many pairs.
    pub fn until(planned: usize) -> Looks {
        let at = PARTS.map(|part| (planned as f64 * part).round() as usize);
        Looks {
            planned,
            at: at
                .into_iter()
                .filter(|&pairs| pairs >= ranks::PAIRS_MIN)
                .collect(),
            spent: 0.0,
        }
    }

    /// Returns the share of the error of a look after this many pairs, if one is planned. The last gets the rest.
    pub fn share(&mut self, pairs: usize, is_last: bool) -> Option<f64> {
        if is_last {
            let left = 1.0 - self.spent;
            self.spent = 1.0;
            return Some(left);
        }
        if self.at.first() != Some(&pairs) {
            return None;
        }
        self.at.remove(0);
        let share = pairs as f64 / self.planned as f64 - self.spent;
        self.spent += share;
        Some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_looks_are_the_whole() {
        let mut looks = Looks::until(240);
        let mut shares = Vec::new();
        for pairs in 1..=240 {
            shares.extend(looks.share(pairs, pairs == 240).map(|share| (pairs, share)));
        }
        assert_eq!(shares, [(30, 0.125), (60, 0.125), (120, 0.25), (240, 0.5)]);
        assert_eq!(Looks::once().share(3, true), Some(1.0));
    }

    #[test]
    fn what_ends_before_its_plan_has_all_that_is_left() {
        let mut looks = Looks::until(240);
        assert_eq!(looks.share(29, false), None);
        assert_eq!(looks.share(30, false), Some(0.125));
        assert_eq!(looks.share(31, true), Some(0.875));
    }

    #[test]
    fn too_few_pairs_are_not_looked_at_before_the_end() {
        let mut looks = Looks::until(60);
        let seen: Vec<usize> = (1..60)
            .filter(|&n| looks.share(n, false).is_some())
            .collect();
        assert_eq!(seen, [30]);
        let mut looks = Looks::until(12);
        assert!((1..12).all(|pairs| looks.share(pairs, false).is_none()));
        assert_eq!(looks.share(12, true), Some(1.0));
    }
}
