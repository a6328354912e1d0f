//! Replies that are gathered of several servers, by place. Must not know connections.

use crate::gather::Gather;
use crate::slab::{Ref, Slab};

/// Largest number of empty gatherings that are kept for reuse.
const SPARE_MAX: usize = 64;
/// Largest reply buffer that an empty gathering keeps: bytes.
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// Number of a call's keys for which memory is kept.
pub(crate) const KEYS_KEPT_MAX: usize = 16 * 1024;

/// All gathered replies of a worker.
#[derive(Default)]
pub struct Gathers {
    slab: Slab<Gather>,
    spare: Vec<Gather>,
    /// Buffer for merged replies; empty between them.
    merged: Vec<u8>,
}

impl Gathers {
    /// Returns the gathering, if it is still there.
    pub fn find(&mut self, place: Ref) -> Option<&mut Gather> {
        self.slab.find(place)
    }

    /// Returns an empty gathering for a request of this client.
    pub(crate) fn spare(&mut self, me: Ref) -> Gather {
        self.spare.pop().unwrap_or_else(|| Gather::new(me))
    }

    /// Keeps a gathering until all its parts have arrived.
    pub(crate) fn put(&mut self, gather: Gather) -> Ref {
        let place = self.slab.next_place();
        self.slab.put(gather);
        place
    }

    /// Ends the turn: places may be reused.
    pub(crate) fn end_turn(&mut self) {
        self.slab.end_turn();
    }

    /// Lends the places of parts, which [`Gathers::set_order`] takes back.
    pub(crate) fn take_order(&mut self, gather: Ref) -> Vec<u32> {
        match self.find(gather) {
            Some(gather) => std::mem::take(&mut gather.order),
            None => Vec::new(),
        }
    }

    /// Sets the part that each place in the reply has.
    pub(crate) fn set_order(&mut self, gather: Ref, order: Vec<u32>) {
        if let Some(gather) = self.find(gather) {
            gather.order = order;
        }
    }

    /// Counts one missing part less; returns the gathering if it was the last.
    pub(crate) fn one_less(&mut self, place: Ref) -> Option<Box<Gather>> {
        let gather = self.slab.find(place)?;
        gather.missing -= 1;
        match gather.missing {
            0 => self.slab.take(place.at),
            _ => None,
        }
    }

    /// Lends a buffer for a merged reply, to be returned by [`Gathers::give_back`].
    pub(crate) fn borrow_merged(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.merged)
    }

    /// Keeps the memory of a gathering whose reply has been made, and that of the reply.
    pub(crate) fn give_back(&mut self, mut gather: Gather, mut merged: Vec<u8>) {
        merged.clear();
        merged.shrink_to(SPARE_BYTES_MAX);
        self.merged = merged;
        if self.spare.len() < SPARE_MAX {
            gather.bytes.clear();
            gather.bytes.shrink_to(SPARE_BYTES_MAX);
            gather.parts.clear();
            gather.parts.shrink_to(KEYS_KEPT_MAX);
            gather.order.clear();
            gather.order.shrink_to(KEYS_KEPT_MAX);
            self.spare.push(gather);
        }
    }
}
