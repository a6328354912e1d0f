//! READONLY, READWRITE, ASKING: commands for connections to a node of a cluster.
//!
//! Must not know: the nodes, who owns a slot.

use redline_resp::Args;

use crate::{
    caller::{Caller, flag, state},
    errors,
    executor::Halt,
    executor::{Executor, Outlet},
};

/// Lets the client read from a replica of the slot's node. CLIENT LIST shows it.
pub(crate) fn readonly<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    only_in_cluster(executor)?;
    caller.info.set_flag(flag::READONLY, true);
    caller.reply().ok();
    Ok(())
}

/// Takes READONLY back.
pub(crate) fn readwrite<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    only_in_cluster(executor)?;
    caller.info.set_flag(flag::READONLY, false);
    caller.reply().ok();
    Ok(())
}

/// Says that the next call, or the transaction that it opens, follows an ASK redirect.
pub(crate) fn asking<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    only_in_cluster(executor)?;
    caller.set_state(state::ASKING, true);
    caller.reply().ok();
    Ok(())
}

fn only_in_cluster<O: Outlet>(executor: &Executor<'_, O>) -> Result<(), Halt> {
    match executor.engine.keyspace.is_of_cluster() {
        true => Ok(()),
        false => Err(errors::CLUSTER_DISABLED.into()),
    }
}
