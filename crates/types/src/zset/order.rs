//! The order of a large sorted set: a counted B+tree over (score, member). Must not know where a
//! member's bytes are: whoever searches brings the comparison, the tree stores handles.
//!
//! Leaves hold up to [`LEAF_ITEMS`] items as two arrays, scores and handles, so that a search reads
//! scores only and looks at a member just where scores are equal. Above them, each child is listed
//! with its first item and its number of items: the first finds a place by score, the second finds
//! a rank. All leaves are equally deep, and there are no links between them: an iterator that comes
//! to the end of a leaf descends again by rank, which costs less than a nanosecond per item and
//! leaves nothing to keep consistent.
//!
//! A search is a predicate `before(score, handle)`, true for all items before some place and false
//! from there on. Score ranges, lexical ranges and exact items are all searched by it.
//!
//! Memory: an item takes 12 bytes. A full leaf first fills up a neighbour, and splits off a nearly
//! empty leaf where items arrive in order, so that leaves are 75 to 100 % full, not 50 to 100 %.

use super::members::Handle;

/// Items of a leaf: 760 bytes, an allocation class of the usual allocators.
const LEAF_ITEMS: usize = 63;
/// Children of an inner node.
const FANOUT: usize = 32;
/// Nodes with fewer items or children than this part of their room look for a neighbour to merge with.
const SPARSE_DIVISOR: usize = 4;

/// Items in their order.
#[derive(Clone)]
pub(super) struct Order {
    root: Node,
    len: usize,
    nodes: NodeCount,
}

#[derive(Clone)]
enum Node {
    Leaf(Box<Leaf>),
    Inner(Vec<Child>),
}

#[derive(Clone)]
struct Child {
    /// Its first item.
    first: Item,
    /// Items in all leaves below.
    count: u32,
    node: Node,
}

#[derive(Clone, Copy)]
struct Item {
    score: f64,
    handle: Handle,
}

#[derive(Clone)]
pub(super) struct Leaf {
    len: u32,
    handles: [Handle; LEAF_ITEMS],
    scores: [f64; LEAF_ITEMS],
}

