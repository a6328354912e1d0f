//! CLUSTER: commands for nodes of a cluster, refused since this server is none.
//!
//! Must not know: the replies of a node.

use redline_engine::{Caller, Halt, errors};
use redline_resp::Args;

use crate::worker::Worker;

/// Refuses every subcommand, HELP included, as in Redis.
pub(crate) fn disabled(_: &mut Worker, _: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    Err(errors::CLUSTER_DISABLED.into())
}
