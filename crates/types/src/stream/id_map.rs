//! A map under stream ids, made for lists that grow at their end and shrink from their start. Must not know its values.
//!
//! Items stand in ascending runs of up to [`RUN_ITEMS_MAX`], the runs in an ordered map. What is appended
//! fills runs to the brim, so that an item takes hardly more than its own bytes; a `BTreeMap` of single items
//! would leave its leaves half empty after ascending insertions.

use super::{StreamId, map_bytes};
use std::collections::BTreeMap;

/// Items in one run.
const RUN_ITEMS_MAX: usize = 64;

type Run<V> = Vec<(StreamId, V)>;

/// An ordered map under stream ids.
#[derive(Clone)]
pub(super) struct IdMap<V> {
    /// A run stands under an id that is not above its first and above all of the run before.
    runs: BTreeMap<StreamId, Run<V>>,
    len: usize,
    /// Items for which there is room.
    room: usize,
}

impl<V> Default for IdMap<V> {
    fn default() -> IdMap<V> {
        IdMap {
            runs: BTreeMap::new(),
            len: 0,
            room: 0,
        }
    }
}

impl<V> IdMap<V> {
    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of runs: about how many allocations there are.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.room * size_of::<(StreamId, V)>() + map_bytes::<StreamId, Run<V>>(self.runs.len())
    }

    /// Counts its bytes anew: a clone has no more room than it needs.
    pub(super) fn recount(&mut self) {
        self.room = self.runs.values().map(Vec::capacity).sum();
    }

    /// Returns the item under this id.
    pub(super) fn get(&self, id: StreamId) -> Option<&V> {
        let (_, run) = self.runs.range(..=id).next_back()?;
        let at = position(run, id).ok()?;
        Some(&run[at].1)
    }

    /// Returns the item under this id, to be changed.
    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut V> {
        let (_, run) = self.runs.range_mut(..=id).next_back()?;
        let at = position(run, id).ok()?;
        Some(&mut run[at].1)
    }

    /// Returns the items from this id on.
    pub(super) fn range_from(&self, start: StreamId) -> impl Iterator<Item = (StreamId, &V)> {
        let from = self.runs.range(..=start).next_back();
        let from = from.map_or(start, |(key, _)| *key);
        let mut runs = self.runs.range(from..).map(|(_, run)| &run[..]);
        let first = runs.next().unwrap_or_default();
        let skipped = first.partition_point(|(id, _)| *id < start);
        first[skipped..]
            .iter()
            .chain(runs.flatten())
            .map(|(id, value)| (*id, value))
    }

    /// Returns the highest id.
    pub(super) fn last_id(&self) -> Option<StreamId> {
        let (_, run) = self.runs.last_key_value()?;
        run.last().map(|(id, _)| *id)
    }

    /// Puts an item under this id, and returns the one that was there.
    pub(super) fn insert(&mut self, id: StreamId, value: V) -> Option<V> {
        let key = match self.runs.range(..=id).next_back() {
            Some((key, _)) => *key,
            None => match self.runs.pop_first() {
                Some((_, run)) if run.len() < RUN_ITEMS_MAX => {
                    self.runs.insert(id, run);
                    id
                }
                Some((key, run)) => {
                    self.runs.insert(key, run);
                    return self.insert_run(id, vec![(id, value)]);
                }
                None => return self.insert_run(id, vec![(id, value)]),
            },
        };
        let run = self.runs.get_mut(&key)?;
        let at = match position(run, id) {
            Ok(at) => return Some(std::mem::replace(&mut run[at].1, value)),
            Err(at) => at,
        };
        if run.len() < RUN_ITEMS_MAX {
            let before = run.capacity();
            run.insert(at, (id, value));
            self.room = self.room + run.capacity() - before;
            self.len += 1;
            return None;
        }
        if at == RUN_ITEMS_MAX {
            return self.insert_run(id, vec![(id, value)]);
        }
        let mut upper = run.split_off(RUN_ITEMS_MAX / 2);
        let split = upper[0].0;
        self.len -= upper.len();
        if at > RUN_ITEMS_MAX / 2 {
            upper.insert(at - RUN_ITEMS_MAX / 2, (id, value));
        } else {
            run.insert(at, (id, value));
            self.len += 1;
        }
        self.insert_run(split, upper)
    }

    fn insert_run(&mut self, key: StreamId, run: Run<V>) -> Option<V> {
        self.room += run.capacity();
        self.len += run.len();
        self.runs.insert(key, run);
        None
    }

    /// Removes the item under this id.
    pub(super) fn remove(&mut self, id: StreamId) -> Option<V> {
        let (&key, run) = self.runs.range_mut(..=id).next_back()?;
        let at = position(run, id).ok()?;
        let (_, value) = run.remove(at);
        self.len -= 1;
        let before = run.capacity();
        if run.is_empty() {
            self.room -= before;
            self.runs.remove(&key);
        } else if run.len() <= before / 4 {
            run.shrink_to(before / 2);
            self.room = self.room + run.capacity() - before;
            self.merge_with_next(key);
            if let Some((&before, _)) = self.runs.range(..key).next_back() {
                self.merge_with_next(before);
            }
        }
        Some(value)
    }

    /// Joins a run with the next one if both are small.
    fn merge_with_next(&mut self, key: StreamId) {
        let mut from = self.runs.range(key..);
        let (Some((_, run)), Some((&next_key, next))) = (from.next(), from.next()) else {
            return;
        };
        if run.len() + next.len() > RUN_ITEMS_MAX / 2 {
            return;
        }
        if let Some(next) = self.runs.remove(&next_key)
            && let Some(run) = self.runs.get_mut(&key)
        {
            let before = run.capacity() + next.capacity();
            run.extend(next);
            self.room = self.room + run.capacity() - before;
        }
    }
}

