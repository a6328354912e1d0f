//! The library `cjson`: Lua values as JSON and back. Must not know commands.
//!
//! Both directions run without recursion, so that the depth is bounded by the interpreter's own stack alone, and read
//! the clock as they go. Where a number leaves the range of an integer, or a text the memory that is left, there is an
//! error. The functions accept the same as the library of that name, version 2.1.0, with the same errors.

use std::ffi::{CStr, c_int};
use std::io::Write;

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::format::append_general;
use super::strings::check_string;
use super::to_lua::push_bytes;
use super::to_reply::bytes_at;
use super::watch::look;
use super::{Machine, machine, raise_argument, raise_format, raise_memory};

/// Steps (values, or pieces of a text) between two reads of the clock.
const STEPS_PER_LOOK: u32 = 1_024;

/// Bytes of a text that count as one step.
const PIECE_BYTES: usize = 1 << 10;

const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 10] = [
    (c"encode", encode),
    (c"decode", decode),
    (c"encode_sparse_array", encode_sparse_array),
    (c"encode_max_depth", encode_max_depth),
    (c"decode_max_depth", decode_max_depth),
    (c"encode_number_precision", encode_number_precision),
    (c"encode_keep_buffer", encode_keep_buffer),
    (c"encode_invalid_numbers", encode_invalid_numbers),
    (c"decode_invalid_numbers", decode_invalid_numbers),
    (c"new", new),
];

/// Settings object of one instance of the library. The functions find it as their upvalue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    converts_sparse: bool,
    sparse_ratio: c_int,
    sparse_safe: c_int,
    encode_depth_max: c_int,
    decode_depth_max: c_int,
    precision: c_int,
    /// Without effect: one buffer serves all, and is given back when it has become large.
    keeps_buffer: bool,
    encode_invalid: InvalidNumbers,
    decode_invalid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNumbers {
    Off,
    On,
    Null,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1_000,
            decode_depth_max: 1_000,
            precision: 14,
            keeps_buffer: true,
            encode_invalid: InvalidNumbers::Off,
            decode_invalid: true,
        }
    }
}

/// Pushes an instance of the library, and returns its settings, which live as long as its functions.
///
/// # Safety
/// Called protected, with room on the stack.
pub(super) unsafe fn push_library(state: *mut lua_State) -> *mut Settings {
    // SAFETY: as promised by the caller. The user data is aligned for any type, and `Settings` has no destructor.
    unsafe {
        ffi::lua_createtable(state, 0, 16);
        let library = ffi::lua_gettop(state);
        let settings = ffi::lua_newuserdata(state, size_of::<Settings>()).cast::<Settings>();
        settings.write(Settings::default());
        for (name, function) in FUNCTIONS {
            ffi::lua_pushvalue(state, library + 1);
            ffi::lua_pushcclosure(state, function, 1);
            ffi::lua_setfield(state, library, name.as_ptr());
        }
        ffi::lua_pushlightuserdata(state, std::ptr::null_mut());
        ffi::lua_setfield(state, library, c"null".as_ptr());
        for (name, value) in [(c"_NAME", c"cjson"), (c"_VERSION", c"2.1.0")] {
            ffi::lua_pushstring(state, value.as_ptr());
            ffi::lua_setfield(state, library, name.as_ptr());
        }
        ffi::lua_settop(state, library);
        settings
    }
}

unsafe extern "C-unwind" fn new(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, which has room for 20 values then.
    unsafe {
        ffi::lua_settop(state, 0);
        push_library(state);
        1
    }
}

/// # Safety
/// Called by a function of this library.
unsafe fn settings(state: *mut lua_State) -> *mut Settings {
    // SAFETY: as promised by the caller: the upvalue is what `push_library` has made.
    unsafe { ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast() }
}

//
// Settings
//

