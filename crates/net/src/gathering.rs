//! The decision when a loop lets requests gather ([`Poller::set_gathering`](crate::Poller::set_gathering)), made at
//! every tick from the counts since the last one.
//!
//! It pays where many clients send many requests: each wake-up serves more of them then. It must not keep clients
//! waiting that have nothing else to do, so there have to be many: those that were answered before the worker rests
//! keep each other, and their own program, busy meanwhile. If looks after rests find nearly all of the clients, all
//! were waiting, and there is no more resting till the next tick. Where requests come seldom, because each is much work
//! or because clients send no more, a rest costs more than the wake-ups that it saves. And a worker that is idle most
//! of the time has no reason to save CPU time.
//!
//! A rest costs CPU time itself: the kernel puts the thread to sleep, sets a timer, and wakes the CPU up again. On a real
//! machine that is a few microseconds; on a virtual one it was found to be 24, where each of these steps leaves the guest.
//! There rests are longer, and fewer; [`Stretch`] says by which rule.
//!
//! Whether it pays also depends on facts that this side cannot see. Clients that send one request after the other, from
//! a program that uses its whole CPU, send more of them if the server rests. Where requests come at a rate of their
//! own, or the way to the clients is long, a rest only makes them wait. So it is tried now and then ([`Trial`]): if no
//! more requests are served with rests than without, there are none for a while.
//!
//! Must not know: sockets, requests.

use std::{mem, time::Duration};

/// A worker with fewer clients that have sent something lately never rests.
const ACTIVE_MIN: u32 = 16;
/// A worker that uses less than this of a CPU does not rest either: percent. Rests are to save some of it, hence the
/// distance.
const BUSY_TO_BEGIN: u64 = 30;
/// The same, for one that rests already.
const BUSY_TO_GO_ON: u64 = 20;
/// Nor does a worker rest that gets fewer requests in the time of a hundred rests: hardly any would gather.
const HEARD_TO_BEGIN: u64 = 600;
/// The same, for one that rests already.
const HEARD_TO_GO_ON: u64 = 450;
/// For shorter rests, the requests in this time count. It was measured with rests of 50 to 150 us: below 40 requests in
/// a millisecond, those of 50 us saved nothing, and those of 150 us cost more than they saved.
const REST_MIN: Duration = Duration::from_micros(150);
/// A rest that costs this much is as long as it is asked to be; one that costs more is longer by the same factor. With
/// 50 connections of redis-benchmark and rests of 50, 100, 150, 200 and 300 us, each of 24 us, a GET at P=16 took 0.73,
/// 0.68, 0.65, 0.68 and 0.63 us of CPU, at P=1 8.9, 8.6, 7.5, 8.9 and 7.9 (medians of four, to within a tenth;
/// docs/performance.md has rounds by turns).
const COST_US: u64 = 8;
/// Largest such factor: requests wait.
const STRETCH_MAX: u64 = 3;
/// A worker that is busy for so much of the time, in percent, rests longer still where it costs more than
/// [`COST_US`]: its clients wait for each other more than for it. Four turns of redis-benchmark with 50 connections took, with
/// rests of 150, 225 and 300 us, 0.75, 0.59 and 0.60 us of CPU for a GET at P=16, and 8.2, 7.3 and 6.9 at P=1, with a
/// quarter and an eighth more requests in a second; of 300, 400, 500 and 600 us, which were three turns more, no length was better.
const LONG_BUSY_TO_BEGIN: u64 = 55;
/// The same, for a worker whose rests are longer already.
const LONG_BUSY_TO_GO_ON: u64 = 45;
/// Longest such rest, where a rest costs so much more than [`COST_US`]; where it costs less, the limit is lower.
const LONG: Duration = Duration::from_micros(300);
const LONG_COST_US: u64 = COST_US * (STRETCH_MAX - 1);
/// Percentage of the clients that may come during one of them at most: the others keep the senders busy.
const LONG_CLIENTS: u64 = 66;
/// The most that [`Stretch::IfSeldom`] makes of a rest.
const STRETCH_IF_SELDOM_MAX: u64 = 4;
/// Microseconds without longer rests, after some have been too long.
const UNSTRETCHED_US: u64 = 5_000_000;
/// Percentage of the clients that wait at the end of a rest from which on it was too long. Not half: a program that has
/// taken many replies at once sends many requests at once.
const TOO_LONG: usize = 90;
/// Rests between two ticks that may have been too long. One always may: a machine has other things to do, too.
const TOO_LONG_MAX: u32 = 8;

