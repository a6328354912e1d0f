//! The stream: an append-only log of entries under growing ids, and the groups of consumers that read it.
//! Must not know the clock, nor the command.
//!
//! The entries are in `log.rs`, a group and what its consumers have pending in `group.rs`. Groups refer to
//! entries by id, and an entry may go while some group still needs it: [`References`] says what happens then.

mod group;
mod id;
mod id_map;
mod log;
mod node;
mod radix;

pub use group::{Claim, Claimed, Consumer, ConsumerId, Group, Pending};
pub use id::{IdBound, InvalidId, NewId, StreamId};
pub use log::{AddError, Entries, Log, NodeView, Trim, TrimTo};
pub use node::{Contents, Entry, EntryFields, Names};

use crate::digest::Digest;
use crate::limits::Limits;
use crate::value::DataType;
use log::Verdict;
use redline_table::frozen::FreezeId;
use std::collections::BTreeMap;

/// An append-only log of entries under growing ids, and its consumer groups.
#[derive(Default)]
pub struct Stream {
    log: Log,
    groups: BTreeMap<Box<[u8]>, Group>,
    /// Bytes of the groups on the heap, and of their names.
    group_bytes: usize,
}

/// Treatment of the groups' references to an entry that is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// They stay: the entry is pending, though it is gone.
    Keep,
    /// They go with the entry.
    Delete,
    /// The entry goes only if no group needs it: each has read it, and none has it pending.
    Respect,
}

/// Result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The entry is gone.
    Done,
    /// There was no such entry.
    Missing,
    /// Some group needs the entry, or will when it comes.
    Needed,
}

impl Stream {
    /// Returns an empty stream.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Passes on some of the nodes that a frozen stream had, in order; returns true after the last one, which ends the
    /// freeze.
    pub fn give_piece(&mut self, visit: &mut dyn FnMut(NodeView<'_>)) -> bool {
        self.log.give_piece(visit)
    }

    /// Returns the entries.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Does the work of [`Log::open_node`].
    pub fn open_node<'a>(
        &mut self,
        first: StreamId,
        names: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), AddError> {
        self.log.open_node(first, names)
    }

    /// Does the work of [`Log::append`].
    pub fn append<'a>(
        &mut self,
        id: StreamId,
        contents: Contents<impl Iterator<Item = &'a [u8]> + Clone>,
        deleted: bool,
    ) -> Result<(), AddError> {
        self.log.append(id, contents, deleted)
    }

    /// Returns the id of the last entry that was ever added.
    pub fn last_id(&self) -> StreamId {
        self.log.last_id()
    }

    /// Returns the entries from `start` to `end`, both included.
    pub fn range(&self, start: StreamId, end: StreamId) -> Entries<'_> {
        self.log.range(start, end)
    }

    /// Returns the entries from `end` down to `start`, both included.
    pub fn range_backwards(&self, start: StreamId, end: StreamId) -> Entries<'_> {
        self.log.range_backwards(start, end)
    }

    /// Returns the entry with the lowest id.
    pub fn first_entry(&self) -> Option<Entry<'_>> {
        self.log.first_entry()
    }

    /// Returns the entry with the highest id.
    pub fn last_entry(&self) -> Option<Entry<'_>> {
        self.log.last_entry()
    }

    /// Adds an entry. `fields` are names and values by turns.
    pub fn add<'a>(
        &mut self,
        id: NewId,
        now_ms: u64,
        fields: impl Iterator<Item = &'a [u8]> + Clone,
        limits: &Limits,
    ) -> Result<StreamId, AddError> {
        self.log.add(id, now_ms, fields, limits)
    }

    /// Sets the counters as XSETID does; the caller has checked them against the entries.
    pub fn set_counters(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) {
        self.log
            .set_counters(last_id, entries_added, max_deleted_id);
    }

    /// Deletes the entry of this id.
    pub fn delete(&mut self, id: StreamId, references: References) -> Deletion {
        match references {
            References::Keep => {}
            References::Delete => self.drop_references(&[id]),
            References::Respect if self.groups.values().any(|group| group.needs(id)) => {
                return Deletion::Needed;
            }
            References::Respect => {}
        }
        if self.log.delete(id) {
            Deletion::Done
        } else {
            Deletion::Missing
        }
    }

    /// Removes entries from the start, and returns how many. An approximate trim that has to look at references removes
    /// nothing, since it removes whole nodes only.
    pub fn trim(&mut self, trim: &Trim, references: References) -> u64 {
        if references == References::Keep {
            return self.log.trim(trim);
        }
        if trim.approximate {
            return 0;
        }
        let groups = &self.groups;
        let mut removed = Vec::new();
        let count = self.log.sift(|id, len| {
            let stays = match trim.to {
                TrimTo::MaxLen(max) => len <= max,
                TrimTo::MinId(min) => id >= min,
            };
            if stays {
                return Verdict::Stop;
            }
            if references == References::Respect {
                if groups.values().any(|group| group.needs(id)) {
                    return Verdict::Keep;
                }
            } else if !groups.is_empty() {
                removed.push(id);
            }
            Verdict::Remove
        });
        self.drop_references(&removed);
        count
    }

    fn drop_references(&mut self, ids: &[StreamId]) {
        for group in self.groups.values_mut() {
            let before = group.heap_bytes();
            for id in ids {
                group.acknowledge(*id);
            }
            self.group_bytes = self.group_bytes + group.heap_bytes() - before;
        }
    }

    // ---- groups -------------------------------------------------------------------------------

    /// Returns the groups, by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&name[..], group))
    }

    /// Returns the group of this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Makes a group that has read up to this id, which was so many entries if that is known; returns true if there was
    /// none of this name.
    pub fn create_group(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<u64>,
    ) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        let group = Group::new(last_id, entries_read);
        self.group_bytes += bytes_of(name, &group);
        self.groups.insert(name.into(), group);
        true
    }

    /// Hands a group to `edit`, with the entries.
    pub fn edit_group<R>(
        &mut self,
        name: &[u8],
        edit: impl FnOnce(&Log, &mut Group) -> R,
    ) -> Option<R> {
        let group = self.groups.get_mut(name)?;
        let before = group.heap_bytes();
        let result = edit(&self.log, group);
        self.group_bytes = self.group_bytes + group.heap_bytes() - before;
        Some(result)
    }

    /// Removes a group; returns true if it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.groups.remove(name) else {
            return false;
        };
        self.group_bytes -= bytes_of(name, &group);
        true
    }

    /// Returns how many entries a group has still to read; none if that is unknown. Negative if XSETID has set the
    /// counter of entries below the number that the group has read.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let log = &self.log;
        if log.entries_added() == 0 || log.is_empty() {
            return Some(0);
        }
        let tombstone = log.tombstone();
        if group.last_id() < log.first_id() && tombstone.is_none() {
            return Some(log.len() as i64);
        }
        let whole = tombstone.is_none_or(|deleted| group.last_id() > deleted);
        let read = match group.entries_read() {
            Some(read) if whole => read,
            _ => log.added_until(group.last_id())?,
        };
        Some(log.entries_added().wrapping_sub(read) as i64)
    }
}

