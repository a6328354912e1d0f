//! A sorted set with scores of several parts: Tair's exZset. Must not know the command, nor the form of the replies.
//!
//! Scores are compared part by part, then the members' bytes. All scores of a set have as many parts. It has the parts of a
//! large sorted set: the order knows the first part of a score, and of equal ones asks for the rest, which stands behind
//! the member in its record.

use std::{cmp::Ordering, ops::Range};

use super::{
    LexRange,
    members::{self, Full, Handle, Members},
    order::{ByHandle, ByScore, Order},
};
use crate::{DataType, Digest};

/// Parts that a score has at most.
pub const PARTS_MAX: usize = 256;

const PART_BYTES: usize = size_of::<f64>();
/// Members that are moved after each removal while the arena is too large.
const MOVES_PER_REMOVAL: usize = 4;

/// Members ordered by scores of several parts, then by bytes.
#[derive(Clone, Default)]
pub struct ExZset {
    members: Members,
    order: Order,
    /// Parts of each score; 0 in an empty set.
    parts: usize,
}

/// Result of [`ExZset::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The member is new.
    New,
    /// The member has another score now.
    Changed,
    /// The member had this score already.
    Same,
}

/// One end of a range of scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The score.
    pub score: Vec<f64>,
    /// True if the score itself is left out.
    pub exclusive: bool,
}

