//! The admin plane: handlers of commands that need the worker, its connections or the configuration.
//!
//! One module per group; the command table decides which handler belongs to which command. Those of the session plane
//! are in the engine. Must not know: how a request reached it.

pub mod acl;
pub mod cluster;
pub mod command;
pub mod commandlog;
pub mod config;
pub mod debug;
pub mod failover;
pub mod latency;
pub mod memory;
pub mod migrate;
pub mod persistence;
pub mod replication;
pub mod server;

use redline_engine::{Caller, Halt};
use redline_resp::Args;
use redline_spec::CommandId;

pub(crate) use cluster::unserved;

use crate::worker::Worker;

/// Runs one command of the admin plane; it writes its reply to the caller.
pub type Handler = fn(&mut Worker, &mut Caller, Args<'_>) -> Result<(), Halt>;

macro_rules! table {
    ($(($id:ident, $module:ident :: $handler:ident),)*) => {
        [$((CommandId::$id, $module::$handler as Handler)),*]
    };
}

static HANDLERS: [Option<Handler>; CommandId::COUNT] = {
    let mut handlers: [Option<Handler>; CommandId::COUNT] = [None; CommandId::COUNT];
    let admin = redline_spec::for_each_admin_command!(table);
    let mut i = 0;
    while i < admin.len() {
        handlers[admin[i].0 as usize] = Some(admin[i].1);
        i += 1;
    }
    handlers
};

/// Calls the handler of a command of this plane.
pub fn run(
    worker: &mut Worker,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Halt> {
    HANDLERS[id as usize].expect("a row of this plane has a handler")(worker, caller, args)
}
