//! Room for what is to be written: keys are evicted until the memory limit is kept.
//!
//! Must not know: which keys go (that is the keyspace's).

use redline_keyspace::upkeep::Evicted;

use crate::executor::{Executor, Outlet, block::after_upkeep, figures};

/// Most keys that are evicted before one command.
const EVICTIONS_MAX: usize = 64;
/// Longest time that a timer, or CONFIG SET, evicts at a stretch.
const EVICTION_US_MAX: u64 = 20_000;

/// Evicts until the limit is kept. `false`: it is not, and nothing more can go now.
pub fn make_room<O: Outlet>(executor: &mut Executor<'_, O>) -> bool {
    let engine = executor.engine;
    executor.local.flush_account(&engine.keyspace);
    if executor.pause.is_some() {
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
            // Its turn comes with the next command.
            Evicted::Later => return true,
            Evicted::Nothing => return false,
        }
        executor.local.flush_account(&engine.keyspace);
    }
    // The rest goes before the next commands.
    true
}

/// Evicts until the limit is kept, or for as long as a timer may take: after the limit was lowered, and in quiet times.
pub fn make_room_for_long<O: Outlet>(executor: &mut Executor<'_, O>) {
    let began_us = executor.outlet.monotonic_ns() / 1_000;
    let deadline_us = began_us + EVICTION_US_MAX;
    let engine = executor.engine;
    let now_us = |executor: &Executor<'_, O>| executor.outlet.monotonic_ns() / 1_000;
    while executor.pause.is_none() && engine.keyspace.over_limit() && now_us(executor) < deadline_us
    {
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
