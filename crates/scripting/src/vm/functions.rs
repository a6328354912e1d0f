//! Libraries of functions: running the text of one, and calling the functions that it has registered. Must not know the
//! registry.

use std::ffi::c_int;
use std::ptr::NonNull;

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::Machine;
use super::run::{finish, push_array, reset_nesting, string_at};
use super::set_up::{UP_AT_LOAD, UP_FUNCTIONS, UP_GLOBALS, UP_HANDLER, UP_LOAD, UP_STAGE};
use super::to_lua::push_bytes;
use crate::library::Function;
use crate::script::ScriptFlags;

/// Task that `run` is given instead of running a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Run the text of a library, and number its functions from `first_id` on.
    Load { code: NonNull<[u8]>, first_id: u64 },
    /// Call a function.
    Call { id: u64, name: NonNull<[u8]> },
    /// Remove functions.
    Forget { first_id: u64, count: usize },
}

/// Result of [`Task::Load`], if it did not end in the machine's failure.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) functions: Vec<Function>,
    pub(super) error: ErrorKind,
}

/// Kind of error that ended the text of a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// Its own, when it ran.
    #[default]
    Run,
    /// The compiler's.
    Compile,
    /// A refusal with its whole message.
    Refusal,
}

/// # Safety
/// Called from `run`; what the task points to is there.
pub(super) unsafe fn perform(state: *mut lua_State, machine: *mut Machine, task: Task) {
    // SAFETY: as promised by the caller.
    unsafe {
        match task {
            Task::Load { code, first_id } => load(state, machine, code, first_id),
            Task::Call { id, name } => call(state, machine, id, name),
            Task::Forget { first_id, count } => {
                for id in first_id..first_id + count as u64 {
                    ffi::lua_pushnumber(state, id as f64);
                    ffi::lua_pushnil(state);
                    ffi::lua_rawset(state, UP_FUNCTIONS);
                }
            }
        }
    }
}

/// # Safety
/// As for [`perform`].
unsafe fn call(state: *mut lua_State, machine: *mut Machine, id: u64, name: NonNull<[u8]>) {
    // SAFETY: as promised by the caller.
    unsafe {
        let Some(running) = (*machine).running.map(NonNull::as_ptr) else {
            return;
        };
        reset_nesting(state);
        ffi::lua_pushvalue(state, UP_HANDLER);
        ffi::lua_pushnumber(state, id as f64);
        ffi::lua_rawget(state, UP_FUNCTIONS);
        push_array(state, (*running).keys);
        push_array(state, (*running).argv);
        let status = ffi::lua_pcall(state, 2, 1, 1);
        finish(
            state,
            machine,
            status,
            name.as_ref(),
            &mut *(*running).reply,
        );
    }
}

/// # Safety
/// As for [`perform`].
unsafe fn load(state: *mut lua_State, machine: *mut Machine, code: NonNull<[u8]>, first_id: u64) {
    // SAFETY: as promised by the caller. `loaded` is borrowed for no longer than a call that runs no Lua.
    unsafe {
        reset_nesting(state);
        enter_stage(state, UP_AT_LOAD);
        ffi::lua_pushvalue(state, UP_LOAD);
        push_bytes(state, code.as_ref());
        ffi::lua_pushnumber(state, first_id as f64);
        let status = ffi::lua_pcall(state, 2, 3, 0);
        enter_stage(state, UP_GLOBALS);
        if let Some(text) = (*machine).watch.killed() {
            (*machine).failure.set(b"", text);
        } else if status != ffi::LUA_OK {
            let text = string_at(state, -1).unwrap_or(b"unknown error");
            (*machine).failure.set(b"ERR ", text);
        } else if ffi::lua_type(state, -3) == ffi::LUA_TTABLE {
            ffi::lua_settop(state, -3);
            let mut place = 1;
            while let Some(function) = function_at(state, place) {
                (*machine).loaded.functions.push(function);
                place += 3;
            }
        } else {
            let text = string_at(state, -2).unwrap_or(b"unknown error");
            (*machine).failure.set(b"", text);
            (*machine).loaded.error = match ffi::lua_tonumber(state, -1) as u8 {
                1 => ErrorKind::Compile,
                2 => ErrorKind::Refusal,
                _ => ErrorKind::Run,
            };
        }
    }
}

/// Reads the function whose three values start at `place` of the table on top of the stack.
///
/// # Safety
/// Called from [`load`], with room on the stack. Nothing here raises an error: strings are not converted.
unsafe fn function_at(state: *mut lua_State, place: i64) -> Option<Function> {
    // SAFETY: as promised by the caller.
    unsafe {
        for i in 0..3 {
            ffi::lua_rawgeti(state, -1 - i as c_int, place + i);
        }
        let is_there = ffi::lua_type(state, -3) == ffi::LUA_TSTRING;
        let function = is_there.then(|| Function {
            name: String::from_utf8_lossy(string_at(state, -3).unwrap_or(b"")).into_owned(),
            flags: ScriptFlags::from_bits(ffi::lua_tonumber(state, -2) as u8),
            description: match ffi::lua_type(state, -1) {
                ffi::LUA_TSTRING => string_at(state, -1).map(<[u8]>::to_vec),
                _ => None,
            },
        });
        ffi::lua_settop(state, -4);
        function
    }
}

/// Chooses the globals that libraries find.
///
/// # Safety
/// Called from `run`. The field is there, so nothing is allocated.
unsafe fn enter_stage(state: *mut lua_State, globals: c_int) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_pushstring(state, c"__index".as_ptr());
        ffi::lua_pushvalue(state, globals);
        ffi::lua_rawset(state, UP_STAGE);
    }
}
