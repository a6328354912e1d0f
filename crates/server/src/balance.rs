//! The choice of each client's worker, by the workers' recent CPU usage.
//!
//! A worker that is busy for a quarter of the time wakes up for every few requests, and the cost of waking up falls on
//! them. Two such workers cost more than one that does the work of both, so while all of it is little for one, one does
//! it: the clients of the other are *handed over* (`worker/handover.rs`), and new ones go to the same worker. Where a
//! worker has more work than it can do and another has time, clients are handed over the other way.
//!
//! More workers get more done only if there are CPUs for them. Where other programs want those as well, the clients'
//! own for one, a second worker takes CPU time from them, and both get less done than one worker did. This cannot be
//! known beforehand, so it is tried: where workers wait for CPUs, the requests served in a second are compared before
//! and after, and a move that has made them fewer is undone, for a period that is longer each time.
//!
//! New clients go to the worker that others were moved to, but subscribed clients, among others, cannot be moved: so
//! that holds only while there is work that is better done together, and while that worker has time.
//!
//! Latency matters more than CPU time. A worker that a slow command has kept from serving other clients has its clients
//! spread again, and so has one that waits for its CPU because other programs want it, too, if that helps; after that
//! clients are not brought together again for a while, longer each time.
//!
//! Must not know: sessions, messages, how a client changes its worker.

use std::collections::VecDeque;

/// Load of a worker up to which it takes the clients of two: permille of a CPU.
const TOGETHER_MAX: u32 = 800;
/// Load up to which two workers that wait for CPUs are tried as one: permille of a CPU.
const CROWDED_TOGETHER_MAX: u32 = 950;
/// Waiting time for CPUs from which on workers take them from each other or from other programs: permille, summed up.
const CROWDED: u32 = 100;
/// Load from which on a worker has too much, including the CPU time that it waits for: permille.
const TOO_MUCH: u32 = 900;
/// Difference in load to a worker that takes clients of one that has too much: permille.
const MARGIN: u32 = 300;
/// Time for which the condition has to hold before clients are brought together: milliseconds.
const TOGETHER_AFTER_MS: u64 = 500;
/// Time for which the condition has to hold before clients are spread: milliseconds.
const APART_AFTER_MS: u64 = 300;
/// Time of a turn of a worker's loop that has kept clients waiting: milliseconds of the coarse clock.
pub const STALL_MS: u64 = 40;
/// Initial time for which clients are not brought together after they were spread: milliseconds.
const REST_MS_MIN: u64 = 10_000;
/// Limit on that time, which doubles each time: milliseconds.
const REST_MS_MAX: u64 = 600_000;
/// Time after which the effect of a move can be seen: milliseconds.
const TRIAL_MS: u64 = 1_200;
/// Shortest time over which the rate of requests is taken: milliseconds. Less than [`TRIAL_MS`] by the time of a move.
const RATE_MS: u64 = 500;
/// Time in milliseconds, and number of samples of the workers' loads, after which it can be seen whether workers wait
/// for CPUs since clients were spread; shorter than [`TRIAL_MS`].
const SETTLED_MS: u64 = 300;
const SETTLED_LOOKS: u32 = 3;
/// Initial time for which a move that was tried in vain is not tried again: milliseconds.
const ALONE_MS_MIN: u64 = 10_000;
/// Limit on that time, which doubles each time: milliseconds. Less than [`REST_MS_MAX`], since clients wait for a
/// worker that has too much should the others have time after all.
const ALONE_MS_MAX: u64 = 60_000;

/// Load of the busiest worker below which there is no work that is better done together: permille.
const LITTLE: u32 = 50;
/// Time for which that has to hold: milliseconds.
const LITTLE_AFTER_MS: u64 = 10_000;

/// Recent load of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// CPU time of its thread: permille.
    pub used: u32,
    /// Time that it was ready to run and waited for a CPU: permille.
    pub waited: u32,
    /// Number of clients with an event within a second that may be handed over.
    pub clients: u32,
    /// True if a turn took [`STALL_MS`] or longer.
    pub stalled: bool,
}

