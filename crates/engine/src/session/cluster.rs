//! READONLY, READWRITE, ASKING: what only a node of a cluster can do, and this server is none.
//!
//! Must not know: what a node would answer.

use redline_resp::Args;

use crate::{
    caller::Caller,
    errors,
    executor::Halt,
    executor::{Executor, Outlet},
};

pub(crate) fn disabled<O: Outlet>(
    _: &mut Executor<'_, O>,
    _: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    Err(errors::CLUSTER_DISABLED.into())
}
