//! From text to a function: the compiler's input, and the text of its errors. Must not know how functions run.

use std::ffi::{CStr, c_char, c_int};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::run::string_at;
use super::{BUFFER_BYTES_KEPT, Machine, machine};

pub(super) const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 1] = [(c"loadstring", loadstring)];

/// Pushes the function that `text` is the body of, or the compiler's error. Compiled code, which could corrupt memory, is
/// bad text like any other.
///
/// # Safety
/// Called protected, with room on the stack; the text and the name stay where they are.
pub(super) unsafe fn push_function(
    state: *mut lua_State,
    machine: *mut Machine,
    text: &[u8],
    name: *const c_char,
) -> c_int {
    // SAFETY: as promised by the caller. The compiler calls nothing of ours but the allocator, which knows only `memory`;
    // what raises an error here finds nothing owned.
    unsafe {
        (*machine).source.rewrite(text);
        let written = (*machine).source.text(text);
        let status = ffi::luaL_loadbuffer(state, written.as_ptr().cast(), written.len(), name);
        if status == ffi::LUA_ERRSYNTAX {
            (*machine).text.clear();
            let error = string_at(state, -1).unwrap_or_default();
            if (*machine).source.mend(error, &mut (*machine).text) {
                ffi::lua_settop(state, -2);
                let mended = &(*machine).text;
                ffi::lua_pushlstring(state, mended.as_ptr().cast(), mended.len());
            }
            (*machine).trim_text();
        }
        (*machine).source.trim(BUFFER_BYTES_KEPT);
        status
    }
}

/// `loadstring(text, name)`, both of them strings.
unsafe extern "C-unwind" fn loadstring(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; both strings stay on the stack while they are used.
    unsafe {
        let text = string_at(state, 1).unwrap_or_default();
        let name = ffi::lua_tolstring(state, 2, std::ptr::null_mut());
        if push_function(state, machine(state), text, name) == ffi::LUA_OK {
            return 1;
        }
        ffi::lua_pushnil(state);
        ffi::lua_insert(state, -2);
        2
    }
}
