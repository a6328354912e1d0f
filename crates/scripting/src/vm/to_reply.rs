//! Lua values as replies. Knows nothing of commands.

use std::ffi::c_int;

use mlua_sys as ffi;
use mlua_sys::lua_State;
use redline_resp::{Proto, Reply};

use super::{
    Machine, UP_BIG_NUMBER, UP_DOUBLE, UP_ERR, UP_FORMAT, UP_MAP, UP_OK, UP_SET, UP_STRING,
    UP_VERBATIM,
};

/// Writes the value on top of the stack as the reply of a script, and pops it.
///
/// # Safety
/// Called protected from a function with the upvalues `NAMES`; `machine` is that of `state`.
pub(super) unsafe fn write(state: *mut lua_State, machine: *mut Machine, reply: &mut Reply<'_>) {
    let mark = reply.mark();
    let bytes_before = reply.buffer().len_bytes();
    // SAFETY: as promised by the caller.
    unsafe {
        let mut writer = Writer {
            state,
            proto: (*machine).proto,
            bytes_max: bytes_before.saturating_add((*machine).message_bytes_max),
            reply: &mut *reply,
        };
        if writer.value().is_err() {
            reply.truncate(mark);
            reply.error("ERR The reply of the script is too large");
        }
    }
}

/// The reply has become larger than it may.
struct TooLarge;

/// A reply being written. Its methods take their value from the top of the stack; they need the upvalues `NAMES`, are
/// called protected, and own nothing.
struct Writer<'a, 'r> {
    state: *mut lua_State,
    /// What the script has chosen, which decides about truth values; all else depends on the reply's own version.
    proto: Proto,
    bytes_max: usize,
    reply: &'a mut Reply<'r>,
}