impl Load {
    /// Packs the load into one word.
    pub fn pack(self) -> u64 {
        let permille = |part: u32| u64::from(part.min(0xfff));
        permille(self.used)
            | permille(self.waited) << 12
            | u64::from(self.stalled) << 24
            | u64::from(self.clients) << 32
    }

    /// Reverses [`Load::pack`].
    pub fn unpack(word: u64) -> Load {
        Load {
            used: (word & 0xfff) as u32,
            waited: (word >> 12 & 0xfff) as u32,
            clients: (word >> 32) as u32,
            stalled: word >> 24 & 1 == 1,
        }
    }

    fn busy(self) -> u32 {
        self.used + self.waited
    }

    /// Returns true if it has too much work, while the load of another is only `least`.
    fn has_too_much(self, least: u32) -> bool {
        self.busy() >= TOO_MUCH && least + MARGIN <= self.busy()
    }
}

/// An order to hand clients over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Worker that has them.
    pub from: usize,
    /// Worker that gets them.
    pub to: usize,
    /// Share of the work of those that may be handed over: permille.
    pub share: u32,
}

impl Order {
    /// Returns true if all clients are to move.
    pub fn all(&self) -> bool {
        self.share == ALL
    }

    /// Returns its share of `total`.
    pub fn part_of(&self, total: u64) -> u64 {
        (u128::from(total) * u128::from(self.share) / u128::from(ALL)) as u64
    }
}

/// Share of an order to move all clients.
const ALL: u32 = 1000;

/// Number of requests that all workers had served at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Milliseconds of a clock that does not go back; 0: not counted yet.
    pub at_ms: u64,
    /// Number of requests since statistics began.
    pub requests: u64,
}

/// A move whose result is not known yet.
#[derive(Clone, Copy, Debug)]
struct Trial {
    order: Order,
    /// Number of requests served in a second before.
    rate_before: u64,
    began_ms: u64,
    /// Number of samples of the loads since.
    looks: u32,
    /// Work that was moved, in permille of a CPU; `None`: the receiving worker had none of its own.
    moved: Option<u32>,
    /// Earlier values of [`Balance::rest_until_ms`] and [`Balance::rest_ms`], from before the trial.
    rest_before: (u64, u64),
}

/// State that the balancer keeps of its earlier decisions.
#[derive(Debug)]
pub struct Balance {
    trial: Option<Trial>,
    /// Numbers of requests now and before, back to [`RATE_MS`] ago.
    served: VecDeque<Served>,
    /// Time since which all workers have been almost idle.
    little_since_ms: Option<u64>,
    /// Time since which two workers' clients could have been brought together.
    together_since_ms: Option<u64>,
    /// Time since which a worker has had too much, while another had time.
    apart_since_ms: Option<u64>,
    /// Time until which clients stay spread.
    rest_until_ms: u64,
    /// Length of the next such period.
    rest_ms: u64,
    /// Time until which a worker that has too much keeps its clients: spreading them was tried in vain.
    alone_until_ms: u64,
    /// Length of the next such period.
    alone_ms: u64,
}

impl Default for Balance {
    fn default() -> Self {
        Balance {
            together_since_ms: None,
            apart_since_ms: None,
            rest_until_ms: 0,
            rest_ms: REST_MS_MIN,
            trial: None,
            served: VecDeque::new(),
            // A server that has just begun has been idle.
            little_since_ms: Some(0),
            alone_until_ms: 0,
            alone_ms: ALONE_MS_MIN,
        }
    }
}

impl Balance {
    /// Returns the order to carry out at this time (milliseconds of any clock that does not go back), given the
    /// workers' loads and the number of requests they have served.
    pub fn decide(&mut self, now_ms: u64, loads: &[Load], served: Served) -> Option<Order> {
        self.count(served);
        self.decide_by_rate(now_ms, loads, self.rate())
    }

