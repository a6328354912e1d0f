//! When a loop lets requests gather ([`Poller::set_gathering`](crate::Poller::set_gathering)), decided at every tick from what
//! the last one saw.
//!
//! It pays where many clients send many requests: each wake-up serves more of them then. It must not keep clients waiting
//! that have nothing else to do, so there have to be many: those that were answered before the worker rests keep each
//! other, and their own program, busy meanwhile. If looks after rests find nearly all of the clients, all were waiting, and
//! there is no more resting till the next tick. Where requests come seldom, because each is much work or because nobody asks
//! for more, a rest costs more than the wake-ups that it saves. And a worker that is idle most of the time has no reason to
//! be thrifty.
//!
//! A rest costs CPU time itself: the kernel puts the thread to sleep, sets a timer, and wakes the CPU up again. On a real
//! machine that is a few microseconds; on a virtual one it was found to be 24, where each of these steps leaves the guest.
//! There rests are longer, and fewer.
//!
//! Must not know: sockets, requests.

use std::time::Duration;

/// A worker with fewer clients that have asked lately never rests.
const ACTIVE_MIN: u32 = 16;
/// Nor does one that uses less than this of a CPU: percent. Rests are to save some of it, hence the distance.
const BUSY_TO_BEGIN: u64 = 30;
/// The same, for one that rests already.
const BUSY_TO_GO_ON: u64 = 20;
/// Nor one to which fewer requests come in the time of a hundred rests: hardly anything would gather.
const HEARD_TO_BEGIN: u64 = 600;
/// The same, for one that rests already.
const HEARD_TO_GO_ON: u64 = 450;
/// For shorter rests, what comes in this time counts. It was measured with rests of 50 to 150 us: below 40 requests in a
/// millisecond, those of 50 us saved nothing, and those of 150 us cost more than they saved.
const REST_MIN: Duration = Duration::from_micros(150);
/// A rest that costs this much is as long as it is asked to be; one that costs more is longer by the same factor. With 50
/// connections of redis-benchmark and rests of 50, 100, 150, 200 and 300 us, each of 24 us, a GET at P=16 took 0.73, 0.68,
/// 0.65, 0.68 and 0.63 us of CPU, at P=1 8.9, 8.6, 7.5, 8.9 and 7.9 (medians of four,
/// to within a tenth; docs/performance.md has rounds by turns).
const COST_US: u64 = 8;
/// By this factor at most: requests wait.
const STRETCH_MAX: u64 = 3;
/// After longer rests have been too long, they are as asked for so long: microseconds.
const UNSTRETCHED_US: u64 = 5_000_000;
/// When so many of the clients have come to wait, in percent, the rest was too long. Not half: a program that has taken
/// many replies at once sends many requests at once.
const TOO_LONG: usize = 90;
/// So many rests between two ticks may have been too long. One may always be: a machine has other things to do, too.
const TOO_LONG_MAX: u32 = 8;

/// What is counted between two ticks.
#[derive(Default)]
pub struct Gathering {
    /// Clients that something came from since the last tick.
    active: u32,
    /// Clients that something came from between the two ticks before.
    active_before: u32,
    /// How often something came from clients since the last tick.
    heard: u32,
    /// Rests in which nearly all clients came to wait.
    too_long: u32,
    /// When the last tick was, and what CPU time its thread had used by then.
    ticked_us: u64,
    used_us: u64,
    rests: bool,
    /// Rests are longer than asked for.
    stretched: bool,
    /// They are not to be until then.
    unstretched_until_us: u64,
}

impl Gathering {
    /// Something came from so many clients, of which so many had been silent since the last tick.
    pub fn note(&mut self, clients: u32, were_silent: u32) {
        self.heard = self.heard.saturating_add(clients);
        self.active += were_silent;
    }

    /// How long to rest, until the next tick: `span` or longer, or not at all. The time, the CPU time of the worker's thread,
    /// and what a rest has cost of that lately ([`Poller::rest_cost`](crate::Poller::rest_cost)).
    pub fn tick(&mut self, now_us: u64, used_us: u64, span: Duration, cost: Duration) -> Duration {
        let elapsed_us = now_us.saturating_sub(self.ticked_us).max(1);
        let busy = used_us.saturating_sub(self.used_us) * 100 / elapsed_us;
        let rest_us = span.max(REST_MIN).as_micros() as u64;
        let heard = u64::from(self.heard) * 100 * rest_us / elapsed_us;
        let (busy_min, heard_min) = match self.rests {
            true => (BUSY_TO_GO_ON, HEARD_TO_GO_ON),
            false => (BUSY_TO_BEGIN, HEARD_TO_BEGIN),
        };
        let rests = self.active >= ACTIVE_MIN && busy >= busy_min && heard >= heard_min;
        let unstretched_until_us = match self.stretched && self.too_long > TOO_LONG_MAX {
            true => now_us + UNSTRETCHED_US,
            false => self.unstretched_until_us,
        };
        let cost_us = cost.as_micros() as u64;
        let cost_us = match now_us < unstretched_until_us {
            true => COST_US,
            false => cost_us.clamp(COST_US, COST_US * STRETCH_MAX),
        };
        *self = Gathering {
            active: 0,
            active_before: self.active,
            heard: 0,
            too_long: 0,
            ticked_us: now_us,
            used_us,
            rests,
            stretched: cost_us > COST_US,
            unstretched_until_us,
        };
        match rests {
            true => Duration::from_micros(span.as_micros() as u64 * cost_us / COST_US),
            false => Duration::ZERO,
        }
    }

