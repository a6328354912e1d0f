//! The order of a large sorted set: a counted B+tree over (score, member). Must not know where a member's bytes are:
//! the caller of a search brings the comparison, the tree stores handles.
//!
//! A leaf holds up to [`WIDTH`] items as two arrays, scores and handles. An inner node has the same
//! two arrays for the first items of its children, and a third one for the numbers of items in them:
//! first items find a place, numbers find a rank. All leaves are equally deep, and there are no links
//! between them: an iterator that comes to the end of a leaf descends again by rank, which costs less
//! than a nanosecond per item and leaves nothing to keep consistent.
//!
//! The cost is waiting for memory. So a node is searched by comparing all its scores at once, in lines that are fetched
//! side by side, not by halving, where each step waits for the one before. Members are looked at just where scores are
//! equal.
//!
//! Memory: an item takes 12 bytes. A full leaf first fills up a neighbour, and splits off a nearly
//! empty leaf where items arrive in order, so that leaves are 75 to 100 % full, not 50 to 100 %.

use super::members::Handle;
use std::ops::Range;

/// Items of a leaf, and children of an inner node. Both make allocations that just fit into a class
/// of the usual allocators (768 and 1,536 bytes).
const WIDTH: usize = 63;
/// A node below this looks for a neighbour to merge with.
const SPARSE: usize = WIDTH / 4;
/// Merging may fill a node up to this.
const MERGED_MAX: usize = WIDTH * 3 / 4;
/// A leaf up to this takes items from a full neighbour.
const ROOMY: usize = WIDTH - WIDTH / 8;

/// Items in their order.
#[derive(Clone)]
pub(super) struct Order {
    root: Node,
    len: usize,
    nodes: NodeCount,
}

#[derive(Clone)]
enum Node {
    Leaf(Box<Items>),
    Inner(Box<Inner>),
}

#[derive(Clone)]
struct Inner {
    /// The first item below each child.
    firsts: Items,
    /// The number of items below each child.
    counts: [u32; WIDTH],
    children: Children,
}

#[derive(Clone)]
enum Children {
    Leaves(Slots<Items>),
    Inners(Slots<Inner>),
}

/// Boxes, as many in front as there are children.
#[derive(Clone)]
struct Slots<T>([Option<Box<T>>; WIDTH]);

/// Items side by side: a leaf.
#[derive(Clone)]
pub(super) struct Items {
    len: u32,
    handles: [Handle; WIDTH],
    scores: [f64; WIDTH],
}

#[derive(Clone, Copy, Default)]
struct Item {
    score: f64,
    handle: Handle,
}

#[derive(Clone, Copy, Default)]
struct NodeCount {
    leaves: usize,
    inners: usize,
}

/// A place between items: the function says of all items before it, and of none behind it, that they are before it.
pub(super) trait Place {
    /// Returns how many of these items are before the place.
    fn count_before(&self, scores: &[f64], handles: &[Handle]) -> usize;
}

/// The place behind all lower scores and those items of the same score for which the function returns true.
pub(super) struct ByScore<F>(pub(super) f64, pub(super) F);

/// The place behind all items for which the function returns true.
pub(super) struct ByHandle<F>(pub(super) F);

impl<F: Fn(Handle) -> bool> Place for ByScore<F> {
    #[inline]
    fn count_before(&self, scores: &[f64], handles: &[Handle]) -> usize {
        let ByScore(score, is_before) = self;
        let lower = count(scores, |other| other < *score);
        match scores.get(lower) {
            Some(other) if other == score => {
                let same = count(&scores[lower..], |other| other == *score);
                let same = &handles[lower..lower + same];
                lower + same.partition_point(|handle| is_before(*handle))
            }
            _ => lower,
        }
    }
}

impl<F: Fn(Handle) -> bool> Place for ByHandle<F> {
    fn count_before(&self, _: &[f64], handles: &[Handle]) -> usize {
        handles.partition_point(|handle| self.0(*handle))
    }
}

/// Counts without branches, so that several scores are compared at once.
#[inline]
fn count(scores: &[f64], is_counted: impl Fn(f64) -> bool) -> usize {
    scores
        .iter()
        .map(|score| u64::from(is_counted(*score)))
        .sum::<u64>() as usize
}

