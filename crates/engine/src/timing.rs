//! Times of commands, at a cost that a GET can bear.
//!
//! # The idea
//!
//! Reading a clock costs a quarter of a GET. So *brief* calls (see [`Gate::is_brief`](redline_spec::Gate::is_brief))
//! share the time of their batch, of small batches only one in `SMALL_BATCHES_PER_TIMED` is timed, for all of them;
//! other calls, and those with many bytes, are timed one by one. That is true on average, and misses one brief call
//! that was slow for reasons of its own: a page fault, a stripe that was in use.
//!
//! # The close look
//!
//! Slow calls are therefore looked for where it is cheap: a timed batch, an EXEC or a script, and by the coarse clock,
//! which costs next to nothing, a whole turn of the loop. Where one took as long as a logged command, the cause may
//! have been another thread on the CPU: another process, a limit of a container's. So for `CLOSE_LOOK_MS` the CPU time
//! of each turn is read: only if a turn is slow again, and has run for that long or has slept, the worker times every
//! call for `CLOSE_LOOK_MS`, but `CLOSE_LOOK_CALLS` at most: a call that is slow again gets logged, with its own time.
//! A threshold too small for the coarse clock (`COARSE_NS_MIN`) has every batch timed, and a slow one brings the close
//! look at once; one below `CLOSE_NS_MIN` has every call timed, at a cost. The first `FIRST_CALLS` calls after the
//! start and after CONFIG RESETSTAT are timed one by one as well, so that each call of a first try is counted. So a
//! brief call that is slow once or twice, in batches of several, is missed; one that goes on being slow is not.
//!
//! Must not know: which commands there are, how the times are used.

use crate::{commandlog::Kind, executor::Clock, settings::Settings};

/// Number of requests below which batches are timed by sampling.
const SMALL_BATCH: usize = 128;
/// Number of small batches per timed one.
const SMALL_BATCHES_PER_TIMED: u32 = 16;
/// Number of brief calls inside EXEC and scripts per timed one.
pub const INSIDE_PER_TIMED: u32 = 16;
/// Time for which every turn is watched, and then every call timed, after a slow step, in milliseconds, and the limit on
/// these calls: they cost about a tenth of the least delay for which this is done, however often the machine delays us.
const CLOSE_LOOK_MS: u64 = 1000;
const CLOSE_LOOK_CALLS: usize = 10_000;
/// Number of calls that are timed one by one at first: see the head of this file.
const FIRST_CALLS: usize = 1000;
/// Threshold below which every call is timed: nanoseconds.
const CLOSE_NS_MIN: u64 = 1_000_000;
/// Threshold below which every batch is timed: nanoseconds; the coarse clock moves in steps of up to 4 ms.
const COARSE_NS_MIN: u64 = 10_000_000;
/// Bytes of arguments above which calls are not brief.
const BRIEF_BYTES_MAX: u64 = 16 * 1024;

/// A batch that is being timed.
pub struct Charge {
    began_ns: u64,
    /// Number of batches that are charged with its time.
    pub stands_for: u64,
}

/// State that decides which times a worker takes.
#[derive(Debug)]
pub struct Timing {
    /// True if every call takes the long way, where it is timed or shown.
    pub closely: bool,
    /// Bytes of arguments from which on calls are not brief.
    pub heavy_bytes: u64,
    /// Size of a reply from which on it is logged.
    pub reply_bytes: u64,
    /// Time of a call from which on it is logged, or an event of the latency monitor; `u64::MAX`: none.
    pub watched_ns: u64,
    /// True if distributions are kept.
    pub distributions: bool,
    /// Set by a call that was timed separately, for the charging of the batch.
    pub timed_apart: bool,
    /// Start of the last call that was timed separately, by [`Clock::monotonic_ns`]. One that runs a script always is
    /// (`calls_that_run_scripts_are_never_brief`, in the tests of the table).
    pub call_began_ns: u64,
    /// Number of turns of the loop.
    pub turns: u64,
    /// Total time of these turns, by the coarse clock: true on average.
    pub turn_ms: u64,
    always: bool,
    /// Time until which turns are watched; 0: they are not.
    watch_until_ms: u64,
    /// CPU usage of the thread at the start of this turn, while turns are watched.
    used_before: Option<Used>,
    close_until_ms: u64,
    close_calls_left: usize,
    small_batches: u32,
    inside: u32,
    apart_ns: u64,
    apart: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            closely: false,
            heavy_bytes: BRIEF_BYTES_MAX,
            reply_bytes: u64::MAX,
            watched_ns: u64::MAX,
            distributions: true,
            timed_apart: false,
            call_began_ns: 0,
            turns: 0,
            turn_ms: 0,
            always: false,
            watch_until_ms: 0,
            used_before: None,
            close_until_ms: 0,
            close_calls_left: 0,
            small_batches: 0,
            inside: 0,
            apart_ns: 0,
            apart: 0,
        }
    }
}

