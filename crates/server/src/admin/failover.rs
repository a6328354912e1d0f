//! FAILOVER.
//!
//! Must not know: how roles change.

use redline_commands::{Error, Words};
use redline_engine::{Caller, Halt};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::{
    failover::{self, Refusal, Request},
    worker::Worker,
};

const NO_FAILOVER: Error = Error::line("ERR No failover in progress.");
const NO_TIME: Error = Error::line("ERR FAILOVER timeout must be greater than 0");

/// Begins to change roles with a replica, or ends the attempt: `FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT ms]`.
pub(crate) fn failover(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if worker.shared.cluster.is_some() {
        return Err(Error::line(
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.",
        )
        .into());
    }
    let mut request = Request::default();
    let mut aborts = false;
    let mut words = Words::new(CommandId::Failover, &args, 1);
    while !words.is_empty() {
        if request.timeout_ms.is_none()
            && let Some(text) = words.value("TIMEOUT")
        {
            let timeout_ms = number::parse_i64(text).ok_or(Error::NotInteger)?;
            let timeout_ms = u64::try_from(timeout_ms).map_err(|_| NO_TIME)?;
            if timeout_ms == 0 {
                return Err(NO_TIME.into());
            }
            request.timeout_ms = Some(timeout_ms);
        } else if !aborts && words.flag("ABORT") {
            aborts = true;
        } else if request.target.is_none()
            && let Some([host, port]) = words.values("TO")
        {
            let port = number::parse_i64(port).ok_or(Error::NotInteger)?;
            // No replica has a port out of range.
            let port = u16::try_from(port).unwrap_or(0);
            request.target = Some((String::from_utf8_lossy(host).into_owned(), port));
        } else if !request.is_forced && words.flag("FORCE") {
            request.is_forced = true;
        } else {
            return Err(Error::Syntax.into());
        }
    }
    let shared = worker.shared;
    if aborts {
        if request != Request::default() {
            return Err(Error::Syntax.into());
        }
        if !failover::abort(shared) {
            return Err(NO_FAILOVER.into());
        }
        caller.reply().ok();
        return Ok(());
    }
    failover::begin(shared, request).map_err(told)?;
    caller.reply().ok();
    Ok(())
}

fn told(refusal: Refusal) -> Error {
    Error::line(match refusal {
        Refusal::InProgress => "ERR FAILOVER already in progress.",
        Refusal::IsReplica => "ERR FAILOVER is not valid when server is a replica.",
        Refusal::NoReplicas => "ERR FAILOVER requires connected replicas.",
        Refusal::ForceWithout => {
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP."
        }
        Refusal::NotReplica => "ERR FAILOVER target HOST and PORT is not a replica.",
        Refusal::NotOnline => "ERR FAILOVER target replica is not online.",
    })
}