    /// A look after a rest has found so many events. Says whether to rest again.
    pub fn go_on(&mut self, events: usize) -> bool {
        self.too_long += u32::from(events * 100 > self.active_before as usize * TOO_LONG);
        self.too_long <= TOO_LONG_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_micros(50);
    const TICK_US: u64 = 100_000;

    /// Whether a worker rests after each of some ticks, before which it had so many clients, was busy for so many percent of
    /// the time, and heard from clients so often in a millisecond.
    fn rests<const N: usize>(ticks: [(u32, u64, u32); N]) -> [bool; N] {
        let mut gathering = Gathering::default();
        let (mut now_us, mut used_us) = (0, 0);
        ticks.map(|(clients, busy, a_ms)| {
            gathering.note(a_ms * 100, clients);
            now_us += TICK_US;
            used_us += TICK_US * busy / 100;
            gathering.tick(now_us, used_us, SPAN, Duration::ZERO) == SPAN
        })
    }

    #[test]
    fn it_takes_many_clients_much_work_and_many_requests() {
        assert_eq!(rests([(16, 30, 40)]), [true]);
        assert_eq!(rests([(15, 100, 100)]), [false]);
        assert_eq!(rests([(50, 29, 100)]), [false]);
        assert_eq!(rests([(50, 100, 39)]), [false]);
    }

    #[test]
    fn what_it_saves_does_not_end_it() {
        assert_eq!(
            rests([(50, 30, 50), (50, 20, 50), (50, 19, 50), (50, 20, 50)]),
            [true, true, false, false]
        );
        assert_eq!(
            rests([(50, 50, 40), (50, 50, 30), (50, 50, 29), (50, 50, 30)]),
            [true, true, false, false]
        );
    }

    #[test]
    fn clients_that_all_come_at_once_again_and_again_have_waited() {
        let mut gathering = Gathering::default();
        gathering.note(10_000, 20);
        gathering.tick(TICK_US, TICK_US, SPAN, Duration::ZERO);
        assert!((0..100).all(|_| gathering.go_on(18)));
        assert!((0..TOO_LONG_MAX).all(|_| gathering.go_on(19)));
        assert!(!gathering.go_on(19));
    }

    /// How long a worker with twenty busy clients rests after so many ticks, if a rest costs so much.
    fn span_after(gathering: &mut Gathering, ticks: u64, cost_us: u64) -> Duration {
        let mut span = Duration::ZERO;
        for _ in 0..ticks {
            gathering.note(10_000, 20);
            let at_us = gathering.ticked_us + TICK_US;
            span = gathering.tick(at_us, at_us, SPAN, Duration::from_micros(cost_us));
        }
        span
    }

    #[test]
    fn rests_that_cost_much_are_longer() {
        let span = |cost_us| span_after(&mut Gathering::default(), 1, cost_us);
        assert_eq!([span(0), span(COST_US)], [SPAN, SPAN]);
        assert_eq!(span(COST_US * 2), SPAN * 2);
        assert_eq!([span(COST_US * 3), span(COST_US * 9)], [SPAN * 3, SPAN * 3]);
    }

    #[test]
    fn a_longer_rest_that_was_too_long_is_not_tried_again_soon() {
        let mut gathering = Gathering::default();
        assert_eq!(span_after(&mut gathering, 1, COST_US * 3), SPAN * 3);
        while gathering.go_on(20) {}
        let ticks = UNSTRETCHED_US / TICK_US;
        assert_eq!(span_after(&mut gathering, 1, COST_US * 3), SPAN);
        // One that is as long as was asked for ends as soon, and says nothing of longer ones.
        while gathering.go_on(20) {}
        assert_eq!(span_after(&mut gathering, ticks - 1, COST_US * 3), SPAN);
        assert_eq!(span_after(&mut gathering, 1, COST_US * 3), SPAN * 3);
    }
}
