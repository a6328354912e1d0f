//! The list: a sequence of byte strings, quick at both ends. Must not know keys or waiting clients.
//!
//! A small list is one [`Pack`] ("listpack"). When a command would make it larger than one node may
//! be, it becomes a `Quicklist`, a deque of packs; when it has shrunk to one node of half that size,
//! it becomes a pack again. Half, so that a list at the border does not convert at every step.

mod quicklist;

pub use quicklist::Iter;
use quicklist::{NodeLimits, Quicklist};

use crate::Limits;
use crate::digest::Digest;
use crate::pack::{Element, End, Pack};
use crate::packed::{PackedForm, PackedRef};
use crate::value::DataType;
use redline_table::frozen::FreezeId;
use std::ops::{ControlFlow, Range};

/// Side of the pivot on which an element is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In front of the pivot.
    Before,
    /// Behind the pivot.
    After,
}

/// A node to be added to a list as it is.
pub enum NewNode<'a> {
    /// Several elements.
    Packed(Pack),
    /// One.
    Plain(&'a [u8]),
}

/// A stretch of a list, as it is stored.
#[derive(Clone, Copy)]
pub enum NodeRef<'a> {
    /// Some elements.
    Packed(&'a Pack),
    /// One that is too large for a pack.
    Plain(&'a [u8]),
}

/// A sequence of byte strings. See the head of this file.
#[derive(Clone)]
pub struct List {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    Packed(Pack),
    Nodes(Quicklist),
}

impl Default for List {
    fn default() -> List {
        List::new()
    }
}

impl DataType for List {
    const NAME: &'static str = "list";
    const OBJECT_TYPE: u32 = 1;
    const EMPTY_FORM: Option<PackedForm> = Some(PackedForm::List);

    fn encoding(&self) -> &'static str {
        match self.repr {
            Repr::Packed(_) => "listpack",
            Repr::Nodes(_) => "quicklist",
        }
    }

    fn len(&self) -> usize {
        match &self.repr {
            Repr::Packed(pack) => pack.len(),
            Repr::Nodes(nodes) => nodes.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.repr {
                Repr::Packed(pack) => pack.heap_bytes(),
                Repr::Nodes(nodes) => nodes.heap_bytes(),
            }
    }

    fn free_effort(&self) -> usize {
        match &self.repr {
            Repr::Packed(_) => 1,
            Repr::Nodes(nodes) => nodes.node_count(),
        }
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        self.iter().for_each(|element| digest.mix_element(element));
    }

    fn can_freeze(&self) -> bool {
        matches!(self.repr, Repr::Nodes(_))
    }

    fn freeze(&mut self, id: FreezeId) {
        match &mut self.repr {
            Repr::Nodes(nodes) => nodes.freeze(id),
            Repr::Packed(_) => panic!("only the form of nodes is frozen"),
        }
    }

    fn freeze_id(&self) -> Option<FreezeId> {
        match &self.repr {
            Repr::Nodes(nodes) => nodes.freeze_id(),
            Repr::Packed(_) => None,
        }
    }

    fn thaw(&mut self) {
        if let Repr::Nodes(nodes) = &mut self.repr {
            nodes.thaw();
        }
    }

    #[inline]
    fn packed(&self) -> Option<PackedRef<'_>> {
        match &self.repr {
            Repr::Packed(pack) => Some(pack.packed(PackedForm::List)),
            Repr::Nodes(_) => None,
        }
    }

    #[inline]
    fn load_packed(&mut self, packed: PackedRef<'_>) {
        assert_eq!(packed.form, PackedForm::List);
        match &mut self.repr {
            Repr::Packed(pack) => pack.load(packed),
            other => *other = Repr::Packed(Pack::of_packed(packed)),
        }
    }
}

impl List {
    /// Returns an empty list.
    pub const fn new() -> List {
        List {
            repr: Repr::Packed(Pack::new()),
        }
    }

    /// Returns a list of the elements of a pack, in the encoding that its size asks for.
    pub fn from_pack(pack: Pack, limits: &Limits) -> List {
        let mut list = List {
            repr: Repr::Packed(pack),
        };
        list.convert_by_size(limits);
        list
    }