/// # Safety
/// Called by a function of this library; the text of the error is put together in the machine's buffer.
unsafe fn take_arguments(state: *mut lua_State, n: c_int) {
    // SAFETY: as promised by the caller.
    unsafe {
        if ffi::lua_gettop(state) > n {
            ffi::luaL_argerror(state, n + 1, c"found too many arguments".as_ptr());
        }
        ffi::lua_settop(state, n);
    }
}

/// Changes a number by the argument at `index`, if there is one, and pushes its current value.
///
/// # Safety
/// As for [`take_arguments`].
unsafe fn integer(state: *mut lua_State, index: c_int, n: &mut c_int, min: c_int, max: c_int) {
    // SAFETY: as promised by the caller.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TNIL {
            let wanted = ffi::luaL_checkinteger(state, index);
            if wanted < min.into() || wanted > max.into() {
                let machine = machine(state);
                raise_argument(state, machine, 1, |out| {
                    let _ = write!(out, "expected integer between {min} and {max}");
                });
            }
            *n = wanted as c_int;
        }
        ffi::lua_pushnumber(state, f64::from(*n));
    }
}

/// Returns the argument at `index` as one of the words that a setting has; the first two are also a truth value.
///
/// # Safety
/// As for [`take_arguments`].
unsafe fn choice(state: *mut lua_State, index: c_int, words: &[&str]) -> Option<usize> {
    // SAFETY: as promised by the caller.
    unsafe {
        match ffi::lua_type(state, index) {
            ffi::LUA_TNIL => None,
            ffi::LUA_TBOOLEAN => Some(ffi::lua_toboolean(state, index) as usize),
            _ => {
                let word = super::to_reply::until_nul(check_string(state, index));
                let found = words.iter().position(|known| known.as_bytes() == word);
                if found.is_none() {
                    let machine = machine(state);
                    raise_argument(state, machine, index, |out| {
                        for piece in [b"invalid option '", word, b"'"] {
                            out.extend_from_slice(piece);
                        }
                    });
                }
                found
            }
        }
    }
}

unsafe extern "C-unwind" fn encode_sparse_array(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; no other code has a borrow of the settings meanwhile.
    unsafe {
        take_arguments(state, 3);
        let settings = settings(state);
        if let Some(choice) = choice(state, 1, &["off", "on"]) {
            (*settings).converts_sparse = choice == 1;
        }
        ffi::lua_pushboolean(state, (*settings).converts_sparse.into());
        integer(state, 2, &mut (*settings).sparse_ratio, 0, c_int::MAX);
        integer(state, 3, &mut (*settings).sparse_safe, 0, c_int::MAX);
        3
    }
}

unsafe extern "C-unwind" fn encode_max_depth(state: *mut lua_State) -> c_int {
    // SAFETY: as for `encode_sparse_array`.
    unsafe {
        take_arguments(state, 1);
        let depth = &mut (*settings(state)).encode_depth_max;
        integer(state, 1, depth, 1, c_int::MAX);
        1
    }
}

unsafe extern "C-unwind" fn decode_max_depth(state: *mut lua_State) -> c_int {
    // SAFETY: as for `encode_sparse_array`.
    unsafe {
        take_arguments(state, 1);
        let depth = &mut (*settings(state)).decode_depth_max;
        integer(state, 1, depth, 1, c_int::MAX);
        1
    }
}

unsafe extern "C-unwind" fn encode_number_precision(state: *mut lua_State) -> c_int {
    // SAFETY: as for `encode_sparse_array`.
    unsafe {
        take_arguments(state, 1);
        integer(state, 1, &mut (*settings(state)).precision, 1, 14);
        1
    }
}

unsafe extern "C-unwind" fn encode_keep_buffer(state: *mut lua_State) -> c_int {
    // SAFETY: as for `encode_sparse_array`.
    unsafe {
        take_arguments(state, 1);
        let settings = settings(state);
        if let Some(choice) = choice(state, 1, &["off", "on"]) {
            (*settings).keeps_buffer = choice == 1;
        }
        ffi::lua_pushboolean(state, (*settings).keeps_buffer.into());
        1
    }
}

