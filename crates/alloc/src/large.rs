//! Blocks above 16 KiB: runs of pages of one range of addresses that is reserved once. Knows no threads, and no purpose
//! of the memory.
//!
//! A block's size gives its number of pages, so no header is stored beside it. One mutex guards the table of pages: it
//! is held for some 50 ns, where filling the smallest such block takes a microsecond; it is not held while the system
//! takes pages back.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::os;
use crate::runs::{Mark, Run, Runs};

/// Bytes of a page. Where the system's pages are larger, free ones are returned only where they fill one of those.
pub const PAGE_BYTES: usize = 4096;
/// Largest size of the reserved range.
const RANGE_BYTES: usize = if cfg!(miri) { 1 << 20 } else { 1 << 40 };
/// Number of pages that are returned to the system in one call.
const PIECE_PAGES: u32 = (4 << 20) / PAGE_BYTES as u32;

/// The reserved range.
struct Range {
    base: NonNull<u8>,
    bytes: usize,
    runs: Mutex<Runs>,
}

// SAFETY: `base` is an address that never changes; the memory behind it is allocated run by run.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

static RANGE: OnceLock<Option<Range>> = OnceLock::new();

impl Range {
    /// Reserves the range and the table of its pages; halves the size while there are too few addresses.
    fn reserve() -> Option<Range> {
        let (base, bytes) = os::reserve(RANGE_BYTES, PAGE_BYTES)?;
        let pages = bytes / PAGE_BYTES;
        let (table, table_bytes) = os::reserve(pages * size_of::<Mark>(), PAGE_BYTES)?;
        os::refuse_huge(base, bytes);
        // SAFETY: the table is zeroed memory of that many marks, aligned to a page, never unmapped and used for nothing
        // else; all zero is a valid `Mark`.
        let marks = unsafe {
            std::slice::from_raw_parts_mut(
                table.as_ptr().cast::<Mark>(),
                pages.min(table_bytes / size_of::<Mark>()),
            )
        };
        Some(Range {
            base,
            bytes,
            runs: Mutex::new(Runs::new(marks)),
        })
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self, run: Run) -> NonNull<u8> {
        // SAFETY: runs lie inside the range.
        unsafe { self.base.add(run.first as usize * PAGE_BYTES) }
    }

    fn run(&self, block: NonNull<u8>, bytes: usize) -> Run {
        let offset = block.addr().get() - self.base.addr().get();
        Run {
            first: (offset / PAGE_BYTES) as u32,
            pages: pages(bytes),
        }
    }
}

/// Returns the range, which is reserved by the first call. `None`: there are no addresses for it.
fn range() -> Option<&'static Range> {
    RANGE.get_or_init(Range::reserve).as_ref()
}

fn pages(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX)
}

/// Takes a block of `bytes` bytes (at least 1), aligned to a page; also returns true if it reads as zeros. `None`: the
/// range has no room for it.
pub fn take(bytes: usize) -> Option<(NonNull<u8>, bool)> {
    let range = range()?;
    let (run, clean) = range.runs().take(pages(bytes))?;
    Some((range.address(run), clean))
}

/// Returns the block at an address, if it is in the range.
pub(crate) fn own(address: *mut u8) -> Option<NonNull<u8>> {
    let range = RANGE.get()?.as_ref()?;
    let inside = address.addr().wrapping_sub(range.base.addr().get()) < range.bytes;
    inside.then(|| crate::block(address))
}

/// Frees a block.
///
/// # Safety
/// It came from [`take`] or [`resize`] with this size, and is not used any more.
pub(crate) unsafe fn give_back(block: NonNull<u8>, bytes: usize) {
    if let Some(range) = range() {
        let run = range.run(block, bytes);
        range.runs().give_back(run);
    }
}

/// Changes a block's size in place, if that is possible. Additional bytes are not initialised.
///
/// # Safety
/// The block came from [`take`] or `resize` with the size `before`, and the bytes beyond `after` are not used.
pub(crate) unsafe fn resize(block: NonNull<u8>, before: usize, after: usize) -> bool {
    let Some(range) = range() else { return false };
    let (run, wanted) = (range.run(block, before), pages(after));
    if wanted == run.pages {
        return true;
    }
    let mut runs = range.runs();
    if wanted > run.pages {
        return runs.extend(run, wanted - run.pages);
    }
    runs.give_back(Run {
        first: run.first + wanted,
        pages: run.pages - wanted,
    });
    true
}

/// Counts one tick, and returns to the system the runs that have been free for `ticks` ticks.
pub(crate) fn give_to_system(ticks: u32) {
    let Some(Some(range)) = RANGE.get() else {
        return;
    };
    range.runs().tick();
    loop {
        let Some(run) = range.runs().expired(ticks) else {
            return;
        };
        let mut rest = run;
        while rest.pages > 0 {
            let piece = Run {
                pages: rest.pages.min(PIECE_PAGES),
                ..rest
            };
            os::discard(range.address(piece), piece.pages as usize * PAGE_BYTES);
            rest.first += piece.pages;
            rest.pages -= piece.pages;
        }
        range.runs().cleaned(run);
    }
}

/// Figures of the large blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes in use by blocks, in whole pages.
    pub live_bytes: usize,
    /// Bytes that are free and have not been returned to the system yet.
    pub free_bytes: usize,
}

/// Returns the present figures.
pub fn stats() -> Stats {
    let Some(Some(range)) = RANGE.get() else {
        return Stats::default();
    };
    let runs = range.runs();
    Stats {
        live_bytes: runs.live_pages() as usize * PAGE_BYTES,
        free_bytes: runs.dirty_pages() as usize * PAGE_BYTES,
    }
}
