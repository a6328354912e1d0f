//! The functions of `string` that match patterns, and `string.find` of plain texts. Must not know replies.
//!
//! All functions here are called by the interpreter, protected, and own nothing when they raise an error. Those whose
//! replacement calls back into the script are written in the sandbox's Lua, with the steps below.

use std::ffi::{CStr, c_int};
use std::ops::Range;

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::format::format;
use super::memory::NOT_ENOUGH_MEMORY;
use super::to_lua::push_bytes;
use super::watch::{poll, raise_killed};
use super::{Machine, machine, raise_text};
use crate::pattern::{Capture, Matcher, Problem, is_plain};

pub(super) const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 6] = [
    (c"find", find),
    (c"match", match_),
    (c"gsub", gsub),
    (c"gmatch_step", gmatch_step),
    (c"gsub_step", gsub_step),
    (c"format", format),
];

unsafe extern "C-unwind" fn find(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; both strings stay on the stack while they are used.
    unsafe {
        let (subject, pattern, from) = subject_and_pattern(state);
        if ffi::lua_toboolean(state, 4) != 0 || is_plain(pattern) {
            let Some(at) = memchr::memmem::find(&subject[from..], pattern) else {
                ffi::lua_pushnil(state);
                return 1;
            };
            ffi::lua_pushnumber(state, (from + at + 1) as f64);
            ffi::lua_pushnumber(state, (from + at + pattern.len()) as f64);
            return 2;
        }
        let machine = machine(state);
        let mut poll = || !poll(state, machine);
        let mut matcher = Matcher::new(subject, pattern, &mut poll);
        match matcher.search(from) {
            Err(problem) => raise(state, machine, problem),
            Ok(None) => {
                ffi::lua_pushnil(state);
                1
            }
            Ok(Some(found)) => {
                ffi::lua_pushnumber(state, (found.start + 1) as f64);
                ffi::lua_pushnumber(state, found.end as f64);
                2 + push_values(
                    state,
                    machine,
                    &matcher,
                    subject,
                    &found,
                    matcher.captures(),
                )
            }
        }
    }
}

unsafe extern "C-unwind" fn match_(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; both strings stay on the stack while they are used.
    unsafe {
        let (subject, pattern, from) = subject_and_pattern(state);
        let machine = machine(state);
        let mut poll = || !poll(state, machine);
        let mut matcher = Matcher::new(subject, pattern, &mut poll);
        match matcher.search(from) {
            Err(problem) => raise(state, machine, problem),
            Ok(None) => {
                ffi::lua_pushnil(state);
                1
            }
            Ok(Some(found)) => {
                push_values(state, machine, &matcher, subject, &found, matcher.values())
            }
        }
    }
}

/// `gmatch_step(s, p, from)`: the place from which to go on, and the values of the match; nothing if there is none.
unsafe extern "C-unwind" fn gmatch_step(state: *mut lua_State) -> c_int {
    // SAFETY: called by the sandbox, with two strings and a number; the strings stay on the stack while they are used.
    unsafe {
        let (subject, pattern) = (string(state, 1), string(state, 2));
        let from = ffi::lua_tonumber(state, 3) as usize;
        if from > subject.len() {
            return 0;
        }
        let machine = machine(state);
        let mut poll = || !poll(state, machine);
        let mut matcher = Matcher::unanchored(subject, pattern, &mut poll);
        match matcher.search(from) {
            Err(problem) => raise(state, machine, problem),
            Ok(None) => 0,
            Ok(Some(found)) => {
                let next = found.end + usize::from(found.is_empty());
                ffi::lua_pushnumber(state, next as f64);
                1 + push_values(state, machine, &matcher, subject, &found, matcher.values())
            }
        }
    }
}

/// `gsub_step(s, p, from)`: where the next match starts and ends (both from 0, the end not included), and its values;
/// nothing if there is none.
unsafe extern "C-unwind" fn gsub_step(state: *mut lua_State) -> c_int {
    // SAFETY: called by the sandbox, with two strings and a number; the strings stay on the stack while they are used.
    unsafe {
        let (subject, pattern) = (string(state, 1), string(state, 2));
        let from = ffi::lua_tonumber(state, 3) as usize;
        let machine = machine(state);
        let mut poll = || !poll(state, machine);
        let mut matcher = Matcher::new(subject, pattern, &mut poll);
        match matcher.search(from) {
            Err(problem) => raise(state, machine, problem),
            Ok(None) => 0,
            Ok(Some(found)) => {
                ffi::lua_pushnumber(state, found.start as f64);
                ffi::lua_pushnumber(state, found.end as f64);
                2 + push_values(state, machine, &matcher, subject, &found, matcher.values())
            }
        }
    }
}

