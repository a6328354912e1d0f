//! The interpreter: LuaJIT with its compiler off, driven through its C interface. The only module with unsafe code.
//! Must not know the keyspace or sockets.
//!
//! # How it is kept sound
//!
//! * Every call that may raise a Lua error runs below [`run::run`] or [`set_up::set_up`], and these are called protected.
//! * A Lua error unwinds the native frames between the raise and the protected call. So no function here owns anything
//!   with a destructor at a point where it calls something that may raise; values that need an allocation live in
//!   [`Machine`] and are reused.
//! * A Rust panic must not travel through the interpreter, whose `pcall` would swallow it: calls to the server go
//!   through [`unpanicking`].
//! * [`Machine`] is reached by raw pointer, since the allocator, the hook and the functions all need it while others of
//!   them are on the stack. Its fields are borrowed one by one and for no longer than a call that runs no Lua; the
//!   allocator touches `memory` only, and no other code borrows that across a Lua call.
//! * The pointers to a script, its environment and its reply are in [`Machine`] for exactly as long as [`Vm::eval`]
//!   holds the real borrows; at any other time the interpreter calls nothing of ours but the allocator.
//!
//! # Why the C interface
//!
//! `redis.call` is the hot path of a script, and allocates nothing here; a safe wrapper would. LuaJIT is built without
//! tail calls (`.cargo/config.toml`): `return redis.call(...)` would lose the line that an error message names. Its
//! compiler is never started, since compiled traces do not call the hook.

mod api;
mod format;
mod functions;
mod json;
mod load;
mod memory;
mod msgpack;
mod raise;
mod run;
mod set_up;
mod strings;
mod structs;
mod tables;
mod to_lua;
mod to_reply;
mod watch;

use std::ffi::{CStr, c_int};
use std::io::Write;
use std::ptr::{self, NonNull};

use mlua_sys as ffi;
use mlua_sys::lua_State;
use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer};

use self::memory::{Memory, NOT_ENOUGH_MEMORY};
use self::run::Failure;
use self::set_up::{SANDBOX_NAME, set_up};
use self::watch::Watch;
use crate::env::ScriptEnv;
use crate::host::Limits;
use crate::library::{Function, FunctionRef, LibraryError};
use crate::script::Script;
use crate::source::Rewritten;

/// Place of [`run::run`]: in the registry by `set_up`, and at this index of the main thread's stack from then on.
const RUN_INDEX: c_int = 1;

/// Capacity of the reused buffers that survives a call with large arguments or a large reply.
const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// State that the functions of one interpreter share. They find it as the allocator's user data.
struct Machine {
    memory: Memory,
    watch: Watch,
    /// Bytes that the arguments of one call, or the reply of a script, may have.
    message_bytes_max: usize,
    /// The script to be compiled, and run if `running` is there too.
    script: Option<NonNull<Script>>,
    running: Option<NonNull<Running<'static, 'static>>>,
    /// Task about functions, and its result.
    task: Option<functions::Task>,
    loaded: functions::Loaded,
    /// The version in which `redis.call` gets its replies: what `redis.setresp` chose.
    proto: Proto,
    compiled: run::Compiled,
    /// The state of `math.random`.
    random: u64,
    args: ArgsBuf,
    answer: ReplyBuffer,
    /// Text that the compiler gets instead of a script's text.
    source: Rewritten,
    /// Room for one function to put a text together; nothing else is called meanwhile.
    text: Vec<u8>,
    open_aggregates: Vec<to_reply::Aggregate>,
    /// Levels that `cjson` is in the middle of, and its settings; none before the library is there.
    json_levels: Vec<json::Level>,
    json_settings: Option<NonNull<json::Settings>>,
    /// Levels that `cmsgpack` is in the middle of.
    msgpack_levels: Vec<msgpack::Level>,
    failure: Failure,
}

/// One call of [`Vm::eval`].
struct Running<'a, 'r> {
    keys: Args<'a>,
    argv: Args<'a>,
    env: &'a mut (dyn ScriptEnv + 'a),
    reply: &'a mut Reply<'r>,
}

/// One interpreter.
pub(crate) struct Vm {
    state: *mut lua_State,
    machine: NonNull<Machine>,
}

