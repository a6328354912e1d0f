//! Memory for keyspace entries, and the compaction that gives memory back after many entries were removed. Must not
//! know the contents of entries, only sizes and addresses.
//!
//! General allocators round to 16 bytes (48 for an entry of 40), too much for the memory targets; here classes are
//! exact to 8 bytes up to 1 KiB and to 3 % above. The hot path takes no lock and no atomic: see `magazine.rs`. Because
//! entries are allocated, moved and freed under their owner's locks, the heap can be asked to empty its sparsest
//! segments: see [`Compaction`].

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::arena::{Arena, OBJECT_BYTES_MAX, class_bytes, class_of};
use crate::index::TABLES;
use crate::magazine::{Magazines, evacuation_turned};

/// Entries of all keyspaces: 1 TiB of addresses.
static ENTRIES: Arena = Arena::new(1 << 40);
/// Bytes in objects above [`CLASS_BYTES_MAX`], which come from the global allocator.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);
static COMPACTION_RUNS: AtomicBool = AtomicBool::new(false);

/// Objects up to this size (a value of 16 KiB, its key and header) have size classes.
pub const CLASS_BYTES_MAX: usize = if cfg!(miri) {
    OBJECT_BYTES_MAX
} else {
    20 << 10
};
const CLASSES: usize = class_of(CLASS_BYTES_MAX) + 1;

/// Bytes of a batch between a thread's magazine and the arena, about.
const BATCH_BYTES: usize = 8 << 10;

/// A thread's access to the process-wide entry allocator: it keeps some free objects of each size at hand, and gives
/// them back when it is dropped. Objects may be freed through any thread's `Heap`.
pub struct Heap(Magazines<CLASSES>);

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

impl Heap {
    /// Makes an empty handle; the first allocations fill it.
    pub fn new() -> Heap {
        Heap(Magazines::new(&ENTRIES, BATCH_BYTES))
    }

    /// Allocates at least `bytes`, aligned to 8, not initialised. Ends the process when there is no memory.
    #[inline]
    pub fn alloc(&mut self, bytes: usize) -> NonNull<u8> {
        if bytes.wrapping_sub(1) >= CLASS_BYTES_MAX {
            return alloc_large(bytes);
        }
        self.0.take(class_of(bytes))
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// `ptr` came from [`Heap::alloc`] (of any thread's heap) with the same `bytes` or others of the same
    /// [`Heap::size_class`], has not been freed since, and is not used any more.
    #[inline]
    pub unsafe fn free(&mut self, ptr: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller vouches that `ptr` came from `alloc`, which chose by the same comparison.
        unsafe {
            if bytes.wrapping_sub(1) >= CLASS_BYTES_MAX {
                return free_large(ptr, bytes);
            }
            self.0.give_back(class_of(bytes), ptr);
        }
    }

    /// Returns how many bytes [`Heap::alloc`] really takes for `bytes`; an object may grow in place up to that.
    #[inline]
    pub const fn size_class(bytes: usize) -> usize {
        if bytes.wrapping_sub(1) >= CLASS_BYTES_MAX {
            return large_bytes(bytes);
        }
        class_bytes(class_of(bytes))
    }

    /// Releases cached objects that a compaction waits for; called once per turn of the thread's loop. Two relaxed
    /// loads when there is nothing to do.
    #[inline]
    pub fn tick(&mut self) {
        self.0.tick();
        crate::index::tick();
    }

    /// Gives every cached object back to the process, and what the thread has cached of the tables' memory.
    pub fn flush(&mut self) {
        self.0.flush();
        crate::index::flush();
    }
}

const fn large_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        8
    } else {
        bytes.next_multiple_of(16)
    }
}

fn large_layout(bytes: usize) -> Layout {
    Layout::from_size_align(large_bytes(bytes), 8).expect("an allocation below isize::MAX bytes")
}

