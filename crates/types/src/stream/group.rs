//! A consumer group: how far a stream has been read, its consumers, and the entries that were delivered but not
//! acknowledged. Must not know entries beyond their ids, nor the clock.
//!
//! An entry that was delivered is *pending* until it is acknowledged. The group keeps all pending entries in
//! the order of their ids, each with its consumer; a consumer keeps the ids of its own. Consumers are named
//! by a number inside the group, so that a pending entry takes 40 bytes, and 16 in its consumer's list.

use super::id_map::IdMap;
use super::{Log, StreamId};

/// A consumer group of a stream.
#[derive(Clone)]
pub struct Group {
    last_id: StreamId,
    entries_read: Option<u64>,
    pending: IdMap<Pending>,
    /// By number; a number whose consumer is gone may be given again.
    consumers: Vec<Option<Consumer>>,
    /// The numbers of those that are there, in the order of their names.
    by_name: Vec<ConsumerId>,
    /// Bytes of the consumers' names and lists.
    consumer_bytes: usize,
}

/// A consumer's number, valid in its group for as long as the consumer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerId(u32);

/// A delivery that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The consumer that has the entry.
    pub consumer: ConsumerId,
    /// Time of the last delivery, as Unix time in milliseconds.
    pub delivered_at_ms: i64,
    /// Number of deliveries.
    pub deliveries: u64,
}

impl Pending {
    /// Milliseconds since the last delivery.
    pub fn idle_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.delivered_at_ms)
    }
}

/// A consumer of a group.
#[derive(Clone)]
pub struct Consumer {
    name: Box<[u8]>,
    /// Time of its last attempt to read or claim, as Unix time in milliseconds.
    pub seen_at_ms: i64,
    /// Time when it last got an entry, as Unix time in milliseconds; none if it never did.
    pub active_at_ms: Option<i64>,
    pending: IdMap<()>,
}

impl Consumer {
    /// Returns its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns how many entries it has.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the ids of its entries from this one on.
    pub fn pending_from(&self, start: StreamId) -> impl Iterator<Item = StreamId> {
        self.pending.range_from(start).map(|(id, ())| id)
    }

    fn heap_bytes(&self) -> usize {
        self.name.len() + self.pending.heap_bytes()
    }
}

/// The conditions and effects of a claim.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The present time, as Unix time in milliseconds.
    pub now_ms: i64,
    /// Only if it was delivered at least so long ago; 0 for any.
    pub idle_ms_min: i64,
    /// The time of delivery that it gets.
    pub delivered_at_ms: i64,
    /// The number of deliveries that it gets; without one, the number may grow by one.
    pub deliveries: Option<u64>,
    /// True if the number of deliveries grows where none is given.
    pub counts: bool,
    /// Also if it is not pending.
    pub force: bool,
}

/// Result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The consumer has the entry.
    Taken,
    /// The entry is no longer in the stream, and no longer pending.
    Gone,
    /// Nothing: it is not pending, or not for long enough.
    No,
}

impl Group {
    /// Returns a group that has read up to this id, which was so many entries if that is known.
    pub(super) fn new(last_id: StreamId, entries_read: Option<u64>) -> Group {
        Group {
            last_id,
            entries_read,
            pending: IdMap::default(),
            consumers: Vec::new(),
            by_name: Vec::new(),
            consumer_bytes: 0,
        }
    }

    /// Returns the id of the last entry that was delivered as new.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// Returns how many entries were read up to the last id, counting those that were skipped; none if unknown.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// Goes on reading behind this id, which is so many entries from the start if that is known.
    pub fn set_position(&mut self, last_id: StreamId, entries_read: Option<u64>) {
        self.last_id = last_id;
        self.entries_read = entries_read;
    }

    /// Moves the last id up to this one; returns true if it was below.
    pub fn raise_last_id(&mut self, id: StreamId) -> bool {
        let raised = id > self.last_id;
        self.last_id = self.last_id.max(id);
        raised
    }

    // ---- consumers ----------------------------------------------------------------------------