// SAFETY: the interpreter and its machine are owned by this value alone and are bound to no thread; there is no `Sync`.
unsafe impl Send for Vm {}

impl Vm {
    /// Makes an interpreter for scripts or for functions, or none if it needs more memory than it may have.
    pub(crate) fn new(limits: Limits, seed: u64, for_functions: bool) -> Option<Vm> {
        // SAFETY: the state is new and ours. The machine lives as long as it, and `set_up` runs protected. On failure
        // `Vm::drop` closes the state.
        unsafe {
            let state = memory::new_state();
            if state.is_null() {
                return None;
            }
            let machine = Box::new(Machine {
                memory: Memory::new(state, limits.memory_bytes_max),
                watch: Watch::default(),
                message_bytes_max: limits.message_bytes_max,
                script: None,
                running: None,
                task: None,
                loaded: functions::Loaded::default(),
                proto: Proto::Resp2,
                compiled: run::Compiled::default(),
                random: seed & ((1 << 48) - 1),
                args: ArgsBuf::new(),
                answer: ReplyBuffer::new(),
                source: Rewritten::default(),
                text: Vec::new(),
                open_aggregates: Vec::new(),
                json_levels: Vec::new(),
                json_settings: None,
                msgpack_levels: Vec::new(),
                failure: Failure::default(),
            });
            let machine = NonNull::from(Box::leak(machine));
            memory::take_over(state, machine.as_ptr());
            let vm = Vm { state, machine };
            let purpose = match for_functions {
                true => machine.as_ptr().cast(),
                false => ptr::null_mut(),
            };
            if ffi::lua_cpcall(state, set_up, purpose) != ffi::LUA_OK {
                debug_assert_eq!(pop_text(state), NOT_ENOUGH_MEMORY.to_bytes());
                return None;
            }
            ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, RUN_INDEX.into());
            debug_assert_eq!(ffi::lua_gettop(state), RUN_INDEX);
            memory::collect(state, machine.as_ptr());
            Some(vm)
        }
    }

    /// Compiles a script, so that running it will find the code; the error is the compiler's.
    pub(crate) fn compile(&mut self, script: &Script) -> Result<(), String> {
        let machine = self.machine.as_ptr();
        // SAFETY: nothing of this interpreter runs now, so the machine is ours; the pointer to the script is gone
        // before the borrow is.
        unsafe {
            (*machine).script = Some(NonNull::from(script));
            (*machine).failure.text.clear();
            let status = self.call_run();
            (*machine).script = None;
            if status != ffi::LUA_OK {
                return Err(String::from_utf8_lossy(&pop_text(self.state)).into_owned());
            }
            let text = &(*machine).failure.text;
            match text.is_empty() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(text).into_owned()),
            }
        }
    }

    /// Runs a script; see [`crate::Host::eval`].
    pub(crate) fn eval(
        &mut self,
        script: &Script,
        keys: Args<'_>,
        argv: Args<'_>,
        env: &mut dyn ScriptEnv,
        reply: &mut Reply<'_>,
    ) {
        // SAFETY: nothing of this interpreter runs now, so the machine is ours. `execute` forgets the pointer.
        unsafe {
            (*self.machine.as_ptr()).script = Some(NonNull::from(script));
            self.execute(script.sha(), keys, argv, env, reply);
        }
    }

    /// Calls a function; see [`crate::Host::call`].
    pub(crate) fn call(
        &mut self,
        function: &FunctionRef,
        keys: Args<'_>,
        argv: Args<'_>,
        env: &mut dyn ScriptEnv,
        reply: &mut Reply<'_>,
    ) {
        let name = function.function().name.as_bytes();
        // SAFETY: as for `eval`.
        unsafe {
            (*self.machine.as_ptr()).task = Some(functions::Task::Call {
                id: function.id(),
                name: NonNull::from(name),
            });
            self.execute(name, keys, argv, env, reply);
        }
    }

    /// Runs the text of a library; its functions are known by `first_id` and the numbers behind.
    pub(crate) fn load_library(
        &mut self,
        code: &[u8],
        first_id: u64,
        env: &mut dyn ScriptEnv,
    ) -> Result<Vec<Function>, LibraryError> {
        let nothing = ArgsBuf::new();
        let mut out = ReplyBuffer::new();
        let mut reply = Reply::new(&mut out, Proto::Resp2);
        let machine = self.machine.as_ptr();
        // SAFETY: as for `eval`.
        unsafe {
            (*machine).failure.text.clear();
            (*machine).task = Some(functions::Task::Load {
                code: NonNull::from(code),
                first_id,
            });
            self.execute(b"", nothing.as_args(), nothing.as_args(), env, &mut reply);
            let loaded = std::mem::take(&mut (*machine).loaded);
            let text = &(*machine).failure.text;
            if text.is_empty() {
                return Ok(loaded.functions);
            }
            let text = String::from_utf8_lossy(text).into_owned();
            Err(match loaded.error {
                functions::ErrorKind::Compile => LibraryError::Compile(text),
                functions::ErrorKind::Refusal => LibraryError::Refused(text),
                functions::ErrorKind::Run => LibraryError::Register(text),
            })
        }
    }

    /// Removes functions.
    pub(crate) fn forget_functions(&mut self, first_id: u64, count: usize) {
        let machine = self.machine.as_ptr();
        // SAFETY: nothing of this interpreter runs now, so the machine is ours.
        unsafe {
            (*machine).task = Some(functions::Task::Forget { first_id, count });
            let status = self.call_run();
            debug_assert_eq!(status, ffi::LUA_OK);
            (*machine).task = None;
            self.settle();
        }
    }

    /// Runs the machine's script or task, and writes the reply under that name.
    ///
    /// # Safety
    /// Nothing of this interpreter runs, and what the script or task points to is there.
    unsafe fn execute(
        &mut self,
        name: &[u8],
        keys: Args<'_>,
        argv: Args<'_>,
        env: &mut dyn ScriptEnv,
        reply: &mut Reply<'_>,
    ) {
        let mark = reply.mark();
        let mut running = Running {
            keys,
            argv,
            env,
            reply,
        };
        let machine = self.machine.as_ptr();
        // SAFETY: as promised by the caller. The pointer to `running` loses its lifetimes here and is gone before the
        // borrows are; `running` is not touched meanwhile.
        unsafe {
            (*machine).running = Some(NonNull::from(&mut running).cast());
            let status = self.call_run();
            (*machine).running = None;
            (*machine).script = None;
            (*machine).task = None;
            if status != ffi::LUA_OK {
                // The error is one of `run` itself, beside the script: no memory for ARGV or for the reply.
                let text = pop_text(self.state);
                running.reply.truncate(mark);
                (*machine).failure.set(b"ERR ", &text);
                (*machine).failure.write(name, running.reply);
            }
            self.settle();
        }
    }

    /// Returns the number of bytes that the interpreter's heap holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: the machine lives as long as `self`, and nothing runs.
        unsafe { (*self.machine.as_ptr()).memory.used() }
    }

    /// Collects a little of the garbage, if no script has run since the last call.
    pub(crate) fn collect_some(&mut self) {
        // SAFETY: the machine lives as long as `self`, and nothing runs.
        unsafe { memory::collect_some(self.state, self.machine.as_ptr()) };
    }

    /// # Safety
    /// Nothing of this interpreter runs.
    unsafe fn call_run(&mut self) -> c_int {
        // SAFETY: `run` lies at `RUN_INDEX` since the creation; the base of the stack has room for two more values.
        unsafe {
            ffi::lua_pushvalue(self.state, RUN_INDEX);
            ffi::lua_pcall(self.state, 0, 0, 0)
        }
    }

    /// Restores the state that the next script expects.
    ///
    /// # Safety
    /// Nothing of this interpreter runs.
    unsafe fn settle(&mut self) {
        let machine = self.machine.as_ptr();
        // SAFETY: as promised by the caller.
        unsafe {
            debug_assert_eq!(ffi::lua_gettop(self.state), RUN_INDEX);
            (*machine).proto = Proto::Resp2;
            (*machine).failure.trim();
            if let Some(settings) = (*machine).json_settings {
                settings.write(json::Settings::default());
            }
            watch::end(self.state, machine);
            memory::collect_if_idle(self.state, machine);
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: nothing runs. The state is closed with an allocator that has no limit and needs no machine; after that
        // nothing refers to the machine.
        unsafe {
            memory::give_back(self.state);
            ffi::lua_close(self.state);
            drop(Box::from_raw(self.machine.as_ptr()));
        }
    }
}

