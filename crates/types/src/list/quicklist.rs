//! A list as a deque of packs. Must not know when a list takes this form.
//!
//! A node is a pack within the limits, or one element too large for them. An index is found by
//! skipping nodes by their counts, from the nearer end; inserting into a full node splits it, and then
//! neighbours that fit into one are merged.

mod frozen;

use super::{NodeRef, Place};
use crate::Limits;
use crate::pack::{self, Element, End, Pack};
use redline_table::frozen::Frozen;
use std::collections::{VecDeque, vec_deque};
use std::ops::Range;

/// Bytes of a node that is limited by count.
const SAFE_NODE_BYTES: usize = 8192;
/// Bytes of a node under `list-max-listpack-size` -1, -2 and so on.
const NODE_BYTES: [usize; 5] = [4096, 8192, 16_384, 32_768, 65_536];
/// Most bytes that an entry takes besides its element, when one is to be added.
const ENTRY_OVERHEAD: usize = 8;
/// Room to start a node with when there is a full one beside it.
const NODE_ROOM: usize = 1024;

/// Limit on the size of a node.
#[derive(Clone, Copy)]
pub(super) struct NodeLimits {
    bytes: usize,
    count: usize,
    /// An element of more bytes has a node of its own.
    packed_bytes: usize,
}

impl NodeLimits {
    #[inline]
    pub(super) fn of(limits: &Limits) -> NodeLimits {
        NodeLimits::with_fill(limits.list_max_listpack_size, limits)
    }

    #[inline]
    fn with_fill(fill: i32, limits: &Limits) -> NodeLimits {
        let (bytes, count) = match fill {
            count @ 0.. => (SAFE_NODE_BYTES, count.max(1) as usize),
            level => {
                let level = (level.unsigned_abs() as usize).min(NODE_BYTES.len());
                (NODE_BYTES[level - 1], usize::MAX)
            }
        };
        let packed_bytes = match limits.list_plain_node_bytes {
            None => bytes,
            Some(plain_bytes) => plain_bytes.saturating_sub(1).min(Pack::SAFE_BYTES_MAX / 2),
        };
        NodeLimits {
            bytes,
            count,
            packed_bytes,
        }
    }

    #[inline]
    pub(super) fn allow(self, listpack_bytes: usize, count: usize) -> bool {
        listpack_bytes <= self.bytes && count <= self.count
    }

    /// Returns true if this pack is at most half as large as a node may be.
    pub(super) fn allow_half(self, pack: &Pack) -> bool {
        if self.count == usize::MAX {
            pack.listpack_bytes() <= self.bytes / 2
        } else {
            pack.len() <= self.count / 2
        }
    }

    #[inline]
    fn allow_one_more(self, pack: &Pack, element: &[u8]) -> bool {
        !self.is_large(element)
            && self.allow(
                pack.listpack_bytes() + element.len() + ENTRY_OVERHEAD,
                pack.len() + 1,
            )
    }

    fn allow_merge(self, a: &Pack, b: &Pack) -> bool {
        let envelope = Pack::new().listpack_bytes();
        self.allow(
            a.listpack_bytes() + b.listpack_bytes() - envelope,
            a.len() + b.len(),
        )
    }

    #[inline]
    fn is_large(self, element: &[u8]) -> bool {
        element.len() > self.packed_bytes
    }
}

#[derive(Clone)]
enum Node {
    Packed(Pack),
    /// One element too large for a pack.
    Plain(Box<[u8]>),
}

impl Node {
    fn of(element: &[u8], limits: NodeLimits, end: End) -> Node {
        if limits.is_large(element) {
            return Node::Plain(element.into());
        }
        let mut pack = Pack::with_room(NODE_ROOM.max(element.len() + ENTRY_OVERHEAD), end);
        pack.push(end, Element::of(element));
        Node::Packed(pack)
    }

    fn len(&self) -> usize {
        match self {
            Node::Packed(pack) => pack.len(),
            Node::Plain(_) => 1,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Node::Packed(pack) => pack.heap_bytes(),
            Node::Plain(element) => element.len(),
        }
    }