    /// Returns true if new clients should go where others were moved to, and not to the workers that these have left.
    pub fn keeps_together(&mut self, now_ms: u64, loads: &[Load]) -> bool {
        if loads.iter().any(|load| load.busy() >= LITTLE) {
            self.little_since_ms = None;
        } else if now_ms - *self.little_since_ms.get_or_insert(now_ms) >= LITTLE_AFTER_MS {
            return false;
        }
        if self.trial.is_some() || now_ms < self.alone_until_ms {
            return true;
        }
        let least = loads.iter().map(|load| load.busy()).min().unwrap_or(0);
        !loads.iter().any(|load| load.has_too_much(least))
    }

    fn count(&mut self, served: Served) {
        if let Some(last) = self.served.back() {
            // Statistics were reset.
            if served.requests < last.requests || served.at_ms < last.at_ms {
                self.served.clear();
                self.trial = None;
            } else if served.at_ms == last.at_ms {
                return;
            }
        }
        if served.at_ms == 0 {
            return;
        }
        self.served.push_back(served);
        let is_old = |next: &Served| served.at_ms - next.at_ms >= RATE_MS;
        while self.served.get(1).is_some_and(is_old) {
            self.served.pop_front();
        }
    }

    /// Returns the recent number of requests in a second.
    fn rate(&self) -> u64 {
        match (self.served.front(), self.served.back()) {
            (Some(first), Some(last)) if first.at_ms < last.at_ms => {
                (last.requests - first.requests) * 1000 / (last.at_ms - first.at_ms)
            }
            _ => 0,
        }
    }

    fn decide_by_rate(&mut self, now_ms: u64, loads: &[Load], rate: u64) -> Option<Order> {
        // The cause is long past.
        if now_ms >= self.rest_until_ms + 2 * REST_MS_MAX {
            self.rest_ms = REST_MS_MIN;
        }
        if now_ms >= self.alone_until_ms + 2 * ALONE_MS_MAX {
            self.alone_ms = ALONE_MS_MIN;
        }
        if loads.iter().any(|load| load.stalled) {
            self.trial = None;
            self.together_since_ms = None;
            self.rest_until_ms = self.rest_until_ms.max(now_ms + REST_MS_MIN);
        }
        if let Some(trial) = &mut self.trial {
            trial.looks += 1;
            if trial.has_gone_well(now_ms, loads) {
                self.trial = None;
            } else if now_ms < trial.began_ms + TRIAL_MS {
                return None;
            } else {
                let trial = *trial;
                self.trial = None;
                return self.judge(trial, now_ms, loads, rate);
            }
        }
        if let Some(order) = apart(loads, now_ms < self.alone_until_ms) {
            self.together_since_ms = None;
            let since_ms = *self.apart_since_ms.get_or_insert(now_ms);
            let stalled = loads[order.from].stalled;
            if now_ms - since_ms < APART_AFTER_MS && !stalled {
                return None;
            }
            if !stalled {
                self.try_out(order, now_ms, loads, rate);
            }
            return Some(self.spread(order, now_ms));
        }
        self.apart_since_ms = None;
        let found = together(loads).filter(|_| now_ms >= self.rest_until_ms);
        let Some((order, certain)) = found else {
            self.together_since_ms = None;
            return None;
        };
        let since_ms = *self.together_since_ms.get_or_insert(now_ms);
        if now_ms - since_ms < TOGETHER_AFTER_MS {
            return None;
        }
        self.together_since_ms = None;
        if !certain {
            self.try_out(order, now_ms, loads, rate);
        }
        Some(order)
    }

    fn try_out(&mut self, order: Order, now_ms: u64, loads: &[Load], rate: u64) {
        let work = loads[order.from].used * order.share / ALL;
        self.trial = Some(Trial {
            order,
            rate_before: rate,
            began_ms: now_ms,
            looks: 0,
            moved: (loads[order.to].clients > 0).then_some(work),
            rest_before: (self.rest_until_ms, self.rest_ms),
        });
    }

