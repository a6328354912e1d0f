//! The form of a large sorted set: members found by hash, and their order in a counted tree. Must
//! not know limits or when a set changes its form.

mod frozen;

use super::members::{self, Full, Handle, Members};
use super::order::{ByHandle, ByScore, Items, Order, Place};
use super::{LexRange, ScoreRange};
use redline_table::frozen::Frozen;
use std::cmp::Ordering;
use std::ops::Range;

/// Members that are moved after each removal while the arena is too large.
const MOVES_PER_REMOVAL: usize = 4;

/// Members ordered by score, then by bytes.
#[derive(Clone, Default)]
pub(super) struct Ordered {
    members: Members,
    order: Order,
    frozen: Frozen<frozen::Progress>,
}

impl Ordered {
    /// Builds the order of members that are there already.
    pub(super) fn from_members(members: Members) -> Ordered {
        let mut items: Vec<(f64, Handle)> = members
            .handles()
            .map(|handle| (members.score(handle), handle))
            .collect();
        items.sort_unstable_by(|(a, x), (b, y)| {
            // Not a total order of floats: -0 and 0 are one score, and no score is NaN.
            let by_score = a.partial_cmp(b).unwrap_or(Ordering::Equal);
            by_score.then_with(|| members.member(*x).cmp(members.member(*y)))
        });
        let order = Order::from_sorted(items.into_iter());
        Ordered {
            members,
            order,
            frozen: Frozen::none(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.members.heap_bytes() + self.order.heap_bytes()
    }

    pub(super) fn allocation_count(&self) -> usize {
        self.members.allocation_count() + self.order.node_count()
    }

    /// Returns the member if it is there, and its hash.
    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> (u32, Option<Handle>) {
        let hash = members::hash(member);
        (hash, self.members.find(hash, member))
    }

    #[inline]
    pub(super) fn score(&self, handle: Handle) -> f64 {
        self.members.score(handle)
    }

    /// Adds a member that is not there.
    pub(super) fn insert_new(&mut self, member: &[u8], score: f64) -> Result<(), Full> {
        self.insert(members::hash(member), member, score)
    }

    /// Adds a member that is not there, whose hash [`Ordered::find`] has returned.
    pub(super) fn insert(&mut self, hash: u32, member: &[u8], score: f64) -> Result<(), Full> {
        let handle = self.members.insert(hash, member, score)?;
        self.put_in_order(member, score, handle);
        Ok(())
    }

    /// Moves a member to the place of another score.
    pub(super) fn change_score(&mut self, member: &[u8], handle: Handle, score: f64) {
        self.take_from_order(member, handle);
        self.members.set_score(handle, score);
        self.put_in_order(member, score, handle);
    }

    fn put_in_order(&mut self, member: &[u8], score: f64, handle: Handle) {
        if let Some(progress) = self.frozen.get_mut() {
            progress.note_entering(member, score);
        }
        let place = before(&self.members, member, score);
        self.order.insert(score, handle, &place);
    }

    fn take_from_order(&mut self, member: &[u8], handle: Handle) {
        if let Some(progress) = self.frozen.get_mut() {
            progress.note_leaving(member, self.members.score(handle));
        }
        let members = &self.members;
        let is_up_to = |other| other == handle || members.member(other) < member;
        let behind = ByScore(members.score(handle), is_up_to);
        self.order.remove_before(&behind);
    }

    pub(super) fn remove(&mut self, member: &[u8], handle: Handle) {
        self.take_from_order(member, handle);
        self.members.remove(handle);
        self.compact();
    }

    pub(super) fn remove_range(&mut self, range: Range<usize>) -> usize {
        let mut left = range.len();
        while left > 0 {
            let (members, frozen) = (&mut self.members, &mut self.frozen);
            let removed = self.order.remove_run(range.start, left, |handle| {
                if let Some(progress) = frozen.get_mut() {
                    progress.note_leaving(members.member(handle), members.score(handle));
                }
                members.remove(handle);
            });
            if removed == 0 {
                break;
            }
            left -= removed;
            for _ in 0..removed {
                self.compact();
            }
        }
        range.len() - left
    }

    /// Returns the rank of a member with its score.
    pub(super) fn rank(&self, member: &[u8], score: f64) -> usize {
        self.order.rank(&before(&self.members, member, score))
    }

    pub(super) fn score_range(&self, range: &ScoreRange) -> Range<usize> {
        let (min, max) = (range.min, range.max);
        let start = self.order.rank(&ByScore(min.score, |_| min.exclusive));
        let end = self.order.rank(&ByScore(max.score, |_| !max.exclusive));
        start..end.max(start)
    }

    pub(super) fn lex_range(&self, range: &LexRange<'_>) -> Range<usize> {
        let member = |handle| self.members.member(handle);
        let start = self.order.rank(&ByHandle(|h| range.is_below(member(h))));
        let end = self.order.rank(&ByHandle(|h| !range.is_above(member(h))));
        start..end.max(start)
    }

    pub(super) fn get(&self, rank: usize) -> Option<(&[u8], f64)> {
        let (score, handle) = self.order.get(rank)?;
        Some((self.members.member(handle), score))
    }

    pub(super) fn scan(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut impl FnMut(&[u8], f64),
    ) -> u64 {
        self.members.scan(cursor, count, |handle| {
            visit(self.members.member(handle), self.members.score(handle));
        })
    }

    pub(super) fn iter(&self, range: Range<usize>) -> Iter<'_> {
        Iter {
            ordered: self,
            range,
            front: None,
            back: None,
        }
    }

    /// Moves a few members out of sparse chunks of the arena.
    fn compact(&mut self) {
        for _ in 0..MOVES_PER_REMOVAL {
            let Some(old) = self.members.misplaced() else {
                return;
            };
            let rank = self.rank(self.members.member(old), self.members.score(old));
            match self.members.relocate(old) {
                Ok(new) => self.order.replace_handle(rank, new),
                Err(Full) => return,
            }
        }
    }
}

/// Returns the place before a member with this score.
#[inline]
fn before<'a>(members: &'a Members, member: &'a [u8], score: f64) -> impl Place + 'a {
    ByScore(score, move |other| members.member(other) < member)
}

/// The items of a range of ranks, from either end.
#[derive(Clone)]
pub(super) struct Iter<'a> {
    ordered: &'a Ordered,
    range: Range<usize>,
    /// A leaf, and the place in it of the next item.
    front: Option<(&'a Items, usize)>,
    /// A leaf, and the number of items in it before and at the next one.
    back: Option<(&'a Items, usize)>,
}

impl<'a> Iter<'a> {
    #[inline]
    fn item(&self, leaf: &'a Items, at: usize) -> Option<(&'a [u8], f64)> {
        let (score, handle) = leaf.get(at)?;
        Some((self.ordered.members.member(handle), score))
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rank = self.range.next()?;
        let (leaf, at) = match self.front {
            Some((leaf, at)) if at < leaf.len() => (leaf, at),
            _ => self.ordered.order.leaf_at(rank),
        };
        self.front = Some((leaf, at + 1));
        self.item(leaf, at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let rank = self.range.next_back()?;
        let (leaf, end) = match self.back {
            Some((leaf, end)) if end > 0 => (leaf, end),
            _ => {
                let (leaf, at) = self.ordered.order.leaf_at(rank);
                (leaf, at + 1)
            }
        };
        self.back = Some((leaf, end - 1));
        self.item(leaf, end - 1)
    }
}
