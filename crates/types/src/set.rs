//! The set: members without order. Must not know keys.
//!
//! Integers alone are a sorted array ("intset"), a few short members a [`Pack`] ("listpack"), all
//! others a table ("hashtable"). A set leaves a form when it gets too large for it, and does not come
//! back, but for two cases: SPOP of nearly everything, and the results of [`algebra`].

pub mod algebra;
mod ints;

use crate::Limits;
use crate::digest::Digest;
use crate::hash::scan_steps;
use crate::number::{IntBuf, parse_i64};
use crate::pack::{Element, Pack};
use crate::packed::{PackedForm, PackedRef};
use crate::sample::{self, Selection};
use crate::value::DataType;
use ints::Ints;
use redline_table::{Dict, frozen::FreezeId};
use std::collections::HashSet;

/// Members of an intset, at most, whatever the limit says.
const INTS_MAX: usize = 1 << 30;
/// A table that loses this many times more members than it keeps is built anew from those.
const POP_REBUILD_RATIO: usize = 5;

/// Members without order. See the head of this file.
#[derive(Clone)]
pub struct Set {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    Ints(Ints),
    Packed(Pack),
    Table(Dict<()>),
}

impl Default for Set {
    fn default() -> Set {
        Set::new()
    }
}

impl DataType for Set {
    const NAME: &'static str = "set";
    const OBJECT_TYPE: u32 = 2;
    const EMPTY_FORM: Option<PackedForm> = Some(PackedForm::Ints16);

    fn encoding(&self) -> &'static str {
        match self.repr {
            Repr::Ints(_) => "intset",
            Repr::Packed(_) => "listpack",
            Repr::Table(_) => "hashtable",
        }
    }

    fn len(&self) -> usize {
        match &self.repr {
            Repr::Ints(ints) => ints.len(),
            Repr::Packed(pack) => pack.len(),
            Repr::Table(table) => table.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.repr {
                Repr::Ints(ints) => ints.heap_bytes(),
                Repr::Packed(pack) => pack.heap_bytes(),
                Repr::Table(table) => table.heap_bytes(),
            }
    }

    fn free_effort(&self) -> usize {
        match &self.repr {
            Repr::Ints(_) | Repr::Packed(_) => 1,
            Repr::Table(table) => table.len(),
        }
    }

    fn compact(&mut self) {
        if let Repr::Table(table) = &mut self.repr {
            table.compact();
        }
    }

    fn look_ahead<'a>(&self, elements: impl Iterator<Item = &'a [u8]>) {
        if let Repr::Table(table) = &self.repr {
            table.look_ahead(elements);
        }
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        self.iter()
            .for_each(|member| digest.combine_element(member));
    }

    fn can_freeze(&self) -> bool {
        matches!(self.repr, Repr::Table(_))
    }

    fn freeze(&mut self, id: FreezeId) {
        match &mut self.repr {
            Repr::Table(table) => table.freeze(id),
            Repr::Ints(_) | Repr::Packed(_) => panic!("only tables are frozen"),
        }
    }

    fn freeze_id(&self) -> Option<FreezeId> {
        match &self.repr {
            Repr::Table(table) => table.freeze_id(),
            Repr::Ints(_) | Repr::Packed(_) => None,
        }
    }

    fn thaw(&mut self) {
        if let Repr::Table(table) = &mut self.repr {
            table.thaw();
        }
    }

    #[inline]
    fn packed(&self) -> Option<PackedRef<'_>> {
        match &self.repr {
            Repr::Ints(ints) => Some(ints.packed()),
            Repr::Packed(pack) => Some(pack.packed(PackedForm::Set)),
            Repr::Table(_) => None,
        }
    }

    #[inline]
    fn load_packed(&mut self, packed: PackedRef<'_>) {
        match (&mut self.repr, packed.form) {
            (Repr::Packed(pack), PackedForm::Set) => pack.load(packed),
            (Repr::Ints(ints), PackedForm::Ints16 | PackedForm::Ints32 | PackedForm::Ints64) => {
                ints.load(packed);
            }
            (other, PackedForm::Set) => *other = Repr::Packed(Pack::of_packed(packed)),
            (other, _) => *other = Repr::Ints(Ints::of_packed(packed)),
        }
    }
}