unsafe extern "C-unwind" fn encode_invalid_numbers(state: *mut lua_State) -> c_int {
    use InvalidNumbers::{Null, Off, On};
    // SAFETY: as for `encode_sparse_array`.
    unsafe {
        take_arguments(state, 1);
        let settings = settings(state);
        if let Some(choice) = choice(state, 1, &["off", "on", "null"]) {
            (*settings).encode_invalid = [Off, On, Null][choice];
        }
        match (*settings).encode_invalid {
            Null => _ = ffi::lua_pushstring(state, c"null".as_ptr()),
            other => ffi::lua_pushboolean(state, (other == On).into()),
        }
        1
    }
}

unsafe extern "C-unwind" fn decode_invalid_numbers(state: *mut lua_State) -> c_int {
    // SAFETY: as for `encode_sparse_array`.
    unsafe {
        take_arguments(state, 1);
        let settings = settings(state);
        if let Some(choice) = choice(state, 1, &["off", "on"]) {
            (*settings).decode_invalid = choice == 1;
        }
        ffi::lua_pushboolean(state, (*settings).decode_invalid.into());
        1
    }
}

//
// Encoding
//

/// A table of which a part is written (or of which a part is read).
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    /// Elements done, and how many there are. On the stack: the table.
    Array { done: c_int, len: c_int },
    /// An object; `is_empty` is true until it has a member. On the stack: the table and a key.
    Object { is_empty: bool },
}

unsafe extern "C-unwind" fn encode(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; nothing else uses the buffer and the levels meanwhile.
    unsafe {
        if ffi::lua_gettop(state) != 1 {
            ffi::luaL_argerror(state, 1, c"expected 1 argument".as_ptr());
        }
        let machine = machine(state);
        (*machine).text.clear();
        (*machine).json_levels.clear();
        let mut encoder = Encoder {
            state,
            machine,
            settings: *settings(state),
            steps: 0,
        };
        encoder.value();
        while encoder.step() {}
        push_bytes(state, &(*machine).text);
        (*machine).trim_text();
        1
    }
}

/// Writes to the machine's buffer. The methods are called protected and own nothing.
struct Encoder {
    state: *mut lua_State,
    machine: *mut Machine,
    settings: Settings,
    steps: u32,
}

