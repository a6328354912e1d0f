//! `string.format`, as Lua 5.1 has it: LuaJIT accepts more, which would call back into the script on the native stack.
//! Must not know replies.

use std::ffi::{CStr, c_char, c_int};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::memory::NOT_ENOUGH_MEMORY;
use super::strings::check_string;
use super::to_lua::push_bytes;
use super::to_reply::{TWO_63, truncate, until_nul};
use super::{machine, raise_text};

/// Room for one directive with flags, a width and a precision of two digits each, and the length of the integer.
const DIRECTIVE_BYTES_MAX: usize = 16;

/// Room for one converted number: 310 digits, and 99 behind the point.
const ITEM_BYTES_MAX: usize = 512;

/// Length from which on a string without a precision is taken whole; a shorter one ends at a NUL.
const WHOLE_STRING_BYTES_MIN: usize = 100;

const FLAGS: &[u8] = b"-+ #0";

pub(super) unsafe extern "C-unwind" fn format(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, protected; nothing here owns anything. The result is put together in the
    // machine's buffer, which nothing else touches meanwhile. The template stays on the stack.
    unsafe {
        let template = check_string(state, 1);
        let machine = machine(state);
        let out = &raw mut (*machine).text;
        (*out).clear();
        let argc = ffi::lua_gettop(state);
        let (mut at, mut arg) = (0, 1);
        while let Some(&byte) = template.get(at) {
            at += 1;
            if byte != b'%' {
                (*out).push(byte);
                continue;
            }
            if template.get(at) == Some(&b'%') {
                (*out).push(b'%');
                at += 1;
                continue;
            }
            arg += 1;
            if arg > argc {
                ffi::luaL_argerror(state, arg, c"no value".as_ptr());
            }
            let (directive, conversion) = match scan(&template[at..]) {
                Ok(len) => (&template[at..at + len], template.get(at + len).copied()),
                Err(problem) => raise_text(state, problem.as_bytes()),
            };
            at += directive.len() + 1;
            item(state, &mut *out, directive, conversion.unwrap_or(0), arg);
            if (*out).len() > (*machine).memory.free() {
                (*machine).text = Vec::new();
                ffi::lua_pushstring(state, NOT_ENOUGH_MEMORY.as_ptr());
                ffi::lua_error(state);
            }
        }
        push_bytes(state, &*out);
        (*machine).trim_text();
        1
    }
}

/// Returns the length of the flags, width and precision at the start of `text`.
fn scan(text: &[u8]) -> Result<usize, &'static str> {
    let at = |i: usize| text.get(i).copied().unwrap_or(0);
    let digits = |i: usize| (0..2).take_while(|n| at(i + n).is_ascii_digit()).count();
    let mut len = text.iter().take_while(|b| FLAGS.contains(b)).count();
    if len > FLAGS.len() {
        return Err("invalid format (repeated flags)");
    }
    len += digits(len);
    if at(len) == b'.' {
        len += 1;
        len += digits(len);
    }
    if at(len).is_ascii_digit() {
        return Err("invalid format (width or precision too long)");
    }
    Ok(len)
}

