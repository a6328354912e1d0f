//! The timer of a worker: expiry, eviction, compaction, idle clients, memory that a peak left behind.
//!
//! Must not know: how keys are stored (the steps are the keyspace's).

use std::{mem, sync::atomic::Ordering};

use redline_keyspace::{Trace, Unit, lock::STRIPES};
use redline_net::clock;
use redline_table::heap::Compaction;

use crate::{
    ending, failover, persistence, replication,
    session::Session,
    worker::{Worker, handover, serve},
};
use redline_engine::{
    caller::flag,
    chores::Chore,
    executor::{
        block::{self, after_upkeep},
        eviction, figures,
    },
    tracking::{self, By},
};

/// Length of a slice of active expiry: microseconds. No command waits longer for it.
const EXPIRY_SLICE_US: u64 = 500;
/// Pause after which active expiry goes on before the next tick, if keys are due: as a multiple of the last round's
/// time, and its minimum.
const EXPIRY_PAUSES: u64 = 200;
const EXPIRY_PAUSE_US_MIN: u64 = 10_000;
/// Length of a slice of compaction, and of the pause in between: microseconds.
const COMPACTION_SLICE_US: u64 = 1_000;
const COMPACTION_REST_US: u64 = 4_000;

/// Runs one tick; sets the time of the next.
pub fn tick(worker: &mut Worker) {
    let period_ms = 1000 / u64::from(worker.outlet.settings.hz.clamp(1, 500));
    worker.outlet.next_tick_ms = clock::monotonic_coarse_ms() + period_ms;
    worker.outlet.ticks += 1;
    worker.refresh_if_changed();
    let (now_us, used_us) = (clock::monotonic_us(), clock::thread_cpu_us());
    worker.set_gathering(now_us, used_us);
    handover::note_load(worker, now_us, used_us);
    if worker.shared.timers_rest.load(Ordering::Relaxed) {
        return;
    }
    expire(worker);
    expire_own(worker);
    if !worker.shared.persistence.loading.is_on() {
        eviction::make_room_for_long(worker.executor);
    }
    forget_tracked(worker);
    serve::evict_clients(worker);
    look_after_memory(worker);
    let every_second = worker
        .outlet
        .ticks
        .is_multiple_of(u64::from(worker.outlet.settings.hz.max(1)));
    if every_second {
        worker.trim();
        redline_alloc::collect(false);
        worker.close_stalled_handshakes();
        worker.for_each_session(|worker, session| {
            let unsent = session.out.len_bytes() as u64;
            session.info.output_peak.store(unsent, Ordering::Relaxed);
            note_sending(session, worker.now_ms);
        });
        handover::count_movable(worker);
        close_idle(worker);
    }
    if mem::take(&mut worker.outlet.soft_limits_run) {
        worker.for_each_session(|worker, session| {
            if session.soft_limit_since_s.is_some() {
                worker.outlet.soft_limits_run = true;
                serve::enforce_output_limit(worker, session);
                worker.look_again(session);
            }
        });
    }
    if let Some(host) = &mut worker.host {
        host.collect_some();
    }
    figures::copy_counts(worker.executor);
    note_memory(worker);
    if worker.number == 0 {
        worker.shared.rates.sample(worker.shared);
        worker.shared.note_limit();
        persistence::look_at_save_points(worker);
        persistence::append::tick(worker.shared);
        replication::tick(worker.shared);
        failover::tick(worker.shared);
        ending::look(worker.shared);
        look_at_certificates(worker);
    }
    worker.flush_account();
    worker.sweep();
}

/// Has certificates read again if their files have changed, at the interval of `tls-auto-reload-interval`.
fn look_at_certificates(worker: &mut Worker) {
    let interval_ms = worker.outlet.settings.tls.auto_reload_interval_s * 1000;
    let now_ms = clock::monotonic_coarse_ms();
    if interval_ms == 0 || now_ms - worker.outlet.certificates_seen_ms < interval_ms {
        return;
    }
    worker.outlet.certificates_seen_ms = now_ms;
    worker.shared.reload_changed_tls();
}

