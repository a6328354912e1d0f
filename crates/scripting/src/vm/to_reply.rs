//! Lua values as replies. Knows nothing of commands.

use std::ffi::c_int;

use mlua_sys as ffi;
use mlua_sys::lua_State;
use redline_resp::{Proto, Reply};

use super::{
    UP_BIG_NUMBER, UP_DOUBLE, UP_ERR, UP_FORMAT, UP_MAP, UP_OK, UP_SET, UP_STRING, UP_VERBATIM,
    machine,
};

/// Writes the value on top of the stack, and pops it. Anything that has no reply is null.
///
/// # Safety
/// Called protected from a function with the upvalues `NAMES`.
pub(super) unsafe fn write(state: *mut lua_State, reply: &mut Reply<'_>) {
    // SAFETY: as promised by the caller; nothing here owns anything.
    unsafe {
        // A table needs itself, an index, an element and a field of it.
        if ffi::lua_checkstack(state, 6) == 0 {
            ffi::lua_settop(state, -2);
            return reply.error("ERR reached lua stack limit");
        }
        match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING => reply.bulk(bytes_at(state, -1)),
            ffi::LUA_TBOOLEAN => {
                let value = ffi::lua_toboolean(state, -1) != 0;
                match ((*machine(state)).proto, value) {
                    (Proto::Resp3, _) => reply.bool(value),
                    (Proto::Resp2, true) => reply.integer(1),
                    (Proto::Resp2, false) => reply.null(),
                }
            }
            ffi::LUA_TNUMBER => reply.integer(truncate(ffi::lua_tonumber(state, -1))),
            ffi::LUA_TTABLE => return write_table(state, reply),
            _ => reply.null(),
        }
        ffi::lua_settop(state, -2);
    }
}

/// Writes the table on top of the stack, and pops it: one of the typed forms, or else an array up to the first nil.
///
/// # Safety
/// As for [`write`], with room for four more values on the stack.
unsafe fn write_table(state: *mut lua_State, reply: &mut Reply<'_>) {
    // SAFETY: as promised by the caller; nothing here owns anything.
    unsafe {
        let table = ffi::lua_gettop(state);
        if field(state, table, UP_ERR) == ffi::LUA_TSTRING {
            reply.error_bytes(until_nul(bytes_at(state, -1)));
        } else if field(state, table, UP_OK) == ffi::LUA_TSTRING {
            write_line(reply, b"+", bytes_at(state, -1));
        } else if field(state, table, UP_DOUBLE) == ffi::LUA_TNUMBER {
            reply.double(ffi::lua_tonumber(state, -1));
        } else if field(state, table, UP_MAP) == ffi::LUA_TTABLE {
            write_map(state, reply);
        } else if field(state, table, UP_SET) == ffi::LUA_TTABLE {
            write_set(state, reply);
        } else if field(state, table, UP_BIG_NUMBER) == ffi::LUA_TSTRING {
            write_big_number(reply, bytes_at(state, -1));
        } else if field(state, table, UP_VERBATIM) != ffi::LUA_TTABLE
            || !write_verbatim(state, reply)
        {
            ffi::lua_settop(state, table);
            write_array(state, reply);
        }
        ffi::lua_settop(state, table - 1);
    }
}

/// Replaces what lies above `table` by its field of that name, and returns the field's type.
///
/// # Safety
/// As for [`write_table`].
unsafe fn field(state: *mut lua_State, table: c_int, name: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_settop(state, table);
        ffi::lua_pushvalue(state, name);
        ffi::lua_rawget(state, table);
        ffi::lua_type(state, -1)
    }
}

/// # Safety
/// As for [`write_table`]; the table is on top and stays there.
unsafe fn write_array(state: *mut lua_State, reply: &mut Reply<'_>) {
    // SAFETY: as promised by the caller.
    unsafe {
        let mark = reply.mark();
        let mut n = 0;
        loop {
            ffi::lua_rawgeti(state, -1, n as i64 + 1);
            if ffi::lua_type(state, -1) == ffi::LUA_TNIL {
                break;
            }
            write(state, reply);
            n += 1;
        }
        ffi::lua_settop(state, -2);
        reply.insert_array_header(mark, n);
    }
}