impl Set {
    /// Returns an empty set.
    pub const fn new() -> Set {
        Set {
            repr: Repr::Ints(Ints::new()),
        }
    }

    const fn packed() -> Set {
        Set {
            repr: Repr::Packed(Pack::new()),
        }
    }

    /// Returns an empty table with room for so many members.
    fn table(len: usize) -> Set {
        Set {
            repr: Repr::Table(Dict::with_room(len)),
        }
    }

    /// Makes an empty set for so many members of a payload in which they are an intset, or not packed at all: more than
    /// an intset takes make a table at once, integers or not.
    pub fn for_loose(count: usize, limits: &Limits) -> Set {
        match count > limits.set_max_intset_entries {
            true => Set::table(count),
            false => Set::new(),
        }
    }

    /// Returns a set of the elements of a pack, packed as long as there are not too many; none if one is there twice.
    pub fn from_pack(pack: Pack, limits: &Limits) -> Option<Set> {
        let len = pack.len();
        let mut set = Set {
            repr: Repr::Packed(pack),
        };
        if len > limits.set_max_listpack_entries {
            set.convert_to_table();
            return (set.len() == len).then_some(set);
        }
        let members: HashSet<Vec<u8>> = set.iter().map(Element::to_vec).collect();
        (members.len() == len).then_some(set)
    }

