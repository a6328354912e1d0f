//! One script from its text to its reply. Must not know commands.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use mlua_sys as ffi;
use mlua_sys::lua_State;
use redline_resp::{Args, Reply};

use super::functions::perform;
use super::load::push_function;
use super::set_up::{
    SANDBOX_NAME, UP_ARGV, UP_GLOBALS, UP_HANDLER, UP_KEYS, UP_NESTING, UP_OLD, UP_YOUNG,
};
use super::to_reply::{self, until_nul};
use super::{BUFFER_BYTES_KEPT, Machine, machine};
use crate::host::LoadError;
use crate::script::Script;

/// Compiled scripts per generation of the cache; see [`push_compiled`].
const COMPILED_MAX: u32 = 512;

/// Name of the source of scripts in error messages.
const CHUNK_NAME: &CStr = c"@user_script";

/// Bookkeeping of the functions that an interpreter has compiled.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    /// Functions in the young generation.
    young: u32,
    /// The generation of the shared cache that they belong to.
    generation: u64,
}

/// The error that ended a script: [`handle_error`] fills it in where the error was raised.
#[derive(Default)]
pub(super) struct Failure {
    pub(super) text: Vec<u8>,
    source: Vec<u8>,
    line: c_int,
    /// It is marked as one that statistics have already.
    counted: bool,
}

impl Failure {
    pub(super) fn set(&mut self, code: &[u8], text: &[u8]) {
        self.counted = false;
        self.text.clear();
        self.text.extend_from_slice(code);
        self.text.extend_from_slice(text);
        self.source.clear();
        self.line = 0;
    }

    /// Gives back the memory of an unusually long text.
    pub(super) fn trim(&mut self) {
        for text in [&mut self.text, &mut self.source] {
            if text.capacity() > BUFFER_BYTES_KEPT {
                *text = Vec::new();
            }
        }
    }

    /// Writes it as the error of the script or function of that name.
    pub(super) fn write(&self, name: &[u8], reply: &mut Reply<'_>) {
        reply.error_bytes(&self.line(name));
    }

    /// Returns the error line for the script or function of that name.
    fn line(&self, name: &[u8]) -> Vec<u8> {
        let mut line = Vec::with_capacity(self.text.len() + 96);
        line.extend_from_slice(until_nul(&self.text));
        line.extend_from_slice(b" script: ");
        line.extend_from_slice(name);
        if !self.source.is_empty() {
            line.extend_from_slice(b", on ");
            line.extend_from_slice(&self.source);
            line.push(b':');
            line.extend_from_slice(itoa::Buffer::new().format(self.line).as_bytes());
        }
        line.push(b'.');
        line
    }
}

/// Compiles the machine's script and runs it, unless it is only to be compiled.
///
/// # Safety
/// Called protected, with the upvalues that `set_up` gives it.
pub(super) unsafe extern "C-unwind" fn run(state: *mut lua_State) -> c_int {
    // SAFETY: protected, as promised, and nothing here owns anything. `script` and `running` are what `Vm::eval` holds.
    unsafe {
        let machine = machine(state);
        if let Some(task) = (*machine).task {
            perform(state, machine, task);
            return 0;
        }
        let Some(script) = (*machine).script.map(|script| script.as_ptr()) else {
            return 0;
        };
        let is_compiled = push_compiled(state, machine, script);
        let running = (*machine).running.map(NonNull::as_ptr);
        if !is_compiled {
            let text = string_at(state, -1).unwrap_or(b"unknown error");
            (*machine).failure.set(b"", text);
            if let Some(running) = running {
                let error = LoadError::Syntax(String::from_utf8_lossy(text).into_owned());
                (*running).reply.error(&error.to_string());
            }
            return 0;
        }
        let Some(running) = running else {
            return 0;
        };
        set_array(state, UP_KEYS, (*running).keys);
        set_array(state, UP_ARGV, (*running).argv);
        reset_nesting(state);
        ffi::lua_pushvalue(state, UP_HANDLER);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, 1, 1);
        finish(
            state,
            machine,
            status,
            (*script).sha(),
            &mut *(*running).reply,
        );
        if are_large((*running).keys) || are_large((*running).argv) {
            for name in [UP_KEYS, UP_ARGV] {
                ffi::lua_pushvalue(state, name);
                ffi::lua_pushnil(state);
                ffi::lua_rawset(state, UP_GLOBALS);
            }
        }
        0
    }
}

