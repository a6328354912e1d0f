//! Lists while they are frozen: see `redline_table::frozen`. Must not know what takes the pieces.
//!
//! The order counts, so nothing can be given early: nodes have numbers, in the order in which they stood when the list was
//! frozen, and one that changes or goes before its number was given is kept aside under it.

use super::{Node, NodeRef, Quicklist};
use redline_table::frozen::FreezeId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The number of a node that was not there, or not as it is.
const OTHER: u32 = 0;

/// The state of a frozen list.
pub(in crate::list) struct Progress {
    /// The number of each node of the list, from 1 on; [`OTHER`] for those that are not to be given.
    numbers: VecDeque<u32>,
    /// The next number to give.
    next: u32,
    last: u32,
    /// Nodes as they were, by number.
    kept: BTreeMap<u32, Node>,
    /// The place at which the node of the next number probably stands.
    hint: usize,
}

impl Progress {
    /// Notes that a node was put at a place.
    #[cold]
    #[inline(never)]
    pub(super) fn note_new(&mut self, at: usize) {
        self.numbers.insert(at, OTHER);
    }

    /// Keeps a node as it is before it changes.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_copy(&mut self, at: usize, node: &Node) {
        let number = std::mem::replace(&mut self.numbers[at], OTHER);
        if number >= self.next {
            self.kept.insert(number, node.clone());
        }
    }

    /// Keeps nodes that are taken out of the list at places.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_gone(&mut self, at: Range<usize>, nodes: impl Iterator<Item = Node>) {
        for (number, node) in self.numbers.drain(at).zip(nodes) {
            if number >= self.next {
                self.kept.insert(number, node);
            }
        }
    }

    /// Returns the place of the node with the next number, which is in the list.
    fn place_of_next(&self) -> usize {
        let is_it = |at: &usize| self.numbers.get(*at) == Some(&self.next);
        (0..self.numbers.len() + self.hint)
            .flat_map(|step| [self.hint.wrapping_sub(step), self.hint + step])
            .find(is_it)
            .expect("a node that is not kept aside is in the list")
    }
}

impl Quicklist {
    pub(in crate::list) fn freeze(&mut self, id: FreezeId) {
        let last = u32::try_from(self.nodes.len()).expect("fewer nodes than 2^32");
        self.frozen.freeze(
            id,
            Progress {
                numbers: (1..=last).collect(),
                next: 1,
                last,
                kept: BTreeMap::new(),
                hint: 0,
            },
        );
    }

    pub(in crate::list) fn freeze_id(&self) -> Option<FreezeId> {
        self.frozen.id()
    }

    pub(in crate::list) fn thaw(&mut self) {
        self.frozen.take();
    }

    /// Passes on a node as it was; returns true after the last one: the list is not frozen any more.
    pub(in crate::list) fn give_piece(&mut self, visit: &mut dyn FnMut(NodeRef<'_>)) -> bool {
        let Some(progress) = self.frozen.get_mut() else {
            return true;
        };
        if progress.next <= progress.last {
            match progress.kept.remove(&progress.next) {
                Some(node) => visit(node.as_ref()),
                None => {
                    let at = progress.place_of_next();
                    visit(self.nodes[at].as_ref());
                    progress.hint = at + 1;
                }
            }
            progress.next += 1;
        }
        let is_done = progress.next > progress.last;
        if is_done {
            debug_assert!(progress.kept.is_empty(), "all of them were given");
            self.frozen.take();
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DataType, Limits, List,
        list::{Place, Repr},
        pack::End,
    };

    fn change(list: &mut List, limits: &Limits, rng: &mut fastrand::Rng) {
        let element = match rng.u8(..40) {
            0 => vec![b'p'; 9_000],
            1..20 => rng.u32(..100).to_string().into_bytes(),
            _ => vec![rng.u8(..); rng.usize(..300)],
        };
        let end = if rng.bool() { End::Front } else { End::Back };
        let index = rng.i64(0..list.len() as i64 + 1);
        match rng.u8(..40) {
            0..15 => list.push(end, std::iter::once(&element[..]), limits),
            15..24 => {
                list.pop(end, rng.usize(..4), limits, |_| ());
            }
            24..32 => {
                list.set(index, &element, limits);
            }
            32..36 => {
                let pivot = list.get(index).map(|pivot| pivot.to_vec());
                let place = if rng.bool() {
                    Place::Before
                } else {
                    Place::After
                };
                if let Some(pivot) = pivot {
                    list.insert(place, &pivot, &element, limits);
                }
            }
            36..39 => {
                list.remove(rng.i64(-2..3), &element, limits);
            }
            _ if rng.u8(..10) == 0 => {
                let from = rng.usize(..list.len() + 1) / 4;
                list.trim(from..list.len() - from, limits);
            }
            _ => list.rotate(end, End::Front, limits, |_| ()),
        }
    }

    /// `forgets`: the nodes that are kept are lost.
    fn run(seed: u64, forgets: bool) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = Limits {
            list_max_listpack_size: if seed.is_multiple_of(2) { -1 } else { 7 },
            ..Limits::default()
        };
        let mut list = List::new();
        for round in 0..10 {
            while list.len() < 300 {
                list.push_back(&vec![b'f'; rng.usize(..200)], &limits);
            }
            (0..rng.usize(..600)).for_each(|_| change(&mut list, &limits, &mut rng));
            if !list.can_freeze() {
                continue;
            }
            let texts = |list: &List| list.iter().map(|e| e.to_vec()).collect::<Vec<_>>();
            let (expected, nodes) = (texts(&list), list.nodes().count());
            let id = FreezeId::new(round + 1).unwrap();
            list.freeze(id);
            assert_eq!(
                (list.freeze_id(), list.clone().freeze_id()),
                (Some(id), None)
            );
            let pace = [0, 1, 5, 60][rng.usize(..4)];
            let empties = rng.u8(..4) == 0;
            let (mut given, mut count) = (Vec::new(), 0);
            while !list.give_piece(&mut |node| {
                count += 1;
                match node {
                    NodeRef::Packed(pack) => given.extend(pack.iter().map(|e| e.to_vec())),
                    NodeRef::Plain(element) => given.push(element.to_vec()),
                }
            }) {
                (0..pace).for_each(|_| change(&mut list, &limits, &mut rng));
                if let Repr::Nodes(nodes) = &mut list.repr
                    && let Some(progress) = nodes.frozen.get_mut().filter(|_| forgets)
                {
                    progress.kept.clear();
                }
                if empties && rng.u8(..20) == 0 {
                    list.pop(End::Front, usize::MAX, &limits, |_| ());
                    assert_eq!(list.freeze_id(), Some(id));
                }
            }
            assert!(
                given == expected && count == nodes,
                "seed {seed}, round {round}"
            );
            assert_eq!(list.freeze_id(), None);
        }
    }

    #[test]
    fn the_pieces_are_what_was_there_whatever_changes_between_them() {
        (0..10).for_each(|seed| run(seed, false));
    }

    #[test]
    fn a_list_that_keeps_no_node_that_changes_is_found() {
        let found = std::panic::catch_unwind(|| (0..10).for_each(|seed| run(seed, true)));
        assert!(found.is_err());
    }
}
