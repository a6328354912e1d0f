//! Logs while they are frozen: see `redline_table::frozen`. Must not know what takes the pieces, nor groups.
//!
//! Nodes are given in the order of their first ids. One that changes or goes before its turn is kept aside.

use super::{Log, Node, NodeView, StreamId};
use redline_table::frozen::FreezeId;
use std::collections::{BTreeMap, BTreeSet};

/// The state of a frozen log.
pub(in crate::stream) struct Progress {
    /// The first ids of nodes that were not given yet are from here on; `None`: all were.
    from: Option<StreamId>,
    /// The first id of the last node that there was.
    last: StreamId,
    /// First ids of nodes that are there, which the pieces pass over.
    passed_over: BTreeSet<StreamId>,
    /// Nodes as they were, by their first ids.
    kept: BTreeMap<StreamId, Node>,
}

impl Progress {
    fn is_left(&self, first: StreamId) -> bool {
        self.from.is_some_and(|from| from <= first) && first <= self.last
    }

    /// Notes that a node is new. (Ids may be given again, after all entries have gone.)
    #[cold]
    #[inline(never)]
    pub(super) fn note_new(&mut self, first: StreamId) {
        if self.is_left(first) {
            self.passed_over.insert(first);
        }
    }

    /// Keeps a node as it is before it changes.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_copy(&mut self, first: StreamId, node: &Node) {
        if self.is_left(first) && self.passed_over.insert(first) {
            self.kept.insert(first, node.clone());
        }
    }

    /// Keeps a node that was taken out.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_gone(&mut self, first: StreamId, node: Node) {
        if self.is_left(first) && !self.passed_over.remove(&first) {
            self.kept.insert(first, node);
        }
    }
}

impl Log {
    pub(in crate::stream) fn freeze(&mut self, id: FreezeId) {
        let last = self.nodes.last_key_value().map(|(first, _)| *first);
        self.frozen.freeze(
            id,
            Progress {
                from: last.map(|_| StreamId::MIN),
                last: last.unwrap_or(StreamId::MIN),
                passed_over: BTreeSet::new(),
                kept: BTreeMap::new(),
            },
        );
    }

    pub(in crate::stream) fn freeze_id(&self) -> Option<FreezeId> {
        self.frozen.id()
    }

    pub(in crate::stream) fn thaw(&mut self) {
        self.frozen.take();
    }

    /// Passes on a node as it was, if there is one; returns true after the last one: the log is not frozen any more.
    pub(in crate::stream) fn give_piece(&mut self, visit: &mut dyn FnMut(NodeView<'_>)) -> bool {
        let Some(progress) = self.frozen.get_mut() else {
            return true;
        };
        if let Some(from) = progress.from {
            let there = self.nodes.range(from..=progress.last).next();
            let kept = progress.kept.first_entry();
            let first = match (&there, &kept) {
                (Some((there, _)), Some(kept)) => Some(*kept.key().min(*there)),
                (Some((there, _)), None) => Some(**there),
                (None, Some(kept)) => Some(*kept.key()),
                (None, None) => None,
            };
            let is_there = first.is_some_and(|first| progress.passed_over.remove(&first));
            match (first, kept, there) {
                (Some(first), Some(kept), _) if *kept.key() == first => {
                    let node = kept.remove();
                    visit(NodeView { first, node: &node });
                }
                (Some(first), _, Some((_, node))) if !is_there => visit(NodeView { first, node }),
                _ => {}
            }
            let next = first.filter(|first| *first < progress.last);
            progress.from = next.and_then(StreamId::next);
        }
        let is_done = progress.from.is_none();
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
        DataType, Limits, Stream,
        stream::{NewId, References, Trim, TrimTo},
    };

    fn change(stream: &mut Stream, rng: &mut fastrand::Rng) {
        let limits = Limits {
            stream_node_max_entries: 10,
            ..Limits::default()
        };
        let last = stream.last_id();
        let some = StreamId::new(rng.u64(..=last.ms), 0);
        let some = stream
            .range(some, StreamId::MAX)
            .next()
            .map(|entry| entry.id);
        match rng.u8(..40) {
            0..24 => {
                let value = vec![b'v'; rng.usize(..40)];
                let fields = [&b"field"[..], &value].into_iter();
                let id = NewId::Exact(StreamId::new(last.ms + rng.u64(1..4), 0));
                stream.add(id, 0, fields, &limits).expect("above the last");
            }
            24..36 => {
                if let Some(id) = some {
                    stream.delete(id, References::Keep);
                }
            }
            36..39 => {
                let approximate = rng.bool();
                let limit = 0;
                let to = match rng.bool() {
                    true => TrimTo::MaxLen((stream.len() as u64).saturating_sub(rng.u64(..30))),
                    false => TrimTo::MinId(StreamId::new(last.ms / 50, 0)),
                };
                let references = [References::Keep, References::Delete][rng.usize(..2)];
                let trim = Trim {
                    to,
                    approximate,
                    limit,
                };
                stream.trim(&trim, references);
            }
            _ if stream.is_empty() => stream.set_counters(StreamId::new(1, 1), None, None),
            _ => {}
        }
    }

    fn text(node: &NodeView<'_>) -> String {
        let entries = node.entries().map(|entry| {
            let fields: Vec<_> = entry.fields().map(|(_, value)| value.len()).collect();
            format!("{} {} {fields:?}", entry.id, entry.is_deleted())
        });
        format!("{} {:?}", node.first, entries.collect::<Vec<_>>())
    }

    /// `forgets`: the nodes that are kept are lost.
    fn run(seed: u64, forgets: bool) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut stream = Stream::new();
        for round in 0..10 {
            (0..rng.usize(..3_000)).for_each(|_| change(&mut stream, &mut rng));
            let expected: Vec<_> = stream.log().nodes().map(|node| text(&node)).collect();
            let id = FreezeId::new(round + 1).unwrap();
            stream.freeze(id);
            assert_eq!(
                (stream.freeze_id(), stream.clone().freeze_id()),
                (Some(id), None)
            );
            let pace = [0, 1, 5, 60][rng.usize(..4)];
            let empties = rng.u8(..3) == 0;
            let mut given = Vec::new();
            while !stream.give_piece(&mut |node| given.push(text(&node))) {
                (0..pace).for_each(|_| change(&mut stream, &mut rng));
                if let Some(progress) = stream.log.frozen.get_mut().filter(|_| forgets) {
                    progress.kept.clear();
                }
                if empties && rng.u8(..20) == 0 {
                    let trim = Trim {
                        to: TrimTo::MaxLen(0),
                        approximate: false,
                        limit: 0,
                    };
                    stream.trim(&trim, References::Keep);
                    stream.set_counters(StreamId::new(1, 1), None, None);
                }
            }
            assert!(given == expected, "seed {seed}, round {round}");
            assert_eq!(stream.freeze_id(), None);
        }
    }

    #[test]
    fn the_pieces_are_what_was_there_whatever_changes_between_them() {
        (0..10).for_each(|seed| run(seed, false));
    }

    #[test]
    fn a_log_that_keeps_no_node_that_changes_is_found() {
        let found = std::panic::catch_unwind(|| (0..10).for_each(|seed| run(seed, true)));
        assert!(found.is_err());
    }
}
