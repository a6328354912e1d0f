//! The graph in which near vectors are found: a hierarchical navigable small world (Malkov and Yashunin, "Efficient and
//! robust approximate nearest neighbor search using hierarchical navigable small world graphs", 2016). Must not know
//! elements, names or attributes.
//!
//! A node is on layer 0 and on a random number of further layers, each a quarter as likely as the one below. A search
//! goes greedily down the layers, and in the last one keeps the `ef` nearest nodes seen so far, going on from the
//! nearest whose neighbours it has not looked at, until that one is farther than all it keeps.
//!
//! Three things differ from the paper, and hold at all times (tests look at them after every step: `Graph::check`):
//!
//! - **Links go both ways.** So a node can be removed by looking at its neighbours only.
//! - **Every layer is connected.** A link is given up only where another node is linked with both its ends, so there
//!   stays a way round; and the neighbours of a removed node are linked until there is a way between any two of them.
//!   Therefore a search whose `ef` is not below the number of nodes finds exactly the nearest ones.
//! - **Numbers are dense.** The last node takes the place of a removed one. So a random node is found in constant time,
//!   and a search marks what it has visited in a bitmap.
//!
//! A new node gets up to `m` links on a layer, the first of its nearest that take it; on layer 0 later nodes add as many
//! again. Where no link could be given up a node keeps more, rather than losing its only way to another.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use super::quantize::Stored;

/// The highest layer.
pub const LEVEL_MAX: usize = 16;
/// Bits of a random word for each layer: a pair that is zero takes a node one layer up, so a quarter of the nodes.
const BITS_PER_LAYER: u32 = 2;
/// Number of others that are looked at for each of a removed node's neighbours, when these are linked.
const PAIRS_PER_NEIGHBOUR_MAX: usize = 64;

/// See the head of this file.
pub struct Graph {
    nodes: Vec<Node>,
    dimensions: usize,
    m: usize,
    /// On the highest layer that there is.
    entry: u32,
    /// Of the nodes' vectors and links.
    bytes: usize,
}

#[derive(Clone)]
struct Node {
    vector: Stored,
    base: Vec<u32>,
    upper: Box<[Vec<u32>]>,
}

impl Node {
    fn level(&self) -> usize {
        self.upper.len()
    }

    fn links(&self, layer: usize) -> &[u32] {
        match layer {
            0 => &self.base,
            _ => &self.upper[layer - 1],
        }
    }

    fn links_mut(&mut self, layer: usize) -> &mut Vec<u32> {
        match layer {
            0 => &mut self.base,
            _ => &mut self.upper[layer - 1],
        }
    }

    fn heap_bytes(&self) -> usize {
        let links = self.base.capacity() + self.upper.iter().map(Vec::capacity).sum::<usize>();
        self.vector.heap_bytes() + size_of_val(&*self.upper) + links * size_of::<u32>()
    }
}

impl Clone for Graph {
    fn clone(&self) -> Graph {
        let nodes = self.nodes.clone();
        Graph {
            // A copy has no room to spare.
            bytes: nodes.iter().map(Node::heap_bytes).sum(),
            nodes,
            ..*self
        }
    }
}

/// A node at its distance from the searched vector. Ordered by distance; one that is no number is farther than all
/// else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Near {
    /// See [`Stored::distance`].
    pub distance: f32,
    /// The node's number.
    pub node: u32,
}

impl Eq for Near {}

impl Ord for Near {
    fn cmp(&self, other: &Near) -> Ordering {
        let (a, b) = (self.distance, other.distance);
        a.partial_cmp(&b)
            .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            .then(self.node.cmp(&other.node))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Near) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The nodes that a search may return, and how long it searches.
pub struct Accept<'a> {
    /// Condition on the nodes that may be returned.
    pub admits: &'a mut dyn FnMut(u32) -> bool,
    /// Nodes whose neighbours are looked at, at most.
    pub effort: usize,
}

