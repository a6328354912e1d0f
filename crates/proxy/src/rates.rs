//! How much a user may ask for: a bucket that fills with time, and from which calls and bytes are taken. Pure: times come in
//! as microseconds of any clock that does not go back.

use std::sync::{Mutex, PoisonError};

use crate::config::{Excess, User};

/// One user's, over all of its clients and all workers.
#[derive(Debug)]
pub struct Rates {
    commands: Option<Bucket>,
    bytes: Option<Bucket>,
    /// What happens beyond.
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

    /// Takes a call of so many bytes. If there is nothing left, it takes nothing, and says how long until there is:
    /// microseconds.
    pub fn take(&self, bytes: usize, now_us: u64) -> Result<(), u64> {
        let buckets = || self.commands.iter().chain(&self.bytes);
        let wait_us = buckets().map(|bucket| bucket.empty_for_us(now_us)).max();
        match wait_us {
            Some(wait_us) if wait_us > 0 => Err(wait_us),
            _ => {
                if let Some(commands) = &self.commands {
                    commands.take(1, now_us);
                }
                self.take_bytes(bytes, now_us);
                Ok(())
            }
        }
    }

    /// Takes bytes that are gone already: what is not there is owed.
    pub fn take_bytes(&self, bytes: usize, now_us: u64) {
        if let Some(bucket) = &self.bytes {
            bucket.take(bytes as u64, now_us);
        }
    }
}

/// What fills up in a second, and holds no more than that.
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
}

impl Bucket {
    fn new(per_second: u64) -> Bucket {
        let state = Mutex::new(State {
            millionths: i128::from(per_second) * 1_000_000,
            filled_us: 0,
        });
        Bucket { per_second, state }
    }

    fn fill<T>(&self, now_us: u64, then: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let most = i128::from(self.per_second) * 1_000_000;
        let passed_us = now_us.saturating_sub(state.filled_us);
        let fresh = i128::from(passed_us) * i128::from(self.per_second);
        state.millionths = (state.millionths + fresh).min(most);
        state.filled_us = state.filled_us.max(now_us);
        then(&mut state)
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
    use super::*;
    use crate::config::Size;

    fn rates(commands: u32, bytes: u64) -> Rates {
        Rates::of(&User {
            commands_per_second: commands,
            bytes_per_second: Size(bytes),
            ..User::default()
        })
        .unwrap()
    }

    #[test]
    fn a_second_s_worth_goes_at_once_and_then_as_fast_as_it_fills() {
        let rates = rates(10, 0);
        for call in 0..10 {
            assert_eq!(rates.take(1000, 5_000_000), Ok(()), "{call}");
        }
        let wait_us = rates.take(1, 5_000_000).unwrap_err();
        assert!((1..=100_000).contains(&wait_us), "{wait_us}");
        assert_eq!(rates.take(1, 5_000_000 + wait_us), Ok(()));
        // Ten seconds give no more than one second's worth.
        let many = (0..100)
            .filter(|_| rates.take(1, 15_000_000).is_ok())
            .count();
        assert!((10..=11).contains(&many), "{many}");
        // In the long run it is the rate.
        let mut now_us = 20_000_000;
        let mut calls = 0;
        while now_us < 30_000_000 {
            match rates.take(1, now_us) {
                Ok(()) => calls += 1,
                Err(wait_us) => now_us += wait_us,
            }
        }
        assert!((108..=112).contains(&calls), "{calls}");
    }

    #[test]
    fn what_is_larger_than_a_second_s_worth_passes_and_is_owed() {
        let rates = rates(0, 1000);
        assert_eq!(rates.take(5000, 1_000_000), Ok(()));
        let wait_us = rates.take(1, 1_000_000).unwrap_err();
        assert!((4_000_000..=4_010_000).contains(&wait_us), "{wait_us}");
        rates.take_bytes(1000, 1_000_000);
        assert!(rates.take(1, 5_500_000).is_err());
        assert_eq!(rates.take(1, 6_010_000), Ok(()));
    }

    #[test]
    fn who_has_no_limit_has_no_bucket() {
        assert!(Rates::of(&User::default()).is_none());
    }
}