/// A trial begins once rests have been right for this long: microseconds. Shorter phases are not worth one.
const TRIAL_AFTER_US: u64 = 5_000_000;
/// Ticks with rests or without in a trial: the first tells nothing, and neither side is always the later one.
const TRIAL: [bool; 9] = [true, true, false, false, true, true, false, false, true];
/// Percentage of further requests that rests have to bring: less is chance.
const GAIN: u64 = 3;
/// Initial time for which the result of a trial holds: microseconds.
const RESULT_US_MIN: u64 = 10_000_000;
/// Longest such time: it doubles each time, as long as the load stays as it is.
const RESULT_US_MAX: u64 = 80_000_000;
/// Percentage by which requests have to be fewer or more, for two ticks, to be another load.
const CHANGE: u64 = 33;

/// Rule by which rests are longer than asked for, where each costs more than a few microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// By the factor by which they cost more, and longer still while the worker is busy most of the time.
    ByCost,
    /// Only where so few requests come that hardly any would gather, and no more than it takes: a rest is long for
    /// clients as it is, since the servers that the worker calls rest as well.
    IfSeldom,
}

/// Requests in a span of time.
#[derive(Clone, Copy, Default)]
struct Rate {
    requests: u64,
    us: u64,
}

impl Rate {
    fn add(&mut self, other: Rate) {
        self.requests += other.requests;
        self.us += other.us;
    }

    /// Returns true if this is more than `percent` of the other.
    fn exceeds(self, percent: u64, other: Rate) -> bool {
        let product = |rate: Rate, us: u64| u128::from(rate.requests) * u128::from(us);
        product(self, other.us) * 100 > product(other, self.us) * u128::from(percent)
    }
}

/// A trial of whether more requests are served with rests than without.
struct Trial {
    /// Time since which there was no reason against rests. `None`: there is one.
    right_since_us: Option<u64>,
    /// Ticks of a trial that are over.
    ticks: usize,
    with: Rate,
    without: Rate,
    /// Result of the last trial: true if the worker is to rest, and the rate of requests that was measured that way.
    result: Option<(bool, Rate)>,
    result_until_us: u64,
    result_us: u64,
    /// Ticks in a row in which the load was another than at the trial.
    odd_ticks: u32,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial {
            right_since_us: None,
            ticks: 0,
            with: Rate::default(),
            without: Rate::default(),
            result: None,
            result_until_us: 0,
            result_us: RESULT_US_MIN,
            odd_ticks: 0,
        }
    }
}

