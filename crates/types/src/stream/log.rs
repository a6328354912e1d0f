//! The entries of a stream, and the counters that outlive them. Must not know groups, nor the readers.
//!
//! Entries are stored in nodes of up to some hundred (see `node.rs`), the nodes in an ordered map
//! under their first ids. Nodes are as large as Redis's, since an approximate trim removes whole
//! nodes only, and clients see how many entries that is.

mod frozen;

use super::node::{self, Contents, Entry, Node};
use super::radix;
use super::{NewId, StreamId, map_bytes};
use crate::limits::Limits;
use redline_table::frozen::Frozen;
use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};

/// Limit on the bytes of one node, and of the fields of one entry.
const NODE_BYTES_MAX: usize = 1 << 30;
/// Nodes that an approximate trim without a limit of its own looks at, when nodes have a bound.
const TRIM_NODES_DEFAULT: usize = 100;
const TRIM_LIMIT_UNBOUNDED: u64 = 10_000;
const TRIM_LIMIT_MAX: u64 = 1_000_000;

/// An append-only log of entries under growing ids.
#[derive(Clone, Default)]
pub struct Log {
    nodes: BTreeMap<StreamId, Node>,
    len: u64,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    node_bytes: usize,
    frozen: Frozen<frozen::Progress>,
}

/// Reason why an entry cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// 0-0 is no id for an entry.
    Zero,
    /// The last entry has the highest id that there is.
    Exhausted,
    /// The id is not above that of the last entry, or there is none left of its `ms`.
    TooSmall,
    /// The fields are too large for any node.
    TooLarge,
}

/// The entries that a trim leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// At most this many entries, the newest.
    MaxLen(u64),
    /// The entries from this id on.
    MinId(StreamId),
}

/// Parameters of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// The entries that are to be left.
    pub to: TrimTo,
    /// Only whole nodes are removed, so more may be left.
    pub approximate: bool,
    /// No more entries than this are looked at; 0 is no limit. For approximate trims.
    pub limit: u64,
}

impl Trim {
    /// Returns the limit of an approximate trim that is not given one.
    pub fn limit_default(limits: &Limits) -> u64 {
        match TRIM_NODES_DEFAULT.saturating_mul(limits.stream_node_max_entries) {
            0 => TRIM_LIMIT_UNBOUNDED,
            limit => TRIM_LIMIT_MAX.min(limit as u64),
        }
    }
}

impl Log {
    /// Returns the id of the last entry that was ever added.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// Returns the highest id that [`Log::delete`] has removed.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// Returns the number of entries that were ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// Returns the number of entries that are there.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if there is an entry with this id.
    pub fn contains(&self, id: StreamId) -> bool {
        self.range(id, id).next().is_some()
    }

    /// Returns the id of the first entry, 0-0 if there is none.
    pub fn first_id(&self) -> StreamId {
        self.first_entry().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of nodes of the radix tree in which Redis would keep these nodes. Takes time by their number.
    pub fn radix_tree_nodes(&self) -> usize {
        radix::node_count(self.nodes.keys().copied())
    }

    /// Counts its bytes anew, after it was cloned: a clone has no more room than it needs.
    pub(super) fn recount(&mut self) {
        self.node_bytes = self.nodes.values().map(Node::heap_bytes).sum();
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.node_bytes + map_bytes::<StreamId, Node>(self.nodes.len())
    }

    /// Sets the counters as XSETID does; the caller has checked them against the entries.
    pub fn set_counters(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) {
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted_id.unwrap_or(self.max_deleted_id);
    }

    /// Returns the highest id that [`Log::delete`] has removed, if entries below it may be there: their ids then do not
    /// tell how many entries lie between them.
    pub fn tombstone(&self) -> Option<StreamId> {
        let deleted = self.max_deleted_id;
        let among = self.len > 0 && deleted != StreamId::MIN && self.first_id() <= deleted;
        among.then_some(deleted)
    }

    /// Returns how many entries were ever added up to this id; none if that is unknown.
    pub fn added_until(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if id == self.last_id || (self.len == 0 && id <= self.last_id) {
            return Some(self.entries_added);
        }
        let first = self.first_id();
        if id > self.last_id
            || (id != StreamId::MIN && id < self.max_deleted_id)
            || (self.max_deleted_id != StreamId::MIN && self.max_deleted_id >= first)
        {
            return None;
        }
        let before_first = self.entries_added.wrapping_sub(self.len);
        match id.cmp(&first) {
            Ordering::Less => Some(before_first),
            Ordering::Equal => Some(before_first.wrapping_add(1)),
            Ordering::Greater => None,
        }
    }

    /// Returns the entry with the lowest id.
    pub fn first_entry(&self) -> Option<Entry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next()
    }

