//! Rate limits of users: a bucket that fills with time, from which calls and bytes are taken. Pure: times are given in
//! microseconds of any monotonic clock.

use std::sync::{Arc, Mutex, PoisonError};

use redline_proxy_config::{Excess, User};

/// Longest queue of waiting calls: seconds' worth of the rate.
const BOOKED_S_MAX: u64 = 10;

/// Rate limits of one user, shared by its clients and all workers.
#[derive(Debug)]
pub struct Rates {
    commands: Option<Bucket>,
    bytes: Option<Bucket>,
    /// Policy for calls beyond the limits.
    pub excess: Excess,
}

impl Rates {
    /// Returns the limits of a user's record; none: it has no limit.
    pub fn of(user: &User) -> Option<Rates> {
        let bucket = |per_second: u64| (per_second > 0).then(|| Bucket::new(per_second));
        let rates = Rates {
            commands: bucket(user.commands_per_second.into()),
            bytes: bucket(user.bytes_per_second.0),
            excess: user.when_exceeded,
        };
        (rates.commands.is_some() || rates.bytes.is_some()).then_some(rates)
    }

    /// Takes a call of this many bytes, unless the bucket is empty; returns true if it did.
    pub fn take(&self, bytes: usize, now_us: u64) -> bool {
        let is_there = self.empty_for_us(now_us) == 0;
        if is_there {
            self.take_call(bytes, now_us);
        }
        is_there
    }

    /// Takes a call of this many bytes, and returns when it may be made. So each waiting call has its turn, and need not
    /// ask again.
    pub fn book(self: &Arc<Rates>, bytes: usize, now_us: u64) -> Turn {
        let wait_us = self.empty_for_us(now_us);
        if wait_us > 0 {
            let mut buckets = self.buckets(bytes);
            if !buckets.all(|(bucket, count)| bucket.may_book(count)) {
                return Turn::Never;
            }
        }
        self.take_call(bytes, now_us);
        if wait_us == 0 {
            return Turn::Now;
        }
        self.buckets(bytes)
            .for_each(|(bucket, count)| bucket.with(|state| state.booked += count));
        let booking = Booking {
            rates: Arc::clone(self),
            bytes,
            is_due: false,
        };
        Turn::Later(booking, wait_us)
    }

    /// Returns the buckets that a call of this many bytes takes from, and the amount for each.
    fn buckets(&self, bytes: usize) -> impl Iterator<Item = (&Bucket, u64)> {
        let calls = self.commands.iter().map(|bucket| (bucket, 1));
        calls.chain(self.bytes.iter().map(move |bucket| (bucket, bytes as u64)))
    }

    /// Returns the time until the bucket is not empty: microseconds.
    pub fn empty_for_us(&self, now_us: u64) -> u64 {
        let buckets = self.commands.iter().chain(&self.bytes);
        let waits = buckets.map(|bucket| bucket.empty_for_us(now_us));
        waits.max().unwrap_or(0)
    }

    fn take_call(&self, bytes: usize, now_us: u64) {
        self.buckets(bytes)
            .for_each(|(bucket, count)| bucket.take(count, now_us));
    }

    /// Takes bytes that were sent already: the amount may become negative.
    pub fn take_bytes(&self, bytes: usize, now_us: u64) {
        if let Some(bucket) = &self.bytes {
            bucket.take(bytes as u64, now_us);
        }
    }
}

/// The time at which a call may be made.
#[derive(Debug)]
pub enum Turn {
    /// Now.
    Now,
    /// After this many microseconds.
    Later(Booking, u64),
    /// Never: too many calls wait already. Nothing was taken.
    Never,
}

/// The amount taken for a call that waits for its turn. Dropping it before gives the amount back.
#[derive(Debug)]
pub struct Booking {
    rates: Arc<Rates>,
    bytes: usize,
    is_due: bool,
}

impl Booking {
    /// Uses the booking, at its turn.
    pub fn redeem(mut self) {
        self.is_due = true;
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        for (bucket, count) in self.rates.buckets(self.bytes) {
            bucket.with(|state| {
                state.booked = state.booked.saturating_sub(count);
                if !self.is_due {
                    // An excess is cut off at the next refill.
                    state.millionths += i128::from(count) * 1_000_000;
                }
            });
        }
    }
}

/// A token bucket: it fills up in a second, and holds no more than that.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Content in millionths; may be negative.
    millionths: i128,
    filled_us: u64,
    /// The amount taken for calls that wait for their turn.
    booked: u64,
}

impl Bucket {
    fn new(per_second: u64) -> Bucket {
        let state = Mutex::new(State {
            millionths: i128::from(per_second) * 1_000_000,
            filled_us: 0,
            booked: 0,
        });
        Bucket { per_second, state }
    }

