//! One worker's interpreter, as the server sees it: load a script, run a script. Must not know the interpreter's API.

use std::fmt;
use std::sync::Arc;

use redline_resp::{Args, Reply, limits};

use crate::env::ScriptEnv;
use crate::library::{Function, FunctionRef, LibraryError};
use crate::script::{Origin, Script, Scripts, ShebangError};
use crate::vm::Vm;

/// Limits on the resources of an interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that the interpreter's heap may hold. A script that needs more ends in an error.
    pub memory_bytes_max: usize,
    /// Bytes that the arguments of one call, or the reply of a script, may have: a script can name one large string
    /// many times.
    pub message_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes_max: 256 << 20,
            message_bytes_max: limits::BULK_BYTES_MAX as usize,
        }
    }
}

/// Reason why a text did not become a script. `Display` is the error line, code included.
#[derive(Debug)]
pub enum LoadError {
    /// Its first line is wrong.
    Shebang(ShebangError),
    /// It is not Lua: the compiler's message.
    Syntax(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Shebang(error) => error.fmt(f),
            LoadError::Syntax(text) => {
                write!(f, "ERR Error compiling script (new function): {text}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// An interpreter with its sandbox and the code it has compiled. A worker owns one, and takes it out of its state while
/// a script runs, so that [`ScriptEnv::tick`] may use the rest of the worker.
pub struct Host {
    vm: Vm,
    /// Id of the next function.
    next_function_id: u64,
}

impl Host {
    /// Makes an interpreter. `seed` starts its `math.random`. `None` if the memory limit has no room for the sandbox.
    pub fn new(limits: Limits, seed: u64) -> Option<Host> {
        Host::with(limits, seed, false)
    }

    /// Makes an interpreter for libraries of functions. It runs no scripts.
    pub fn for_functions(limits: Limits, seed: u64) -> Option<Host> {
        Host::with(limits, seed, true)
    }

    fn with(limits: Limits, seed: u64, for_functions: bool) -> Option<Host> {
        let vm = Vm::new(limits, seed, for_functions)?;
        Some(Host {
            vm,
            next_function_id: 1,
        })
    }

    /// Calls a function and writes its reply, or the error that ended it.
    pub fn call(
        &mut self,
        function: &FunctionRef,
        keys: Args<'_>,
        argv: Args<'_>,
        env: &mut dyn ScriptEnv,
        reply: &mut Reply<'_>,
    ) {
        self.vm.call(function, keys, argv, env, reply);
    }

    /// Runs the text of a library; returns the functions that it has registered, and the id of the first.
    pub(crate) fn run_library(
        &mut self,
        code: &[u8],
        env: &mut dyn ScriptEnv,
    ) -> Result<(u64, Vec<Function>), LibraryError> {
        let first_id = self.next_function_id;
        let functions = self.vm.load_library(code, first_id, env)?;
        self.next_function_id += functions.len() as u64;
        Ok((first_id, functions))
    }

    pub(crate) fn forget_functions(&mut self, first_id: u64, count: usize) {
        self.vm.forget_functions(first_id, count);
    }

    /// Returns the script with this text, out of the cache or compiled for the first time.
    pub fn load(
        &mut self,
        scripts: &Scripts,
        source: &[u8],
        origin: Origin,
    ) -> Result<Arc<Script>, LoadError> {
        if let Some(script) = scripts.find(source) {
            if origin == Origin::Load {
                scripts.keep(script.sha());
            }
            return Ok(script);
        }
        let script = scripts.parse(source).map_err(LoadError::Shebang)?;
        self.vm.compile(&script).map_err(LoadError::Syntax)?;
        Ok(scripts.insert(script, origin))
    }

    /// Runs a script and writes its reply, or the error that ended it.
    pub fn eval(
        &mut self,
        script: &Script,
        keys: Args<'_>,
        argv: Args<'_>,
        env: &mut dyn ScriptEnv,
        reply: &mut Reply<'_>,
    ) {
        self.vm.eval(script, keys, argv, env, reply);
    }

    /// Collects a little of the garbage that scripts have left, for a fraction of a millisecond, if none has run since
    /// the last call: so an idle interpreter gives back memory that it does not need.
    pub fn collect_some(&mut self) {
        self.vm.collect_some();
    }

    /// Returns the number of bytes that the interpreter's heap holds.
    pub fn memory_bytes(&self) -> usize {
        self.vm.memory_bytes()
    }
}
