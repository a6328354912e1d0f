//! The library `cmsgpack`: Lua values as MessagePack and back. Must not know commands.
//!
//! Input is not trusted: a length is believed as far as there are bytes. Reading runs without recursion, as deep as the
//! interpreter's stack allows; writing goes sixteen levels deep, below which a table is nil.

use std::ffi::{CStr, c_int};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::strings::check_string;
use super::to_lua::push_bytes;
use super::to_reply::{TWO_63, bytes_at};
use super::watch::look;
use super::{Machine, machine, raise_format, raise_memory, raise_text};

/// Values between two reads of the clock.
const VALUES_PER_LOOK: u32 = 1_024;

/// Tables within tables that are written.
const NESTING_MAX: usize = 16;

const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 4] = [
    (c"pack", pack),
    (c"unpack", unpack),
    (c"unpack_one", unpack_one),
    (c"unpack_limit", unpack_limit),
];

const CONSTANTS: [(&CStr, &CStr); 4] = [
    (c"_NAME", c"cmsgpack"),
    (c"_VERSION", c"lua-cmsgpack 0.4.0"),
    (c"_COPYRIGHT", c"Copyright (C) 2012, Salvatore Sanfilippo"),
    (c"_DESCRIPTION", c"MessagePack C implementation for Lua"),
];

/// Pushes the library.
///
/// # Safety
/// Called protected, with room on the stack.
pub(super) unsafe fn push_library(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_createtable(state, 0, 8);
        for (name, function) in FUNCTIONS {
            ffi::lua_pushcclosure(state, function, 0);
            ffi::lua_setfield(state, -2, name.as_ptr());
        }
        for (name, value) in CONSTANTS {
            ffi::lua_pushstring(state, value.as_ptr());
            ffi::lua_setfield(state, -2, name.as_ptr());
        }
    }
}

/// A table of which a part is written or read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    /// Elements done, and how many there are. On the stack: the table.
    Array { done: u32, len: u32 },
    /// On the stack while it is written: the table and a key. While it is read, `left` values are to come.
    Map { left: u64 },
}

unsafe extern "C-unwind" fn pack(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; nothing else uses the buffer and the levels meanwhile.
    unsafe {
        let argc = ffi::lua_gettop(state);
        if argc == 0 {
            ffi::luaL_argerror(state, 0, c"MessagePack pack needs input.".as_ptr());
        }
        let machine = machine(state);
        (*machine).text.clear();
        (*machine).msgpack_levels.clear();
        ffi::luaL_checkstack_(state, 4, c"in function mp_check".as_ptr());
        let mut packer = Packer {
            state,
            machine,
            values: 0,
        };
        for index in 1..=argc {
            ffi::lua_pushvalue(state, index);
            packer.value();
            while packer.step() {}
        }
        push_bytes(state, &(*machine).text);
        (*machine).trim_text();
        1
    }
}

/// Writes to the machine's buffer. The methods are called protected and own nothing.
struct Packer {
    state: *mut lua_State,
    machine: *mut Machine,
    values: u32,
}

