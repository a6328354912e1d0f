//! Deadlines of one loop: the next one, those that have come due, and cancellation.
//!
//! It must not know a clock; time comes in as milliseconds of whichever clock the owner chose.

use std::collections::BTreeMap;

/// Deadlines in order, each with a key that says what it is for.
///
/// An ordered map from deadline and sequence number to key: insertion, cancellation and the next deadline cost a walk
/// of a few nodes, deadlines of the same millisecond fire in the order in which they were set, and cancelled ones
/// leave nothing behind (a heap would keep them until their time, which a BLPOP with a long time-out that is served at
/// once, over and over, would turn into a leak).
#[derive(Debug)]
pub struct Timers<K> {
    deadlines: BTreeMap<TimerId, K>,
    sequence: u64,
}

/// Names a deadline that was set, to cancel it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    deadline_ms: u64,
    sequence: u64,
}

impl<K> Timers<K> {
    /// Makes an empty set of deadlines.
    pub fn new() -> Self {
        Timers {
            deadlines: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Sets a deadline.
    pub fn insert(&mut self, deadline_ms: u64, key: K) -> TimerId {
        self.sequence += 1;
        let id = TimerId {
            deadline_ms,
            sequence: self.sequence,
        };
        self.deadlines.insert(id, key);
        id
    }

    /// Cancels a deadline. `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<K> {
        self.deadlines.remove(&id)
    }

    /// Returns the earliest deadline.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines
            .first_key_value()
            .map(|(id, _)| id.deadline_ms)
    }

    /// Removes and returns the earliest deadline if its time has come. Call until `None`.
    pub fn pop_expired(&mut self, now_ms: u64) -> Option<K> {
        let first = self.deadlines.first_entry()?;
        (first.key().deadline_ms <= now_ms).then(|| first.remove())
    }

    /// Returns the number of deadlines that are set.
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Returns true if no deadline is set.
    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_only_when_due() {
        let mut timers = Timers::new();
        timers.insert(30, 'c');
        timers.insert(10, 'a');
        timers.insert(20, 'b');
        assert_eq!(timers.next_deadline_ms(), Some(10));
        assert_eq!(timers.pop_expired(9), None);
        assert_eq!(timers.pop_expired(20), Some('a'));
        assert_eq!(timers.pop_expired(20), Some('b'));
        assert_eq!(timers.pop_expired(20), None);
        assert_eq!(timers.next_deadline_ms(), Some(30));
    }

    #[test]
    fn equal_deadlines_fire_in_the_order_in_which_they_were_set() {
        let mut timers = Timers::new();
        for key in 0..100 {
            timers.insert(5, key);
        }
        let fired: Vec<i32> = std::iter::from_fn(|| timers.pop_expired(5)).collect();
        assert_eq!(fired, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_cancelled_deadline_neither_fires_nor_stays() {
        let mut timers = Timers::new();
        let first = timers.insert(1, 'x');
        timers.insert(2, 'y');
        assert_eq!(timers.cancel(first), Some('x'));
        assert_eq!(timers.cancel(first), None);
        assert_eq!(timers.next_deadline_ms(), Some(2));
        assert_eq!(timers.pop_expired(u64::MAX), Some('y'));
        assert!(timers.is_empty());
    }
}