impl Timing {
    /// Adopts these settings. `shown`: every call is to be shown to a monitor.
    pub fn adopt(&mut self, settings: &Settings, shown: bool) {
        let least = |kind| settings.command_log(kind).least();
        let slow_ns = least(Kind::Slow).map_or(u64::MAX, |us| us.saturating_mul(1000));
        let event_ns = match settings.latency_monitor_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.watched_ns = slow_ns.min(event_ns);
        self.reply_bytes = least(Kind::LargeReply).unwrap_or(u64::MAX);
        // Bytes on the wire exceed those of the arguments by less than this for each of the few arguments of a brief
        // call.
        const FRAME_BYTES: u64 = 1024;
        let request = least(Kind::LargeRequest).unwrap_or(u64::MAX);
        self.heavy_bytes = request.saturating_sub(FRAME_BYTES).min(BRIEF_BYTES_MAX);
        self.distributions = settings.latency_tracking;
        self.always = shown || self.watched_ns < CLOSE_NS_MIN;
        self.closely = self.always || self.close_until_ms != 0;
    }

    /// Begins a batch: returns its start, if it is one of those that are timed as a whole.
    pub fn begin_batch(&mut self, requests: usize, clock: &impl Clock) -> Option<Charge> {
        (self.apart_ns, self.apart) = (0, 0);
        self.timed_apart = false;
        if self.close_until_ms != 0 {
            let over = clock.monotonic_coarse_ms() >= self.close_until_ms;
            if over || self.close_calls_left == 0 {
                self.close_until_ms = 0;
            }
            self.close_calls_left = self.close_calls_left.saturating_sub(requests);
        }
        self.closely = self.always || self.close_until_ms != 0;
        if self.closely {
            return None;
        }
        let mut stands_for = 1;
        if requests < SMALL_BATCH && self.watched_ns >= COARSE_NS_MIN {
            self.small_batches = self.small_batches.wrapping_add(1);
            if !self.small_batches.is_multiple_of(SMALL_BATCHES_PER_TIMED) {
                return None;
            }
            stands_for = u64::from(SMALL_BATCHES_PER_TIMED);
        }
        Some(Charge {
            began_ns: clock.monotonic_ns(),
            stands_for,
        })
    }

    /// Ends a batch of `requests`: returns the time of each that was not timed separately, in nanoseconds.
    pub fn end_batch(&mut self, charge: &Charge, requests: usize, clock: &impl Clock) -> u64 {
        let took_ns = clock.monotonic_ns().saturating_sub(charge.began_ns);
        let together_ns = took_ns.saturating_sub(self.apart_ns);
        self.suspect_if(together_ns >= self.watched_ns, clock);
        together_ns / (requests as u64).saturating_sub(self.apart).max(1)
    }

    /// Notes that a call of a batch was timed separately.
    pub fn note_apart(&mut self, took_ns: u64) {
        self.apart_ns += took_ns;
        self.apart += 1;
        self.timed_apart = true;
    }

    /// Restarts counting, when the counters were reset or nothing has been counted yet.
    pub fn begin_anew(&mut self) {
        self.close_until_ms = u64::MAX;
        self.close_calls_left = FIRST_CALLS;
        self.closely = true;
    }

    /// Returns true if this brief call inside EXEC or a script is one of those that are timed.
    pub fn sample_inside(&mut self) -> bool {
        self.inside = self.inside.wrapping_add(1);
        self.inside.is_multiple_of(INSIDE_PER_TIMED)
    }