    fn as_ref(&self) -> NodeRef<'_> {
        match self {
            Node::Packed(pack) => NodeRef::Packed(pack),
            Node::Plain(element) => NodeRef::Plain(element),
        }
    }

    fn allows_one_more(&self, element: &[u8], limits: NodeLimits) -> bool {
        matches!(self, Node::Packed(pack) if limits.allow_one_more(pack, element))
    }

    fn iter(&self) -> Chunk<'_> {
        match self {
            Node::Packed(pack) => Chunk::Packed(pack.iter()),
            Node::Plain(element) => Chunk::Plain(Some(element)),
        }
    }
}

/// The deque of nodes; none of them is ever empty.
pub(super) struct Quicklist {
    nodes: VecDeque<Node>,
    len: usize,
    /// The `list-max-listpack-size` under which it was made: its nodes grow by that, as Redis's do.
    fill: i32,
    /// Number of bytes that the nodes have allocated.
    node_bytes: usize,
    frozen: Frozen<frozen::Progress>,
}

impl Clone for Quicklist {
    fn clone(&self) -> Quicklist {
        let nodes = self.nodes.clone();
        let node_bytes = nodes.iter().map(Node::heap_bytes).sum();
        Quicklist {
            nodes,
            len: self.len,
            fill: self.fill,
            node_bytes,
            frozen: Frozen::none(),
        }
    }
}

