//! CLUSTER, READONLY, READWRITE, ASKING: what only a node of a cluster can do, and this server is none.
//!
//! Must not know: what a node would answer.

use redline_commands::Error;
use redline_resp::Args;

use crate::{exec::Halt, session::Caller, worker::Worker};

/// HELP included, as in Redis.
pub(crate) fn disabled(_: &mut Worker, _: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR This instance has cluster support disabled").into())
}
