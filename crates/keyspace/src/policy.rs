//! The record of accesses, and the choice of keys to evict: clocks, policies, the pool of candidates.
//!
//! The clock word of an entry has 24 bits. Under an LRU policy (and under none) it is the time of the
//! last access in seconds; under an LFU policy it is the minute of the last decay (16 bits) above a
//! logarithmic counter (8 bits). Both are Redis's definitions, since OBJECT IDLETIME and OBJECT FREQ
//! show them. Must not know: entries, locks.

/// A value of `maxmemory-policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    /// Writes that need memory are refused.
    #[default]
    NoEviction,
    /// The least recently used of all keys.
    AllKeysLru,
    /// The least frequently used of all keys.
    AllKeysLfu,
    /// Any key.
    AllKeysRandom,
    /// The least recently used key that has an expiry.
    VolatileLru,
    /// The least frequently used key that has an expiry.
    VolatileLfu,
    /// Any key that has an expiry.
    VolatileRandom,
    /// The key that expires soonest.
    VolatileTtl,
}

impl Policy {
    /// Every policy with its name in the configuration.
    pub const NAMES: [(Policy, &'static str); 8] = [
        (Policy::VolatileLru, "volatile-lru"),
        (Policy::VolatileLfu, "volatile-lfu"),
        (Policy::VolatileRandom, "volatile-random"),
        (Policy::VolatileTtl, "volatile-ttl"),
        (Policy::AllKeysLru, "allkeys-lru"),
        (Policy::AllKeysLfu, "allkeys-lfu"),
        (Policy::AllKeysRandom, "allkeys-random"),
        (Policy::NoEviction, "noeviction"),
    ];

    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        Policy::NAMES
            .iter()
            .find(|(policy, _)| *policy == self)
            .expect("every policy has a name")
            .1
    }

    /// Returns the policy of a number (`policy as u32`).
    pub fn from_number(number: u32) -> Policy {
        Policy::NAMES
            .iter()
            .map(|(policy, _)| *policy)
            .find(|policy| *policy as u32 == number)
            .unwrap_or_default()
    }

    /// Returns true if the clock word counts accesses.
    pub fn is_lfu(self) -> bool {
        matches!(self, Policy::AllKeysLfu | Policy::VolatileLfu)
    }

    /// Returns true if the clock word tells the time of the last access.
    pub fn is_lru(self) -> bool {
        matches!(self, Policy::AllKeysLru | Policy::VolatileLru)
    }

    /// Returns true if only keys with an expiry are candidates.
    pub fn is_volatile(self) -> bool {
        matches!(
            self,
            Policy::VolatileLru
                | Policy::VolatileLfu
                | Policy::VolatileRandom
                | Policy::VolatileTtl
        )
    }

    /// Returns true if any candidate is as good as another.
    pub fn is_random(self) -> bool {
        matches!(self, Policy::AllKeysRandom | Policy::VolatileRandom)
    }
}

const CLOCK_MASK: u32 = 0xff_ffff;
const MINUTES_MASK: u32 = 0xffff;
const LFU_INITIAL: u32 = 5;

/// Rules by which accesses are recorded, and the current time for that purpose.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Count accesses (an LFU policy) instead of dating them.
    pub lfu: bool,
    /// `lfu-log-factor`.
    pub log_factor: u32,
    /// `lfu-decay-time` in minutes; 0: never decay.
    pub decay_minutes: u32,
    /// Unix time in seconds.
    pub now_s: u32,
    /// Accesses are not recorded (CLIENT NO-TOUCH).
    pub frozen: bool,
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            lfu: false,
            log_factor: 10,
            decay_minutes: 1,
            now_s: 0,
            frozen: false,
        }
    }
}

impl Clock {
    /// Returns the word of a new entry.
    #[inline]
    pub fn initial(&self) -> u32 {
        if self.lfu {
            self.minutes() << 8 | LFU_INITIAL
        } else {
            self.now_s & CLOCK_MASK
        }
    }

