//! The vector set: elements, each with a vector, found by the direction of their vectors. Must not know keys.
//!
//! [`graph`] finds near vectors, [`quantize`] stores them, [`project`] makes them shorter, [`filter`] chooses elements by
//! their attributes, which [`json`] reads. This file ties elements to the graph's nodes.

pub mod filter;
pub mod graph;
pub mod json;
pub mod project;
pub mod quantize;

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use redline_table::Dict;

use crate::{DataType, Digest, sample};
use filter::Filter;
use graph::{Accept, Graph};
use project::Projection;
use quantize::{Quantization, Stored};

/// Components of a vector, before or after a projection. (Redis 8.2.3 has no limit; later versions have this one.)
pub const DIMENSIONS_MAX: usize = 1 << 16;
/// Links of a node on a layer, as VADD's M asks for them.
pub const LINKS_MIN: usize = 4;
/// See [`LINKS_MIN`].
pub const LINKS_MAX: usize = 4096;
/// Links where VADD does not ask for a number.
pub const LINKS_DEFAULT: usize = 16;

/// Highest number of an element in a payload: higher ones, which adding never reaches, are refused, since others must
/// fit above them.
const ID_MAX: u64 = 1 << 62;

/// Numbers of sets, as VINFO tells them.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The properties that all vectors of a set share; chosen with the first.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Components as they are stored, from 1 to [`DIMENSIONS_MAX`].
    pub dimensions: usize,
    /// Form in which they are stored.
    pub quantization: Quantization,
    /// About how many links a node gets on a layer of the graph, from [`LINKS_MIN`] to [`LINKS_MAX`].
    pub links: usize,
    /// The projection that is applied to vectors before they are stored.
    pub projection: Option<Projection>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            dimensions: 1,
            quantization: Quantization::default(),
            links: LINKS_DEFAULT,
            projection: None,
        }
    }
}

/// Elements with vectors. See the head of this file.
pub struct VectorSet {
    id: u64,
    shape: Shape,
    graph: Graph,
    /// The record of each node, by its number.
    members: Vec<Member>,
    nodes: Dict<u32>,
    /// The number that the member added last got, counting from 1 on.
    last_member: u64,
    attributed: usize,
    /// Of elements and attributes.
    text_bytes: usize,
}

#[derive(Clone)]
struct Member {
    /// Never given twice in one set: names the member in a payload.
    id: u64,
    element: Box<[u8]>,
    attributes: Option<Box<[u8]>>,
}

impl Member {
    fn text_bytes(&self) -> usize {
        self.element.len() + self.attributes.as_deref().map_or(0, <[u8]>::len)
    }
}

/// An element of a set, with everything that the set knows of it.
#[derive(Clone, Copy)]
pub struct Element<'a> {
    set: &'a VectorSet,
    node: u32,
}

/// An element as a payload holds it.
pub struct Restored {
    /// A number that no other element has.
    pub id: u64,
    /// Its name.
    pub name: Box<[u8]>,
    /// Its attributes, if it has any.
    pub attributes: Option<Box<[u8]>>,
    /// Its vector, in the shape of the set.
    pub stored: Stored,
    /// Layer by layer from 0 on, the numbers of the elements that it is linked with.
    pub layers: Vec<Vec<u64>>,
}

/// An element that a search found.
#[derive(Clone, Copy)]
pub struct Hit<'a> {
    /// Its name.
    pub element: &'a [u8],
    /// Its attributes, if it has any.
    pub attributes: Option<&'a [u8]>,
    /// See [`Stored::distance`].
    pub distance: f32,
}

/// The parameters of a search.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// Elements that it finds at most, and keeps while searching; at least 1.
    pub ef: usize,
    /// Chooses the elements that it may find.
    pub filter: Option<&'a Filter>,
    /// With a filter: elements whose neighbours it looks at, at most.
    pub effort: usize,
    /// Looks at every element instead, which is exact.
    pub exact: bool,
}

impl Default for VectorSet {
    fn default() -> VectorSet {
        VectorSet::new(Shape::default())
    }
}

impl Clone for VectorSet {
    fn clone(&self) -> VectorSet {
        let mut nodes = Dict::new();
        for (node, member) in (0..).zip(&self.members) {
            nodes.insert(&member.element, node);
        }
        VectorSet {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            shape: self.shape.clone(),
            graph: self.graph.clone(),
            members: self.members.clone(),
            nodes,
            ..*self
        }
    }
}

