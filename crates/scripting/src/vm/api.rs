//! The functions of the tables `redis` and `server`, and the random numbers of `math`. Must not know the effects of
//! commands.
//!
//! `server` is Valkey's name for the table. There both names lead to one table, whose functions speak of `server` in their
//! errors; here each table has its own functions, which use the texts of that family (see [`ErrorTexts`]).
//!
//! All functions here are called by the interpreter, protected, and own nothing when they raise an error.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use mlua_sys as ffi;
use mlua_sys::lua_State;
use redline_resp::{ArgsBuf, Proto, format_double};

use super::set_up::{NAMES, UP_ERR, UP_IS_VALKEY, UP_OK, push_names};
use super::to_lua::{push, push_bytes};
use super::to_reply::{bytes_at, until_nul};

use super::watch::look;
use super::{
    BUFFER_BYTES_KEPT, Machine, json, load, machine, msgpack, raise, strings, structs, unpanicking,
};
use crate::env::Family;
use crate::reply_reader::ReplyReader;
use crate::script::sha1_hex;

const FUNCTIONS: [(&CStr, ffi::lua_CFunction); 12] = [
    (c"call", call),
    (c"pcall", pcall),
    (c"error_reply", error_reply),
    (c"status_reply", status_reply),
    (c"sha1hex", sha1hex),
    (c"log", log),
    (c"setresp", setresp),
    (c"set_repl", set_repl),
    (c"replicate_commands", replicate_commands),
    (c"acl_check_cmd", acl_check_cmd),
    (c"breakpoint", breakpoint),
    (c"debug", debug),
];

const CONSTANTS: [(&CStr, f64); 9] = [
    (c"LOG_DEBUG", 0.0),
    (c"LOG_VERBOSE", 1.0),
    (c"LOG_NOTICE", 2.0),
    (c"LOG_WARNING", 3.0),
    (c"REPL_NONE", 0.0),
    (c"REPL_AOF", 1.0),
    (c"REPL_SLAVE", 2.0),
    (c"REPL_REPLICA", 2.0),
    (c"REPL_ALL", 3.0),
];

/// The Redis whose behaviour scripts find: the one that the server reports, whose tests compare the two.
const REDIS_VERSION: &CStr = c"8.2.3";
const REDIS_VERSION_NUM: f64 = (8 << 16 | 2 << 8 | 3) as f64;
/// The Valkey whose table scripts find in `server`.
const VALKEY_VERSION: &CStr = c"9.1.2";
const VALKEY_VERSION_NUM: f64 = (9 << 16 | 1 << 8 | 2) as f64;
/// Name of the server that runs the script: what INFO reports as `server_name`.
const SERVER_NAME: &CStr = c"redline";

/// Error texts of a table's functions where the two families differ.
struct ErrorTexts {
    family: Family,
    no_arguments: &'static CStr,
    wrong_argument: &'static CStr,
    log_arity: &'static CStr,
    setresp_arity: &'static CStr,
    set_repl_arity: &'static CStr,
    acl_check_unknown: &'static CStr,
}

/// The texts of `redis`, and of `server`.
static ERROR_TEXTS: [ErrorTexts; 2] = [
    ErrorTexts {
        family: Family::Redis,
        no_arguments: c"Please specify at least one argument for this redis lib call",
        wrong_argument: c"Lua redis lib command arguments must be strings or integers",
        log_arity: c"redis.log() requires two arguments or more.",
        setresp_arity: c"redis.setresp() requires one argument.",
        set_repl_arity: c"redis.set_repl() requires one argument.",
        acl_check_unknown: c"Invalid command passed to redis.acl_check_cmd()",
    },
    ErrorTexts {
        family: Family::Valkey,
        no_arguments: c"Please specify at least one argument for this call",
        wrong_argument: c"Command arguments must be strings or integers",
        log_arity: c"server.log() requires two arguments or more.",
        setresp_arity: c"server.setresp() requires one argument.",
        set_repl_arity: c"server.set_repl() requires one argument.",
        acl_check_unknown: c"Invalid command passed to server.acl_check_cmd()",
    },
];

const TOO_LARGE: &CStr = c"Arguments of a command are too large";

