//! The interpreter's heap: its limit, and when garbage is collected. Must not know scripts.
//!
//! The interpreter does not collect when an allocation is refused, it raises an error. So small allocations may use a
//! reserve, and the hook, which comes with the next instruction then, collects; only if that does not help is there an
//! error. A large allocation that does not fit is refused at once.
//!
//! Memory comes from the program's allocator. The interpreter's own one would keep what its largest script has needed.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ffi::{CStr, c_void};
use std::ptr;

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::Machine;
use super::watch::bring_forward;

/// Bytes allocated after which the clock is read regardless of instructions.
const ALLOCATED_PER_LOOK: usize = 1 << 20;

/// Heap size at which garbage is collected after a script, if it is not yet twice what the last collection left.
const COLLECT_BYTES_MIN: usize = 4 << 20;

/// Steps of the collector in one call of [`collect_some`], 2 KiB of work each: a fraction of a millisecond.
const STEPS_MAX: usize = 100;
/// Cycles until all garbage of a script is found: one may have begun before it was garbage.
const CYCLES: u8 = 2;

/// One part in so many of the memory is kept for small allocations, so that a script at its limit gets as far as the next
/// instruction, where garbage can be collected.
const RESERVE_SHARE: usize = 8;

/// The interpreter's message.
pub(super) const NOT_ENOUGH_MEMORY: &CStr = c"not enough memory";

/// Largest size of a small allocation: bytes.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// The interpreter's heap.
pub(super) struct Memory {
    state: *mut lua_State,
    used: usize,
    max: usize,
    since_look: usize,
    /// Set if only the reserve is left.
    is_pressed: bool,
    /// A collection allocates a little in order to free much, and must not fail.
    is_collecting: bool,
    /// Size from which on garbage is collected: while a script runs, and after it.
    collect_at: usize,
    collect_idle_at: usize,
    /// A script has run since the last [`collect_some`].
    has_run: bool,
    /// Cycles of the collector that are still worth their time.
    cycles_left: u8,
}

impl Memory {
    /// Makes the heap of a new state.
    ///
    /// # Safety
    /// `state` is live.
    pub(super) unsafe fn new(state: *mut lua_State, max: usize) -> Memory {
        Memory {
            state,
            // SAFETY: as promised by the caller.
            used: unsafe { heap_bytes(state) },
            max,
            since_look: 0,
            is_pressed: false,
            is_collecting: false,
            collect_at: usize::MAX,
            collect_idle_at: COLLECT_BYTES_MIN,
            has_run: false,
            cycles_left: 0,
        }
    }

    /// Returns the number of bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Starts a new count of bytes that lead to a read of the clock.
    pub(super) fn looked(&mut self) {
        self.since_look = 0;
    }

    /// Returns true if garbage has to be collected now.
    pub(super) fn is_short(&self) -> bool {
        self.is_pressed || self.used > self.collect_at
    }

    /// Returns true if more is in use than may be, after a collection.
    pub(super) fn is_exhausted(&self) -> bool {
        self.used > self.max_before_reserve()
    }

    /// Returns the number of bytes that may still be allocated.
    pub(super) fn free(&self) -> usize {
        self.max.saturating_sub(self.used)
    }

    /// Returns the number of bytes that may be used before the reserve.
    fn max_before_reserve(&self) -> usize {
        self.max - self.max / RESERVE_SHARE
    }

    /// Returns true if `more` bytes may be allocated. If that takes from the reserve, the next instruction has to collect.
    fn admit(&mut self, more: usize) -> bool {
        if self.is_collecting {
            return true;
        }
        if more > self.free() {
            self.is_pressed = true;
            return false;
        }
        if self.used + more > self.max_before_reserve() {
            self.is_pressed = true;
            return more <= SMALL_BYTES_MAX;
        }
        true
    }

    /// Schedules the next collection for the time when half of the free memory has been used. The interpreter's own
    /// plan, to start when the heap has doubled, would be too late.
    fn plan_collection(&mut self) {
        self.is_pressed = false;
        let free = self.max_before_reserve().saturating_sub(self.used);
        self.collect_at = self.used + (free / 2).max(ALLOCATED_PER_LOOK);
    }
}

/// Makes a state without a limit, or none if there is no memory for it.
pub(super) fn new_state() -> *mut lua_State {
    // SAFETY: the function is an allocator as the interpreter wants it, and needs no data.
    unsafe { ffi::lua_newstate(allocate_any, ptr::null_mut()) }
}