/// Writes the reply of the script or function that has run, whose result or error is on top of the stack.
///
/// # Safety
/// Called from `run`.
pub(super) unsafe fn finish(
    state: *mut lua_State,
    machine: *mut Machine,
    status: c_int,
    name: &[u8],
    reply: &mut Reply<'_>,
) {
    // SAFETY: as promised by the caller.
    unsafe {
        if let Some(text) = (*machine).watch.killed() {
            // Whatever the outcome: a script at its limits may have failed to raise the error as well.
            (*machine).failure.text.clear();
            (*machine).failure.text.extend_from_slice(text);
            (*machine).failure.counted = false;
            (*machine).failure.write(name, reply);
        } else if status == ffi::LUA_OK {
            to_reply::write(state, machine, reply);
        } else {
            if status != ffi::LUA_ERRRUN {
                // The handler was not called.
                (*machine).failure.set(
                    b"ERR ",
                    string_at(state, -1).unwrap_or(b"error in error handling"),
                );
            }
            let line = (*machine).failure.line(name);
            reply.error_bytes(&line);
            to_reply::report(machine, &line, (*machine).failure.counted);
        }
    }
}

/// # Safety
/// Called from `run`. The fields are there, so nothing is allocated.
pub(super) unsafe fn reset_nesting(state: *mut lua_State) {
    for count in 1..=2 {
        // SAFETY: as promised by the caller.
        unsafe {
            ffi::lua_pushnumber(state, 0.0);
            ffi::lua_rawseti(state, UP_NESTING, count);
        }
    }
}

/// Pushes the script's function, or the compiler's error.
///
/// Compiled code is kept in two generations: code that is used moves to the young one, and when that is full it becomes
/// the old one, whose remaining content is dropped. So an endless stream of different scripts leaves at most two
/// generations, and those in use stay.
///
/// # Safety
/// Called from `run`.
unsafe fn push_compiled(
    state: *mut lua_State,
    machine: *mut Machine,
    script: *const Script,
) -> bool {
    // SAFETY: `run` is protected and has these upvalues.
    unsafe {
        if (*machine).compiled.generation < (*script).generation() {
            (*machine).compiled.generation = (*script).generation();
            (*machine).compiled.young = 0;
            for table in [UP_YOUNG, UP_OLD] {
                ffi::lua_createtable(state, 0, 0);
                ffi::lua_replace(state, table);
            }
        }
        let serial = (*script).serial() as f64;
        ffi::lua_pushnumber(state, serial);
        ffi::lua_rawget(state, UP_YOUNG);
        if ffi::lua_type(state, -1) == ffi::LUA_TFUNCTION {
            return true;
        }
        ffi::lua_settop(state, 0);
        ffi::lua_pushnumber(state, serial);
        ffi::lua_rawget(state, UP_OLD);
        if ffi::lua_type(state, -1) != ffi::LUA_TFUNCTION {
            ffi::lua_settop(state, 0);
            let status = push_function(state, machine, (*script).lua(), CHUNK_NAME.as_ptr());
            if status != ffi::LUA_OK {
                return false;
            }
        }
        if (*machine).compiled.young == COMPILED_MAX {
            (*machine).compiled.young = 0;
            ffi::lua_pushvalue(state, UP_YOUNG);
            ffi::lua_replace(state, UP_OLD);
            ffi::lua_createtable(state, 0, COMPILED_MAX as c_int);
            ffi::lua_replace(state, UP_YOUNG);
        }
        (*machine).compiled.young += 1;
        ffi::lua_pushnumber(state, serial);
        ffi::lua_pushvalue(state, -2);
        ffi::lua_rawset(state, UP_YOUNG);
        true
    }
}

