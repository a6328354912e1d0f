//! When a loop lets requests gather ([`Poller::set_gathering`](crate::Poller::set_gathering)), decided at every tick from what
//! the last one saw.
//!
//! It pays where many clients keep a worker busy: each wake-up serves more of them then. It must not keep clients waiting
//! that have nothing else to do, so there have to be many: those that were answered before the worker rests keep each
//! other, and their own program, busy meanwhile. If looks after rests find most of the clients, all were waiting, and there
//! is no more resting till the next tick. And a worker that is idle half of the time has no reason to be thrifty: a lone
//! request would only wait for others that do not come.
//!
//! Must not know: sockets, requests.

use std::time::Duration;

/// A worker with fewer clients that have asked lately never rests.
const ACTIVE_MIN: u32 = 16;
/// Nor does one that uses less than this of a CPU: percent. Rests are to save some of it, hence the distance.
const BUSY_TO_BEGIN: u64 = 50;
/// The same, for one that rests already.
const BUSY_TO_GO_ON: u64 = 35;
/// So many rests between two ticks may have been too long. One may always be: a machine has other things to do, too.
const TOO_LONG_MAX: u32 = 8;

/// What is counted between two ticks.
#[derive(Default)]
pub struct Gathering {
    /// Clients that something came from since the last tick.
    active: u32,
    /// The same, between the two ticks before.
    active_before: u32,
    /// Rests in which most clients came to wait.
    too_long: u32,
    /// When the last tick was, and what CPU time its thread had used by then.
    ticked_us: u64,
    used_us: u64,
    rests: bool,
}

impl Gathering {
    /// Something came from so many clients that had been silent since the last tick.
    pub fn note(&mut self, clients: u32) {
        self.active += clients;
    }

    /// How long to rest, until the next tick: `span` or not at all. The time, and the CPU time of the worker's thread.
    pub fn tick(&mut self, now_us: u64, used_us: u64, span: Duration) -> Duration {
        let elapsed_us = now_us.saturating_sub(self.ticked_us).max(1);
        let busy = used_us.saturating_sub(self.used_us) * 100 / elapsed_us;
        let enough = if self.rests {
            BUSY_TO_GO_ON
        } else {
            BUSY_TO_BEGIN
        };
        *self = Gathering {
            active: 0,
            active_before: self.active,
            too_long: 0,
            ticked_us: now_us,
            used_us,
            rests: self.active >= ACTIVE_MIN && busy >= enough,
        };
        if self.rests { span } else { Duration::ZERO }
    }

    /// A look after a rest has found so many events. Says whether to rest again.
    pub fn go_on(&mut self, events: usize) -> bool {
        self.too_long += u32::from(events * 2 > self.active_before as usize);
        self.too_long <= TOO_LONG_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_micros(50);
    const TICK_US: u64 = 100_000;

    /// Whether a worker rests after each of some ticks, before which it had so many clients and was busy for so many
    /// percent of the time.
    fn rests<const N: usize>(ticks: [(u32, u64); N]) -> [bool; N] {
        let mut gathering = Gathering::default();
        let (mut now_us, mut used_us) = (0, 0);
        ticks.map(|(clients, busy)| {
            gathering.note(clients);
            now_us += TICK_US;
            used_us += TICK_US * busy / 100;
            gathering.tick(now_us, used_us, SPAN) == SPAN
        })
    }

    #[test]
    fn it_takes_many_clients_and_much_work() {
        assert_eq!(rests([(50, 50)]), [true]);
        assert_eq!(rests([(15, 100)]), [false]);
        assert_eq!(rests([(50, 49)]), [false]);
    }

    #[test]
    fn what_it_saves_does_not_end_it() {
        assert_eq!(
            rests([(50, 60), (50, 40), (50, 30), (50, 40)]),
            [true, true, false, false]
        );
    }

    #[test]
    fn clients_that_all_come_at_once_again_and_again_have_waited() {
        let mut gathering = Gathering::default();
        gathering.note(20);
        gathering.tick(TICK_US, TICK_US, SPAN);
        assert!((0..100).all(|_| gathering.go_on(10)));
        assert!((0..TOO_LONG_MAX).all(|_| gathering.go_on(11)));
        assert!(!gathering.go_on(11));
    }
}
