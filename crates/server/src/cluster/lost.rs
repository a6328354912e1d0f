//! Slots that a node has lost to another: their keys are dropped, whoever waits for one is sent on, and shard channels end.
//!
//! Keys go in slices, each under the stripe of its slot, while the node serves others. A replica drops what its primary
//! says.
//!
//! Must not know: commands, how a slot was lost.

use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use redline_cluster::{SLOTS, slot_of};
use redline_engine::{
    Outlet,
    executor::block::{self, Outcome},
    pubsub::Kind,
    subscriptions,
    tracking::By,
};
use redline_keyspace::{Classes, End, Keyspace, Unit};
use redline_resp::ArgsBuf;

use super::View;
use crate::{
    shared::{Message, Shared},
    worker::Worker,
};

/// Keys that are dropped under one hold of a stripe.
const KEYS_PER_SLICE: usize = 128;

/// Slots whose keys are yet to be dropped.
#[derive(Default)]
pub(crate) struct Lost {
    slots: Mutex<BTreeSet<u16>>,
    /// Slots of this node's shard by the last view.
    held: Mutex<Vec<RangeInclusive<u16>>>,
    has_work: AtomicBool,
    /// Place in the first slot up to which its keys are gone.
    place: AtomicU32,
}

impl Lost {
    /// Returns true if there are keys to be dropped. Read every turn.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Relaxed)
    }

    /// Notes the slots of a view that are another node's and have keys here. Returns true if the node's shard has a slot no more.
    pub(super) fn note(&self, view: &View, space: &Keyspace) -> bool {
        let is_lost = |slot: &u16| view.is_lost(*slot) && space.slot_key_count(0, *slot) > 0;
        let slots: BTreeSet<u16> = match view.is_primary {
            true => (0..SLOTS as u16).filter(is_lost).collect(),
            false => BTreeSet::new(),
        };
        self.has_work.store(!slots.is_empty(), Ordering::Relaxed);
        *self.slots.lock().expect("no panic under the lost slots") = slots;
        self.place.store(0, Ordering::Relaxed);
        let held = match view.is_member {
            true => view.picture.owners().runs_of(&view.shard),
            false => Vec::new(),
        };
        let mut before = self.held.lock().expect("no panic under the held slots");
        let before = std::mem::replace(&mut *before, held);
        before.into_iter().flatten().any(|slot| !view.has(slot))
    }

    fn next(&self) -> Option<u16> {
        let slots = self.slots.lock().expect("no panic under the lost slots");
        slots.first().copied()
    }

    fn forget(&self, slot: u16) {
        let mut slots = self.slots.lock().expect("no panic under the lost slots");
        slots.remove(&slot);
        self.place.store(0, Ordering::Relaxed);
        self.has_work.store(!slots.is_empty(), Ordering::Relaxed);
    }
}

/// Drops some keys of a lost slot. Called by worker 0 in a turn, which holds nothing.
pub(crate) fn drive(worker: &mut Worker) {
    let shared = worker.shared;
    let Some(etcd) = shared.cluster.as_ref().and_then(|node| node.etcd.as_ref()) else {
        return;
    };
    let lost = &etcd.lost;
    let Some(slot) = lost.next() else { return };
    let stripe = Keyspace::stripe_of_slot(slot);
    if let Some(mut unit) = Unit::try_one(&shared.keyspace, stripe) {
        // Under the stripe: what comes back comes under it, and is in the view by then.
        let view = shared.cluster.as_ref().map(|node| node.view());
        let is_lost = view.is_some_and(|view| view.is_primary && view.is_lost(slot));
        let is_empty = is_lost && drop_some(worker, &mut unit, slot, &lost.place);
        // Of keys that nobody was shown.
        worker.publish_events(By::Nobody);
        if is_empty {
            unit.set_hidden(slot, false);
        }
        if is_empty || !is_lost {
            lost.forget(slot);
        }
        block::commit(worker.executor, unit);
    }
    if lost.has_work() {
        // Others come first.
        shared.workers()[0]
            .mailbox
            .send(Message::Run(Box::new(|_| ())));
    }
}

/// Drops some keys of a slot; returns true if none is left.
fn drop_some(worker: &mut Worker, unit: &mut Unit<'_>, slot: u16, place: &AtomicU32) -> bool {
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    let mut next = Some(place.load(Ordering::Relaxed));
    while let Some(from) = next
        && keys.len() < KEYS_PER_SLICE
    {
        next = unit.visit_slot_from(0, slot, from, &mut |key| keys.push(key.into()));
    }
    place.store(next.unwrap_or(0), Ordering::Relaxed);
    let now_ms = worker.now_ms;
    let mut view = unit.view(&mut worker.local, 0, now_ms);
    for key in &keys {
        if view.remove(key) {
            view.changed(Classes::GENERIC, "del", key);
            view.propagate(&[&b"DEL"[..], key]);
        }
    }
    view.finish();
    worker.shared.keyspace.slot_key_count(0, slot) == 0
}

