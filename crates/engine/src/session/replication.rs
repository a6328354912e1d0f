//! WAIT and WAITAOF: clients wait for replicas and for the append-only file, neither of which exists.
//!
//! So none has acknowledged anything, and nothing is synced to a file. Must not know: how a client is suspended.

use redline_commands::{Error, wait_ms};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::{
    caller::Caller,
    executor::{Executor, Halt, Outlet, block},
};

/// Number of replicas that have acknowledged, and of local files that have synced, all writes.
const ACKNOWLEDGED: i64 = 0;

pub(crate) fn wait<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let replicas = number::parse_i64(&args[1]).ok_or(Error::NotInteger)?;
    let timeout_ms = wait_ms(&args[2], executor.now_ms)?;
    let enough = replicas <= ACKNOWLEDGED;
    acknowledge(executor, caller, CommandId::Wait, args, enough, timeout_ms)
}

pub(crate) fn waitaof<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let files = number::parse_i64(&args[1]).ok_or(Error::NotInteger)?;
    if !(0..=1).contains(&files) {
        let text = "ERR value is out of range, value must between 0 and 1";
        return Err(Error::line(text).into());
    }
    let replicas = number::parse_i64(&args[2]).filter(|replicas| *replicas >= 0);
    let replicas = replicas.ok_or(Error::NOT_POSITIVE)?;
    let timeout_ms = wait_ms(&args[3], executor.now_ms)?;
    if files > 0 {
        let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        return Err(Error::line(text).into());
    }
    let enough = replicas <= ACKNOWLEDGED;
    acknowledge(
        executor,
        caller,
        CommandId::Waitaof,
        args,
        enough,
        timeout_ms,
    )
}

/// Replies if that number is enough, or if this caller may not wait; otherwise waits.
fn acknowledge<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
    enough: bool,
    timeout_ms: Option<u64>,
) -> Result<(), Halt> {
    if !enough && executor.compound.is_none() {
        return Err(block::begin_wait_without_keys(
            executor, caller, id, args, timeout_ms,
        ));
    }
    write_acknowledged(caller, id);
    Ok(())
}

/// Writes the current reply of WAIT or WAITAOF.
pub(crate) fn write_acknowledged(caller: &mut Caller, id: CommandId) {
    let mut reply = caller.reply();
    if id == CommandId::Waitaof {
        reply.array(2);
        reply.integer(ACKNOWLEDGED);
    }
    reply.integer(ACKNOWLEDGED);
}
