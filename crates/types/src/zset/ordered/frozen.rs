//! Large sorted sets while they are frozen: see `redline_table::frozen`. Must not know what takes the pieces.
//!
//! A set is given out in descending order, so the place up to which that was done is a member and its score: what is
//! before it in the order was not given yet. Members come to that side and leave it by the order alone.

use super::Ordered;
use redline_table::Dict;
use redline_table::frozen::{Copies, FreezeId};

/// Members that a piece has at most, and as many copies.
const ITEMS_PER_PIECE: usize = 16;

/// The state of a frozen set.
pub(in crate::zset) struct Progress {
    left: Left,
    /// Members among those left that the pieces pass over.
    passed_over: Dict<()>,
    copies: Copies,
}

/// The side of the order that was not given yet.
enum Left {
    All,
    /// Everything before this place.
    Before(f64, Box<[u8]>),
    Nothing,
}

impl Left {
    fn has(&self, member: &[u8], score: f64) -> bool {
        match self {
            Left::All => true,
            Left::Before(to, _) if score != *to => score < *to,
            Left::Before(_, to) => member < &**to,
            Left::Nothing => false,
        }
    }
}

impl Progress {
    /// Notes that a member comes to a place.
    #[cold]
    #[inline(never)]
    pub(super) fn note_entering(&mut self, member: &[u8], score: f64) {
        if self.left.has(member, score) {
            self.passed_over.insert(member, ());
        }
    }

    /// Keeps a member and its score before it leaves its place.
    #[cold]
    #[inline(never)]
    pub(super) fn note_leaving(&mut self, member: &[u8], score: f64) {
        if self.left.has(member, score) && self.passed_over.remove(member).is_none() {
            self.copies.push(member, 0, &score.to_ne_bytes());
        }
    }
}

impl Ordered {
    pub(in crate::zset) fn freeze(&mut self, id: FreezeId) {
        self.frozen.freeze(
            id,
            Progress {
                left: Left::All,
                passed_over: Dict::new(),
                copies: Copies::default(),
            },
        );
    }

    pub(in crate::zset) fn freeze_id(&self) -> Option<FreezeId> {
        self.frozen.id()
    }

    pub(in crate::zset) fn thaw(&mut self) {
        self.frozen.take();
    }

    /// Passes on some members as they were; returns true after the last one: the set is not frozen any more.
    pub(in crate::zset) fn give_piece(&mut self, visit: &mut dyn FnMut(&[u8], f64)) -> bool {
        let mut frozen = self.frozen.take();
        let Some(progress) = frozen.get_mut() else {
            return true;
        };
        for _ in 0..ITEMS_PER_PIECE {
            let popped = progress.copies.pop(|member, _, score| {
                let score = score.first_chunk().expect("a score is behind each");
                visit(member, f64::from_ne_bytes(*score));
            });
            if !popped {
                break;
            }
        }
        let end = match &progress.left {
            Left::All => self.len(),
            Left::Before(score, member) => self.rank(member, *score),
            Left::Nothing => 0,
        };
        let start = end.saturating_sub(ITEMS_PER_PIECE);
        let mut last = None;
        for (member, score) in self.iter(start..end).rev() {
            if progress.passed_over.remove(member).is_none() {
                visit(member, score);
            }
            last = Some((member, score));
        }
        progress.left = match last {
            Some((member, score)) if start > 0 => Left::Before(score, member.into()),
            _ => Left::Nothing,
        };
        if matches!(progress.left, Left::Nothing) && progress.copies.is_empty() {
            debug_assert!(progress.passed_over.is_empty(), "all of them were met");
            return true;
        }
        self.frozen = frozen;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{DataType, Limits, Zset, zset::Form};

    type Contents = BTreeMap<Vec<u8>, f64>;

    fn change(set: &mut Zset, model: &mut Contents, rng: &mut fastrand::Rng) {
        let limits = Limits::default();
        let member = rng.u32(..3_000).to_string().into_bytes();
        match rng.u8(..20) {
            0..14 => {
                let score = match rng.u8(..8) {
                    0 => f64::INFINITY,
                    1 => -0.0,
                    2 => f64::from(rng.u32(..3)),
                    _ => rng.f64() * 100.0,
                };
                let added = set.add(&member, score, Default::default(), &limits);
                added.expect("a number");
                // A score that equals the old one changes nothing, nor the sign of a zero.
                if model.get(&member) != Some(&score) {
                    model.insert(member, score);
                }
            }
            14..19 => assert_eq!(set.remove(&member), model.remove(&member)),
            _ => {
                let from = rng.usize(..=set.len());
                let range = from..from + rng.usize(..200);
                for (member, _) in set.range(range.clone()) {
                    model.remove(&member.to_vec());
                }
                set.remove_range(range);
            }
        }
    }

    fn bits(contents: &Contents) -> Vec<(&[u8], u64)> {
        let bits = contents.iter().map(|(m, score)| (&m[..], score.to_bits()));
        bits.collect()
    }

    /// `forgets`: the copies that are kept are lost.
    fn run(seed: u64, forgets: bool) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut set, mut model) = (Zset::new(), Contents::new());
        set.leave_packed().unwrap();
        for round in 0..12 {
            (0..rng.usize(..6_000)).for_each(|_| change(&mut set, &mut model, &mut rng));
            let expected = model.clone();
            let id = FreezeId::new(round + 1).unwrap();
            set.freeze(id);
            assert_eq!((set.freeze_id(), set.clone().freeze_id()), (Some(id), None));
            let pace = [0, 1, 5, 60][rng.usize(..4)];
            let empties = rng.u8(..4) == 0;
            let mut given = Contents::new();
            while !set.give_piece(&mut |member, score| {
                let twice = given.insert(member.to_vec(), score);
                assert!(twice.is_none(), "given twice: {member:?}");
            }) {
                (0..pace).for_each(|_| change(&mut set, &mut model, &mut rng));
                if let Form::Ordered(ordered) = &mut set.form
                    && let Some(progress) = ordered.frozen.get_mut().filter(|_| forgets)
                {
                    progress.copies = Copies::default();
                }
                if empties && rng.u8(..40) == 0 {
                    set.remove_range(0..set.len());
                    model.clear();
                }
            }
            assert!(
                bits(&given) == bits(&expected),
                "seed {seed}, round {round}"
            );
            assert_eq!((set.freeze_id(), set.len()), (None, model.len()));
        }
    }

    #[test]
    fn the_pieces_are_what_was_there_whatever_changes_between_them() {
        (0..8).for_each(|seed| run(seed, false));
    }

    #[test]
    fn a_set_that_keeps_nothing_of_what_leaves_its_place_is_found() {
        let found = std::panic::catch_unwind(|| (0..8).for_each(|seed| run(seed, true)));
        assert!(found.is_err());
    }
}