/// Returns true if arguments should not stay in memory until the next script replaces them.
fn are_large(args: Args<'_>) -> bool {
    const ARGS_MAX: usize = 16;
    const BYTES_MAX: usize = 256;
    args.len() > ARGS_MAX || args.iter().any(|arg| arg.len() > BYTES_MAX)
}

/// Sets the global `name` to an array of `args`.
///
/// # Safety
/// Called from `run`.
unsafe fn set_array(state: *mut lua_State, name: c_int, args: Args<'_>) {
    // SAFETY: `run` is protected and has these upvalues.
    unsafe {
        ffi::lua_pushvalue(state, name);
        push_array(state, args);
        ffi::lua_rawset(state, UP_GLOBALS);
    }
}

/// Pushes an array of `args`.
///
/// # Safety
/// Called from `run`.
pub(super) unsafe fn push_array(state: *mut lua_State, args: Args<'_>) {
    // SAFETY: `run` is protected; `Args` owns nothing.
    unsafe {
        ffi::lua_createtable(state, args.len().min(c_int::MAX as usize) as c_int, 0);
        for (i, arg) in args.iter().enumerate() {
            ffi::lua_pushlstring(state, arg.as_ptr().cast(), arg.len());
            ffi::lua_rawseti(state, -2, i as i64 + 1);
        }
    }
}

/// Keeps the error's text, and where in the script it was raised: the message handler of a script.
///
/// # Safety
/// Called by the interpreter while it raises an error.
pub(super) unsafe extern "C-unwind" fn handle_error(state: *mut lua_State) -> c_int {
    // SAFETY: the interpreter calls this protected, with the error as the only argument; nothing here owns anything.
    unsafe {
        let machine = machine(state);
        let is_table = ffi::lua_type(state, 1) == ffi::LUA_TTABLE;
        if is_table {
            ffi::lua_pushstring(state, c"err".as_ptr());
            ffi::lua_rawget(state, 1);
        } else {
            ffi::lua_pushvalue(state, 1);
        }
        let code: &[u8] = if is_table { b"" } else { b"ERR " };
        let text: &[u8] = match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING | ffi::LUA_TNUMBER => string_at(state, -1).unwrap_or(b""),
            _ if is_table => b"ERR unknown error",
            ffi::LUA_TNIL => b"nil",
            ffi::LUA_TBOOLEAN if ffi::lua_toboolean(state, -1) != 0 => b"true",
            ffi::LUA_TBOOLEAN => b"false",
            other => CStr::from_ptr(ffi::lua_typename(state, other)).to_bytes(),
        };
        (*machine).failure.set(code, text);
        if is_table {
            ffi::lua_pushstring(state, c"ignore_error_stats_update".as_ptr());
            ffi::lua_rawget(state, 1);
            (*machine).failure.counted = ffi::lua_toboolean(state, -1) != 0;
        }

        let mut frame: ffi::lua_Debug = std::mem::zeroed();
        let mut level = 1;
        while ffi::lua_getstack(state, level, &mut frame) != 0 {
            level += 1;
            ffi::lua_getinfo(state, c"Sl".as_ptr(), &mut frame);
            let source = CStr::from_ptr(frame.source);
            if frame.currentline > 0 && source != SANDBOX_NAME {
                (*machine)
                    .failure
                    .source
                    .extend_from_slice(source.to_bytes());
                (*machine).failure.line = frame.currentline;
                break;
            }
        }
        1
    }
}

/// Returns the string or number at `index`, as text.
///
/// # Safety
/// Called protected; the value stays on the stack for as long as the slice is used.
pub(super) unsafe fn string_at<'a>(state: *mut lua_State, index: c_int) -> Option<&'a [u8]> {
    let mut len = 0;
    // SAFETY: as promised by the caller; a string on the stack is neither moved nor freed.
    unsafe {
        let text = ffi::lua_tolstring(state, index, &mut len);
        (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast(), len))
    }
}