impl Machine {
    /// Gives back the memory of an unusually long text.
    fn trim_text(&mut self) {
        if self.text.capacity() > BUFFER_BYTES_KEPT {
            self.text = Vec::new();
        }
    }
}

/// Returns the machine of a state.
///
/// # Safety
/// `state` belongs to a `Vm`.
#[inline]
unsafe fn machine(state: *mut lua_State) -> *mut Machine {
    let mut data = ptr::null_mut();
    // SAFETY: `Vm::new` has set the allocator and its data.
    unsafe { ffi::lua_getallocf(state, &mut data) };
    data.cast()
}

/// Raises an error with this text, behind the place in the script of the call that it is about.
///
/// # Safety
/// As for [`watch::look`].
unsafe fn raise_text(state: *mut lua_State, text: &[u8]) -> ! {
    // SAFETY: as promised by the caller; the interpreter fills in `frame`.
    unsafe {
        let mut frame: ffi::lua_Debug = std::mem::zeroed();
        let mut level = 1;
        while ffi::lua_getstack(state, level, &mut frame) != 0 {
            ffi::lua_getinfo(state, c"S".as_ptr(), &mut frame);
            if CStr::from_ptr(frame.source) != SANDBOX_NAME {
                break;
            }
            level += 1;
        }
        ffi::luaL_where(state, level);
        ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// Calls [`raise_text`] with a text that is put together here.
///
/// # Safety
/// As for [`watch::look`], and there is no borrow of the machine's buffer.
unsafe fn raise_format(
    state: *mut lua_State,
    machine: *mut Machine,
    text: std::fmt::Arguments<'_>,
) -> ! {
    // SAFETY: as promised by the caller.
    unsafe {
        (*machine).text.clear();
        // Into a vector, this cannot fail.
        let _ = (*machine).text.write_fmt(text);
        raise_text(state, &(*machine).text)
    }
}

/// Raises the error about argument `index` of the function that runs; `text` appends the reason.
///
/// # Safety
/// As for [`raise_format`].
unsafe fn raise_argument(
    state: *mut lua_State,
    machine: *mut Machine,
    index: c_int,
    text: impl FnOnce(&mut Vec<u8>),
) -> ! {
    // SAFETY: as promised by the caller; the text ends with a NUL.
    unsafe {
        (*machine).text.clear();
        text(&mut (*machine).text);
        (*machine).text.push(0);
        ffi::luaL_argerror(state, index, (*machine).text.as_ptr().cast());
    }
    unreachable!("an error was raised")
}

/// Raises the error of a text that would be too long, and frees the part that there is.
///
/// # Safety
/// As for [`raise_format`].
unsafe fn raise_memory(state: *mut lua_State, machine: *mut Machine) -> ! {
    // SAFETY: as promised by the caller.
    unsafe {
        (*machine).text = Vec::new();
        ffi::lua_pushstring(state, NOT_ENOUGH_MEMORY.as_ptr());
        ffi::lua_error(state)
    }
}

/// Takes the text of the error on top of the stack.
///
/// # Safety
/// There is a value on top of the stack of a live state.
unsafe fn pop_text(state: *mut lua_State) -> Vec<u8> {
    // SAFETY: as promised by the caller; a string is not converted, so nothing is allocated in the interpreter.
    unsafe {
        let mut len = 0;
        let text = match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING => ffi::lua_tolstring(state, -1, &mut len),
            _ => ptr::null(),
        };
        let owned = match text.is_null() {
            true => b"unknown error".to_vec(),
            false => std::slice::from_raw_parts(text.cast::<u8>(), len).to_vec(),
        };
        ffi::lua_settop(state, -2);
        owned
    }
}

/// Calls a function of the server. A panic ends the process here: it must not reach the interpreter, nor a script's
/// `pcall`.
fn unpanicking<T>(call: impl FnOnce() -> T) -> T {
    struct Abort;
    impl Drop for Abort {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let abort = Abort;
    let result = call();
    std::mem::forget(abort);
    result
}

#[cfg(test)]
mod tests;