/// Pushes the `redis` table, with functions in it that are not for scripts: the sandbox takes them out. They replace some of
/// the standard library.
///
/// # Safety
/// Called protected.
pub(super) unsafe fn push_library(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe {
        push_table(state, Family::Redis);
        let plain = [
            (c"look", look_at_clock as ffi::lua_CFunction),
            (c"random", random),
            (c"randomseed", randomseed),
        ];
        let functions = plain
            .into_iter()
            .chain(strings::FUNCTIONS)
            .chain(load::FUNCTIONS)
            .chain(raise::FUNCTIONS);
        for (name, function) in functions {
            ffi::lua_pushcclosure(state, function, 0);
            ffi::lua_setfield(state, -2, name.as_ptr());
        }
        (*machine(state)).json_settings = NonNull::new(json::push_library(state));
        ffi::lua_setfield(state, -2, c"cjson".as_ptr());
        msgpack::push_library(state);
        ffi::lua_setfield(state, -2, c"cmsgpack".as_ptr());
        structs::push_library(state);
        ffi::lua_setfield(state, -2, c"struct".as_ptr());
    }
}

/// Pushes the `server` table.
///
/// # Safety
/// Called protected.
pub(super) unsafe fn push_server(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe {
        push_table(state, Family::Valkey);
        for (name, text) in [
            (c"SERVER_NAME", SERVER_NAME),
            (c"VALKEY_VERSION", VALKEY_VERSION),
        ] {
            ffi::lua_pushstring(state, text.as_ptr());
            ffi::lua_setfield(state, -2, name.as_ptr());
        }
        ffi::lua_pushnumber(state, VALKEY_VERSION_NUM);
        ffi::lua_setfield(state, -2, c"VALKEY_VERSION_NUM".as_ptr());
    }
}

/// Pushes a table with the fields that both families have.
///
/// # Safety
/// Called protected.
unsafe fn push_table(state: *mut lua_State, family: Family) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_createtable(state, 0, 32);
        for (name, function) in FUNCTIONS {
            push_names(state);
            ffi::lua_pushboolean(state, (family == Family::Valkey).into());
            ffi::lua_pushcclosure(state, function, NAMES.len() as c_int + 1);
            ffi::lua_setfield(state, -2, name.as_ptr());
        }
        for (name, value) in CONSTANTS {
            ffi::lua_pushnumber(state, value);
            ffi::lua_setfield(state, -2, name.as_ptr());
        }
        ffi::lua_pushstring(state, REDIS_VERSION.as_ptr());
        ffi::lua_setfield(state, -2, c"REDIS_VERSION".as_ptr());
        ffi::lua_pushnumber(state, REDIS_VERSION_NUM);
        ffi::lua_setfield(state, -2, c"REDIS_VERSION_NUM".as_ptr());
    }
}

/// Returns the texts of the table that the called function belongs to.
///
/// # Safety
/// Called by one of [`FUNCTIONS`], which the interpreter has called.
unsafe fn texts(state: *mut lua_State) -> &'static ErrorTexts {
    // SAFETY: as promised by the caller, whose upvalue this is.
    let is_valkey = unsafe { ffi::lua_toboolean(state, UP_IS_VALKEY) } != 0;
    &ERROR_TEXTS[usize::from(is_valkey)]
}

unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe { call_command(state, true) }
}

unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe { call_command(state, false) }
}

/// Runs a command and pushes its reply. An error is raised, or pushed like any other reply.
///
/// # Safety
/// Called by the interpreter, as one of [`FUNCTIONS`].
unsafe fn call_command(state: *mut lua_State, raise: bool) -> c_int {
    // SAFETY: as promised by the caller. The server calls no Lua, so that the borrows of the arguments, of the answer
    // and of the environment are the only ones while it works; `answer` does not change while it is turned into values.
    unsafe {
        let machine = machine(state);
        let texts = texts(state);
        if let Err(refusal) = read_arguments(state, machine, texts) {
            return fail(state, raise, refusal);
        }
        if (*machine).watch.count_call() {
            look(state, machine);
        }
        let Some(running) = (*machine).running else {
            return fail(state, raise, c"redis.call is not available here");
        };
        // An error may have ended the last call halfway.
        (*machine).answer.clear();
        let (args, answer) = (&(*machine).args, &mut (*machine).answer);
        let proto = (*machine).proto;
        let family = texts.family;
        unpanicking(|| {
            (*running.as_ptr())
                .env
                .call(args.as_args(), family, proto, answer)
        });
        if args.heap_bytes() > BUFFER_BYTES_KEPT {
            (*machine).args = ArgsBuf::new();
        }
        let bytes = match (*machine).answer.has_blobs() {
            false => (*machine).answer.bytes(),
            true => {
                let text = &mut (*machine).text;
                text.clear();
                (*machine)
                    .answer
                    .chunks()
                    .for_each(|chunk| text.extend_from_slice(chunk));
                &*text
            }
        };
        let is_error = bytes.first() == Some(&b'-');
        ffi::lua_settop(state, 0);
        let whole = push(state, &mut ReplyReader::new(bytes));
        (*machine).answer.clear();
        (*machine).answer.shrink(BUFFER_BYTES_KEPT);
        (*machine).trim_text();
        if !whole {
            return fail(state, raise, c"reached lua stack limit");
        }
        if is_error && raise {
            ffi::lua_error(state);
        }
        1
    }
}

