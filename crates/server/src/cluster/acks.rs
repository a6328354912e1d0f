//! `cluster-acks one`: replies leave when every node that may take over has the writes that they tell of.
//!
//! The gate of replies is closed behind the last record that all candidates have acknowledged; [`Count::released`] says which
//! that is. Without a candidate nothing is released: calls that write are suspended, and refused when that lasts. Replies of a
//! primary that is replaced are not sent, since their outcome is unknown: their connections are closed.
//!
//! Must not know: who becomes a candidate.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use redline_cluster::{
    control::{Count, Event},
    records::Incarnation,
};
use redline_engine::{engine::Hold, refusals::Reason};
use redline_keyspace::journal::Until;
use redline_net::clock;
use redline_replica::{link::NodeName, primary::Primary};

use crate::{
    session::Session,
    shared::{Message, Shared},
    worker::Worker,
};

/// Time for which calls that write are suspended while no node may take over, before they are refused; replies that wait then
/// are never sent. Milliseconds.
const SUSPENDED_MS: u64 = 5000;

/// See the head of the module.
#[derive(Default)]
pub(crate) struct Acks {
    state: Mutex<State>,
    /// Milliseconds for which no node could take over while replies waited for one.
    short_ms: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The candidates that replies wait for, and the term in which they are that.
    count: Option<(Count, u64)>,
    /// A set that is in force and not reported yet.
    asked: Option<Asked>,
    short: Option<Short>,
}

/// A set that is in force.
struct Asked {
    version: u64,
    /// The last record of which a reply may have told before it was. `None`: it is not known yet.
    record: Option<u64>,
}

/// The time for which there are not enough candidates.
#[derive(Clone, Copy)]
struct Short {
    since_ms: u64,
    /// When it was looked at last.
    seen_ms: u64,
}

impl Acks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no panic under the acknowledgements")
    }

    /// Returns the seconds for which no node could take over while replies waited for one.
    pub(crate) fn short_seconds(&self) -> u64 {
        self.short_ms.load(Ordering::Relaxed) / 1000
    }
}

impl State {
    fn is_waiting(&self) -> bool {
        matches!(&self.count, Some((count, _)) if count.is_waiting)
    }
}

/// Has replies wait for these candidates of a term from now on.
pub(super) fn count(shared: &Arc<Shared>, count: Count, term: u64) {
    let Some(etcd) = shared.etcd() else { return };
    let journal = shared.keyspace.journal();
    let mut state = etcd.acks.state();
    let is_same_term = matches!(&state.count, Some((_, before)) if *before == term);
    let begins = count.is_waiting && !(is_same_term && state.is_waiting());
    if begins {
        journal.gate.hold_behind(journal.last());
    }
    let version = count.version;
    state.count = Some((count, term));
    state.asked = Some(Asked {
        version,
        // Later ones are released by this set, whoever acknowledges them.
        record: (!begins).then(|| journal.last()),
    });
    drop(state);
    if begins {
        after_replies(shared, version);
    }
    look(shared);
}

/// Has the last record found that a reply may have told of which left while the gate was open: when every worker has ended its
/// turn.
fn after_replies(shared: &Arc<Shared>, version: u64) {
    let left = Arc::new(AtomicUsize::new(shared.workers().len()));
    for worker in shared.workers() {
        let left = left.clone();
        let end_turn = move |worker: &mut Worker| {
            let shared = worker.shared;
            let Some(etcd) = shared.etcd() else { return };
            if left.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            let last = shared.keyspace.journal().last();
            if let Some(asked) = &mut etcd.acks.state().asked
                && asked.version == version
            {
                asked.record = Some(last);
            }
            look(shared);
        };
        worker.mailbox.send(Message::Run(Box::new(end_turn)));
    }
}

/// Hears that a replica has acknowledged something.
pub(crate) fn acknowledged(shared: &Shared) {
    if let Some(etcd) = shared.etcd() {
        etcd.deciding.acknowledged();
        look(shared);
    }
}

/// Releases what every candidate has, and reports what a new set did not wait for. Called when a replica has acknowledged
/// something, and from time to time.
pub(super) fn look(shared: &Shared) {
    let Some(etcd) = shared.etcd() else { return };
    let mut state = etcd.acks.state();
    let Some((count, term)) = &state.count else {
        return;
    };
    let primary = shared.replication.primary();
    let released = count.released(u64::MAX, |who| acked(&primary, who, *term));
    let (end, last) = (
        primary.log().identity().offset(),
        primary.log().last_record(),
    );
    drop(primary);
    let is_short = count.is_waiting && !count.is_enough;
    // Under the lock: what an earlier set has released is not reported as if it were this one's.
    if let Some(record) = released {
        shared.engine.confirm(record);
    }
    let is_waiting = state.is_waiting();
    let is_found = |asked: &mut Asked| !is_waiting || asked.record.is_some_and(|it| it <= last);
    let found = state.asked.take_if(is_found);
    let now_ms = clock::monotonic_ms();
    let is_late = note_short(&mut state, &etcd.acks.short_ms, is_short, now_ms);

    if let Some(Asked { version, .. }) = found {
        // At most that: a set that has more joins no later.
        let released = end;
        etcd.deciding.post(Event::Counted { version, released });
    }
    hold_writes(shared, is_short, is_late);
    if is_late {
        close_waiting(shared, |_| ());
    }
    drop(state);
}