/// # Safety
/// As for [`write_array`].
unsafe fn write_map(state: *mut lua_State, reply: &mut Reply<'_>) {
    // SAFETY: as promised by the caller; the map is not changed while `lua_next` walks it.
    unsafe {
        let mark = reply.mark();
        let mut pairs = 0;
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, -2) != 0 {
            ffi::lua_pushvalue(state, -2);
            write(state, reply);
            write(state, reply);
            pairs += 1;
        }
        reply.insert_map_header(mark, pairs);
    }
}

/// # Safety
/// As for [`write_array`].
unsafe fn write_set(state: *mut lua_State, reply: &mut Reply<'_>) {
    // SAFETY: as promised by the caller; the set is not changed while `lua_next` walks it.
    unsafe {
        let mark = reply.mark();
        let mut n = 0;
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, -2) != 0 {
            ffi::lua_settop(state, -2);
            ffi::lua_pushvalue(state, -1);
            write(state, reply);
            n += 1;
        }
        reply.insert_set_header(mark, n);
    }
}

fn write_big_number(reply: &mut Reply<'_>, digits: &[u8]) {
    match reply.proto() {
        Proto::Resp3 => write_line(reply, b"(", digits),
        Proto::Resp2 => {
            let mut text = until_nul(digits).to_vec();
            text.iter_mut().for_each(|b| {
                if matches!(b, b'\r' | b'\n') {
                    *b = b' ';
                }
            });
            reply.bulk(&text);
        }
    }
}

/// Writes the table on top of the stack as a verbatim string, if it is one.
///
/// # Safety
/// As for [`write_table`].
unsafe fn write_verbatim(state: *mut lua_State, reply: &mut Reply<'_>) -> bool {
    // SAFETY: as promised by the caller; both strings stay on the stack while they are used.
    unsafe {
        let table = ffi::lua_gettop(state);
        if field(state, table, UP_STRING) != ffi::LUA_TSTRING {
            return false;
        }
        ffi::lua_pushvalue(state, UP_FORMAT);
        ffi::lua_rawget(state, table);
        if ffi::lua_type(state, -1) != ffi::LUA_TSTRING {
            return false;
        }
        let mut format = [b' '; 3];
        for (to, from) in format.iter_mut().zip(until_nul(bytes_at(state, -1))) {
            *to = match from {
                b'\r' | b'\n' => b' ',
                other => *other,
            };
        }
        match str::from_utf8(&format) {
            Ok(format) => reply.verbatim(format, bytes_at(state, -2)),
            Err(_) => reply.bulk(bytes_at(state, -2)),
        }
        true
    }
}

/// A line of a reply. Line ends inside become spaces, and a NUL ends it: nothing that a script says can become a reply
/// of its own.
fn write_line(reply: &mut Reply<'_>, kind: &[u8], text: &[u8]) {
    reply.raw(kind);
    for piece in until_nul(text).split_inclusive(|b| matches!(b, b'\r' | b'\n')) {
        match piece.split_last() {
            Some((b'\r' | b'\n', piece)) => {
                reply.raw(piece);
                reply.raw(b" ");
            }
            _ => reply.raw(piece),
        }
    }
    reply.raw(b"\r\n");
}

/// The part of `text` that Redis, where it is a C string, would see.
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |nul| &text[..nul])
}

/// A number as the integer that the reply has: towards zero, and the smallest one for whatever does not fit.
fn truncate(n: f64) -> i64 {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if (-TWO_63..TWO_63).contains(&n) {
        n as i64
    } else {
        i64::MIN
    }
}

/// The string at `index`.
///
/// # Safety
/// There is a string, and it stays on the stack for as long as the slice is used.
pub(super) unsafe fn bytes_at<'a>(state: *mut lua_State, index: c_int) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: as promised by the caller; a string on the stack is neither moved nor freed.
    unsafe {
        let text = ffi::lua_tolstring(state, index, &mut len);
        std::slice::from_raw_parts(text.cast(), len)
    }
}
