//! Groups against a model of plain maps, and what they count.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

const NAMES: [&[u8]; 3] = [b"one", b"three", b"two"];

fn id(ms: u64) -> StreamId {
    StreamId::new(ms, 0)
}

/// One group of the model: consumers with what they were seen and active at, pending entries with consumer,
/// time and deliveries.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model {
    last_id: u64,
    consumers: BTreeMap<&'static [u8], (i64, Option<i64>)>,
    pending: BTreeMap<u64, (&'static [u8], i64, u64)>,
}

impl Model {
    fn of(group: &Group) -> Model {
        let name = |consumer| {
            let name = group.consumer(consumer).name();
            *NAMES.iter().find(|known| **known == name).unwrap()
        };
        let consumers = NAMES.iter().filter_map(|name| {
            let consumer = group.consumer(group.find_consumer(name)?);
            Some((*name, (consumer.seen_at_ms, consumer.active_at_ms)))
        });
        let pending = group.pending_from(StreamId::MIN).map(|(id, pending)| {
            let known = (
                name(pending.consumer),
                pending.delivered_at_ms,
                pending.deliveries,
            );
            (id.ms, known)
        });
        Model {
            last_id: group.last_id().ms,
            consumers: consumers.collect(),
            pending: pending.collect(),
        }
    }

    fn meet(&mut self, name: &'static [u8], now_ms: i64) {
        self.consumers.entry(name).or_insert((now_ms, None)).0 = now_ms;
    }

    fn take(&mut self, id: u64, name: &'static [u8], at_ms: i64, deliveries: u64, now_ms: i64) {
        self.pending.insert(id, (name, at_ms, deliveries));
        self.consumers.get_mut(name).unwrap().1 = Some(now_ms);
    }

    fn needs(&self, id: u64) -> bool {
        id > self.last_id || self.pending.contains_key(&id)
    }
}

/// A stream and its model.
#[derive(Clone, Default)]
struct Both {
    stream: Stream,
    entries: BTreeSet<u64>,
    groups: BTreeMap<&'static [u8], Model>,
    added: u64,
}

impl Both {
    fn add(&mut self, limits: &Limits) {
        self.added += 1;
        let fields = [&b"f"[..], b"v"].into_iter();
        let added = self
            .stream
            .add(NewId::Exact(id(self.added)), 0, fields, limits);
        assert_eq!(added, Ok(id(self.added)));
        self.entries.insert(self.added);
    }

    fn deliver(&mut self, random: &mut fastrand::Rng, now_ms: i64) {
        let (group, consumer) = (
            *random.choice(&NAMES).unwrap(),
            *random.choice(&NAMES).unwrap(),
        );
        let (count, acknowledged) = (random.usize(1..20), random.u8(..5) == 0);
        let delivered = self.stream.edit_group(group, |log, group| {
            let from = group.last_id().next().unwrap();
            let ids = log.range(from, StreamId::MAX).map(|entry| entry.id);
            let ids: Vec<StreamId> = ids.take(count).collect();
            let (consumer, _) = group.meet_consumer(consumer, now_ms);
            group.deliver(log, &ids, consumer, now_ms, acknowledged);
            ids
        });
        let model = self.groups.get_mut(group);
        assert_eq!(delivered.is_some(), model.is_some());
        let Some(model) = model else { return };
        model.meet(consumer, now_ms);
        let expected: Vec<u64> = self
            .entries
            .range(model.last_id + 1..)
            .take(count)
            .copied()
            .collect();
        assert!(
            delivered
                .unwrap()
                .iter()
                .map(|id| id.ms)
                .eq(expected.iter().copied())
        );
        for id in expected {
            model.last_id = id;
            if !acknowledged {
                model.take(id, consumer, now_ms, 1, now_ms);
            }
        }
    }

    fn claim(&mut self, random: &mut fastrand::Rng, now_ms: i64) {
        let (group, consumer) = (
            *random.choice(&NAMES).unwrap(),
            *random.choice(&NAMES).unwrap(),
        );
        let at = random.u64(..self.added + 2);
        let claim = Claim {
            now_ms,
            idle_ms_min: random.i64(0..2) * 30,
            delivered_at_ms: now_ms - random.i64(0..9),
            deliveries: random.bool().then(|| random.u64(..9)),
            counts: random.bool(),
            force: random.u8(..4) == 0,
        };
        let claimed = self.stream.edit_group(group, |log, group| {
            let (consumer, _) = group.meet_consumer(consumer, now_ms);
            group.claim(id(at), log.contains(id(at)), consumer, &claim)
        });
        let Some(model) = self.groups.get_mut(group) else {
            return;
        };
        model.meet(consumer, now_ms);
        let before = model.pending.get(&at).copied();
        let expected = match before {
            _ if !self.entries.contains(&at) => match model.pending.remove(&at) {
                Some(_) => Claimed::Gone,
                None => Claimed::No,
            },
            Some((_, delivered_at_ms, _))
                if claim.idle_ms_min > 0 && now_ms - delivered_at_ms < claim.idle_ms_min =>
            {
                Claimed::No
            }
            None if !claim.force => Claimed::No,
            _ => {
                let deliveries = before.map_or(1, |(_, _, deliveries)| deliveries);
                let counted = deliveries + u64::from(claim.counts);
                let deliveries = claim.deliveries.unwrap_or(counted);
                model.take(at, consumer, claim.delivered_at_ms, deliveries, now_ms);
                Claimed::Taken
            }
        };
        assert_eq!(claimed, Some(expected));
    }