impl Trial {
    /// Returns true if the worker is to rest until the next tick; `is_right`: there is no other reason against it; `served`:
    /// the requests since the last tick.
    fn tick(&mut self, now_us: u64, is_right: bool, served: Rate) -> bool {
        if !is_right {
            self.right_since_us = None;
            self.begin();
            return false;
        }
        let since_us = *self.right_since_us.get_or_insert(now_us);
        if let Some((rests, then)) = self.result.filter(|_| self.ticks == 0) {
            let is_odd = served.exceeds(100 + CHANGE, then) || then.exceeds(100 + CHANGE, served);
            self.odd_ticks = if is_odd { self.odd_ticks + 1 } else { 0 };
            if self.odd_ticks >= 2 {
                *self = Trial {
                    right_since_us: Some(now_us),
                    ..Trial::default()
                };
                return true;
            }
            if now_us < self.result_until_us {
                return rests;
            }
        } else if self.result.is_none() && now_us - since_us < TRIAL_AFTER_US {
            return true;
        }
        if self.ticks >= 2 {
            match TRIAL[self.ticks - 1] {
                true => self.with.add(served),
                false => self.without.add(served),
            }
        }
        if let Some(&rests) = TRIAL.get(self.ticks) {
            self.ticks += 1;
            return rests;
        }
        let rests = self.with.exceeds(100 + GAIN, self.without);
        let then = if rests { self.with } else { self.without };
        self.result = Some((rests, then));
        self.result_until_us = now_us + self.result_us;
        self.result_us = (self.result_us * 2).min(RESULT_US_MAX);
        self.begin();
        rests
    }

    fn begin(&mut self) {
        (self.ticks, self.with, self.without) = (0, Rate::default(), Rate::default());
        self.odd_ticks = 0;
    }
}

/// The decision of a worker about rests, and the counts between two ticks that it is based on.
pub struct Gathering {
    stretch: Stretch,
    trial: Trial,
    /// Requests served by the last tick, ever.
    served: u64,
    /// Clients that were heard from since the last tick.
    active: u32,
    /// Clients that were heard from between the two ticks before.
    active_before: u32,
    /// Number of times that clients were heard from since the last tick.
    heard: u32,
    /// Rests in which nearly all clients came to wait.
    too_long: u32,
    /// Time of the last tick, and the CPU time that its thread had used by then.
    ticked_us: u64,
    used_us: u64,
    /// At the last tick there was no reason against rests.
    is_right: bool,
    /// It was busy enough for long rests.
    long: bool,
    /// Rests are longer than asked for.
    stretched: bool,
    /// Time until which they are not to be.
    unstretched_until_us: u64,
}

impl Gathering {
    /// Makes the decision of a worker that has not begun.
    pub fn new(stretch: Stretch) -> Gathering {
        Gathering {
            stretch,
            trial: Trial::default(),
            served: 0,
            active: 0,
            active_before: 0,
            heard: 0,
            too_long: 0,
            ticked_us: 0,
            used_us: 0,
            is_right: false,
            long: false,
            stretched: false,
            unstretched_until_us: 0,
        }
    }

    /// Counts clients that were heard from, and how many of them had been silent since the last tick.
    pub fn note(&mut self, clients: u32, were_silent: u32) {
        self.heard = self.heard.saturating_add(clients);
        self.active += were_silent;
    }

