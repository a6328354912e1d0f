//! How much a user may ask for: a bucket that fills with time, and from which calls and bytes are taken. Pure: times come in
//! as microseconds of any clock that does not go back.

use std::sync::{Arc, Mutex, PoisonError};

use redline_proxy_config::{Excess, User};

/// Calls wait for as many seconds' worth of others as this, and no more.
const BOOKED_S_MAX: u64 = 10;

/// One user's, over all of its clients and all workers.
#[derive(Debug)]
pub struct Rates {
    commands: Option<Bucket>,
    bytes: Option<Bucket>,
    /// Policy for calls beyond the limits.
    pub excess: Excess,
}

impl Rates {
    /// As a user's record says; none: it has no limit.
    pub fn of(user: &User) -> Option<Rates> {
        let bucket = |per_second: u64| (per_second > 0).then(|| Bucket::new(per_second));
        let rates = Rates {
            commands: bucket(user.commands_per_second.into()),
            bytes: bucket(user.bytes_per_second.0),
            excess: user.when_exceeded,
        };
        (rates.commands.is_some() || rates.bytes.is_some()).then_some(rates)
    }

    /// Takes a call of so many bytes, unless there is nothing left: whether it did.
    pub fn take(&self, bytes: usize, now_us: u64) -> bool {
        let is_there = self.empty_for_us(now_us) == 0;
        if is_there {
            self.take_call(bytes, now_us);
        }
        is_there
    }

    /// Takes a call of so many bytes, and says when it may be made. So each of those that wait has its turn, and none has to ask
    /// again.
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

    /// Returns the buckets that a call of so many bytes takes from, and how much it takes from each.
    fn buckets(&self, bytes: usize) -> impl Iterator<Item = (&Bucket, u64)> {
        let calls = self.commands.iter().map(|bucket| (bucket, 1));
        calls.chain(self.bytes.iter().map(move |bucket| (bucket, bytes as u64)))
    }

    /// How long until something is there: microseconds.
    pub fn empty_for_us(&self, now_us: u64) -> u64 {
        let buckets = self.commands.iter().chain(&self.bytes);
        let waits = buckets.map(|bucket| bucket.empty_for_us(now_us));
        waits.max().unwrap_or(0)
    }

    fn take_call(&self, bytes: usize, now_us: u64) {
        self.buckets(bytes)
            .for_each(|(bucket, count)| bucket.take(count, now_us));
    }

    /// Takes bytes that are gone already: what is not there is owed.
    pub fn take_bytes(&self, bytes: usize, now_us: u64) {
        if let Some(bucket) = &self.bytes {
            bucket.take(bytes as u64, now_us);
        }
    }
}

/// When a call may be made.
#[derive(Debug)]
pub enum Turn {
    /// It may be made.
    Now,
    /// After so many microseconds.
    Later(Booking, u64),
    /// Too much waits already. Nothing was taken.
    Never,
}

/// The amount taken for a call that waits for its turn. Dropped before that, it is given back.
#[derive(Debug)]
pub struct Booking {
    rates: Arc<Rates>,
    bytes: usize,
    is_due: bool,
}

impl Booking {
    /// Its turn has come.
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
                    // More than it holds runs over when it is filled next.
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
    /// Millionths of what is in it; less than nothing is owed.
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

    /// Returns true if so much may wait in addition to the calls that wait already. A single call always may, however large it
    /// is.
    fn may_book(&self, count: u64) -> bool {
        let most = self.per_second.saturating_mul(BOOKED_S_MAX);
        self.with(|state| state.booked == 0 || state.booked.saturating_add(count) <= most)
    }

    /// How long until something is in it.
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

    /// How long a call waits, and what it has booked.
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
        // Who would rather be refused than wait is behind them all.
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
            // Turns that come give nothing back, and make room for others.
            let bookings = waits.into_iter().filter_map(|(_, booking)| booking);
            bookings.for_each(Booking::redeem);
            let (wait_us, _) = booked(&rates, 5_000_000);
            assert!((5_000_000..5_000_010).contains(&wait_us), "{wait_us}");
        }
        // Alone, it waits however large it is.
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
