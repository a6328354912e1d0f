//! The members of a large sorted set: their bytes and scores, found by member. Must not know their
//! order.
//!
//! A member is stored once, in an arena, and everything else speaks of it by a 32-bit [`Handle`]:
//! the index below finds a handle by hash, the order holds (score, handle). With 16-byte members
//! that is 28 bytes for the record, 9 to 10 in the index and 15 in the order.

mod arena;
mod index;

use arena::Arena;
use index::Index;

/// Place where a member is stored. Good until the member is removed or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle(pub(super) u32);

/// There is no room for one more member: 2^32 units of 4 bytes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Members with their scores.
#[derive(Clone, Default)]
pub(super) struct Members {
    arena: Arena,
    index: Index,
}

/// Returns the bits of a member's hash that the index keeps.
#[inline]
pub(super) fn hash(member: &[u8]) -> u32 {
    (redline_table::hash(member) >> 32) as u32
}

impl Members {
    /// Returns true if there is no member.
    pub(super) fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// Returns the number of allocations.
    pub(super) fn allocation_count(&self) -> usize {
        self.arena.allocation_count() + self.index.segment_count()
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.arena.heap_bytes() + self.index.heap_bytes()
    }

    /// Finds a member by its [`hash`] and bytes.
    #[inline]
    pub(super) fn find(&self, hash: u32, member: &[u8]) -> Option<Handle> {
        self.index
            .find(hash, |handle| self.arena.member(handle) == member)
    }

    /// Finds a member that is stored with `tail` more bytes behind it, by its [`hash`] and bytes.
    #[inline]
    pub(super) fn find_tailed(&self, hash: u32, member: &[u8], tail: usize) -> Option<Handle> {
        self.index.find(hash, |handle| {
            let stored = self.arena.member(handle);
            stored.len() == member.len() + tail && stored.starts_with(member)
        })
    }

    /// Removes a member that is stored with `tail` more bytes behind it.
    pub(super) fn remove_tailed(&mut self, handle: Handle, tail: usize) {
        let stored = self.arena.member(handle);
        let hash = hash(&stored[..stored.len() - tail]);
        self.index.remove(hash, handle);
        self.arena.remove(handle);
    }

    /// Moves a member that [`Members::misplaced`] named, and that is stored with `tail` more bytes behind it.
    pub(super) fn relocate_tailed(&mut self, handle: Handle, tail: usize) -> Result<Handle, Full> {
        let moved = self.arena.relocate(handle)?;
        let stored = self.arena.member(moved);
        let hash = hash(&stored[..stored.len() - tail]);
        self.index.replace(hash, handle, moved);
        Ok(moved)
    }

    /// Stores a member that is not there yet.
    pub(super) fn insert(&mut self, hash: u32, member: &[u8], score: f64) -> Result<Handle, Full> {
        let handle = self.arena.insert(member, score)?;
        self.index.insert(hash, handle);
        Ok(handle)
    }

    /// Removes a member.
    pub(super) fn remove(&mut self, handle: Handle) {
        self.index.remove(hash(self.arena.member(handle)), handle);
        self.arena.remove(handle);
    }

    /// Returns the bytes of a member.
    #[inline]
    pub(super) fn member(&self, handle: Handle) -> &[u8] {
        self.arena.member(handle)
    }

    /// Returns the score of a member.
    #[inline]
    pub(super) fn score(&self, handle: Handle) -> f64 {
        self.arena.score(handle)
    }

    /// Changes the score of a member.
    #[inline]
    pub(super) fn set_score(&mut self, handle: Handle, score: f64) {
        self.arena.set_score(handle, score);
    }

    /// Returns a member that should move, since most of the memory around it is unused.
    pub(super) fn misplaced(&mut self) -> Option<Handle> {
        self.arena.misplaced()
    }

    /// Moves a member that [`Members::misplaced`] named.
    pub(super) fn relocate(&mut self, handle: Handle) -> Result<Handle, Full> {
        let moved = self.arena.relocate(handle)?;
        let hash = hash(self.arena.member(moved));
        self.index.replace(hash, handle, moved);
        Ok(moved)
    }

    /// Returns all handles, in the order of the hashes.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.index.handles()
    }

    /// Visits members from a cursor on, `count` or, where hashes are equal, a few more; returns the
    /// next cursor, 0 at the end.
    pub(super) fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Handle)) -> u64 {
        self.index.scan(cursor, count, &mut visit)
    }
}
