//! The functions of the operating system that allocators use: address ranges, huge pages, and return of memory. Knows
//! nothing else.

use std::ptr::NonNull;

/// Reserves up to `bytes` of addresses, aligned to a power of two of at least a page, that read as zeros and take no
/// memory until written. Reserves less where so much is not available: a quarter of the process's limit on addresses,
/// or half as often as needed. `None`: not even `align` bytes are available. The range lives as long as the process.
#[cfg(all(unix, not(miri)))]
pub fn reserve(bytes: usize, align: usize) -> Option<(NonNull<u8>, usize)> {
    let most = address_limit_bytes().map_or(bytes, |limit| bytes.min(limit / 4));
    let mut bytes = most.max(align).next_multiple_of(align);
    loop {
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes + align,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address != libc::MAP_FAILED {
            let address = address.cast::<u8>();
            // SAFETY: the mapping is `align` larger than the range.
            let aligned = unsafe { address.add(address.align_offset(align)) };
            return Some((NonNull::new(aligned)?, bytes));
        }
        if bytes / 2 < align {
            return None;
        }
        bytes = (bytes / 2).next_multiple_of(align);
    }
}

/// Replaces the above for Miri: a small zeroed allocation that is never freed.
#[cfg(any(not(unix), miri))]
pub fn reserve(bytes: usize, align: usize) -> Option<(NonNull<u8>, usize)> {
    let bytes = bytes.min(1 << 20).next_multiple_of(align);
    let layout = std::alloc::Layout::from_size_align(bytes, align).expect("a small size");
    // SAFETY: the size is not zero.
    let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
    Some((NonNull::new(pointer)?, bytes))
}

/// Returns the process's limit on addresses (`ulimit -v`), if there is one.
pub fn address_limit_bytes() -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call writes the given structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as usize)
}

/// Has the C library's own allocator serve all threads from one heap: else it takes 64 MiB of addresses for each thread that
/// allocates by it, more than a low limit on addresses leaves. To be called before threads are started.
pub fn share_c_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes two numbers, and sets a limit for heaps that are yet to be made.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Keeps the kernel from making huge pages in a range on its own; may be refused.
pub(crate) fn refuse_huge(address: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    advise(address, bytes, libc::MADV_NOHUGEPAGE);
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

/// Asks for huge pages in a range; may be refused.
pub fn advise_huge(address: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    advise(address, bytes, libc::MADV_HUGEPAGE);
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

/// Makes a range one huge page now, even if parts of it are not used; may be refused.
pub fn collapse(address: NonNull<u8>, bytes: usize) {
    /// Flag of Linux 6.1; the libc crate has it only for some targets.
    #[cfg(target_os = "linux")]
    const MADV_COLLAPSE: libc::c_int = 25;
    #[cfg(target_os = "linux")]
    advise(address, bytes, MADV_COLLAPSE);
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

/// Returns a range's memory to the system. On Linux it reads as zeros afterwards.
pub fn discard(address: NonNull<u8>, bytes: usize) {
    #[cfg(unix)]
    advise(address, bytes, libc::MADV_DONTNEED);
    #[cfg(not(unix))]
    let _ = (address, bytes);
}

#[cfg(all(unix, not(miri)))]
fn advise(address: NonNull<u8>, bytes: usize, advice: libc::c_int) {
    // SAFETY: callers pass pages of a range of ours, and `discard` only pages without objects.
    unsafe { libc::madvise(address.as_ptr().cast(), bytes, advice) };
}

#[cfg(all(unix, miri))]
fn advise(_: NonNull<u8>, _: usize, _: libc::c_int) {}
