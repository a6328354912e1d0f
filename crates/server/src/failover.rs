//! FAILOVER: the server changes roles with one of its replicas, and no write is lost.
//!
//! Writes are held back until the replica has all of the stream. Then this server follows it, asking for the stream with a
//! word that has the replica become a primary first. Whatever ends the attempt lets the writes go on: here if it failed,
//! with READONLY if it did not.
//!
//! Must not know: how a primary is followed, how writes are held back.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use redline_engine::engine::Hold;
use redline_net::clock;
use redline_replica::primary::{Replica, State};

use crate::{following, log, replication, shared::Shared};

/// Host and port of a server.
type Address = (String, u16);

/// See the module's text.
#[derive(Default)]
pub(crate) struct Failover {
    attempt: Mutex<Option<Attempt>>,
    /// True while there is an attempt.
    is_on: AtomicBool,
}

/// A call of FAILOVER.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The replica; `None`: the first that has everything.
    pub(crate) target: Option<Address>,
    /// Time for the replica to get everything: milliseconds.
    pub(crate) timeout_ms: Option<u64>,
    /// After that time roles change all the same.
    pub(crate) is_forced: bool,
}

/// A reason for which there is no attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// One is under way.
    InProgress,
    /// The server follows another.
    IsReplica,
    /// There is no replica.
    NoReplicas,
    /// Force without a target or a time.
    ForceWithout,
    /// The target is none.
    NotReplica,
    /// The target does not have the data yet.
    NotOnline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The replica lacks something.
    WaitForSync,
    /// Worker 0 is to change the role.
    Switching,
    /// The replica is asked to take over.
    InProgress,
    /// Worker 0 is to change the role back.
    TurningBack,
}

#[derive(Debug)]
struct Attempt {
    target: Option<Address>,
    deadline_ms: Option<u64>,
    is_forced: bool,
    /// The deadline of a forced attempt has passed.
    goes_anyway: bool,
    phase: Phase,
}

impl Failover {
    fn attempt(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.attempt.lock().expect("no panic under a failover")
    }
}

/// Returns true while there is an attempt.
pub(crate) fn is_on(shared: &Shared) -> bool {
    shared.failover.is_on.load(Ordering::Acquire)
}

/// Returns true while the replica lacks something.
fn is_waiting(shared: &Shared) -> bool {
    let attempt = shared.failover.attempt();
    let phase = attempt.as_ref().map(|attempt| attempt.phase);
    phase == Some(Phase::WaitForSync)
}

/// Returns true while the replica is asked to take over.
pub(crate) fn is_under_way(shared: &Shared) -> bool {
    let attempt = shared.failover.attempt();
    let phase = attempt.as_ref().map(|attempt| attempt.phase);
    phase == Some(Phase::InProgress)
}

/// Returns the state as INFO names it.
pub(crate) fn state_name(shared: &Shared) -> &'static str {
    let attempt = shared.failover.attempt();
    match attempt.as_ref().map(|attempt| attempt.phase) {
        None | Some(Phase::TurningBack) => "no-failover",
        Some(Phase::WaitForSync | Phase::Switching) => "waiting-for-sync",
        Some(Phase::InProgress) => "failover-in-progress",
    }
}

/// Begins an attempt; returns at once.
pub(crate) fn begin(shared: &Shared, request: Request) -> Result<(), Refusal> {
    let mut attempt = shared.failover.attempt();
    if attempt.is_some() {
        return Err(Refusal::InProgress);
    }
    if shared.settings.current().primary.is_some() {
        return Err(Refusal::IsReplica);
    }
    let primary = shared.replication.primary();
    if !primary.has_replicas() {
        return Err(Refusal::NoReplicas);
    }
    if request.is_forced && (request.timeout_ms.is_none() || request.target.is_none()) {
        return Err(Refusal::ForceWithout);
    }
    if let Some(target) = &request.target {
        let mut replicas = primary.replicas().iter();
        let found = replicas.find(|replica| is_at(replica, target));
        match found.map(|replica| replica.state) {
            None | Some(State::Handshake) => return Err(Refusal::NotReplica),
            Some(State::Online) => {}
            Some(_) => return Err(Refusal::NotOnline),
        }
    }
    drop(primary);
    match &request.target {
        Some((host, port)) => log::notice(&format!("FAILOVER requested to {host}:{port}.")),
        None => log::notice("FAILOVER requested."),
    }
    let deadline_ms = request
        .timeout_ms
        .map(|timeout_ms| clock::monotonic_ms().saturating_add(timeout_ms));
    *attempt = Some(Attempt {
        target: request.target,
        deadline_ms,
        is_forced: request.is_forced,
        goes_anyway: false,
        phase: Phase::WaitForSync,
    });
    shared.failover.is_on.store(true, Ordering::Release);
    drop(attempt);
    shared.engine.hold_writes(Hold::Failover, true);
    look(shared);
    if is_waiting(shared) {
        // By themselves replicas tell it once a second. Asked again, one that is far away would never have the end.
        replication::ask_acks(shared, shared.keyspace.journal().last());
    }
    replication::hold_still(shared, true);
    Ok(())
}

/// Ends the attempt on demand. Returns false if there is none.
pub(crate) fn abort(shared: &Shared) -> bool {
    give_up(shared, "Failover manually aborted")
}