    /// Begins a turn of the loop.
    #[inline]
    pub fn begin_turn(&mut self, now_ms: u64, clock: &impl Clock) {
        if self.watch_until_ms != 0 {
            self.watch(now_ms, clock);
        }
    }

    #[cold]
    fn watch(&mut self, now_ms: u64, clock: &impl Clock) {
        self.used_before = (now_ms < self.watch_until_ms).then(|| clock.used());
        if self.used_before.is_none() {
            self.watch_until_ms = 0;
        }
    }

    /// Ends a turn of the loop; both times are by the coarse clock.
    pub fn note_turn(&mut self, began_ms: u64, ended_ms: u64, clock: &impl Clock) {
        let took_ms = ended_ms.saturating_sub(began_ms);
        self.turns += 1;
        self.turn_ms += took_ms;
        // A step of that clock is up to 4 ms, so 10 ms may look like 8.
        let slow_ns = self.watched_ns / 2;
        let slow = took_ms.saturating_mul(1_000_000) >= slow_ns;
        if slow && self.watched_ns >= COARSE_NS_MIN {
            match &self.used_before {
                Some(before) => {
                    let slow = before.explains(slow_ns, &clock.used());
                    self.look_closely_if(slow, clock);
                }
                None => self.suspect_if(true, clock),
            }
        }
    }

    /// Starts to watch turns if a step with calls in it took too long, to find out whether the calls did.
    pub fn suspect_if(&mut self, slow: bool, clock: &impl Clock) {
        let at_once = self.watched_ns < COARSE_NS_MIN;
        self.look_closely_if(slow && at_once, clock);
        if slow && !at_once {
            self.watch_until_ms = clock.monotonic_coarse_ms() + CLOSE_LOOK_MS;
        }
    }

    /// Times each call for a while if calls took too long.
    fn look_closely_if(&mut self, slow: bool, clock: &impl Clock) {
        if slow {
            self.close_until_ms = clock.monotonic_coarse_ms() + CLOSE_LOOK_MS;
            self.close_calls_left = CLOSE_LOOK_CALLS;
        }
    }
}

/// CPU usage of a thread up to some moment.
#[derive(Debug)]
pub struct Used {
    /// CPU time: nanoseconds.
    pub cpu_ns: u64,
    /// Number of times that it went to sleep.
    pub sleeps: u64,
}

