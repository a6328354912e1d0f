//! Runs any command of the data, transaction and script planes for a [`Caller`], which needs no connection.
//!
//! Start with [`Executor`] and its [`Outlet`], then `executor/run.rs` (the way of a request).
//!
//! | | file | holds |
//! |---|---|---|
//! | execution | `executor` | an executor, its surroundings, its settings and its clock |
//! | | `engine` | state that all executors share; messages between them |
//! | | `settings`, `rename_command` | the settings of commands; the names of commands on this server |
//! | | `caller` | state of a client for its commands, and the public part of it |
//! | | `errors`, `refusals` | refusals in Redis's words; reasons to refuse whatever is called |
//! | commands | `session` | commands that need the executor or the caller, by group; those on keys are in `redline_commands` |
//! | | `running_script` | the script that runs, seen from outside |
//! | notifications | `pubsub`, `subscriptions` | channels; a client's part in them |
//! | | `subscriber_index` | subscribers of one channel, pattern or prefix |
//! | | `tracking`, `monitor` | invalidation messages; MONITOR |
//! | figures | `stats`, `timing` | counters, times of commands |
//! | | `commandlog`, `redaction` | SLOWLOG's entries; secrets that must not be shown |
//! | | `chores` | memory that is freed in the background |
//!
//! Must not know: sockets, files, threads, the configuration's file.

#![forbid(unsafe_code)]

pub mod caller;
pub mod chores;
pub mod commandlog;
pub mod engine;
pub mod errors;
pub mod executor;
pub mod monitor;
pub mod own_keys;
pub mod pubsub;
pub mod redaction;
pub mod refusals;
pub mod rename_command;
pub mod running_script;
pub mod session;
pub mod settings;
pub mod stats;
mod subscriber_index;
pub mod subscriptions;
pub mod timing;
pub mod tracking;

pub use caller::Caller;
pub use engine::{Engine, ExecutorHandle, Mailbox, Message};
pub use executor::{Clock, Executor, Halt, Level, Member, Outlet};
pub use rename_command::Names;
pub use settings::Settings;

/// Version of Redis whose behaviour decides: INFO and HELLO report it as `redis_version`.
pub const REDIS_VERSION: &str = redline_spec::REFERENCE;
/// Name of this program where a server names itself.
pub const SERVER_NAME: &str = "redline";
/// Version of this program.
pub const REDLINE_VERSION: &str = env!("CARGO_PKG_VERSION");