impl Packer {
    /// Writes the value on top of the stack and pops it, or opens a level for it.
    unsafe fn value(&mut self) {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            match ffi::lua_type(state, -1) {
                ffi::LUA_TSTRING => {
                    let text = bytes_at(state, -1);
                    if text.len() > (*self.machine).memory.free() {
                        raise_memory(state, self.machine);
                    }
                    self.head(text.len(), &[(0xa0, 31)], &[0xd9, 0xda, 0xdb]);
                    self.append(text);
                    self.check_memory();
                }
                ffi::LUA_TBOOLEAN if ffi::lua_toboolean(state, -1) != 0 => self.append(&[0xc3]),
                ffi::LUA_TBOOLEAN => self.append(&[0xc2]),
                ffi::LUA_TNUMBER => self.number(ffi::lua_tonumber(state, -1)),
                ffi::LUA_TTABLE if (*self.machine).msgpack_levels.len() < NESTING_MAX => {
                    return self.open();
                }
                _ => self.append(&[0xc0]),
            }
            ffi::lua_settop(state, -2);
        }
    }

    unsafe fn open(&mut self) {
        let state = self.state;
        // SAFETY: see the type; the interpreter has room for more than sixteen tables with a key and a value.
        unsafe {
            ffi::luaL_checkstack_(state, 4, c"in function mp_encode_lua_table".as_ptr());
            let (len, is_array) = self.measure();
            let level = match is_array {
                true => {
                    self.head(len, &[(0x90, 15)], &[0xdc, 0xdd]);
                    let len = len as u32;
                    Level::Array { done: 0, len }
                }
                false => {
                    self.head(len, &[(0x80, 15)], &[0xde, 0xdf]);
                    ffi::lua_pushnil(state);
                    Level::Map { left: 0 }
                }
            };
            (*self.machine).msgpack_levels.push(level);
        }
    }

    /// Returns how many members the table on top of the stack has, and whether these are the elements of an array.
    unsafe fn measure(&mut self) -> (usize, bool) {
        let state = self.state;
        let (mut count, mut max, mut is_array) = (0usize, 0.0f64, true);
        // SAFETY: see the type.
        unsafe {
            ffi::lua_pushnil(state);
            while ffi::lua_next(state, -2) != 0 {
                let key = match ffi::lua_type(state, -2) {
                    ffi::LUA_TNUMBER => ffi::lua_tonumber(state, -2),
                    _ => 0.0,
                };
                is_array &= key > 0.0 && key.fract() == 0.0;
                max = max.max(key);
                count += 1;
                ffi::lua_settop(state, -2);
                self.count_value();
            }
        }
        (count, is_array && max == count as f64)
    }

    /// Writes the next member of the innermost level, or closes that; returns false if there is none.
    unsafe fn step(&mut self) -> bool {
        let state = self.state;
        // SAFETY: see the type; the tables are not changed while `lua_next` walks them.
        unsafe {
            self.count_value();
            let is_over = match (*self.machine).msgpack_levels.last_mut() {
                None => return false,
                Some(Level::Array { done, len }) => {
                    let is_over = done == len;
                    *done += 1;
                    if !is_over {
                        ffi::lua_rawgeti(state, -1, (*done).into());
                    }
                    is_over
                }
                Some(Level::Map { .. }) => {
                    let is_over = ffi::lua_next(state, -2) == 0;
                    if !is_over {
                        self.key();
                    }
                    is_over
                }
            };
            match is_over {
                false => self.value(),
                true => {
                    (*self.machine).msgpack_levels.pop();
                    ffi::lua_settop(state, -2);
                }
            }
            true
        }
    }

    /// Writes the key below the value on top of the stack. A table as a key is written like any other, down to the
    /// same depth, though its members come to lie above the value.
    unsafe fn key(&mut self) {
        let state = self.state;
        // SAFETY: see the type. A level for a table is closed when as many are open as before.
        unsafe {
            let depth = (*self.machine).msgpack_levels.len();
            ffi::lua_pushvalue(state, -2);
            self.value();
            while (*self.machine).msgpack_levels.len() > depth {
                self.step();
            }
        }
    }

    unsafe fn number(&mut self, n: f64) {
        // SAFETY: see the type.
        unsafe {
            if (-TWO_63..TWO_63).contains(&n) && n.fract() == 0.0 {
                return self.integer(n as i64);
            }
            let narrow = n as f32;
            match f64::from(narrow) == n {
                true => {
                    self.append(&[0xca]);
                    self.append(&narrow.to_be_bytes());
                }
                false => {
                    self.append(&[0xcb]);
                    self.append(&n.to_be_bytes());
                }
            }
        }
    }

    unsafe fn integer(&mut self, n: i64) {
        let bytes = n.to_be_bytes();
        let (kind, len) = match n {
            // SAFETY: see the type.
            -32..=127 => return unsafe { self.append(&bytes[7..]) },
            128..=255 => (0xcc, 1),
            256..=0xffff => (0xcd, 2),
            0x1_0000..=0xffff_ffff => (0xce, 4),
            0x1_0000_0000.. => (0xcf, 8),
            -128..=-33 => (0xd0, 1),
            -0x8000..=-129 => (0xd1, 2),
            -0x8000_0000..=-0x8001 => (0xd2, 4),
            _ => (0xd3, 8),
        };
        // SAFETY: see the type.
        unsafe {
            self.append(&[kind]);
            self.append(&bytes[8 - len..]);
        }
    }

    /// Writes a length: within the byte of the kind, or behind the one of `kinds` that has room for it; the last two of
    /// these have two and four bytes.
    unsafe fn head(&mut self, len: usize, small: &[(u8, usize)], kinds: &[u8]) {
        let len = len.min(u32::MAX as usize);
        let bytes = (len as u32).to_be_bytes();
        let wide = kinds.len() - 1;
        // SAFETY: see the type.
        unsafe {
            for &(kind, max) in small {
                if len <= max {
                    return self.append(&[kind | bytes[3]]);
                }
            }
            if len <= 0xff && wide == 2 {
                self.append(&[kinds[0], bytes[3]]);
            } else if len <= 0xffff {
                self.append(&[kinds[wide - 1], bytes[2], bytes[3]]);
            } else {
                self.append(&[kinds[wide]]);
                self.append(&bytes);
            }
        }
    }

    unsafe fn append(&mut self, bytes: &[u8]) {
        // SAFETY: see the type.
        unsafe { (*self.machine).text.extend_from_slice(bytes) };
    }

    unsafe fn count_value(&mut self) {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_LOOK) {
            // SAFETY: see the type.
            unsafe {
                look(self.state, self.machine);
                self.check_memory();
            }
        }
    }

    unsafe fn check_memory(&mut self) {
        // SAFETY: see the type.
        unsafe {
            if (*self.machine).text.len() > (*self.machine).memory.free() {
                raise_memory(self.state, self.machine);
            }
        }
    }
}

unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe { unpack_some(state, 0, 0) }
}

unsafe extern "C-unwind" fn unpack_one(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        let offset = ffi::luaL_optinteger(state, 2, 0);
        check_string(state, 1);
        ffi::lua_settop(state, 1);
        unpack_some(state, 1, offset as i64)
    }
}

unsafe extern "C-unwind" fn unpack_limit(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        let limit = ffi::luaL_checkinteger(state, 2);
        let offset = ffi::luaL_optinteger(state, 3, 0);
        check_string(state, 1);
        ffi::lua_settop(state, 1);
        unpack_some(state, limit as i64, offset as i64)
    }
}

/// Reads `limit` values from `offset` on, and returns where it stopped (-1: at the end) before them; with neither, reads all.
///
/// # Safety
/// Called by the interpreter.
unsafe fn unpack_some(state: *mut lua_State, limit: i64, offset: i64) -> c_int {
    // SAFETY: as promised by the caller; the text stays at the bottom of the stack.
    unsafe {
        let machine = machine(state);
        let source = check_string(state, 1);
        let len = source.len();
        if offset < 0 || limit < 0 {
            let text = format_args!(
                "Invalid request to unpack with offset of {offset} and limit of {len}."
            );
            raise_format(state, machine, text);
        }
        if offset as u64 > len as u64 {
            let offset = offset as i32;
            let text = format_args!("Start offset {offset} greater than input length {len}.");
            raise_format(state, machine, text);
        }
        let is_all = limit == 0 && offset == 0;
        let limit = if is_all { i64::MAX } else { limit };
        let mut unpacker = Unpacker {
            state,
            machine,
            source,
            at: offset as usize,
            values: 0,
        };
        (*machine).msgpack_levels.clear();
        let mut count = 0;
        while unpacker.at < len && i64::from(count) < limit {
            const TOO_MANY: &CStr =
                c"too many return values at once; use unpack_one or unpack_limit instead.";
            ffi::luaL_checkstack_(state, 1, TOO_MANY.as_ptr());
            while !unpacker.value() {}
            count += 1;
        }
        if is_all {
            return count;
        }
        let at = unpacker.at;
        ffi::luaL_checkstack_(state, 1, c"in function mp_unpack_full".as_ptr());
        ffi::lua_pushnumber(state, if at == len { -1.0 } else { at as f64 });
        ffi::lua_insert(state, 2);
        count + 1
    }
}

/// Reads a text. The methods are called protected and own nothing.
struct Unpacker<'a> {
    state: *mut lua_State,
    machine: *mut Machine,
    source: &'a [u8],
    at: usize,
    values: u32,
}