    /// Spreads clients, which stay spread for a while.
    fn spread(&mut self, order: Order, now_ms: u64) -> Order {
        self.apart_since_ms = None;
        self.rest_until_ms = now_ms + self.rest_ms;
        self.rest_ms = (self.rest_ms * 2).min(REST_MS_MAX);
        order
    }

    /// Evaluates the result of a trial and returns the order that follows from it, if any.
    fn judge(&mut self, trial: Trial, now_ms: u64, loads: &[Load], rate: u64) -> Option<Order> {
        let Order { from, to, .. } = trial.order;
        let back = Order {
            from: to,
            to: from,
            share: ALL,
        };
        // A twentieth is noise.
        let less = u128::from(rate) * 20 < u128::from(trial.rate_before) * 19;
        let more = u128::from(rate) * 20 > u128::from(trial.rate_before) * 21;
        if !trial.order.all() {
            // Spreading them did harm.
            if !(less && crowded(&loads[from], &loads[to])) {
                return None;
            }
            (self.rest_until_ms, self.rest_ms) = trial.rest_before;
            self.stay_alone(now_ms);
            // Its earlier work stays with it.
            let share = match trial.moved {
                Some(work) => (work * ALL / loads[to].used.max(1)).min(ALL - 1),
                None => ALL,
            };
            return Some(Order { share, ..back });
        }
        if loads[to].busy() < TOO_MUCH {
            return None;
        }
        if more {
            self.stay_alone(now_ms);
            return None;
        }
        Some(self.spread(Order { share: 500, ..back }, now_ms))
    }

    fn stay_alone(&mut self, now_ms: u64) {
        self.alone_until_ms = now_ms + self.alone_ms;
        self.alone_ms = (self.alone_ms * 2).min(ALONE_MS_MAX);
    }
}

impl Trial {
    /// Returns true if clients were spread, and neither of the two workers waits for a CPU now.
    fn has_gone_well(&self, now_ms: u64, loads: &[Load]) -> bool {
        let Order { from, to, .. } = self.order;
        !self.order.all()
            && self.looks >= SETTLED_LOOKS
            && now_ms >= self.began_ms + SETTLED_MS
            && !crowded(&loads[from], &loads[to])
    }
}

/// Returns true if the two want more CPUs than there are.
fn crowded(one: &Load, other: &Load) -> bool {
    one.waited + other.waited >= CROWDED
}

/// Returns the order that brings one worker's clients to another, and whether it is certain that one worker can serve
/// them all. It is if the least busy worker gives its clients to the busiest that has time for them. Where workers wait
/// for CPUs it is to be tried: the one that waits most gives its clients to the one that waits least.
fn together(loads: &[Load]) -> Option<(Order, bool)> {
    let serving = || {
        loads
            .iter()
            .enumerate()
            .filter(|(_, load)| load.clients > 0)
    };
    let order = |from, to| Order {
        from,
        to,
        share: ALL,
    };
    let (from, least) = serving().min_by_key(|(_, load)| load.used)?;
    let certain = serving()
        .filter(|(to, load)| *to != from && least.used + load.busy() <= TOGETHER_MAX)
        .max_by_key(|(_, load)| load.used);
    if let Some((to, _)) = certain {
        return Some((order(from, to), true));
    }
    let (from, most) = serving().max_by_key(|(_, load)| load.waited)?;
    let tried = serving()
        .filter(|(to, load)| *to != from && most.used + load.used <= CROWDED_TOGETHER_MAX)
        .filter(|(_, load)| crowded(most, load))
        .min_by_key(|(_, load)| load.waited);
    tried.map(|(to, _)| (order(from, to), false))
}