/// Replaces [`allocate_any`] by [`allocate`], which keeps the limit.
///
/// # Safety
/// `state` comes from [`new_state`]; `machine` lives as long as it, or until [`give_back`].
pub(super) unsafe fn take_over(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller.
    unsafe { ffi::lua_setallocf(state, allocate, machine.cast()) };
}

/// Undoes [`take_over`].
///
/// # Safety
/// `state` is live.
pub(super) unsafe fn give_back(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe { ffi::lua_setallocf(state, allocate_any, ptr::null_mut()) };
}

/// Collects a little of the garbage that scripts have left, if none has run since the last call.
///
/// # Safety
/// `machine` is that of `state`, and no script runs.
pub(super) unsafe fn collect_some(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller. No allocation is refused, as in `collect`.
    unsafe {
        let memory = &mut (*machine).memory;
        if std::mem::take(&mut memory.has_run) || memory.cycles_left == 0 {
            return;
        }
        memory.is_collecting = true;
        for _ in 0..STEPS_MAX {
            if ffi::lua_gc(state, ffi::LUA_GCSTEP, 0) != 0 {
                (*machine).memory.cycles_left -= 1;
                break;
            }
        }
        (*machine).memory.is_collecting = false;
    }
}

/// Collects garbage after a script that has left much.
///
/// # Safety
/// `machine` is that of `state`.
pub(super) unsafe fn collect_if_idle(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller.
    unsafe {
        (*machine).memory.has_run = true;
        (*machine).memory.cycles_left = CYCLES;
        if (*machine).memory.used > (*machine).memory.collect_idle_at {
            collect(state, machine);
            let used = (*machine).memory.used;
            (*machine).memory.collect_idle_at = COLLECT_BYTES_MIN.max(2 * used);
        }
    }
}

/// Collects all garbage.
///
/// # Safety
/// `machine` is that of `state`.
pub(super) unsafe fn collect(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller. Meanwhile no allocation is refused, so that nothing is raised; there are no
    // finalizers.
    unsafe {
        (*machine).memory.is_collecting = true;
        ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0);
        (*machine).memory.is_collecting = false;
        (*machine).memory.plan_collection();
    }
}

/// Allocates for a state without a limit.
///
/// # Safety
/// Called by the interpreter: `block` is null or came from here with `old` bytes.
unsafe extern "C" fn allocate_any(
    _: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    /// The interpreter's objects have doubles and pointers in them.
    const ALIGN: usize = 8;
    // SAFETY: sizes of what the interpreter asks for are below `isize::MAX`, for it checks them against its own bound; the
    // block is as the caller promises, and no size is zero where the allocator is asked.
    unsafe {
        let layout = |bytes| Layout::from_size_align_unchecked(bytes, ALIGN);
        let block = block.cast::<u8>();
        let moved = match (block.is_null(), new) {
            (true, 0) => ptr::null_mut(),
            (true, new) => alloc(layout(new)),
            (false, 0) => {
                dealloc(block, layout(old));
                ptr::null_mut()
            }
            (false, new) => realloc(block, layout(old), new),
        };
        moved.cast()
    }
}

/// Allocates for an interpreter: as for a state without a limit, behind a limit. It also brings the hook forward after
/// much allocation, since one instruction can allocate much.
///
/// # Safety
/// Called by the interpreter, with the machine as `data`.
unsafe extern "C" fn allocate(
    data: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: no other code has a borrow of `memory` while Lua is called, and only Lua calls this.
    unsafe {
        let memory = &mut (*data.cast::<Machine>()).memory;
        let old = if block.is_null() { 0 } else { old };
        let is_admitted = new <= old || memory.admit(new - old);
        let moved = match is_admitted {
            true => allocate_any(ptr::null_mut(), block, old, new),
            false => ptr::null_mut(),
        };
        if new == 0 || !moved.is_null() {
            memory.used = memory.used + new - old;
            memory.since_look += new;
        }
        if memory.since_look > ALLOCATED_PER_LOOK || memory.is_pressed {
            memory.since_look = 0;
            bring_forward(memory.state);
        }
        moved
    }
}

/// # Safety
/// `state` is a live state.
unsafe fn heap_bytes(state: *mut lua_State) -> usize {
    // SAFETY: as promised by the caller.
    let (kib, rest) = unsafe {
        (
            ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0),
            ffi::lua_gc(state, ffi::LUA_GCCOUNTB, 0),
        )
    };
    ((kib as usize) << 10) + rest as usize
}