    /// Returns the entry with the highest id.
    pub fn last_entry(&self) -> Option<Entry<'_>> {
        self.range_backwards(StreamId::MIN, StreamId::MAX).next()
    }

    /// Returns the id that a new entry would get.
    pub fn next_id(&self, id: NewId, now_ms: u64) -> Result<StreamId, AddError> {
        if id == NewId::Exact(StreamId::MIN) {
            return Err(AddError::Zero);
        }
        let after_last = self.last_id.next().ok_or(AddError::Exhausted)?;
        let id = match id {
            NewId::Auto if now_ms > self.last_id.ms => StreamId::new(now_ms, 0),
            NewId::Auto => after_last,
            NewId::AutoSeq(ms) if ms != self.last_id.ms => StreamId::new(ms, 0),
            NewId::AutoSeq(ms) if ms != after_last.ms => return Err(AddError::TooSmall),
            NewId::AutoSeq(_) => after_last,
            NewId::Exact(id) => id,
        };
        if id <= self.last_id {
            return Err(AddError::TooSmall);
        }
        Ok(id)
    }

    /// Adds an entry. `fields` are names and values by turns.
    pub fn add<'a>(
        &mut self,
        id: NewId,
        now_ms: u64,
        fields: impl Iterator<Item = &'a [u8]> + Clone,
        limits: &Limits,
    ) -> Result<StreamId, AddError> {
        let id = self.next_id(id, now_ms)?;
        let bytes = fields
            .clone()
            .fold(0usize, |sum, f| sum.saturating_add(f.len()));
        if bytes > NODE_BYTES_MAX {
            return Err(AddError::TooLarge);
        }
        if let Some(mut last) = self.nodes.last_entry() {
            let first = *last.key();
            let node = last.get_mut();
            let before = node.heap_bytes();
            let has_room = has_room(node, bytes, limits);
            if has_room {
                if let Some(progress) = self.frozen.get_mut() {
                    progress.keep_copy(first, node);
                }
                node.push(first, id, Contents::Fields(fields.clone()));
            } else {
                node.close();
            }
            self.node_bytes = self.node_bytes + node.heap_bytes() - before;
            if has_room {
                return Ok(self.count_added(id));
            }
        }
        let mut node = Node::new(fields.clone());
        node.push(id, id, Contents::Fields(fields));
        self.node_bytes += node.heap_bytes();
        self.nodes.insert(id, node);
        if let Some(progress) = self.frozen.get_mut() {
            progress.note_new(id);
        }
        Ok(self.count_added(id))
    }

    /// Returns the nodes, in order, as a payload holds them.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeView<'_>> {
        let nodes = self.nodes.iter();
        nodes.map(|(first, node)| NodeView {
            first: *first,
            node,
        })
    }

    /// Begins a node, as a payload has it: the id from which those of its entries are counted, which must be above all ids so
    /// far, and the names that most of its entries have. [`Log::append`] fills it.
    pub fn open_node<'a>(
        &mut self,
        first: StreamId,
        names: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), AddError> {
        debug_assert!(
            !self.frozen.is_frozen(),
            "a payload makes a stream of its own"
        );
        if !self.nodes.is_empty() && first <= self.last_id {
            return Err(AddError::TooSmall);
        }
        if let Some(mut last) = self.nodes.last_entry() {
            let before = last.get().heap_bytes();
            last.get_mut().close();
            self.node_bytes = self.node_bytes + last.get().heap_bytes() - before;
        }
        let node = Node::new(names.flat_map(|name| [name, &[][..]]));
        self.node_bytes += node.heap_bytes();
        self.nodes.insert(first, node);
        Ok(())
    }

    /// Adds an entry to the node that was begun last, however large that is. Its id must be above all so far; `deleted`: only
    /// its place is kept.
    ///
    /// # Panics
    ///
    /// If no node was begun.
    pub fn append<'a>(
        &mut self,
        id: StreamId,
        contents: Contents<impl Iterator<Item = &'a [u8]> + Clone>,
        deleted: bool,
    ) -> Result<(), AddError> {
        let mut last = self.nodes.last_entry().expect("a node was begun");
        let first = *last.key();
        let node = last.get_mut();
        if id < first || id <= self.last_id {
            return Err(match id == StreamId::MIN {
                true => AddError::Zero,
                false => AddError::TooSmall,
            });
        }
        let before = node.heap_bytes();
        if deleted {
            node.push_deleted(first, id, contents);
        } else {
            node.push(first, id, contents);
        }
        self.node_bytes = self.node_bytes + node.heap_bytes() - before;
        self.len += u64::from(!deleted);
        self.entries_added += u64::from(!deleted);
        self.last_id = id;
        Ok(())
    }

    fn count_added(&mut self, id: StreamId) -> StreamId {
        self.len += 1;
        self.entries_added += 1;
        self.last_id = id;
        id
    }

    /// Returns the entries from `start` to `end`, both included.
    pub fn range(&self, start: StreamId, end: StreamId) -> Entries<'_> {
        // The first node may start before the range does.
        let from = self.nodes.range(..=start).next_back();
        let from = from.map_or(start, |(first, _)| *first);
        let nodes = (from <= end).then(|| self.nodes.range(from..=end));
        Entries::new(nodes, start, end, false)
    }

    /// Returns the entries from `end` down to `start`, both included.
    pub fn range_backwards(&self, start: StreamId, end: StreamId) -> Entries<'_> {
        let nodes = (start <= end).then(|| self.nodes.range(..=end));
        Entries::new(nodes, start, end, true)
    }

    /// Deletes the entry of this id; returns true if there was one.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some((&first, node)) = self.nodes.range_mut(..=id).next_back() else {
            return false;
        };
        if let Some(progress) = self.frozen.get_mut() {
            progress.keep_copy(first, node);
        }
        if !node.delete(first, id) {
            return false;
        }
        if node.live() == 0 {
            self.remove_node(first);
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Removes entries from the start, and returns how many.
    pub fn trim(&mut self, trim: &Trim) -> u64 {
        let mut removed = 0;
        while let Some(mut oldest) = self.nodes.first_entry() {
            let first = *oldest.key();
            let node = oldest.get_mut();
            let entries = node.live() as u64;
            if matches!(trim.to, TrimTo::MaxLen(max) if self.len <= max)
                || (trim.limit > 0 && removed + entries > trim.limit)
            {
                break;
            }
            let goes_whole = match trim.to {
                TrimTo::MaxLen(max) => self.len - entries >= max,
                TrimTo::MinId(min) => node.last_id(first).is_none_or(|last| last < min),
            };
            if goes_whole {
                self.remove_node(first);
            } else if trim.approximate {
                break;
            } else {
                if let Some(progress) = self.frozen.get_mut() {
                    progress.keep_copy(first, node);
                }
                let mut len = self.len;
                let deleted = node.sift(first, |id| {
                    len = len.wrapping_sub(1);
                    let goes = match trim.to {
                        TrimTo::MaxLen(max) => len >= max,
                        TrimTo::MinId(min) => id < min,
                    };
                    if goes { Verdict::Remove } else { Verdict::Stop }
                }) as u64;
                // A node whose last entry was deleted before may be empty now: Redis keeps it until the next trim,
                // and XINFO STREAM counts it.
                self.len -= deleted;
                removed += deleted;
                break;
            }
            self.len -= entries;
            removed += entries;
        }
        removed
    }

    /// Goes over the entries from the start, and removes those that `verdict` condemns; it gets the number of entries
    /// that are left. Returns how many were removed.
    pub(super) fn sift(&mut self, mut verdict: impl FnMut(StreamId, u64) -> Verdict) -> u64 {
        let before = self.len;
        let mut emptied = Vec::new();
        for (&first, node) in &mut self.nodes {
            if let Some(progress) = self.frozen.get_mut() {
                progress.keep_copy(first, node);
            }
            let mut stopped = false;
            let len = &mut self.len;
            node.sift(first, |id| {
                let verdict = verdict(id, *len);
                stopped |= verdict == Verdict::Stop;
                *len -= u64::from(verdict == Verdict::Remove);
                verdict
            });
            if node.live() == 0 {
                emptied.push(first);
            }
            if stopped {
                break;
            }
        }
        emptied
            .into_iter()
            .for_each(|first| self.remove_node(first));
        before - self.len
    }

    fn remove_node(&mut self, first: StreamId) {
        if let Some(node) = self.nodes.remove(&first) {
            self.node_bytes -= node.heap_bytes();
            if let Some(progress) = self.frozen.get_mut() {
                progress.keep_gone(first, node);
            }
        }
    }
}

