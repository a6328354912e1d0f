//! Room for what is to be written: keys are evicted until the memory limit is kept.
//!
//! Must not know: which keys go (that is the keyspace's).

use redline_keyspace::upkeep::Evicted;

use crate::{
    executor::block::after_upkeep,
    executor::{Executor, Outlet},
};

/// Most keys that are evicted before one command.
const EVICTIONS_MAX: usize = 64;
/// Longest time that a timer, or CONFIG SET, evicts at a stretch.
const EVICTION_US_MAX: u64 = 20_000;

impl<O: Outlet> Executor<'_, O> {
    /// Evicts until the limit is kept. `false`: it is not, and nothing more can go now.
    pub fn make_room(&mut self) -> bool {
        let engine = self.engine;
        self.local.flush_account(&engine.keyspace);
        if self.pause.is_some() {
            return true;
        }
        for _ in 0..EVICTIONS_MAX {
            if !engine.keyspace.over_limit() {
                return true;
            }
            let evicted =
                engine
                    .keyspace
                    .evict_one(&mut self.local, self.now_ms, &mut |unit, local| {
                        after_upkeep(engine, unit, local);
                    });
            match evicted {
                Evicted::One => {}
                // Its turn comes with the next command.
                Evicted::Later => return true,
                Evicted::Nothing => return false,
            }
            self.local.flush_account(&engine.keyspace);
        }
        // The rest goes before the next commands.
        true
    }

    /// Evicts until the limit is kept, or for as long as a timer may take: after the limit was lowered, and in quiet times.
    pub fn make_room_for_long(&mut self) {
        let began_us = self.outlet.monotonic_ns() / 1_000;
        let deadline_us = began_us + EVICTION_US_MAX;
        let engine = self.engine;
        let now_us = |executor: &Self| executor.outlet.monotonic_ns() / 1_000;
        while self.pause.is_none() && engine.keyspace.over_limit() && now_us(self) < deadline_us {
            if !self.make_room() {
                break;
            }
        }
        self.note_latency("eviction-cycle", (now_us(self) - began_us) * 1000);
    }
}