/// Goes on if a replica has everything; called when one has told how far it is.
pub(crate) fn look(shared: &Shared) {
    if !is_on(shared) {
        return;
    }
    let mut attempt = shared.failover.attempt();
    let Some(waiting) = attempt
        .as_mut()
        .filter(|attempt| attempt.phase == Phase::WaitForSync)
    else {
        return;
    };
    let Some(target) = synced(shared, waiting) else {
        return;
    };
    waiting.phase = Phase::Switching;
    waiting.target = Some(target.clone());
    drop(attempt);
    following::want(shared, Some(target));
}

/// Looks after the deadline; called by worker 0 every tick.
pub(crate) fn tick(shared: &Shared) {
    if !is_on(shared) {
        return;
    }
    let now_ms = clock::monotonic_ms();
    let mut attempt = shared.failover.attempt();
    let late = attempt.as_mut().filter(|attempt| {
        let is_late = attempt.deadline_ms.is_some_and(|at_ms| now_ms >= at_ms);
        is_late && attempt.phase == Phase::WaitForSync
    });
    let Some(late) = late else {
        drop(attempt);
        look(shared);
        return;
    };
    let Some(target) = late.target.clone().filter(|_| late.is_forced) else {
        drop(attempt);
        give_up(shared, "Replica never caught up before timeout");
        return;
    };
    late.phase = Phase::Switching;
    late.goes_anyway = true;
    drop(attempt);
    let (host, port) = &target;
    log::notice(&format!(
        "Failover to {host}:{port} time out exceeded, failing over."
    ));
    following::want(shared, Some(target));
}

/// Returns true if worker 0, which holds every stripe, is to change the role as it was told: the replica still has all.
pub(crate) fn may_switch(shared: &Shared) -> bool {
    let mut attempt = shared.failover.attempt();
    let Some(current) = attempt
        .as_mut()
        .filter(|attempt| attempt.phase == Phase::Switching)
    else {
        return true;
    };
    // What is in the lanes was written before writes were held back.
    let _ = shared.keyspace.journal().pump(&mut || false);
    let is_whole = replication::is_whole(shared, &shared.replication.primary());
    let goes_on = current.goes_anyway || is_whole && synced(shared, current).is_some();
    current.phase = match goes_on {
        true => Phase::InProgress,
        false => Phase::WaitForSync,
    };
    if let Some((host, port)) = current.target.as_ref()
        && current.phase == Phase::InProgress
        && !current.goes_anyway
    {
        log::notice(&format!(
            "Failover target is synced, failing over to {host}:{port}."
        ));
    }
    goes_on
}

/// Hears that worker 0 has changed the role.
pub(crate) fn switched(shared: &Shared) {
    let mut attempt = shared.failover.attempt();
    let ends = attempt
        .as_ref()
        .is_some_and(|attempt| attempt.phase == Phase::TurningBack);
    if ends {
        *attempt = None;
        drop(attempt);
        end(shared);
    }
}

/// Hears that the replica has taken over.
pub(crate) fn accepted(shared: &Shared) {
    let mut attempt = shared.failover.attempt();
    // One that was called off meanwhile goes on turning back.
    let is_under_way = |attempt: &mut Attempt| attempt.phase == Phase::InProgress;
    if attempt.take_if(is_under_way).is_some() {
        drop(attempt);
        end(shared);
    }
}

/// Hears that the replica does not take over.
pub(crate) fn refused(shared: &Shared) {
    give_up(shared, "Failover target rejected psync request");
}

/// Ends the attempt: the server is a primary, or becomes one again. Returns false if there is none.
fn give_up(shared: &Shared, why: &str) -> bool {
    let mut attempt = shared.failover.attempt();
    let Some(current) = attempt
        .as_mut()
        .filter(|attempt| attempt.phase != Phase::TurningBack)
    else {
        return false;
    };
    log::notice(&format!("Aborting failover: {why}"));
    // Worker 0 may be about to change the role: its last word counts.
    let turns_back = current.phase != Phase::WaitForSync;
    if turns_back {
        current.phase = Phase::TurningBack;
        drop(attempt);
        following::want(shared, None);
    } else {
        *attempt = None;
        drop(attempt);
        end(shared);
    }
    true
}

fn end(shared: &Shared) {
    shared.failover.is_on.store(false, Ordering::Release);
    shared.engine.hold_writes(Hold::Failover, false);
    replication::hold_still(shared, false);
}

/// Returns the replica that has everything, if one has that may be the target.
fn synced(shared: &Shared, attempt: &Attempt) -> Option<Address> {
    let primary = shared.replication.primary();
    let end = primary.log().identity().offset();
    let is_meant = |replica: &&Replica| {
        let target = attempt.target.as_ref();
        replica.has(end) && target.is_none_or(|target| is_at(replica, target))
    };
    let found = primary.replicas().iter().find(is_meant)?;
    let host = found.peer.shown_ip().to_owned();
    Some((host, found.peer.port))
}

fn is_at(replica: &Replica, (host, port): &Address) -> bool {
    replica.peer.port == *port && replica.peer.shown_ip().eq_ignore_ascii_case(host)
}