/// A node of a log.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    /// The id from which those of its entries are counted.
    pub first: StreamId,
    node: &'a Node,
}

impl<'a> NodeView<'a> {
    /// Returns the number of entries that are there.
    pub fn live(&self) -> usize {
        self.node.live()
    }

    /// Returns the number of entries that were deleted.
    pub fn deleted(&self) -> usize {
        self.node.entries() - self.node.live()
    }

    /// Returns the names that most of its entries have.
    pub fn names(&self) -> node::Names<'a> {
        self.node.names()
    }

    /// Returns all its entries, deleted ones too.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + 'a {
        self.node.iter(self.first)
    }
}

/// The decision about an entry that [`Log::sift`] looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is removed.
    Remove,
    /// It stays.
    Keep,
    /// It stays, and so do all after it.
    Stop,
}

/// Returns true if an entry whose fields take this many bytes belongs into this node, the last one.
fn has_room(node: &Node, bytes: usize, limits: &Limits) -> bool {
    let bytes_max = match limits.stream_node_max_bytes {
        0 => NODE_BYTES_MAX,
        max => max.min(NODE_BYTES_MAX),
    };
    let entries_max = limits.stream_node_max_entries;
    node.listpack_bytes() + bytes < bytes_max && (entries_max == 0 || node.entries() < entries_max)
}

