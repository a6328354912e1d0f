//! Work that is left to a background thread: the memory that is freed there, and how much of it may wait.
//!
//! Must not know: the thread that does it.

use std::sync::atomic::{AtomicU64, Ordering};

use redline_keyspace::{Flushed, Garbage};

/// Work that is done in the background, on a thread of its own.
pub enum Chore {
    /// Drop a large value.
    Drop(Garbage),
    /// Free a flushed database.
    Free(Flushed),
    /// Return free memory to the system, including that of earlier chores.
    Purge,
    /// Look after the keyspace's memory, see [`redline_table::heap::maintain`]: a huge page takes the kernel from 1 to 40 ms.
    Maintain,
    /// End the thread: nothing follows.
    Stop,
}

/// Amount of memory that a chore frees.
#[derive(Default)]
pub struct Size {
    /// Number of values.
    pub objects: u64,
    /// Bytes of a value.
    bytes: u64,
    /// Number of databases.
    databases: u64,
}

impl Chore {
    /// Returns the amount that the chore frees.
    pub fn size(&self) -> Size {
        match self {
            Chore::Drop(garbage) => Size {
                objects: 1,
                bytes: garbage.heap_bytes() as u64,
                databases: 0,
            },
            Chore::Free(flushed) => Size {
                objects: flushed.len(),
                bytes: 0,
                databases: 1,
            },
            Chore::Purge | Chore::Maintain | Chore::Stop => Size::default(),
        }
    }
}

/// Garbage that waits for the reaper. There is one for all workers, so they may be faster: then each frees its own.
#[derive(Default)]
pub struct Backlog {
    /// Number of values that it has yet to free.
    pub objects: AtomicU64,
    bytes: AtomicU64,
    databases: AtomicU64,
}

impl Backlog {
    /// Limit on the bytes of values that wait; one more value may exceed it.
    const BYTES_MAX: u64 = 64 << 20;
    /// Number of databases with few keys that may wait. Those with many take longer to fill than to free.
    const DATABASES_MAX: u64 = 16;
    const FEW_KEYS: u64 = 1024;

    /// Returns true if the chore may be added.
    pub fn has_room_for(&self, chore: &Chore) -> bool {
        let within = |count: &AtomicU64, max| count.load(Ordering::Relaxed) <= max;
        match chore {
            Chore::Drop(_) => within(&self.bytes, Self::BYTES_MAX),
            Chore::Free(flushed) => {
                flushed.len() > Self::FEW_KEYS || within(&self.databases, Self::DATABASES_MAX)
            }
            Chore::Purge | Chore::Maintain | Chore::Stop => true,
        }
    }

    pub(crate) fn add(&self, size: &Size) {
        self.objects.fetch_add(size.objects, Ordering::Relaxed);
        self.bytes.fetch_add(size.bytes, Ordering::Relaxed);
        self.databases.fetch_add(size.databases, Ordering::Relaxed);
    }

    /// Removes a chore of this size, which is done.
    pub fn take_off(&self, size: &Size) {
        self.objects.fetch_sub(size.objects, Ordering::Relaxed);
        self.bytes.fetch_sub(size.bytes, Ordering::Relaxed);
        self.databases.fetch_sub(size.databases, Ordering::Relaxed);
    }
}
