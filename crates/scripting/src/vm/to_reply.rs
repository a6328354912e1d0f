//! Lua values as replies. Must not know commands.

use std::ffi::c_int;

use mlua_sys as ffi;
use mlua_sys::lua_State;
use redline_resp::{Mark, Proto, Reply};

use super::set_up::{
    UP_BIG_NUMBER, UP_DOUBLE, UP_ERR, UP_FORMAT, UP_IGNORE, UP_MAP, UP_OK, UP_SET, UP_STRING,
    UP_VERBATIM,
};
use super::{Machine, unpanicking};

/// Room that a value needs on the stack: of a map its table, a key, a value and the key's copy.
const SLOTS_PER_VALUE: c_int = 4;

/// Writes the value on top of the stack as the reply of a script, and pops it.
///
/// # Safety
/// Called protected from a function with the upvalues `NAMES`; `machine` is that of `state`.
pub(super) unsafe fn write(state: *mut lua_State, machine: *mut Machine, reply: &mut Reply<'_>) {
    let mark = reply.mark();
    let bytes_max = reply.buffer().len_bytes().saturating_add(
        // SAFETY: as promised by the caller.
        unsafe { (*machine).message_bytes_max },
    );
    // SAFETY: as promised by the caller. No other code uses `open_aggregates`; it is emptied here since an error may
    // have ended the last reply.
    unsafe {
        let open = &raw mut (*machine).open_aggregates;
        (*open).clear();
        let mut writer = Writer {
            state,
            proto: (*machine).proto,
            open: &mut *open,
            reply,
            machine,
        };
        writer.value();
        while writer.step() {
            if writer.reply.buffer().len_bytes() > bytes_max {
                reply.truncate(mark);
                return reply.error("ERR The reply of the script is too large");
            }
        }
    }
}

/// Reports an error that a script ends with to the environment.
///
/// # Safety
/// `machine` is that of an interpreter that runs; its environment is not in use.
pub(super) unsafe fn report(machine: *mut Machine, error: &[u8], counted: bool) {
    // SAFETY: as promised by the caller; what runs is there for as long as the machine points to it.
    unsafe {
        if let Some(running) = (*machine).running {
            unpanicking(|| (*running.as_ptr()).env.failed(error, counted));
        }
    }
}

/// An array, map or set of which a part is written.
#[derive(Debug)]
pub(super) struct Aggregate {
    kind: Kind,
    /// Place of its header.
    mark: Mark,
    /// Elements (of a map: pairs) written.
    n: usize,
}

/// State of an aggregate: its values on the stack, and the next step.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The table. Its next element.
    Array,
    /// The table, its field `map`, and a key of that. The next key.
    MapKey,
    /// The table, its field `map`, a key of that and the key's value. That value.
    MapValue,
    /// The table, its field `set`, and an element of that. The next element.
    Set,
}

/// A reply being written, without recursion: as deep as the interpreter's stack allows. The methods take their value
/// from the top of that stack; they need the upvalues `NAMES`, are called protected, and own nothing.
struct Writer<'a, 'r> {
    state: *mut lua_State,
    /// Protocol that the script has chosen, which decides the form of truth values; all else depends on the reply's own
    /// version.
    proto: Proto,
    open: &'a mut Vec<Aggregate>,
    reply: &'a mut Reply<'r>,
    /// Only to find the script's environment.
    machine: *mut Machine,
}

impl Writer<'_, '_> {
    /// Writes a value, and pops it, or opens an aggregate. Anything that has no reply is null.
    unsafe fn value(&mut self) {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            if ffi::lua_checkstack(state, SLOTS_PER_VALUE) == 0 {
                self.reply.error("ERR reached lua stack limit");
                return ffi::lua_settop(state, -2);
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
        }
    }

