//! All interleavings of the protocol, under the model checker.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar};

/// A parking place per session: the part of a worker's mailbox for a suspended session.
struct Parking(Vec<(Mutex<bool>, Condvar)>);

impl Parking {
    fn new(sessions: usize) -> Arc<Parking> {
        Arc::new(Parking(
            (0..sessions)
                .map(|_| (Mutex::new(false), Condvar::new()))
                .collect(),
        ))
    }
    fn park(&self, token: WakeToken) {
        let (flag, bell) = &self.0[token as usize];
        let mut woken = flag.lock().unwrap();
        while !*woken {
            woken = bell.wait(woken).unwrap();
        }
        *woken = false;
    }
}

struct Bell(Arc<Parking>);

impl Wake for Bell {
    fn wake(&self, token: WakeToken) {
        let (flag, bell) = &self.0.0[token as usize];
        *flag.lock().unwrap() = true;
        bell.notify_one();
    }
}

/// The state a stripe guards; loom reports any access that is not exclusive.
struct Guarded(Vec<UnsafeCell<u32>>);
// SAFETY: the protocol under test is what makes access exclusive; loom checks that it does.
unsafe impl Sync for Guarded {}
// SAFETY: plain integers.
unsafe impl Send for Guarded {}

impl Guarded {
    fn bump(&self, stripe: u16) {
        self.0[stripe as usize].with_mut(|cell| {
            // SAFETY: the caller holds the stripe; loom checks it.
            unsafe { *cell += 1 }
        });
    }
}

struct World {
    locks: Locks,
    parking: Arc<Parking>,
    data: Guarded,
}

impl World {
    fn new(sessions: usize) -> Arc<World> {
        let parking = Parking::new(sessions);
        Arc::new(World {
            locks: Locks::new(Box::new(Bell(parking.clone()))),
            parking,
            data: Guarded((0..STRIPES).map(|_| UnsafeCell::new(0)).collect()),
        })
    }

    /// Runs a session that asks for the ticket and the script mutex and closes when it would have to wait, or, if it is
    /// to `wait`, once it has been woken (handed over, or not: a stripe's waiting list wakes as well).
    fn ask_and_close(&self, token: WakeToken, wait: bool) {
        let mut set = StripeSet::EMPTY;
        set.insert(0);
        if self.locks.request_ticket(&set, token) {
            self.locks.return_ticket(&set, token);
        } else if wait {
            self.parking.park(token);
        }
        drop(self.locks.try_script(token));
        self.locks.leave_lines(token);
    }

    /// Runs an ordinary unit as a worker does: it is suspended when a stripe is in the way.
    fn run_unit(&self, stripes: &[u16], token: WakeToken, rounds_before_ticket: u32) {
        let mut set = StripeSet::EMPTY;
        stripes.iter().for_each(|stripe| set.insert(*stripe));
        let mut ticket = false;
        let mut round = 0;
        let held = loop {
            match self.locks.try_set(&set, ticket) {
                Ok(held) => break held,
                Err(stripe) => {
                    if !ticket && round >= rounds_before_ticket {
                        ticket = self.locks.request_ticket(&set, token);
                        if !ticket {
                            self.parking.park(token);
                        }
                    } else if self.locks.wait_for(stripe, token, ticket) == Wait::Registered {
                        self.parking.park(token);
                    }
                    round += 1;
                }
            }
        };
        stripes.iter().for_each(|stripe| self.data.bump(*stripe));
        drop(held);
        if ticket {
            self.locks.return_ticket(&set, token);
        } else if rounds_before_ticket < 99 {
            // It stood in the queue, and a stripe's waiting list was faster.
            self.locks.leave_lines(token);
        }
    }

    /// Runs a script that takes stripes one by one, in an order of its own.
    fn run_script(&self, stripes: &[u16], token: WakeToken) {
        let mut held = loop {
            match self.locks.try_script(token) {
                Some(held) => break held,
                None => self.parking.park(token),
            }
        };
        for stripe in stripes {
            held.add(*stripe);
            self.data.bump(*stripe);
        }
    }
}

fn check(threads: Vec<fn(&World)>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = World::new(threads.len());
        let handles: Vec<_> = threads
            .iter()
            .map(|body| {
                let (world, body) = (world.clone(), *body);
                loom::thread::spawn(move || body(&world))
            })
            .collect();
        handles
            .into_iter()
            .for_each(|handle| handle.join().unwrap());
    });
}

#[test]
fn lock_two_units_on_one_stripe_lose_no_wake_up() {
    check(vec![|w| w.run_unit(&[0], 0, 99), |w| {
        w.run_unit(&[0], 1, 99)
    }]);
}

#[test]
fn lock_crossing_sets_come_to_an_end() {
    check(vec![|w| w.run_unit(&[0, 1], 0, 99), |w| {
        w.run_unit(&[0, 1], 1, 99)
    }]);
}

#[test]
fn lock_a_ticket_is_passed_on() {
    check(vec![|w| w.run_unit(&[0, 1], 0, 0), |w| {
        w.run_unit(&[0, 1], 1, 0)
    }]);
}

#[test]
fn lock_a_script_in_any_order_meets_a_ticket() {
    check(vec![|w| w.run_script(&[1, 0], 0), |w| {
        w.run_unit(&[0, 1], 1, 0)
    }]);
}

#[test]
fn lock_two_scripts_take_turns() {
    check(vec![|w| w.run_script(&[1, 0], 0), |w| {
        w.run_script(&[0, 1], 1)
    }]);
}

#[test]
fn lock_a_session_that_closes_in_line_strands_nobody() {
    check(vec![
        |w| w.run_unit(&[0, 1], 0, 0),
        |w| w.ask_and_close(1, false),
        |w| w.run_script(&[1, 0], 2),
    ]);
}

#[test]
fn lock_a_session_that_closes_after_the_hand_over_strands_nobody() {
    check(vec![
        |w| w.run_unit(&[0, 1], 0, 0),
        |w| w.ask_and_close(1, true),
        |w| w.run_unit(&[1], 2, 0),
    ]);
}

#[test]
fn lock_three_scripts_go_in_line() {
    check(vec![
        |w| w.run_script(&[0], 0),
        |w| w.run_script(&[0], 1),
        |w| w.run_script(&[1], 2),
    ]);
}
