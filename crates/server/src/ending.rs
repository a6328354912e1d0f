//! The end of the server on demand: SHUTDOWN, SIGTERM and SIGINT.
//!
//! Replicas get time to come to the end of the stream, while calls that write are held back; then the files are seen to
//! ([`persistence::begin_to_end`]), and the workers stop. Until then it can be called off. Whoever asks meanwhile waits for
//! the same end, and may have it not wait any more.
//!
//! Must not know: how a snapshot is taken, what replicas are sent.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use redline_engine::engine::{Hold, Message as Mail};
use redline_keyspace::{Unit, lock::StripeSet};
use redline_net::clock;
use redline_replica::{
    Primary, Role,
    primary::{Replica, State},
};

use crate::{
    following, log,
    persistence::{self, Begun, Files},
    replication,
    shared::{Message, Shared},
    worker::Worker,
};

/// Shortest time for the primary of a shard to hand over: seconds.
const HAND_OVER_S: u64 = 6;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Ending {
    /// The demand, while replicas get time.
    waiting: Mutex<Option<Waiting>>,
    /// True from the demand on, unless it is called off.
    is_on: AtomicBool,
    /// True if [`drive`] may have something to do.
    has_work: AtomicBool,
}

/// A way to end: the words of SHUTDOWN, and those for a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// A snapshot is saved before; `None`: if there are save points.
    pub saves: Option<bool>,
    /// Replicas get no time.
    pub is_now: bool,
    /// The process ends even if the files cannot be seen to.
    pub is_forced: bool,
}

struct Waiting {
    manner: Manner,
    /// The clients that asked.
    clients: Vec<u64>,
    /// End of the time of replicas: milliseconds of the monotonic clock.
    until_ms: u64,
}

impl Ending {
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().expect("no panic under an end")
    }

    /// Returns true if [`drive`] may have something to do.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    /// Returns true from the demand on, unless it is called off.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns the time that replicas still have, if they get some: milliseconds.
    pub(crate) fn left_ms(&self) -> Option<u64> {
        let waiting = self.waiting();
        let until_ms = waiting.as_ref()?.until_ms;
        Some(until_ms.saturating_sub(clock::monotonic_ms()))
    }
}

/// Begins to end the server, for a client or for a signal; returns at once.
pub(crate) fn begin(shared: &Shared, manner: Manner, client: Option<u64>) -> Begun {
    let ending = &shared.ending;
    let mut waiting = ending.waiting();
    if let Some(waiting) = &mut *waiting {
        waiting.clients.extend(client);
        waiting.manner.saves = manner.saves.or(waiting.manner.saves);
        waiting.manner.is_forced |= manner.is_forced;
        if manner.is_now {
            waiting.until_ms = 0;
        }
        wish(shared);
        return Begun::Waits;
    }
    let is_first = !ending.is_on.swap(true, Ordering::AcqRel);
    if is_first {
        log::notice("User requested shutdown...");
    }
    let timeout_s = shared.settings.current().service.shutdown_timeout_s;
    let is_loading = shared.persistence.loading.is_on();
    let gives_time = is_first && !manner.is_now && !is_loading;
    let hands_over = gives_time && begin_hand_over(shared);
    let waits = gives_time && timeout_s > 0 && !are_there(shared) || hands_over;
    let timeout_s = match hands_over {
        true => timeout_s.max(HAND_OVER_S),
        false => timeout_s,
    };
    let mut clients: Vec<u64> = client.into_iter().collect();
    if waits {
        log::notice("Waiting for replicas before shutting down.");
        let until_ms = clock::monotonic_ms().saturating_add(timeout_s.saturating_mul(1000));
        *waiting = Some(Waiting {
            manner,
            clients,
            until_ms,
        });
        drop(waiting);
        shared.engine.hold_writes(Hold::Shutdown, true);
        replication::ask_acks(shared, shared.keyspace.journal().last());
        wish(shared);
        return Begun::Waits;
    }
    drop(waiting);
    if is_first {
        report(shared);
    }
    let begun = see_to_files(shared, manner, &mut clients);
    if begun == Begun::Refused && is_first {
        let_go(shared);
    }
    begun
}