impl DataType for VectorSet {
    const NAME: &'static str = "vectorset";
    const CAN_COPY: bool = false;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.members.len()
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self
                .shape
                .projection
                .as_ref()
                .map_or(0, Projection::heap_bytes)
            + self.graph.heap_bytes()
            + self.members.capacity() * size_of::<Member>()
            + self.text_bytes
            + self.nodes.heap_bytes()
    }

    fn free_effort(&self) -> usize {
        /// An element, its vector, its links, and its place in the table.
        const ALLOCATIONS: usize = 4;
        self.members.len() * ALLOCATIONS
    }

    fn compact(&mut self) {
        self.nodes.compact();
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        let (mut all, mut part) = (D::default(), D::default());
        part.mix(self.len().to_string().as_bytes());
        part.mix(self.shape.dimensions.to_string().as_bytes());
        all.combine_part(&part);
        let mut bytes = Vec::new();
        for element in self.iter() {
            let mut part = D::default();
            bytes.clear();
            element.stored().write_bytes(&mut bytes);
            part.mix(&bytes);
            part.mix(element.name());
            element
                .attributes()
                .inspect(|attributes| part.mix(attributes));
            all.combine_part(&part);
        }
        digest.combine_part(&all);
    }
}

impl VectorSet {
    /// Returns an empty set.
    pub fn new(shape: Shape) -> VectorSet {
        VectorSet {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            graph: Graph::new(shape.dimensions, shape.links),
            shape,
            members: Vec::new(),
            nodes: Dict::new(),
            last_member: 0,
            attributed: 0,
            text_bytes: 0,
        }
    }

    /// Returns a set of these elements. `None` if one is there twice, or if the links are not as [`graph`] says.
    pub fn restore(shape: Shape, elements: Vec<Restored>) -> Option<VectorSet> {
        let mut set = VectorSet::new(shape);
        let mut numbers = HashMap::new();
        for (node, element) in (0..).zip(&elements) {
            let is_id = (1..=ID_MAX).contains(&element.id);
            if !is_id || numbers.insert(element.id, node).is_some() {
                return None;
            }
            set.last_member = set.last_member.max(element.id);
        }
        let mut nodes = Vec::new();
        for (node, element) in (0..).zip(elements) {
            let of_layer = |ids: Vec<u64>| ids.iter().map(|id| numbers.get(id).copied()).collect();
            let layers: Option<Vec<Vec<u32>>> = element.layers.into_iter().map(of_layer).collect();
            nodes.push((element.stored, layers?));
            if set.nodes.insert(&element.name, node).is_some() {
                return None;
            }
            let member = Member {
                id: element.id,
                element: element.name,
                attributes: element.attributes,
            };
            set.attributed += usize::from(member.attributes.is_some());
            set.text_bytes += member.text_bytes();
            set.members.push(member);
        }
        set.graph = Graph::of_nodes(set.shape.dimensions, set.shape.links, nodes)?;
        Some(set)
    }

    /// Returns the properties that all vectors of the set share.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns a number that no other set of the process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns how many elements were ever added, including those whose vector was replaced.
    pub fn last_member(&self) -> u64 {
        self.last_member
    }

    /// Returns the highest layer of the graph.
    pub fn level_max(&self) -> usize {
        self.graph.level_max()
    }

    /// Returns the number of elements with attributes.
    pub fn attributed(&self) -> usize {
        self.attributed
    }

    /// Sets the vector of an element, which has as many components as [`Shape::dimensions`] says, and returns true if
    /// the element is new. Its attributes, if given, replace those it has; an element that is not new loses them if
    /// they are empty. The search for its neighbours keeps `ef` elements, at least 1.
    pub fn add(
        &mut self,
        element: &[u8],
        vector: &[f32],
        attributes: Option<&[u8]>,
        ef: usize,
        random: &mut impl FnMut() -> u64,
    ) -> bool {
        assert_eq!(vector.len(), self.shape.dimensions);
        let stored = Stored::new(vector, self.shape.quantization);
        let before = self.take(element);
        let is_new = before.is_none();
        let attributes = match (attributes, before) {
            (Some(b""), Some(_)) => None,
            (Some(attributes), _) => Some(attributes.into()),
            (None, before) => before.and_then(|member| member.attributes),
        };
        self.last_member += 1;
        let member = Member {
            id: self.last_member,
            element: element.into(),
            attributes,
        };
        self.nodes.insert(element, self.members.len() as u32);
        self.attributed += usize::from(member.attributes.is_some());
        self.text_bytes += member.text_bytes();
        self.members.push(member);
        self.graph.insert(stored, ef, random);
        is_new
    }

    /// Removes an element, and returns true if it was there.
    pub fn remove(&mut self, element: &[u8]) -> bool {
        self.take(element).is_some()
    }

    fn take(&mut self, element: &[u8]) -> Option<Member> {
        let node = self.nodes.remove(element)?;
        self.graph.remove(node);
        let member = self.members.swap_remove(node as usize);
        if let Some(moved) = self.members.get(node as usize) {
            self.nodes.insert(&moved.element, node);
        }
        if self.members.len() * 4 < self.members.capacity() {
            self.members.shrink_to(self.members.len() * 2);
        }
        self.attributed -= usize::from(member.attributes.is_some());
        self.text_bytes -= member.text_bytes();
        Some(member)
    }

