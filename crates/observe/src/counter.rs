//! A counter that one thread writes and any thread may read. Must not know what is counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer: adding costs no atomic read-modify-write.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning worker may.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(more),
            Ordering::Relaxed,
        );
    }

    /// Returns the current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Overwrites; only the owning worker may, and CONFIG RESETSTAT.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}
