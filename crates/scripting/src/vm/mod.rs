//! The interpreter: LuaJIT with its compiler off, driven through its C interface. The only module with unsafe code.
//! Knows nothing of the keyspace or of sockets.
//!
//! # How it is kept sound
//!
//! * Every call that may raise a Lua error runs below [`run`] (or below the set-up at creation), which is always called by `lua_pcall`.
//! * A Lua error unwinds the native frames between the raise and the `lua_pcall`. So no function here owns anything
//!   with a destructor at a point where it calls something that may raise; what needs an allocation lives in [`Machine`] and is reused.
//! * A Rust panic must not travel through the interpreter, whose `pcall` would swallow it: calls to the server go through [`unpanicking`].
//! * [`Machine`] is reached by raw pointer, since the allocator, the hook and the functions all need it while others
//!   of them are on the stack. Its fields are borrowed one by one and for no longer than a statement that calls no Lua;
//!   the allocator touches `memory` only, and nobody else borrows that across a Lua call.
//! * The pointers to a script's environment and reply are in `Machine::running` for exactly as long as [`Vm::eval`]
//!   holds the real borrows, and the interpreter calls nothing of ours at any other time but the allocator.

mod api;
mod format;
mod strings;
mod tables;
mod to_lua;
mod to_reply;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use mlua_sys as ffi;
use mlua_sys::lua_State;
use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer};

use crate::env::{ScriptEnv, Tick};
use crate::host::{Limits, LoadError};
use crate::script::Script;

/// How often the server gets its turn while a script runs.
const TICK_INTERVAL: Duration = Duration::from_millis(1);

/// Instructions between two looks at the clock: where a script starts, and the bounds between which it is adapted to how
/// long such a run of instructions takes. One instruction can be a long `string.rep`.
const HOOK_INSTRUCTIONS: c_int = 100;
const HOOK_INSTRUCTIONS_MAX: c_int = 6_400;

/// Calls of `redis.call` between two looks at the clock.
const CALLS_PER_LOOK: u32 = 16;

/// Bytes allocated after which the clock is looked at regardless of instructions.
const ALLOCATED_PER_LOOK: usize = 1 << 20;

/// Compiled scripts per generation of the cache; see [`push_compiled`].
const COMPILED_MAX: u32 = 512;

/// Heap size at which garbage is collected after a script, if it is not yet twice what the last collection left.
const COLLECT_BYTES_MIN: usize = 4 << 20;

/// One part in so many of the memory is kept for small allocations, so that a script at its limit gets as far as the next
/// instruction, where garbage can be collected.
const RESERVE_SHARE: usize = 8;

/// As the interpreter says it.
const NOT_ENOUGH_MEMORY: &CStr = c"not enough memory";

/// What counts as a small allocation.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// Where scripts say that they come from.
const CHUNK_NAME: &CStr = c"@user_script";

/// The source of the sandbox's own Lua functions, which error messages leave out.
const SANDBOX_NAME: &CStr = c"=sandbox";

/// Strings that the functions of this module use as table keys: their upvalues, so that none is hashed per call.
const NAMES: [&CStr; 10] = [
    c"err",
    c"ok",
    c"double",
    c"map",
    c"set",
    c"big_number",
    c"verbatim_string",
    c"format",
    c"string",
    c"ignore_error_stats_update",
];

