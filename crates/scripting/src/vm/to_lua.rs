//! Replies of commands as Lua values. Must not know commands.

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::set_up::{
    UP_BIG_NUMBER, UP_DOUBLE, UP_ERR, UP_FORMAT, UP_IGNORE, UP_MAP, UP_OK, UP_SET, UP_STRING,
    UP_VERBATIM,
};
use crate::reply_reader::{ReplyReader, Token};

/// Pushes one value. Returns false if the reply is malformed or too deep; then the stack holds the values pushed so
/// far.
///
/// # Safety
/// Called protected from a function with the upvalues `NAMES`; the reader's bytes stay as they are.
pub(super) unsafe fn push(state: *mut lua_State, reader: &mut ReplyReader<'_>) -> bool {
    // SAFETY: as promised by the caller; nothing here owns anything.
    unsafe {
        // A field of a table in a map: map, its inner table, key, value, and two for the value's own field.
        if ffi::lua_checkstack(state, 8) == 0 {
            return false;
        }
        let Some(token) = reader.next() else {
            return false;
        };
        match token {
            Token::Bulk(bytes) => push_bytes(state, bytes),
            Token::Integer(n) => ffi::lua_pushnumber(state, n as f64),
            Token::Null2 => ffi::lua_pushboolean(state, 0),
            Token::Null3 => ffi::lua_pushnil(state),
            Token::Bool(value) => ffi::lua_pushboolean(state, value.into()),
            Token::Array(n) => return push_array(state, reader, n),
            Token::Map(pairs) => return push_map(state, reader, pairs),
            Token::Set(n) => return push_set(state, reader, n),
            Token::Status(text) => push_typed(state, UP_OK, |state| push_bytes(state, text)),
            Token::Error(text) => push_error(state, text),
            Token::Double(value) => push_typed(state, UP_DOUBLE, |state| {
                ffi::lua_pushnumber(state, value);
            }),
            Token::BigNumber(digits) => {
                push_typed(state, UP_BIG_NUMBER, |state| push_bytes(state, digits));
            }
            Token::Verbatim { format, text } => push_typed(state, UP_VERBATIM, |state| {
                ffi::lua_createtable(state, 0, 2);
                ffi::lua_pushvalue(state, UP_STRING);
                push_bytes(state, text);
                ffi::lua_rawset(state, -3);
                ffi::lua_pushvalue(state, UP_FORMAT);
                push_bytes(state, format);
                ffi::lua_rawset(state, -3);
            }),
        }
        true
    }
}

/// Pushes the table of an error that a command returned.
///
/// # Safety
/// As for [`push`].
pub(super) unsafe fn push_error(state: *mut lua_State, text: &[u8]) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_createtable(state, 0, 2);
        ffi::lua_pushvalue(state, UP_ERR);
        push_bytes(state, text);
        ffi::lua_rawset(state, -3);
        ffi::lua_pushvalue(state, UP_IGNORE);
        ffi::lua_pushboolean(state, 1);
        ffi::lua_rawset(state, -3);
    }
}

/// Pushes a table whose only field, `name`, is the value that `value` pushes.
///
/// # Safety
/// As for [`push`].
unsafe fn push_typed(
    state: *mut lua_State,
    name: std::ffi::c_int,
    value: impl FnOnce(*mut lua_State),
) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushvalue(state, name);
        value(state);
        ffi::lua_rawset(state, -3);
    }
}

/// # Safety
/// As for [`push`].
unsafe fn push_array(state: *mut lua_State, reader: &mut ReplyReader<'_>, n: usize) -> bool {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_createtable(state, n.min(1 << 20) as std::ffi::c_int, 0);
        for i in 1..=n {
            if !push(state, reader) {
                return false;
            }
            ffi::lua_rawseti(state, -2, i as i64);
        }
        true
    }
}

/// # Safety
/// As for [`push`].
unsafe fn push_map(state: *mut lua_State, reader: &mut ReplyReader<'_>, pairs: usize) -> bool {
    // SAFETY: as promised by the caller. A key that no table can have (nil, not a number) is left out.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushvalue(state, UP_MAP);
        ffi::lua_createtable(state, 0, pairs.min(1 << 20) as std::ffi::c_int);
        for _ in 0..pairs {
            if !push(state, reader) || !push(state, reader) {
                return false;
            }
            if ffi::lua_type(state, -2) == ffi::LUA_TNIL {
                ffi::lua_settop(state, -3);
            } else {
                ffi::lua_rawset(state, -3);
            }
        }
        ffi::lua_rawset(state, -3);
        true
    }
}

/// # Safety
/// As for [`push`].
unsafe fn push_set(state: *mut lua_State, reader: &mut ReplyReader<'_>, n: usize) -> bool {
    // SAFETY: as for `push_map`.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushvalue(state, UP_SET);
        ffi::lua_createtable(state, 0, n.min(1 << 20) as std::ffi::c_int);
        for _ in 0..n {
            if !push(state, reader) {
                return false;
            }
            if ffi::lua_type(state, -1) == ffi::LUA_TNIL {
                ffi::lua_settop(state, -2);
            } else {
                ffi::lua_pushboolean(state, 1);
                ffi::lua_rawset(state, -3);
            }
        }
        ffi::lua_rawset(state, -3);
        true
    }
}

/// # Safety
/// Called protected, with room on the stack.
pub(super) unsafe fn push_bytes(state: *mut lua_State, bytes: &[u8]) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len());
    }
}