    fn with<T>(&self, then: impl FnOnce(&mut State) -> T) -> T {
        then(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fill<T>(&self, now_us: u64, then: impl FnOnce(&mut State) -> T) -> T {
        self.with(|state| {
            let most = i128::from(self.per_second) * 1_000_000;
            let passed_us = now_us.saturating_sub(state.filled_us);
            let fresh = i128::from(passed_us) * i128::from(self.per_second);
            state.millionths = (state.millionths + fresh).min(most);
            state.filled_us = state.filled_us.max(now_us);
            then(state)
        })
    }

    /// Returns true if this much may wait in addition to the calls that wait already. A single call always may, of any
    /// size.
    fn may_book(&self, count: u64) -> bool {
        let most = self.per_second.saturating_mul(BOOKED_S_MAX);
        self.with(|state| state.booked == 0 || state.booked.saturating_add(count) <= most)
    }

    /// Returns the time until the bucket is not empty: microseconds.
    fn empty_for_us(&self, now_us: u64) -> u64 {
        self.fill(now_us, |state| {
            let owed = -state.millionths.min(1) + 1;
            if state.millionths > 0 {
                return 0;
            }
            (owed / i128::from(self.per_second)) as u64 + 1
        })
    }

    fn take(&self, count: u64, now_us: u64) {
        self.fill(now_us, |state| {
            state.millionths -= i128::from(count) * 1_000_000;
        });
    }
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::Size;

    use super::*;

    fn rates(commands: u32, bytes: u64) -> Arc<Rates> {
        let rates = Rates::of(&User {
            commands_per_second: commands,
            bytes_per_second: Size(bytes),
            ..User::default()
        });
        Arc::new(rates.unwrap())
    }

    /// Returns the wait of a call, and its booking.
    fn booked(rates: &Arc<Rates>, now_us: u64) -> (u64, Option<Booking>) {
        match rates.book(1, now_us) {
            Turn::Now => (0, None),
            Turn::Later(booking, wait_us) => (wait_us, Some(booking)),
            Turn::Never => panic!("too much waits"),
        }
    }

    #[test]
    fn a_second_s_worth_goes_at_once_and_then_as_fast_as_it_fills() {
        let rates = rates(10, 0);
        for call in 0..10 {
            assert!(rates.take(1000, 5_000_000), "{call}");
        }
        assert!(!rates.take(1, 5_000_000) && rates.take(1, 5_101_000));
        // Ten seconds give no more than one second's worth.
        let many = (0..100).filter(|_| rates.take(1, 15_000_000)).count();
        assert!((10..=11).contains(&many), "{many}");
        // In the long run it is the rate.
        let mut now_us = 20_000_000;
        let mut calls = 0;
        while now_us < 30_000_000 {
            let (wait_us, booking) = booked(&rates, now_us);
            now_us += wait_us;
            booking.into_iter().for_each(Booking::redeem);
            calls += 1;
        }
        assert!((108..=112).contains(&calls), "{calls}");
    }

    #[test]
    fn those_who_wait_have_their_turns_one_by_one() {
        let rates = rates(10, 0);
        let now_us = 5_000_000;
        let waits: Vec<_> = (0..110).map(|_| booked(&rates, now_us)).collect();
        assert!(waits[..10].iter().all(|(wait_us, _)| *wait_us == 0));
        for (number, (wait_us, _)) in waits[10..].iter().enumerate() {
            let turn_us = number as u64 * 100_000;
            assert!(
                (turn_us..=turn_us + 10).contains(wait_us),
                "{number}: {wait_us}"
            );
        }
        // A call that does not wait comes after all of them.
        assert!(!rates.take(1, now_us + 9_900_000) && rates.take(1, now_us + 10_100_000));
    }

    #[test]
    fn what_waits_has_a_bound_and_who_goes_gives_back_what_it_has_booked() {
        for rates in [rates(10, 0), rates(0, 10)] {
            let mut waits: Vec<_> = (0..110).map(|_| booked(&rates, 5_000_000)).collect();
            assert!(matches!(rates.book(1, 5_000_000), Turn::Never));
            waits.drain(60..);
            let (wait_us, _) = booked(&rates, 5_000_000);
            assert!((5_000_000..5_000_010).contains(&wait_us), "{wait_us}");
            // Turns that have come give nothing back, and make room for others.
            let bookings = waits.into_iter().filter_map(|(_, booking)| booking);
            bookings.for_each(Booking::redeem);
            let (wait_us, _) = booked(&rates, 5_000_000);
            assert!((5_000_000..5_000_010).contains(&wait_us), "{wait_us}");
        }
        // A single call waits, of any size.
        let rates = rates(0, 10);
        assert!(rates.take(1000, 5_000_000));
        let Turn::Later(_first, wait_us) = rates.book(1000, 5_000_000) else {
            panic!("it waits");
        };
        assert!((99_000_000..99_000_010).contains(&wait_us), "{wait_us}");
        assert!(matches!(rates.book(1, 5_000_000), Turn::Never));
    }

    #[test]
    fn what_is_larger_than_a_second_s_worth_passes_and_is_owed() {
        let rates = rates(0, 1000);
        assert!(rates.take(5000, 1_000_000));
        assert!(!rates.take(1, 4_990_000));
        rates.take_bytes(1000, 4_990_000);
        assert!(!rates.take(1, 5_500_000) && rates.take(1, 6_010_000));
    }

    #[test]
    fn who_has_no_limit_has_no_bucket() {
        assert!(Rates::of(&User::default()).is_none());
    }
}
