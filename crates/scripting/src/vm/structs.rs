//! The library `struct`: numbers and texts in the layout of C. Must not know commands.
//!
//! Sizes are sums of at most as many numbers below 2^31 as the format has bytes, so they do not overflow; every access
//! is checked against the bytes that there are. Cases that C leaves undefined (integers of more than eight bytes) are
//! as on x86-64.

use std::ffi::{CStr, c_int};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::strings::check_string;
use super::to_lua::push_bytes;
use super::to_reply::{TWO_63, truncate, until_nul};
use super::watch::look;
use super::{Machine, machine, raise_argument, raise_format, raise_memory, raise_text};

const ALIGNMENT_DEFAULT: usize = 8;
const INTEGER_BYTES_MAX: usize = 32;

/// Options between two reads of the clock.
const OPTIONS_PER_LOOK: u32 = 1_024;

const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 3] =
    [(c"pack", pack), (c"unpack", unpack), (c"size", size)];

/// Pushes the library.
///
/// # Safety
/// Called protected, with room on the stack.
pub(super) unsafe fn push_library(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_createtable(state, 0, 4);
        for (name, function) in FUNCTIONS {
            ffi::lua_pushcclosure(state, function, 0);
            ffi::lua_setfield(state, -2, name.as_ptr());
        }
    }
}

/// A format being read. The methods are called protected and own nothing.
struct Format<'a> {
    state: *mut lua_State,
    machine: *mut Machine,
    rest: &'a [u8],
    is_big_endian: bool,
    alignment: usize,
    options: u32,
}

impl<'a> Format<'a> {
    /// Returns the format that is the first argument.
    ///
    /// # Safety
    /// Called by a function that the interpreter has called and that owns nothing; the format stays on the stack.
    unsafe fn new(state: *mut lua_State) -> Format<'a> {
        // SAFETY: as promised by the caller.
        unsafe {
            Format {
                state,
                machine: machine(state),
                rest: until_nul(check_string(state, 1)),
                is_big_endian: false,
                alignment: 1,
                options: 0,
            }
        }
    }

    /// Returns the next option, and its size; none for an option without a fixed one.
    unsafe fn next(&mut self) -> Option<(u8, usize)> {
        let (&option, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.options += 1;
        // SAFETY: see the type.
        unsafe {
            if self.options.is_multiple_of(OPTIONS_PER_LOOK) {
                look(self.state, self.machine);
            }
            let size = match option {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'f' => 4,
                b'l' | b'L' | b'T' | b'd' => 8,
                b'c' => self.number(1),
                b'i' | b'I' => {
                    let size = self.number(4);
                    if size > INTEGER_BYTES_MAX {
                        let text = format_args!(
                            "integral size {size} is larger than limit of {INTEGER_BYTES_MAX}"
                        );
                        raise_format(self.state, self.machine, text);
                    }
                    size
                }
                _ => 0,
            };
            Some((option, size))
        }
    }

    /// Returns the number that stands here, or `default`.
    unsafe fn number(&mut self, default: usize) -> usize {
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return default;
        }
        let (digits, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let number = digits.iter().try_fold(0i32, |number, digit| {
            let digit = i32::from(digit - b'0');
            number.checked_mul(10)?.checked_add(digit)
        });
        match number {
            Some(number) => number as usize,
            // SAFETY: see the type.
            None => unsafe { raise_text(self.state, b"integral size overflow") },
        }
    }

    /// Returns the number of bytes to leave out before something of this size, so that it is aligned.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(at & (size - 1)) & (size - 1)
    }

    /// Follows an option that stands for no value.
    unsafe fn control(&mut self, option: u8) {
        // SAFETY: see the type.
        unsafe {
            match option {
                b' ' => {}
                b'>' => self.is_big_endian = true,
                b'<' => self.is_big_endian = false,
                b'!' => {
                    let alignment = self.number(ALIGNMENT_DEFAULT);
                    if !alignment.is_power_of_two() {
                        let text = format_args!("alignment {alignment} is not a power of 2");
                        raise_format(self.state, self.machine, text);
                    }
                    self.alignment = alignment;
                }
                _ => raise_argument(self.state, self.machine, 1, |out| {
                    for piece in [&b"invalid format option '"[..], &[option], b"'"] {
                        out.extend_from_slice(piece);
                    }
                }),
            }
        }
    }

    fn ordered<const N: usize>(&self, mut little_endian: [u8; N]) -> [u8; N] {
        if self.is_big_endian {
            little_endian.reverse();
        }
        little_endian
    }
}

unsafe extern "C-unwind" fn pack(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; nothing else uses the buffer meanwhile.
    unsafe {
        let mut format = Format::new(state);
        let out = &raw mut (*format.machine).text;
        (*out).clear();
        // So that an argument that is not there is nil.
        ffi::lua_pushnil(state);
        let mut arg = 2;
        while let Some((option, size)) = format.next() {
            let padding = format.padding((*out).len(), option, size);
            (*out).extend_from_slice(&[0; INTEGER_BYTES_MAX][..padding]);
            match option {
                b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                    let n = to_bits(ffi::luaL_checknumber(state, arg));
                    let mut bytes = [0; INTEGER_BYTES_MAX];
                    bytes[..8].copy_from_slice(&n.to_le_bytes());
                    let bytes = &mut bytes[..size];
                    if format.is_big_endian {
                        bytes.reverse();
                    }
                    (*out).extend_from_slice(bytes);
                    arg += 1;
                }
                b'x' => (*out).push(0),
                b'f' => {
                    let n = ffi::luaL_checknumber(state, arg) as f32;
                    (*out).extend_from_slice(&format.ordered(n.to_le_bytes()));
                    arg += 1;
                }
                b'd' => {
                    let n = ffi::luaL_checknumber(state, arg);
                    (*out).extend_from_slice(&format.ordered(n.to_le_bytes()));
                    arg += 1;
                }
                b'c' | b's' => {
                    let text = check_string(state, arg);
                    arg += 1;
                    let size = if size == 0 { text.len() } else { size };
                    if text.len() < size {
                        ffi::luaL_argerror(state, arg, c"string too short".as_ptr());
                    }
                    if size > (*format.machine).memory.free() {
                        raise_memory(state, format.machine);
                    }
                    (*out).extend_from_slice(&text[..size]);
                    if option == b's' {
                        (*out).push(0);
                    }
                }
                other => format.control(other),
            }
            if (*out).len() > (*format.machine).memory.free() {
                raise_memory(state, format.machine);
            }
        }
        push_bytes(state, &*out);
        (*format.machine).trim_text();
        1
    }
}

unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; the format and the data stay on the stack.
    unsafe {
        let mut format = Format::new(state);
        let data = check_string(state, 2);
        let at = ffi::luaL_optinteger(state, 3, 1) as i64 as usize;
        if at == 0 {
            ffi::luaL_argerror(state, 3, c"offset must be 1 or greater".as_ptr());
        }
        let (mut at, mut results) = (at - 1, 0);
        ffi::lua_settop(state, 2);
        while let Some((option, size)) = format.next() {
            at = at.wrapping_add(format.padding(at, option, size));
            let Some(here) = data.get(at..).and_then(|data| data.get(..size)) else {
                raise_too_short(state, format.machine);
            };
            ffi::luaL_checkstack_(state, 2, c"too many results".as_ptr());
            let mut used = size;
            match option {
                b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                    let is_signed = option.is_ascii_lowercase();
                    ffi::lua_pushnumber(state, integer(here, format.is_big_endian, is_signed));
                    results += 1;
                }
                b'x' => {}
                b'f' => {
                    let mut bytes = [0; 4];
                    bytes.copy_from_slice(here);
                    let n = f64::from(f32::from_le_bytes(format.ordered(bytes)));
                    ffi::lua_pushnumber(state, plain_nan(n));
                    results += 1;
                }
                b'd' => {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(here);
                    let n = f64::from_le_bytes(format.ordered(bytes));
                    ffi::lua_pushnumber(state, plain_nan(n));
                    results += 1;
                }
                b'c' => {
                    if size == 0 {
                        if results == 0 || ffi::lua_isnumber(state, -1) == 0 {
                            raise_text(state, b"format 'c0' needs a previous size");
                        }
                        used = to_bits(ffi::lua_tonumber(state, -1)) as usize;
                        ffi::lua_settop(state, -2);
                        results -= 1;
                    }
                    let Some(text) = data[at..].get(..used) else {
                        raise_too_short(state, format.machine);
                    };
                    push_bytes(state, text);
                    results += 1;
                }
                b's' => {
                    let Some(len) = memchr::memchr(0, &data[at..]) else {
                        raise_text(state, b"unfinished string in data");
                    };
                    push_bytes(state, &data[at..at + len]);
                    used = len + 1;
                    results += 1;
                }
                other => format.control(other),
            }
            at += used;
        }
        // A place that nothing was read at may be below zero.
        ffi::lua_pushnumber(state, at.wrapping_add(1) as i64 as f64);
        results + 1
    }
}

/// # Safety
/// Called by a function that the interpreter has called and that owns nothing.
unsafe fn raise_too_short(state: *mut lua_State, machine: *mut Machine) -> ! {
    // SAFETY: as promised by the caller.
    unsafe {
        raise_argument(state, machine, 2, |out| {
            out.extend_from_slice(b"data string too short");
        })
    }
}

unsafe extern "C-unwind" fn size(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        let mut format = Format::new(state);
        let mut at = 0usize;
        while let Some((option, size)) = format.next() {
            at = at.wrapping_add(format.padding(at, option, size));
            let problem = match (option, size) {
                (b's', _) => Some(c"option 's' has no fixed size"),
                (b'c', 0) => Some(c"option 'c0' has no fixed size"),
                _ => None,
            };
            if let Some(problem) = problem {
                ffi::luaL_argerror(state, 1, problem.as_ptr());
            }
            if !option.is_ascii_alphanumeric() {
                format.control(option);
            }
            at = at.wrapping_add(size);
        }
        ffi::lua_pushnumber(state, at as f64);
        1
    }
}

/// Returns a number as the bits of an integer of eight bytes, as x86 does where C leaves it undefined.
fn to_bits(n: f64) -> u64 {
    match n < TWO_63 {
        true => truncate(n) as u64,
        false => truncate(n - TWO_63) as u64 ^ 1 << 63,
    }
}

fn integer(bytes: &[u8], is_big_endian: bool, is_signed: bool) -> f64 {
    let shift_in = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
    let bits = match is_big_endian {
        true => bytes.iter().fold(0, shift_in),
        false => bytes.iter().rev().fold(0, shift_in),
    };
    if !is_signed {
        return bits as f64;
    }
    let sign = u64::MAX.wrapping_shl((bytes.len() as u32 * 8).wrapping_sub(1));
    match bits & sign {
        0 => bits as i64 as f64,
        _ => (bits | sign) as i64 as f64,
    }
}

/// Returns a NaN of another form would be taken for a value that is no number.
fn plain_nan(n: f64) -> f64 {
    if n.is_nan() { f64::NAN } else { n }
}
