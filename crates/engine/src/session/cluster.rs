//! READONLY, READWRITE, ASKING: commands for nodes of a cluster, refused since this server is none.
//!
//! Must not know: the replies of a node.

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