/// Has clients go on that wait for keys of slots which are not served any more, and ends subscriptions to their shard
/// channels. Called when that is so, with every stripe held.
pub(super) fn send_on(shared: &Shared, view: &Arc<View>) {
    let is_lost = |slot: u16| !view.has(slot);
    for info in shared.client_infos() {
        let waits = info.wait.waits_for(|key| is_lost(slot_of(key)));
        if waits && let Some(waiter) = info.wait.end(End::Again) {
            block::tell(&shared.engine, &waiter, Outcome::default());
        }
    }
    let channels = shared.pubsub.channels(Kind::Shard, None);
    if !channels.iter().any(|channel| is_lost(slot_of(channel))) {
        return;
    }
    for handle in shared.workers() {
        let view = view.clone();
        handle.mailbox.send(Message::Run(Box::new(move |worker| {
            end_channels(worker, &view);
        })));
    }
}

/// Ends the subscriptions of a worker's clients to shard channels of other nodes.
fn end_channels(worker: &mut Worker, view: &View) {
    Outlet::for_each_caller(worker.executor, |executor, caller| {
        let Some(all) = caller.subscriptions.as_deref() else {
            return;
        };
        let names = all.of(Kind::Shard).iter();
        let lost = names.filter(|name| !view.has(slot_of(name)));
        let lost: ArgsBuf = lost.map(|name| &**name).collect();
        if lost.as_args().is_empty() {
            return;
        }
        subscriptions::remove(executor, caller, Kind::Shard, lost.as_args());
        Outlet::look_again(executor, caller.info.token());
    });
}

#[cfg(test)]
mod tests {
    use redline_cluster::{
        Picture,
        records::{
            FORMAT, Incarnation, MAP_KEY, META_KEY, MOVES_KEY, Map, Meta, Move, MoveState, Moves,
            NODES, Record, SHARDS, Side, VERSION,
        },
    };
    use redline_keyspace::{Expiry, Local, lock::Wake};
    use redline_types::Limits;

    use super::*;
    use crate::cluster::{alone, this_version};

    struct Nobody;

    impl Wake for Nobody {
        fn wake(&self, _: u64) {}
    }

    /// The view of shard a, of which b has all slots, with a move of all to a.
    fn view(owner: &str, state: MoveState) -> View {
        let meta = Meta {
            v: VERSION,
            cluster: "c".into(),
            format: FORMAT,
        };
        let map = Map {
            v: VERSION,
            runs: vec![(0, 16383, owner.to_owned())],
        };
        let side = |shard: &str| Side {
            shard: shard.to_owned(),
            primary: Incarnation {
                node: shard.to_owned(),
                incarnation: String::new(),
            },
        };
        let moves = Moves {
            v: VERSION,
            moves: vec![Move {
                id: "m".into(),
                runs: vec![(0, 16383)],
                from: side("b"),
                to: side("a"),
                state,
                why: String::new(),
            }],
        };
        let mut records = vec![
            (META_KEY.to_owned(), meta.to_json()),
            (MAP_KEY.to_owned(), map.to_json()),
            (MOVES_KEY.to_owned(), moves.to_json()),
        ];
        for name in ["a", "b"] {
            records.push((format!("{NODES}{name}"), this_version().to_json()));
            records.push((format!("{SHARDS}{name}"), alone(name, 1).to_json()));
        }
        let records = records.iter();
        let records = records.map(|(key, json)| (key.as_str(), json.as_slice()));
        View {
            picture: Picture::of(1, records).unwrap(),
            shard: "a".into(),
            is_member: true,
            is_primary: true,
            alive: None,
        }
    }

    #[test]
    fn keys_go_that_are_another_nodes_and_not_those_that_are_coming() {
        let mut space = Keyspace::new(1, Box::new(Nobody)).of_cluster();
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        let mut unit = Unit::exclusive(&mut space);
        let mut keys = unit.view(&mut local, 0, 0);
        keys.set_string(b"k", b"value", Expiry::Clear);
        keys.changed(Classes::STRING, "set", b"k");
        keys.finish();
        drop(unit);
        let lost = Lost::default();
        assert!(!lost.note(&view("a", MoveState::Done), &space) && !lost.has_work());
        assert!(
            lost.note(&view("b", MoveState::Copying), &space),
            "it had the slots"
        );
        assert!(!lost.has_work(), "they are copied to it");
        assert!(!lost.note(&view("b", MoveState::Aborted), &space));
        assert_eq!((lost.has_work(), lost.next()), (true, Some(slot_of(b"k"))));
        lost.forget(slot_of(b"k"));
        assert!(!lost.has_work());
        let mut replica = view("b", MoveState::Aborted);
        replica.is_primary = false;
        assert!(
            !lost.note(&replica, &space) && !lost.has_work(),
            "its primary says so"
        );
    }
}