/// Entries of a stream in one direction.
#[derive(Clone)]
pub struct Entries<'a> {
    nodes: Option<btree_map::Range<'a, StreamId, Node>>,
    current: Option<node::Iter<'a>>,
    start: StreamId,
    end: StreamId,
    backwards: bool,
}

impl<'a> Entries<'a> {
    fn new(
        nodes: Option<btree_map::Range<'a, StreamId, Node>>,
        start: StreamId,
        end: StreamId,
        backwards: bool,
    ) -> Entries<'a> {
        Entries {
            nodes,
            current: None,
            start,
            end,
            backwards,
        }
    }

    /// Returns the next entry, deleted or not, in the range or not.
    fn step(&mut self) -> Option<Entry<'a>> {
        loop {
            if let Some(node) = &mut self.current {
                let entry = if self.backwards {
                    node.next_back()
                } else {
                    node.next()
                };
                if entry.is_some() {
                    return entry;
                }
            }
            let nodes = self.nodes.as_mut()?;
            let next = if self.backwards {
                nodes.next_back()
            } else {
                nodes.next()
            };
            let (first, node) = next?;
            self.current = Some(node.iter(*first));
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let entry = self.step()?;
            let is_past = if self.backwards {
                entry.id < self.start
            } else {
                entry.id > self.end
            };
            if is_past {
                (self.nodes, self.current) = (None, None);
                return None;
            }
            if !entry.is_deleted() && entry.id >= self.start && entry.id <= self.end {
                return Some(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type OwnedFields = Vec<(Vec<u8>, Vec<u8>)>;
    type Owned = (StreamId, OwnedFields);

    fn owned(entry: Entry<'_>) -> Owned {
        let fields = entry.fields();
        let fields = fields.map(|(name, value)| (name.to_vec(), value.to_vec()));
        (entry.id, fields.collect())
    }

    fn flat(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<&[u8]> {
        fields
            .iter()
            .flat_map(|(name, value)| [&name[..], &value[..]])
            .collect()
    }

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId::new(ms, seq)
    }

    fn random_fields(random: &mut fastrand::Rng) -> OwnedFields {
        let name = |i| format!("field-{i}").into_bytes();
        let value = |random: &mut fastrand::Rng| match random.u8(..4) {
            0 => random.i64(..).to_string().into_bytes(),
            1 => vec![b'v'; random.usize(..300)],
            _ => format!("value-{}", random.u8(..)).into_bytes(),
        };
        let count = if random.u8(..4) == 0 {
            random.usize(1..4)
        } else {
            2
        };
        (0..count).map(|i| (name(i), value(random))).collect()
    }

    #[test]
    fn random_changes_agree_with_a_map() {
        let mut random = fastrand::Rng::with_seed(31);
        for round in 0..30 {
            let limits = Limits {
                stream_node_max_bytes: [4096, 300, 0][round % 3],
                stream_node_max_entries: [100, 7, 20, 0][round % 4],
                ..Limits::default()
            };
            let mut stream = Log::default();
            let mut model: BTreeMap<StreamId, OwnedFields> = BTreeMap::new();
            let (mut last, mut added, mut deleted_max) = (StreamId::MIN, 0, StreamId::MIN);
            for _ in 0..1500 {
                let near = id(last.ms.saturating_sub(random.u64(..400)), random.u64(..3));
                match random.u8(..20) {
                    0..=13 => {
                        let fields = random_fields(&mut random);
                        let ahead = id(last.ms + random.u64(..5), random.u64(..4));
                        let (asked, expected) = match random.u8(..3) {
                            0 => (
                                NewId::Auto,
                                if ahead.ms > last.ms {
                                    id(ahead.ms, 0)
                                } else {
                                    last.next().unwrap()
                                },
                            ),
                            1 => (
                                NewId::AutoSeq(ahead.ms),
                                if ahead.ms > last.ms {
                                    id(ahead.ms, 0)
                                } else {
                                    last.next().unwrap()
                                },
                            ),
                            _ => (NewId::Exact(ahead), ahead),
                        };
                        let result =
                            stream.add(asked, ahead.ms, flat(&fields).into_iter(), &limits);
                        if expected > last {
                            assert_eq!(result, Ok(expected));
                            model.insert(expected, fields);
                            last = expected;
                            added += 1;
                        } else {
                            let zero = asked == NewId::Exact(StreamId::MIN);
                            let error = if zero {
                                AddError::Zero
                            } else {
                                AddError::TooSmall
                            };
                            assert_eq!(result, Err(error));
                        }
                    }
                    14..=17 => {
                        let victim = model
                            .range(near..)
                            .next()
                            .map(|(id, _)| *id)
                            .unwrap_or(near);
                        let expected = model.remove(&victim).is_some();
                        assert_eq!(stream.delete(victim), expected);
                        if expected {
                            deleted_max = deleted_max.max(victim);
                        }
                    }
                    18 => {
                        let max = random.usize(..model.len() + 3);
                        let trim = Trim {
                            to: TrimTo::MaxLen(max as u64),
                            approximate: random.bool(),
                            limit: 0,
                        };
                        let removed = stream.trim(&trim) as usize;
                        let excess = model.len().saturating_sub(max);
                        assert!(removed == excess || (trim.approximate && removed < excess));
                        for _ in 0..removed {
                            model.pop_first();
                        }
                    }
                    _ => {
                        let trim = Trim {
                            to: TrimTo::MinId(near),
                            approximate: random.bool(),
                            limit: random.u64(..2) * 1000,
                        };
                        let removed = stream.trim(&trim) as usize;
                        let excess = model.range(..near).count();
                        assert!(
                            removed == excess
                                || ((trim.approximate || trim.limit > 0) && removed < excess)
                        );
                        for _ in 0..removed {
                            model.pop_first();
                        }
                    }
                }
                assert_eq!(stream.len(), model.len() as u64);
                assert_eq!(stream.last_id(), last);
                let first = model.first_key_value().map(|(id, f)| (*id, f.clone()));
                assert_eq!(stream.first_entry().map(owned), first);
                let last = model.last_key_value().map(|(id, f)| (*id, f.clone()));
                assert_eq!(stream.last_entry().map(owned), last);
                let end = id(near.ms + random.u64(..50), random.u64(..3));
                let expected: Vec<Owned> = if near <= end {
                    let range = model.range(near..=end);
                    range.map(|(id, fields)| (*id, fields.clone())).collect()
                } else {
                    Vec::new()
                };
                let found: Vec<_> = stream.range(near, end).map(owned).collect();
                assert_eq!(found, expected);
                let mut found: Vec<_> = stream.range_backwards(near, end).map(owned).collect();
                found.reverse();
                assert_eq!(found, expected);
                assert_eq!(
                    stream.range(end, near).count(),
                    model
                        .range(end.min(near)..=near)
                        .filter(|(id, _)| **id >= end)
                        .count()
                );
            }
            let all: Vec<_> = stream
                .clone()
                .range(StreamId::MIN, StreamId::MAX)
                .map(owned)
                .collect();
            assert!(all.into_iter().eq(model));
            assert_eq!(stream.entries_added(), added);
            assert_eq!(stream.max_deleted_id(), deleted_max);
            let bytes: usize = stream.nodes.values().map(Node::heap_bytes).sum();
            assert_eq!(bytes, stream.node_bytes);
        }
    }

    #[test]
    fn ids_run_out() {
        let limits = Limits::default();
        let mut stream = Log::default();
        let add = |stream: &mut Log, id, now_ms| {
            stream.add(id, now_ms, [&b"f"[..], b"v"].into_iter(), &limits)
        };
        assert_eq!(add(&mut stream, NewId::AutoSeq(0), 5), Ok(id(0, 1)));
        let almost = id(7, u64::MAX);
        assert_eq!(add(&mut stream, NewId::Exact(almost), 5), Ok(almost));
        assert_eq!(
            add(&mut stream, NewId::AutoSeq(7), 5),
            Err(AddError::TooSmall)
        );
        assert_eq!(
            add(&mut stream, NewId::AutoSeq(6), 5),
            Err(AddError::TooSmall)
        );
        assert_eq!(add(&mut stream, NewId::Auto, 5), Ok(id(8, 0)));
        assert_eq!(
            add(&mut stream, NewId::Exact(StreamId::MAX), 5),
            Ok(StreamId::MAX)
        );
        assert_eq!(add(&mut stream, NewId::Auto, 5), Err(AddError::Exhausted));
        assert_eq!(
            add(&mut stream, NewId::Exact(id(9, 9)), 5),
            Err(AddError::Exhausted)
        );
        assert_eq!(
            add(&mut stream, NewId::Exact(id(0, 0)), 5),
            Err(AddError::Zero)
        );
        assert_eq!(stream.entries_added(), 4);
    }

    #[test]
    fn deleted_entries_of_one_large_node_are_appended_without_a_search() {
        // From the start of the node each time, this would be ten thousand million steps.
        const ENTRIES: u64 = 200_000;
        let is_deleted = |seq: u64| !seq.is_multiple_of(1_000);
        let mut stream = Log::default();
        stream.open_node(id(1, 0), [&b"f"[..]].into_iter()).unwrap();
        for seq in 0..ENTRIES {
            let fields = [&b"f"[..], b"v"].into_iter();
            let contents = Contents::Fields(fields);
            stream
                .append(id(1, seq), contents, is_deleted(seq))
                .unwrap();
        }
        let node = stream.nodes().next().unwrap();
        assert_eq!(stream.node_count(), 1);
        assert_eq!(node.entries().count() as u64, ENTRIES);
        assert!(
            node.entries()
                .all(|e| e.is_deleted() == is_deleted(e.id.seq))
        );
        assert_eq!((stream.len(), node.live()), (200, 200));
        assert_eq!(stream.last_id(), id(1, ENTRIES - 1));
        assert_eq!(stream.range(StreamId::MIN, StreamId::MAX).count(), 200);
    }

    #[test]
    fn an_approximate_trim_removes_whole_nodes_within_its_limit() {
        let limits = Limits::default();
        let filled = || {
            let mut stream = Log::default();
            for ms in 1..=1050 {
                let fields = [&b"f"[..], b"v"];
                stream
                    .add(NewId::Exact(id(ms, 0)), 0, fields.into_iter(), &limits)
                    .unwrap();
            }
            stream
        };
        assert_eq!(filled().node_count(), 11);
        for (to, limit, expected) in [
            (TrimTo::MaxLen(1049), 0, 0),
            (TrimTo::MaxLen(950), 0, 100),
            (TrimTo::MaxLen(500), 0, 500),
            (TrimTo::MaxLen(0), 0, 1050),
            (TrimTo::MaxLen(0), 250, 200),
            (TrimTo::MinId(id(250, 0)), 0, 200),
            (TrimTo::MinId(id(5000, 0)), 99, 0),
        ] {
            let mut stream = filled();
            let trim = Trim {
                to,
                approximate: true,
                limit,
            };
            assert_eq!(stream.trim(&trim), expected, "{trim:?}");
        }
        assert_eq!(Trim::limit_default(&limits), 10_000);
    }
}