const UP_ERR: c_int = ffi::lua_upvalueindex(1);
const UP_OK: c_int = ffi::lua_upvalueindex(2);
const UP_DOUBLE: c_int = ffi::lua_upvalueindex(3);
const UP_MAP: c_int = ffi::lua_upvalueindex(4);
const UP_SET: c_int = ffi::lua_upvalueindex(5);
const UP_BIG_NUMBER: c_int = ffi::lua_upvalueindex(6);
const UP_VERBATIM: c_int = ffi::lua_upvalueindex(7);
const UP_FORMAT: c_int = ffi::lua_upvalueindex(8);
const UP_STRING: c_int = ffi::lua_upvalueindex(9);
const UP_IGNORE: c_int = ffi::lua_upvalueindex(10);
// Those of `run` alone.
const UP_GLOBALS: c_int = ffi::lua_upvalueindex(11);
const UP_KEYS: c_int = ffi::lua_upvalueindex(12);
const UP_ARGV: c_int = ffi::lua_upvalueindex(13);
const UP_HANDLER: c_int = ffi::lua_upvalueindex(14);
const UP_YOUNG: c_int = ffi::lua_upvalueindex(15);
const UP_OLD: c_int = ffi::lua_upvalueindex(16);
const UP_NESTING: c_int = ffi::lua_upvalueindex(17);

/// Where `run` is kept: in the registry by `set_up`, and at this place of the main thread's stack from then on.
const RUN_INDEX: c_int = 1;

const LUAJIT_MODE_ENGINE: c_int = 0;
const LUAJIT_MODE_OFF: c_int = 0;

unsafe extern "C-unwind" {
    fn luaJIT_setmode(state: *mut lua_State, index: c_int, mode: c_int) -> c_int;
}

/// What the functions of one interpreter share. They find it as the allocator's user data.
struct Machine {
    memory: Memory,
    message_bytes_max: usize,
    /// What is to be compiled, and run if `running` is there too.
    script: Option<NonNull<Script>>,
    running: Option<NonNull<Run<'static, 'static>>>,
    /// The version in which `redis.call` gets its replies: what `redis.setresp` chose.
    proto: Proto,
    killed: bool,
    /// When the server had its last turn, and when the clock was last read; none before the first look.
    last_tick: Option<Instant>,
    last_look: Option<Instant>,
    hook_instructions: c_int,
    calls_to_look: u32,
    compiled_young: u32,
    generation: u64,
    random: u64,
    args: ArgsBuf,
    answer: ReplyBuffer,
    /// Room for one function to put a text together; nothing else is called meanwhile.
    text: Vec<u8>,
    kill_text: Vec<u8>,
    open_aggregates: Vec<to_reply::Aggregate>,
    failure: Failure,
}

/// Capacity of the reused buffers that survives a call with large arguments or a large reply.
const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// The interpreter's heap.
struct Memory {
    inner: ffi::lua_Alloc,
    inner_data: *mut c_void,
    state: *mut lua_State,
    used: usize,
    max: usize,
    since_look: usize,
    /// What is left is the reserve.
    is_pressed: bool,
    /// A collection allocates a little in order to free much, and must not fail.
    is_collecting: bool,
    /// Size from which on garbage is collected: while a script runs, and after it.
    collect_at: usize,
    collect_idle_at: usize,
}

/// One call of [`Vm::eval`].
struct Run<'a, 'r> {
    keys: Args<'a>,
    argv: Args<'a>,
    env: &'a mut (dyn ScriptEnv + 'a),
    reply: &'a mut Reply<'r>,
}

/// The error that ended a script: what [`handle_error`] found out where it was raised.
#[derive(Default)]
struct Failure {
    text: Vec<u8>,
    source: Vec<u8>,
    line: c_int,
}

/// One interpreter.
pub(crate) struct Vm {
    state: *mut lua_State,
    machine: NonNull<Machine>,
}

// SAFETY: the interpreter and its machine are owned by this value alone and are bound to no thread; there is no `Sync`.
unsafe impl Send for Vm {}

