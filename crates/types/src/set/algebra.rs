//! Intersection, union and difference of sets: shown member by member, or as a new set in the
//! encoding that the STORE commands leave. Must not know keys: a missing key is an empty set, or none,
//! by the caller's choice.

use super::{Repr, Set};
use crate::Limits;
use crate::pack::Element;
use crate::value::DataType;
use redline_table::Dict;
use std::ops::ControlFlow;

/// Sets up to which a union looks members up in the sets already shown, rather than remember them.
const UNION_PROBED_MAX: usize = 4;

/// Shows the members that all sets have, until told to stop. Walks the smallest.
pub fn visit_intersection(sets: &[&Set], mut visit: impl FnMut(Element<'_>) -> ControlFlow<()>) {
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

/// The members that all sets have.
pub fn intersection(sets: &[&Set], limits: &Limits) -> Set {
    let is_intset = |set: &&Set| matches!(set.repr, Repr::Ints(_));
    let smallest = sets.iter().copied().min_by_key(|set| set.len());
    let mut result = if smallest.as_ref().is_some_and(is_intset) {
        Set::new()
    } else {
        Set::packed()
    };
    visit_intersection(sets, |member| {
        result.insert(member.canonical(), limits);
        ControlFlow::Continue(())
    });
    result.convert_to_ints(limits);
    result
}

/// Shows the members that any of the sets has, each once.
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

/// The members that any of the sets has.
pub fn union(sets: &[&Set], limits: &Limits) -> Set {
    let mut result = Set::new();
    for member in sets.iter().flat_map(|set| set.iter()) {
        result.insert(member.canonical(), limits);
    }
    result
}

/// Shows the members of the first set that no other has.
pub fn visit_difference(first: &Set, others: &[&Set], mut visit: impl FnMut(Element<'_>)) {
    if is_probing_cheaper(first, others) {
        let others = largest_first(others);
        first
            .iter()
            .filter(|&member| !others.iter().any(|other| other.contains_element(member)))
            .for_each(visit);
    } else {
        let mut rest = first.clone();
        remove_all(&mut rest, others);
        rest.iter().for_each(&mut visit);
    }
}

/// The members of the first set that no other has.
pub fn difference(first: &Set, others: &[&Set], limits: &Limits) -> Set {
    let mut result = Set::new();
    if is_probing_cheaper(first, others) {
        visit_difference(first, others, |member| {
            result.insert(member.canonical(), limits);
        });
    } else {
        for member in first.iter() {
            result.insert(member.canonical(), limits);
        }
        remove_all(&mut result, others);
    }
    result
}

/// Looking up each member of the first set in all others, or taking the others' members out of a copy?
/// The former ends early for members in common, and so counts half. Empty sets cost nothing.
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

/// The largest set is the likeliest to have a member.
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