/// `gsub(s, p, replacement, max)` with a string as replacement.
unsafe extern "C-unwind" fn gsub(state: *mut lua_State) -> c_int {
    // SAFETY: called by the sandbox, with three strings and a number; they stay on the stack while they are used. The result
    // is put together in the machine's buffer, which nothing else touches meanwhile.
    unsafe {
        let (subject, pattern) = (string(state, 1), string(state, 2));
        let (replacement, max) = (string(state, 3), ffi::lua_tonumber(state, 4));
        let machine = machine(state);
        let out = &raw mut (*machine).text;
        (*out).clear();
        let mut poll = || !poll(state, machine);
        let mut matcher = Matcher::new(subject, pattern, &mut poll);
        let (mut from, mut count) = (0, 0.0);
        while count < max {
            let found = match matcher.search(from) {
                Err(problem) => raise(state, machine, problem),
                Ok(None) => break,
                Ok(Some(found)) => found,
            };
            count += 1.0;
            (*out).extend_from_slice(&subject[from..found.start]);
            if let Err(problem) = replace(&mut *out, replacement, &matcher, subject, &found) {
                raise(state, machine, problem);
            }
            if (*out).len() > (*machine).memory.free() {
                *out = Vec::new();
                ffi::lua_pushstring(state, NOT_ENOUGH_MEMORY.as_ptr());
                ffi::lua_error(state);
            }
            from = found.end;
            if found.is_empty() {
                let Some(&byte) = subject.get(from) else {
                    // Past the end, so that nothing is left to copy.
                    from = subject.len();
                    break;
                };
                (*out).push(byte);
                from += 1;
            }
            if matcher.is_anchored() {
                break;
            }
        }
        (*out).extend_from_slice(&subject[from..]);
        push_bytes(state, &*out);
        (*machine).trim_text();
        ffi::lua_pushnumber(state, count);
        2
    }
}

/// Appends the replacement of one match: `%0` is the match, `%1` to `%9` its values, and any other escaped byte itself.
fn replace(
    out: &mut Vec<u8>,
    replacement: &[u8],
    matcher: &Matcher<'_>,
    subject: &[u8],
    found: &Range<usize>,
) -> Result<(), Problem> {
    let mut rest = replacement.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match rest.next().copied().unwrap_or(0) {
            b'0' => out.extend_from_slice(&subject[found.clone()]),
            digit @ b'1'..=b'9' => match matcher.value(usize::from(digit - b'1'), found)? {
                Capture::Bytes { start, len } => {
                    out.extend_from_slice(&subject[start..start + len]);
                }
                Capture::Position(at) | Capture::Open { start: at } => {
                    out.extend_from_slice(itoa::Buffer::new().format(at + 1).as_bytes());
                }
            },
            other => out.push(other),
        }
    }
    Ok(())
}

/// Pushes the first `n` values of a match.
///
/// # Safety
/// Called by a function that the interpreter has called and that owns nothing.
unsafe fn push_values(
    state: *mut lua_State,
    machine: *mut Machine,
    matcher: &Matcher<'_>,
    subject: &[u8],
    found: &Range<usize>,
    n: usize,
) -> c_int {
    // SAFETY: as promised by the caller; there are at most 32 values.
    unsafe {
        ffi::luaL_checkstack(state, n as c_int, c"too many captures".as_ptr());
        for i in 0..n {
            match matcher.value(i, found) {
                Err(problem) => raise(state, machine, problem),
                Ok(Capture::Bytes { start, len }) => {
                    push_bytes(state, &subject[start..start + len]);
                }
                Ok(Capture::Position(at) | Capture::Open { start: at }) => {
                    ffi::lua_pushnumber(state, (at + 1) as f64);
                }
            }
        }
        n as c_int
    }
}

/// # Safety
/// As for [`push_values`].
unsafe fn raise(state: *mut lua_State, machine: *mut Machine, problem: Problem) -> ! {
    // SAFETY: as promised by the caller.
    unsafe {
        match problem {
            Problem::Stopped => raise_killed(state, machine),
            Problem::Malformed(text) => raise_text(state, text.as_bytes()),
        }
    }
}

/// Returns the arguments of `find` and `match`; the place to start at is inside the subject or at its end.
///
/// # Safety
/// Called by a function that the interpreter has called and that owns nothing; the slices are used while it runs.
unsafe fn subject_and_pattern<'a>(state: *mut lua_State) -> (&'a [u8], &'a [u8], usize) {
    // SAFETY: as promised by the caller.
    unsafe {
        let (subject, pattern) = (check_string(state, 1), check_string(state, 2));
        let len = subject.len() as i64;
        let from = match ffi::luaL_optinteger(state, 3, 1) {
            at if at < 0 => at.saturating_add(len),
            at => at - 1,
        };
        (subject, pattern, from.clamp(0, len) as usize)
    }
}

/// # Safety
/// As for [`subject_and_pattern`].
pub(super) unsafe fn check_string<'a>(state: *mut lua_State, index: c_int) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: as promised by the caller; a number is converted in place.
    unsafe {
        let text = ffi::luaL_checklstring(state, index, &mut len);
        std::slice::from_raw_parts(text.cast(), len)
    }
}

/// # Safety
/// As for [`subject_and_pattern`], and there is a string or a number.
unsafe fn string<'a>(state: *mut lua_State, index: c_int) -> &'a [u8] {
    // SAFETY: as promised by the caller.
    unsafe { check_string(state, index) }
}
