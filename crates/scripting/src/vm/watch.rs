//! The watch over a script that runs: every so often the clock is read, and the server gets its turn. Must not know the
//! server's use of it.
//!
//! The interpreter calls a hook every so many instructions, and an instruction may take anything from a nanosecond to a
//! tenth of a second. So the number is adapted to the time that the last run of instructions took, and much allocation,
//! many commands and the pattern matcher lead to a read of the clock as well.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::memory::{NOT_ENOUGH_MEMORY, collect};
use super::{Machine, machine, unpanicking};
use crate::env::Tick;

/// Interval at which the server gets its turn while a script runs.
const TICK_INTERVAL: Duration = Duration::from_millis(1);

/// Instructions between two reads of the clock: where a script starts, and the bounds between which it is adapted to
/// how long such a run of instructions takes. One instruction can be a long `string.rep`.
const INSTRUCTIONS_PER_LOOK: c_int = 100;
const INSTRUCTIONS_PER_LOOK_MAX: c_int = 6_400;

/// Calls of `redis.call` between two reads of the clock.
const CALLS_PER_LOOK: u32 = 16;

/// State of the watch over a script that runs.
#[derive(Debug)]
pub(super) struct Watch {
    is_killed: bool,
    /// The error of a script that was killed.
    kill_text: Vec<u8>,
    /// Time of the server's last turn, and of the last read of the clock; none before the first read.
    last_tick: Option<Instant>,
    last_look: Option<Instant>,
    instructions_per_look: c_int,
    calls_to_look: u32,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            is_killed: false,
            kill_text: Vec::new(),
            last_tick: None,
            last_look: None,
            instructions_per_look: INSTRUCTIONS_PER_LOOK,
            calls_to_look: CALLS_PER_LOOK,
        }
    }
}

impl Watch {
    /// Returns the error of a script that was killed.
    pub(super) fn killed(&self) -> Option<&[u8]> {
        self.is_killed.then_some(&self.kill_text)
    }

    /// Counts a call of `redis.call`; returns true if it is time for a read of the clock.
    pub(super) fn count_call(&mut self) -> bool {
        self.calls_to_look -= 1;
        self.calls_to_look == 0
    }

    /// Returns how many instructions are to pass until the next read, if the last ones took so long.
    fn adapt(&mut self, took: Duration) -> c_int {
        if took > TICK_INTERVAL / 2 {
            self.instructions_per_look = (self.instructions_per_look / 4).max(1);
        } else if took < TICK_INTERVAL / 16 {
            self.instructions_per_look =
                (self.instructions_per_look * 2).min(INSTRUCTIONS_PER_LOOK_MAX);
        }
        self.instructions_per_look
    }
}

/// Starts the watch.
///
/// # Safety
/// `state` is live.
pub(super) unsafe fn start(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe { set_hook(state, INSTRUCTIONS_PER_LOOK) };
}

/// Removes the state of the script that has ended.
///
/// # Safety
/// `machine` is that of `state`.
pub(super) unsafe fn end(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller. If the clock was never read, nothing has changed but the count of calls.
    unsafe {
        let watch = &mut (*machine).watch;
        watch.calls_to_look = CALLS_PER_LOOK;
        if watch.last_look.is_some() {
            *watch = Watch {
                kill_text: std::mem::take(&mut watch.kill_text),
                ..Watch::default()
            };
            start(state);
        }
    }
}

/// Calls the hook at the next instruction.
///
/// # Safety
/// `state` is live.
pub(super) unsafe fn bring_forward(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe { set_hook(state, 1) };
}

/// The interpreter's hook, every so many instructions of any script.
///
/// # Safety
/// Called by the interpreter.
unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: the interpreter calls hooks where they may raise.
    unsafe { look(state, machine(state)) }
}

/// Reads the clock, and gives the server its turn if that is due; collects garbage if memory is short. Raises an error if
/// the script is to end, or if there is not enough memory all the same.
///
/// # Safety
/// Called where an error may be raised, by a function that owns nothing.
pub(super) unsafe fn look(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller.
    unsafe {
        if poll(state, machine) {
            raise_killed(state, machine);
        }
        if (*machine).memory.is_short() {
            collect(state, machine);
            if (*machine).memory.is_exhausted() {
                ffi::lua_pushstring(state, NOT_ENOUGH_MEMORY.as_ptr());
                ffi::lua_error(state);
            }
        }
    }
}

/// Does the same as [`look`], but where that would raise an error it returns true: the script is to end.
///
/// # Safety
/// `machine` is that of `state`.
pub(super) unsafe fn poll(state: *mut lua_State, machine: *mut Machine) -> bool {
    // SAFETY: as promised by the caller. The server's turn calls no Lua, so that the borrow of its environment is the
    // only one.
    unsafe {
        if (*machine).watch.is_killed {
            return true;
        }
        let Some(running) = (*machine).running.map(NonNull::as_ptr) else {
            return false;
        };
        (*machine).memory.looked();
        let watch = &mut (*machine).watch;
        watch.calls_to_look = CALLS_PER_LOOK;
        let now = Instant::now();
        let took = now - watch.last_look.replace(now).unwrap_or(now);
        if now - *watch.last_tick.get_or_insert(now) >= TICK_INTERVAL {
            if let Tick::Kill(reason) = unpanicking(|| (*running).env.tick()) {
                watch.is_killed = true;
                watch.kill_text.clear();
                watch.kill_text.extend_from_slice(b"ERR ");
                watch.kill_text.extend_from_slice(reason.as_bytes());
                bring_forward(state);
                return true;
            }
            let after = Instant::now();
            watch.last_tick = Some(after);
            watch.last_look = Some(after);
        }
        set_hook(state, watch.adapt(took));
        false
    }
}

/// Raises the error of a script that was killed: again and again, at each instruction, until no `pcall` is left.
///
/// # Safety
/// As for [`look`].
pub(super) unsafe fn raise_killed(state: *mut lua_State, machine: *mut Machine) -> ! {
    // SAFETY: as promised by the caller.
    unsafe {
        let text = &raw const (*machine).watch.kill_text;
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushstring(state, c"err".as_ptr());
        ffi::lua_pushlstring(state, (*text).as_ptr().cast(), (*text).len());
        ffi::lua_rawset(state, -3);
        ffi::lua_error(state)
    }
}

/// # Safety
/// `state` is live.
unsafe fn set_hook(state: *mut lua_State, instructions: c_int) {
    // SAFETY: as promised by the caller. A hook may be set at any time, even from a signal handler.
    unsafe { ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, instructions) };
}