/// Returns the last record that a candidate has acknowledged over its link of this term; 0: none.
fn acked(primary: &Primary, who: &Incarnation, term: u64) -> u64 {
    let is_it = |name: &NodeName| {
        (&name.node, &name.incarnation, name.term) == (&who.node, &who.incarnation, term)
    };
    let mut replicas = primary.replicas().iter();
    let found = replicas.find(|it| it.peer.node.as_ref().is_some_and(is_it));
    let told = found.and_then(|replica| replica.told());
    told.map_or(0, |offset| primary.log().record_at(offset))
}

/// Notes whether there are not enough candidates now. Returns true if that lasts.
fn note_short(state: &mut State, short_ms: &AtomicU64, is_short: bool, now_ms: u64) -> bool {
    if !is_short {
        state.short = None;
        return false;
    }
    let short = state.short.get_or_insert(Short {
        since_ms: now_ms,
        seen_ms: now_ms,
    });
    short_ms.fetch_add(now_ms - short.seen_ms, Ordering::Relaxed);
    short.seen_ms = now_ms;
    now_ms - short.since_ms > SUSPENDED_MS
}

/// Suspends calls that write, or refuses them if it is late, or lets them run.
fn hold_writes(shared: &Shared, is_short: bool, is_late: bool) {
    let engine = &shared.engine;
    engine
        .refusals
        .set(Reason::Unconfirmed, is_late, &engine.settings);
    engine.hold_writes(Hold::Unconfirmed, is_short && !is_late);
}

/// A term begins with the data that there are, of which nobody waits for an acknowledgement: who may take over has them. Called
/// before anything is written in it.
pub(super) fn begin(shared: &Shared) {
    if let Some(etcd) = shared.etcd()
        && etcd.acks.state().is_waiting()
    {
        shared.engine.confirm(shared.keyspace.journal().last());
    }
}

/// The node has handed its shard over: all that was written is on the node that leads now, and on its candidates.
pub(super) fn handed_over(shared: &Shared) {
    let Some(etcd) = shared.etcd() else { return };
    let mut state = etcd.acks.state();
    *state = State::default();
    shared.engine.confirm_all();
    hold_writes(shared, false, false);
}

/// The node leads no more: connections whose replies wait are closed, then the gate is opened.
pub(super) fn end(shared: &Shared) {
    let Some(etcd) = shared.etcd() else { return };
    let mut state = etcd.acks.state();
    let was_waiting = state.is_waiting();
    *state = State::default();
    hold_writes(shared, false, false);
    drop(state);
    if was_waiting {
        close_waiting(shared, |shared| {
            // Unless the node leads again.
            if let Some(etcd) = shared.etcd()
                && let state = etcd.acks.state()
                && state.count.is_none()
            {
                shared.engine.confirm_all();
            }
        });
    }
}

/// Closes the connections whose replies wait for other nodes, and calls `then` behind the last.
fn close_waiting(shared: &Shared, then: fn(&Shared)) {
    let left = Arc::new(AtomicUsize::new(shared.workers().len()));
    for worker in shared.workers() {
        let left = left.clone();
        let close = move |worker: &mut Worker| {
            let gate = &worker.shared.keyspace.journal().gate;
            let waits = |session: &Session| {
                let told = Until::Confirmed(session.told_record());
                session.gate.is_some() && !gate.is_reached(told)
            };
            worker.for_each_session(|worker, session| {
                if waits(session) {
                    session.end_at_once();
                    session.gate = None;
                    worker.look_again(session);
                }
            });
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                then(worker.shared);
            }
        };
        worker.mailbox.send(Message::Run(Box::new(close)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_when_candidates_have_been_missing_for_long() {
        let (mut state, short_ms) = (State::default(), AtomicU64::new(0));
        let mut note = |is_short, now_ms| note_short(&mut state, &short_ms, is_short, now_ms);
        assert!(!note(false, 1000));
        assert!(!note(true, 2000));
        assert!(!note(true, 2000 + SUSPENDED_MS));
        assert!(note(true, 2001 + SUSPENDED_MS));
        assert!(!note(false, 9000), "one has come back");
        assert!(!note(true, 9500), "it begins anew");
        assert!(!note(true, 9600));
        assert_eq!(short_ms.load(Ordering::Relaxed), SUSPENDED_MS + 1 + 100);
    }
}