impl Quicklist {
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeRef<'_>> {
        self.nodes.iter().map(Node::as_ref)
    }

    /// Returns a quicklist of one node, or of none if the pack is empty.
    pub(super) fn from_pack(pack: Pack, limits: &Limits) -> Quicklist {
        let mut list = Quicklist {
            nodes: VecDeque::new(),
            len: 0,
            fill: limits.list_max_listpack_size,
            node_bytes: 0,
            frozen: Frozen::none(),
        };
        list.push_pack(pack);
        list
    }

    /// Returns the limit on the size of its nodes.
    #[inline]
    pub(super) fn node_limits(&self, limits: &Limits) -> NodeLimits {
        NodeLimits::with_fill(self.fill, limits)
    }

    /// Adds a pack as it is at the back, within the limits or not; an empty one is left out.
    pub(super) fn push_pack(&mut self, pack: Pack) {
        if !pack.is_empty() {
            self.len += pack.len();
            self.put_node(self.nodes.len(), Node::Packed(pack));
        }
    }

    /// Adds an element at the back as a node of its own.
    pub(super) fn push_plain(&mut self, element: &[u8]) {
        self.len += 1;
        self.put_node(self.nodes.len(), Node::Plain(element.into()));
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.node_bytes + self.nodes.capacity() * size_of::<Node>()
    }

    /// Returns the value that [`Quicklist::heap_bytes`] must have, counted over all nodes.
    #[cfg(test)]
    pub(super) fn heap_bytes_counted(&self) -> usize {
        let nodes: usize = self.nodes.iter().map(Node::heap_bytes).sum();
        nodes + self.nodes.capacity() * size_of::<Node>()
    }

    /// Returns the only node and removes it if it is a pack and fits, or an empty pack if there is no node.
    pub(super) fn take_only_pack(&mut self, fits: impl FnOnce(&Pack) -> bool) -> Option<Pack> {
        match self.nodes.front_mut() {
            None => Some(Pack::new()),
            Some(Node::Packed(pack)) if self.len == pack.len() && fits(pack) => {
                Some(std::mem::take(pack))
            }
            Some(_) => None,
        }
    }

    // Nodes. Only the functions of this part change `nodes` and `node_bytes`.

    fn put_node(&mut self, at: usize, node: Node) {
        self.node_bytes += node.heap_bytes();
        self.nodes.insert(at, node);
        if let Some(progress) = self.frozen.get_mut() {
            progress.note_new(at);
        }
    }

    /// Changes the pack of a node, and drops the node if that empties it.
    #[inline]
    fn edit<R>(&mut self, at: usize, change: impl FnOnce(&mut Pack) -> R) -> R {
        if let Some(progress) = self.frozen.get_mut() {
            progress.keep_copy(at, &self.nodes[at]);
        }
        let Node::Packed(pack) = &mut self.nodes[at] else {
            unreachable!("callers have seen that this node is a pack");
        };
        let before = pack.heap_bytes();
        let result = change(pack);
        self.node_bytes = self.node_bytes + pack.heap_bytes() - before;
        if pack.is_empty() {
            self.drop_nodes(at..at + 1);
        }
        result
    }

    fn drop_nodes(&mut self, range: Range<usize>) {
        let node_bytes = &mut self.node_bytes;
        let gone = self.nodes.drain(range.clone());
        let gone = gone.inspect(|node| *node_bytes -= node.heap_bytes());
        match self.frozen.get_mut() {
            None => gone.for_each(drop),
            Some(progress) => progress.keep_gone(range, gone),
        }
        if self.nodes.capacity() > 16 && self.nodes.len() < self.nodes.capacity() / 4 {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
    }

    /// Splits a pack before an index inside it, so that it becomes two nodes.
    fn split(&mut self, at: usize, index: usize) {
        let tail = self.edit(at, |pack| pack.split_off(index));
        self.put_node(at + 1, Node::Packed(tail));
    }

    /// Merges two neighbouring packs, if they fit; returns true if it did.
    fn merge(&mut self, left: usize, limits: NodeLimits) -> bool {
        let (Some(Node::Packed(a)), Some(Node::Packed(b))) =
            (self.nodes.get(left), self.nodes.get(left + 1))
        else {
            return false;
        };
        if !limits.allow_merge(a, b) {
            return false;
        }
        let Some(Node::Packed(b)) = self.nodes.remove(left + 1) else {
            unreachable!("seen above")
        };
        self.node_bytes -= b.heap_bytes();
        self.edit(left, |pack| pack.append(&b));
        if let Some(progress) = self.frozen.get_mut() {
            progress.keep_gone(left + 1..left + 2, std::iter::once(Node::Packed(b)));
        }
        true
    }

    /// Merges the nodes that fit among a node and two on either side of it.
    fn merge_around(&mut self, at: usize, limits: NodeLimits) {
        let mut at = at;
        if at >= 2 && self.merge(at - 2, limits) {
            at -= 1;
        }
        self.merge(at + 1, limits);
        if at >= 1 && self.merge(at - 1, limits) {
            at -= 1;
        }
        self.merge(at, limits);
    }

    // Elements.

    #[inline]
    pub(super) fn push(&mut self, end: End, element: &[u8], limits: NodeLimits) {
        let at = match end {
            End::Front => 0,
            End::Back => self.nodes.len().saturating_sub(1),
        };
        self.len += 1;
        match self.nodes.get(at) {
            Some(node) if node.allows_one_more(element, limits) => {
                self.edit(at, |pack| pack.push(end, Element::of(element)));
            }
            Some(_) => self.push_node(end, Node::of(element, limits, end)),
            None => self.put_node(0, Node::of(element, limits, end)),
        }
    }

    /// Visits the element at one end and removes it.
    #[inline]
    pub(super) fn pop<R>(&mut self, end: End, visit: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let at = match end {
            End::Front => 0,
            End::Back => self.nodes.len().saturating_sub(1),
        };
        let popped = match self.nodes.get(at)? {
            Node::Packed(_) => self.edit(at, |pack| pack.pop(end, visit)),
            Node::Plain(element) => {
                let result = visit(Element::Bytes(element));
                self.drop_nodes(at..at + 1);
                Some(result)
            }
        };
        self.len -= usize::from(popped.is_some());
        popped
    }

    /// Adds a node beside a full one, which will hardly grow again.
    fn push_node(&mut self, end: End, node: Node) {
        let (full, at) = match end {
            End::Front => (0, 0),
            End::Back => (self.nodes.len() - 1, self.nodes.len()),
        };
        if let Node::Packed(_) = self.nodes[full] {
            self.edit(full, Pack::shrink);
        }
        self.put_node(at, node);
    }

    /// Returns the node that holds an index, and the index inside it; behind the last node if there is none.
    fn locate(&self, index: usize) -> (usize, usize) {
        if index >= self.len {
            return (self.nodes.len(), 0);
        }
        if index <= self.len / 2 {
            let mut first = 0;
            for (at, node) in self.nodes.iter().enumerate() {
                if index - first < node.len() {
                    return (at, index - first);
                }
                first += node.len();
            }
        } else {
            let mut first = self.len;
            for (at, node) in self.nodes.iter().enumerate().rev() {
                first -= node.len();
                if index >= first {
                    return (at, index - first);
                }
            }
        }
        unreachable!("the nodes' counts add up to the length")
    }

    pub(super) fn get(&self, index: usize) -> Option<Element<'_>> {
        let (at, inner) = self.locate(index);
        match self.nodes.get(at)? {
            Node::Packed(pack) => pack.get(pack.seek(inner)?),
            Node::Plain(element) => Some(Element::Bytes(element)),
        }
    }

    /// Replaces the element at an index, which must exist.
    pub(super) fn replace(&mut self, index: usize, element: &[u8], limits: NodeLimits) {
        let (at, inner) = self.locate(index);
        let was_packed = match &self.nodes[at] {
            Node::Packed(pack)
                if !limits.is_large(element)
                    && pack.is_safe_to_add(element.len() + ENTRY_OVERHEAD) =>
            {
                return self.edit(at, |pack| {
                    let place = pack.seek(inner).unwrap_or(pack.end());
                    pack.replace(place, Element::of(element));
                });
            }
            Node::Packed(_) => true,
            Node::Plain(_) => false,
        };
        self.insert(at, inner, Place::After, element, limits);
        self.remove_range(index..index + 1);
        if was_packed {
            let (at, _) = self.locate(index);
            self.merge_around(at, limits);
        }
    }

    pub(super) fn insert_beside(
        &mut self,
        place: Place,
        pivot: Element<'_>,
        element: &[u8],
        limits: NodeLimits,
    ) -> bool {
        let found = self
            .nodes
            .iter()
            .enumerate()
            .find_map(|(at, node)| match node {
                Node::Packed(pack) => {
                    let found = pack.find(pack.begin(), pivot, 0)?;
                    Some((at, pack.iter_to(found).count()))
                }
                Node::Plain(element) => (Element::Bytes(element) == pivot).then_some((at, 0)),
            });
        let Some((at, inner)) = found else {
            return false;
        };
        self.insert(at, inner, place, element, limits);
        true
    }

    /// Adds an element beside the one with index `inner` in node `at`.
    fn insert(
        &mut self,
        at: usize,
        inner: usize,
        place: Place,
        element: &[u8],
        limits: NodeLimits,
    ) {
        self.len += 1;
        let node = &self.nodes[at];
        // The element goes between this index and the one before it.
        let inner = inner + usize::from(place == Place::After);
        if node.allows_one_more(element, limits) {
            return self.edit(at, |pack| {
                let position = pack.seek(inner).unwrap_or(pack.end());
                pack.insert(position, Element::of(element));
            });
        }
        let neighbour = match (inner, place) {
            (0, _) => Some((at.wrapping_sub(1), End::Back, at)),
            (inner, _) if inner == node.len() => Some((at + 1, End::Front, at + 1)),
            _ => None,
        };
        let Some((neighbour, end, between)) = neighbour else {
            self.split(at, inner);
            if limits.is_large(element) {
                self.put_node(at + 1, Node::of(element, limits, End::Back));
            } else {
                // The element stays with the half that the pivot is not in.
                let (half, end) = match place {
                    Place::Before => (at, End::Back),
                    Place::After => (at + 1, End::Front),
                };
                self.edit(half, |pack| pack.push(end, Element::of(element)));
                let pivot = if place == Place::Before { at + 1 } else { at };
                self.merge_around(pivot, limits);
            }
            return;
        };
        match self.nodes.get(neighbour) {
            Some(node) if node.allows_one_more(element, limits) => {
                self.edit(neighbour, |pack| pack.push(end, Element::of(element)));
            }
            _ => self.put_node(between, Node::of(element, limits, End::Back)),
        }
    }

    /// Removes a range of indices, which must exist.
    pub(super) fn remove_range(&mut self, range: Range<usize>) {
        let mut left = range.len();
        let (mut at, inner) = self.locate(range.start);
        self.len -= left;
        if inner > 0 {
            left -= self.edit(at, |pack| {
                let from = pack.seek(inner).unwrap_or(pack.end());
                pack.remove_many(from, left)
            });
            at += 1;
        }
        let mut end = at;
        while let Some(node) = self.nodes.get(end)
            && left >= node.len()
        {
            left -= node.len();
            end += 1;
        }
        if end > at {
            self.drop_nodes(at..end);
        }
        if left > 0 {
            self.edit(at, |pack| pack.remove_many(pack.begin(), left));
        }
    }

    /// Removes up to `max` elements equal to `wanted`, from one end on.
    pub(super) fn remove_equal(&mut self, end: End, wanted: Element<'_>, max: usize) -> usize {
        let mut removed = 0;
        // Going backwards, `at` is one above the node to look at.
        let mut at = if end == End::Front {
            0
        } else {
            self.nodes.len()
        };
        while removed < max {
            let current = match end {
                End::Front => at,
                End::Back => at.wrapping_sub(1),
            };
            let before = self.nodes.len();
            removed += match self.nodes.get(current) {
                None => break,
                Some(Node::Packed(_)) => self.edit(current, |pack| {
                    remove_from_pack(pack, end, wanted, max - removed)
                }),
                Some(Node::Plain(element)) if Element::Bytes(element) == wanted => {
                    self.drop_nodes(current..current + 1);
                    1
                }
                Some(Node::Plain(_)) => 0,
            };
            at = match end {
                End::Front if self.nodes.len() < before => at,
                End::Front => at + 1,
                End::Back => current,
            };
        }
        self.len -= removed;
        removed
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        Iter {
            front: Chunk::Plain(None),
            nodes: self.nodes.iter(),
            back: Chunk::Plain(None),
        }
    }

    pub(super) fn iter_from(&self, index: usize) -> Iter<'_> {
        let (at, inner) = self.locate(index);
        let Some(node) = self.nodes.get(at) else {
            return Iter::of_pack(pack::Iter::default());
        };
        let mut front = node.iter();
        if let (Chunk::Packed(rest), Node::Packed(pack)) = (&mut front, node) {
            *rest = pack.iter_from(pack.seek(inner).unwrap_or(pack.end()));
        }
        Iter {
            front,
            nodes: self.nodes.range(at + 1..),
            back: Chunk::Plain(None),
        }
    }

    pub(super) fn iter_to(&self, index: usize) -> Iter<'_> {
        let (at, inner) = self.locate(index);
        let back = match self.nodes.get(at) {
            Some(Node::Packed(pack)) => {
                Chunk::Packed(pack.iter_to(pack.seek(inner).unwrap_or(pack.end())))
            }
            Some(Node::Plain(_)) | None => Chunk::Plain(None),
        };
        Iter {
            front: Chunk::Plain(None),
            nodes: self.nodes.range(..at),
            back,
        }
    }
}