/// Moves the arguments of the function that was called into `args`.
///
/// # Safety
/// Called by a function that the interpreter has called.
unsafe fn read_arguments(
    state: *mut lua_State,
    machine: *mut Machine,
    texts: &ErrorTexts,
) -> Result<(), &'static CStr> {
    // SAFETY: as promised by the caller; what `lua_type` calls a string is neither converted nor moved.
    unsafe {
        let argc = ffi::lua_gettop(state);
        if argc == 0 {
            return Err(texts.no_arguments);
        }
        let args = &mut (*machine).args;
        args.clear();
        let mut left = (*machine).message_bytes_max;
        for index in 1..=argc {
            match ffi::lua_type(state, index) {
                ffi::LUA_TSTRING => {
                    let arg = bytes_at(state, index);
                    left = left.checked_sub(arg.len()).ok_or(TOO_LARGE)?;
                    args.push(arg);
                }
                ffi::LUA_TNUMBER => {
                    let text = &mut (*machine).text;
                    text.clear();
                    format_number(ffi::lua_tonumber(state, index), text);
                    args.push(text);
                }
                _ => return Err(texts.wrong_argument),
            }
        }
        Ok(())
    }
}

/// Formats a number as an argument of a command: other than in a reply, there is no negative zero, and a NaN has its
/// sign.
fn format_number(n: f64, out: &mut Vec<u8>) {
    if n.is_nan() {
        out.extend_from_slice(if n.is_sign_negative() {
            b"-nan"
        } else {
            b"nan"
        });
    } else {
        format_double(n + 0.0, out);
    }
}

/// Raises an error of this library, or returns it as a reply.
///
/// # Safety
/// Called by a function that the interpreter has called, with the upvalues `NAMES`, that owns nothing.
unsafe fn fail(state: *mut lua_State, raise: bool, text: &CStr) -> c_int {
    // SAFETY: as promised by the caller.
    unsafe {
        push_failure(state, text);
        if raise {
            ffi::lua_error(state);
        }
        1
    }
}

/// # Safety
/// As for [`fail`].
unsafe fn push_failure(state: *mut lua_State, text: &CStr) {
    // SAFETY: as promised by the caller.
    unsafe {
        ffi::lua_settop(state, 0);
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushvalue(state, UP_ERR);
        ffi::lua_pushstring(state, c"ERR ".as_ptr());
        ffi::lua_pushstring(state, text.as_ptr());
        ffi::lua_concat(state, 2);
        ffi::lua_rawset(state, -3);
    }
}

unsafe extern "C-unwind" fn error_reply(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; `text` holds no borrow of the stack when the result is pushed.
    unsafe {
        if ffi::lua_gettop(state) != 1 || ffi::lua_type(state, 1) != ffi::LUA_TSTRING {
            return fail(state, false, c"wrong number or type of arguments");
        }
        let given = until_nul(bytes_at(state, 1));
        let given = given.strip_prefix(b"-").unwrap_or(given);
        let machine = machine(state);
        let text = &raw mut (*machine).text;
        (*text).clear();
        if !given.contains(&b' ') {
            (*text).extend_from_slice(b"ERR ");
        }
        (*text).extend_from_slice(given);
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushvalue(state, UP_ERR);
        push_bytes(state, &*text);
        ffi::lua_rawset(state, -3);
        1
    }
}

unsafe extern "C-unwind" fn status_reply(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        if ffi::lua_gettop(state) != 1 || ffi::lua_type(state, 1) != ffi::LUA_TSTRING {
            return fail(state, false, c"wrong number or type of arguments");
        }
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushvalue(state, UP_OK);
        ffi::lua_pushvalue(state, 1);
        ffi::lua_rawset(state, -3);
        1
    }
}

unsafe extern "C-unwind" fn sha1hex(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; a number is converted in place, and stays on the stack.
    unsafe {
        if ffi::lua_gettop(state) != 1 {
            return fail(state, true, c"wrong number of arguments");
        }
        let digest = match ffi::lua_isstring(state, 1) {
            0 => sha1_hex(b""),
            _ => sha1_hex(bytes_at(state, 1)),
        };
        push_bytes(state, &digest);
        1
    }
}