    /// Returns true if the set has this member.
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.repr {
            Repr::Ints(ints) => parse_i64(member).is_some_and(|value| ints.contains(value)),
            Repr::Packed(pack) => pack.find(pack.begin(), Element::of(member), 0).is_some(),
            Repr::Table(table) => table.contains(member),
        }
    }

    /// Returns true if the set has this member, which may come out of another set.
    pub fn contains_element(&self, member: Element<'_>) -> bool {
        match &self.repr {
            Repr::Ints(ints) => member.to_i64().is_some_and(|value| ints.contains(value)),
            Repr::Packed(pack) => pack.find(pack.begin(), member.canonical(), 0).is_some(),
            Repr::Table(table) => table.contains(member.bytes(&mut IntBuf::new())),
        }
    }

    /// Adds a member, and returns true if it is new.
    pub fn add(&mut self, member: &[u8], limits: &Limits) -> bool {
        self.add_all(std::iter::once(member), limits) == 1
    }

    /// Adds members, and returns how many are new.
    pub fn add_all<'a>(
        &mut self,
        members: impl Iterator<Item = &'a [u8]> + Clone,
        limits: &Limits,
    ) -> usize {
        self.make_room(members.clone(), limits);
        members
            .filter(|member| self.insert(Element::of(member), limits))
            .count()
    }

    /// Adds a member in canonical form, and changes the encoding where it must.
    fn insert(&mut self, member: Element<'_>, limits: &Limits) -> bool {
        match &mut self.repr {
            Repr::Ints(ints) => {
                if let Element::Int(value) = member {
                    let is_new = ints.add(value);
                    // A member that is there already changes nothing, whatever the limit has become.
                    if is_new && ints.len() > limits.set_max_intset_entries.min(INTS_MAX) {
                        self.convert_to_table();
                    }
                    return is_new;
                }
                let packed_bytes_max = (ints.longest_text() + 2).saturating_mul(ints.len());
                let fits = ints.longest_text() <= limits.set_max_listpack_value
                    && is_packable(ints.len(), packed_bytes_max, member, limits);
                if fits {
                    self.convert_to_pack()
                } else {
                    self.convert_to_table()
                }
                match &mut self.repr {
                    Repr::Packed(pack) => pack.push_back(member),
                    _ => return self.insert(member, limits),
                }
                true
            }
            Repr::Packed(pack) => {
                if pack.find(pack.begin(), member, 0).is_some() {
                    return false;
                }
                if is_packable(pack.len(), pack.listpack_bytes(), member, limits) {
                    pack.push_back(member);
                    return true;
                }
                self.convert_to_table();
                self.insert(member, limits)
            }
            Repr::Table(table) => table.insert(member.bytes(&mut IntBuf::new()), ()).is_none(),
        }
    }

    /// Removes a member, and returns true if it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.remove_element(Element::of(member))
    }

    /// Removes a member in canonical form.
    fn remove_element(&mut self, member: Element<'_>) -> bool {
        match &mut self.repr {
            Repr::Ints(ints) => match member {
                Element::Int(value) => ints.remove(value),
                Element::Bytes(_) => false,
            },
            Repr::Packed(pack) => match pack.find(pack.begin(), member, 0) {
                Some(at) => pack.remove_many(at, 1) > 0,
                None => false,
            },
            Repr::Table(table) => table.remove(member.bytes(&mut IntBuf::new())).is_some(),
        }
    }

    /// Returns all members.
    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        let (ints, pack, table) = match &self.repr {
            Repr::Ints(ints) => (Some(ints), None, None),
            Repr::Packed(pack) => (None, Some(pack), None),
            Repr::Table(table) => (None, None, Some(table)),
        };
        let ints = ints.into_iter().flat_map(Ints::iter).map(Element::Int);
        let packed = pack.into_iter().flatten();
        let table = table.into_iter().flat_map(Dict::iter);
        ints.chain(packed)
            .chain(table.map(|(member, ())| Element::Bytes(member)))
    }

    /// Makes one call of an iteration that survives changes: visits about `count` members from `cursor` on, and returns
    /// the cursor to go on with, zero at the end. A compact set is visited whole.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'_>)) -> u64 {
        match &self.repr {
            Repr::Table(table) => scan_steps(cursor, count, |cursor, seen| {
                table.scan(cursor, &mut |member, ()| {
                    *seen += 1;
                    visit(Element::Bytes(member));
                })
            }),
            Repr::Ints(_) | Repr::Packed(_) => {
                self.iter().for_each(visit);
                0
            }
        }
    }

    /// Returns a member, each about equally likely.
    pub fn random_member(&self, random: &mut impl FnMut() -> u64) -> Option<Element<'_>> {
        match &self.repr {
            Repr::Ints(ints) => ints
                .get(sample::below(ints.len(), random))
                .map(Element::Int),
            Repr::Packed(pack) => pack.get(pack.seek(sample::below(pack.len(), random))?),
            Repr::Table(table) => table
                .random(random)
                .map(|(member, ())| Element::Bytes(member)),
        }
    }

    /// Visits `count` members, chosen one by one from all of them, so that they may repeat.
    pub fn random_members<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>),
    ) {
        if let Repr::Packed(pack) = &self.repr {
            let members: Vec<_> = pack.iter().collect();
            let count = if members.is_empty() { 0 } else { count };
            (0..count).for_each(|_| visit(members[sample::below(members.len(), random)]));
            return;
        }
        for _ in 0..count {
            let Some(member) = self.random_member(random) else {
                return;
            };
            visit(member);
        }
    }

    /// Visits `count` different members, or all if there are fewer.
    pub fn random_distinct_members<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>),
    ) {
        match &self.repr {
            Repr::Table(table) if sample::is_sparse(count, table.len()) => {
                sample::visit_drawn(
                    count,
                    || table.random(random),
                    |member, ()| {
                        visit(Element::Bytes(member));
                    },
                );
            }
            _ => sample::visit_selected(self.iter(), self.len(), count, random, visit),
        }
    }

    /// Removes `count` members, each about equally likely, or all if there are fewer.
    pub fn pop(
        &mut self,
        count: usize,
        limits: &Limits,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'_>),
    ) {
        let kept = self.len().saturating_sub(count);
        // A frozen set stays the table that it is.
        let is_frozen = self.freeze_id().is_some();
        if kept == 0 && !is_frozen {
            self.iter().for_each(visit);
            *self = Set::new();
            return;
        }
        let mut selection = Selection::new(count, self.len());
        match &mut self.repr {
            Repr::Ints(ints) => ints.retain(|value| {
                let is_taken = selection.takes(random);
                if is_taken {
                    visit(Element::Int(value));
                }
                !is_taken
            }),
            Repr::Packed(pack) => {
                let mut rest = Pack::new();
                for member in pack.iter() {
                    if selection.takes(random) {
                        visit(member);
                    } else {
                        rest.push_back(member);
                    }
                }
                *pack = rest;
            }
            Repr::Table(table) if is_frozen || kept.saturating_mul(POP_REBUILD_RATIO) > count => {
                for _ in 0..count {
                    let Some((member, ())) = table.pop_random(random) else {
                        return;
                    };
                    visit(Element::Bytes(&member));
                }
            }
            Repr::Table(table) => {
                let mut rest = Set::packed();
                for _ in 0..kept {
                    let Some((member, ())) = table.pop_random(random) else {
                        break;
                    };
                    rest.insert(Element::of(&member), limits);
                }
                self.iter().for_each(visit);
                *self = rest;
            }
        }
    }

    /// Passes on some of the members that a frozen set had; returns true after the last one, which ends the freeze.
    pub fn give_piece(&mut self, visit: &mut dyn FnMut(Element<'_>)) -> bool {
        match &mut self.repr {
            Repr::Table(table) => table.give_piece(&mut |member| visit(Element::Bytes(member))),
            Repr::Ints(_) | Repr::Packed(_) => true,
        }
    }

    // Encodings.

    /// Prepares for a command that adds these: an empty set takes the form for so many, a small one that might get too
    /// large becomes a table.
    fn make_room<'a>(
        &mut self,
        mut members: impl Iterator<Item = &'a [u8]> + Clone,
        limits: &Limits,
    ) {
        let count = members.clone().count();
        let fits_ints = count <= limits.set_max_intset_entries;
        let fits_pack = count <= limits.set_max_listpack_entries;
        match &self.repr {
            Repr::Ints(ints) if ints.len() == 0 => {
                let is_int = members
                    .next()
                    .is_none_or(|first| parse_i64(first).is_some());
                *self = match (is_int && fits_ints, fits_pack) {
                    (true, _) => Set::new(),
                    (false, true) => Set::packed(),
                    (false, false) => Set::table(0),
                };
            }
            Repr::Ints(_) if !fits_ints => self.convert_to_table(),
            Repr::Packed(_) if !fits_pack => self.convert_to_table(),
            _ => {}
        }
    }

    fn convert_to_table(&mut self) {
        let mut table = Dict::with_room(self.len());
        let mut buf = IntBuf::new();
        for member in self.iter() {
            table.insert(member.bytes(&mut buf), ());
        }
        self.repr = Repr::Table(table);
    }

    fn convert_to_pack(&mut self) {
        let mut pack = Pack::new();
        self.iter()
            .for_each(|member| pack.push_back(member.canonical()));
        self.repr = Repr::Packed(pack);
    }

    /// Becomes an intset if all members are integers, and not too many.
    fn convert_to_ints(&mut self, limits: &Limits) {
        if self.len() > limits.set_max_intset_entries.min(INTS_MAX) {
            return;
        }
        let mut ints = Ints::new();
        for member in self.iter() {
            let Some(value) = member.to_i64() else { return };
            ints.add(value);
        }
        self.repr = Repr::Ints(ints);
    }
}

/// Returns true if so many members are too many for any form but a table.
fn is_table_at(len: usize, limits: &Limits) -> bool {
    let ints_max = limits.set_max_intset_entries.min(INTS_MAX);
    len > limits.set_max_listpack_entries.max(ints_max)
}

/// Returns true if one more member may go into a pack of so many members and bytes.
fn is_packable(len: usize, bytes: usize, member: Element<'_>, limits: &Limits) -> bool {
    let text_len = member.len();
    len < limits.set_max_listpack_entries
        && text_len <= limits.set_max_listpack_value
        && bytes.saturating_add(text_len) <= Pack::SAFE_BYTES_MAX
}

#[cfg(test)]
mod tests;