impl Default for Order {
    fn default() -> Order {
        Order {
            root: Node::Leaf(Box::new(Items::EMPTY)),
            len: 0,
            nodes: NodeCount {
                leaves: 1,
                inners: 0,
            },
        }
    }
}

impl Order {
    /// Builds the tree of items that come in order.
    pub(super) fn from_sorted(items: impl Iterator<Item = (f64, Handle)>) -> Order {
        let mut nodes = NodeCount::default();
        let mut level = Vec::new();
        let mut leaf = Box::new(Items::EMPTY);
        for (score, handle) in items {
            if leaf.is_full() {
                let full = std::mem::replace(&mut leaf, Box::new(Items::EMPTY));
                level.push(Node::Leaf(full));
            }
            leaf.insert(leaf.len(), Item { score, handle });
        }
        level.push(Node::Leaf(leaf));
        nodes.leaves = level.len();
        while level.len() > 1 {
            let mut above = Vec::with_capacity(level.len().div_ceil(WIDTH));
            let mut below = level.into_iter();
            while let Some(first) = below.next() {
                let mut inner = Inner::above(first);
                below
                    .by_ref()
                    .take(WIDTH - 1)
                    .for_each(|node| inner.push(node));
                above.push(Node::Inner(inner));
            }
            nodes.inners += above.len();
            level = above;
        }
        let root = level.pop();
        let root = root.unwrap_or_else(|| Node::Leaf(Box::new(Items::EMPTY)));
        let len = root.count() as usize;
        Order { root, len, nodes }
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of allocations.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.leaves + self.nodes.inners
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.leaves * size_of::<Items>() + self.nodes.inners * size_of::<Inner>()
    }

    /// Returns the number of items before a place: the rank of the first one behind it.
    #[inline]
    pub(super) fn rank(&self, place: &impl Place) -> usize {
        let mut node = self.root.as_ref();
        let mut rank = 0;
        loop {
            match node {
                NodeRef::Leaf(leaf) => return rank + leaf.count_before(place),
                NodeRef::Inner(inner) => {
                    let i = inner.child_before(place);
                    rank += sum(&inner.counts[..i]);
                    node = inner.child(i);
                }
            }
        }
    }

    /// Returns the leaf with the item of this rank, and the item's index in it. The rank must be below `len`.
    #[inline]
    pub(super) fn leaf_at(&self, mut rank: usize) -> (&Items, usize) {
        let mut node = self.root.as_ref();
        loop {
            match node {
                NodeRef::Leaf(leaf) => return (leaf, rank),
                NodeRef::Inner(inner) => node = inner.child(inner.child_of_rank(&mut rank)),
            }
        }
    }

    /// Returns the item of this rank.
    #[inline]
    pub(super) fn get(&self, rank: usize) -> Option<(f64, Handle)> {
        if rank >= self.len {
            return None;
        }
        let (leaf, index) = self.leaf_at(rank);
        leaf.get(index)
    }

    /// Puts an item at a place.
    pub(super) fn insert(&mut self, score: f64, handle: Handle, place: &impl Place) {
        let item = Item { score, handle };
        self.len += 1;
        if self.root.is_full() {
            let old = std::mem::replace(&mut self.root, Node::Leaf(Box::new(Items::EMPTY)));
            self.root = Node::Inner(Inner::above(old));
            self.nodes.inners += 1;
        }
        let mut inner = match &mut self.root {
            Node::Leaf(leaf) => return leaf.insert(leaf.count_before(place), item),
            Node::Inner(inner) => inner.as_mut(),
        };
        let mut edge = Edge {
            first: true,
            last: true,
        };
        loop {
            let mut i = inner.child_before(place);
            if inner.is_child_full(i) {
                inner.make_room(i, edge, place, &mut self.nodes);
                i = inner.child_before(place);
            }
            edge.first &= i == 0;
            edge.last &= i + 1 == inner.len();
            inner.counts[i] += 1;
            if i == 0
                && place.count_before(&inner.firsts.scores[..1], &inner.firsts.handles[..1]) == 0
            {
                inner.firsts.set(0, item);
            }
            inner = match &mut inner.children {
                Children::Leaves(leaves) => {
                    let leaf = leaves.get_mut(i);
                    return leaf.insert(leaf.count_before(place), item);
                }
                Children::Inners(inners) => inners.get_mut(i),
            };
        }
    }