/// Has the primary of a shard hand over to a candidate, if there is one. Returns false if not.
fn begin_hand_over(shared: &Shared) -> bool {
    let etcd = shared.etcd().filter(|etcd| etcd.deciding.candidates() > 0);
    let leading = etcd.filter(|etcd| etcd.deciding.leads().is_some());
    leading.inspect(|etcd| etcd.deciding.hand_over()).is_some()
}

fn is_handing_over(shared: &Shared) -> bool {
    shared
        .etcd()
        .is_some_and(|etcd| etcd.deciding.is_handing_over())
}

/// Calls the end off. Returns false if nobody has asked for it.
pub(crate) fn abort(shared: &Shared) -> bool {
    let waiting = shared.ending.waiting().take();
    match waiting {
        Some(waiting) => refuse(shared, &waiting.clients),
        None if persistence::abort_shutdown(shared) => {}
        None => return false,
    }
    log::notice("Shutdown manually aborted.");
    let_go(shared);
    true
}

/// Returns true if a client has asked for the end and waits for it.
pub(crate) fn awaits(shared: &Shared, client: u64) -> bool {
    let waiting = shared.ending.waiting();
    let is_one = |waiting: &Waiting| waiting.clients.contains(&client);
    let is_one = waiting.as_ref().is_some_and(is_one);
    drop(waiting);
    is_one || shared.persistence.is_ending_for(client)
}

/// Has [`drive`] look whether replicas are there, or their time is up.
pub(crate) fn look(shared: &Shared) {
    if shared.ending.is_on() {
        wish(shared);
    }
}

/// Ends the time of replicas if it is up, or if they have everything; called by worker 0, which holds nothing.
pub(crate) fn drive(worker: &mut Worker) {
    let shared = worker.shared;
    let ending = &shared.ending;
    ending.has_work.store(false, Ordering::Release);
    let Some(until_ms) = ending.waiting().as_ref().map(|waiting| waiting.until_ms) else {
        return;
    };
    if clock::monotonic_ms() < until_ms && (is_handing_over(shared) || !have_all(shared)) {
        return;
    }
    let Some(mut waiting) = ending.waiting().take() else {
        return;
    };
    report(shared);
    if see_to_files(shared, waiting.manner, &mut waiting.clients) == Begun::Refused {
        refuse(shared, &waiting.clients);
        let_go(shared);
    }
}

/// Hears that the end has failed for the sake of the files.
pub(crate) fn failed(shared: &Shared) {
    log::warning("Errors trying to shut down the server. Check the logs for more information.");
    let_go(shared);
}

fn wish(shared: &Shared) {
    if !shared.ending.has_work.swap(true, Ordering::AcqRel) {
        shared.workers()[0]
            .mailbox
            .send(Message::Run(Box::new(|_| ())));
    }
}

/// Sees to the files. The clients are taken over by whoever waits for them.
fn see_to_files(shared: &Shared, manner: Manner, clients: &mut Vec<u64>) -> Begun {
    let begun = persistence::begin_to_end(
        shared,
        Files {
            saves: manner.saves,
            is_forced: manner.is_forced,
            clients,
        },
    );
    if begun == Begun::Refused {
        log::warning("Errors trying to shut down the server. Check the logs for more information.");
    }
    begun
}

/// Has the server go on as before.
fn let_go(shared: &Shared) {
    shared.ending.is_on.store(false, Ordering::Release);
    shared.engine.hold_writes(Hold::Shutdown, false);
    following::wake(shared);
}

/// Has clients answered that there is no end.
fn refuse(shared: &Shared, clients: &[u64]) {
    shared.persistence.refuse_end(clients);
    for client in clients {
        if let Some(token) = shared.token_of(*client) {
            shared.send(token, Mail::Wake(token));
        }
    }
}

