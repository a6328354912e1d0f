//! Work that is left to a thread behind the commands: what is freed there, and how much of it may wait.
//!
//! Must not know: who does it.

use std::sync::atomic::{AtomicU64, Ordering};

use redline_keyspace::{Flushed, Garbage};

/// Work that is done behind the commands, on a thread of its own.
pub enum Chore {
    /// Drop a large value.
    Drop(Garbage),
    /// Free a flushed database.
    Free(Flushed),
    /// Give memory that is free back to the system, that of the chores before included.
    Purge,
    /// Nothing more will come.
    Stop,
}

/// How much a chore frees.
#[derive(Default)]
pub struct Size {
    /// Values.
    pub objects: u64,
    /// Bytes of a value.
    bytes: u64,
    /// Databases.
    databases: u64,
}

impl Chore {
    /// How much it frees.
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
            Chore::Purge | Chore::Stop => Size::default(),
        }
    }
}

/// Garbage that waits for the reaper. There is one for all workers, so they may be faster: then who makes more frees it.
#[derive(Default)]
pub struct Backlog {
    /// Values that it has yet to free.
    pub objects: AtomicU64,
    bytes: AtomicU64,
    databases: AtomicU64,
}

impl Backlog {
    /// Bytes of values that may wait, and one more.
    const BYTES_MAX: u64 = 64 << 20;
    /// Databases with few keys that may wait. Those with many take longer to fill than to free.
    const DATABASES_MAX: u64 = 16;
    const FEW_KEYS: u64 = 1024;

    /// May more be put into it?
    pub fn has_room_for(&self, chore: &Chore) -> bool {
        let within = |count: &AtomicU64, max| count.load(Ordering::Relaxed) <= max;
        match chore {
            Chore::Drop(_) => within(&self.bytes, Self::BYTES_MAX),
            Chore::Free(flushed) => {
                flushed.len() > Self::FEW_KEYS || within(&self.databases, Self::DATABASES_MAX)
            }
            Chore::Purge | Chore::Stop => true,
        }
    }

    pub(crate) fn add(&self, size: &Size) {
        self.objects.fetch_add(size.objects, Ordering::Relaxed);
        self.bytes.fetch_add(size.bytes, Ordering::Relaxed);
        self.databases.fetch_add(size.databases, Ordering::Relaxed);
    }

    /// A chore of this size is done.
    pub fn take_off(&self, size: &Size) {
        self.objects.fetch_sub(size.objects, Ordering::Relaxed);
        self.bytes.fetch_sub(size.bytes, Ordering::Relaxed);
        self.databases.fetch_sub(size.databases, Ordering::Relaxed);
    }
}
