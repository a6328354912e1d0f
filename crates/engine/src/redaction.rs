//! Redaction of the parts of a call that must not be shown to others: passwords and the like, in the logs of commands
//! and to MONITOR.
//!
//! Must not know: the readers.

use redline_observe::secret::{self, REDACTED};
use redline_resp::Args;
use redline_spec::CommandId;

use crate::executor::Outlet;

/// Returns true if the argument at `index` is a secret.
pub fn is_secret<O: Outlet>(id: CommandId, args: Args<'_>, index: usize) -> bool {
    match id {
        CommandId::ConfigSet => {
            index >= 3 && index % 2 == 1 && O::is_secret_parameter(&args[index - 1])
        }
        _ => secret::is_secret(id, args, index),
    }
}

/// Returns the argument at `index` as others may see it.
pub fn shown<O: Outlet>(id: CommandId, args: Args<'_>, index: usize) -> &[u8] {
    match is_secret::<O>(id, args, index) {
        true => REDACTED,
        false => args.get(index).unwrap_or_default(),
    }
}