impl Writer<'_, '_> {
    /// Writes a value, and pops it. Anything that has no reply is null.
    unsafe fn value(&mut self) -> Result<(), TooLarge> {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            // A table needs itself, an index, an element and a field of it.
            if ffi::lua_checkstack(state, 6) == 0 {
                ffi::lua_settop(state, -2);
                self.reply.error("ERR reached lua stack limit");
                return Ok(());
            }
            match ffi::lua_type(state, -1) {
                ffi::LUA_TSTRING => self.reply.bulk(bytes_at(state, -1)),
                ffi::LUA_TBOOLEAN => {
                    let value = ffi::lua_toboolean(state, -1) != 0;
                    match (self.proto, value) {
                        (Proto::Resp3, _) => self.reply.bool(value),
                        (Proto::Resp2, true) => self.reply.integer(1),
                        (Proto::Resp2, false) => self.reply.null(),
                    }
                }
                ffi::LUA_TNUMBER => self.reply.integer(truncate(ffi::lua_tonumber(state, -1))),
                ffi::LUA_TTABLE => return self.table(),
                _ => self.reply.null(),
            }
            ffi::lua_settop(state, -2);
            if self.reply.buffer().len_bytes() > self.bytes_max {
                return Err(TooLarge);
            }
            Ok(())
        }
    }

    /// Writes a table, and pops it: one of the typed forms, or else an array.
    unsafe fn table(&mut self) -> Result<(), TooLarge> {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            let table = ffi::lua_gettop(state);
            if self.field(table, UP_ERR) == ffi::LUA_TSTRING {
                self.reply.error_bytes(until_nul(bytes_at(state, -1)));
            } else if self.field(table, UP_OK) == ffi::LUA_TSTRING {
                write_line(self.reply, b"+", bytes_at(state, -1));
            } else if self.field(table, UP_DOUBLE) == ffi::LUA_TNUMBER {
                self.reply.double(ffi::lua_tonumber(state, -1));
            } else if self.field(table, UP_MAP) == ffi::LUA_TTABLE {
                self.map()?;
            } else if self.field(table, UP_SET) == ffi::LUA_TTABLE {
                self.set()?;
            } else if self.field(table, UP_BIG_NUMBER) == ffi::LUA_TSTRING {
                write_big_number(self.reply, bytes_at(state, -1));
            } else if self.field(table, UP_VERBATIM) != ffi::LUA_TTABLE || !self.verbatim() {
                ffi::lua_settop(state, table);
                self.array()?;
            }
            ffi::lua_settop(state, table - 1);
            Ok(())
        }
    }

    /// Replaces what lies above `table` by its field of that name, and returns the field's type.
    unsafe fn field(&mut self, table: c_int, name: c_int) -> c_int {
        // SAFETY: see the type.
        unsafe {
            ffi::lua_settop(self.state, table);
            ffi::lua_pushvalue(self.state, name);
            ffi::lua_rawget(self.state, table);
            ffi::lua_type(self.state, -1)
        }
    }

    /// Writes an array up to its first nil.
    unsafe fn array(&mut self) -> Result<(), TooLarge> {
        // SAFETY: see the type.
        unsafe {
            let mark = self.reply.mark();
            let mut n = 0;
            loop {
                ffi::lua_rawgeti(self.state, -1, n as i64 + 1);
                if ffi::lua_type(self.state, -1) == ffi::LUA_TNIL {
                    break;
                }
                self.value()?;
                n += 1;
            }
            ffi::lua_settop(self.state, -2);
            self.reply.insert_array_header(mark, n);
            Ok(())
        }
    }

    unsafe fn map(&mut self) -> Result<(), TooLarge> {
        // SAFETY: see the type; the map is not changed while `lua_next` walks it.
        unsafe {
            let mark = self.reply.mark();
            let mut pairs = 0;
            ffi::lua_pushnil(self.state);
            while ffi::lua_next(self.state, -2) != 0 {
                ffi::lua_pushvalue(self.state, -2);
                self.value()?;
                self.value()?;
                pairs += 1;
            }
            self.reply.insert_map_header(mark, pairs);
            Ok(())
        }
    }

    unsafe fn set(&mut self) -> Result<(), TooLarge> {
        // SAFETY: see the type; the set is not changed while `lua_next` walks it.
        unsafe {
            let mark = self.reply.mark();
            let mut n = 0;
            ffi::lua_pushnil(self.state);
            while ffi::lua_next(self.state, -2) != 0 {
                ffi::lua_settop(self.state, -2);
                ffi::lua_pushvalue(self.state, -1);
                self.value()?;
                n += 1;
            }
            self.reply.insert_set_header(mark, n);
            Ok(())
        }
    }

    /// Writes a table as a verbatim string, if it is one.
    unsafe fn verbatim(&mut self) -> bool {
        let state = self.state;
        // SAFETY: see the type; both strings stay on the stack while they are used.
        unsafe {
            let table = ffi::lua_gettop(state);
            if self.field(table, UP_STRING) != ffi::LUA_TSTRING {
                return false;
            }
            ffi::lua_pushvalue(state, UP_FORMAT);
            ffi::lua_rawget(state, table);
            if ffi::lua_type(state, -1) != ffi::LUA_TSTRING {
                return false;
            }
            let mut format = [b' '; 3];
            for (to, &from) in format.iter_mut().zip(until_nul(bytes_at(state, -1))) {
                *to = without_line_end(from);
            }
            match str::from_utf8(&format) {
                Ok(format) => self.reply.verbatim(format, bytes_at(state, -2)),
                Err(_) => self.reply.bulk(bytes_at(state, -2)),
            }
            true
        }
    }
}

fn write_big_number(reply: &mut Reply<'_>, digits: &[u8]) {
    let digits = until_nul(digits);
    match reply.proto() {
        Proto::Resp3 => write_line(reply, b"(", digits),
        Proto::Resp2 => {
            let text: Vec<u8> = digits.iter().copied().map(without_line_end).collect();
            reply.bulk(&text);
        }
    }
}

/// A line of a reply. Line ends inside become spaces, and a NUL ends it: nothing that a script says can become a reply
/// of its own.
fn write_line(reply: &mut Reply<'_>, kind: &[u8], text: &[u8]) {
    let line: Vec<u8> = until_nul(text)
        .iter()
        .copied()
        .map(without_line_end)
        .collect();
    reply.raw(kind);
    reply.raw(&line);
    reply.raw(b"\r\n");
}

fn without_line_end(byte: u8) -> u8 {
    match byte {
        b'\r' | b'\n' => b' ',
        other => other,
    }
}

/// The part of `text` that Redis, where it is a C string, would see.
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |nul| &text[..nul])
}

/// A number as the integer that the reply has: towards zero, and the smallest one for whatever does not fit.
pub(super) fn truncate(n: f64) -> i64 {
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
