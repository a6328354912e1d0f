//! The Lua host: runs the scripts of EVAL and EVALSHA in a sandbox of their own, one interpreter per worker.
//! Calls commands back through [`ScriptEnv`]; must not know the keyspace or sockets.

#![deny(unsafe_code)]

mod env;
mod host;
mod library;
mod pattern;
mod reply_reader;
mod script;
mod source;
#[allow(unsafe_code)]
mod vm;

pub use env::{Family, ScriptEnv, Tick};
pub use host::{Host, Limits, LoadError};
pub use library::{Function, FunctionRef, Libraries, Library, LibraryError, RestorePolicy};
pub use script::{Origin, Script, ScriptFlags, Scripts, Sha, ShebangError, sha1_hex};
