//! Clocks: the one place where time is read.
//!
//! The precise clocks cost 20 to 40 ns a read; the coarse ones a few, and lag behind by up to one tick of the kernel
//! (1 to 10 ms). It must not know what the time is used for.

/// Returns nanoseconds of a clock that never goes back; its zero is arbitrary.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).as_ns()
}

/// Returns microseconds of the clock of [`monotonic_ns`].
pub fn monotonic_us() -> u64 {
    monotonic_ns() / 1_000
}

/// Returns milliseconds of the clock of [`monotonic_ns`].
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// Returns [`monotonic_ms`] at a lower cost, up to a tick late.
pub fn monotonic_coarse_ms() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE).as_ns() / 1_000_000
}

/// Returns milliseconds of a clock that never goes back and counts the time for which the machine was suspended.
pub fn boot_ms() -> u64 {
    read(libc::CLOCK_BOOTTIME).as_ns() / 1_000_000
}

/// Returns nanoseconds of CPU time that the calling thread has used so far. A system call.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).as_ns()
}

/// Returns microseconds of [`thread_cpu_ns`].
pub fn thread_cpu_us() -> u64 {
    thread_cpu_ns() / 1_000
}

/// Returns microseconds since 1970, of the wall clock, which may jump.
pub fn wall_us() -> u64 {
    read(libc::CLOCK_REALTIME).as_ns() / 1_000
}

/// Returns milliseconds since 1970, of the wall clock, which may jump.
pub fn wall_ms() -> u64 {
    read(libc::CLOCK_REALTIME).as_ns() / 1_000_000
}

/// Returns [`wall_ms`] at a lower cost, up to a tick late.
pub fn wall_coarse_ms() -> u64 {
    read(libc::CLOCK_REALTIME_COARSE).as_ns() / 1_000_000
}

/// A time in the time zone of the machine, or of `TZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// The year.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 60: there are leap seconds.
    pub second: u32,
    /// Seconds by which it is ahead of UTC.
    pub offset_s: i64,
}

impl LocalTime {
    /// Returns the month's first three letters.
    pub fn month_name(&self) -> &'static str {
        const NAMES: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        NAMES[self.month.clamp(1, 12) as usize - 1]
    }
}

/// Returns the local time of a time that is given in seconds since 1970.
pub fn local(unix_s: u64) -> LocalTime {
    let time = libc::time_t::try_from(unix_s).unwrap_or(libc::time_t::MAX);
    // SAFETY: tm is numbers and a pointer that is never read, for which all zero is valid.
    let mut civil: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid for the time of the call; with a year beyond its range it writes nothing.
    unsafe { libc::localtime_r(&time, &mut civil) };
    let positive = |n: libc::c_int| u32::try_from(n).unwrap_or(0);
    LocalTime {
        year: civil.tm_year + 1900,
        month: positive(civil.tm_mon) + 1,
        day: positive(civil.tm_mday),
        hour: positive(civil.tm_hour),
        minute: positive(civil.tm_min),
        second: positive(civil.tm_sec),
        offset_s: civil.tm_gmtoff,
    }
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
    fn local_time_is_utc_and_its_offset() {
        for unix_s in [0, 951_782_400, 1_795_298_400] {
            let local = local(unix_s);
            let of_day = i64::from(local.hour * 3600 + local.minute * 60 + local.second);
            let shifted = unix_s as i64 + local.offset_s;
            assert_eq!(shifted.rem_euclid(86_400), of_day, "{local:?}");
        }
        // Noon is the same month everywhere.
        let local = local(1_795_262_400);
        assert_eq!(
            (local.year, local.month, local.month_name()),
            (2026, 11, "Nov")
        );
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
