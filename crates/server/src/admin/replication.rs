//! ROLE and REPLICAOF: replication's commands for operators; it does not exist.
//!
//! Must not know: what a replica would do.

use redline_commands::{Error, Words};
use redline_engine::{Caller, Halt};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::worker::Worker;

/// Replies as a primary without replicas: nothing has an offset.
pub(crate) fn role(_: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let mut reply = caller.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

/// Accepts `NO ONE`, which is the server's state; replicas are not implemented.
pub(crate) fn replicaof(_: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::Replicaof, &args, 1);
    if words.flag("NO") && words.flag("ONE") {
        caller.reply().ok();
        return Ok(());
    }
    let port = number::parse_i64(&args[2]).filter(|port| (0..=i64::from(u16::MAX)).contains(port));
    let text = match port {
        Some(_) => "ERR replication is not built yet: this server is nobody's replica",
        None => "ERR Invalid master port",
    };
    Err(Error::line(text).into())
}
