//! The area: geometries under names, and a tree of the boxes around them, by which they are found. Must not know commands.
//!
//! [`geometry`] is one of them with its text and its bytes, [`relate`] compares two, [`circle`] is what a search may be of.

pub mod circle;
pub mod geometry;
pub mod relate;

pub use circle::Circle;
pub use geometry::{Bounds, Geometry, Refused};
pub use relate::{Shape, Steps, TooLarge};

use std::{borrow::Borrow, cmp::Ordering, collections::BTreeSet, ops::ControlFlow, sync::Arc};

use rstar::{AABB, RTree, RTreeObject};

use crate::{DataType, Digest};

/// Bytes of a geometry with its name beside these two: in the set of names, in the tree, and what counts its owners.
const MEMBER_BYTES: usize = 176;

/// A geometry with its name.
#[derive(Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: Box<[u8]>,
    /// The geometry.
    pub geometry: Geometry,
}

/// A member, in the order of names.
#[derive(Clone, Debug)]
struct ByName(Arc<Member>);

impl Borrow<[u8]> for ByName {
    fn borrow(&self) -> &[u8] {
        &self.0.name
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &ByName) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &ByName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &ByName) -> Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

/// A member with the box around it.
#[derive(Clone, Debug)]
struct Boxed {
    around: AABB<[f64; 2]>,
    member: Arc<Member>,
}

impl RTreeObject for Boxed {
    type Envelope = AABB<[f64; 2]>;

    fn envelope(&self) -> AABB<[f64; 2]> {
        self.around
    }
}

impl PartialEq for Boxed {
    fn eq(&self, other: &Boxed) -> bool {
        Arc::ptr_eq(&self.member, &other.member)
    }
}

fn boxed(member: &Arc<Member>) -> Option<Boxed> {
    let around = member.geometry.bounds()?;
    Some(Boxed {
        around: AABB::from_corners(around.min, around.max),
        member: member.clone(),
    })
}

/// Geometries under names. A copy has the members in common with its original, which nothing changes.
#[derive(Clone, Debug, Default)]
pub struct Area {
    names: BTreeSet<ByName>,
    /// Those that have a point.
    tree: RTree<Boxed>,
    /// Bytes of names and geometries.
    bytes: usize,
}

impl Area {
    /// Returns the area of these members; of two with the same name the later one stays.
    pub fn of(members: impl IntoIterator<Item = (Box<[u8]>, Geometry)>) -> Area {
        let mut area = Area::default();
        for (name, geometry) in members {
            area.note(Arc::new(Member { name, geometry }));
        }
        let members = area.names.iter();
        area.tree = RTree::bulk_load(members.filter_map(|name| boxed(&name.0)).collect());
        area
    }

    /// Puts a member among the names; returns the one that had its name.
    fn note(&mut self, member: Arc<Member>) -> Option<Arc<Member>> {
        self.bytes += bytes_of(&member);
        let old = self.names.replace(ByName(member))?.0;
        self.bytes -= bytes_of(&old);
        Some(old)
    }

    /// Sets the geometry of a name.
    pub fn set(&mut self, name: &[u8], geometry: Geometry) {
        let member = Arc::new(Member {
            name: name.into(),
            geometry,
        });
        if let Some(old) = self.note(member.clone()) {
            self.forget(&old);
        }
        if let Some(boxed) = boxed(&member) {
            self.tree.insert(boxed);
        }
    }

    /// Removes a name; returns true if it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(ByName(old)) = self.names.take(name) else {
            return false;
        };
        self.bytes -= bytes_of(&old);
        self.forget(&old);
        true
    }

    /// Takes a member out of the tree.
    fn forget(&mut self, member: &Arc<Member>) {
        if let Some(boxed) = boxed(member) {
            self.tree.remove(&boxed);
        }
    }

    /// Returns the geometry of a name.
    pub fn get(&self, name: &[u8]) -> Option<&Geometry> {
        self.names.get(name).map(|found| &found.0.geometry)
    }

    /// Returns the members in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.names.iter().map(|name| &*name.0)
    }

    /// Passes on the members whose box meets one of these, until `visit` breaks.
    pub fn near<'a, B>(
        &'a self,
        boxes: &[Bounds],
        mut visit: impl FnMut(&'a Member) -> ControlFlow<B>,
    ) -> Option<B> {
        for (at, bounds) in boxes.iter().enumerate() {
            let around = AABB::from_corners(bounds.min, bounds.max);
            for found in self.tree.locate_in_envelope_intersecting(around) {
                let (min, max) = (found.around.lower(), found.around.upper());
                let own = Bounds { min, max };
                if boxes[..at].iter().any(|earlier| earlier.meets(&own)) {
                    continue;
                }
                if let ControlFlow::Break(value) = visit(&found.member) {
                    return Some(value);
                }
            }
        }
        None
    }
}

fn bytes_of(member: &Member) -> usize {
    member.name.len() + member.geometry.as_bytes().len()
}

impl DataType for Area {
    const NAME: &'static str = "exgistype";

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes + self.names.len() * MEMBER_BYTES
    }

    fn free_effort(&self) -> usize {
        self.names.len() * 3
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        for member in self.iter() {
            let mut part = D::default();
            part.mix(&member.name);
            part.mix(member.geometry.as_bytes());
            digest.combine_part(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_area_is_a_map_whose_members_are_found_by_their_boxes() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut area, mut model) = (Area::default(), BTreeMap::new());
        for round in 0..4_000 {
            let name = format!("name {}", random.u8(..200));
            if random.u8(..4) == 0 {
                let was = model.remove(name.as_bytes()).is_some();
                assert_eq!(area.remove(name.as_bytes()), was);
            } else {
                let [x, y, z] = [(); 3].map(|()| random.i32(-50..50));
                let text = match random.u8(..4) {
                    0 => format!("POINT({x} {y})"),
                    1 => "LINESTRING EMPTY".to_owned(),
                    _ => format!("LINESTRING({x} {y},{y} {z})"),
                };
                let geometry = Geometry::parse(text.as_bytes()).expect("a geometry");
                area.set(name.as_bytes(), geometry.clone());
                model.insert(name.into_bytes(), geometry);
            }
            if round % 100 > 0 {
                continue;
            }
            let own = area.iter().map(|member| (&*member.name, &member.geometry));
            let theirs = model.iter().map(|(name, geometry)| (&name[..], geometry));
            assert!(own.eq(theirs));
            let boxes = [(); 2].map(|()| {
                let min = [(); 2].map(|()| f64::from(random.i32(-60..40)));
                let max = min.map(|side| side + f64::from(random.i32(0..40)));
                Bounds { min, max }
            });
            let mut found = Vec::new();
            let end = area.near(&boxes, |member| {
                found.push(&*member.name);
                ControlFlow::<()>::Continue(())
            });
            assert_eq!(end, None);
            found.sort_unstable();
            let meets = |geometry: &Geometry| {
                let bounds = geometry.bounds();
                bounds.is_some_and(|own| boxes.iter().any(|bounds| bounds.meets(&own)))
            };
            let expected = model.iter().filter(|(_, geometry)| meets(geometry));
            assert!(expected.map(|(name, _)| &name[..]).eq(found));
            let pairs = area.iter().map(|member| {
                let geometry = Geometry::of_bytes(member.geometry.as_bytes());
                (member.name.clone(), geometry.expect("its bytes"))
            });
            let copy = Area::of(pairs.collect::<Vec<_>>());
            assert_eq!(copy.heap_bytes(), area.heap_bytes());
            assert_eq!(copy.tree.size(), area.tree.size());
        }
    }
}
