//! CLUSTER: what only a node of a cluster can do, and this server is none.
//!
//! Must not know: what a node would answer.

use redline_engine::{Caller, Halt, errors};
use redline_resp::Args;

use crate::worker::Worker;

/// HELP included, as in Redis.
pub(crate) fn disabled(_: &mut Worker, _: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    Err(errors::CLUSTER_DISABLED.into())
}