/// Returns the order by which a worker that has too much (unless that `is_accepted`), or whose clients wait, gives some
/// to the one that has most time.
fn apart(loads: &[Load], is_accepted: bool) -> Option<Order> {
    let (to, least) = loads
        .iter()
        .enumerate()
        .min_by_key(|(_, load)| load.busy())?;
    let has_too_much = |load: &Load| {
        let waits = load.has_too_much(least.busy());
        // Slow commands are no reason to move clients to and fro for ever.
        load.clients >= 2 && (waits && !is_accepted || load.stalled && least.clients == 0)
    };
    let (from, most) = loads
        .iter()
        .enumerate()
        .filter(|(number, load)| *number != to && has_too_much(load))
        .max_by_key(|(_, load)| load.busy())?;
    let share = match most.stalled {
        true => 500,
        false => (most.busy() - least.busy()) * 500 / most.busy(),
    };
    Some(Order { from, to, share })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_MS: u64 = 100;

    fn busy(used: u32, clients: u32) -> Load {
        Load {
            used,
            clients,
            ..Load::default()
        }
    }

    /// Returns the first order that is decided within `ticks` ticks, with `now_ms` advanced to its time.
    fn decide(
        balance: &mut Balance,
        now_ms: &mut u64,
        ticks: u32,
        loads: &[Load],
    ) -> Option<Order> {
        (0..ticks).find_map(|_| {
            *now_ms += TICK_MS;
            balance.decide_by_rate(*now_ms, loads, 0)
        })
    }

    /// Number of ticks after which a trial is judged.
    const TRIAL_TICKS: u32 = (TRIAL_MS / TICK_MS) as u32;

    fn waiting(used: u32, waited: u32) -> Load {
        Load {
            waited,
            ..busy(used, 25)
        }
    }

    /// Evaluates a move that is on trial, with the given loads and rate, and returns the order that follows.
    fn judge(balance: &mut Balance, now_ms: &mut u64, loads: &[Load], rate: u64) -> Option<Order> {
        for _ in 1..TRIAL_TICKS {
            *now_ms += TICK_MS;
            let decided = balance.decide_by_rate(*now_ms, loads, rate);
            assert_eq!(decided, None, "too soon");
        }
        *now_ms += TICK_MS;
        balance.decide_by_rate(*now_ms, loads, rate)
    }

    #[test]
    fn the_clients_of_workers_with_little_to_do_are_brought_together() {
        let order = |loads: &[Load]| decide(&mut Balance::default(), &mut 0, 100, loads);
        let all = |from, to| {
            Some(Order {
                from,
                to,
                share: 1000,
            })
        };
        assert_eq!(order(&[busy(250, 25), busy(260, 25)]), all(0, 1));
        assert_eq!(order(&[busy(260, 25), busy(250, 25)]), all(1, 0));
        assert_eq!(
            order(&[busy(450, 25), busy(360, 25)]),
            None,
            "too much for one"
        );
        assert_eq!(order(&[busy(500, 25), busy(5, 0)]), None, "they are");
        // The fullest that can take them.
        let loads = [busy(100, 9), busy(650, 9), busy(750, 9), busy(300, 9)];
        assert_eq!(order(&loads), all(0, 1));
        // One whose CPU other programs want can take less, and gives all away.
        assert_eq!(order(&[busy(250, 25), waiting(260, 300)]), all(1, 0));
        assert_eq!(order(&[busy(250, 25), waiting(240, 300)]), all(1, 0));
        assert_eq!(order(&[busy(500, 25), waiting(460, 300)]), None);
    }

    #[test]
    fn a_moment_is_no_reason() {
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        let (little, much) = ([busy(100, 9), busy(100, 9)], [busy(100, 9), busy(750, 9)]);
        for _ in 0..10 {
            assert_eq!(decide(&mut balance, &mut now_ms, 5, &little), None);
            assert_eq!(decide(&mut balance, &mut now_ms, 1, &much), None);
        }
        assert!(decide(&mut balance, &mut now_ms, 6, &little).is_some());
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        let (even, uneven) = ([busy(900, 9), busy(900, 9)], [busy(900, 9), busy(100, 9)]);
        for _ in 0..10 {
            assert_eq!(decide(&mut balance, &mut now_ms, 3, &uneven), None);
            assert_eq!(decide(&mut balance, &mut now_ms, 1, &even), None);
        }
        assert!(decide(&mut balance, &mut now_ms, 4, &uneven).is_some());
    }

    #[test]
    fn who_has_too_much_gives_some_away() {
        let order = |loads: &[Load]| decide(&mut Balance::default(), &mut 0, 100, loads);
        let some = |share| {
            Some(Order {
                from: 0,
                to: 1,
                share,
            })
        };
        assert_eq!(order(&[busy(950, 50), busy(0, 0)]), some(500));
        assert_eq!(order(&[busy(950, 50), busy(450, 9)]), some(263));
        assert_eq!(order(&[busy(950, 50), busy(700, 9)]), None);
        assert_eq!(
            order(&[busy(950, 1), busy(0, 0)]),
            None,
            "one client is one"
        );
        // Half of a CPU is too much for a worker that gets no more.
        let mut kept_waiting = busy(500, 50);
        kept_waiting.waited = 450;
        assert_eq!(order(&[kept_waiting, busy(0, 0)]), some(500));
    }

    #[test]
    fn a_slow_command_keeps_no_more_clients_waiting_than_it_has_to() {
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        let mut slow = busy(300, 50);
        slow.stalled = true;
        let spread = Order {
            from: 0,
            to: 1,
            share: 500,
        };
        let loads = [slow, busy(0, 0)];
        assert_eq!(decide(&mut balance, &mut now_ms, 1, &loads), Some(spread));
        // Once spread, they stay so for a while; and further slow commands move no client to and fro.
        let loads = [slow, busy(100, 25)];
        assert_eq!(decide(&mut balance, &mut now_ms, 1000, &loads), None);
        let loads = [busy(100, 25), busy(100, 25)];
        let ticks = (REST_MS_MIN / TICK_MS) as u32 - 1;
        assert_eq!(decide(&mut balance, &mut now_ms, ticks, &loads), None);
        assert!(decide(&mut balance, &mut now_ms, 10, &loads).is_some());
    }

    #[test]
    fn each_time_it_takes_longer_until_clients_are_together_again() {
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        let (too_much, little) = ([busy(990, 50), busy(0, 0)], [busy(100, 9), busy(100, 9)]);
        let mut waits_ms = Vec::new();
        for _ in 0..9 {
            assert!(decide(&mut balance, &mut now_ms, 10, &too_much).is_some());
            let began_ms = now_ms;
            assert!(decide(&mut balance, &mut now_ms, 10_000, &little).is_some());
            waits_ms.push(now_ms - began_ms - TOGETHER_AFTER_MS);
        }
        let doubled = [10, 20, 40, 80, 160, 320, 600, 600, 600];
        assert_eq!(waits_ms, doubled.map(|seconds| seconds * 1000));
        // All state is reset in the end.
        let nothing = [busy(0, 0), busy(0, 0)];
        assert_eq!(decide(&mut balance, &mut now_ms, 20_000, &nothing), None);
        assert!(decide(&mut balance, &mut now_ms, 10, &too_much).is_some());
        let began_ms = now_ms;
        assert!(decide(&mut balance, &mut now_ms, 10_000, &little).is_some());
        assert_eq!(now_ms - began_ms, REST_MS_MIN + TOGETHER_AFTER_MS);
    }

    /// Returns loads of two workers and their client's program on two CPUs, and of one worker: measured with
    /// redis-benchmark and P=50.
    fn crowded_loads() -> ([Load; 2], [Load; 2]) {
        let apart = [busy(575, 25), waiting(283, 280)];
        (apart, [busy(950, 50), busy(0, 0)])
    }

    #[test]
    fn workers_that_wait_for_cpus_become_one_if_that_gets_as_much_done() {
        let (apart, alone) = crowded_loads();
        let all = Order {
            from: 1,
            to: 0,
            share: ALL,
        };
        let try_out = |balance: &mut Balance, now_ms: &mut u64| {
            *now_ms += TICK_MS;
            assert_eq!(balance.decide_by_rate(*now_ms, &apart, 1000), None);
            *now_ms += TOGETHER_AFTER_MS;
            assert_eq!(balance.decide_by_rate(*now_ms, &apart, 1000), Some(all));
        };
        // The rate rises: one has too much, and keeps it for a while.
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        try_out(&mut balance, &mut now_ms);
        assert_eq!(judge(&mut balance, &mut now_ms, &alone, 1300), None);
        let ticks = (ALONE_MS_MIN / TICK_MS) as u32 - 1;
        assert_eq!(decide(&mut balance, &mut now_ms, ticks, &alone), None);
        // It is one, and has time.
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        try_out(&mut balance, &mut now_ms);
        let with_time = [busy(850, 50), busy(0, 0)];
        assert_eq!(judge(&mut balance, &mut now_ms, &with_time, 900), None);
        // The rate does not rise: they are two again, for longer each time.
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        for rest_ms in [REST_MS_MIN, 2 * REST_MS_MIN] {
            try_out(&mut balance, &mut now_ms);
            let back = Order {
                from: 0,
                to: 1,
                share: 500,
            };
            let judged = judge(&mut balance, &mut now_ms, &alone, 1010);
            assert_eq!(judged, Some(back));
            let ticks = (rest_ms / TICK_MS) as u32 - 1;
            assert_eq!(decide(&mut balance, &mut now_ms, ticks, &apart), None);
        }
    }

    #[test]
    fn a_second_worker_that_gets_less_done_is_given_up_for_longer_each_time() {
        let (apart, alone) = crowded_loads();
        let spread = Order {
            from: 0,
            to: 1,
            share: 500,
        };
        let back = Order {
            from: 1,
            to: 0,
            share: ALL,
        };
        let try_out = |balance: &mut Balance, now_ms: &mut u64| {
            *now_ms += TICK_MS;
            assert_eq!(balance.decide_by_rate(*now_ms, &alone, 1300), None);
            *now_ms += APART_AFTER_MS;
            assert_eq!(balance.decide_by_rate(*now_ms, &alone, 1300), Some(spread));
        };
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        for alone_ms in [10, 20, 40, 60, 60].map(|seconds| seconds * 1000) {
            try_out(&mut balance, &mut now_ms);
            let judged = judge(&mut balance, &mut now_ms, &apart, 1000);
            assert_eq!(judged, Some(back));
            let ticks = (alone_ms / TICK_MS) as u32 - 1;
            assert_eq!(decide(&mut balance, &mut now_ms, ticks, &alone), None);
        }
        // A slow command says nothing about the rate.
        let stalled = Load {
            stalled: true,
            ..alone[0]
        };
        try_out(&mut balance, &mut now_ms);
        assert_eq!(judge(&mut balance, &mut now_ms, &apart, 1000), Some(back));
        now_ms += TICK_MS;
        let order = balance.decide_by_rate(now_ms, &[stalled, alone[1]], 1000);
        assert_eq!(order, Some(spread));
        // The rate rises, or no worker waits for a CPU: it stays.
        for (loads, rate) in [(apart, 1300), ([busy(500, 25); 2], 1000)] {
            let (mut balance, mut now_ms) = (Balance::default(), 0);
            try_out(&mut balance, &mut now_ms);
            assert_eq!(judge(&mut balance, &mut now_ms, &loads, rate), None);
        }
    }

    #[test]
    fn undoing_a_spread_leaves_a_worker_the_clients_that_it_had() {
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        let before = [busy(950, 50), busy(200, 25)];
        let order = Order {
            from: 0,
            to: 1,
            share: 394,
        };
        now_ms += TICK_MS;
        assert_eq!(balance.decide_by_rate(now_ms, &before, 1000), None);
        now_ms += APART_AFTER_MS;
        assert_eq!(balance.decide_by_rate(now_ms, &before, 1000), Some(order));
        let after = [waiting(600, 100), waiting(500, 100)];
        let back = judge(&mut balance, &mut now_ms, &after, 900);
        // Of the 500 that the other has to do now, 374 came with those clients.
        let share = 748;
        assert_eq!(
            back,
            Some(Order {
                from: 1,
                to: 0,
                share,
            })
        );
    }

    #[test]
    fn many_workers_are_filled_soon() {
        let (mut balance, mut now_ms) = (Balance::default(), 0);
        let mut loads = vec![busy(0, 0); 8];
        loads[0] = busy(1000, 64);
        let mut orders = 0;
        while now_ms < 5_000 && loads.iter().any(|load| load.clients == 0) {
            now_ms += TICK_MS;
            if let Some(order) = balance.decide_by_rate(now_ms, &loads, 1000) {
                orders += 1;
                // There is enough work: a worker with clients is as busy as can be.
                let half = loads[order.from].clients / 2;
                loads[order.from].clients -= half;
                loads[order.to] = busy(1000, half);
            }
        }
        assert_eq!((orders, now_ms), (7, 4_000));
    }

    #[test]
    fn new_clients_go_where_the_others_are_while_these_have_work_and_time() {
        let mut fresh = Balance::default();
        assert!(!fresh.keeps_together(LITTLE_AFTER_MS, &[busy(1, 2), busy(0, 0)]));
        let mut balance = Balance::default();
        let mut at = |now_ms: u64, loads: &[Load]| balance.keeps_together(now_ms, loads);
        assert!(at(0, &[busy(500, 50), busy(0, 0)]));
        // Clients that cannot be moved count as well.
        assert!(!at(100, &[busy(900, 0), busy(0, 0)]));
        assert!(
            at(200, &[busy(900, 50), busy(700, 50)]),
            "no other has time"
        );
        assert!(at(300, &[busy(49, 50), busy(0, 0)]));
        assert!(at(LITTLE_AFTER_MS + 299, &[busy(49, 50), busy(0, 0)]));
        assert!(!at(LITTLE_AFTER_MS + 300, &[busy(49, 50), busy(0, 0)]));
        assert!(at(LITTLE_AFTER_MS + 400, &[busy(50, 50), busy(0, 0)]));
        // New clients do not bring about the state that was tried in vain.
        let (_, alone) = crowded_loads();
        balance.alone_until_ms = 20_000;
        assert!(balance.keeps_together(19_999, &alone));
        assert!(!balance.keeps_together(20_000, &alone));
    }

    #[test]
    fn the_rate_of_requests_is_that_of_the_last_half_second() {
        let mut balance = Balance::default();
        let mut rate = |at_ms, requests| {
            balance.count(Served { at_ms, requests });
            balance.rate()
        };
        assert_eq!(rate(0, 0), 0, "nobody has counted");
        assert_eq!(rate(10_000, 70_000), 0);
        assert_eq!(rate(10_100, 70_100), 1000);
        assert_eq!(rate(10_400, 70_400), 1000);
        assert_eq!(rate(10_400, 70_400), 1000);
        assert_eq!(rate(10_500, 70_400), 800);
        assert_eq!(rate(10_900, 70_400), 0);
        // Late ticks.
        assert_eq!(rate(12_000, 72_500), 2100 * 1000 / 1100);
        assert_eq!(rate(13_000, 72_600), 100);
        // Statistics are reset, and there is nothing to judge a trial by.
        let (apart, _) = crowded_loads();
        balance.try_out(together(&apart).unwrap().0, 13_000, &apart, 100);
        for (at_ms, requests) in [(13_100, 5), (13_200, 25)] {
            balance.count(Served { at_ms, requests });
        }
        assert_eq!((balance.rate(), balance.trial.is_none()), (200, true));
    }

    #[test]
    fn a_load_fits_a_word() {
        let load = Load {
            used: 999,
            waited: 1000,
            clients: 60_000,
            stalled: true,
        };
        assert_eq!(Load::unpack(load.pack()), load);
        assert_eq!(Load::unpack(0), Load::default());
    }
}