    /// Sets an element's attributes, or removes them; returns true if there is the element.
    pub fn set_attributes(&mut self, element: &[u8], attributes: Option<&[u8]>) -> bool {
        let Some(&node) = self.nodes.get(element) else {
            return false;
        };
        let member = &mut self.members[node as usize];
        self.attributed -= usize::from(member.attributes.is_some());
        self.text_bytes -= member.text_bytes();
        member.attributes = attributes.map(Into::into);
        self.attributed += usize::from(member.attributes.is_some());
        self.text_bytes += member.text_bytes();
        true
    }

    /// Returns an element.
    pub fn get(&self, element: &[u8]) -> Option<Element<'_>> {
        let node = *self.nodes.get(element)?;
        Some(Element { set: self, node })
    }

    /// Returns all elements, the one added last first unless some were removed.
    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        let nodes = (0..self.members.len() as u32).rev();
        nodes.map(|node| Element { set: self, node })
    }

    /// Returns the elements nearest to a vector, which has as many components as [`Shape::dimensions`] says; nearest
    /// first.
    pub fn search(&self, vector: &[f32], search: Search<'_>) -> Vec<Hit<'_>> {
        assert_eq!(vector.len(), self.shape.dimensions);
        let query = Stored::new(vector, self.shape.quantization);
        let mut admits = |node: u32| {
            let attributes = self.members[node as usize].attributes.as_deref();
            search.filter.is_none_or(|filter| {
                attributes.is_some_and(|attributes| filter.matches(attributes))
            })
        };
        let nearest = if search.exact {
            self.graph.nearest_of_all(&query, search.ef, admits)
        } else {
            let accept = search.filter.map(|_| Accept {
                admits: &mut admits,
                effort: search.effort,
            });
            self.graph.nearest(&query, search.ef, accept)
        };
        let hit = |near: graph::Near| {
            let member = &self.members[near.node as usize];
            Hit {
                element: &member.element,
                attributes: member.attributes.as_deref(),
                distance: near.distance,
            }
        };
        nearest.into_iter().map(hit).collect()
    }

    /// Returns an element, each equally likely; none without elements.
    pub fn random_element(&self, random: &mut impl FnMut() -> u64) -> Option<&[u8]> {
        let node = sample::below(self.members.len(), random);
        self.members.get(node).map(|member| &*member.element)
    }

    /// Returns different elements, all subsets of that size equally likely; all of them, if there are not more.
    pub fn random_distinct_elements<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(&'a [u8]),
    ) {
        let len = self.members.len();
        if sample::is_sparse(count, len) {
            let draw = || self.random_element(random).map(|element| (element, ()));
            sample::visit_drawn(count, draw, |element, ()| visit(element));
        } else {
            let elements = self.members.iter().map(|member| &*member.element);
            sample::visit_selected(elements, len, count, random, visit);
        }
    }
}

impl<'a> Element<'a> {
    fn member(&self) -> &'a Member {
        &self.set.members[self.node as usize]
    }

    /// Returns its name.
    pub fn name(&self) -> &'a [u8] {
        &self.member().element
    }

    /// Returns a number that no other element of the set has or had.
    pub fn id(&self) -> u64 {
        self.member().id
    }

    /// Returns its attributes, if it has any.
    pub fn attributes(&self) -> Option<&'a [u8]> {
        self.member().attributes.as_deref()
    }

    /// Returns its vector as it is stored.
    pub fn stored(&self) -> &'a Stored {
        self.set.graph.vector(self.node)
    }

    /// Returns its vector as nearly as the stored form allows.
    pub fn vector(&self) -> Vec<f32> {
        self.stored().vector(self.set.shape.dimensions)
    }

    /// Returns the highest layer that it is on.
    pub fn level(&self) -> usize {
        self.set.graph.level(self.node)
    }

    /// Returns the elements that it is linked with on a layer up to [`Element::level`].
    pub fn links(&self, layer: usize) -> impl ExactSizeIterator<Item = Element<'a>> + use<'a> {
        let set = self.set;
        let links = set.graph.links(self.node, layer).iter();
        links.map(move |&node| Element { set, node })
    }

    /// Returns the number of links that it may have on a layer without having more than usual.
    pub fn links_max(&self, layer: usize) -> usize {
        self.set.graph.links_max(layer)
    }

    /// Returns the distance from another element of the set.
    pub fn distance(&self, other: Element<'_>) -> f32 {
        self.set.graph.distance(self.node, other.node)
    }
}

#[cfg(test)]
mod tests;