impl Encoder {
    /// Writes the value on top of the stack and pops it, or opens a level for it.
    unsafe fn value(&mut self) {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            match ffi::lua_type(state, -1) {
                ffi::LUA_TSTRING => self.text(bytes_at(state, -1)),
                ffi::LUA_TNUMBER => self.number(),
                ffi::LUA_TBOOLEAN if ffi::lua_toboolean(state, -1) != 0 => self.append(b"true"),
                ffi::LUA_TBOOLEAN => self.append(b"false"),
                ffi::LUA_TNIL => self.append(b"null"),
                ffi::LUA_TLIGHTUSERDATA if ffi::lua_touserdata(state, -1).is_null() => {
                    self.append(b"null");
                }
                ffi::LUA_TTABLE => return self.open(),
                _ => self.refuse(-1, "type not supported"),
            }
            ffi::lua_settop(state, -2);
        }
    }

    unsafe fn open(&mut self) {
        let state = self.state;
        // SAFETY: see the type.
        unsafe {
            let depth = (*self.machine).json_levels.len() + 1;
            if depth > self.settings.encode_depth_max as usize || ffi::lua_checkstack(state, 3) == 0
            {
                let text = format_args!("Cannot serialise, excessive nesting ({depth})");
                raise_format(state, self.machine, text);
            }
            let level = match self.array_len() {
                Some(len @ 1..) => {
                    self.append(b"[");
                    Level::Array { done: 0, len }
                }
                _ => {
                    self.append(b"{");
                    ffi::lua_pushnil(state);
                    Level::Object { is_empty: true }
                }
            };
            (*self.machine).json_levels.push(level);
        }
    }

    /// Writes the next element of the innermost level, or closes that; returns false if there is none.
    unsafe fn step(&mut self) -> bool {
        let state = self.state;
        // SAFETY: see the type; the tables are not changed while `lua_next` walks them. No level comes or goes while
        // `open` is in use.
        unsafe {
            self.count_step();
            let Some(level) = (*self.machine).json_levels.last_mut() else {
                return false;
            };
            let (level, open) = (*level, level as *mut Level);
            let is_over = match level {
                Level::Array { done, len } => done == len,
                Level::Object { .. } => ffi::lua_next(state, -2) == 0,
            };
            if is_over {
                self.append(match level {
                    Level::Array { .. } => b"]",
                    Level::Object { .. } => b"}",
                });
                (*self.machine).json_levels.pop();
                ffi::lua_settop(state, -2);
                return true;
            }
            match level {
                Level::Array { done, len } => {
                    if done > 0 {
                        self.append(b",");
                    }
                    let done = done + 1;
                    *open = Level::Array { done, len };
                    ffi::lua_rawgeti(state, -1, done.into());
                }
                Level::Object { is_empty } => {
                    if !is_empty {
                        self.append(b",");
                    }
                    *open = Level::Object { is_empty: false };
                    self.key();
                }
            }
            self.value();
            true
        }
    }

    /// Writes the key below the value on top of the stack.
    unsafe fn key(&mut self) {
        let state = self.state;
        // SAFETY: see the type; a number is copied before it is looked at, so that the key stays what it is.
        unsafe {
            match ffi::lua_type(state, -2) {
                ffi::LUA_TSTRING => self.text(bytes_at(state, -2)),
                ffi::LUA_TNUMBER => {
                    self.append(b"\"");
                    ffi::lua_pushvalue(state, -2);
                    self.number();
                    ffi::lua_settop(state, -2);
                    self.append(b"\"");
                }
                _ => self.refuse(-2, "table key must be a number or string"),
            }
            self.append(b":");
        }
    }

    /// Returns the length of the table on top of the stack as an array, or none if it is no array.
    unsafe fn array_len(&mut self) -> Option<c_int> {
        let state = self.state;
        let (mut max, mut items) = (0, 0i64);
        // SAFETY: see the type.
        unsafe {
            ffi::lua_pushnil(state);
            while ffi::lua_next(state, -2) != 0 {
                let key = match ffi::lua_type(state, -2) {
                    ffi::LUA_TNUMBER => ffi::lua_tonumber(state, -2),
                    _ => 0.0,
                };
                if key < 1.0 || key > f64::from(c_int::MAX) || key.fract() != 0.0 {
                    ffi::lua_settop(state, -3);
                    return None;
                }
                max = max.max(key as c_int);
                items += 1;
                ffi::lua_settop(state, -2);
                self.count_step();
            }
            let Settings {
                sparse_ratio,
                sparse_safe,
                ..
            } = self.settings;
            let is_sparse = sparse_ratio > 0
                && i64::from(max) > items * i64::from(sparse_ratio)
                && max > sparse_safe;
            if is_sparse {
                if !self.settings.converts_sparse {
                    self.refuse(-1, "excessively sparse array");
                }
                return None;
            }
            Some(max)
        }
    }

    /// Writes the number on top of the stack.
    unsafe fn number(&mut self) {
        // SAFETY: see the type.
        unsafe {
            let n = ffi::lua_tonumber(self.state, -1);
            if n.is_finite() {
                return append_general(&mut (*self.machine).text, n, self.settings.precision);
            }
            match self.settings.encode_invalid {
                InvalidNumbers::Off => self.refuse(-1, "must not be NaN or Inf"),
                InvalidNumbers::Null => self.append(b"null"),
                InvalidNumbers::On if n.is_nan() => self.append(b"nan"),
                InvalidNumbers::On if n < 0.0 => self.append(b"-inf"),
                InvalidNumbers::On => self.append(b"inf"),
            }
        }
    }

    unsafe fn text(&mut self, text: &[u8]) {
        // SAFETY: see the type; the text stays on the stack.
        unsafe {
            self.append(b"\"");
            for piece in text.chunks(PIECE_BYTES) {
                escape(&mut (*self.machine).text, piece);
                self.count_step();
                self.check_memory();
            }
            self.append(b"\"");
        }
    }

    unsafe fn append(&mut self, bytes: &[u8]) {
        // SAFETY: see the type.
        unsafe { (*self.machine).text.extend_from_slice(bytes) };
    }

    unsafe fn count_step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_LOOK) {
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

    /// Raises the error about the value at `index`.
    unsafe fn refuse(&mut self, index: c_int, why: &str) -> ! {
        // SAFETY: see the type.
        unsafe {
            let kind = ffi::lua_typename(self.state, ffi::lua_type(self.state, index));
            let kind = CStr::from_ptr(kind).to_str().unwrap_or("");
            let text = format_args!("Cannot serialise {kind}: {why}");
            raise_format(self.state, self.machine, text)
        }
    }
}