impl Graph {
    /// Returns a graph without nodes, of vectors with so many components. A node of it has about `m` links on a layer.
    pub fn new(dimensions: usize, m: usize) -> Graph {
        Graph {
            nodes: Vec::new(),
            dimensions,
            m,
            entry: 0,
            bytes: 0,
        }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Components of a vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the `m` of [`Graph::new`].
    pub fn m(&self) -> usize {
        self.m
    }

    /// Links that a node has on a layer, unless it could not give one up.
    pub fn links_max(&self, layer: usize) -> usize {
        if layer == 0 { 2 * self.m } else { self.m }
    }

    /// Returns the highest layer; 0 without nodes.
    pub fn level_max(&self) -> usize {
        match self.nodes.is_empty() {
            true => 0,
            false => self.level(self.entry),
        }
    }

    /// Returns the highest layer that a node is on.
    pub fn level(&self, node: u32) -> usize {
        self.at(node).level()
    }

    /// Returns the vector of a node.
    pub fn vector(&self, node: u32) -> &Stored {
        &self.at(node).vector
    }

    /// Returns the nodes that a node is linked with on a layer that it is on.
    pub fn links(&self, node: u32, layer: usize) -> &[u32] {
        self.at(node).links(layer)
    }

    /// Returns the distance between two nodes.
    pub fn distance(&self, a: u32, b: u32) -> f32 {
        self.vector(a).distance(self.vector(b), self.dimensions)
    }

    /// Returns the number of bytes on the heap. Takes constant time.
    pub fn heap_bytes(&self) -> usize {
        self.bytes + self.nodes.capacity() * size_of::<Node>()
    }

    /// Adds a node, whose number is the number of nodes before. The search for its neighbours keeps `ef` nodes.
    pub fn insert(&mut self, vector: Stored, ef: usize, random: &mut impl FnMut() -> u64) {
        let level = level_by_lot(random);
        let node = self.nodes.len() as u32;
        let (top, mut from) = (self.level_max(), self.entry);
        let mut found = Vec::new();
        if node > 0 {
            for layer in (level + 1..=top).rev() {
                from = self.descend(&vector, from, layer);
            }
            let mut visited = Visited::new(self.len());
            for layer in (0..=level.min(top)).rev() {
                let nearest = self.search_layer(&vector, from, ef, layer, &mut visited, None);
                from = nearest[0].node;
                found.push((layer, nearest));
            }
        }
        let fresh = Node {
            vector,
            base: Vec::new(),
            upper: vec![Vec::new(); level].into(),
        };
        self.bytes += fresh.heap_bytes();
        self.nodes.push(fresh);
        for (layer, nearest) in found {
            self.connect(node, layer, &nearest);
        }
        if node == 0 || level > top {
            self.entry = node;
        }
    }

    /// Removes a node; the last node takes its number.
    pub fn remove(&mut self, node: u32) {
        let level = self.level(node);
        if self.entry == node {
            // Where the layers are connected, the others on a layer include a neighbour.
            let others = (0..=level).rev().find_map(|l| self.links(node, l).first());
            self.entry = others.copied().unwrap_or(0);
        }
        for layer in 0..=level {
            let around = self.links(node, layer).to_vec();
            for &neighbour in &around {
                self.unlink(node, neighbour, layer);
            }
            self.reconnect(&around, layer);
        }
        let last = self.nodes.len() as u32 - 1;
        let gone = self.nodes.swap_remove(node as usize);
        self.bytes -= gone.heap_bytes();
        if last != node {
            self.renumber(last, node);
        }
        if self.nodes.len() * 4 < self.nodes.capacity() {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
    }

    /// Returns the nearest nodes to a vector, nearest first: as many as `ef`, or fewer if `accept` admits fewer. Exact
    /// if `ef` is not below the number of nodes, and `accept` allows the effort.
    pub fn nearest(&self, vector: &Stored, ef: usize, accept: Option<Accept<'_>>) -> Vec<Near> {
        if self.nodes.is_empty() {
            return Vec::new();
        }
        let mut from = self.entry;
        for layer in (1..=self.level_max()).rev() {
            from = self.descend(vector, from, layer);
        }
        let mut visited = Visited::new(self.len());
        self.search_layer(vector, from, ef, 0, &mut visited, accept)
    }

    /// Returns the best result that [`Graph::nearest`] could give, found by looking at every node.
    pub fn nearest_of_all(
        &self,
        vector: &Stored,
        count: usize,
        mut admits: impl FnMut(u32) -> bool,
    ) -> Vec<Near> {
        let mut nearest = BinaryHeap::new();
        for node in 0..self.len() as u32 {
            let near = self.near(vector, node);
            if nearest.len() >= count && nearest.peek().is_none_or(|farthest| near >= *farthest) {
                continue;
            }
            if admits(node) {
                nearest.push(near);
                if nearest.len() > count {
                    nearest.pop();
                }
            }
        }
        nearest.into_sorted_vec()
    }

    fn at(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn at_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn near(&self, vector: &Stored, node: u32) -> Near {
        Near {
            distance: vector.distance(self.vector(node), self.dimensions),
            node,
        }
    }

    // ---- searching ----------------------------------------------------------------------------

    /// Returns the node of a layer that no neighbour is nearer than.
    fn descend(&self, vector: &Stored, from: u32, layer: usize) -> u32 {
        let mut best = self.near(vector, from);
        loop {
            let links = self.links(best.node, layer).iter();
            let nearest = links.map(|&node| self.near(vector, node)).min();
            match nearest {
                Some(nearest) if nearest < best => best = nearest,
                _ => return best.node,
            }
        }
    }

    fn search_layer(
        &self,
        vector: &Stored,
        from: u32,
        ef: usize,
        layer: usize,
        visited: &mut Visited,
        mut accept: Option<Accept<'_>>,
    ) -> Vec<Near> {
        visited.clear();
        visited.insert(from);
        let effort_max = accept.as_ref().map_or(usize::MAX, |accept| accept.effort);
        let (mut effort, mut kept) = (0, BinaryHeap::new());
        let mut admits = |node| accept.as_mut().is_none_or(|accept| (accept.admits)(node));
        let first = self.near(vector, from);
        let mut candidates = BinaryHeap::from([Reverse(first)]);
        if admits(from) {
            kept.push(first);
        }
        while let Some(Reverse(candidate)) = candidates.pop() {
            if kept.len() >= ef && kept.peek().is_some_and(|farthest| candidate > *farthest) {
                break;
            }
            for &node in self.links(candidate.node, layer) {
                if !visited.insert(node) {
                    continue;
                }
                let near = self.near(vector, node);
                let full = kept.len() >= ef;
                if full && kept.peek().is_some_and(|farthest| near >= *farthest) {
                    continue;
                }
                candidates.push(Reverse(near));
                if admits(node) {
                    kept.push(near);
                    if full {
                        kept.pop();
                    }
                }
            }
            effort += 1;
            if effort >= effort_max {
                break;
            }
        }
        kept.into_sorted_vec()
    }

    // ---- linking ------------------------------------------------------------------------------

    /// Links a new node with some of the nearest on a layer: up to `m`, which leaves room for nodes that come later. (With
    /// twice as many on layer 0 fewer of the nearest are found: of 10,000 nodes 97 %, not 98.)
    fn connect(&mut self, node: u32, layer: usize, nearest: &[Near]) {
        let chosen = self.choose(nearest, self.links_max(layer));
        for &near in &chosen {
            if self.links(node, layer).len() == self.m {
                break;
            }
            if self.make_room(near.node, layer, Some(near.distance)) {
                self.link(node, near.node, layer);
            }
        }
        // Too few would take it: then some may be farther from their neighbours than this one.
        let wanted = (self.m / 2).clamp(1, chosen.len());
        for &near in &chosen {
            if self.links(node, layer).len() >= wanted {
                break;
            }
            let linked = self.links(node, layer).contains(&near.node);
            if !linked && self.make_room(near.node, layer, None) {
                self.link(node, near.node, layer);
            }
        }
        if self.links(node, layer).is_empty() {
            self.link(node, chosen[0].node, layer);
        }
    }

    /// Returns up to `count` of these nodes: first those nearer to the place than to any chosen one, so that the links
    /// lead into all directions (the paper's algorithm 4); then the nearest.
    fn choose(&self, nearest: &[Near], count: usize) -> Vec<Near> {
        let (mut chosen, mut passed_over) = (Vec::<Near>::new(), Vec::new());
        for &near in nearest {
            if chosen.len() == count {
                return chosen;
            }
            let apart = chosen
                .iter()
                .all(|other| self.distance(near.node, other.node) > near.distance);
            if apart {
                chosen.push(near);
            } else {
                passed_over.push(near);
            }
        }
        let more = count - chosen.len();
        chosen.extend(passed_over.into_iter().take(more));
        chosen
    }

    /// Makes sure that a node may have one more link, to a node at this distance (`None`: wherever it is). For that it
    /// removes a link to a farther node that it can reach through a common neighbour, the farthest that a common
    /// neighbour is nearer to than itself.
    fn make_room(&mut self, node: u32, layer: usize, distance: Option<f32>) -> bool {
        let links = self.links(node, layer);
        if links.len() < self.links_max(layer) {
            return true;
        }
        let mut around = links.to_vec();
        let near = |&other| Near {
            distance: self.distance(node, other),
            node: other,
        };
        let mut farthest_first: Vec<Near> = around.iter().map(near).collect();
        farthest_first.sort_unstable_by(|a, b| b.cmp(a));
        around.sort_unstable();
        let mut given_up = None;
        for end in farthest_first {
            if distance.is_some_and(|distance| end.distance <= distance) {
                break;
            }
            let others = self.links(end.node, layer).iter().copied();
            let mut common = others.filter(|other| around.binary_search(other).is_ok());
            let Some(first) = common.next() else { continue };
            given_up = given_up.or(Some(end.node));
            let is_nearer = |between| self.distance(between, end.node) < end.distance;
            if is_nearer(first) || common.any(is_nearer) {
                given_up = Some(end.node);
                break;
            }
        }
        if let Some(end) = given_up {
            self.unlink(node, end, layer);
        }
        given_up.is_some()
    }

    /// Makes ways between the former neighbours of a removed node, and gives each a link for the lost one where there is
    /// a near node among them.
    fn reconnect(&mut self, around: &[u32], layer: usize) {
        let mut groups = Groups::new(around);
        for (at, &node) in around.iter().enumerate() {
            for end in self.links(node, layer) {
                if let Some(other) = groups.place_of(*end) {
                    groups.join(at, other);
                }
            }
        }
        let mut pairs = Vec::new();
        for a in 0..around.len() {
            for b in (a + 1..around.len()).take(PAIRS_PER_NEIGHBOUR_MAX) {
                let distance = self.distance(around[a], around[b]);
                let node = b as u32;
                pairs.push((Near { distance, node }, a));
            }
        }
        pairs.sort_unstable();
        let mut has_gained = vec![false; around.len()];
        for (Near { node: b, .. }, a) in pairs {
            let b = b as usize;
            let (from, to) = (around[a], around[b]);
            if groups.join(a, b) {
                // There may be no link to give up: then these nodes get more than usual.
                self.make_room(from, layer, None);
                self.make_room(to, layer, None);
                self.link(from, to, layer);
            } else {
                let has_room = |n| self.links(n, layer).len() < self.links_max(layer);
                let wanted = !has_gained[a] && !has_gained[b] && has_room(from) && has_room(to);
                if !wanted || self.links(from, layer).contains(&to) {
                    continue;
                }
                self.link(from, to, layer);
            }
            has_gained[a] = true;
            has_gained[b] = true;
        }
    }

    fn link(&mut self, a: u32, b: u32, layer: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let links = self.nodes[from as usize].links_mut(layer);
            let before = links.capacity();
            links.push(to);
            self.bytes += (links.capacity() - before) * size_of::<u32>();
        }
    }

    fn unlink(&mut self, a: u32, b: u32, layer: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let links = self.at_mut(from).links_mut(layer);
            if let Some(at) = links.iter().position(|end| *end == to) {
                links.swap_remove(at);
            }
        }
    }

    /// Gives a node whose number has changed the new number in its neighbours' links.
    fn renumber(&mut self, old: u32, new: u32) {
        if self.entry == old {
            self.entry = new;
        }
        for layer in 0..=self.level(new) {
            for at in 0..self.links(new, layer).len() {
                let neighbour = self.links(new, layer)[at];
                let links = self.at_mut(neighbour).links_mut(layer);
                if let Some(link) = links.iter_mut().find(|end| **end == old) {
                    *link = new;
                }
            }
        }
    }
}

// ---- whole graphs ---------------------------------------------------------------------------------

impl Graph {
    /// Returns a graph of these nodes, each a vector and its links layer by layer from 0 on. `None` unless all links go
    /// both ways, each once, between nodes of the layer. Where a layer is not connected, it is made so.
    pub fn of_nodes(
        dimensions: usize,
        m: usize,
        nodes: impl IntoIterator<Item = (Stored, Vec<Vec<u32>>)>,
    ) -> Option<Graph> {
        let mut graph = Graph::new(dimensions, m);
        for (vector, layers) in nodes {
            let mut layers = layers.into_iter();
            let node = Node {
                vector,
                base: layers.next()?,
                upper: layers.collect(),
            };
            if node.level() > LEVEL_MAX {
                return None;
            }
            graph.bytes += node.heap_bytes();
            graph.nodes.push(node);
        }
        for node in 0..graph.len() as u32 {
            for layer in 0..=graph.level(node) {
                graph.at_mut(node).links_mut(layer).sort_unstable();
            }
        }
        let sound = (0..graph.len() as u32).all(|node| graph.is_sound(node));
        if !sound {
            return None;
        }
        let highest = (0..graph.len() as u32)
            .rev()
            .max_by_key(|&n| graph.level(n));
        graph.entry = highest.unwrap_or(0);
        (0..=graph.level_max()).for_each(|layer| graph.make_connected(layer));
        Some(graph)
    }

