//! Setup of the environment of scripts: puts the interpreter together. Must not know how scripts are run.

use std::ffi::{CStr, c_int};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::run::{handle_error, run};
use super::{RUN_INDEX, api, tables, watch};

/// The source of the sandbox's own Lua functions, which error messages leave out.
pub(super) const SANDBOX_NAME: &CStr = c"=sandbox";

/// Strings that the functions of this module use as table keys: their upvalues, so that none is hashed per call.
pub(super) const NAMES: [&CStr; 10] = [
    c"err",
    c"ok",
    c"double",
    c"map",
    c"set",
    c"big_number",
    c"verbatim_string",
    c"format",
    c"string",
    c"ignore_error_stats_update",
];

pub(super) const UP_ERR: c_int = ffi::lua_upvalueindex(1);
pub(super) const UP_OK: c_int = ffi::lua_upvalueindex(2);
pub(super) const UP_DOUBLE: c_int = ffi::lua_upvalueindex(3);
pub(super) const UP_MAP: c_int = ffi::lua_upvalueindex(4);
pub(super) const UP_SET: c_int = ffi::lua_upvalueindex(5);
pub(super) const UP_BIG_NUMBER: c_int = ffi::lua_upvalueindex(6);
pub(super) const UP_VERBATIM: c_int = ffi::lua_upvalueindex(7);
pub(super) const UP_FORMAT: c_int = ffi::lua_upvalueindex(8);
pub(super) const UP_STRING: c_int = ffi::lua_upvalueindex(9);
pub(super) const UP_IGNORE: c_int = ffi::lua_upvalueindex(10);
/// Of the functions of the tables `redis` and `server` alone: which of the two.
pub(super) const UP_IS_VALKEY: c_int = ffi::lua_upvalueindex(11);
// Those of `run` alone.
pub(super) const UP_GLOBALS: c_int = ffi::lua_upvalueindex(11);
pub(super) const UP_KEYS: c_int = ffi::lua_upvalueindex(12);
pub(super) const UP_ARGV: c_int = ffi::lua_upvalueindex(13);
pub(super) const UP_HANDLER: c_int = ffi::lua_upvalueindex(14);
pub(super) const UP_YOUNG: c_int = ffi::lua_upvalueindex(15);
pub(super) const UP_OLD: c_int = ffi::lua_upvalueindex(16);
pub(super) const UP_NESTING: c_int = ffi::lua_upvalueindex(17);
pub(super) const UP_FUNCTIONS: c_int = ffi::lua_upvalueindex(18);
pub(super) const UP_LOAD: c_int = ffi::lua_upvalueindex(19);
pub(super) const UP_STAGE: c_int = ffi::lua_upvalueindex(20);
pub(super) const UP_AT_LOAD: c_int = ffi::lua_upvalueindex(21);

const LUAJIT_MODE_ENGINE: c_int = 0;
const LUAJIT_MODE_OFF: c_int = 0;

unsafe extern "C-unwind" {
    fn luaJIT_setmode(state: *mut lua_State, index: c_int, mode: c_int) -> c_int;
}

/// Makes the environment of scripts, or with an argument other than null of functions; puts [`run`] into the registry.
///
/// # Safety
/// Called protected, once per state.
pub(super) unsafe extern "C-unwind" fn set_up(state: *mut lua_State) -> c_int {
    // SAFETY: protected, as promised; nothing here owns anything.
    unsafe {
        let for_functions = !ffi::lua_touserdata(state, 1).is_null();
        ffi::lua_settop(state, 0);
        let off = luaJIT_setmode(state, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
        debug_assert_eq!(off, 1);
        for open in [
            ffi::luaopen_base,
            ffi::luaopen_table,
            ffi::luaopen_string,
            ffi::luaopen_math,
            ffi::luaopen_os,
            ffi::luaopen_bit,
        ] {
            ffi::lua_pushcclosure(state, open, 0);
            ffi::lua_call(state, 0, 0);
        }
        const SANDBOX: &str = include_str!("sandbox.lua");
        let status = ffi::luaL_loadbuffer(
            state,
            SANDBOX.as_ptr().cast(),
            SANDBOX.len(),
            SANDBOX_NAME.as_ptr(),
        );
        if status != ffi::LUA_OK {
            ffi::lua_error(state);
        }
        api::push_library(state);
        push_tables(state);
        api::push_server(state);
        ffi::lua_pushboolean(state, for_functions.into());
        // sandbox(library, behind, shown, server, for_functions) -> the globals as scripts see them, the table behind, the counts of
        // nested calls, and what functions need
        ffi::lua_call(state, 5, 7);
        ffi::lua_pushvalue(state, 1);
        ffi::lua_replace(state, ffi::LUA_GLOBALSINDEX);

        push_names(state);
        ffi::lua_pushvalue(state, 2);
        ffi::lua_pushstring(state, c"KEYS".as_ptr());
        ffi::lua_pushstring(state, c"ARGV".as_ptr());
        ffi::lua_pushcclosure(state, handle_error, 0);
        ffi::lua_createtable(state, 0, 0);
        ffi::lua_createtable(state, 0, 0);
        for index in 3..=7 {
            ffi::lua_pushvalue(state, index);
        }
        ffi::lua_pushcclosure(state, run, NAMES.len() as c_int + 11);
        ffi::lua_rawseti(state, ffi::LUA_REGISTRYINDEX, RUN_INDEX.into());
        watch::start(state);
        0
    }
}

/// Adds the functions that know the stand-ins to the library on top of the stack, and pushes the two tables in which
/// the sandbox enters these.
///
/// # Safety
/// Called by `set_up`.
unsafe fn push_tables(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe {
        let library = ffi::lua_gettop(state);
        let (behind, shown, next) = (library + 1, library + 2, library + 3);
        ffi::lua_createtable(state, 0, 16);
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_getfield(state, ffi::LUA_GLOBALSINDEX, c"next".as_ptr());
        for (name, function) in tables::FUNCTIONS {
            for upvalue in [behind, shown, next] {
                ffi::lua_pushvalue(state, upvalue);
            }
            ffi::lua_pushcclosure(state, function, tables::UPVALUES);
            ffi::lua_setfield(state, library, name.as_ptr());
        }
        ffi::lua_settop(state, shown);
    }
}

/// # Safety
/// Called protected, with room on the stack.
pub(super) unsafe fn push_names(state: *mut lua_State) {
    for name in NAMES {
        // SAFETY: as promised by the caller.
        unsafe { ffi::lua_pushstring(state, name.as_ptr()) };
    }
}
