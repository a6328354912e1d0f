//! Frequent keys and large keys: both of bounded size, from samples. Must not know commands.
//!
//! [`Frequent`] is the space-saving sketch of Metwally, Agrawal and El Abbadi: a fixed number of counters; a key without
//! one takes the smallest, whose count is the error bound of the new one. It begins anew with every span of [`SPAN_MS`];
//! the last complete span and the running one are shown, so a key that was hot an hour ago is not.

use std::collections::HashMap;

/// Number of counters.
const COUNTERS: usize = 128;
/// Number of large keys that are kept.
const LARGEST: usize = 128;
/// Bytes of a key that are kept.
const KEY_BYTES_MAX: usize = 512;
/// Length of a span: milliseconds.
pub const SPAN_MS: u64 = 10_000;
/// Smallest large value: bytes.
pub const LARGE_BYTES_MIN: usize = 4096;

/// Frequent keys.
#[derive(Debug, Default)]
pub struct Frequent {
    now: Span,
    before: Span,
}

#[derive(Debug, Default)]
struct Span {
    since_ms: u64,
    /// Its length; 0 for the running one.
    ms: u64,
    counters: Vec<Count>,
    places: HashMap<Box<[u8]>, usize>,
}

#[derive(Clone, Debug)]
struct Count {
    key: Box<[u8]>,
    count: u64,
    over: u64,
}

/// Rate of a key, by samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Samples per second as counted, an upper bound: the counter may have been another key's before.
    pub per_second: f64,
    /// Samples per second at least.
    pub least_per_second: f64,
}

impl Frequent {
    /// Adds a sample, which stands for `weight` of them.
    pub fn add(&mut self, key: &[u8], weight: u64, now_ms: u64) {
        self.turn(now_ms);
        self.now.add(&key[..key.len().min(KEY_BYTES_MAX)], weight);
    }

    /// Adds the rates to `into`.
    pub fn rates(&mut self, now_ms: u64, into: &mut HashMap<Box<[u8]>, Rate>) {
        self.turn(now_ms);
        let ms = self.before.ms + now_ms.saturating_sub(self.now.since_ms);
        let seconds = ms.max(1) as f64 / 1000.0;
        for count in self.before.counters.iter().chain(&self.now.counters) {
            let rate = into.entry(count.key.clone()).or_default();
            rate.per_second += count.count as f64 / seconds;
            rate.least_per_second += (count.count - count.over) as f64 / seconds;
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        *self = Frequent::default();
    }

    fn turn(&mut self, now_ms: u64) {
        if self.now.since_ms == 0 {
            self.now.since_ms = now_ms;
        }
        let ms = now_ms.saturating_sub(self.now.since_ms);
        if ms < SPAN_MS {
            return;
        }
        self.before = std::mem::take(&mut self.now);
        self.before.ms = ms;
        self.now.since_ms = now_ms;
    }
}

impl Span {
    fn add(&mut self, key: &[u8], weight: u64) {
        if let Some(&at) = self.places.get(key) {
            self.counters[at].count += weight;
            return;
        }
        let key: Box<[u8]> = key.into();
        if self.counters.len() < COUNTERS {
            self.places.insert(key.clone(), self.counters.len());
            self.counters.push(Count {
                key,
                count: weight,
                over: 0,
            });
            return;
        }
        let (at, least) = self
            .counters
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, count)| count.count)
            .expect("there are counters");
        self.places.remove(&least.key);
        self.places.insert(key.clone(), at);
        *least = Count {
            key,
            over: least.count,
            count: least.count + weight,
        };
    }
}

/// Keys with large requests or replies.
#[derive(Debug, Default)]
pub struct Largest {
    keys: Vec<Large>,
}

/// A key, and its largest request or reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Large {
    /// The key.
    pub key: Box<[u8]>,
    /// Bytes of the request or the reply.
    pub bytes: usize,
    /// The command's number.
    pub command: u16,
    /// It was a request.
    pub is_request: bool,
    /// Time: seconds since 1970.
    pub at_s: u64,
}

impl Largest {
    /// Adds a key; returns the bytes that the next one needs to be kept.
    pub fn add(&mut self, mut large: Large) -> usize {
        if large.key.len() > KEY_BYTES_MAX {
            large.key = large.key[..KEY_BYTES_MAX].into();
        }
        let is_same = |known: &&mut Large| known.key == large.key;
        if let Some(known) = self.keys.iter_mut().find(is_same) {
            if large.bytes >= known.bytes {
                *known = large;
            }
        } else if self.keys.len() < LARGEST {
            self.keys.push(large);
        } else {
            let least = self.keys.iter_mut().min_by_key(|known| known.bytes);
            if let Some(least) = least.filter(|least| least.bytes < large.bytes) {
                *least = large;
            }
        }
        match self.keys.len() < LARGEST {
            true => LARGE_BYTES_MIN,
            false => self.keys.iter().map(|large| large.bytes).min().unwrap_or(0) + 1,
        }
    }

    /// Returns all large keys.
    pub fn all(&self) -> &[Large] {
        &self.keys
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(frequent: &mut Frequent, now_ms: u64) -> HashMap<Box<[u8]>, Rate> {
        let mut rates = HashMap::new();
        frequent.rates(now_ms, &mut rates);
        rates
    }

    #[test]
    fn what_comes_often_is_found_among_many() {
        let mut frequent = Frequent::default();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            match random.u32(0..10) {
                0 => frequent.add(b"hot", 1, 1),
                _ => frequent.add(format!("k{}", random.u32(0..100_000)).as_bytes(), 1, 1),
            }
        }
        let rates = rates(&mut frequent, 1001);
        let hot = rates[&b"hot"[..]];
        assert!(
            rates
                .values()
                .all(|rate| *rate == hot || rate.per_second < hot.per_second)
        );
        assert!((1900.0..2500.0).contains(&hot.per_second), "{hot:?}");
        assert!(hot.least_per_second <= 2000.0 * 1.1, "{hot:?}");
        assert!(rates.len() <= COUNTERS);
    }

    #[test]
    fn what_was_hot_is_forgotten() {
        let mut frequent = Frequent::default();
        frequent.add(b"a", 1, 1000);
        assert_eq!(rates(&mut frequent, 1000 + SPAN_MS).len(), 1);
        frequent.add(b"b", 1, 1001 + SPAN_MS);
        assert_eq!(rates(&mut frequent, 1002 + SPAN_MS).len(), 2);
        assert_eq!(rates(&mut frequent, 2000 + 3 * SPAN_MS).len(), 1);
        assert_eq!(rates(&mut frequent, 2000 + 9 * SPAN_MS).len(), 0);
    }

    #[test]
    fn the_largest_stay() {
        let mut largest = Largest::default();
        let large = |number: usize, bytes| Large {
            key: number.to_string().into_bytes().into(),
            bytes,
            command: 0,
            is_request: true,
            at_s: 0,
        };
        for number in 0..LARGEST - 1 {
            assert_eq!(largest.add(large(number, 5000 + number)), LARGE_BYTES_MIN);
        }
        assert_eq!(largest.add(large(LARGEST, 9000)), 5001);
        assert_eq!(largest.add(large(1, 7000)), 5001);
        assert_eq!(largest.add(large(999, 10_000)), 5003);
        assert_eq!(largest.all().len(), LARGEST);
        largest.add(large(1, 100));
        assert!(largest.all().contains(&large(1, 7000)));
    }
}