#[derive(Clone, Copy, Default)]
struct NodeCount {
    leaves: usize,
    inners: usize,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            root: Node::Leaf(Leaf::empty()),
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
        let mut level: Vec<Child> = Vec::new();
        let mut leaf = Leaf::empty();
        for (score, handle) in items {
            if leaf.is_full() {
                let full = std::mem::replace(&mut leaf, Leaf::empty());
                level.push(Child::of(Node::Leaf(full)));
            }
            leaf.insert(leaf.len(), Item { score, handle });
        }
        level.push(Child::of(Node::Leaf(leaf)));
        nodes.leaves = level.len();
        while level.len() > 1 {
            let mut above = Vec::with_capacity(level.len().div_ceil(FANOUT));
            let mut below = level.into_iter().peekable();
            while below.peek().is_some() {
                let mut children = new_children();
                children.extend(below.by_ref().take(FANOUT));
                above.push(Child::of(Node::Inner(children)));
            }
            nodes.inners += above.len();
            level = above;
        }
        let root = level.pop().map(|child| (child.count, child.node));
        let (len, root) = root.unwrap_or((0, Node::Leaf(Leaf::empty())));
        Order {
            root,
            len: len as usize,
            nodes,
        }
    }

    /// Items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Allocations.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.leaves + self.nodes.inners
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.leaves * size_of::<Leaf>() + self.nodes.inners * FANOUT * size_of::<Child>()
    }

    /// The number of items for which `before` is true: the rank of the first for which it is not.
    #[inline]
    pub(super) fn rank_where(&self, before: impl Fn(f64, Handle) -> bool) -> usize {
        let mut node = &self.root;
        let mut rank = 0;
        loop {
            match node {
                Node::Leaf(leaf) => return rank + leaf.search(&before),
                Node::Inner(children) => {
                    let i = search_children(children, &before);
                    rank += count_items(&children[..i]);
                    node = &children[i].node;
                }
            }
        }
    }

    /// The leaf with the item of this rank, and the item's place in it. The rank must be below `len`.
    #[inline]
    pub(super) fn leaf_at(&self, mut rank: usize) -> (&Leaf, usize) {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return (leaf, rank),
                Node::Inner(children) => {
                    let i = child_of_rank(children, &mut rank);
                    node = &children[i].node;
                }
            }
        }
    }

    /// The item of this rank.
    #[inline]
    pub(super) fn get(&self, rank: usize) -> Option<(f64, Handle)> {
        if rank >= self.len {
            return None;
        }
        let (leaf, at) = self.leaf_at(rank);
        leaf.get(at)
    }

    /// Puts an item at the place that `before` says.
    pub(super) fn insert(
        &mut self,
        score: f64,
        handle: Handle,
        before: impl Fn(f64, Handle) -> bool,
    ) {
        let item = Item { score, handle };
        self.len += 1;
        if self.root.is_full() {
            let mut children = new_children();
            let below = std::mem::replace(&mut self.root, Node::Inner(Vec::new()));
            children.push(Child::of(below));
            self.root = Node::Inner(children);
            self.nodes.inners += 1;
        }
        let mut edge = Edge {
            first: true,
            last: true,
        };
        let mut node = &mut self.root;
        loop {
            let children = match node {
                Node::Leaf(leaf) => return leaf.insert(leaf.search(&before), item),
                Node::Inner(children) => children,
            };
            let mut i = search_children(children, &before);
            if children[i].node.is_full() {
                make_room(children, i, edge, &before, &mut self.nodes);
                i = search_children(children, &before);
            }
            edge.first &= i == 0;
            edge.last &= i + 1 == children.len();
            let child = &mut children[i];
            child.count += 1;
            if !before(child.first.score, child.first.handle) {
                child.first = item;
            }
            node = &mut child.node;
        }
    }

    /// Takes out items from a rank on, as many as are in the same leaf and at most `count`, tells
    /// `gone` of each, and says how many there were.
    pub(super) fn remove_run(
        &mut self,
        rank: usize,
        count: usize,
        mut gone: impl FnMut(Handle),
    ) -> usize {
        if rank >= self.len {
            return 0;
        }
        let removed = self
            .root
            .remove_run(rank, count, &mut gone, &mut self.nodes);
        self.len -= removed;
        while let Node::Inner(children) = &mut self.root {
            match children.pop() {
                Some(only) if children.is_empty() => self.root = only.node,
                Some(last) => {
                    children.push(last);
                    break;
                }
                None => {
                    self.root = Node::Leaf(Leaf::empty());
                    self.nodes.leaves += 1;
                }
            }
            self.nodes.inners -= 1;
        }
        removed
    }

    /// Gives the item of this rank another handle to the same member.
    pub(super) fn replace_handle(&mut self, mut rank: usize, handle: Handle) {
        let mut node = &mut self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.handles[rank] = handle,
                Node::Inner(children) => {
                    let i = child_of_rank(children, &mut rank);
                    if rank == 0 {
                        children[i].first.handle = handle;
                    }
                    node = &mut children[i].node;
                }
            }
        }
    }
}

/// Whether a node is the first or the last one of its level.
#[derive(Clone, Copy)]
struct Edge {
    first: bool,
    last: bool,
}