/// Removes, on the first worker, keys that clients of a writable replica have written, and that are due: nothing else expires
/// on a replica by itself.
fn expire_own(worker: &mut Worker) {
    const KEYS_MAX: usize = 256;
    if worker.number != 0 {
        return;
    }
    let (shared, now_ms) = (worker.shared, worker.now_ms);
    let own = &shared.engine.own_keys;
    if !worker.follows() {
        own.clear();
        return;
    }
    for (db, key) in own.take_due(now_ms, KEYS_MAX) {
        let place = shared.keyspace.place(&key);
        let Some(mut unit) = Unit::try_one(&shared.keyspace, place.stripe()) else {
            own.note(db, &key, now_ms - 1);
            continue;
        };
        worker.local.keeps_expired = false;
        let mut view = unit.view(&mut worker.local, db, now_ms);
        // It goes if it is still due.
        let _ = view.find(&key, Trace::Quiet);
        view.finish();
        worker.local.keeps_expired = true;
        worker.publish_events(By::Nobody);
        block::commit(worker.executor, unit);
    }
}

/// Returns the pause of active expiry after a slice that left keys due: half as long as the slice at the least effort,
/// an eighth at the most.
fn expiry_rest_us(effort: u32) -> u64 {
    let effort = u64::from(effort.clamp(1, 10));
    EXPIRY_SLICE_US * (13 - effort) / 24
}

/// Removes expired keys, for a slice of time; if that did not suffice, schedules itself again soon (see [`go_on`]).
/// Many keys that are due at one moment are gone fast that way, and no command waits longer than a slice.
fn expire(worker: &mut Worker) {
    worker.executor.outlet.expiry_due_us = None;
    let rests = worker.shared.timers_rest.load(Ordering::Relaxed)
        || worker.shared.persistence.loading.is_on()
        || worker.keeps_expired();
    if rests || !worker.shared.active_expire.load(Ordering::Relaxed) {
        return;
    }
    let (shared, now_ms) = (worker.shared, worker.executor.now_ms);
    let began_us = clock::monotonic_us();
    let deadline_us = began_us + EXPIRY_SLICE_US;
    for cursor in [
        &mut worker.executor.outlet.expiry,
        &mut worker.executor.outlet.element_expiry,
    ] {
        loop {
            let step = shared.keyspace.expire_step(
                &mut worker.executor.local,
                now_ms,
                cursor,
                &mut |unit, local| after_upkeep(shared, unit, local),
            );
            if step.round {
                break;
            }
            if step.checked > 0 && clock::monotonic_us() > deadline_us {
                // Sleep comes in whole milliseconds: two slices with a poll of the sockets between them, then the
                // pauses of both.
                let rest_us =
                    2 * expiry_rest_us(worker.executor.outlet.settings.active_expire_effort);
                let rest_us = if worker.executor.outlet.expiry_rests {
                    rest_us
                } else {
                    0
                };
                worker.executor.outlet.expiry_rests = !worker.executor.outlet.expiry_rests;
                worker.executor.outlet.expiry_due_us = Some(clock::monotonic_us() + rest_us);
                worker.executor.stats.expiry_cut_short.add(1);
                break;
            }
        }
    }
    let took_us = clock::monotonic_us() - began_us;
    worker.executor.stats.expiry_us.add(took_us);
    figures::note_latency(worker.executor, "expire-cycle", took_us * 1000);
    if worker.executor.outlet.expiry_due_us.is_none() {
        expire_in_time(worker, took_us);
    }
}

/// Schedules active expiry before the next tick if keys will be due. Lookups ignore keys that are due, but not a hash
/// whose last fields are, and receivers of `expired` events want them in time. Where rounds take long (many keys expire
/// in a stripe, and all of them are visited) only ticks run it.
fn expire_in_time(worker: &mut Worker, took_us: u64) {
    let soonest_ms = worker
        .outlet
        .expiry
        .take_soonest_ms()
        .min(worker.outlet.element_expiry.take_soonest_ms());
    // A key that is due at a millisecond has expired at the next.
    let due_in_ms = soonest_ms.saturating_sub(worker.now_ms).max(0) as u64 + 1;
    let pause_us = (EXPIRY_PAUSES * took_us).max(EXPIRY_PAUSE_US_MIN);
    let in_us = due_in_ms.saturating_mul(1000).max(pause_us);
    let tick_in_ms = worker
        .outlet
        .next_tick_ms
        .saturating_sub(clock::monotonic_coarse_ms());
    if in_us < tick_in_ms * 1000 {
        worker.outlet.expiry_due_us = Some(clock::monotonic_us() + in_us);
    }
}

/// Enforces `tracking-table-max-keys`, in case it was lowered.
pub fn forget_tracked(worker: &mut Worker) {
    let (shared, rng) = (worker.shared, &mut worker.executor.local.rng);
    let keys_max = worker.executor.outlet.settings.tracking_keys_max;
    shared
        .tracking
        .evict(shared.executors(), keys_max, || rng.usize(..));
    tracking::settle(shared);
}

