//! Room for writes: keys are evicted until memory is within its limit.
//!
//! Must not know: which keys are evicted (that is the keyspace's part).

use redline_keyspace::Evicted;

use crate::{
    executor::{Executor, Outlet, block::after_upkeep, figures},
    refusals::Reason,
};

/// Largest number of keys that are evicted before one command.
const EVICTIONS_MAX: usize = 64;
/// Longest time for which a timer, or CONFIG SET, evicts without a break: microseconds.
const EVICTION_US_MAX: u64 = 20_000;

/// Evicts until memory is within the limit. Returns false if it is not, and nothing more can be evicted now.
pub fn make_room<O: Outlet>(executor: &mut Executor<'_, O>) -> bool {
    let engine = executor.engine;
    executor.local.flush_account(&engine.keyspace);
    if rests(executor) {
        return true;
    }
    for _ in 0..EVICTIONS_MAX {
        if !engine.keyspace.over_limit() {
            return true;
        }
        let evicted =
            engine
                .keyspace
                .evict_one(&mut executor.local, executor.now_ms, &mut |unit, local| {
                    after_upkeep(engine, unit, local);
                });
        match evicted {
            Evicted::One => {}
            // Continued before the next command.
            Evicted::Later => return true,
            Evicted::Nothing => return false,
        }
        executor.local.flush_account(&engine.keyspace);
    }
    // The rest is evicted before the next commands.
    true
}

/// Returns true if nothing may be evicted: clients are paused, or a primary does it, or nothing is to be changed, or the data
/// is not whole, and a key whose time to live is taken away further on in the file would be gone.
fn rests<O: Outlet>(executor: &Executor<'_, O>) -> bool {
    let refusals = executor.refusals;
    let reasons = [Reason::Loading, Reason::KeepsAll, Reason::Unconfirmed];
    executor.pause.is_some() || reasons.into_iter().any(|reason| refusals.has(reason))
}

/// Evicts until memory is within the limit, or for as long as a timer may take: after the limit was lowered, and in idle times.
pub fn make_room_for_long<O: Outlet>(executor: &mut Executor<'_, O>) {
    let began_us = executor.outlet.monotonic_ns() / 1_000;
    let deadline_us = began_us + EVICTION_US_MAX;
    let engine = executor.engine;
    let now_us = |executor: &Executor<'_, O>| executor.outlet.monotonic_ns() / 1_000;
    while !rests(executor) && engine.keyspace.over_limit() && now_us(executor) < deadline_us {
        if !make_room(executor) {
            break;
        }
    }
    figures::note_latency(
        executor,
        "eviction-cycle",
        (now_us(executor) - began_us) * 1000,
    );
}
