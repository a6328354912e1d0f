//! ROLE and REPLICAOF: replication's commands for operators.
//!
//! Must not know: how a primary is followed.

use redline_commands::{Error, Words};
use redline_engine::{Caller, Halt};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::{following, log, worker::Worker};

/// Replies with the role: as a primary without replicas, or with the primary and the state of the link to it.
pub(crate) fn role(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let settings = worker.outlet.settings.clone();
    let following = &worker.shared.following;
    let offset = following.stream().identity().offset() as i64;
    let mut reply = caller.reply();
    match &settings.primary {
        None => {
            reply.array(3);
            reply.bulk(b"master");
            reply.integer(offset);
            reply.array(0);
        }
        Some((host, port)) => {
            reply.array(5);
            reply.bulk(b"slave");
            reply.bulk(host.as_bytes());
            reply.integer((*port).into());
            reply.bulk(following.link().state.name().as_bytes());
            reply.integer(offset);
        }
    }
    Ok(())
}

/// Has the server follow a primary, or nobody any more.
pub(crate) fn replicaof(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let current = worker.shared.settings.current().primary.clone();
    let mut words = Words::new(CommandId::Replicaof, &args, 1);
    let primary = if words.flag("NO") && words.flag("ONE") {
        None
    } else {
        let port = number::parse_i64(&args[2]).and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or(Error::line("ERR Invalid master port"))?;
        let host = String::from_utf8(args[1].to_vec());
        let host = host.map_err(|_| Error::line("ERR Invalid master host"))?;
        Some((host, port))
    };
    if primary == current {
        if let Some((host, port)) = &current {
            log::notice(&format!(
                "REPLICAOF would result into synchronization with the master we are already connected with ({host}:{port}). No operation performed."
            ));
            caller.reply().simple("OK Already connected to specified master");
        } else {
            caller.reply().ok();
        }
        return Ok(());
    }
    following::follow_for(worker, caller, primary.clone())?;
    let who = caller.info.addr.clone();
    match &primary {
        None => log::notice(&format!("MASTER MODE enabled (user request from '{who}')")),
        Some((host, port)) => log::notice(&format!(
            "REPLICAOF {host}:{port} enabled (user request from '{who}')"
        )),
    }
    caller.reply().ok();
    Ok(())
}