unsafe extern "C-unwind" fn log(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; the server calls no Lua.
    unsafe {
        let argc = ffi::lua_gettop(state);
        if argc < 2 {
            return fail(state, true, texts(state).log_arity);
        }
        if ffi::lua_isnumber(state, 1) == 0 {
            return fail(state, true, c"First argument must be a number (log level).");
        }
        let level = ffi::lua_tonumber(state, 1) as i64;
        if !(0..=3).contains(&level) {
            return fail(state, true, c"Invalid log level.");
        }
        let machine = machine(state);
        (*machine).text.clear();
        for index in 2..=argc {
            if index > 2 {
                (*machine).text.push(b' ');
            }
            if ffi::lua_isstring(state, index) != 0 {
                let piece = bytes_at(state, index);
                if (*machine).text.len() + piece.len() > (*machine).message_bytes_max {
                    return fail(state, true, TOO_LARGE);
                }
                (*machine).text.extend_from_slice(piece);
            }
        }
        if let Some(running) = (*machine).running {
            let text = &(*machine).text;
            unpanicking(|| (*running.as_ptr()).env.log(level, text));
        }
        (*machine).trim_text();
        0
    }
}

unsafe extern "C-unwind" fn setresp(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        if ffi::lua_gettop(state) != 1 {
            return fail(state, true, texts(state).setresp_arity);
        }
        (*machine(state)).proto = match ffi::lua_tonumber(state, 1) as i64 {
            2 => Proto::Resp2,
            3 => Proto::Resp3,
            _ => return fail(state, true, c"RESP version must be 2 or 3."),
        };
        0
    }
}

unsafe extern "C-unwind" fn set_repl(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; the server calls no Lua.
    unsafe {
        if ffi::lua_gettop(state) != 1 {
            return fail(state, true, texts(state).set_repl_arity);
        }
        let Ok(targets @ 0..=3) = u8::try_from(ffi::lua_tonumber(state, 1) as i64) else {
            const INVALID: &CStr =
                c"Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
            return fail(state, true, INVALID);
        };
        if let Some(running) = (*machine(state)).running {
            unpanicking(|| (*running.as_ptr()).env.set_repl(targets));
        }
        0
    }
}

unsafe extern "C-unwind" fn replicate_commands(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe { ffi::lua_pushboolean(state, 1) };
    1
}

unsafe extern "C-unwind" fn acl_check_cmd(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter; the server calls no Lua.
    unsafe {
        let machine = machine(state);
        let texts = texts(state);
        if let Err(refusal) = read_arguments(state, machine, texts) {
            return fail(state, true, refusal);
        }
        let args = &(*machine).args;
        let allowed = (*machine)
            .running
            .and_then(|running| unpanicking(|| (*running.as_ptr()).env.acl_check(args.as_args())));
        match allowed {
            Some(allowed) => ffi::lua_pushboolean(state, allowed.into()),
            None => return fail(state, true, texts.acl_check_unknown),
        }
        1
    }
}

/// Does nothing: there is no debugger.
unsafe extern "C-unwind" fn breakpoint(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe { ffi::lua_pushboolean(state, 0) };
    1
}

/// Does nothing: there is no debugger.
unsafe extern "C-unwind" fn debug(_: *mut lua_State) -> c_int {
    0
}

unsafe extern "C-unwind" fn look_at_clock(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe { look(state, machine(state)) };
    0
}

/// Returns the generator of `drand48` and its kin, whose sequences scripts know.
fn next_random(state: u64) -> (u64, u32) {
    let next = (state.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB)) & ((1 << 48) - 1);
    (next, (next >> 17) as u32)
}

unsafe extern "C-unwind" fn random(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        let machine = machine(state);
        let (next, drawn) = next_random((*machine).random);
        (*machine).random = next;
        let fraction = f64::from(drawn % i32::MAX as u32) / f64::from(i32::MAX);
        let number = match ffi::lua_gettop(state) {
            0 => fraction,
            1 => {
                let upper = ffi::luaL_checkinteger(state, 1) as i32;
                if upper < 1 {
                    ffi::luaL_argerror(state, 1, c"interval is empty".as_ptr());
                }
                (fraction * f64::from(upper)).floor() + 1.0
            }
            2 => {
                let lower = ffi::luaL_checkinteger(state, 1) as i32;
                let upper = ffi::luaL_checkinteger(state, 2) as i32;
                if upper < lower {
                    ffi::luaL_argerror(state, 2, c"interval is empty".as_ptr());
                }
                let width = f64::from(upper) - f64::from(lower) + 1.0;
                (fraction * width).floor() + f64::from(lower)
            }
            _ => return ffi::luaL_error(state, c"wrong number of arguments".as_ptr()),
        };
        ffi::lua_pushnumber(state, number);
        1
    }
}

unsafe extern "C-unwind" fn randomseed(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter.
    unsafe {
        let seed = ffi::luaL_checkinteger(state, 1) as u32;
        (*machine(state)).random = u64::from(seed) << 16 | 0x330E;
        0
    }
}