/// Appends a piece of a text as it stands between quotes.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    let mut plain_from = 0;
    for (at, &byte) in text.iter().enumerate() {
        let short = match byte {
            b'"' | b'\\' | b'/' => byte,
            8 => b'b',
            9 => b't',
            10 => b'n',
            12 => b'f',
            13 => b'r',
            0..=31 | 127 => b'u',
            _ => continue,
        };
        out.extend_from_slice(&text[plain_from..at]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            let digit = |n: u8| b"0123456789abcdef"[usize::from(n)];
            out.extend_from_slice(&[b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
        }
        plain_from = at + 1;
    }
    out.extend_from_slice(&text[plain_from..]);
}

//
// Decoding
//

unsafe extern "C-unwind" fn decode(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; nothing else uses the buffer and the levels meanwhile. The text stays at the
    // bottom of the stack.
    unsafe {
        if ffi::lua_gettop(state) != 1 {
            ffi::luaL_argerror(state, 1, c"expected 1 argument".as_ptr());
        }
        let machine = machine(state);
        let source = check_string(state, 1);
        if let [0, _, ..] | [_, 0, ..] = source {
            let text = format_args!("JSON parser does not support UTF-16 or UTF-32");
            raise_format(state, machine, text);
        }
        (*machine).json_levels.clear();
        let mut decoder = Decoder {
            state,
            machine,
            settings: *settings(state),
            source,
            at: 0,
            token_at: 0,
            steps: 0,
        };
        let mut token = decoder.next();
        while !decoder.value(&mut token) {}
        (*machine).trim_text();
        1
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// Its text is in the machine's buffer.
    Text,
    Number(f64),
    Bool(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Bool(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

/// Reads a text. The methods are called protected and own nothing.
struct Decoder<'a> {
    state: *mut lua_State,
    machine: *mut Machine,
    settings: Settings,
    source: &'a [u8],
    at: usize,
    /// Start of the token that was read last, or the place where it is wrong.
    token_at: usize,
    steps: u32,
}

impl Decoder<'_> {
    /// Pushes the value that starts with `token`, or opens a level for it; returns true once the outermost one is
    /// whole. `token` becomes the one behind.
    unsafe fn value(&mut self, token: &mut Token) -> bool {
        let state = self.state;
        // SAFETY: see the type; `descend` has made room for a table, a key and a value.
        unsafe {
            self.count_step();
            match *token {
                Token::Text => push_bytes(state, &(*self.machine).text),
                Token::Number(n) => ffi::lua_pushnumber(state, n),
                Token::Bool(value) => ffi::lua_pushboolean(state, value.into()),
                Token::Null => ffi::lua_pushlightuserdata(state, std::ptr::null_mut()),
                Token::ObjectBegin => {
                    self.descend(3);
                    ffi::lua_createtable(state, 0, 0);
                    *token = self.next();
                    if *token != Token::ObjectEnd {
                        self.key(token);
                        let level = Level::Object { is_empty: false };
                        (*self.machine).json_levels.push(level);
                        return false;
                    }
                }
                Token::ArrayBegin => {
                    self.descend(2);
                    ffi::lua_createtable(state, 0, 0);
                    *token = self.next();
                    if *token != Token::ArrayEnd {
                        let level = Level::Array { done: 0, len: 0 };
                        (*self.machine).json_levels.push(level);
                        return false;
                    }
                }
                other => self.refuse("value", other),
            }
            while let Some(level) = (*self.machine).json_levels.last_mut() {
                match level {
                    Level::Array { done, .. } => {
                        // A text is not that long.
                        *done += 1;
                        ffi::lua_rawseti(state, -2, (*done).into());
                        *token = self.next();
                        match *token {
                            Token::Comma => {
                                *token = self.next();
                                return false;
                            }
                            Token::ArrayEnd => {}
                            other => self.refuse("comma or array end", other),
                        }
                    }
                    Level::Object { .. } => {
                        ffi::lua_rawset(state, -3);
                        *token = self.next();
                        match *token {
                            Token::Comma => {
                                *token = self.next();
                                self.key(token);
                                return false;
                            }
                            Token::ObjectEnd => {}
                            other => self.refuse("comma or object end", other),
                        }
                    }
                }
                (*self.machine).json_levels.pop();
            }
            *token = self.next();
            if *token != Token::End {
                self.refuse("the end", *token);
            }
            true
        }
    }

    unsafe fn descend(&mut self, slots: c_int) {
        // SAFETY: see the type.
        unsafe {
            let depth = (*self.machine).json_levels.len() + 1;
            if depth > self.settings.decode_depth_max as usize
                || ffi::lua_checkstack(self.state, slots) == 0
            {
                let at = self.at;
                let text = format_args!(
                    "Found too many nested data structures ({depth}) at character {at}"
                );
                raise_format(self.state, self.machine, text);
            }
        }
    }

    /// Pushes the key that `token` is, and reads the colon and the first token of the value.
    unsafe fn key(&mut self, token: &mut Token) {
        // SAFETY: see the type.
        unsafe {
            if *token != Token::Text {
                self.refuse("object key string", *token);
            }
            push_bytes(self.state, &(*self.machine).text);
            *token = self.next();
            if *token != Token::Colon {
                self.refuse("colon", *token);
            }
            *token = self.next();
        }
    }

    unsafe fn refuse(&mut self, wanted: &str, found: Token) -> ! {
        // SAFETY: see the type.
        unsafe {
            let (found, at) = (found.name(), self.token_at + 1);
            let text = format_args!("Expected {wanted} but found {found} at character {at}");
            raise_format(self.state, self.machine, text)
        }
    }

    unsafe fn count_step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_LOOK) {
            // SAFETY: see the type.
            unsafe { look(self.state, self.machine) };
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.source.get(self.at + ahead).copied().unwrap_or(0)
    }

    unsafe fn next(&mut self) -> Token {
        while let b' ' | b'\t' | b'\n' | b'\r' = self.peek(0) {
            self.at += 1;
            if self.at.is_multiple_of(PIECE_BYTES) {
                // SAFETY: see the type.
                unsafe { self.count_step() };
            }
        }
        self.token_at = self.at;
        let token = match self.peek(0) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            0 => return Token::End,
            // SAFETY: see the type.
            b'"' => return unsafe { self.text() },
            b'-' | b'0'..=b'9' => {
                return match self.settings.decode_invalid || !self.is_invalid_number() {
                    true => self.number(),
                    false => Token::Error("invalid number"),
                };
            }
            _ => return self.word(),
        };
        self.at += 1;
        token
    }

    fn word(&mut self) -> Token {
        let rest = &self.source[self.at..];
        for (word, token) in [
            (&b"true"[..], Token::Bool(true)),
            (b"false", Token::Bool(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        match self.settings.decode_invalid && self.is_invalid_number() {
            true => self.number(),
            false => Token::Error("invalid token"),
        }
    }

    /// Returns true if a number starts here that JSON does not have, but C does.
    fn is_invalid_number(&self) -> bool {
        let sign = usize::from(self.peek(0) == b'-');
        match self.peek(sign) {
            b'+' => sign == 0,
            b'0' => matches!(self.peek(sign + 1), b'x' | b'X' | b'0'..=b'9'),
            0..=b'9' => false,
            _ => {
                let word = self.source.get(self.at + sign..self.at + sign + 3);
                word.is_some_and(|word| {
                    word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
                })
            }
        }
    }

    fn number(&mut self) -> Token {
        let start = self.source[self.at..].as_ptr();
        let mut end = std::ptr::null_mut();
        // SAFETY: a string of the interpreter ends with a NUL, before which the number ends.
        let n = unsafe { libc::strtod(start.cast(), &mut end) };
        let len = end.addr() - start.addr();
        if len == 0 {
            return Token::Error("invalid number");
        }
        self.at += len;
        Token::Number(n)
    }

    /// Reads a text into the machine's buffer.
    unsafe fn text(&mut self) -> Token {
        // SAFETY: see the type.
        unsafe {
            (*self.machine).text.clear();
            self.at += 1;
            loop {
                let rest = &self.source[self.at..];
                let rest = &rest[..rest.len().min(PIECE_BYTES)];
                let plain = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0));
                let plain = plain.unwrap_or(rest.len());
                (*self.machine).text.extend_from_slice(&rest[..plain]);
                self.at += plain;
                if plain == PIECE_BYTES {
                    self.count_step();
                    continue;
                }
                match self.peek(0) {
                    b'"' => {
                        self.at += 1;
                        return Token::Text;
                    }
                    b'\\' => {
                        if let Err(why) = self.escaped() {
                            self.token_at = self.at;
                            return Token::Error(why);
                        }
                    }
                    0 => {
                        self.token_at = self.at;
                        return Token::Error("unexpected end of string");
                    }
                    // The piece was cut short by nothing but its own end.
                    _ => {}
                }
            }
        }
    }

    unsafe fn escaped(&mut self) -> Result<(), &'static str> {
        let byte = match self.peek(1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (code, len) = self.code_point().ok_or("invalid unicode escape code")?;
                let mut utf8 = [0; 4];
                let utf8 = code.encode_utf8(&mut utf8);
                // SAFETY: see the type.
                unsafe { (*self.machine).text.extend_from_slice(utf8.as_bytes()) };
                self.at += len;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        // SAFETY: see the type.
        unsafe { (*self.machine).text.push(byte) };
        self.at += 2;
        Ok(())
    }

    /// Returns the character that is escaped here, and the length of the escape.
    fn code_point(&self) -> Option<(char, usize)> {
        let unit = |from: usize| {
            (from..from + 4).try_fold(0, |code, i| {
                Some(code << 4 | char::from(self.peek(i)).to_digit(16)?)
            })
        };
        let first = unit(2)?;
        if first & 0xf800 != 0xd800 {
            return Some((char::from_u32(first)?, 6));
        }
        if first & 0x400 != 0 || self.peek(6) != b'\\' || self.peek(7) != b'u' {
            return None;
        }
        let second = unit(8)?;
        if second & 0xfc00 != 0xdc00 {
            return None;
        }
        let code = 0x1_0000 + ((first & 0x3ff) << 10 | second & 0x3ff);
        Some((char::from_u32(code)?, 12))
    }
}
