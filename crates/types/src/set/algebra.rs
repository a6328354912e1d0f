//! Intersection, union and difference of sets: visited member by member, or as a new set in the encoding that the STORE
//! commands leave. Must not know keys: a missing key is an empty set, or none, by the caller's choice.

use super::{Repr, Set, is_table_at};
use crate::Limits;
use crate::pack::Element;
use crate::value::DataType;
use redline_table::Dict;
use std::ops::ControlFlow;

/// Number of sets up to which a union looks members up in the sets already visited, rather than remember them.
const UNION_PROBED_MAX: usize = 4;

/// Visits the members that all sets have, until told to stop. Walks the smallest.
pub fn visit_intersection<'a>(
    sets: &[&'a Set],
    mut visit: impl FnMut(Element<'a>) -> ControlFlow<()>,
) {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|set| set.len());
    let Some((first, others)) = sets.split_first() else {
        return;
    };
    let others: Vec<&Set> = others
        .iter()
        .copied()
        .filter(|other| !std::ptr::eq(*other, *first))
        .collect();
    for member in first.iter() {
        if others.iter().all(|other| other.contains_element(member)) && visit(member).is_break() {
            return;
        }
    }
}

/// Returns the members that all sets have.
pub fn intersection(sets: &[&Set], limits: &Limits) -> Set {
    let is_intset = |set: &&Set| matches!(set.repr, Repr::Ints(_));
    let smallest = sets.iter().copied().min_by_key(|set| set.len());
    let empty = if smallest.as_ref().is_some_and(is_intset) {
        Set::new()
    } else {
        Set::packed()
    };
    let mut members = Vec::new();
    visit_intersection(sets, |member| {
        members.push(member);
        ControlFlow::Continue(())
    });
    let mut result = of_distinct(empty, &members, limits);
    result.convert_to_ints(limits);
    result
}

/// Visits the members that any of the sets has, each once.
pub fn visit_union(sets: &[&Set], mut visit: impl FnMut(Element<'_>)) {
    if sets.len() <= UNION_PROBED_MAX {
        for (i, set) in sets.iter().enumerate() {
            set.iter()
                .filter(|&member| !sets[..i].iter().any(|shown| shown.contains_element(member)))
                .for_each(&mut visit);
        }
        return;
    }
    let mut shown = Dict::new();
    let mut buf = crate::IntBuf::new();
    for member in sets.iter().flat_map(|set| set.iter()) {
        if shown.insert(member.bytes(&mut buf), ()).is_none() {
            visit(member);
        }
    }
}

/// Returns the members that any of the sets has.
pub fn union(sets: &[&Set], limits: &Limits) -> Set {
    let largest = (0..sets.len()).max_by_key(|&i| sets[i].len());
    let mut result = Set::new();
    let mut copied = None;
    if let Some(i) = largest.filter(|&i| is_table_for_good(sets[i], limits)) {
        (result, copied) = (sets[i].clone(), Some(i));
    }
    let others = sets.iter().enumerate().filter(|(i, _)| Some(*i) != copied);
    for member in others.flat_map(|(_, set)| set.iter()) {
        result.insert(member.canonical(), limits);
    }
    result
}

/// Returns true if a set is a table, and every set with its members is one.
fn is_table_for_good(set: &Set, limits: &Limits) -> bool {
    matches!(set.repr, Repr::Table(_)) && is_table_at(set.len(), limits)
}

/// Visits the members of the first set that no other has.
pub fn visit_difference(first: &Set, others: &[&Set], mut visit: impl FnMut(Element<'_>)) {
    if is_probing_cheaper(first, others) {
        probed_difference(first, others).for_each(visit);
    } else {
        let mut rest = first.clone();
        remove_all(&mut rest, others);
        rest.iter().for_each(&mut visit);
    }
}

/// Returns the members of the first set that no other has, each looked up in all others.
fn probed_difference<'a>(first: &'a Set, others: &[&'a Set]) -> impl Iterator<Item = Element<'a>> {
    let others = largest_first(others);
    first
        .iter()
        .filter(move |&member| !others.iter().any(|other| other.contains_element(member)))
}

/// Returns the members of the first set that no other has.
pub fn difference(first: &Set, others: &[&Set], limits: &Limits) -> Set {
    if is_probing_cheaper(first, others) {
        let members: Vec<_> = probed_difference(first, others).collect();
        return of_distinct(Set::new(), &members, limits);
    }
    let mut result = union(&[first], limits);
    remove_all(&mut result, others);
    result
}

/// Returns a set of these members, all different, which begins as `empty`: a table at once if they are too many for any
/// other form, since a table that grows is built anew several times.
fn of_distinct(empty: Set, members: &[Element<'_>], limits: &Limits) -> Set {
    let is_mixed = || members.iter().any(|member| member.to_i64().is_none());
    let is_table = is_table_at(members.len(), limits)
        || members.len() > limits.set_max_listpack_entries && is_mixed();
    let mut result = match is_table {
        true => Set::table(members.len()),
        false => empty,
    };
    for member in members {
        result.insert(member.canonical(), limits);
    }
    result
}

/// Returns true if looking up each member of the first set in all others is quicker than removing the others' members
/// from a copy. The former ends early for members in common, and so counts half. Empty sets cost nothing.
fn is_probing_cheaper(first: &Set, others: &[&Set]) -> bool {
    let sets = || {
        std::iter::once(&first)
            .chain(others)
            .filter(|set| !set.is_empty())
    };
    let probes = sets().count().saturating_mul(first.len()) / 2;
    let members = sets().map(|set| set.len()).sum();
    probes <= members
}

/// Returns the sets by size: the largest is the likeliest to have a member.
fn largest_first<'a>(sets: &[&'a Set]) -> Vec<&'a Set> {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    sets
}

fn remove_all(set: &mut Set, others: &[&Set]) {
    for other in others {
        for member in other.iter() {
            if set.is_empty() {
                return;
            }
            set.remove_element(member.canonical());
        }
    }
}