    /// Returns an empty list in the form of nodes, to be filled with [`List::append_node`]; [`List::convert_by_size`]
    /// comes last.
    pub fn of_nodes(limits: &Limits) -> List {
        List {
            repr: Repr::Nodes(Quicklist::from_pack(Pack::new(), limits)),
        }
    }

    /// Adds a node at the back as it is, however few elements it has: the nodes of a list show in its encoding.
    ///
    /// # Panics
    ///
    /// If the list is not in the form of nodes.
    pub fn append_node(&mut self, node: NewNode<'_>) {
        let Repr::Nodes(nodes) = &mut self.repr else {
            panic!("the list was not made for nodes");
        };
        match node {
            NewNode::Packed(pack) => nodes.push_pack(pack),
            NewNode::Plain(element) => nodes.push_plain(element),
        }
    }

    /// Adds elements at one end, one after the other: the last one ends up outermost.
    pub fn push<'a>(
        &mut self,
        end: End,
        elements: impl Iterator<Item = &'a [u8]> + Clone,
        limits: &Limits,
    ) {
        self.make_room(elements.clone(), limits);
        match &mut self.repr {
            Repr::Packed(pack) => elements.for_each(|element| pack.push(end, Element::of(element))),
            Repr::Nodes(nodes) => {
                let limits = nodes.node_limits(limits);
                elements.for_each(|element| nodes.push(end, element, limits));
            }
        }
    }

    /// Adds one element at the front.
    pub fn push_front(&mut self, element: &[u8], limits: &Limits) {
        self.push(End::Front, std::iter::once(element), limits);
    }

    /// Adds one element at the back.
    pub fn push_back(&mut self, element: &[u8], limits: &Limits) {
        self.push(End::Back, std::iter::once(element), limits);
    }

    /// Removes up to `count` elements from one end, outermost first, and returns how many there were.
    pub fn pop(
        &mut self,
        end: End,
        count: usize,
        limits: &Limits,
        mut visit: impl FnMut(Element<'_>),
    ) -> usize {
        let count = count.min(self.len());
        if count == 1 {
            match &mut self.repr {
                Repr::Packed(pack) => pack.pop(end, visit),
                Repr::Nodes(nodes) => nodes.pop(end, visit),
            };
            self.convert_if_shrunk(limits);
            return count;
        }
        let first = match end {
            End::Front => {
                self.iter().take(count).for_each(&mut visit);
                0
            }
            End::Back => {
                self.iter().rev().take(count).for_each(&mut visit);
                self.len() - count
            }
        };
        self.remove_range(first..first + count, limits);
        count
    }

    /// Removes the outermost element of one end, and adds it at one; an empty list stays as it is. Its shorter length
    /// in between changes its encoding no more than in Redis.
    pub fn rotate(&mut self, from: End, to: End, limits: &Limits, visit: impl FnOnce(Element<'_>)) {
        let taken = |element: Element<'_>| {
            let text = element.to_vec();
            visit(element);
            text
        };
        let moved = match &mut self.repr {
            Repr::Packed(pack) => pack.pop(from, taken),
            Repr::Nodes(nodes) => nodes.pop(from, taken),
        };
        let Some(moved) = moved else {
            return;
        };
        self.push(to, std::iter::once(&moved[..]), limits);
        self.convert_if_shrunk(limits);
    }

    /// Returns the element at an index; negative ones count from the back, which is -1.
    pub fn get(&self, index: i64) -> Option<Element<'_>> {
        let index = self.index(index)?;
        match &self.repr {
            Repr::Packed(pack) => pack.get(pack.seek(index)?),
            Repr::Nodes(nodes) => nodes.get(index),
        }
    }

    /// Replaces the element at an index; returns false if there is none.
    pub fn set(&mut self, index: i64, element: &[u8], limits: &Limits) -> bool {
        self.make_room(std::iter::once(element), limits);
        let Some(index) = self.index(index) else {
            return false;
        };
        match &mut self.repr {
            Repr::Packed(pack) => {
                let Some(at) = pack.seek(index) else {
                    return false;
                };
                pack.replace(at, Element::of(element));
            }
            Repr::Nodes(nodes) => nodes.replace(index, element, nodes.node_limits(limits)),
        }
        self.convert_if_shrunk(limits);
        true
    }

    /// Adds an element beside the first one equal to `pivot`; returns false if there is none.
    pub fn insert(&mut self, place: Place, pivot: &[u8], element: &[u8], limits: &Limits) -> bool {
        self.make_room(std::iter::once(element), limits);
        let pivot = Element::of(pivot);
        match &mut self.repr {
            Repr::Packed(pack) => {
                let Some(at) = pack.find(pack.begin(), pivot, 0) else {
                    return false;
                };
                let at = match place {
                    Place::Before => at,
                    Place::After => pack.next(at).unwrap_or(pack.end()),
                };
                pack.insert(at, Element::of(element));
                true
            }
            Repr::Nodes(nodes) => {
                nodes.insert_beside(place, pivot, element, nodes.node_limits(limits))
            }
        }
    }

    /// Removes elements equal to `wanted`: the first `count` of them, or the last if negative, or all if zero. Returns
    /// how many there were.
    pub fn remove(&mut self, count: i64, wanted: &[u8], limits: &Limits) -> usize {
        let max = match count {
            0 => usize::MAX,
            _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
        };
        let end = if count < 0 { End::Back } else { End::Front };
        let wanted = Element::of(wanted);
        let removed = match &mut self.repr {
            Repr::Packed(pack) => quicklist::remove_from_pack(pack, end, wanted, max),
            Repr::Nodes(nodes) => nodes.remove_equal(end, wanted, max),
        };
        if removed > 0 {
            self.convert_if_shrunk(limits);
        }
        removed
    }

    /// Keeps only these indices.
    pub fn trim(&mut self, kept: Range<usize>, limits: &Limits) {
        let end = kept.end.min(self.len());
        let start = kept.start.min(end);
        self.remove_range(end..self.len(), limits);
        self.remove_range(0..start, limits);
    }

    /// Removes these indices, which must exist.
    fn remove_range(&mut self, range: Range<usize>, limits: &Limits) {
        if range.is_empty() {
            return;
        }
        match &mut self.repr {
            Repr::Packed(pack) => {
                if let Some(at) = pack.seek(range.start) {
                    pack.remove_many(at, range.len());
                }
            }
            Repr::Nodes(nodes) => nodes.remove_range(range),
        }
        self.convert_if_shrunk(limits);
    }

    /// Returns all elements, from either end.
    pub fn iter(&self) -> Iter<'_> {
        match &self.repr {
            Repr::Packed(pack) => Iter::of_pack(pack.iter()),
            Repr::Nodes(nodes) => nodes.iter(),
        }
    }

    /// Returns the nodes that it consists of: one, while it is small.
    pub fn nodes(&self) -> impl Iterator<Item = NodeRef<'_>> {
        let (pack, nodes) = match &self.repr {
            Repr::Packed(pack) => (Some(NodeRef::Packed(pack)), None),
            Repr::Nodes(nodes) => (None, Some(nodes.nodes())),
        };
        pack.into_iter().chain(nodes.into_iter().flatten())
    }

    /// Returns the elements from an index on.
    pub fn iter_from(&self, index: usize) -> Iter<'_> {
        match &self.repr {
            Repr::Packed(pack) => {
                Iter::of_pack(pack.iter_from(pack.seek(index).unwrap_or(pack.end())))
            }
            Repr::Nodes(nodes) => nodes.iter_from(index),
        }
    }

    /// Returns the elements before an index; reversed, this is the way from there to the front.
    pub fn iter_to(&self, index: usize) -> Iter<'_> {
        match &self.repr {
            Repr::Packed(pack) => {
                Iter::of_pack(pack.iter_to(pack.seek(index).unwrap_or(pack.end())))
            }
            Repr::Nodes(nodes) => nodes.iter_to(index),
        }
    }

    /// Visits the index of each element equal to `wanted`, until told to stop. A negative `rank` starts at the back; -2
    /// and 2 leave out the first match, and so on. Compares at most `compared_max`.
    pub fn positions(
        &self,
        wanted: &[u8],
        rank: i64,
        compared_max: usize,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) {
        let wanted = Element::of(wanted);
        let mut to_skip = rank.unsigned_abs().saturating_sub(1);
        let mut matched = |index: usize| {
            if to_skip > 0 {
                to_skip -= 1;
                return ControlFlow::Continue(());
            }
            visit(index)
        };
        // Either way the search is over when the iterator is.
        let _ = if rank < 0 {
            let mut elements = (0..self.len()).rev().zip(self.iter().rev());
            elements
                .by_ref()
                .take(compared_max)
                .try_for_each(|(index, element)| match element == wanted {
                    true => matched(index),
                    false => ControlFlow::Continue(()),
                })
        } else {
            let mut first = 0;
            self.nodes().try_for_each(|node| {
                if first >= compared_max {
                    return ControlFlow::Break(());
                }
                let mut near = |at: usize| match first + at < compared_max {
                    true => matched(first + at),
                    false => ControlFlow::Break(()),
                };
                match node {
                    NodeRef::Packed(pack) => {
                        pack.positions(wanted, near)?;
                        first += pack.len();
                    }
                    NodeRef::Plain(bytes) => {
                        if Element::of(bytes) == wanted {
                            near(0)?;
                        }
                        first += 1;
                    }
                }
                ControlFlow::Continue(())
            })
        };
    }

    fn index(&self, index: i64) -> Option<usize> {
        let len = self.len();
        let from_back = usize::try_from(index.unsigned_abs()).ok()?;
        let index = if index < 0 {
            len.checked_sub(from_back)?
        } else {
            from_back
        };
        (index < len).then_some(index)
    }

    /// Passes on some of the nodes that a frozen list had, in order; returns true after the last one, which ends the
    /// freeze.
    pub fn give_piece(&mut self, visit: &mut dyn FnMut(NodeRef<'_>)) -> bool {
        match &mut self.repr {
            Repr::Nodes(nodes) => nodes.give_piece(visit),
            Repr::Packed(_) => true,
        }
    }

    // Encodings. (A frozen list keeps its nodes: it is packed by the first change after that.)

    /// Prepares for a command that adds these elements: a pack that might get too large becomes a quicklist. The
    /// elements' own bytes are counted, as Redis does, not those that they will take.
    fn make_room<'a>(&mut self, added: impl Iterator<Item = &'a [u8]>, limits: &Limits) {
        if let Repr::Packed(pack) = &mut self.repr {
            let allowed = NodeLimits::of(limits);
            let (mut bytes, mut count) = (pack.listpack_bytes(), pack.len());
            for element in added {
                bytes = bytes.saturating_add(element.len());
                count += 1;
            }
            let room = bytes.saturating_add(count.saturating_mul(Pack::ENTRY_OVERHEAD_MAX));
            if !allowed.allow(bytes, count) || room > Pack::SAFE_BYTES_MAX {
                let mut pack = std::mem::take(pack);
                // It may have been opened to be edited, with more room than a node needs.
                pack.shrink();
                self.repr = Repr::Nodes(Quicklist::from_pack(pack, limits));
            }
        }
    }

    fn convert_if_shrunk(&mut self, limits: &Limits) {
        if let Repr::Nodes(nodes) = &mut self.repr
            && nodes.freeze_id().is_none()
            && let Some(pack) = nodes.take_only_pack(|pack| NodeLimits::of(limits).allow_half(pack))
        {
            self.repr = Repr::Packed(pack);
        }
    }

    /// Changes to the encoding that the size requires, by whichever operations it came about.
    pub fn convert_by_size(&mut self, limits: &Limits) {
        self.make_room(std::iter::empty(), limits);
        if let Repr::Nodes(nodes) = &mut self.repr
            && nodes.freeze_id().is_none()
            && let Some(pack) = nodes.take_only_pack(|pack| {
                NodeLimits::of(limits).allow(pack.listpack_bytes(), pack.len())
            })
        {
            self.repr = Repr::Packed(pack);
        }
    }
}

#[cfg(test)]
mod tests;
