//! The form of a small sorted set: member, score, member, score in one packed sequence, in order.
//! Must not know limits or when a set changes its form.
//!
//! Scores that are integers are stored as such (so -0 becomes 0, as in Redis), others as the
//! shortest text that gives the same number.

use super::{LexRange, ScoreRange};
use crate::number::IntBuf;
use crate::pack::{self, At, Element, Pack};
use crate::packed::PackedRef;
use std::cmp::Ordering;
use std::ops::Range;

/// Pairs of member and score.
#[derive(Clone, Default)]
pub(super) struct Packed {
    pack: Pack,
}

/// Calls `with` with the element that stands for a score.
fn with_score<T>(score: f64, with: impl FnOnce(Element<'_>) -> T) -> T {
    let integer = score as i64;
    if integer as f64 == score && integer.unsigned_abs() < 1 << 62 {
        return with(Element::Int(integer));
    }
    if score.is_infinite() {
        return with(Element::Bytes(if score > 0.0 { b"inf" } else { b"-inf" }));
    }
    with(Element::Bytes(zmij::Buffer::new().format(score).as_bytes()))
}

fn read_score(element: Element<'_>) -> f64 {
    match element {
        Element::Int(score) => score as f64,
        Element::Bytes(text) => fast_float2::parse(text).unwrap_or(0.0),
    }
}

fn compare(element: Element<'_>, member: &[u8]) -> Ordering {
    element.bytes(&mut IntBuf::new()).cmp(member)
}

impl Packed {
    pub(super) fn len(&self) -> usize {
        self.pack.len() / 2
    }

    pub(super) fn pack(&self) -> &Pack {
        &self.pack
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.pack.heap_bytes()
    }

    pub(super) fn of_packed(packed: PackedRef<'_>) -> Packed {
        Packed {
            pack: Pack::of_packed(packed),
        }
    }

    #[inline]
    pub(super) fn load(&mut self, packed: PackedRef<'_>) {
        self.pack.load(packed);
    }

    /// Returns true if the packed sequence may grow by this member.
    pub(super) fn is_safe_to_add(&self, member: &[u8]) -> bool {
        self.pack.is_safe_to_add(member.len())
    }

    /// Returns where a member is, and its score.
    pub(super) fn find(&self, member: &[u8]) -> Option<(At, f64)> {
        let at = self.pack.find(self.pack.begin(), Element::of(member), 1)?;
        let score = self.pack.get(self.pack.next(at)?)?;
        Some((at, read_score(score)))
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        let at = self.place(member, score);
        let at = self.pack.insert(at, Element::of(member));
        let behind = self.pack.next(at).unwrap_or(self.pack.end());
        with_score(score, |element| self.pack.insert(behind, element));
    }

    /// Adds a member with a score that is not before any other.
    pub(super) fn push_back(&mut self, member: &[u8], score: f64) {
        self.pack.push_back(Element::of(member));
        with_score(score, |element| self.pack.push_back(element));
    }

    pub(super) fn remove(&mut self, at: At) {
        self.pack.remove_many(at, 2);
    }

    pub(super) fn remove_range(&mut self, range: Range<usize>) -> usize {
        match self.pack.seek(range.start * 2) {
            Some(at) => self.pack.remove_many(at, range.len() * 2) / 2,
            None => 0,
        }
    }

    /// Returns where the first pair behind this one is, or would be.
    fn place(&self, member: &[u8], score: f64) -> At {
        let is_behind = |(other, other_score): (Element<'_>, f64)| {
            other_score > score
                || (other_score == score && compare(other, member) == Ordering::Greater)
        };
        // Scores often only grow.
        if self
            .iter(0..self.len())
            .next_back()
            .is_none_or(|last| !is_behind(last))
        {
            return self.pack.end();
        }
        let rank = self.iter(0..self.len()).position(is_behind);
        rank.and_then(|rank| self.pack.seek(rank * 2))
            .unwrap_or(self.pack.end())
    }

    /// Returns the rank of a member that is there.
    pub(super) fn rank(&self, at: At) -> usize {
        self.pack.iter_to(at).count() / 2
    }

    pub(super) fn score_range(&self, range: &ScoreRange) -> Range<usize> {
        let (mut start, mut end) = (0, 0);
        for (_, score) in self.iter(0..self.len()) {
            if range.is_above(score) {
                break;
            }
            start += usize::from(range.is_below(score));
            end += 1;
        }
        start..end.max(start)
    }

    /// Returns the first stretch of members in the range, seen from the front or from the back: they differ
    /// where scores do.
    pub(super) fn lex_range(&self, range: &LexRange<'_>, from_back: bool) -> Range<usize> {
        let len = self.len();
        let is_below =
            |(member, _): &(Element<'_>, f64)| range.is_below(member.bytes(&mut IntBuf::new()));
        let is_above =
            |(member, _): &(Element<'_>, f64)| range.is_above(member.bytes(&mut IntBuf::new()));
        let may_be_in = self
            .iter(0..len)
            .next()
            .is_some_and(|first| !is_above(&first))
            && self
                .iter(0..len)
                .next_back()
                .is_some_and(|last| !is_below(&last));
        if !may_be_in {
            return 0..0;
        }
        if from_back {
            let above = self.iter(0..len).rev().take_while(is_above).count();
            let inside = self
                .iter(0..len - above)
                .rev()
                .take_while(|item| !is_below(item));
            let inside = inside.count();
            len - above - inside..len - above
        } else {
            let below = self.iter(0..len).take_while(is_below).count();
            let inside = self
                .iter(below..len)
                .take_while(|item| !is_above(item))
                .count();
            below..below + inside
        }
    }

    pub(super) fn get(&self, rank: usize) -> Option<(Element<'_>, f64)> {
        self.iter(rank..rank + 1).next()
    }

    pub(super) fn iter(&self, range: Range<usize>) -> Iter<'_> {
        let mut pack = self.pack.iter();
        if range.start > 0 {
            pack.nth(range.start * 2 - 1);
        }
        Iter {
            pack,
            behind: self.len().saturating_sub(range.end),
            len: range.len().min(self.len().saturating_sub(range.start)),
        }
    }
}

/// The pairs of a range of ranks, from either end.
#[derive(Clone)]
pub(super) struct Iter<'a> {
    pack: pack::Iter<'a>,
    /// Pairs behind the range that are still to be skipped.
    behind: usize,
    len: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.len = self.len.checked_sub(1)?;
        Some((self.pack.next()?, read_score(self.pack.next()?)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.len = self.len.checked_sub(1)?;
        if self.behind > 0 {
            self.pack.nth_back(self.behind * 2 - 1);
            self.behind = 0;
        }
        let score = read_score(self.pack.next_back()?);
        Some((self.pack.next_back()?, score))
    }
}
