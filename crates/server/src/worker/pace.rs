//! The limits on bandwidth, as a worker keeps them: clients are *held* while all of them together are ahead of the rate.
//!
//! What a group of sessions has read and written is charged to the one bucket of all workers. A worker that then finds it
//! ahead of the rate neither reads nor writes clients' sockets until it is behind by [`REFILL_NS`]; it sleeps until then, and
//! no socket wakes it, so its CPU time falls with the rate. Who was held is served once before the bucket is looked at again, so
//! no worker starves beside others.
//!
//! Sessions of replicas are outside that limit. They have one each, kept by the worker that has the session.
//!
//! Must not know: what any command does.

use std::{collections::VecDeque, mem, sync::atomic::Ordering, time::Duration};

use redline_engine::caller::{Token, state};
use redline_net::clock;

use super::Worker;
use crate::{bandwidth::Bucket, session::Session};

/// Time for which a bucket gathers before clients are served again: nanoseconds.
const REFILL_NS: u64 = 5_000_000;
/// Longest time for which sockets are not looked at: those that are no clients', as listeners, wait as well.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// A worker's part of the limits on bandwidth.
#[derive(Default)]
pub(crate) struct Pace {
    /// True if there is a limit on clients, or some are held. Read for every group.
    pub(super) is_on: bool,
    /// Limit on what all clients send and receive together, in bytes per second; 0: none.
    clients: u64,
    /// Limit on what a replica is sent, likewise.
    replicas: u64,
    /// Bytes that this worker has read and written at its last charge, those of replicas excepted.
    charged: u64,
    /// Bytes that it has sent to replicas.
    replica_bytes: u64,
    /// Time until which clients are held: nanoseconds; `None`: they are not.
    held_until_ns: Option<u64>,
    /// Time at which that began.
    held_since_ns: u64,
    /// Places of clients that are held, in the order in which they became ready.
    held: VecDeque<usize>,
    /// Replicas that were sent something under a limit.
    paced: Vec<Paced>,
}

/// A replica, and what it was sent.
struct Paced {
    token: Token,
    bucket: Bucket,
    /// Time at which it is sent more: nanoseconds; `None`: as soon as there is something.
    due_ns: Option<u64>,
}

impl Pace {
    /// Returns the time until the next that is held may go on.
    fn span_to(&self, now_ns: u64) -> Option<Duration> {
        let replicas = self.paced.iter().filter_map(|paced| paced.due_ns);
        let due_ns = replicas.chain(self.held_until_ns).min()?;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    /// Returns true if something may be held.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.is_on || !self.paced.is_empty()
    }
}

/// Returns the bytes that this worker has exchanged with clients since the start.
fn exchanged(worker: &Worker) -> u64 {
    let all = worker.stats.net_in.get() + worker.stats.net_out.get();
    all.wrapping_sub(worker.outlet.pace.replica_bytes)
}

/// Goes by the limits of the settings.
pub(super) fn adopt(worker: &mut Worker) {
    let settings = &worker.outlet.settings;
    let (clients, replicas) = (settings.bandwidth_limit, settings.repl_bandwidth_limit);
    let exchanged = exchanged(worker);
    let shared = worker.shared;
    let pace = &mut worker.outlet.pace;
    if mem::replace(&mut pace.replicas, replicas) != replicas {
        pace.paced.iter_mut().for_each(|paced| {
            paced.bucket.reset();
            paced.due_ns = paced.due_ns.map(|_| 0);
        });
    }
    if mem::replace(&mut pace.clients, clients) == clients {
        return;
    }
    // Each worker does it: one that has charged at the old rate since another did is late by little.
    shared.bandwidth.reset();
    pace.charged = exchanged;
    pace.held_until_ns = pace.held_until_ns.map(|_| 0);
    pace.is_on = clients != 0 || !pace.held.is_empty();
}

/// Ends the holding of clients if its time is over: they are ready, before others. Returns true if so: then a group is served
/// before [`may_serve`] is asked.
#[cold]
pub(super) fn release(worker: &mut Worker) -> bool {
    let now_ns = clock::monotonic_ns();
    let outlet = &mut worker.executor.outlet;
    let pace = &mut outlet.pace;
    let is_due = |until_ns: &mut u64| now_ns >= *until_ns;
    if pace.held_until_ns.take_if(is_due).is_none() {
        return false;
    }
    let held_ns = now_ns.saturating_sub(pace.held_since_ns);
    let total_us = &outlet.shared.bandwidth_held_us;
    total_us.fetch_add(held_ns / 1000, Ordering::Relaxed);
    mem::swap(&mut outlet.ready, &mut pace.held);
    outlet.ready.append(&mut pace.held);
    pace.is_on = pace.clients != 0;
    true
}