    fn delete(&mut self, random: &mut fastrand::Rng) {
        let at = random.u64(1..self.added + 3);
        let references = *random.choice(&REFERENCES).unwrap();
        let needed = self.groups.values().any(|group| group.needs(at));
        let expected = if references == References::Respect && needed {
            Deletion::Needed
        } else if self.entries.remove(&at) {
            Deletion::Done
        } else {
            Deletion::Missing
        };
        if references == References::Delete {
            self.forget(at);
        }
        assert_eq!(self.stream.delete(id(at), references), expected);
    }

    fn trim(&mut self, random: &mut fastrand::Rng) {
        let references = *random.choice(&REFERENCES).unwrap();
        let by_len = random.bool();
        let threshold = if by_len {
            random.u64(..self.entries.len() as u64 + 3)
        } else {
            random.u64(self.added.saturating_sub(60)..self.added + 2)
        };
        let mut expected = 0;
        for at in self.entries.clone() {
            let stays = if by_len {
                self.entries.len() as u64 <= threshold
            } else {
                at >= threshold
            };
            if stays {
                break;
            }
            let needed = self.groups.values().any(|group| group.needs(at));
            if references == References::Respect && needed {
                continue;
            }
            self.entries.remove(&at);
            expected += 1;
            if references == References::Delete {
                self.forget(at);
            }
        }
        let to = if by_len {
            TrimTo::MaxLen(threshold)
        } else {
            TrimTo::MinId(id(threshold))
        };
        let trim = Trim {
            to,
            approximate: false,
            limit: 0,
        };
        assert_eq!(self.stream.trim(&trim, references), expected);
    }

    fn forget(&mut self, at: u64) {
        for group in self.groups.values_mut() {
            group.pending.remove(&at);
        }
    }

    fn change_groups(&mut self, random: &mut fastrand::Rng, now_ms: i64) {
        let name = *random.choice(&NAMES).unwrap();
        let known = self.groups.contains_key(name);
        match random.u8(..8) {
            0 => {
                assert_eq!(self.stream.remove_group(name), known);
                self.groups.remove(name);
            }
            1..=3 => {
                let last_id = random.u64(..self.added + 1);
                assert_eq!(self.stream.create_group(name, id(last_id), None), !known);
                self.groups.entry(name).or_insert(Model {
                    last_id,
                    ..Model::default()
                });
            }
            4 | 5 => {
                let consumer = *random.choice(&NAMES).unwrap();
                let removed = self
                    .stream
                    .edit_group(name, |_, group| group.remove_consumer(consumer));
                let Some(model) = self.groups.get_mut(name) else {
                    return;
                };
                let before = model.pending.len();
                model.pending.retain(|_, (owner, ..)| *owner != consumer);
                let pending = before - model.pending.len();
                let there = model.consumers.remove(consumer).is_some();
                assert_eq!(removed, Some(there.then_some(pending)));
            }
            _ => {
                let at = random.u64(..self.added + 1);
                let again = random.bool();
                let acked = self.stream.edit_group(name, |_, group| {
                    if again {
                        group.deliver_again(id(at), now_ms);
                        return false;
                    }
                    group.acknowledge(id(at))
                });
                let Some(model) = self.groups.get_mut(name) else {
                    return;
                };
                if !again {
                    assert_eq!(acked, Some(model.pending.remove(&at).is_some()));
                } else if let Some((_, delivered_at_ms, deliveries)) = model.pending.get_mut(&at) {
                    (*delivered_at_ms, *deliveries) = (now_ms, *deliveries + 1);
                }
            }
        }
    }

