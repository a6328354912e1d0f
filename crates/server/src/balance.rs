//! Which worker is to serve whom: decided from what each has used of its CPU lately.
//!
//! A worker that is busy for a quarter of the time wakes up for every few requests, and what waking up costs is charged to
//! them. Two such workers cost more than one that does the work of both, so while all of it is little for one, one does it:
//! the clients of the other are *handed over* (`worker/handover.rs`). Where a worker has more than it can do and another has
//! time, clients are handed over the other way.
//!
//! Waiting clients matter more than CPU time. A worker that somebody's slow command has kept from serving others has its
//! clients spread again, and so has one that waits for its CPU because other programs want it, too; after that it takes a
//! while until clients are brought together again, each time longer.
//!
//! Must not know: sessions, messages, how a client changes its worker.

/// Two workers' clients are brought together if one would be busy for no more than this: permille of a CPU.
const TOGETHER_MAX: u32 = 800;
/// A worker that is busy for this much of the time, or would be if it got its CPU, has too much: permille.
const TOO_MUCH: u32 = 900;
/// By so much less busy is a worker that takes clients of one that has too much: permille.
const MARGIN: u32 = 300;
/// For so long it has to be so before clients are brought together: milliseconds.
const TOGETHER_AFTER_MS: u64 = 500;
/// And so long before they are spread.
const APART_AFTER_MS: u64 = 300;
/// A turn of a worker's loop that takes so long has kept clients waiting: milliseconds of the coarse clock.
pub const STALL_MS: u64 = 40;
/// After clients were spread none are brought together for so long, at first: milliseconds.
const REST_MS_MIN: u64 = 10_000;
/// And so long at most: it doubles each time.
const REST_MS_MAX: u64 = 600_000;

/// What a worker has had to do lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// CPU time of its thread: permille.
    pub used: u32,
    /// Time that it was ready to run and waited for a CPU: permille.
    pub waited: u32,
    /// Clients that it has heard from within a second and that may be handed over.
    pub clients: u32,
    /// A turn took [`STALL_MS`] or longer.
    pub stalled: bool,
}

impl Load {
    /// As one word.
    pub fn pack(self) -> u64 {
        let permille = |part: u32| u64::from(part.min(0xfff));
        permille(self.used)
            | permille(self.waited) << 12
            | u64::from(self.stalled) << 24
            | u64::from(self.clients) << 32
    }

    /// The reverse of [`Load::pack`].
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
}

/// Clients are to be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The worker that has them.
    pub from: usize,
    /// The one that gets them.
    pub to: usize,
    /// How much of the work of those that may be handed over: permille.
    pub share: u32,
}

/// What was decided before.
#[derive(Debug)]
pub struct Balance {
    /// Since when two workers' clients could have been brought together.
    together_since_ms: Option<u64>,
    /// Since when a worker has had too much, while another had time.
    apart_since_ms: Option<u64>,
    /// Until when clients stay spread.
    rest_until_ms: u64,
    /// How long they do the next time.
    rest_ms: u64,
}

impl Default for Balance {
    fn default() -> Self {
        Balance {
            together_since_ms: None,
            apart_since_ms: None,
            rest_until_ms: 0,
            rest_ms: REST_MS_MIN,
        }
    }
}

impl Balance {
    /// What is to be done at this time (milliseconds of any clock that does not go back), in view of the workers' loads.
    pub fn decide(&mut self, now_ms: u64, loads: &[Load]) -> Option<Order> {
        // Whatever was so bad is long past.
        if now_ms >= self.rest_until_ms + 2 * REST_MS_MAX {
            self.rest_ms = REST_MS_MIN;
        }
        if loads.iter().any(|load| load.stalled) {
            self.together_since_ms = None;
            self.rest_until_ms = self.rest_until_ms.max(now_ms + REST_MS_MIN);
        }
        if let Some(order) = apart(loads) {
            self.together_since_ms = None;
            let since_ms = *self.apart_since_ms.get_or_insert(now_ms);
            if now_ms - since_ms < APART_AFTER_MS && !loads[order.from].stalled {
                return None;
            }
            self.apart_since_ms = None;
            self.rest_until_ms = now_ms + self.rest_ms;
            self.rest_ms = (self.rest_ms * 2).min(REST_MS_MAX);
            return Some(order);
        }
        self.apart_since_ms = None;
        let order = together(loads).filter(|_| now_ms >= self.rest_until_ms);
        let Some(order) = order else {
            self.together_since_ms = None;
            return None;
        };
        let since_ms = *self.together_since_ms.get_or_insert(now_ms);
        if now_ms - since_ms < TOGETHER_AFTER_MS {
            return None;
        }
        self.together_since_ms = None;
        Some(order)
    }
}

/// The least busy worker gives all of its clients to the busiest that can still take them.
fn together(loads: &[Load]) -> Option<Order> {
    let serving = |(_, load): &(usize, &Load)| load.clients > 0;
    let all = || loads.iter().enumerate().filter(serving);
    let (from, least) = all().min_by_key(|(_, load)| load.used)?;
    let fits = |load: &Load| least.used + load.busy() <= TOGETHER_MAX;
    let (to, _) = all()
        .filter(|(number, load)| *number != from && fits(load))
        .max_by_key(|(_, load)| load.used)?;
    Some(Order {
        from,
        to,
        share: 1000,
    })
}

/// A worker that has too much, or does not come to serve its clients, gives some to the one that has most time.
fn apart(loads: &[Load]) -> Option<Order> {
    let (to, least) = loads
        .iter()
        .enumerate()
        .min_by_key(|(_, load)| load.busy())?;
    let has_too_much = |load: &Load| {
        let waits = load.busy() >= TOO_MUCH && least.busy() + MARGIN <= load.busy();
        // Slow commands are no reason to move clients from one worker to another for ever.
        load.clients >= 2 && (waits || load.stalled && least.clients == 0)
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

    /// What is decided within so many ticks, and when.
    fn decide(
        balance: &mut Balance,
        now_ms: &mut u64,
        ticks: u32,
        loads: &[Load],
    ) -> Option<Order> {
        (0..ticks).find_map(|_| {
            *now_ms += TICK_MS;
            balance.decide(*now_ms, loads)
        })
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
        // Whose CPU others want as well can take less.
        let mut wanted = busy(260, 25);
        wanted.waited = 300;
        assert_eq!(order(&[busy(250, 25), wanted]), None);
        // Nobody has to be handed over from one whose CPU others want.
        let loads = [
            busy(250, 25),
            Load {
                used: 240,
                ..wanted
            },
        ];
        assert_eq!(order(&loads), all(1, 0));
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
        // Half of a CPU is much for a worker that gets no more.
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
        // Spread, they stay so for a while; and further slow commands move nobody to and fro.
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
        // All is forgotten in the end.
        let nothing = [busy(0, 0), busy(0, 0)];
        assert_eq!(decide(&mut balance, &mut now_ms, 20_000, &nothing), None);
        assert!(decide(&mut balance, &mut now_ms, 10, &too_much).is_some());
        let began_ms = now_ms;
        assert!(decide(&mut balance, &mut now_ms, 10_000, &little).is_some());
        assert_eq!(now_ms - began_ms, REST_MS_MIN + TOGETHER_AFTER_MS);
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