    /// Returns the length of rests until the next tick: `span` or longer, or zero. It takes the time, the CPU time of
    /// the worker's thread, and the part of it that a rest has cost lately
    /// ([`Poller::rest_cost`](crate::Poller::rest_cost)); and the requests served so far, if a trial is to find out
    /// whether rests make them more.
    pub fn tick(
        &mut self,
        now_us: u64,
        used_us: u64,
        served: Option<u64>,
        span: Duration,
        cost: Duration,
    ) -> Duration {
        let elapsed_us = now_us.saturating_sub(self.ticked_us).max(1);
        let busy = used_us.saturating_sub(self.used_us) * 100 / elapsed_us;
        let (busy_min, heard_min) = match self.is_right {
            true => (BUSY_TO_GO_ON, HEARD_TO_GO_ON),
            false => (BUSY_TO_BEGIN, HEARD_TO_BEGIN),
        };
        let long = match self.long {
            true => busy >= LONG_BUSY_TO_GO_ON,
            false => busy >= LONG_BUSY_TO_BEGIN,
        };
        let unstretched_until_us = match self.stretched && self.too_long > TOO_LONG_MAX {
            true => now_us + UNSTRETCHED_US,
            false => self.unstretched_until_us,
        };
        let may_stretch = now_us >= unstretched_until_us;
        let span_us = span.as_micros() as u64;
        let least_us = span.max(REST_MIN).as_micros() as u64;
        // So many come in the time of a hundred rests, and in that of one all clients that should.
        let heard_in = |rest_us: u64| u64::from(self.heard) * 100 * rest_us / elapsed_us;
        let most_us = u64::from(self.active) * LONG_CLIENTS * least_us / heard_in(least_us).max(1);
        let (rest_us, heard_us) = match self.stretch {
            _ if !may_stretch => (span_us, least_us),
            Stretch::ByCost => {
                let cost_us = (cost.as_micros() as u64).clamp(COST_US, COST_US * STRETCH_MAX);
                let by_cost_us = span_us * cost_us / COST_US;
                let long_us = LONG.as_micros() as u64 * (cost_us - COST_US) / LONG_COST_US;
                match long {
                    true => (by_cost_us.max(long_us.min(most_us)), least_us),
                    false => (by_cost_us, least_us),
                }
            }
            Stretch::IfSeldom => {
                // What a rest costs is known after the first.
                let factor = match cost.is_zero() {
                    true => STRETCH_IF_SELDOM_MAX,
                    false => cost.as_micros() as u64 / COST_US,
                };
                let longest_us = span_us * factor.clamp(1, STRETCH_IF_SELDOM_MAX);
                let wanted_us = least_us * HEARD_TO_BEGIN / heard_in(least_us).max(1);
                let rest_us = wanted_us.clamp(span_us, longest_us);
                (rest_us, rest_us.max(least_us))
            }
        };
        let is_right = span_us > 0
            && self.active >= ACTIVE_MIN
            && busy >= busy_min
            && heard_in(heard_us) >= heard_min;
        let rests = match served {
            Some(served) => {
                let lately = Rate {
                    requests: served.saturating_sub(mem::replace(&mut self.served, served)),
                    us: elapsed_us,
                };
                self.trial.tick(now_us, is_right, lately)
            }
            None => is_right,
        };
        *self = Gathering {
            active_before: self.active,
            ticked_us: now_us,
            used_us,
            is_right,
            trial: mem::take(&mut self.trial),
            served: self.served,
            long,
            stretched: rest_us > span_us,
            unstretched_until_us,
            ..Gathering::new(self.stretch)
        };
        match rests {
            true => Duration::from_micros(rest_us),
            false => Duration::ZERO,
        }
    }

    /// Counts the events that a look after a rest has found. Returns true if the worker may rest again.
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