impl Node {
    fn is_full(&self) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.is_full(),
            Node::Inner(children) => children.len() == FANOUT,
        }
    }

    /// The first item; the node must not be empty.
    fn first(&self) -> Item {
        match self {
            Node::Leaf(leaf) => leaf.item(0),
            Node::Inner(children) => children[0].first,
        }
    }

    fn count(&self) -> u32 {
        match self {
            Node::Leaf(leaf) => leaf.len,
            Node::Inner(children) => count_items(children) as u32,
        }
    }

    fn remove_run(
        &mut self,
        mut rank: usize,
        count: usize,
        gone: &mut impl FnMut(Handle),
        nodes: &mut NodeCount,
    ) -> usize {
        let children = match self {
            Node::Leaf(leaf) => return leaf.remove_run(rank, count, gone),
            Node::Inner(children) => children,
        };
        let i = child_of_rank(children, &mut rank);
        let child = &mut children[i];
        let removed = child.node.remove_run(rank, count, gone, nodes);
        child.count -= removed as u32;
        if child.count == 0 {
            nodes.forget(&child.node);
            children.remove(i);
        } else {
            child.first = child.node.first();
            merge_if_sparse(children, i, nodes);
        }
        removed
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

impl Child {
    /// Describes a node. Only an empty tree's leaf has no first item.
    fn of(node: Node) -> Child {
        let count = node.count();
        let first = if count > 0 {
            node.first()
        } else {
            Item {
                score: 0.0,
                handle: Handle::default(),
            }
        };
        Child { first, count, node }
    }

    fn describe(&mut self) {
        self.count = self.node.count();
        self.first = self.node.first();
    }
}

fn new_children() -> Vec<Child> {
    Vec::with_capacity(FANOUT)
}

fn count_items(children: &[Child]) -> usize {
    children.iter().map(|child| child.count as usize).sum()
}

/// The child in which the place is: the last one whose first item is before it.
#[inline]
fn search_children(children: &[Child], before: &impl Fn(f64, Handle) -> bool) -> usize {
    let after = children.partition_point(|child| before(child.first.score, child.first.handle));
    after.saturating_sub(1)
}

/// The child with the item of this rank; leaves the rank within the child.
#[inline]
fn child_of_rank(children: &[Child], rank: &mut usize) -> usize {
    let last = children.len() - 1;
    for (i, child) in children[..last].iter().enumerate() {
        if *rank < child.count as usize {
            return i;
        }
        *rank -= child.count as usize;
    }
    last
}

/// Makes room for one more in child `i`, which is full, by moving items to a neighbour or splitting.
#[cold]
fn make_room(
    children: &mut Vec<Child>,
    i: usize,
    edge: Edge,
    before: &impl Fn(f64, Handle) -> bool,
    nodes: &mut NodeCount,
) {
    let is_first = edge.first && i == 0;
    let is_last = edge.last && i + 1 == children.len();
    let split = match &mut children[i].node {
        Node::Inner(inner) => {
            // On the edges, expect more of what comes in order.
            let at = match (is_first, is_last) {
                (_, true) => FANOUT - 2,
                (true, _) => 2,
                _ => FANOUT / 2,
            };
            let mut behind = new_children();
            behind.extend(inner.drain(at..));
            nodes.inners += 1;
            Node::Inner(behind)
        }
        Node::Leaf(leaf) => {
            let at = if is_last && leaf.search(before) == LEAF_ITEMS {
                LEAF_ITEMS - 1
            } else if is_first && leaf.search(before) == 0 {
                1
            } else if balance_with_neighbour(children, i) {
                return;
            } else {
                LEAF_ITEMS / 2
            };
            let Node::Leaf(leaf) = &mut children[i].node else {
                return;
            };
            nodes.leaves += 1;
            Node::Leaf(leaf.split_off(at))
        }
    };
    children[i].describe();
    children.insert(i + 1, Child::of(split));
}

/// Evens out leaf `i` and a neighbour that has room worth it: whether there is one.
fn balance_with_neighbour(children: &mut [Child], i: usize) -> bool {
    let has_room = |child: Option<&Child>| {
        child.is_some_and(|child| child.count as usize <= LEAF_ITEMS - LEAF_ITEMS / 8)
    };
    let left = if i > 0 && has_room(children.get(i - 1)) {
        i - 1
    } else if has_room(children.get(i + 1)) {
        i
    } else {
        return false;
    };
    let [a, b] = &mut children[left..left + 2] else {
        return false;
    };
    if let (Node::Leaf(leaf_a), Node::Leaf(leaf_b)) = (&mut a.node, &mut b.node) {
        leaf_a.balance(leaf_b);
    }
    a.describe();
    b.describe();
    true
}

/// Merges child `i` with a neighbour if it is sparse and the result leaves room to grow.
fn merge_if_sparse(children: &mut Vec<Child>, i: usize, nodes: &mut NodeCount) {
    let fill = |child: &Child| match &child.node {
        Node::Leaf(leaf) => (leaf.len(), LEAF_ITEMS),
        Node::Inner(children) => (children.len(), FANOUT),
    };
    let (size, room) = fill(&children[i]);
    if size >= room / SPARSE_DIVISOR {
        return;
    }
    let fits = |other: Option<&Child>| {
        other.is_some_and(|other| size + fill(other).0 <= room - room / SPARSE_DIVISOR)
    };
    let left = if i > 0 && fits(children.get(i - 1)) {
        i - 1
    } else if fits(children.get(i + 1)) {
        i
    } else {
        return;
    };
    let right = children.remove(left + 1);
    nodes.forget(&right.node);
    match (&mut children[left].node, right.node) {
        (Node::Leaf(leaf), Node::Leaf(other)) => leaf.append(&other),
        (Node::Inner(inner), Node::Inner(mut other)) => inner.append(&mut other),
        // All children of a node are of one kind.
        _ => {}
    }
    children[left].describe();
}

impl Leaf {
    fn empty() -> Box<Leaf> {
        Box::new(Leaf {
            len: 0,
            handles: [Handle::default(); LEAF_ITEMS],
            scores: [0.0; LEAF_ITEMS],
        })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<(f64, Handle)> {
        (at < self.len()).then(|| (self.scores[at], self.handles[at]))
    }

    fn item(&self, at: usize) -> Item {
        Item {
            score: self.scores[at],
            handle: self.handles[at],
        }
    }

    fn is_full(&self) -> bool {
        self.len() == LEAF_ITEMS
    }

    /// The number of items for which `before` is true.
    #[inline]
    fn search(&self, before: &impl Fn(f64, Handle) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if before(self.scores[middle], self.handles[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn insert(&mut self, at: usize, item: Item) {
        let len = self.len();
        self.scores.copy_within(at..len, at + 1);
        self.handles.copy_within(at..len, at + 1);
        self.scores[at] = item.score;
        self.handles[at] = item.handle;
        self.len += 1;
    }

    fn remove_run(&mut self, at: usize, count: usize, gone: &mut impl FnMut(Handle)) -> usize {
        let len = self.len();
        let end = len.min(at.saturating_add(count));
        self.handles[at..end]
            .iter()
            .for_each(|&handle| gone(handle));
        self.scores.copy_within(end..len, at);
        self.handles.copy_within(end..len, at);
        self.len -= (end - at) as u32;
        end - at
    }

    /// Adds the items of a leaf behind this one. There must be room.
    fn append(&mut self, other: &Leaf) {
        let (start, count) = (self.len(), other.len());
        self.scores[start..start + count].copy_from_slice(&other.scores[..count]);
        self.handles[start..start + count].copy_from_slice(&other.handles[..count]);
        self.len += other.len;
    }

    fn split_off(&mut self, at: usize) -> Box<Leaf> {
        let mut behind = Leaf::empty();
        let count = self.len() - at;
        behind.scores[..count].copy_from_slice(&self.scores[at..at + count]);
        behind.handles[..count].copy_from_slice(&self.handles[at..at + count]);
        behind.len = count as u32;
        self.len = at as u32;
        behind
    }

    /// Evens out with the leaf behind this one.
    fn balance(&mut self, behind: &mut Leaf) {
        let (len, other) = (self.len(), behind.len());
        let half = (len + other) / 2;
        if half < len {
            let tail = self.split_off(half);
            let moved = tail.len();
            behind.scores.copy_within(..other, moved);
            behind.handles.copy_within(..other, moved);
            behind.scores[..moved].copy_from_slice(&tail.scores[..moved]);
            behind.handles[..moved].copy_from_slice(&tail.handles[..moved]);
            behind.len += tail.len;
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
            fn below(node: &Node, out: &mut Vec<(f64, u32)>, nodes: &mut NodeCount) -> usize {
                match node {
                    Node::Leaf(leaf) => {
                        nodes.leaves += 1;
                        out.extend((0..leaf.len()).map(|i| (leaf.scores[i], leaf.handles[i].0)));
                        0
                    }
                    Node::Inner(children) => {
                        nodes.inners += 1;
                        assert_eq!(children.capacity(), FANOUT);
                        let mut depths = Vec::new();
                        for child in children {
                            let start = out.len();
                            depths.push(below(&child.node, out, nodes));
                            assert_eq!(out.len() - start, child.count as usize);
                            assert_eq!(out[start], (child.first.score, child.first.handle.0));
                        }
                        assert!(depths.iter().all(|depth| *depth == depths[0]));
                        depths[0] + 1
                    }
                }
            }
            let (mut all, mut nodes) = (Vec::new(), NodeCount::default());
            below(&self.root, &mut all, &mut nodes);
            assert_eq!(all.len(), self.len);
            assert!(all.is_sorted());
            assert_eq!(
                (nodes.leaves, nodes.inners),
                (self.nodes.leaves, self.nodes.inners)
            );
        }

        fn fill(&self) -> f64 {
            self.len as f64 / (self.nodes.leaves * LEAF_ITEMS) as f64
        }

        fn add(&mut self, score: f64, handle: u32) {
            self.insert(score, Handle(handle), |s, h| (s, h.0) < (score, handle));
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
                assert_eq!(order.rank_where(|s, _| s < score), expected);
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