/// Removes up to `max` elements equal to `wanted`, from one end on.
pub(super) fn remove_from_pack(
    pack: &mut Pack,
    end: End,
    wanted: Element<'_>,
    max: usize,
) -> usize {
    let skip = match end {
        End::Front => 0,
        End::Back if max == usize::MAX => 0,
        End::Back => pack
            .iter()
            .filter(|&element| element == wanted)
            .count()
            .saturating_sub(max),
    };
    pack.remove_equal(wanted, skip, max)
}

/// The elements left of one node.
#[derive(Clone)]
enum Chunk<'a> {
    Packed(pack::Iter<'a>),
    Plain(Option<&'a [u8]>),
}

impl<'a> Chunk<'a> {
    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match self {
            Chunk::Packed(rest) => rest.next(),
            Chunk::Plain(element) => element.take().map(Element::Bytes),
        }
    }

    #[inline]
    fn next_back(&mut self) -> Option<Element<'a>> {
        match self {
            Chunk::Packed(rest) => rest.next_back(),
            Chunk::Plain(element) => element.take().map(Element::Bytes),
        }
    }
}

/// The elements of a list or of a stretch of it, from either end.
#[derive(Clone)]
pub struct Iter<'a> {
    front: Chunk<'a>,
    nodes: vec_deque::Iter<'a, Node>,
    back: Chunk<'a>,
}

impl<'a> Iter<'a> {
    pub(super) fn of_pack(elements: pack::Iter<'a>) -> Iter<'a> {
        Iter {
            front: Chunk::Packed(elements),
            nodes: vec_deque::Iter::default(),
            back: Chunk::Plain(None),
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        loop {
            if let Some(element) = self.front.next() {
                return Some(element);
            }
            match self.nodes.next() {
                Some(node) => self.front = node.iter(),
                None => return self.back.next(),
            }
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(element) = self.back.next_back() {
                return Some(element);
            }
            match self.nodes.next_back() {
                Some(node) => self.back = node.iter(),
                None => return self.front.next_back(),
            }
        }
    }
}