    /// Returns for each of some ticks whether a worker rests after it, if before it the worker had so many clients, was busy for
    /// so many percent of the time, and heard from clients so often in a millisecond.
    fn rests<const N: usize>(ticks: [(u32, u64, u32); N]) -> [bool; N] {
        let mut gathering = Gathering::new(Stretch::ByCost);
        let (mut now_us, mut used_us) = (0, 0);
        ticks.map(|(clients, busy, a_ms)| {
            gathering.note(a_ms * 100, clients);
            now_us += TICK_US;
            used_us += TICK_US * busy / 100;
            gathering.tick(now_us, used_us, None, SPAN, Duration::ZERO) == SPAN
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
        let mut gathering = Gathering::new(Stretch::ByCost);
        gathering.note(10_000, 20);
        gathering.tick(TICK_US, TICK_US, None, SPAN, Duration::ZERO);
        assert!((0..100).all(|_| gathering.go_on(18)));
        assert!((0..TOO_LONG_MAX).all(|_| gathering.go_on(19)));
        assert!(!gathering.go_on(19));
    }

    /// Returns the rest of a worker with twenty clients, busy for half of the time, after so many ticks, if a rest
    /// costs so much.
    fn span_after(gathering: &mut Gathering, ticks: u64, cost_us: u64) -> Duration {
        let one = |_| span_then(gathering, (20, 50, 100), cost_us);
        (0..ticks).map(one).last().expect("a tick")
    }

    /// Returns its rest after one more tick before which it had so many clients, was busy for so many percent of the
    /// time, and heard from clients so often in a millisecond.
    fn span_then(gathering: &mut Gathering, tick: (u32, u64, u32), cost_us: u64) -> Duration {
        let (clients, busy, a_ms) = tick;
        gathering.note(a_ms * 100, clients);
        let (now_us, used_us) = (gathering.ticked_us, gathering.used_us);
        gathering.tick(
            now_us + TICK_US,
            used_us + TICK_US * busy / 100,
            None,
            SPAN,
            Duration::from_micros(cost_us),
        )
    }

    #[test]
    fn a_worker_that_is_busy_most_of_the_time_rests_long_where_that_costs_much() {
        let span = |tick, cost_us| {
            span_then(&mut Gathering::new(Stretch::ByCost), tick, cost_us).as_micros()
        };
        assert_eq!(span((50, 55, 100), COST_US * 3), 300);
        assert_eq!(span((50, 54, 100), COST_US * 3), 150);
        assert_eq!(span((50, 100, 100), COST_US), 50);
        // As much longer as it costs.
        assert_eq!(span((50, 100, 100), COST_US * 2), 150);
        // Two thirds of the clients come meanwhile at most, but it is never shorter for being busy.
        assert_eq!(span((40, 100, 100), COST_US * 3), 264);
        assert_eq!(span((20, 100, 100), COST_US * 3), 150);
    }

    #[test]
    fn long_rests_do_not_end_by_what_they_save() {
        let mut gathering = Gathering::new(Stretch::ByCost);
        let spans = [55, 45, 44, 45]
            .map(|busy| span_then(&mut gathering, (50, busy, 100), COST_US * 3).as_micros());
        assert_eq!(spans, [300, 300, 150, 150]);
    }

    #[test]
    fn where_requests_come_seldom_rests_are_as_long_as_it_takes() {
        let seldom = |a_ms: u32, cost_us| {
            let mut gathering = Gathering::new(Stretch::IfSeldom);
            let known = Duration::from_micros(cost_us);
            let asked = Duration::from_micros(150);
            gathering.note(a_ms * 100, 50);
            gathering
                .tick(TICK_US, TICK_US, None, asked, known)
                .as_micros()
        };
        // Often enough: as long as was asked for, whatever it costs.
        assert_eq!([seldom(40, 1), seldom(40, COST_US * 9)], [150, 150]);
        assert_eq!(seldom(100, COST_US * 9), 150);
        assert_eq!([seldom(20, COST_US * 2), seldom(20, COST_US)], [300, 0]);
        assert_eq!([seldom(10, COST_US * 4), seldom(10, COST_US * 3)], [600, 0]);
        assert_eq!(seldom(9, COST_US * 9), 0);
        // Not known before the first.
        assert_eq!(seldom(10, 0), 600);
    }

    #[test]
    fn rests_that_cost_much_are_longer() {
        let span = |cost_us| span_after(&mut Gathering::new(Stretch::ByCost), 1, cost_us);
        assert_eq!([span(0), span(COST_US)], [SPAN, SPAN]);
        assert_eq!(span(COST_US * 2), SPAN * 2);
        assert_eq!([span(COST_US * 3), span(COST_US * 9)], [SPAN * 3, SPAN * 3]);
    }

    #[test]
    fn a_longer_rest_that_was_too_long_is_not_tried_again_soon() {
        let mut gathering = Gathering::new(Stretch::ByCost);
        assert_eq!(span_after(&mut gathering, 1, COST_US * 3), SPAN * 3);
        while gathering.go_on(20) {}
        let ticks = UNSTRETCHED_US / TICK_US;
        assert_eq!(span_after(&mut gathering, 1, COST_US * 3), SPAN);
        // One that is as long as was asked for ends as soon, and says nothing of longer ones.
        while gathering.go_on(20) {}
        assert_eq!(span_after(&mut gathering, ticks - 1, COST_US * 3), SPAN);
        assert_eq!(span_after(&mut gathering, 1, COST_US * 3), SPAN * 3);
    }

    /// Returns for each of so many ticks whether there is a rest after it, when so many requests are served between two with
    /// rests and without; `rests`: after the tick before.
    fn tried(
        trial: &mut Trial,
        now_us: &mut u64,
        ticks: u64,
        (with, without): (u64, u64),
    ) -> Vec<bool> {
        let mut rests = true;
        let mut tick = |_| {
            *now_us += TICK_US;
            let requests = if rests { with } else { without };
            let us = TICK_US;
            rests = trial.tick(*now_us, true, Rate { requests, us });
            rests
        };
        (0..ticks).map(&mut tick).collect()
    }

    #[test]
    fn rests_that_bring_no_more_requests_end_for_longer_each_time() {
        let before = TRIAL_AFTER_US / TICK_US;
        for (served, pays) in [
            ((1030, 1000), false),
            ((1031, 1000), true),
            ((900, 1000), false),
            // A trial is no change of the load.
            ((600, 1000), false),
            ((1700, 1000), true),
        ] {
            let (mut trial, mut now_us) = (Trial::default(), 0);
            assert_eq!(
                tried(&mut trial, &mut now_us, before, served),
                vec![true; before as usize]
            );
            for seconds in [10, 20, 40, 80, 80] {
                assert_eq!(
                    tried(&mut trial, &mut now_us, TRIAL.len() as u64, served),
                    TRIAL
                );
                let ticks = seconds * 1_000_000 / TICK_US;
                assert_eq!(
                    tried(&mut trial, &mut now_us, ticks, served),
                    vec![pays; ticks as usize]
                );
            }
        }
    }

    #[test]
    fn another_load_has_rests_until_they_are_tried_with_it() {
        let tested = |pays: u64| {
            let (mut trial, mut now_us) = (Trial::default(), 0);
            let ticks = TRIAL_AFTER_US / TICK_US + TRIAL.len() as u64 + 1;
            tried(&mut trial, &mut now_us, ticks, (1000 * pays, 1000));
            (trial, now_us)
        };
        for other in [700, 1400] {
            let (mut trial, mut now_us) = tested(1);
            // One tick says nothing.
            for served in [other, 1000] {
                assert_eq!(tried(&mut trial, &mut now_us, 1, (served, served)), [false]);
            }
            let ticks = TRIAL_AFTER_US / TICK_US;
            let mut expected = vec![true; ticks as usize];
            expected[0] = false;
            assert_eq!(
                tried(&mut trial, &mut now_us, ticks, (other, other)),
                expected
            );
        }
        // A moment in which there was another reason against them does not make it forget.
        for pays in [1, 2] {
            let (mut trial, mut now_us) = tested(pays);
            now_us += TICK_US;
            assert!(!trial.tick(now_us, false, Rate::default()));
            let served = (1000 * pays, 1000 * pays);
            assert_eq!(tried(&mut trial, &mut now_us, 2, served), [pays == 2; 2]);
        }
    }

    #[test]
    fn a_trial_that_was_interrupted_begins_anew() {
        let (mut trial, mut now_us) = (Trial::default(), 0);
        let before = TRIAL_AFTER_US / TICK_US;
        tried(&mut trial, &mut now_us, before + 5, (1000, 1000));
        now_us += TICK_US;
        assert!(!trial.tick(now_us, false, Rate::default()));
        let again = tried(
            &mut trial,
            &mut now_us,
            before + TRIAL.len() as u64,
            (1000, 1000),
        );
        let (first, then) = again.split_at(before as usize);
        assert!(first.iter().all(|rests| *rests));
        assert_eq!(then, TRIAL);
    }
}
