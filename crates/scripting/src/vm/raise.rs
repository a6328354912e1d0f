//! `error`: the place in a script that an error names. Levels count as in Redis's interpreter, in which the functions
//! of the library are one frame each and have no lines; here some of them are written in Lua, and call the
//! interpreter's own.
//!
//! Must not know how errors are reported.

use std::ffi::{CStr, c_int};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::set_up::SANDBOX_NAME;

pub(super) const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 1] = [(c"error", error)];

/// Raises as `error(problem, level)`: a text gets the place of the `level`th caller in front, unless that is 0.
unsafe extern "C-unwind" fn error(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; nothing here owns anything.
    unsafe {
        let level = ffi::luaL_optinteger(state, 2, 1);
        ffi::lua_settop(state, 1);
        if ffi::lua_isstring(state, 1) != 0 && level > 0 {
            push_place(state, level as i64);
            ffi::lua_pushvalue(state, 1);
            ffi::lua_concat(state, 2);
        }
        ffi::lua_error(state)
    }
}

/// Pushes the place in the script where the `level`th caller is, or nothing if that has no lines.
///
/// # Safety
/// Called by a function that the interpreter has called, and that owns nothing.
unsafe fn push_place(state: *mut lua_State, level: i64) {
    // SAFETY: as promised by the caller.
    unsafe {
        // The frame that is looked at.
        let (mut frame, mut left) = (1, level);
        while let Some(kind) = kind_at(state, frame) {
            // What the sandbox calls of the interpreter's own is a part of it.
            let inner = c_int::from(kind == Kind::Native);
            let mut next = frame + inner;
            while kind_at(state, next) == Some(Kind::Sandbox) {
                next += 1;
            }
            let is_library = next > frame + inner;
            left -= 1;
            match (left, is_library) {
                (0, false) => return ffi::luaL_where(state, frame),
                (0, true) => break,
                (_, false) => frame += 1,
                (_, true) => frame = next,
            }
        }
        ffi::lua_pushstring(state, c"".as_ptr());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A function of the script's.
    Script,
    /// One of the sandbox, in Lua.
    Sandbox,
    /// Not in Lua.
    Native,
}

/// Returns the kind of the function at that height of the stack, if that goes so high.
///
/// # Safety
/// As for [`push_place`].
unsafe fn kind_at(state: *mut lua_State, level: c_int) -> Option<Kind> {
    // SAFETY: as promised by the caller; the interpreter fills in `frame`.
    unsafe {
        let mut frame: ffi::lua_Debug = std::mem::zeroed();
        if ffi::lua_getstack(state, level, &mut frame) == 0 {
            return None;
        }
        ffi::lua_getinfo(state, c"S".as_ptr(), &mut frame);
        Some(match CStr::from_ptr(frame.source) {
            source if source == SANDBOX_NAME => Kind::Sandbox,
            _ if CStr::from_ptr(frame.what) == c"C" => Kind::Native,
            _ => Kind::Script,
        })
    }
}