    /// Writes a table that is one of the typed forms, and pops it, or opens an aggregate.
    unsafe fn table(&mut self) {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            let table = ffi::lua_gettop(state);
            if self.field(table, UP_ERR) == ffi::LUA_TSTRING {
                let error = until_nul(bytes_at(state, -1));
                self.reply.error_bytes(error);
                ffi::lua_pushvalue(state, UP_IGNORE);
                ffi::lua_rawget(state, table);
                let counted = ffi::lua_toboolean(state, -1) != 0;
                report(self.machine, error, counted);
            } else if self.field(table, UP_OK) == ffi::LUA_TSTRING {
                write_line(self.reply, b"+", bytes_at(state, -1));
            } else if self.field(table, UP_DOUBLE) == ffi::LUA_TNUMBER {
                self.reply.double(ffi::lua_tonumber(state, -1));
            } else if self.field(table, UP_MAP) == ffi::LUA_TTABLE {
                ffi::lua_pushnil(state);
                return self.open(Kind::MapKey);
            } else if self.field(table, UP_SET) == ffi::LUA_TTABLE {
                ffi::lua_pushnil(state);
                return self.open(Kind::Set);
            } else if self.field(table, UP_BIG_NUMBER) == ffi::LUA_TSTRING {
                write_big_number(self.reply, bytes_at(state, -1));
            } else if self.field(table, UP_VERBATIM) != ffi::LUA_TTABLE || !self.verbatim() {
                ffi::lua_settop(state, table);
                return self.open(Kind::Array);
            }
            ffi::lua_settop(state, table - 1);
        }
    }

    fn open(&mut self, kind: Kind) {
        let mark = self.reply.mark();
        self.open.push(Aggregate { kind, mark, n: 0 });
    }

    /// Writes the next element of the aggregate that was opened last, or closes that. Returns false if none is open.
    unsafe fn step(&mut self) -> bool {
        let state = self.state;
        let Some(last) = self.open.last_mut() else {
            return false;
        };
        // SAFETY: see the type and `Kind`. The tables are not changed while `lua_next` walks them.
        unsafe {
            let is_over = match last.kind {
                Kind::Array => {
                    // Not `c_int`s, no array is that long.
                    ffi::lua_rawgeti(state, -1, last.n as i64 + 1) == ffi::LUA_TNIL
                }
                Kind::MapValue => false,
                Kind::MapKey => ffi::lua_next(state, -2) == 0,
                Kind::Set => {
                    let is_over = ffi::lua_next(state, -2) == 0;
                    if !is_over {
                        ffi::lua_settop(state, -2);
                        ffi::lua_pushvalue(state, -1);
                    }
                    is_over
                }
            };
            if is_over {
                self.close();
                return true;
            }
            match last.kind {
                Kind::Array | Kind::Set => last.n += 1,
                Kind::MapKey => {
                    ffi::lua_pushvalue(state, -2);
                    last.kind = Kind::MapValue;
                }
                Kind::MapValue => {
                    last.n += 1;
                    last.kind = Kind::MapKey;
                }
            }
            self.value();
            true
        }
    }

    /// Writes the header of the aggregate that was opened last, and pops its values from the stack: with the nil behind
    /// an array's last element, or without the key behind a map's, two values.
    unsafe fn close(&mut self) {
        if let Some(Aggregate { kind, mark, n }) = self.open.pop() {
            match kind {
                Kind::Array => self.reply.insert_array_header(mark, n),
                Kind::MapKey | Kind::MapValue => self.reply.insert_map_header(mark, n),
                Kind::Set => self.reply.insert_set_header(mark, n),
            }
            // SAFETY: see the type.
            unsafe { ffi::lua_settop(self.state, -3) };
        }
    }

    /// Replaces the values above `table` by its field of that name, and returns the field's type.
    unsafe fn field(&mut self, table: c_int, name: c_int) -> c_int {
        // SAFETY: see the type.
        unsafe {
            ffi::lua_settop(self.state, table);
            ffi::lua_pushvalue(self.state, name);
            ffi::lua_rawget(self.state, table);
            ffi::lua_type(self.state, -1)
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

/// Writes a line of a reply. Line ends inside become spaces, and a NUL ends it: no text of a script can become a reply
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

/// Returns the part of `text` that Redis, where it is a C string, would see.
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |nul| &text[..nul])
}

/// The first number above the integers.
pub(super) const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// Returns a number as the integer that the reply has: towards zero, and the smallest one for a number that does not
/// fit.
pub(super) fn truncate(n: f64) -> i64 {
    if (-TWO_63..TWO_63).contains(&n) {
        n as i64
    } else {
        i64::MIN
    }
}

/// Returns the string at `index`.
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
