//! When a comparison that goes on until it is decided is looked at, and how much of its error each look may use.
//!
//! Pure arithmetic: knows no run.
//!
//! Who looks after each pair, and stops at the first difference that seems to be shown, finds one between anything and
//! itself. So there are few looks, planned by numbers of pairs that do not depend on what is measured, and each has a
//! share of the error that the whole may have: as large a share as the part of the plan that was done since the look
//! before. The shares add up to one, so whichever look ends the comparison, its interval misses the truth no more often
//! than was asked for. The last look keeps half of the error: to look before costs about a tenth more pairs where
//! the whole plan is needed, and saves up to seven eighths where it is not.

use super::ranks;

/// The parts of a plan after which it is looked at, before its end.
const PARTS: [f64; 3] = [0.125, 0.25, 0.5];

/// The looks that are left.
#[derive(Clone, Debug)]
pub struct Looks {
    planned: usize,
    /// Numbers of pairs, in their order.
    at: Vec<usize>,
    /// The share of the error that earlier looks had.
    spent: f64,
}

impl Looks {
    /// One, in the end.
    pub fn once() -> Looks {
        Looks {
            planned: 0,
            at: Vec::new(),
            spent: 0.0,
        }
    }

    /// Those of a plan of so many pairs.
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

    /// The share of the error of a look after so many pairs, if it is time for one. The last may have what is left.
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
