//! What the arenas want of the operating system: address ranges, huge pages, and giving memory back. Knows nothing else.

use std::ptr::NonNull;

/// Reserves up to `bytes` of addresses, aligned, that read as zeros and take no memory until written. Where so much is
/// not to be had (a limit on address space) takes half as often as needed. The range lives as long as the process.
#[cfg(all(unix, not(miri)))]
pub(crate) fn reserve(bytes: usize, align: usize) -> (NonNull<u8>, usize) {
    let mut bytes = bytes.next_multiple_of(align);
    loop {
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches nothing that exists.
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
            return (NonNull::new(aligned).expect("mmap gives no null"), bytes);
        }
        assert!(
            bytes / 2 >= align,
            "no address space: {}",
            std::io::Error::last_os_error()
        );
        bytes = (bytes / 2).next_multiple_of(align);
    }
}

/// Miri's stand-in: a small zeroed allocation that is never freed.
#[cfg(any(not(unix), miri))]
pub(crate) fn reserve(bytes: usize, align: usize) -> (NonNull<u8>, usize) {
    let bytes = bytes.min(1 << 20).next_multiple_of(align);
    let layout = std::alloc::Layout::from_size_align(bytes, align).expect("a small size");
    // SAFETY: the size is not zero.
    let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
    (NonNull::new(pointer).expect("1 MiB"), bytes)
}

/// Asks for huge pages in a range; may be refused.
pub(crate) fn advise_huge(address: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    advise(address, bytes, libc::MADV_HUGEPAGE);
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

/// Makes a range one huge page now, whatever of it is used; may be refused.
pub(crate) fn collapse(address: NonNull<u8>, bytes: usize) {
    /// Linux 6.1; the libc crate knows it only for some targets.
    #[cfg(target_os = "linux")]
    const MADV_COLLAPSE: libc::c_int = 25;
    #[cfg(target_os = "linux")]
    advise(address, bytes, MADV_COLLAPSE);
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

/// Gives a range's memory back. On Linux it reads as zeros afterwards.
pub(crate) fn discard(address: NonNull<u8>, bytes: usize) {
    #[cfg(unix)]
    advise(address, bytes, libc::MADV_DONTNEED);
    #[cfg(not(unix))]
    let _ = (address, bytes);
}

#[cfg(all(unix, not(miri)))]
fn advise(address: NonNull<u8>, bytes: usize, advice: libc::c_int) {
    // SAFETY: callers pass whole segments of a range of ours, and `discard` only where nobody has an object.
    unsafe { libc::madvise(address.as_ptr().cast(), bytes, advice) };
}

#[cfg(all(unix, miri))]
fn advise(_: NonNull<u8>, _: usize, _: libc::c_int) {}

/// Starts to load the cache line at an address. Any address will do: a prefetch never faults.
#[inline(always)]
pub fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it reads nothing as far as the program can tell, and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