    /// Removes the last item before a place.
    pub(super) fn remove_before(&mut self, place: &impl Place) {
        self.remove(&mut Before(place), &mut |_| {});
    }

    /// Removes items from a rank on, as many as are in the same leaf and at most `count`, calls `gone` with each, and
    /// returns how many there were.
    pub(super) fn remove_run(
        &mut self,
        rank: usize,
        count: usize,
        mut gone: impl FnMut(Handle),
    ) -> usize {
        if rank >= self.len {
            return 0;
        }
        self.remove(&mut Run { rank, count }, &mut gone)
    }

    fn remove(&mut self, target: &mut impl Target, gone: &mut impl FnMut(Handle)) -> usize {
        let removed = match &mut self.root {
            Node::Leaf(leaf) => {
                let range = target.items(leaf);
                leaf.remove(range, gone)
            }
            Node::Inner(inner) => inner.remove(target, gone, &mut self.nodes),
        };
        self.len -= removed;
        while let Node::Inner(inner) = &mut self.root {
            if inner.len() > 1 {
                break;
            }
            let only = (inner.len() == 1).then(|| inner.remove_child(0));
            if only.is_none() {
                self.nodes.leaves += 1;
            }
            self.root = only.unwrap_or_else(|| Node::Leaf(Box::new(Items::EMPTY)));
            self.nodes.inners -= 1;
        }
        removed
    }

    /// Gives the item of this rank another handle to the same member.
    pub(super) fn replace_handle(&mut self, mut rank: usize, handle: Handle) {
        let mut inner = match &mut self.root {
            Node::Leaf(leaf) => return leaf.handles[rank] = handle,
            Node::Inner(inner) => inner.as_mut(),
        };
        loop {
            let i = inner.child_of_rank(&mut rank);
            if rank == 0 {
                inner.firsts.handles[i] = handle;
            }
            inner = match &mut inner.children {
                Children::Leaves(leaves) => return leaves.get_mut(i).handles[rank] = handle,
                Children::Inners(inners) => inners.get_mut(i),
            };
        }
    }
}

/// The items to remove.
trait Target {
    /// Returns the child that they are in.
    fn child(&mut self, inner: &Inner) -> usize;
    /// Returns their indices in their leaf.
    fn items(&mut self, leaf: &Items) -> Range<usize>;
}

/// The last item before a place.
struct Before<'a, P>(&'a P);

impl<P: Place> Target for Before<'_, P> {
    fn child(&mut self, inner: &Inner) -> usize {
        inner.child_before(self.0)
    }

    fn items(&mut self, leaf: &Items) -> Range<usize> {
        let end = leaf.count_before(self.0);
        end.saturating_sub(1)..end
    }
}

/// Items from a rank on.
struct Run {
    rank: usize,
    count: usize,
}

impl Target for Run {
    fn child(&mut self, inner: &Inner) -> usize {
        inner.child_of_rank(&mut self.rank)
    }

    fn items(&mut self, leaf: &Items) -> Range<usize> {
        self.rank..leaf.len().min(self.rank.saturating_add(self.count))
    }
}

/// Flags that are set if a node is the first or the last one of its level.
#[derive(Clone, Copy)]
struct Edge {
    first: bool,
    last: bool,
}

enum NodeRef<'a> {
    Leaf(&'a Items),
    Inner(&'a Inner),
}

impl Node {
    #[inline]
    fn as_ref(&self) -> NodeRef<'_> {
        match self {
            Node::Leaf(leaf) => NodeRef::Leaf(leaf),
            Node::Inner(inner) => NodeRef::Inner(inner),
        }
    }

    fn is_full(&self) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.is_full(),
            Node::Inner(inner) => inner.firsts.is_full(),
        }
    }

    fn first(&self) -> Item {
        match self {
            Node::Leaf(leaf) => leaf.item(0),
            Node::Inner(inner) => inner.firsts.item(0),
        }
    }

    fn count(&self) -> u32 {
        match self {
            Node::Leaf(leaf) => leaf.len,
            Node::Inner(inner) => sum(&inner.counts[..inner.len()]) as u32,
        }
    }
}

#[inline]
fn sum(counts: &[u32]) -> usize {
    // Handles are 32 bits wide, so the number of items is too.
    counts.iter().sum::<u32>() as usize
}