    fn check(&self) {
        let entries = self.stream.range(StreamId::MIN, StreamId::MAX);
        assert!(
            entries
                .map(|entry| entry.id.ms)
                .eq(self.entries.iter().copied())
        );
        let groups = self
            .stream
            .groups()
            .map(|(name, group)| (name, Model::of(group)));
        let expected = self
            .groups
            .iter()
            .map(|(name, model)| (*name, model.clone()));
        assert!(groups.eq(expected));
        for (_, group) in self.stream.groups() {
            let mut listed: Vec<StreamId> = group
                .consumers()
                .flat_map(|consumer| consumer.pending_from(StreamId::MIN))
                .collect();
            listed.sort_unstable();
            let pending = group.pending_from(StreamId::MIN).map(|(id, _)| id);
            assert!(pending.eq(listed));
            assert_eq!(
                group.last_pending(),
                group.pending_from(StreamId::MIN).last().map(|(id, _)| id)
            );
        }
        let bytes: usize = self
            .stream
            .groups()
            .map(|(name, group)| bytes_of(name, group))
            .sum();
        assert_eq!(self.stream.group_bytes, bytes);
    }
}

const REFERENCES: [References; 3] = [References::Keep, References::Delete, References::Respect];

#[test]
fn random_changes_of_groups_agree_with_maps() {
    let mut random = fastrand::Rng::with_seed(7);
    let limits = Limits {
        stream_node_max_entries: 5,
        ..Limits::default()
    };
    for _ in 0..20 {
        let mut both = Both::default();
        for step in 0..1500 {
            let now_ms = 1000 + i64::from(step);
            match random.u8(..20) {
                0..=6 => both.add(&limits),
                7..=10 => both.deliver(&mut random, now_ms),
                11..=14 => both.claim(&mut random, now_ms),
                15 => both.delete(&mut random),
                16 if random.u8(..8) == 0 => both.trim(&mut random),
                _ => both.change_groups(&mut random, now_ms),
            }
            if step % 10 == 0 {
                both.check();
            }
        }
        let mut copy = both.clone();
        both.change_groups(&mut random, 0);
        both.check();
        copy.check();
        copy.deliver(&mut random, 0);
        copy.change_groups(&mut random, 0);
        copy.check();
    }
}

#[test]
fn without_deletions_the_lag_is_what_is_left_to_read() {
    let mut random = fastrand::Rng::with_seed(9);
    let limits = Limits {
        stream_node_max_entries: 3,
        ..Limits::default()
    };
    for _ in 0..50 {
        let mut both = Both::default();
        for step in 0..200 {
            match random.u8(..10) {
                0..=4 => both.add(&limits),
                5 => {
                    let name = *random.choice(&NAMES).unwrap();
                    let last_id = [0, both.added][random.usize(..2)];
                    if both.stream.create_group(name, id(last_id), Some(last_id)) {
                        both.groups.insert(
                            name,
                            Model {
                                last_id,
                                ..Model::default()
                            },
                        );
                    }
                }
                6 if random.u8(..4) == 0 => both.trim(&mut random),
                _ => both.deliver(&mut random, step),
            }
            for (_, group) in both.stream.groups() {
                let left = both.entries.range(group.last_id().ms + 1..).count();
                assert_eq!(both.stream.lag(group), Some(left as i64));
            }
        }
    }
}

#[test]
fn the_lag_is_unknown_behind_a_deletion_until_all_is_read() {
    let mut both = Both::default();
    (0..5).for_each(|_| both.add(&Limits::default()));
    both.stream.create_group(b"g", id(2), None);
    let lag = |both: &Both| both.stream.lag(both.stream.group(b"g").unwrap());
    assert_eq!(lag(&both), None);
    let move_to = |both: &mut Both, at, read| {
        both.stream
            .edit_group(b"g", |_, group| group.set_position(id(at), read));
    };
    move_to(&mut both, 2, Some(2));
    assert_eq!(lag(&both), Some(3));
    both.stream.delete(id(4), References::Keep);
    assert_eq!(lag(&both), None);
    move_to(&mut both, 0, None);
    assert_eq!(lag(&both), None);
    move_to(&mut both, 5, None);
    assert_eq!(lag(&both), Some(0));
    both.stream.set_counters(id(9), Some(3), None);
    move_to(&mut both, 5, Some(5));
    assert_eq!(lag(&both), Some(-2));
}

#[test]
fn a_pending_entry_takes_little_more_than_its_own_bytes() {
    let mut both = Both::default();
    (0..10_000).for_each(|_| both.add(&Limits::default()));
    both.stream.create_group(b"g", StreamId::MIN, None);
    let before = both.stream.heap_bytes();
    both.stream.edit_group(b"g", |log, group| {
        let (consumer, _) = group.meet_consumer(b"c", 0);
        let ids: Vec<StreamId> = log
            .range(StreamId::MIN, StreamId::MAX)
            .map(|entry| entry.id)
            .collect();
        group.deliver(log, &ids, consumer, 0, false);
    });
    let grown = both.stream.heap_bytes() - before;
    assert!((56..62).contains(&(grown / 10_000)), "{grown}");
}
