//! A limit on bytes per second: what was sent or received is counted afterwards, and who is ahead of the rate waits.
//!
//! The whole state is one time: that by which everything so far would have gone through at the rate. Any thread may charge
//! bytes, so the rate is exact over any span that is long beside [`CREDIT_NS`], however unevenly they come.
//!
//! Must not know: sessions, sockets, a clock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Time of silence that may be made up for: nanoseconds. Above the time that a worker rests, and what it may oversleep.
const CREDIT_NS: u64 = 100_000_000;

/// The bytes that went through one limit. A time is in nanoseconds of any clock that does not go back.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// Time by which all of them would have gone through at the rate.
    level_ns: AtomicU64,
}

impl Bucket {
    /// Counts bytes that went through at `now_ns`. `rate`: the limit in bytes per second, not 0.
    pub(crate) fn charge(&self, bytes: u64, rate: u64, now_ns: u64) {
        let span_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let span_ns = u64::try_from(span_ns).unwrap_or(u64::MAX);
        let earliest_ns = now_ns.saturating_sub(CREDIT_NS);
        let add = |level_ns: u64| Some(level_ns.max(earliest_ns).saturating_add(span_ns));
        let _ = self
            .level_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the time by which all bytes so far would have gone through: one after `now_ns` means that they were too many.
    pub(crate) fn level_ns(&self) -> u64 {
        self.level_ns.load(Ordering::Relaxed)
    }

    /// Forgets what went through: the rate is another.
    pub(crate) fn reset(&self) {
        self.level_ns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn bytes_take_their_time_and_silence_is_made_up_for_a_little_only() {
        let bucket = Bucket::default();
        let now_ns = 100 * SECOND_NS;
        bucket.charge(500, 1000, now_ns);
        assert_eq!(bucket.level_ns(), now_ns - CREDIT_NS + SECOND_NS / 2);
        bucket.charge(1000, 1000, now_ns);
        assert_eq!(bucket.level_ns(), now_ns - CREDIT_NS + SECOND_NS * 3 / 2);
        bucket.charge(0, 1000, 200 * SECOND_NS);
        assert_eq!(bucket.level_ns(), 200 * SECOND_NS - CREDIT_NS);
        bucket.reset();
        assert_eq!(bucket.level_ns(), 0);
    }

    #[test]
    fn the_rate_holds_in_pieces_of_any_size_and_at_the_ends_of_the_range() {
        for piece in [4096, 65_536, 1_000_000] {
            let (bucket, rate) = (Bucket::default(), 96 << 20);
            let (mut now_ns, mut bytes) = (SECOND_NS, 0);
            while now_ns < 11 * SECOND_NS {
                if bucket.level_ns() > now_ns {
                    now_ns = bucket.level_ns() + 5_000_000;
                    continue;
                }
                bucket.charge(piece, rate, now_ns);
                bytes += piece;
                // It takes time to send them, too: nobody gets ahead of the rate in that.
                now_ns += piece / 10;
            }
            let expected = 10 * rate;
            let off = bytes.abs_diff(expected) as f64 / expected as f64;
            // What may be made up for at the beginning is a hundredth of it.
            assert!(off < 0.02, "pieces of {piece}: {bytes} of {expected}");
        }
        let bucket = Bucket::default();
        bucket.charge(u64::MAX, 1, SECOND_NS);
        bucket.charge(u64::MAX, 1, SECOND_NS);
        assert_eq!(bucket.level_ns(), u64::MAX);
    }
}