impl Inner {
    /// Returns a node with one child.
    fn above(child: Node) -> Box<Inner> {
        let children = match child {
            Node::Leaf(_) => Children::Leaves(Slots::empty()),
            Node::Inner(_) => Children::Inners(Slots::empty()),
        };
        let mut inner = Box::new(Inner {
            firsts: Items::EMPTY,
            counts: [0; WIDTH],
            children,
        });
        inner.push(child);
        inner
    }

    fn len(&self) -> usize {
        self.firsts.len()
    }

    #[inline]
    fn child(&self, i: usize) -> NodeRef<'_> {
        match &self.children {
            Children::Leaves(leaves) => NodeRef::Leaf(leaves.get(i)),
            Children::Inners(inners) => NodeRef::Inner(inners.get(i)),
        }
    }

    fn is_child_full(&self, i: usize) -> bool {
        match &self.children {
            Children::Leaves(_) => self.counts[i] as usize == WIDTH,
            Children::Inners(inners) => inners.get(i).firsts.is_full(),
        }
    }

    /// Returns the child in which a place is: the last one whose first item is before it.
    #[inline]
    fn child_before(&self, place: &impl Place) -> usize {
        self.firsts.count_before(place).saturating_sub(1)
    }

    /// Returns the child with the item of this rank; leaves the rank within the child.
    #[inline]
    fn child_of_rank(&self, rank: &mut usize) -> usize {
        let last = self.len() - 1;
        for (i, count) in self.counts[..last].iter().enumerate() {
            if *rank < *count as usize {
                return i;
            }
            *rank -= *count as usize;
        }
        last
    }

    fn push(&mut self, child: Node) {
        self.insert_child(self.len(), child);
    }

    fn insert_child(&mut self, i: usize, child: Node) {
        let len = self.len();
        self.counts.copy_within(i..len, i + 1);
        self.counts[i] = child.count();
        // Only an empty tree's leaf has no first item, and it has no node above.
        self.firsts.insert(i, child.first());
        match (&mut self.children, child) {
            (Children::Leaves(leaves), Node::Leaf(leaf)) => leaves.insert(i, len, leaf),
            (Children::Inners(inners), Node::Inner(inner)) => inners.insert(i, len, inner),
            _ => unreachable!("children are of one kind"),
        }
    }

    fn remove_child(&mut self, i: usize) -> Node {
        let len = self.len();
        self.counts.copy_within(i + 1..len, i);
        self.firsts.remove(i..i + 1, &mut |_| {});
        match &mut self.children {
            Children::Leaves(leaves) => Node::Leaf(leaves.remove(i, len)),
            Children::Inners(inners) => Node::Inner(inners.remove(i, len)),
        }
    }

    /// Sets first item and number of a child whose content has changed.
    fn describe(&mut self, i: usize) {
        let (first, count) = match self.child(i) {
            NodeRef::Leaf(leaf) => (leaf.item(0), leaf.len),
            NodeRef::Inner(inner) => {
                let count = sum(&inner.counts[..inner.len()]) as u32;
                (inner.firsts.item(0), count)
            }
        };
        self.firsts.set(i, first);
        self.counts[i] = count;
    }

    fn split_off(&mut self, at: usize) -> Box<Inner> {
        let len = self.len();
        let firsts = *self.firsts.split_off(at);
        let mut counts = [0; WIDTH];
        counts[..len - at].copy_from_slice(&self.counts[at..len]);
        let children = match &mut self.children {
            Children::Leaves(leaves) => Children::Leaves(leaves.split_off(at, len)),
            Children::Inners(inners) => Children::Inners(inners.split_off(at, len)),
        };
        Box::new(Inner {
            firsts,
            counts,
            children,
        })
    }

    fn append(&mut self, mut other: Inner) {
        let (len, count) = (self.len(), other.len());
        self.firsts.append(&other.firsts);
        self.counts[len..len + count].copy_from_slice(&other.counts[..count]);
        match (&mut self.children, &mut other.children) {
            (Children::Leaves(a), Children::Leaves(b)) => a.append(len, b, count),
            (Children::Inners(a), Children::Inners(b)) => a.append(len, b, count),
            _ => unreachable!("children are of one kind"),
        }
    }

    /// Makes room for one more in child `i`, which is full, by moving items to a neighbour or splitting.
    #[cold]
    fn make_room(&mut self, i: usize, edge: Edge, place: &impl Place, nodes: &mut NodeCount) {
        let is_first = edge.first && i == 0;
        let is_last = edge.last && i + 1 == self.len();
        let behind = match &mut self.children {
            Children::Inners(inners) => {
                // On the edges, expect more of what comes in order.
                let at = match (is_first, is_last) {
                    (_, true) => WIDTH - 2,
                    (true, _) => 2,
                    _ => WIDTH / 2,
                };
                nodes.inners += 1;
                Node::Inner(inners.get_mut(i).split_off(at))
            }
            Children::Leaves(leaves) => {
                let leaf = leaves.get_mut(i);
                let before = leaf.count_before(place);
                let at = if is_last && before == WIDTH {
                    WIDTH - 1
                } else if is_first && before == 0 {
                    1
                } else {
                    WIDTH / 2
                };
                if at == WIDTH / 2 && self.balance_with_neighbour(i) {
                    return;
                }
                let Children::Leaves(leaves) = &mut self.children else {
                    return;
                };
                nodes.leaves += 1;
                Node::Leaf(leaves.get_mut(i).split_off(at))
            }
        };
        self.describe(i);
        self.insert_child(i + 1, behind);
    }

    /// Evens out leaf `i` and a neighbour that has room worth it; returns true if there is one.
    fn balance_with_neighbour(&mut self, i: usize) -> bool {
        let counts = &self.counts[..self.len()];
        let is_roomy = |i: usize| counts.get(i).is_some_and(|count| *count as usize <= ROOMY);
        let left = if i > 0 && is_roomy(i - 1) {
            i - 1
        } else if is_roomy(i + 1) {
            i
        } else {
            return false;
        };
        let Children::Leaves(leaves) = &mut self.children else {
            return false;
        };
        let (a, b) = leaves.pair_mut(left);
        a.balance(b);
        self.describe(left);
        self.describe(left + 1);
        true
    }

    fn remove(
        &mut self,
        target: &mut impl Target,
        gone: &mut impl FnMut(Handle),
        nodes: &mut NodeCount,
    ) -> usize {
        let i = target.child(self);
        let removed = match &mut self.children {
            Children::Leaves(leaves) => {
                let leaf = leaves.get_mut(i);
                let range = target.items(leaf);
                leaf.remove(range, gone)
            }
            Children::Inners(inners) => inners.get_mut(i).remove(target, gone, nodes),
        };
        self.counts[i] -= removed as u32;
        if self.counts[i] == 0 {
            nodes.forget(&self.remove_child(i));
            return removed;
        }
        let (first, size) = match self.child(i) {
            NodeRef::Leaf(leaf) => (leaf.item(0), leaf.len()),
            NodeRef::Inner(inner) => (inner.firsts.item(0), inner.len()),
        };
        self.firsts.set(i, first);
        if size < SPARSE {
            self.merge(i, size, nodes);
        }
        removed
    }

    /// Merges child `i`, which is sparse, with a neighbour if the result leaves room to grow.
    #[cold]
    fn merge(&mut self, i: usize, size: usize, nodes: &mut NodeCount) {
        let fits = |i: usize| {
            let other = match self.child(i) {
                NodeRef::Leaf(leaf) => leaf.len(),
                NodeRef::Inner(inner) => inner.len(),
            };
            size + other <= MERGED_MAX
        };
        let left = if i > 0 && fits(i - 1) {
            i - 1
        } else if i + 1 < self.len() && fits(i + 1) {
            i
        } else {
            return;
        };
        let right = self.remove_child(left + 1);
        nodes.forget(&right);
        match (&mut self.children, right) {
            (Children::Leaves(leaves), Node::Leaf(leaf)) => leaves.get_mut(left).append(&leaf),
            (Children::Inners(inners), Node::Inner(inner)) => inners.get_mut(left).append(*inner),
            _ => unreachable!("children are of one kind"),
        }
        self.describe(left);
    }
}

