//! The allocator of the program, and the return of free memory to the operating system. Knows no keys, clients or
//! threads of the program.
//!
//! Blocks of up to 16 KiB come from mimalloc. Larger ones are runs of whole pages of one reserved range (see
//! [`large`]): an allocator with size classes keeps the pages of a class for that class, so a cache whose sizes of
//! values change ends up with up to 2.4 times the bytes that it stores; whole pages serve any size. Memory that has
//! been free for about a second is returned to the system, by a thread of this crate that [`start`] creates.
//!
//! Entries and tables of the keyspace have arenas of their own (crate `table`), which share [`os`] with this one.

pub mod large;
pub mod os;
mod runs;

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use mimalloc::MiMalloc;

/// Blocks above this size are runs of pages.
const SMALL_BYTES_MAX: usize = 16 << 10;
/// Time between two searches for memory to return.
const TICK: Duration = Duration::from_millis(250);
/// Number of ticks after which a freed run is returned: memory that is reused at once costs no page faults.
const FREE_TICKS: u32 = 4;

/// The global allocator.
pub struct Allocator;

/// Returns true if a block with this layout is a run of pages.
#[inline(always)]
fn is_large(layout: Layout) -> bool {
    layout.size() > SMALL_BYTES_MAX && layout.align() <= large::PAGE_BYTES
}

// SAFETY: mimalloc is a global allocator, and `large` keeps the same promises for its part (see there). A block's
// layout and address tell which of the two it came from, so both free only their own blocks.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout)
            && let Some((block, _)) = large::take(layout.size())
        {
            return block.as_ptr();
        }
        // SAFETY: the caller's promise is that of the same function.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout)
            && let Some((block, clean)) = large::take(layout.size())
        {
            if !clean {
                // SAFETY: the block has at least so many bytes and is owned by this call.
                unsafe { block.as_ptr().write_bytes(0, layout.size()) };
            }
            return block.as_ptr();
        }
        // SAFETY: the caller's promise is that of the same function.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller vouches for block and layout; blocks in the range of `large` came from there.
        unsafe {
            if is_large(layout)
                && let Some(block) = large::own(block)
            {
                return large::give_back(block, layout.size());
            }
            MiMalloc.dealloc(block, layout);
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let after = (bytes, layout.align());
        // SAFETY: the caller vouches that `bytes`, rounded up to the alignment, does not overflow `isize`.
        let after = unsafe { Layout::from_size_align_unchecked(after.0, after.1) };
        if !is_large(layout) && !is_large(after) {
            // SAFETY: the caller's promise is that of the same function.
            return unsafe { MiMalloc.realloc(block, layout, bytes) };
        }
        // SAFETY: the caller vouches for block and layout.
        unsafe { self.move_or_resize(block, layout, after) }
    }
}

impl Allocator {
    /// Changes a block's size if the old or the new one is a run of pages.
    ///
    /// # Safety
    /// As `GlobalAlloc::realloc`; `after` is the new layout.
    unsafe fn move_or_resize(&self, block: *mut u8, layout: Layout, after: Layout) -> *mut u8 {
        // SAFETY: the caller vouches for block and layout; the copy is of bytes that both blocks have; a block in the
        // range of `large` came from there with this size.
        unsafe {
            if is_large(layout)
                && is_large(after)
                && let Some(block) = large::own(block)
                && large::resize(block, layout.size(), after.size())
            {
                return block.as_ptr();
            }
            let new = self.alloc(after);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(after.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// Runs before the first allocation: see [`spare_addresses`].
#[cfg(all(target_os = "linux", not(miri)))]
#[used]
// SAFETY: the loader calls what is in this section once, on the only thread; the function allocates nothing.
#[unsafe(link_section = ".init_array")]
static AT_LOADING: extern "C" fn() = spare_addresses;

/// Has mimalloc take addresses as it needs them where the process has a limit on them. It would reserve a GiB with its first
/// block otherwise, and leave too few for the ranges and the stacks of threads.
#[cfg(all(target_os = "linux", not(miri)))]
extern "C" fn spare_addresses() {
    /// The option `arena_reserve`; the crate has a name for some options only.
    const ARENA_RESERVE: libmimalloc_sys::mi_option_t = 23;
    if os::address_limit_bytes().is_some() {
        // SAFETY: an option may be set at any time before it is used; the call only writes the option's value.
        unsafe { libmimalloc_sys::mi_option_set(ARENA_RESERVE, 0) };
    }
}

/// Starts the thread that returns memory to the system. Further calls do nothing.
///
/// # Errors
/// Those of starting a thread.
pub fn start() -> std::io::Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    let thread = std::thread::Builder::new().name("memory".into());
    thread.stack_size(64 << 10).spawn(|| {
        loop {
            std::thread::sleep(TICK);
            large::give_to_system(FREE_TICKS);
            collect(false);
        }
    })?;
    Ok(())
}

/// Returns all free memory to the system now, as far as this thread can: blocks of up to 16 KiB that other threads
/// freed wait for the thread that allocated them, which has to call this, too.
pub fn purge() {
    large::give_to_system(0);
    collect(true);
}

/// Makes mimalloc collect this thread's free blocks, and return memory that has been free for a second (`now`: all).
pub fn collect(now: bool) {
    // SAFETY: may be called at any time; it reads data of this thread, and shared data under its locks.
    unsafe { libmimalloc_sys::mi_collect(now) };
}

/// Returns the address of a block.
fn block(address: *mut u8) -> NonNull<u8> {
    NonNull::new(address).expect("a block is not null")
}