/// Continues the work that a slice did not finish, after its pause.
pub fn go_on(worker: &mut Worker) {
    let now_us = clock::monotonic_us();
    let is_due = |due_us: Option<u64>| due_us.is_some_and(|due_us| now_us >= due_us);
    if is_due(worker.outlet.expiry_due_us) {
        expire(worker);
        worker.sweep();
    }
    if is_due(worker.outlet.compaction_due_us) {
        compact(worker);
    }
}

/// Checks, on the first worker, if memory is fragmented, and begins to move entries together.
fn look_after_memory(worker: &mut Worker) {
    if worker.number != 0 {
        return;
    }
    if !worker.shared.is_maintained.swap(true, Ordering::Relaxed) {
        worker.shared.chore(Chore::Maintain);
    }
    if worker.outlet.compaction.is_none() {
        worker.outlet.compaction = Compaction::begin().map(|compaction| (compaction, 0));
        compact(worker);
    }
}

/// Moves entries together, for a slice of time.
fn compact(worker: &mut Worker) {
    worker.outlet.compaction_due_us = None;
    let Some((compaction, mut stripe)) = worker.outlet.compaction.take() else {
        return;
    };
    let deadline_us = clock::monotonic_us() + COMPACTION_SLICE_US;
    let shared = worker.shared;
    while stripe < STRIPES && compaction.segments_left() > 0 && clock::monotonic_us() < deadline_us
    {
        worker.local.heap.tick();
        let before = stripe;
        shared.keyspace.compact_step(&mut worker.local, &mut stripe);
        if stripe == before {
            break; // in use, perhaps for long: the next slice goes on from here
        }
    }
    if stripe < STRIPES && compaction.segments_left() > 0 {
        worker.outlet.compaction = Some((compaction, stripe));
        worker.outlet.compaction_due_us = Some(clock::monotonic_us() + COMPACTION_REST_US);
    }
}

fn close_idle(worker: &mut Worker) {
    let timeout_s = worker.outlet.settings.timeout_s;
    if timeout_s == 0 {
        return;
    }
    let now_s = (worker.now_ms / 1000) as u64;
    worker.for_each_session(|worker, session| {
        let idle_s = now_s.saturating_sub(u64::from(session.info.active_s.load(Ordering::Relaxed)));
        let flags = session.info.flags.load(Ordering::Relaxed);
        let listens = flags & (flag::PUBSUB | flag::MONITOR | flag::REPLICA) != 0;
        if idle_s > timeout_s && !listens && !session.is_suspended() {
            session.end_at_once();
            worker.look_again(session);
        }
    });
}

/// Marks a client that takes replies as active a second ago, if bytes were sent to it since the last check.
fn note_sending(session: &mut Session, now_ms: i64) {
    let sent = session.info.net_out.load(Ordering::Relaxed);
    if sent != session.sent_before {
        session.sent_before = sent;
        let a_second_ago = (now_ms / 1000 - 1) as u32;
        session
            .info
            .active_s
            .fetch_max(a_second_ago, Ordering::Relaxed);
    }
}

/// Releases spare memory (MEMORY PURGE).
pub fn purge(worker: &mut Worker) {
    worker.local.heap.flush();
    worker.trim();
    redline_alloc::collect(true);
    look_after_memory(worker);
}

/// Publishes the memory of the worker's interpreter, and the peak of the data's.
pub fn note_memory(worker: &Worker) {
    // While a script of this worker runs, the last figure stands.
    if let Some(host) = &worker.host {
        worker
            .stats
            .interpreter_bytes
            .set(host.memory_bytes() as u64);
    }
    let shared = &worker.shared;
    let used = shared.keyspace.used_bytes();
    if shared.peak_bytes.fetch_max(used, Ordering::Relaxed) < used {
        let now_s = worker.now_ms as u64 / 1000;
        shared.peak_at_s.store(now_s, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{EXPIRY_SLICE_US, expiry_rest_us};

    #[test]
    fn effort_shortens_the_rest() {
        assert_eq!(expiry_rest_us(1), EXPIRY_SLICE_US / 2);
        assert_eq!(expiry_rest_us(10), EXPIRY_SLICE_US / 8);
        assert_eq!(expiry_rest_us(0), EXPIRY_SLICE_US / 2);
    }
}