/// Returns true if replicas have all that there can be: no call is writing, and nothing is on its way.
fn have_all(shared: &Shared) -> bool {
    let Ok(unit) = Unit::try_set(&shared.keyspace, &StripeSet::all(), false) else {
        return false;
    };
    let journal = shared.keyspace.journal();
    let _ = journal.pump(&mut || false);
    let primary = shared.replication.primary();
    let log = primary.log();
    let is_in_stream = log.identity().role() == Role::Replica
        || !primary.has_replicas()
        || log.last_record() == journal.last();
    drop(primary);
    let have_all = is_in_stream && are_there(shared);
    drop(unit);
    have_all
}

/// Returns true if every replica has told that it has the stream up to its end.
fn are_there(shared: &Shared) -> bool {
    let primary = shared.replication.primary();
    let end = primary.log().identity().offset();
    let mut replicas = primary.replicas().iter().filter(|it| is_counted(it));
    replicas.all(|replica| replica.has(end))
}

/// Returns true if a replica is one that gets time.
fn is_counted(replica: &Replica) -> bool {
    replica.state != State::Handshake && !replica.peer.rdb_only
}

/// Names replicas that lack something in the log.
fn report(shared: &Shared) {
    let lines = lagging(&shared.replication.primary(), clock::monotonic_ms());
    lines.iter().for_each(|line| log::notice(line));
}

/// Returns a line for each replica that lacks something, and one about all, if there are any.
fn lagging(primary: &Primary, now_ms: u64) -> Vec<String> {
    let end = primary.log().identity().offset();
    let mut lines = Vec::new();
    let (mut all, mut there) = (0, 0);
    for replica in primary.replicas().iter().filter(|it| is_counted(it)) {
        all += 1;
        if replica.has(end) {
            there += 1;
            continue;
        }
        lines.push(format!(
            "Lagging replica {}:{} reported offset {} behind master, lag={}, state={}.",
            replica.peer.shown_ip(),
            replica.peer.port,
            end.saturating_sub(replica.acked),
            replica.lag_ms(now_ms) / 1000,
            replica.state_name(),
        ));
    }
    if all > 0 {
        lines.push(format!(
            "{there} of {all} replicas are in sync when shutting down."
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use redline_replica::{Identity, Log, Replid, primary::Limits};

    use super::*;

    #[test]
    fn replicas_that_lag_are_named() {
        let limits = Limits {
            backlog_bytes: 1000,
            spool_bytes: 0,
            backlog_ttl_ms: 0,
            timeout_ms: 60_000,
            ping_period_ms: 10_000,
            is_diskless: true,
            delay_ms: 0,
            enough_replicas: 0,
            hard_bytes: 0,
            soft_bytes: 0,
            soft_ms: 0,
        };
        let id = Replid::NONE;
        let mut primary = Primary::new(Log::new(Identity::new(id)), limits);
        assert_eq!(lagging(&primary, 0), [""; 0]);
        // One that has only introduced itself, one that waits, and two that stand where the stream was kept from on.
        for (client, ip) in [
            (1, "10.0.0.1"),
            (2, "10.0.0.2"),
            (3, "10.0.0.3"),
            (4, "10.0.0.4"),
        ] {
            let peer = primary.peer_mut(client, 0);
            peer.ip = ip.to_owned();
            peer.port = 7000;
        }
        primary.sync(2, true, || id, 0);
        for client in [3, 4] {
            primary.psync(client, id.as_bytes(), 1, || id, 0);
        }
        primary.append(b"12345");
        primary.end_round(1);
        primary.fill(4, &mut redline_resp::ReplyBuffer::new(), usize::MAX);
        primary.ack(4, 5, None, 0);
        let expected = [
            "Lagging replica 10.0.0.2:7000 reported offset 5 behind master, lag=0, state=wait_bgsave.",
            "Lagging replica 10.0.0.3:7000 reported offset 5 behind master, lag=2, state=online.",
            "1 of 3 replicas are in sync when shutting down.",
        ];
        assert_eq!(lagging(&primary, 2500), expected);
    }
}
