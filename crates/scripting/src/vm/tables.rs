//! The functions of the base library and of `table` that read or write tables without their metatables, and so have to
//! know the stand-ins of the sandbox; and `unpack`. Must not know replies.
//!
//! All functions here are called by the interpreter, protected, and own nothing when they raise an error. They accept
//! the same as in Lua 5.1, with the same errors.

use std::ffi::{CStr, c_int};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::machine;
use super::watch::look;

pub(super) const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 8] = [
    (c"next", next),
    (c"pairs", pairs),
    (c"rawget", rawget),
    (c"rawset", rawset),
    (c"getmetatable", getmetatable),
    (c"setmetatable", setmetatable),
    (c"insert", insert),
    (c"unpack", unpack),
];

/// The table behind each stand-in.
const UP_BEHIND: c_int = ffi::lua_upvalueindex(1);
/// The answer of `getmetatable` for a stand-in, if not nil.
const UP_SHOWN: c_int = ffi::lua_upvalueindex(2);
/// The interpreter's own `next`, which its loops know.
const UP_NEXT: c_int = ffi::lua_upvalueindex(3);

/// Number of upvalues that these functions have.
pub(super) const UPVALUES: c_int = 3;

const READONLY: &CStr = c"Attempt to modify a readonly table";

/// Results that one `unpack` may have: as many as fit on a stack of the interpreter.
const UNPACKED_MAX: i64 = 7_999;

/// Elements that `insert` moves between two reads of the clock.
const MOVES_PER_LOOK: i64 = 4_096;

/// Returns true if the value at `index` is a stand-in; then the table behind it lies on top of the stack.
///
/// # Safety
/// Called from one of these functions.
unsafe fn push_behind(state: *mut lua_State, index: c_int) -> bool {
    // SAFETY: as promised by the caller, `behind` is a table; a key of any type but nil may be looked up.
    unsafe {
        ffi::lua_pushvalue(state, index);
        ffi::lua_rawget(state, UP_BEHIND);
        if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            return true;
        }
        ffi::lua_settop(state, -2);
        false
    }
}

/// # Safety
/// Called from one of these functions, which owns nothing.
unsafe fn refuse_stand_in(state: *mut lua_State, index: c_int) {
    // SAFETY: as promised by the caller.
    unsafe {
        if push_behind(state, index) {
            ffi::lua_pushstring(state, READONLY.as_ptr());
            ffi::lua_error(state);
        }
    }
}

unsafe extern "C-unwind" fn next(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_settop(state, 2);
        if push_behind(state, 1) {
            ffi::lua_replace(state, 1);
        }
        if ffi::lua_next(state, 1) != 0 {
            return 2;
        }
        ffi::lua_pushnil(state);
        1
    }
}

unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        if push_behind(state, 1) {
            for upvalue in [UP_BEHIND, UP_SHOWN, UP_NEXT] {
                ffi::lua_pushvalue(state, upvalue);
            }
            ffi::lua_pushcclosure(state, next, UPVALUES);
        } else {
            ffi::lua_pushvalue(state, UP_NEXT);
        }
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

unsafe extern "C-unwind" fn rawget(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        if push_behind(state, 1) {
            ffi::lua_replace(state, 1);
        }
        ffi::lua_rawget(state, 1);
        1
    }
}

unsafe extern "C-unwind" fn rawset(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::luaL_checkany(state, 2);
        ffi::luaL_checkany(state, 3);
        ffi::lua_settop(state, 3);
        refuse_stand_in(state, 1);
        ffi::lua_rawset(state, 1);
        1
    }
}

unsafe extern "C-unwind" fn getmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        ffi::luaL_checkany(state, 1);
        ffi::lua_settop(state, 1);
        if ffi::lua_type(state, 1) == ffi::LUA_TTABLE && push_behind(state, 1) {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_rawget(state, UP_SHOWN);
        } else if ffi::lua_getmetatable(state, 1) == 0 {
            ffi::lua_pushnil(state);
        } else {
            ffi::luaL_getmetafield(state, 1, c"__metatable".as_ptr());
        }
        1
    }
}

unsafe extern "C-unwind" fn setmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        let kind = ffi::lua_type(state, 2);
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        if kind != ffi::LUA_TNIL && kind != ffi::LUA_TTABLE {
            ffi::luaL_argerror(state, 2, c"nil or table expected".as_ptr());
        }
        ffi::lua_settop(state, 2);
        refuse_stand_in(state, 1);
        if ffi::lua_getmetatable(state, 1) != 0 {
            ffi::lua_pushstring(state, c"__metatable".as_ptr());
            ffi::lua_rawget(state, -2);
            if ffi::lua_type(state, -1) != ffi::LUA_TNIL {
                ffi::luaL_error(state, c"cannot change a protected metatable".as_ptr());
            }
            ffi::lua_settop(state, 2);
        }
        ffi::lua_setmetatable(state, 1);
        1
    }
}

unsafe extern "C-unwind" fn insert(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let end = ffi::lua_objlen(state, 1) as i64 + 1;
        let at = match ffi::lua_gettop(state) {
            2 => end,
            3 => {
                let at = i64::from(ffi::luaL_checkinteger(state, 2) as c_int);
                for i in (at + 1..=end.max(at)).rev() {
                    if i % MOVES_PER_LOOK == 0 {
                        look(state, machine(state));
                    }
                    ffi::lua_rawgeti(state, 1, i - 1);
                    ffi::lua_rawseti(state, 1, i);
                }
                at
            }
            _ => {
                return ffi::luaL_error(state, c"wrong number of arguments to 'insert'".as_ptr());
            }
        };
        refuse_stand_in(state, 1);
        ffi::lua_rawseti(state, 1, at);
        0
    }
}

unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let first = ffi::luaL_optinteger(state, 2, 1);
        let last = match ffi::lua_type(state, 3) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => ffi::lua_objlen(state, 1) as i64,
            _ => ffi::luaL_checkinteger(state, 3),
        };
        if first > last {
            return 0;
        }
        let n = last.checked_sub(first).filter(|n| *n < UNPACKED_MAX);
        let Some(n) = n.filter(|n| ffi::lua_checkstack(state, *n as c_int + 1) != 0) else {
            return ffi::luaL_error(state, c"too many results to unpack".as_ptr());
        };
        for i in 0..=n {
            let i = first + i;
            match c_int::try_from(i) {
                Ok(_) => {
                    ffi::lua_rawgeti(state, 1, i);
                }
                Err(_) => {
                    ffi::lua_pushnumber(state, i as f64);
                    ffi::lua_rawget(state, 1);
                }
            }
        }
        n as c_int + 1
    }
}