impl NodeCount {
    fn forget(&mut self, node: &Node) {
        match node {
            Node::Leaf(_) => self.leaves -= 1,
            Node::Inner(_) => self.inners -= 1,
        }
    }
}

impl<T> Slots<T> {
    fn empty() -> Slots<T> {
        Slots([const { None }; WIDTH])
    }

    #[inline]
    fn get(&self, i: usize) -> &T {
        self.0[i]
            .as_deref()
            .expect("a child at each index below len")
    }

    #[inline]
    fn get_mut(&mut self, i: usize) -> &mut T {
        self.0[i]
            .as_deref_mut()
            .expect("a child at each index below len")
    }

    fn pair_mut(&mut self, i: usize) -> (&mut T, &mut T) {
        match &mut self.0[i..i + 2] {
            [Some(a), Some(b)] => (a, b),
            _ => unreachable!("a child at each index below len"),
        }
    }

    fn insert(&mut self, i: usize, len: usize, child: Box<T>) {
        self.0[i..=len].rotate_right(1);
        self.0[i] = Some(child);
    }

    fn remove(&mut self, i: usize, len: usize) -> Box<T> {
        self.0[i..len].rotate_left(1);
        self.0[len - 1]
            .take()
            .expect("a child at each index below len")
    }

    fn split_off(&mut self, at: usize, len: usize) -> Slots<T> {
        let mut behind = Slots::empty();
        behind.0[..len - at].swap_with_slice(&mut self.0[at..len]);
        behind
    }