fn position<V>(run: &Run<V>, id: StreamId) -> Result<usize, usize> {
    match run.last() {
        Some((last, _)) if *last < id => Err(run.len()),
        _ => run.binary_search_by_key(&id, |(id, _)| *id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_changes_agree_with_a_map() {
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..20 {
            let mut map = IdMap::default();
            let mut model = BTreeMap::new();
            let ids = [200, 2000, 20_000][round % 3];
            let mut next = 0;
            for step in 0..6000 {
                let id = StreamId::new(random.u64(..ids), random.u64(..2));
                // Phases of growth at the end, of changes anywhere, of removal.
                match (random.u8(..10), step / 2000) {
                    (0..=7, 0) => {
                        next += random.u64(1..3);
                        let id = StreamId::new(next, 0);
                        assert_eq!(map.insert(id, step), model.insert(id, step));
                    }
                    (0..=4, 1) => assert_eq!(map.insert(id, step), model.insert(id, step)),
                    (0..=8, 2) => {
                        let victim = model.range(id..).next().map_or(id, |(id, _)| *id);
                        assert_eq!(map.remove(victim), model.remove(&victim));
                    }
                    (9, _) => {
                        if let Some(value) = map.get_mut(id) {
                            *value += 1;
                        }
                        if let Some(value) = model.get_mut(&id) {
                            *value += 1;
                        }
                    }
                    _ => assert_eq!(map.remove(id), model.remove(&id)),
                }
                assert_eq!(map.len(), model.len());
                assert_eq!(map.get(id), model.get(&id));
                assert_eq!(map.last_id(), model.keys().next_back().copied());
                let found = map.range_from(id).take(70);
                let expected = model.range(id..).take(70).map(|(id, value)| (*id, value));
                assert!(found.eq(expected));
            }
            let room: usize = map.runs.values().map(Vec::capacity).sum();
            assert_eq!(map.room, room);
            assert!(
                map.runs
                    .values()
                    .all(|run| run.len() <= RUN_ITEMS_MAX && !run.is_empty())
            );
            assert!(
                map.range_from(StreamId::MIN)
                    .eq(model.iter().map(|(id, v)| (*id, v)))
            );
        }
    }

    #[test]
    fn what_grows_at_its_end_is_dense() {
        let mut map = IdMap::default();
        for ms in 0..64_000 {
            map.insert(StreamId::new(ms, 0), ());
        }
        assert_eq!((map.runs(), map.room), (1000, 64_000));
        // One of 64 stays in each run.
        for ms in (0..64_000).filter(|ms| ms % 64 > 0) {
            assert_eq!(map.remove(StreamId::new(ms, 0)), Some(()));
        }
        assert!(map.heap_bytes() < 100 * map.len(), "{}", map.heap_bytes());
    }
}
