//! Replies that several servers give parts of: those that are gathered, and what becomes of them. Must not know connections.

use crate::gather::Gather;
use crate::slab::{Ref, Slab};

/// Empty gatherings that are kept for the next ones.
const SPARE_MAX: usize = 64;
/// Bytes of replies that an empty gathering keeps room for.
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// Keys of a call for which room is kept.
pub(crate) const KEYS_KEPT_MAX: usize = 16 * 1024;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Gathers {
    slab: Slab<Gather>,
    spare: Vec<Gather>,
    /// Where replies are made of parts; empty between.
    merged: Vec<u8>,
}

impl Gathers {
    /// Returns the gathering, if it is still there.
    pub(crate) fn find(&mut self, place: Ref) -> Option<&mut Gather> {
        self.slab.find(place)
    }

    /// Returns an empty gathering for a request of this client.
    pub(crate) fn spare(&mut self, me: Ref) -> Gather {
        self.spare.pop().unwrap_or_else(|| Gather::new(me))
    }

    /// Keeps a gathering until all its parts have come.
    pub(crate) fn put(&mut self, gather: Gather) -> Ref {
        let place = self.slab.next_place();
        self.slab.put(gather);
        place
    }

    /// The turn is over: places may be given to others.
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

    /// A part less is missing; returns the gathering if it was the last.
    pub(crate) fn one_less(&mut self, place: Ref) -> Option<Box<Gather>> {
        let gather = self.slab.find(place)?;
        gather.missing -= 1;
        match gather.missing {
            0 => self.slab.take(place.at),
            _ => None,
        }
    }

    /// Lends memory in which a reply is made of parts, to be given back by [`Gathers::give_back`].
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