/// Appends one argument.
///
/// # Safety
/// Called by [`format`](fn@format).
unsafe fn item(
    state: *mut lua_State,
    out: &mut Vec<u8>,
    directive: &[u8],
    conversion: u8,
    arg: c_int,
) {
    // SAFETY: as promised by the caller. Each call of `print` gets the one argument that its directive takes.
    unsafe {
        match conversion {
            b'c' => {
                let n = ffi::luaL_checknumber(state, arg);
                let n = truncate(n) as c_int;
                print(out, directive, b"", conversion, |buffer, len, form| {
                    libc::snprintf(buffer, len, form, n)
                });
            }
            b'd' | b'i' => {
                let n = truncate(ffi::luaL_checknumber(state, arg));
                print(out, directive, b"ll", conversion, |buffer, len, form| {
                    libc::snprintf(buffer, len, form, n)
                });
            }
            b'o' | b'u' | b'x' | b'X' => {
                let n = ffi::luaL_checknumber(state, arg);
                // As x86 does where C leaves it undefined.
                let n = match n < TWO_63 {
                    true => truncate(n) as u64,
                    false => truncate(n - TWO_63) as u64 ^ 1 << 63,
                };
                print(out, directive, b"ll", conversion, |buffer, len, form| {
                    libc::snprintf(buffer, len, form, n)
                });
            }
            b'e' | b'E' | b'f' | b'g' | b'G' => {
                let n = ffi::luaL_checknumber(state, arg);
                print(out, directive, b"", conversion, |buffer, len, form| {
                    libc::snprintf(buffer, len, form, n)
                });
            }
            b'q' => quote(out, check_string(state, arg)),
            b's' => {
                let text = check_string(state, arg);
                let has_precision = directive.contains(&b'.');
                if text.len() >= WHOLE_STRING_BYTES_MIN && !has_precision {
                    out.extend_from_slice(text);
                } else {
                    pad(out, directive, until_nul(text));
                }
            }
            other => {
                // Nothing stands for the end of the text, nor for a zero byte.
                let mut text = *b"invalid option '%' to 'format'\0";
                if other != 0 {
                    text.copy_within(17..30, 18);
                    text[17] = other;
                }
                raise_text(state, until_nul(&text));
            }
        }
    }
}

/// Appends the text that the C library prints for a number. `convert` calls it with a buffer, its length, and the
/// directive.
fn print(
    out: &mut Vec<u8>,
    directive: &[u8],
    length: &[u8],
    conversion: u8,
    convert: impl FnOnce(*mut c_char, usize, *const c_char) -> c_int,
) {
    let mut form = [0; DIRECTIVE_BYTES_MAX];
    let pieces = [b"%", directive, length, &[conversion]];
    let bytes = pieces.into_iter().flatten();
    // The last byte stays 0.
    form[..DIRECTIVE_BYTES_MAX - 1]
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    let mut buffer = [0u8; ITEM_BYTES_MAX];
    convert(
        buffer.as_mut_ptr().cast(),
        buffer.len(),
        form.as_ptr().cast(),
    );
    if let Ok(text) = CStr::from_bytes_until_nul(&buffer) {
        out.extend_from_slice(text.to_bytes());
    }
}

/// Appends a number with so many significant digits, at most 99.
pub(super) fn append_general(out: &mut Vec<u8>, n: f64, digits: c_int) {
    // SAFETY: the directive takes an `int` and a `double`, and the buffer has its length.
    print(out, b".*", b"", b'g', |buffer, len, form| unsafe {
        libc::snprintf(buffer, len, form, digits, n)
    });
}

/// Appends a string with the width and the precision that a directive has.
fn pad(out: &mut Vec<u8>, directive: &[u8], text: &[u8]) {
    let number = |digits: &[u8]| digits.iter().fold(0, |n, b| n * 10 + usize::from(b - b'0'));
    let flags = directive.iter().take_while(|b| FLAGS.contains(b)).count();
    let (flags, sizes) = directive.split_at(flags);
    let (width, text) = match sizes.iter().position(|b| *b == b'.') {
        None => (number(sizes), text),
        Some(dot) => {
            let precision = number(&sizes[dot + 1..]);
            (number(&sizes[..dot]), &text[..text.len().min(precision)])
        }
    };
    let blanks = width.saturating_sub(text.len());
    let is_left = flags.contains(&b'-');
    out.extend(std::iter::repeat_n(b' ', if is_left { 0 } else { blanks }));
    out.extend_from_slice(text);
    out.extend(std::iter::repeat_n(b' ', if is_left { blanks } else { 0 }));
}

/// Appends a string as Lua reads it.
fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'\n' => out.extend_from_slice(&[b'\\', byte]),
            b'\r' => out.extend_from_slice(b"\\r"),
            0 => out.extend_from_slice(b"\\000"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