    fn append(&mut self, len: usize, other: &mut Slots<T>, count: usize) {
        self.0[len..len + count].swap_with_slice(&mut other.0[..count]);
    }
}

impl Items {
    const EMPTY: Items = Items {
        len: 0,
        handles: [Handle(0); WIDTH],
        scores: [0.0; WIDTH],
    };

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn get(&self, i: usize) -> Option<(f64, Handle)> {
        (i < self.len()).then(|| (self.scores[i], self.handles[i]))
    }

    fn item(&self, i: usize) -> Item {
        Item {
            score: self.scores[i],
            handle: self.handles[i],
        }
    }

    fn set(&mut self, i: usize, item: Item) {
        self.scores[i] = item.score;
        self.handles[i] = item.handle;
    }

    fn is_full(&self) -> bool {
        self.len() == WIDTH
    }

    #[inline]
    fn count_before(&self, place: &impl Place) -> usize {
        let len = self.len();
        place.count_before(&self.scores[..len], &self.handles[..len])
    }

    fn insert(&mut self, i: usize, item: Item) {
        let len = self.len();
        self.scores.copy_within(i..len, i + 1);
        self.handles.copy_within(i..len, i + 1);
        self.set(i, item);
        self.len += 1;
    }

    fn remove(&mut self, range: Range<usize>, gone: &mut impl FnMut(Handle)) -> usize {
        let (len, removed) = (self.len(), range.len());
        self.handles[range.clone()]
            .iter()
            .for_each(|handle| gone(*handle));
        self.scores.copy_within(range.end..len, range.start);
        self.handles.copy_within(range.end..len, range.start);
        self.len -= removed as u32;
        removed
    }

    /// Adds the items of a leaf behind this one. There must be room.
    fn append(&mut self, other: &Items) {
        let (start, count) = (self.len(), other.len());
        self.scores[start..start + count].copy_from_slice(&other.scores[..count]);
        self.handles[start..start + count].copy_from_slice(&other.handles[..count]);
        self.len += other.len;
    }

    fn split_off(&mut self, at: usize) -> Box<Items> {
        let mut behind = Box::new(Items::EMPTY);
        let len = self.len();
        behind.scores[..len - at].copy_from_slice(&self.scores[at..len]);
        behind.handles[..len - at].copy_from_slice(&self.handles[at..len]);
        behind.len = (len - at) as u32;
        self.len = at as u32;
        behind
    }