impl Vm {
    /// A new interpreter, or none if it needs more memory than it may have.
    pub(crate) fn new(limits: Limits, seed: u64) -> Option<Vm> {
        // SAFETY: the state is new and ours. The allocator that is put in front of its own one gets a machine that
        // lives as long as the state, and `set_up` runs protected. On failure `Vm::drop` closes it.
        unsafe {
            let state = ffi::luaL_newstate();
            if state.is_null() {
                return None;
            }
            let mut inner_data = ptr::null_mut();
            let inner = ffi::lua_getallocf(state, &mut inner_data);
            let memory = Memory {
                inner,
                inner_data,
                state,
                used: heap_bytes(state),
                max: limits.memory_bytes_max,
                since_look: 0,
                is_pressed: false,
                is_collecting: false,
                collect_at: usize::MAX,
                collect_idle_at: COLLECT_BYTES_MIN,
            };
            let machine = NonNull::from(Box::leak(Box::new(Machine::new(
                memory,
                limits.message_bytes_max,
                seed,
            ))));
            ffi::lua_setallocf(state, allocate, machine.as_ptr().cast());
            let vm = Vm { state, machine };
            if ffi::lua_cpcall(state, set_up, ptr::null_mut()) != ffi::LUA_OK {
                debug_assert_eq!(pop_text(state), NOT_ENOUGH_MEMORY.to_bytes());
                return None;
            }
            (*machine.as_ptr()).memory.plan_collection();
            ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, RUN_INDEX.into());
            debug_assert_eq!(ffi::lua_gettop(state), RUN_INDEX);
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
            if text.is_empty() {
                Ok(())
            } else {
                Err(String::from_utf8_lossy(text).into_owned())
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
        let mark = reply.mark();
        let mut run = Run {
            keys,
            argv,
            env,
            reply,
        };
        let machine = self.machine.as_ptr();
        // SAFETY: nothing of this interpreter runs now, so the machine is ours. The pointers to the script and to the
        // run lose their lifetimes here and are gone before the borrows are; `run` is not touched meanwhile.
        unsafe {
            (*machine).script = Some(NonNull::from(script));
            (*machine).running = Some(NonNull::from(&mut run).cast());
            let status = self.call_run();
            (*machine).running = None;
            (*machine).script = None;
            if status != ffi::LUA_OK {
                // The error is one of `run` itself, beside the script: no memory for ARGV or for the reply.
                let text = pop_text(self.state);
                run.reply.truncate(mark);
                (*machine).failure.set(b"ERR ", &text);
                (*machine).failure.write(script, run.reply);
            }
            self.settle();
        }
    }

    /// Bytes that the interpreter's heap holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: the machine lives as long as `self`, and nothing runs.
        unsafe { (*self.machine.as_ptr()).memory.used }
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

    /// Puts things back as the next script expects them.
    ///
    /// # Safety
    /// Nothing of this interpreter runs.
    unsafe fn settle(&mut self) {
        // SAFETY: as promised by the caller; a collection runs no code of ours but the allocator, and cannot raise,
        // since there are no finalizers.
        unsafe {
            let machine = self.machine.as_ptr();
            debug_assert_eq!(ffi::lua_gettop(self.state), RUN_INDEX);
            (*machine).proto = Proto::Resp2;
            (*machine).calls_to_look = CALLS_PER_LOOK;
            if (*machine).last_look.take().is_some() {
                (*machine).last_tick = None;
                (*machine).killed = false;
                set_hook(self.state, machine, HOOK_INSTRUCTIONS);
            }
            (*machine).failure.trim();
            if (*machine).memory.used > (*machine).memory.collect_idle_at {
                collect(self.state, machine);
                let used = (*machine).memory.used;
                (*machine).memory.collect_idle_at = COLLECT_BYTES_MIN.max(2 * used);
            }
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: the state is closed with the allocator that it was made with, so that it gives back its arena as a
        // whole; after that nothing refers to the machine.
        unsafe {
            let memory = &raw const (*self.machine.as_ptr()).memory;
            ffi::lua_setallocf(self.state, (*memory).inner, (*memory).inner_data);
            ffi::lua_close(self.state);
            drop(Box::from_raw(self.machine.as_ptr()));
        }
    }
}

impl Machine {
    fn new(memory: Memory, message_bytes_max: usize, seed: u64) -> Machine {
        Machine {
            memory,
            message_bytes_max,
            script: None,
            running: None,
            proto: Proto::Resp2,
            killed: false,
            last_tick: None,
            last_look: None,
            hook_instructions: HOOK_INSTRUCTIONS,
            calls_to_look: CALLS_PER_LOOK,
            compiled_young: 0,
            generation: 0,
            random: seed & ((1 << 48) - 1),
            args: ArgsBuf::new(),
            answer: ReplyBuffer::new(),
            text: Vec::new(),
            kill_text: Vec::new(),
            open_aggregates: Vec::new(),
            failure: Failure::default(),
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

impl Memory {
    fn free(&self) -> usize {
        self.max.saturating_sub(self.used)
    }

    /// What may be used before the reserve.
    fn max_before_reserve(&self) -> usize {
        self.max - self.max / RESERVE_SHARE
    }

    /// Whether `more` bytes may be allocated. If that takes from the reserve, the next instruction has to collect.
    fn admit(&mut self, more: usize) -> bool {
        if self.is_collecting {
            return true;
        }
        if more > self.free() {
            self.is_pressed = true;
            return false;
        }
        if self.used + more > self.max_before_reserve() {
            self.is_pressed = true;
            return more <= SMALL_BYTES_MAX;
        }
        true
    }

    /// The next collection is due when half of what is free now has been used. The interpreter's own plan, to start when
    /// the heap has doubled, would be too late.
    fn plan_collection(&mut self) {
        self.is_pressed = false;
        let free = self.max_before_reserve().saturating_sub(self.used);
        self.collect_at = self.used + (free / 2).max(ALLOCATED_PER_LOOK);
    }
}

impl Failure {
    fn set(&mut self, code: &[u8], text: &[u8]) {
        self.text.clear();
        self.text.extend_from_slice(code);
        self.text.extend_from_slice(text);
        self.source.clear();
        self.line = 0;
    }

    /// Gives back the memory of an unusually long text.
    fn trim(&mut self) {
        for text in [&mut self.text, &mut self.source] {
            if text.capacity() > BUFFER_BYTES_KEPT {
                *text = Vec::new();
            }
        }
    }

    fn write(&self, script: &Script, reply: &mut Reply<'_>) {
        let mut line = Vec::with_capacity(self.text.len() + 96);
        line.extend_from_slice(to_reply::until_nul(&self.text));
        line.extend_from_slice(b" script: ");
        line.extend_from_slice(script.sha());
        if !self.source.is_empty() {
            line.extend_from_slice(b", on ");
            line.extend_from_slice(&self.source);
            line.push(b':');
            line.extend_from_slice(itoa::Buffer::new().format(self.line).as_bytes());
        }
        line.push(b'.');
        reply.error_bytes(&line);
    }
}

/// Puts together what scripts see, and leaves [`run`] in the registry.
///
/// # Safety
/// Called protected, once per state.
unsafe extern "C-unwind" fn set_up(state: *mut lua_State) -> c_int {
    // SAFETY: protected, as promised; nothing here owns anything.
    unsafe {
        ffi::lua_settop(state, 0);
        let off = luaJIT_setmode(state, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
        debug_assert_eq!(off, 1);
        for open in [
            ffi::luaopen_base,
            ffi::luaopen_table,
            ffi::luaopen_string,
            ffi::luaopen_math,
            ffi::luaopen_os,
            ffi::luaopen_bit,
        ] {
            ffi::lua_pushcclosure(state, open, 0);
            ffi::lua_call(state, 0, 0);
        }
        const SANDBOX: &str = include_str!("sandbox.lua");
        let status = ffi::luaL_loadbuffer(
            state,
            SANDBOX.as_ptr().cast(),
            SANDBOX.len(),
            SANDBOX_NAME.as_ptr(),
        );
        if status != ffi::LUA_OK {
            ffi::lua_error(state);
        }
        api::push_library(state);
        push_tables(state);
        // sandbox(library, behind, shown) -> the globals as scripts see them, the table behind, and the counts of nested calls
        ffi::lua_call(state, 3, 3);
        ffi::lua_pushvalue(state, 1);
        ffi::lua_replace(state, ffi::LUA_GLOBALSINDEX);

        push_names(state);
        ffi::lua_pushvalue(state, 2);
        ffi::lua_pushstring(state, c"KEYS".as_ptr());
        ffi::lua_pushstring(state, c"ARGV".as_ptr());
        ffi::lua_pushcclosure(state, handle_error, 0);
        ffi::lua_createtable(state, 0, 0);
        ffi::lua_createtable(state, 0, 0);
        ffi::lua_pushvalue(state, 3);
        ffi::lua_pushcclosure(state, run, NAMES.len() as c_int + 7);
        ffi::lua_rawseti(state, ffi::LUA_REGISTRYINDEX, RUN_INDEX.into());
        set_hook(state, machine(state), HOOK_INSTRUCTIONS);
        0
    }
}

/// Adds the functions that know the stand-ins to the library on top of the stack, and pushes the two tables in which the
/// sandbox tells them about these.
///
/// # Safety
/// Called by `set_up`.
unsafe fn push_tables(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe {
        let library = ffi::lua_gettop(state);
        let (behind, shown, next) = (library + 1, library + 2, library + 3);
        ffi::lua_createtable(state, 0, 16);
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_getfield(state, ffi::LUA_GLOBALSINDEX, c"next".as_ptr());
        for (name, function) in tables::FUNCTIONS {
            for upvalue in [behind, shown, next] {
                ffi::lua_pushvalue(state, upvalue);
            }
            ffi::lua_pushcclosure(state, function, tables::UPVALUES);
            ffi::lua_setfield(state, library, name.as_ptr());
        }
        ffi::lua_settop(state, shown);
    }
}

/// # Safety
/// Called protected, with room on the stack.
unsafe fn push_names(state: *mut lua_State) {
    for name in NAMES {
        // SAFETY: as promised by the caller.
        unsafe { ffi::lua_pushstring(state, name.as_ptr()) };
    }
}

/// Compiles the machine's script and runs it, if it is to be run.
///
/// # Safety
/// Called protected, with the upvalues that `set_up` gives it.
unsafe extern "C-unwind" fn run(state: *mut lua_State) -> c_int {
    // SAFETY: protected, as promised, and nothing here owns anything. `script` and `running` are what `Vm::eval` holds.
    unsafe {
        let machine = machine(state);
        let Some(script) = (*machine).script.map(|script| script.as_ptr()) else {
            return 0;
        };
        if !push_compiled(state, machine, script) {
            let mut len = 0;
            let text = ffi::lua_tolstring(state, -1, &mut len);
            let text = std::slice::from_raw_parts(text.cast::<u8>(), len);
            let running = (*machine).running.map(NonNull::as_ptr);
            (*machine).failure.set(b"", text);
            if let Some(running) = running {
                let error = LoadError::Syntax(String::from_utf8_lossy(text).into_owned());
                (*running).reply.error(&error.to_string());
            }
            return 0;
        }
        let Some(running) = (*machine).running.map(NonNull::as_ptr) else {
            return 0;
        };
        set_array(state, UP_KEYS, (*running).keys);
        set_array(state, UP_ARGV, (*running).argv);
        for count in 1..=2 {
            ffi::lua_pushnumber(state, 0.0);
            ffi::lua_rawseti(state, UP_NESTING, count);
        }
        ffi::lua_pushvalue(state, UP_HANDLER);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, 1, 1);
        match status {
            ffi::LUA_OK => to_reply::write(state, machine, &mut *(*running).reply),
            _ => {
                if status != ffi::LUA_ERRRUN {
                    let mut len = 0;
                    let text = ffi::lua_tolstring(state, -1, &mut len);
                    let text = match text.is_null() {
                        true => b"error in error handling",
                        false => std::slice::from_raw_parts(text.cast::<u8>(), len),
                    };
                    (*machine).failure.set(b"ERR ", text);
                }
                (*machine).failure.write(&*script, &mut *(*running).reply);
            }
        }
        for name in [UP_KEYS, UP_ARGV] {
            ffi::lua_pushvalue(state, name);
            ffi::lua_pushnil(state);
            ffi::lua_rawset(state, UP_GLOBALS);
        }
        0
    }
}

/// Pushes the script's function, or the compiler's error.
///
/// Compiled code is kept in two generations: what is used moves to the young one, and when that is full it becomes the
/// old one, whose remaining content is dropped. So an endless stream of different scripts leaves at most two
/// generations, and those in use stay.
///
/// # Safety
/// Called from `run`.
unsafe fn push_compiled(
    state: *mut lua_State,
    machine: *mut Machine,
    script: *const Script,
) -> bool {
    // SAFETY: `run` is protected and has these upvalues.
    unsafe {
        if (*machine).generation < (*script).generation() {
            (*machine).generation = (*script).generation();
            (*machine).compiled_young = 0;
            for table in [UP_YOUNG, UP_OLD] {
                ffi::lua_createtable(state, 0, 0);
                ffi::lua_replace(state, table);
            }
        }
        let serial = (*script).serial() as f64;
        ffi::lua_pushnumber(state, serial);
        ffi::lua_rawget(state, UP_YOUNG);
        if ffi::lua_type(state, -1) == ffi::LUA_TFUNCTION {
            return true;
        }
        ffi::lua_settop(state, 0);
        ffi::lua_pushnumber(state, serial);
        ffi::lua_rawget(state, UP_OLD);
        if ffi::lua_type(state, -1) != ffi::LUA_TFUNCTION {
            ffi::lua_settop(state, 0);
            let (text, len) = ((*script).lua().as_ptr(), (*script).lua().len());
            let status = match (*script).lua().first() {
                // The interpreter would take this for compiled code, which can corrupt memory. Lua text never starts so.
                Some(&0x1b) => {
                    ffi::lua_pushstring(
                        state,
                        c"user_script:1: unexpected symbol near 'char(27)'".as_ptr(),
                    );
                    ffi::LUA_ERRSYNTAX
                }
                _ => ffi::luaL_loadbuffer(state, text.cast(), len, CHUNK_NAME.as_ptr()),
            };
            if status != ffi::LUA_OK {
                return false;
            }
        }
        if (*machine).compiled_young == COMPILED_MAX {
            (*machine).compiled_young = 0;
            ffi::lua_pushvalue(state, UP_YOUNG);
            ffi::lua_replace(state, UP_OLD);
            ffi::lua_createtable(state, 0, COMPILED_MAX as c_int);
            ffi::lua_replace(state, UP_YOUNG);
        }
        (*machine).compiled_young += 1;
        ffi::lua_pushnumber(state, serial);
        ffi::lua_pushvalue(state, -2);
        ffi::lua_rawset(state, UP_YOUNG);
        true
    }
}

/// Sets the global `name` to an array of `args`.
///
/// # Safety
/// Called from `run`.
unsafe fn set_array(state: *mut lua_State, name: c_int, args: Args<'_>) {
    // SAFETY: `run` is protected and has these upvalues; `Args` owns nothing.
    unsafe {
        ffi::lua_pushvalue(state, name);
        ffi::lua_createtable(state, args.len().min(c_int::MAX as usize) as c_int, 0);
        for (i, arg) in args.iter().enumerate() {
            ffi::lua_pushlstring(state, arg.as_ptr().cast(), arg.len());
            ffi::lua_rawseti(state, -2, i as i64 + 1);
        }
        ffi::lua_rawset(state, UP_GLOBALS);
    }
}

/// The message handler of a script: keeps the error's text, and where in the script it was raised.
///
/// # Safety
/// Called by the interpreter while it raises an error.
unsafe extern "C-unwind" fn handle_error(state: *mut lua_State) -> c_int {
    // SAFETY: the interpreter calls this protected, with the error as the only argument; nothing here owns anything.
    unsafe {
        let machine = machine(state);
        let is_table = ffi::lua_type(state, 1) == ffi::LUA_TTABLE;
        if is_table {
            ffi::lua_pushstring(state, c"err".as_ptr());
            ffi::lua_rawget(state, 1);
        } else {
            ffi::lua_pushvalue(state, 1);
        }
        let code: &[u8] = if is_table { b"" } else { b"ERR " };
        let text: &[u8] = match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING | ffi::LUA_TNUMBER => {
                let mut len = 0;
                let text = ffi::lua_tolstring(state, -1, &mut len);
                std::slice::from_raw_parts(text.cast::<u8>(), len)
            }
            _ if is_table => b"ERR unknown error",
            ffi::LUA_TNIL => b"nil",
            ffi::LUA_TBOOLEAN if ffi::lua_toboolean(state, -1) != 0 => b"true",
            ffi::LUA_TBOOLEAN => b"false",
            other => CStr::from_ptr(ffi::lua_typename(state, other)).to_bytes(),
        };
        (*machine).failure.set(code, text);

        let mut frame: ffi::lua_Debug = std::mem::zeroed();
        let mut level = 1;
        while ffi::lua_getstack(state, level, &mut frame) != 0 {
            level += 1;
            ffi::lua_getinfo(state, c"Sl".as_ptr(), &mut frame);
            let source = CStr::from_ptr(frame.source);
            if frame.currentline > 0 && source != SANDBOX_NAME {
                (*machine)
                    .failure
                    .source
                    .extend_from_slice(source.to_bytes());
                (*machine).failure.line = frame.currentline;
                break;
            }
        }
        1
    }
}

/// The interpreter's hook, every `hook_instructions` instructions of any script.
///
/// # Safety
/// Called by the interpreter.
unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: the interpreter calls hooks where they may raise.
    unsafe { look(state, machine(state)) }
}

/// Reads the clock, and gives the server its turn if that is due; collects garbage if memory is short. Raises an error if
/// the script is to end, or if there is not enough memory all the same.
///
/// # Safety
/// Called where an error may be raised, by a function that owns nothing.
unsafe fn look(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller.
    unsafe {
        if poll(state, machine) {
            raise_killed(state, machine);
        }
        let memory = &raw mut (*machine).memory;
        if (*memory).is_pressed || (*memory).used > (*memory).collect_at {
            collect(state, machine);
            if (*memory).used > (*memory).max_before_reserve() {
                ffi::lua_pushstring(state, NOT_ENOUGH_MEMORY.as_ptr());
                ffi::lua_error(state);
            }
        }
    }
}

/// The same, but tells that the script is to end.
///
/// # Safety
/// `machine` is that of `state`.
unsafe fn poll(state: *mut lua_State, machine: *mut Machine) -> bool {
    // SAFETY: as promised by the caller. The server's turn calls no Lua, so that the borrow of its environment is the
    // only one.
    unsafe {
        if (*machine).killed {
            return true;
        }
        let Some(running) = (*machine).running.map(NonNull::as_ptr) else {
            return false;
        };
        (*machine).memory.since_look = 0;
        (*machine).calls_to_look = CALLS_PER_LOOK;
        let now = Instant::now();
        let last_look = (*machine).last_look.replace(now).unwrap_or(now);
        let last_tick = *(*machine).last_tick.get_or_insert(now);
        if now - last_tick >= TICK_INTERVAL {
            if let Tick::Kill(reason) = unpanicking(|| (*running).env.tick()) {
                (*machine).kill_text.clear();
                (*machine).kill_text.extend_from_slice(b"ERR ");
                (*machine).kill_text.extend_from_slice(reason.as_bytes());
                (*machine).killed = true;
                set_hook(state, machine, 1);
                return true;
            }
            let after = Instant::now();
            (*machine).last_tick = Some(after);
            (*machine).last_look = Some(after);
        }
        let took = now - last_look;
        let instructions = (*machine).hook_instructions;
        let adapted = if took > TICK_INTERVAL / 2 {
            (instructions / 4).max(1)
        } else if took < TICK_INTERVAL / 16 {
            (instructions * 2).min(HOOK_INSTRUCTIONS_MAX)
        } else {
            instructions
        };
        set_hook(state, machine, adapted);
        false
    }
}

/// Collects all garbage.
///
/// # Safety
/// `machine` is that of `state`.
unsafe fn collect(state: *mut lua_State, machine: *mut Machine) {
    // SAFETY: as promised by the caller. Meanwhile no allocation is refused, so that nothing is raised; there are no
    // finalizers.
    unsafe {
        (*machine).memory.is_collecting = true;
        ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0);
        (*machine).memory.is_collecting = false;
        (*machine).memory.plan_collection();
    }
}

/// Raises the error of a script that was killed: again and again, at each instruction, until no `pcall` is left.
///
/// # Safety
/// As for [`look`].
unsafe fn raise_killed(state: *mut lua_State, machine: *mut Machine) -> ! {
    // SAFETY: as promised by the caller.
    unsafe {
        let text = &raw const (*machine).kill_text;
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushstring(state, c"err".as_ptr());
        ffi::lua_pushlstring(state, (*text).as_ptr().cast(), (*text).len());
        ffi::lua_rawset(state, -3);
        ffi::lua_error(state)
    }
}

/// Raises an error with this text, behind the place in the script of the call that it is about.
///
/// # Safety
/// As for [`look`].
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

/// # Safety
/// `machine` is that of `state`.
unsafe fn set_hook(state: *mut lua_State, machine: *mut Machine, instructions: c_int) {
    // SAFETY: a hook may be set at any time, even from a signal handler.
    unsafe {
        (*machine).hook_instructions = instructions;
        ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, instructions);
    }
}

/// The allocator of the interpreter: its own one behind a limit. It also brings the hook forward after much allocation,
/// since one instruction can allocate much.
///
/// # Safety
/// Called by the interpreter, with the machine as `data`.
unsafe extern "C" fn allocate(
    data: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: nobody else has a borrow of `memory` while Lua is called, and only Lua calls this.
    unsafe {
        let memory = &mut (*data.cast::<Machine>()).memory;
        let old = if block.is_null() { 0 } else { old };
        let is_admitted = new <= old || memory.admit(new - old);
        let moved = match is_admitted {
            true => (memory.inner)(memory.inner_data, block, old, new),
            false => ptr::null_mut(),
        };
        if new == 0 || !moved.is_null() {
            memory.used = memory.used + new - old;
            memory.since_look += new;
        }
        if memory.since_look > ALLOCATED_PER_LOOK || memory.is_pressed {
            memory.since_look = 0;
            ffi::lua_sethook(memory.state, Some(hook), ffi::LUA_MASKCOUNT, 1);
        }
        moved
    }
}

/// The machine of a state.
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

/// # Safety
/// `state` is a live state.
unsafe fn heap_bytes(state: *mut lua_State) -> usize {
    // SAFETY: as promised by the caller.
    let (kib, rest) = unsafe {
        (
            ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0),
            ffi::lua_gc(state, ffi::LUA_GCCOUNTB, 0),
        )
    };
    ((kib as usize) << 10) + rest as usize
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

/// Calls the server. A panic ends the process here: it must not reach the interpreter, nor a script's `pcall`.
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