impl Used {
    /// Returns true if the thread itself took `took_ns` until `later`: it ran, or waited for something. Otherwise it
    /// was ready, and another thread had the CPU.
    fn explains(&self, took_ns: u64, later: &Used) -> bool {
        later.cpu_ns.saturating_sub(self.cpu_ns) >= took_ns || later.sleeps > self.sleeps
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Clock that moves only when a test advances it.
    struct Still {
        now_ns: Cell<u64>,
        cpu_ns: Cell<u64>,
    }

    const NOW_NS: u64 = 1_000_000_000;

    impl Still {
        fn new() -> Still {
            Still {
                now_ns: Cell::new(NOW_NS),
                cpu_ns: Cell::new(0),
            }
        }
    }

    impl Clock for Still {
        fn monotonic_ns(&self) -> u64 {
            self.now_ns.get()
        }

        fn monotonic_coarse_ms(&self) -> u64 {
            self.monotonic_ms()
        }

        fn wall_us(&self) -> u64 {
            self.now_ns.get() / 1_000
        }

        fn used(&self) -> Used {
            Used {
                cpu_ns: self.cpu_ns.get(),
                sleeps: 0,
            }
        }
    }

    fn timing(slower_than_us: i64) -> Timing {
        let settings = Settings {
            slow_log_from_us: slower_than_us,
            ..Settings::default()
        };
        let mut timing = Timing::default();
        timing.adopt(&settings, false);
        timing
    }

    #[test]
    fn few_small_batches_are_timed() {
        let clock = Still::new();
        let mut timing = timing(10_000);
        let timed = (0..160)
            .filter(|_| timing.begin_batch(1, &clock).is_some())
            .count();
        assert_eq!(timed, 10);
        assert!(timing.begin_batch(SMALL_BATCH, &clock).is_some());
    }

    #[test]
    fn small_thresholds_cost_more() {
        let clock = Still::new();
        let mut each_batch = timing(5_000);
        assert!((0..10).all(|_| each_batch.begin_batch(1, &clock).is_some()));
        assert!(!each_batch.closely);
        let mut each_call = timing(0);
        assert!(each_call.begin_batch(100, &clock).is_none() && each_call.closely);
        let mut never = timing(-1);
        assert_eq!(never.watched_ns, u64::MAX);
        let timed = (0..160)
            .filter(|_| never.begin_batch(1, &clock).is_some())
            .count();
        assert_eq!(timed, 10);
    }

    #[test]
    fn a_close_look_ends_after_so_many_calls() {
        let clock = Still::new();
        let mut timing = timing(10_000);
        timing.look_closely_if(true, &clock);
        for _ in 0..CLOSE_LOOK_CALLS / 800 + 1 {
            assert!(timing.begin_batch(800, &clock).is_none() && timing.closely);
        }
        assert!(timing.begin_batch(800, &clock).is_some() && !timing.closely);
    }

    #[test]
    fn the_first_calls_are_timed_one_by_one() {
        let clock = Still::new();
        let mut timing = timing(10_000);
        timing.begin_anew();
        for _ in 0..FIRST_CALLS {
            assert!(timing.begin_batch(1, &clock).is_none() && timing.closely);
        }
        timing.begin_batch(1, &clock);
        assert!(!timing.closely);
    }

    #[test]
    fn a_turn_that_is_slow_again_brings_a_close_look_unless_others_had_the_cpu() {
        /// Makes a turn that takes `took_ms` by the clock, `ran_ns` of it on the CPU.
        fn turn(timing: &mut Timing, took_ms: u64, ran_ns: u64) -> bool {
            let clock = Still::new();
            let now_ms = clock.monotonic_coarse_ms();
            timing.begin_turn(now_ms, &clock);
            clock.cpu_ns.set(ran_ns);
            timing.note_turn(now_ms, now_ms + took_ms, &clock);
            timing.begin_batch(1, &clock);
            timing.closely
        }
        const RAN_NS: u64 = 15_000_000;
        let mut timing = timing(10_000);
        assert!(
            !turn(&mut timing, 4, 0) && timing.watch_until_ms == 0,
            "a step of the clock"
        );
        assert!(!turn(&mut timing, 8, 0), "it is watched from now on");
        assert!(!turn(&mut timing, 2, RAN_NS), "not slow");
        assert!(turn(&mut timing, 8, RAN_NS));
    }

    #[test]
    fn who_ran_or_slept_is_slow_by_itself() {
        let used = |cpu_ns, sleeps| Used { cpu_ns, sleeps };
        assert!(used(1_000, 7).explains(5_000, &used(6_000, 7)));
        assert!(used(1_000, 7).explains(5_000, &used(1_200, 8)));
        assert!(!used(1_000, 7).explains(5_000, &used(5_999, 7)));
    }

    #[test]
    fn turns_are_watched_for_a_while() {
        let clock = Still::new();
        let mut timing = timing(10_000);
        timing.note_turn(100, 120, &clock);
        timing.begin_turn(timing.watch_until_ms - 1, &clock);
        assert!(timing.used_before.is_some());
        timing.begin_turn(timing.watch_until_ms, &clock);
        assert!(timing.used_before.is_none() && timing.watch_until_ms == 0);
    }

    #[test]
    fn a_slow_batch_is_suspect() {
        let clock = Still::new();
        let mut by_batch = timing(10_000);
        let slow = Charge {
            began_ns: NOW_NS - 20_000_000,
            stands_for: 1,
        };
        by_batch.note_apart(15_000_000);
        assert!(by_batch.end_batch(&slow, 2, &clock) >= 5_000_000);
        assert_eq!(
            by_batch.watch_until_ms, 0,
            "the slow one was timed by itself"
        );
        by_batch.begin_batch(1, &clock);
        by_batch.end_batch(&slow, 2, &clock);
        assert_ne!(by_batch.watch_until_ms, 0);

        let mut small_threshold = timing(5_000);
        small_threshold.end_batch(&slow, 2, &clock);
        small_threshold.begin_batch(1, &clock);
        assert!(small_threshold.closely);
    }
}