impl<'a> Unpacker<'a> {
    /// Pushes the value that comes next, or opens a level for it; returns true once the outermost one is whole.
    unsafe fn value(&mut self) -> bool {
        let state = self.state;
        // SAFETY: see the type; there is room for one value, and `open` makes it for those in a table.
        unsafe {
            self.values += 1;
            if self.values.is_multiple_of(VALUES_PER_LOOK) {
                look(state, self.machine);
            }
            let kind = self.take(1)[0];
            match kind {
                0..=0x7f => ffi::lua_pushnumber(state, f64::from(kind)),
                0xe0.. => ffi::lua_pushnumber(state, f64::from(kind as i8)),
                0xa0..=0xbf => self.text(usize::from(kind & 31)),
                0x80..=0x8f => return self.open_map(u64::from(kind & 15)),
                0x90..=0x9f => return self.open_array(u32::from(kind & 15)),
                0xc0 => ffi::lua_pushnil(state),
                0xc2 | 0xc3 => ffi::lua_pushboolean(state, c_int::from(kind & 1)),
                0xca => {
                    let bits = self.unsigned(4) as u32;
                    ffi::lua_pushnumber(state, f64::from(f32::from_bits(bits)));
                }
                0xcb => {
                    // A NaN of another form would be taken for a value that is no number.
                    let n = f64::from_bits(self.unsigned(8));
                    ffi::lua_pushnumber(state, if n.is_nan() { f64::NAN } else { n });
                }
                0xcc..=0xcf => {
                    let n = self.unsigned(1 << (kind & 3)) as i64;
                    ffi::lua_pushnumber(state, n as f64);
                }
                0xd0..=0xd3 => {
                    let len = 1 << (kind & 3);
                    let unused = 64 - 8 * len as u32;
                    let n = (self.unsigned(len) << unused) as i64 >> unused;
                    ffi::lua_pushnumber(state, n as f64);
                }
                0xd9..=0xdb => {
                    let len = self.unsigned(1 << (kind - 0xd9));
                    self.text(len as usize);
                }
                0xdc | 0xdd => {
                    let len = self.unsigned(2 << (kind & 1)) as u32;
                    return self.open_array(len);
                }
                0xde | 0xdf => {
                    let len = self.unsigned(2 << (kind & 1));
                    return self.open_map(len);
                }
                _ => raise_text(state, b"Bad data format in input."),
            }
            self.close()
        }
    }

    unsafe fn open_array(&mut self, len: u32) -> bool {
        // SAFETY: see the type.
        unsafe {
            self.open(
                c"in function mp_decode_to_lua_array",
                Level::Array { done: 0, len },
                len == 0,
            )
        }
    }

    unsafe fn open_map(&mut self, pairs: u64) -> bool {
        // SAFETY: see the type.
        unsafe {
            self.open(
                c"in function mp_decode_to_lua_hash",
                Level::Map { left: 2 * pairs },
                pairs == 0,
            )
        }
    }

    unsafe fn open(&mut self, place: &CStr, level: Level, is_empty: bool) -> bool {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            ffi::luaL_checkstack_(state, 3, place.as_ptr());
            ffi::lua_createtable(state, 0, 0);
            if is_empty {
                return self.close();
            }
            if let Level::Array { .. } = level {
                ffi::lua_pushnumber(state, 1.0);
            }
            (*self.machine).msgpack_levels.push(level);
            false
        }
    }

    /// Gives the value on top of the stack to the innermost level, and goes on with those that are whole; returns true
    /// if all are.
    unsafe fn close(&mut self) -> bool {
        let state = self.state;
        // SAFETY: see the type; below the value there are a table and a key, or the value is the key.
        unsafe {
            while let Some(level) = (*self.machine).msgpack_levels.last_mut() {
                match level {
                    Level::Array { done, len } => {
                        ffi::lua_rawset(state, -3);
                        *done += 1;
                        if done < len {
                            ffi::lua_pushnumber(state, f64::from(*done) + 1.0);
                            return false;
                        }
                    }
                    Level::Map { left } => {
                        *left -= 1;
                        if left.is_multiple_of(2) {
                            check_key(state, -2);
                            ffi::lua_rawset(state, -3);
                        }
                        if *left > 0 {
                            return false;
                        }
                    }
                }
                (*self.machine).msgpack_levels.pop();
            }
            true
        }
    }

    unsafe fn text(&mut self, len: usize) {
        // SAFETY: see the type.
        unsafe { push_bytes(self.state, self.take(len)) };
    }

    unsafe fn unsigned(&mut self, len: usize) -> u64 {
        // SAFETY: see the type.
        let bytes = unsafe { self.take(len) };
        bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
    }

    unsafe fn take(&mut self, len: usize) -> &'a [u8] {
        let Some(taken) = self.source[self.at..].get(..len) else {
            // SAFETY: see the type.
            unsafe { raise_text(self.state, b"Missing bytes in input.") }
        };
        self.at += len;
        taken
    }
}

/// Raises an error if no table can have the key at `index`.
///
/// # Safety
/// Called protected, by a function that owns nothing.
unsafe fn check_key(state: *mut lua_State, index: c_int) {
    // SAFETY: as promised by the caller.
    unsafe {
        let problem = match ffi::lua_type(state, index) {
            ffi::LUA_TNIL => c"table index is nil",
            ffi::LUA_TNUMBER if ffi::lua_tonumber(state, index).is_nan() => c"table index is NaN",
            _ => return,
        };
        ffi::lua_pushstring(state, problem.as_ptr());
        ffi::lua_error(state);
    }
}
