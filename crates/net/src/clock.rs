//! The one place where time is read.
//!
//! The precise clocks cost 20 to 40 ns a read; the coarse ones a few, and lag behind by up to one tick of the kernel
//! (1 to 10 ms). It must not know what the time is used for.

/// Nanoseconds of a clock that never goes back; its zero is arbitrary.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).as_ns()
}

/// Microseconds of the clock of [`monotonic_ns`].
pub fn monotonic_us() -> u64 {
    monotonic_ns() / 1_000
}

/// Milliseconds of the clock of [`monotonic_ns`].
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// As [`monotonic_ms`], cheaper, and up to a tick late.
pub fn monotonic_coarse_ms() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE).as_ns() / 1_000_000
}

/// Microseconds since 1970, of the wall clock, which may jump.
pub fn wall_us() -> u64 {
    read(libc::CLOCK_REALTIME).as_ns() / 1_000
}

/// Milliseconds since 1970, of the wall clock, which may jump.
pub fn wall_ms() -> u64 {
    read(libc::CLOCK_REALTIME).as_ns() / 1_000_000
}

/// As [`wall_ms`], cheaper, and up to a tick late.
pub fn wall_coarse_ms() -> u64 {
    read(libc::CLOCK_REALTIME_COARSE).as_ns() / 1_000_000
}

struct Reading(libc::timespec);

impl Reading {
    fn as_ns(&self) -> u64 {
        // A wall clock set before 1970 reads as 1970. Nanoseconds since 1970 fit until the year 2554.
        let seconds = u64::try_from(self.0.tv_sec).unwrap_or(0);
        let ns = u64::try_from(self.0.tv_nsec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(ns)
    }
}

fn read(clock: libc::clockid_t) -> Reading {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec to write to for the time of the call.
    let result = unsafe { libc::clock_gettime(clock, &mut now) };
    assert_eq!(result, 0, "every Linux has the clocks used here");
    Reading(now)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let mut last = monotonic_ns();
        for _ in 0..10_000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
        assert!(monotonic_us() >= last / 1_000);
        assert!(monotonic_ms() >= last / 1_000_000);
    }

    #[test]
    fn the_wall_clock_is_the_systems() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let (us, ms) = (wall_us(), wall_ms());
        let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!((before.as_micros()..=after.as_micros()).contains(&us.into()));
        assert!((before.as_millis()..=after.as_millis()).contains(&ms.into()));
    }

    #[test]
    fn coarse_clocks_lag_by_a_tick_at_most() {
        assert!(
            wall_ms().abs_diff(wall_coarse_ms()) <= 1_000,
            "a busy machine may pause us between the two reads"
        );
        assert!(monotonic_coarse_ms() <= monotonic_ms());
    }
}