    /// Returns the consumers, by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.by_name.iter().map(|id| self.consumer(*id))
    }

    /// Returns the consumer of this number.
    pub fn consumer(&self, id: ConsumerId) -> &Consumer {
        self.consumers[id.0 as usize]
            .as_ref()
            .expect("the consumer is there")
    }

    /// Returns the consumer of this name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        let at = self.position(name).ok()?;
        Some(self.by_name[at])
    }

    /// Notes that a consumer is there, made if it is not; returns true if it was made.
    pub fn meet_consumer(&mut self, name: &[u8], now_ms: i64) -> (ConsumerId, bool) {
        let made = self.create_consumer(name, now_ms);
        let id = self.find_consumer(name).expect("the consumer is there");
        self.consumer_mut(id).seen_at_ms = now_ms;
        (id, made)
    }

    /// Sets when a consumer was last seen, and last active.
    pub fn set_times(&mut self, consumer: ConsumerId, seen_at_ms: i64, active_at_ms: Option<i64>) {
        let consumer = self.consumer_mut(consumer);
        consumer.seen_at_ms = seen_at_ms;
        consumer.active_at_ms = active_at_ms;
    }

    /// Makes a consumer; returns true if there was none of this name.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: i64) -> bool {
        let Err(at) = self.position(name) else {
            return false;
        };
        let consumer = Consumer {
            name: name.into(),
            seen_at_ms: now_ms,
            active_at_ms: None,
            pending: IdMap::default(),
        };
        self.consumer_bytes += consumer.heap_bytes();
        // Only after a removal may a number be free.
        let free = if self.by_name.len() < self.consumers.len() {
            self.consumers.iter().position(Option::is_none)
        } else {
            None
        };
        let number = free.unwrap_or_else(|| {
            self.consumers.push(None);
            self.consumers.len() - 1
        });
        self.consumers[number] = Some(consumer);
        let number = u32::try_from(number).expect("a group has fewer than 2^32 consumers");
        self.by_name.insert(at, ConsumerId(number));
        true
    }

    /// Removes a consumer and its pending entries; returns how many those were.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let at = self.position(name).ok()?;
        let id = self.by_name.remove(at);
        let consumer = self.consumers[id.0 as usize].take()?;
        self.consumer_bytes -= consumer.heap_bytes();
        for id in consumer.pending_from(StreamId::MIN) {
            self.pending.remove(id);
        }
        Some(consumer.pending_len())
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.by_name
            .binary_search_by(|id| self.consumer(*id).name().cmp(name))
    }

    fn consumer_mut(&mut self, id: ConsumerId) -> &mut Consumer {
        self.consumers[id.0 as usize]
            .as_mut()
            .expect("the consumer is there")
    }

    // ---- pending entries ----------------------------------------------------------------------

    /// Returns how many entries are pending.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the pending entries from this id on.
    pub fn pending_from(&self, start: StreamId) -> impl Iterator<Item = (StreamId, &Pending)> {
        self.pending.range_from(start)
    }

    /// Returns the highest id among the pending entries.
    pub fn last_pending(&self) -> Option<StreamId> {
        self.pending.last_id()
    }

    /// Returns the delivery of this entry that is pending.
    pub fn pending(&self, id: StreamId) -> Option<&Pending> {
        self.pending.get(id)
    }

    /// Returns true if the group still needs this entry: it is pending, or still to be read.
    pub fn needs(&self, id: StreamId) -> bool {
        id > self.last_id || self.pending.get(id).is_some()
    }

    /// Delivers entries that lie behind each other in the stream. Those behind the last id move it on.
    /// With `acknowledged` none of them becomes pending.
    pub fn deliver(
        &mut self,
        log: &Log,
        ids: &[StreamId],
        consumer: ConsumerId,
        now_ms: i64,
        acknowledged: bool,
    ) {
        let (first, tombstone) = (log.first_id(), log.tombstone());
        for &id in ids {
            if id > self.last_id {
                let whole = tombstone.is_none_or(|deleted| self.last_id > deleted);
                match &mut self.entries_read {
                    Some(read) if whole && self.last_id >= first => *read = read.wrapping_add(1),
                    read => *read = log.added_until(id),
                }
                self.last_id = id;
            }
            if !acknowledged {
                self.put(
                    id,
                    Pending {
                        consumer,
                        delivered_at_ms: now_ms,
                        deliveries: 1,
                    },
                );
                self.consumer_mut(consumer).active_at_ms = Some(now_ms);
            }
        }
    }

    /// Notes that a pending entry was delivered once more to its consumer.
    pub fn deliver_again(&mut self, id: StreamId, now_ms: i64) {
        if let Some(pending) = self.pending.get_mut(id) {
            pending.delivered_at_ms = now_ms;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// Acknowledges an entry; returns true if it was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(id) else {
            return false;
        };
        self.edit_list(pending.consumer, |list| list.remove(id));
        true
    }

    /// Gives a pending entry to a consumer; `exists`: the stream still has it.
    pub fn claim(
        &mut self,
        id: StreamId,
        exists: bool,
        consumer: ConsumerId,
        claim: &Claim,
    ) -> Claimed {
        let pending = self.pending.get(id);
        if !exists {
            return if self.acknowledge(id) {
                Claimed::Gone
            } else {
                Claimed::No
            };
        }
        let before = match pending {
            Some(pending)
                if claim.idle_ms_min > 0 && pending.idle_ms(claim.now_ms) < claim.idle_ms_min =>
            {
                return Claimed::No;
            }
            Some(pending) => pending.deliveries,
            None if claim.force => 1,
            None => return Claimed::No,
        };
        let deliveries = claim
            .deliveries
            .unwrap_or(before.wrapping_add(u64::from(claim.counts)));
        self.put(
            id,
            Pending {
                consumer,
                delivered_at_ms: claim.delivered_at_ms,
                deliveries,
            },
        );
        self.consumer_mut(consumer).active_at_ms = Some(claim.now_ms);
        Claimed::Taken
    }

    /// Makes an entry pending, whichever consumer had it before.
    fn put(&mut self, id: StreamId, pending: Pending) {
        let before = self.pending.insert(id, pending);
        if let Some(before) = before {
            if before.consumer == pending.consumer {
                return;
            }
            self.edit_list(before.consumer, |list| list.remove(id));
        }
        self.edit_list(pending.consumer, |list| list.insert(id, ()));
    }

    /// Changes a consumer's list and keeps the account of it.
    fn edit_list<R>(&mut self, consumer: ConsumerId, edit: impl FnOnce(&mut IdMap<()>) -> R) -> R {
        let list = &mut self.consumer_mut(consumer).pending;
        let before = list.heap_bytes();
        let result = edit(list);
        let after = list.heap_bytes();
        self.consumer_bytes = self.consumer_bytes + after - before;
        result
    }

    /// Counts its bytes anew, after it was cloned.
    pub(super) fn recount(&mut self) {
        self.pending.recount();
        self.consumer_bytes = 0;
        for consumer in self.consumers.iter_mut().flatten() {
            consumer.pending.recount();
            self.consumer_bytes += consumer.heap_bytes();
        }
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.pending.heap_bytes()
            + self.consumer_bytes
            + self.consumers.capacity() * size_of::<Option<Consumer>>()
            + self.by_name.capacity() * size_of::<ConsumerId>()
    }

    /// Returns the approximate number of allocations.
    pub(super) fn free_effort(&self) -> usize {
        1 + 2 * self.pending.runs() + self.by_name.len()
    }
}