/// Compares scores part by part; of equal ones the one with fewer parts is less.
pub fn compare(a: &[f64], b: &[f64]) -> Ordering {
    // Not a total order of floats: -0 and 0 are one, and no part is NaN.
    let parts = a.iter().zip(b).map(|(a, b)| a.partial_cmp(b));
    let mut orders = parts.map(|order| order.unwrap_or(Ordering::Equal));
    let differs = orders.find(|order| order.is_ne());
    differs.unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn parts_of(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    let parts = bytes.as_chunks::<PART_BYTES>().0;
    parts.iter().map(|part| f64::from_le_bytes(*part))
}

/// Compares the parts that are stored with others.
fn compare_stored(stored: &[u8], others: &[f64]) -> Ordering {
    let parts = parts_of(stored).zip(others);
    let mut orders = parts.map(|(a, b)| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    let differs = orders.find(|order| order.is_ne());
    differs.unwrap_or(Ordering::Equal)
}

/// Returns the stored member of a handle, and behind it the parts of its score but the first, of `tail` bytes.
fn split(members: &Members, tail: usize, handle: Handle) -> (&[u8], &[u8]) {
    let stored = members.member(handle);
    stored.split_at(stored.len() - tail)
}

impl ExZset {
    /// Returns the number of parts of each score; 0 if there is no member.
    pub fn parts(&self) -> usize {
        self.parts
    }

    fn tail(&self) -> usize {
        self.parts.saturating_sub(1) * PART_BYTES
    }

    fn member_of(&self, handle: Handle) -> &[u8] {
        split(&self.members, self.tail(), handle).0
    }

    fn score_of(&self, handle: Handle) -> Vec<f64> {
        let mut score = Vec::with_capacity(self.parts);
        score.push(self.members.score(handle));
        score.extend(parts_of(split(&self.members, self.tail(), handle).1));
        score
    }

    fn find(&self, member: &[u8]) -> Option<Handle> {
        self.members
            .find_tailed(members::hash(member), member, self.tail())
    }

    /// Returns the score of a member.
    pub fn score(&self, member: &[u8]) -> Option<Vec<f64>> {
        self.find(member).map(|handle| self.score_of(handle))
    }

    /// Adds a member, or changes its score. No part is NaN, and there is one at least.
    ///
    /// # Errors
    ///
    /// If there is no room for one more member. A member that was there is gone then.
    ///
    /// # Panics
    ///
    /// If the set has members, and their scores have another number of parts.
    pub fn add(&mut self, member: &[u8], score: &[f64]) -> Result<Added, Full> {
        assert!(
            self.parts == 0 || self.parts == score.len(),
            "scores of one set have as many parts"
        );
        let mut result = Added::New;
        if let Some(handle) = self.find(member) {
            if compare(&self.score_of(handle), score).is_eq() {
                return Ok(Added::Same);
            }
            self.take_out(handle);
            result = Added::Changed;
        }
        let (first, rest) = (score[0], &score[1..]);
        let mut record = Vec::with_capacity(member.len() + rest.len() * PART_BYTES);
        record.extend_from_slice(member);
        record.extend(rest.iter().flat_map(|part| part.to_le_bytes()));
        let handle = self.members.insert(members::hash(member), &record, first)?;
        self.parts = score.len();
        let (members, tail) = (&self.members, self.tail());
        let is_before = |other| {
            let (name, stored) = split(members, tail, other);
            let order = compare_stored(stored, rest).then_with(|| name.cmp(member));
            order.is_lt()
        };
        let place = ByScore(first, is_before);
        self.order.insert(first, handle, &place);
        Ok(result)
    }

    /// Returns the rank of a member that is there.
    fn rank_of(&self, handle: Handle) -> usize {
        let (members, tail) = (&self.members, self.tail());
        let (member, rest) = split(members, tail, handle);
        let is_before = |other| {
            let (name, stored) = split(members, tail, other);
            let parts = parts_of(stored).zip(parts_of(rest));
            let mut orders = parts.map(|(a, b)| a.partial_cmp(&b).unwrap_or(Ordering::Equal));
            let order = orders.find(|order| order.is_ne());
            order.unwrap_or_else(|| name.cmp(member)).is_lt()
        };
        let place = ByScore(members.score(handle), is_before);
        self.order.rank(&place)
    }

    fn take_out(&mut self, handle: Handle) {
        let (rank, tail) = (self.rank_of(handle), self.tail());
        self.order.remove_run(rank, 1, |_| {});
        self.members.remove_tailed(handle, tail);
    }

    /// Removes a member; returns true if it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some(handle) = self.find(member) else {
            return false;
        };
        self.take_out(handle);
        self.settle(1);
        true
    }

    /// Ends a removal of this number of members.
    fn settle(&mut self, removed: usize) {
        if self.order.len() == 0 {
            *self = ExZset::default();
            return;
        }
        for _ in 0..removed * MOVES_PER_REMOVAL {
            let Some(old) = self.members.misplaced() else {
                return;
            };
            let (rank, tail) = (self.rank_of(old), self.tail());
            match self.members.relocate_tailed(old, tail) {
                Ok(new) => self.order.replace_handle(rank, new),
                Err(Full) => return,
            }
        }
    }

    /// Removes the members of a range of ranks; returns how many there were.
    pub fn remove_range(&mut self, ranks: Range<usize>) -> usize {
        let (mut left, tail) = (ranks.len(), self.tail());
        while left > 0 {
            let members = &mut self.members;
            let gone = |handle| members.remove_tailed(handle, tail);
            match self.order.remove_run(ranks.start, left, gone) {
                0 => break,
                removed => left -= removed,
            }
        }
        let removed = ranks.len() - left;
        self.settle(removed);
        removed
    }

    /// Returns the rank of a member, from the lowest score.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        self.find(member).map(|handle| self.rank_of(handle))
    }

    /// Returns the number of members before a bound: with lower scores, and if `takes_equal` with that very score.
    fn before(&self, score: &[f64], takes_equal: bool) -> usize {
        let Some((first, rest)) = score.split_first() else {
            return 0;
        };
        let (members, tail) = (&self.members, self.tail());
        let is_before = |other| match compare_stored(split(members, tail, other).1, rest) {
            Ordering::Less => true,
            Ordering::Equal => takes_equal,
            Ordering::Greater => false,
        };
        let place = ByScore(*first, is_before);
        self.order.rank(&place)
    }

    /// Returns the ranks of the members whose scores are between two bounds, which have as many parts as they.
    pub fn score_range(&self, min: &Bound, max: &Bound) -> Range<usize> {
        let start = self.before(&min.score, min.exclusive);
        let end = self.before(&max.score, !max.exclusive);
        start..end.max(start)
    }

    /// Returns the ranks of the members between two others, where all scores are equal.
    pub fn lex_range(&self, range: &LexRange<'_>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let member = |handle| self.member_of(handle);
        let start = self.order.rank(&ByHandle(|h| range.is_below(member(h))));
        let end = self.order.rank(&ByHandle(|h| !range.is_above(member(h))));
        start..end.max(start)
    }

    /// Returns the member of a rank, and its score.
    pub fn get(&self, rank: usize) -> Option<(&[u8], Vec<f64>)> {
        let (_, handle) = self.order.get(rank)?;
        Some((self.member_of(handle), self.score_of(handle)))
    }

    /// Returns the members of a range of ranks with their scores, from the lowest on.
    pub fn range(
        &self,
        ranks: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], Vec<f64>)> + ExactSizeIterator {
        let end = ranks.end.min(self.len());
        let items = (ranks.start.min(end)..end).map(|rank| self.get(rank));
        items.map(|item| item.expect("the rank is below the length"))
    }

    /// Visits members from a cursor on, about `count`; returns the next cursor, 0 at the end.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], &[f64])) -> u64 {
        self.members.scan(cursor, count, |handle| {
            visit(self.member_of(handle), &self.score_of(handle));
        })
    }
}