#[cold]
fn alloc_large(bytes: usize) -> NonNull<u8> {
    let layout = large_layout(bytes);
    LARGE_BYTES.fetch_add(layout.size(), Relaxed);
    // SAFETY: the layout's size is at least 8.
    NonNull::new(unsafe { std::alloc::alloc(layout) })
        .unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// # Safety
/// As [`Heap::free`].
#[cold]
unsafe fn free_large(ptr: NonNull<u8>, bytes: usize) {
    let layout = large_layout(bytes);
    LARGE_BYTES.fetch_sub(layout.size(), Relaxed);
    // SAFETY: the caller vouches that `ptr` came from `alloc_large` with this layout.
    unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) }
}

/// Reserves the addresses of entries and of tables, if they are not yet, and returns the bytes of the smaller range: the
/// most that a process may keep of either. It is less than a TiB where the process has a limit on addresses.
pub fn reserve_addresses() -> usize {
    ENTRIES.reserved_bytes().min(TABLES.reserved_bytes())
}

/// Figures of the whole process, each kept up to date: reading them costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes in objects that are allocated, those waiting in threads' [`Heap`]s included.
    pub live_bytes: usize,
    /// Bytes held from the operating system.
    pub mapped_bytes: usize,
}

/// Returns the current figures of the entries.
pub fn stats() -> Stats {
    let large = LARGE_BYTES.load(Relaxed);
    Stats {
        live_bytes: ENTRIES.live_bytes() + large,
        mapped_bytes: ENTRIES.mapped_bytes() + large,
    }
}

/// Returns the current figures of the tables' memory ([`crate::Index`], [`crate::Dict`]).
pub fn table_stats() -> Stats {
    Stats {
        live_bytes: TABLES.live_bytes(),
        mapped_bytes: TABLES.mapped_bytes(),
    }
}

/// Does work for a quiet moment, about ten times a second: gives back memory kept for allocations that did not come,
/// and makes huge pages of at most `segments_max` (for each of the two arenas) segments that filled up on small ones:
/// from 1 to 40 ms each, in which faults of other threads in the same pages wait. So no worker calls it.
pub fn maintain(segments_max: usize) {
    ENTRIES.maintain(segments_max);
    TABLES.maintain(segments_max);
}

/// Returns true if a running [`Compaction`] wants the object at `ptr` moved. Cheap: a range check and one load.
#[inline]
pub fn is_evacuating(ptr: NonNull<u8>) -> bool {
    ENTRIES.is_evacuating(ptr.addr().get())
}

/// A running compaction. It has marked the sparsest segments as evacuating: nothing is allocated there any more.
///
/// The owner of the entries walks all its slots, under their locks, and for each entry for which [`is_evacuating`] is
/// true allocates anew, copies, replaces the pointer and frees the old one; and calls [`crate::Index::compact`] for
/// each table. Every thread with a [`Heap`] calls [`Heap::tick`] now and then, the walking one after `begin`. A segment
/// goes back to the operating system with its last object. Dropping the compaction ends the marking.
pub struct Compaction {
    entries: Vec<u32>,
    tables: Vec<u32>,
}

impl Compaction {
    /// Starts a compaction if it could win so much (a quarter of the memory and at least 8 MiB) that the walk is worth
    /// it, and if the last one did not win too little. At most one runs at a time. Cheap if it does not start one.
    pub fn begin() -> Option<Compaction> {
        if COMPACTION_RUNS.swap(true, Relaxed) {
            return None;
        }
        let entries = ENTRIES.begin_evacuation();
        let tables = TABLES.begin_evacuation();
        if entries.is_empty() && tables.is_empty() {
            COMPACTION_RUNS.store(false, Relaxed);
            return None;
        }
        evacuation_turned();
        Some(Compaction { entries, tables })
    }

    /// Returns the number of segments (of 2 MiB) that are still to be emptied; at 0 the walk may end early.
    pub fn segments_left(&self) -> usize {
        ENTRIES.evacuating(&self.entries) + TABLES.evacuating(&self.tables)
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        ENTRIES.end_evacuation(&self.entries);
        TABLES.end_evacuation(&self.tables);
        evacuation_turned();
        COMPACTION_RUNS.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests;