    /// Returns the word after an access. `random` is called only under an LFU policy.
    #[inline]
    pub fn touched(&self, word: u32, random: impl FnOnce() -> f64) -> u32 {
        if self.frozen {
            return word;
        }
        if !self.lfu {
            return self.now_s & CLOCK_MASK;
        }
        let count = self.frequency(word);
        let base = count.saturating_sub(LFU_INITIAL);
        let grow =
            count < 255 && random() < 1.0 / (f64::from(base) * f64::from(self.log_factor) + 1.0);
        self.minutes() << 8 | (count + u32::from(grow))
    }

    /// Returns the seconds since the last access, for OBJECT IDLETIME.
    pub fn idle_s(&self, word: u32) -> u32 {
        (self.now_s & CLOCK_MASK).wrapping_sub(word) & CLOCK_MASK
    }

    /// Returns the access counter after its decay, for OBJECT FREQ.
    pub fn frequency(&self, word: u32) -> u32 {
        let elapsed = self.minutes().wrapping_sub(word >> 8) & MINUTES_MASK;
        let periods = elapsed.checked_div(self.decay_minutes).unwrap_or(0);
        (word & 0xff).saturating_sub(periods)
    }

    /// Returns the word for "idle for so many seconds" (OBJECT IDLETIME's inverse, for RESTORE). The longest time that
    /// can be recorded stands for all longer ones.
    pub fn idle_word(&self, idle_s: u64) -> u32 {
        let idle_s = idle_s.min(u64::from(CLOCK_MASK - 1)) as u32;
        self.now_s.wrapping_sub(idle_s) & CLOCK_MASK
    }

    /// Returns the word for "this counter, not yet decayed" (OBJECT FREQ's inverse, for RESTORE).
    pub fn frequency_word(&self, frequency: u8) -> u32 {
        self.minutes() << 8 | u32::from(frequency)
    }

    fn minutes(&self) -> u32 {
        (self.now_s / 60) & MINUTES_MASK
    }
}

/// A key that may be evicted. The higher the score, the sooner.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) score: u64,
    pub(crate) db: u32,
    pub(crate) key: Box<[u8]>,
}

/// The best candidates met so far. Keeping some between evictions makes sampled LRU close to true LRU
/// (Redis's eviction pool; 16 entries there as well).
#[derive(Debug, Default)]
pub(crate) struct EvictionPool {
    /// Ascending scores.
    candidates: Vec<Candidate>,
}

impl EvictionPool {
    const CANDIDATES_MAX: usize = 16;

    pub(crate) fn offer(&mut self, score: u64, db: u32, key: &[u8]) {
        let full = self.candidates.len() == Self::CANDIDATES_MAX;
        if full && self.candidates[0].score >= score {
            return;
        }
        if self
            .candidates
            .iter()
            .any(|known| known.db == db && *known.key == *key)
        {
            return;
        }
        if full {
            self.candidates.remove(0);
        }
        let at = self.candidates.partition_point(|known| known.score < score);
        self.candidates.insert(
            at,
            Candidate {
                score,
                db,
                key: key.into(),
            },
        );
    }

    pub(crate) fn best(&mut self) -> Option<Candidate> {
        self.candidates.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.candidates.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_survives_the_wrap_of_24_bits() {
        let clock = Clock {
            now_s: 0x0100_0005,
            ..Clock::default()
        };
        assert_eq!(clock.idle_s(0xff_fffe), 7);
    }

    #[test]
    fn a_counter_grows_by_chance_and_decays_by_minutes() {
        let clock = Clock {
            lfu: true,
            now_s: 600,
            ..Clock::default()
        };
        let word = clock.initial();
        assert_eq!(clock.frequency(word), 5);
        let grown = clock.touched(word, || 0.0);
        assert_eq!(clock.frequency(grown), 6);
        assert_eq!(
            clock.frequency(clock.touched(word, || 0.999)),
            6,
            "the first step is certain"
        );
        let later = Clock {
            now_s: 600 + 180,
            ..clock
        };
        assert_eq!(later.frequency(grown), 3);
    }

    #[test]
    fn the_pool_keeps_the_best() {
        let mut pool = EvictionPool::default();
        for score in 0..40u64 {
            pool.offer(score * 7 % 40, 0, &score.to_le_bytes());
        }
        assert_eq!(pool.best().unwrap().score, 39);
        assert_eq!(pool.best().unwrap().score, 38);
    }
}