impl DataType for ExZset {
    const NAME: &'static str = "tairzset_";

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.members.heap_bytes() + self.order.heap_bytes()
    }

    fn free_effort(&self) -> usize {
        self.members.allocation_count() + self.order.node_count()
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        for (member, score) in self.range(0..self.len()) {
            let mut part = D::default();
            part.mix(member);
            score.iter().for_each(|number| part.mix_f64(*number));
            digest.combine_part(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zset::LexBound;

    fn order(a: &(Vec<u8>, Vec<f64>), b: &(Vec<u8>, Vec<f64>)) -> Ordering {
        compare(&a.1, &b.1).then_with(|| a.0.cmp(&b.0))
    }

    /// The oracle is a vector that is kept sorted.
    fn does_what_a_sorted_vector_does(parts: usize, members: u32, rounds: usize, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut zset, mut model) = (ExZset::default(), Vec::<(Vec<u8>, Vec<f64>)>::new());
        for round in 0..rounds {
            let member = format!("member{}", random.u32(..members)).into_bytes();
            let member = match random.u8(..20) {
                0 => member.repeat(30),
                _ => member,
            };
            let score: Vec<f64> = (0..parts)
                .map(|_| f64::from(random.i32(-2..3)) * 0.5)
                .collect();
            let old = model.iter().position(|(name, _)| *name == member);
            match random.u8(..10) {
                0..7 => {
                    let added = zset.add(&member, &score).expect("there is room");
                    let expected = match old.map(|at| model.remove(at).1) {
                        None => Added::New,
                        Some(old) if compare(&old, &score).is_eq() => Added::Same,
                        Some(_) => Added::Changed,
                    };
                    assert_eq!(added, expected);
                    let item = (member.clone(), score.clone());
                    let at = model.partition_point(|other| order(other, &item).is_lt());
                    model.insert(at, item);
                }
                7..9 => {
                    assert_eq!(zset.remove(&member), old.is_some());
                    old.map(|at| model.remove(at));
                }
                _ => {
                    let from = random.usize(..=model.len());
                    let to = (from + random.usize(..3)).min(model.len());
                    assert_eq!(zset.remove_range(from..to), to - from);
                    model.drain(from..to);
                }
            }
            assert_eq!(zset.len(), model.len());
            let at = model.iter().position(|(name, _)| *name == member);
            assert_eq!(zset.rank(&member), at, "round {round}");
            assert_eq!(zset.score(&member), at.map(|at| model[at].1.clone()));
            if !model.is_empty() {
                assert_eq!(zset.parts(), parts);
                let exclusive = random.bool();
                let min = Bound {
                    score: score.clone(),
                    exclusive,
                };
                let max = Bound {
                    score: vec![f64::INFINITY; parts],
                    exclusive: false,
                };
                let start = model.partition_point(|(_, other)| {
                    let order = compare(other, &score);
                    order.is_lt() || exclusive && order.is_eq()
                });
                assert_eq!(zset.score_range(&min, &max), start..model.len());
                let end = model.partition_point(|(_, other)| {
                    let order = compare(other, &score);
                    order.is_lt() || !exclusive && order.is_eq()
                });
                let low = Bound {
                    score: vec![f64::NEG_INFINITY; parts],
                    exclusive: false,
                };
                assert_eq!(zset.score_range(&low, &min), 0..end);
            }
        }
        let all: Vec<_> = zset.range(0..zset.len()).collect();
        let expected: Vec<_> = model.iter().map(|(m, s)| (&m[..], s.clone())).collect();
        assert_eq!(all, expected);
        let mut scanned = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = zset.scan(cursor, 7, |m, s| scanned.push((m.to_vec(), s.to_vec())));
            if cursor == 0 {
                break;
            }
        }
        scanned.sort_by(order);
        assert_eq!(scanned, model);
    }

    #[test]
    fn it_does_what_a_sorted_vector_does_with_scores_of_any_number_of_parts() {
        for (parts, seed) in [(1, 1), (2, 2), (3, 3), (40, 4), (PARTS_MAX, 5)] {
            does_what_a_sorted_vector_does(parts, 400, 2_000, seed);
            does_what_a_sorted_vector_does(parts, 6, 500, seed);
        }
    }

    #[test]
    fn an_empty_set_takes_another_number_of_parts() {
        let mut zset = ExZset::default();
        zset.add(b"a", &[1.0, 2.0]).expect("there is room");
        assert!(zset.remove(b"a"));
        assert_eq!(zset.parts(), 0);
        zset.add(b"a", &[1.0]).expect("there is room");
        assert_eq!(zset.score(b"a"), Some(vec![1.0]));
        assert_eq!(zset.score(b"b"), None);
    }

    #[test]
    fn members_are_found_between_others() {
        let mut zset = ExZset::default();
        for member in ["a", "b", "c", "d"] {
            zset.add(member.as_bytes(), &[0.0, 0.0])
                .expect("there is room");
        }
        let range = LexRange {
            min: LexBound::Inclusive(b"b"),
            max: LexBound::Exclusive(b"d"),
        };
        assert_eq!(zset.lex_range(&range), 1..3);
    }
}