/// Returns true if clients are served now; otherwise those that are ready are held, and what stays ready are replicas.
#[cold]
pub(super) fn may_serve(worker: &mut Worker) -> bool {
    let pace = &mut worker.executor.outlet.pace;
    if pace.held_until_ns.is_none() {
        let now_ns = clock::monotonic_ns();
        let level_ns = worker.shared.bandwidth.level_ns();
        if pace.clients == 0 || level_ns <= now_ns {
            return true;
        }
        pace.held_since_ns = now_ns;
        pace.held_until_ns = Some(level_ns.saturating_add(REFILL_NS));
    }
    hold(worker);
    false
}

/// Holds clients that are ready.
fn hold(worker: &mut Worker) {
    let outlet = &mut worker.executor.outlet;
    let (places, held) = (&outlet.places, &mut outlet.pace.held);
    outlet.ready.retain(|&index| {
        let session = places.get(index).and_then(|place| place.session.as_ref());
        let is_free = session.is_some_and(|session| session.is(state::REPLICA));
        if !is_free {
            held.push_back(index);
        }
        is_free
    });
}

/// Charges what the worker has exchanged with clients since the last time.
#[cold]
pub(super) fn charge(worker: &mut Worker) {
    let exchanged = exchanged(worker);
    let pace = &mut worker.outlet.pace;
    let bytes = exchanged.saturating_sub(mem::replace(&mut pace.charged, exchanged));
    let rate = pace.clients;
    if rate != 0 && bytes != 0 {
        let now_ns = clock::monotonic_ns();
        worker.shared.bandwidth.charge(bytes, rate, now_ns);
    }
}

/// Returns the time for which a worker sleeps that nothing is ready for, and that would sleep for `timeout` without limits;
/// and true if no socket is to wake it, since clients are held.
#[cold]
pub(super) fn sleep(worker: &Worker, timeout: Duration) -> (Duration, bool) {
    let pace = &worker.outlet.pace;
    let span = pace.span_to(clock::monotonic_ns());
    let timeout = span.map_or(timeout, |span| span.min(timeout));
    match pace.held_until_ns {
        Some(_) => (timeout.min(SLEEP_MAX), true),
        None => (timeout, false),
    }
}

/// Has replicas served whose time has come.
#[cold]
pub(super) fn go_on(worker: &mut Worker) {
    if worker.outlet.pace.paced.is_empty() {
        return;
    }
    let now_ns = clock::monotonic_ns();
    for at in 0..worker.outlet.pace.paced.len() {
        let paced = &mut worker.outlet.pace.paced[at];
        if paced.due_ns.take_if(|due_ns| *due_ns <= now_ns).is_some() {
            let token = paced.token;
            worker.feed_soon(token);
        }
    }
    if worker.outlet.pace.replicas == 0 {
        worker.outlet.pace.paced.clear();
    }
}

/// Returns the bytes that a replica may be sent now; 0: it is served again when some may. There is no limit without a setting.
pub(crate) fn allowance(worker: &mut Worker, session: &Session) -> usize {
    let pace = &mut worker.outlet.pace;
    let (rate, token) = (pace.replicas, session.info.token());
    if rate == 0 {
        return usize::MAX;
    }
    let mut known = pace.paced.iter();
    let at = known.position(|paced| paced.token == token);
    let at = at.unwrap_or_else(|| {
        pace.paced.push(Paced {
            token,
            bucket: Bucket::default(),
            due_ns: None,
        });
        pace.paced.len() - 1
    });
    let paced = &mut pace.paced[at];
    let level_ns = paced.bucket.level_ns();
    if level_ns > clock::monotonic_ns() {
        paced.due_ns = Some(level_ns.saturating_add(REFILL_NS));
        return 0;
    }
    // What ten milliseconds allow: more would be sent at one go, and waited for afterwards.
    usize::try_from(rate / 100).unwrap_or(usize::MAX).max(1)
}

/// Charges what a replica was sent.
pub(crate) fn charge_replica(worker: &mut Worker, session: &Session, bytes: u64) {
    let pace = &mut worker.outlet.pace;
    pace.replica_bytes += bytes;
    let (rate, token) = (pace.replicas, session.info.token());
    let mut paced = pace.paced.iter();
    if let Some(paced) = paced.find(|paced| paced.token == token)
        && rate != 0
    {
        paced.bucket.charge(bytes, rate, clock::monotonic_ns());
    }
}

/// Forgets a replica that has gone.
pub(super) fn forget(worker: &mut Worker, token: Token) {
    let pace = &mut worker.outlet.pace;
    pace.paced.retain(|paced| paced.token != token);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sleeps_until_the_first_that_is_held_may_go_on() {
        let paced = |due_ns| Paced {
            token: Token::new(0, 1, 0),
            bucket: Bucket::default(),
            due_ns,
        };
        let mut pace = Pace::default();
        assert!(!pace.holds() && pace.span_to(100).is_none());
        pace.paced
            .extend([paced(None), paced(Some(900)), paced(Some(700))]);
        assert!(pace.holds());
        assert_eq!(pace.span_to(100), Some(Duration::from_nanos(600)));
        pace.held_until_ns = Some(150);
        assert_eq!(pace.span_to(100), Some(Duration::from_nanos(50)));
        assert_eq!(pace.span_to(200), Some(Duration::ZERO));
    }
}