impl Clone for Stream {
    fn clone(&self) -> Stream {
        let mut copy = Stream {
            log: self.log.clone(),
            groups: self.groups.clone(),
            group_bytes: 0,
        };
        copy.log.recount();
        for (name, group) in &mut copy.groups {
            group.recount();
            copy.group_bytes += bytes_of(name, group);
        }
        copy
    }
}

fn bytes_of(name: &[u8], group: &Group) -> usize {
    name.len() + group.heap_bytes()
}

/// Returns the number of bytes that a `BTreeMap` of this many items takes if they came in ascending order: a leaf has
/// room for eleven, and seven are left in it when it is split.
fn map_bytes<K, V>(items: usize) -> usize {
    const LEAF_ITEMS: usize = 11;
    const SPLIT_ITEMS: usize = 7;
    let leaf_bytes = LEAF_ITEMS * (size_of::<K>() + size_of::<V>()) + 2 * size_of::<usize>();
    let inner_bytes = leaf_bytes + (LEAF_ITEMS + 1) * size_of::<usize>();
    match items {
        0 => 0,
        1..=LEAF_ITEMS => leaf_bytes,
        _ => {
            let leaves = items.div_ceil(SPLIT_ITEMS);
            leaves * leaf_bytes + leaves.div_ceil(SPLIT_ITEMS) * inner_bytes
        }
    }
}

impl DataType for Stream {
    const NAME: &'static str = "stream";
    const OBJECT_TYPE: u32 = 6;
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "stream"
    }

    fn len(&self) -> usize {
        self.log.len() as usize
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.log.heap_bytes()
            + self.group_bytes
            + map_bytes::<Box<[u8]>, Group>(self.groups.len())
    }

    fn free_effort(&self) -> usize {
        // Groups are much alike, and asking one takes constant time.
        let group = self.groups.values().next().map_or(0, Group::free_effort);
        1 + self.log.node_count() + self.groups.len() * group
    }

    /// Returns true unless its groups, which are not given in pieces, are large.
    fn can_freeze(&self) -> bool {
        const WHOLE_PENDING_MAX: usize = 1_024;
        const WHOLE_GROUPS_MAX: usize = 64;
        let groups = self.groups.values();
        let counts = groups.map(|group| group.pending_len() + group.consumers().len());
        self.groups.len() <= WHOLE_GROUPS_MAX && counts.sum::<usize>() <= WHOLE_PENDING_MAX
    }

    /// Freezes the entries; what else there is in a stream is the caller's to keep.
    fn freeze(&mut self, id: FreezeId) {
        self.log.freeze(id);
    }

    fn freeze_id(&self) -> Option<FreezeId> {
        self.log.freeze_id()
    }

    fn thaw(&mut self) {
        self.log.thaw();
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        for entry in self.range(StreamId::MIN, StreamId::MAX) {
            digest.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
            for (name, value) in entry.fields() {
                digest.mix(name);
                digest.mix(value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