    /// Returns true if a node's links, sorted, go to other nodes of the layer, each once, which are linked with it.
    fn is_sound(&self, node: u32) -> bool {
        (0..=self.level(node)).all(|layer| {
            let links = self.links(node, layer);
            links.windows(2).all(|pair| pair[0] != pair[1])
                && links.iter().all(|&end| {
                    end != node
                        && (end as usize) < self.len()
                        && self.level(end) >= layer
                        && self.links(end, layer).binary_search(&node).is_ok()
                })
        })
    }

    fn make_connected(&mut self, layer: usize) {
        if self.nodes.is_empty() {
            return;
        }
        let (mut reached, mut visited) = (Visited::new(self.len()), Visited::new(self.len()));
        self.reach(self.entry, layer, &mut reached);
        for node in 0..self.len() as u32 {
            if self.level(node) < layer || reached.contains(node) {
                continue;
            }
            let vector = self.vector(node);
            let nearest = self.search_layer(vector, self.entry, 1, layer, &mut visited, None);
            self.link(node, nearest[0].node, layer);
            self.reach(node, layer, &mut reached);
        }
    }

    /// Marks all nodes to which there is a way.
    fn reach(&self, from: u32, layer: usize, reached: &mut Visited) {
        let mut left = vec![from];
        reached.insert(from);
        while let Some(node) = left.pop() {
            let links = self.links(node, layer).iter();
            left.extend(links.filter(|&&end| reached.insert(end)));
        }
    }
}

/// Returns a random highest layer of a node.
fn level_by_lot(random: &mut impl FnMut() -> u64) -> usize {
    let level = random().trailing_zeros() / BITS_PER_LAYER;
    (level as usize).min(LEVEL_MAX)
}

/// A set of nodes.
struct Visited(Vec<u64>);

impl Visited {
    fn new(nodes: usize) -> Visited {
        Visited(vec![0; nodes.div_ceil(u64::BITS as usize)])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn contains(&self, node: u32) -> bool {
        self.0[node as usize / 64] >> (node % 64) & 1 == 1
    }

    /// Adds a node, and returns true if it is new.
    fn insert(&mut self, node: u32) -> bool {
        let is_new = !self.contains(node);
        self.0[node as usize / 64] |= 1 << (node % 64);
        is_new
    }
}

/// Groups of nodes that have a way to each other: disjoint sets.
struct Groups {
    /// The nodes with their places, by number.
    places: Vec<(u32, usize)>,
    /// The place of another node of the group, or its own.
    parents: Vec<usize>,
}

impl Groups {
    fn new(nodes: &[u32]) -> Groups {
        let mut places: Vec<_> = nodes.iter().copied().zip(0..).collect();
        places.sort_unstable();
        Groups {
            places,
            parents: (0..nodes.len()).collect(),
        }
    }

    fn place_of(&self, node: u32) -> Option<usize> {
        let at = self.places.binary_search_by_key(&node, |place| place.0);
        at.ok().map(|at| self.places[at].1)
    }

    /// Joins the groups of two nodes, and returns true if they were two.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a] = b;
        a != b
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }
}

#[cfg(test)]
mod tests;