    /// Evens out with the leaf behind this one.
    fn balance(&mut self, behind: &mut Items) {
        let (len, other) = (self.len(), behind.len());
        let half = (len + other) / 2;
        if half < len {
            let mut tail = self.split_off(half);
            tail.append(behind);
            *behind = *tail;
        } else {
            let rest = behind.split_off(half - len);
            self.append(behind);
            *behind = *rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Order {
        /// Checks every count, first item, depth and the order.
        fn check(&self) {
            fn below(node: NodeRef<'_>, out: &mut Vec<(f64, u32)>, nodes: &mut NodeCount) -> usize {
                match node {
                    NodeRef::Leaf(leaf) => {
                        nodes.leaves += 1;
                        out.extend((0..leaf.len()).map(|i| (leaf.scores[i], leaf.handles[i].0)));
                        0
                    }
                    NodeRef::Inner(inner) => {
                        nodes.inners += 1;
                        let mut depths = Vec::new();
                        for i in 0..inner.len() {
                            let start = out.len();
                            depths.push(below(inner.child(i), out, nodes));
                            assert_eq!(out.len() - start, inner.counts[i] as usize);
                            let first = inner.firsts.item(i);
                            assert_eq!(out[start], (first.score, first.handle.0));
                        }
                        assert!(depths.iter().all(|depth| *depth == depths[0]));
                        depths[0] + 1
                    }
                }
            }
            let (mut all, mut nodes) = (Vec::new(), NodeCount::default());
            below(self.root.as_ref(), &mut all, &mut nodes);
            assert_eq!(all.len(), self.len);
            assert!(all.is_sorted());
            assert_eq!(
                (nodes.leaves, nodes.inners),
                (self.nodes.leaves, self.nodes.inners)
            );
        }

        fn fill(&self) -> f64 {
            self.len as f64 / (self.nodes.leaves * WIDTH) as f64
        }

        fn add(&mut self, score: f64, handle: u32) {
            self.insert(
                score,
                Handle(handle),
                &ByScore(score, |h: Handle| h.0 < handle),
            );
        }
    }

    #[test]
    fn random_changes_agree_with_a_sorted_vector() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..30 {
            let mut order = Order::default();
            let mut model: Vec<(f64, u32)> = Vec::new();
            let distinct = [3, 1000, 1_000_000][round % 3];
            for step in 0..3000u32 {
                let growing = step % 1500 < 1000;
                if model.is_empty() || random.u8(..10) < if growing { 8 } else { 2 } {
                    let score = f64::from(random.u32(..distinct));
                    let at = model.partition_point(|item| *item < (score, step));
                    model.insert(at, (score, step));
                    order.add(score, step);
                } else if random.bool() {
                    let (score, handle) = model.remove(random.usize(..model.len()));
                    order.remove_before(&ByScore(score, |h: Handle| h.0 <= handle));
                } else {
                    let start = random.usize(..model.len());
                    let count = random.usize(..if growing { 3 } else { 60 });
                    let mut gone = Vec::new();
                    let removed = order.remove_run(start, count, |handle| gone.push(handle.0));
                    let expected = model.drain(start..start + removed).map(|item| item.1);
                    assert!(expected.eq(gone));
                }
                let rank = random.usize(..model.len() + 1);
                let found = order.get(rank).map(|(score, handle)| (score, handle.0));
                assert_eq!(found, model.get(rank).copied());
                let score = f64::from(random.u32(..distinct));
                let expected = model.partition_point(|item| item.0 < score);
                assert_eq!(order.rank(&ByScore(score, |_| false)), expected);
            }
            order.check();
            let sorted = model.iter().map(|&(score, handle)| (score, Handle(handle)));
            let built = Order::from_sorted(sorted);
            built.check();
            assert!(model.is_empty() || built.get(0).is_some());
            while order.remove_run(0, usize::MAX, |_| {}) > 0 {}
            assert_eq!(order.node_count(), 1);
            order.check();
        }
    }

    #[test]
    fn nodes_just_fit_into_classes_of_allocators() {
        assert_eq!((size_of::<Items>(), size_of::<Inner>()), (760, 1528));
    }

    #[test]
    fn a_handle_is_replaced_wherever_it_is_a_first_item() {
        let mut order = Order::default();
        for i in 0..5000 {
            order.add(f64::from(i), i);
        }
        for rank in 0..5000 {
            order.replace_handle(rank, Handle(rank as u32 + 1_000_000));
        }
        order.check();
        assert_eq!(order.get(4999), Some((4999.0, Handle(1_004_999))));
    }

    #[test]
    fn leaves_are_well_filled() {
        let n = 100_000u32;
        let fill_of = |score: &mut dyn FnMut(u32) -> f64| {
            let mut order = Order::default();
            (0..n).for_each(|i| order.add(score(i), i));
            order.check();
            order.fill()
        };
        let mut random = fastrand::Rng::with_seed(6);
        let ascending = fill_of(&mut |i| f64::from(i));
        let descending = fill_of(&mut |i| -f64::from(i));
        let scattered = fill_of(&mut |_| random.f64());
        assert!(ascending > 0.97, "{ascending}");
        assert!(descending > 0.97, "{descending}");
        assert!(scattered > 0.75, "{scattered}");
    }
}
