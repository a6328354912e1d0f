//! Error replies that do not belong to one command: refusals before a command runs. Clients match on these texts, so
//! they are Redis 8.2.3's; those that the proxy has as well are worded in `redline_spec::refusal` and `redline_acl`.
//! Must not know: sessions.

use redline_commands::Error;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, refusal};

/// A write while too few replicas are there and up to date.
pub const NO_REPLICAS: Error = Error::line("NOREPLICAS Not enough good replicas to write.");
/// Authentication is required and missing.
pub const NO_AUTH: Error = Error::line(redline_acl::NO_AUTH);
/// The memory limit is reached and nothing may be evicted.
pub const OOM: Error = Error::line("OOM command not allowed when used memory > 'maxmemory'.");
/// Refusal of a command on keys by a client in MONITOR, which counts as a replica.
pub const MONITOR_TOUCHES_KEYS: Error = Error::line("ERR Replica can't interact with the keyspace");
/// Refusal of a command that needs a node of a cluster.
pub const CLUSTER_DISABLED: Error = Error::line("ERR This instance has cluster support disabled");
/// The data is being loaded.
pub const LOADING: Error = Error::line("LOADING Redis is loading the dataset in memory");
/// The last snapshot could not be written.
pub const SAVE_FAILED: Error = Error::line(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
);
/// A client may not write, since the server follows a primary.
pub const READ_ONLY: Error = Error::line("READONLY You can't write against a read only replica.");
/// The primary is away, and old data is not shown.
pub const PRIMARY_DOWN: Error =
    Error::line("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
/// The same, for a command of a script.
pub const STALE_SCRIPT: Error = Error::line("ERR Can not execute the command on a stale replica");
/// A function is over its threshold.
pub const BUSY_FUNCTION: Error = Error::line(
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
);

/// A script is over its threshold.
pub const BUSY: Error = Error::line(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);

/// Returns the error for an unknown command.
pub fn unknown_command(args: Args<'_>) -> Error {
    Error::Quoting(refusal::unknown_command(args.iter()).into())
}

/// Returns the error for an unknown subcommand of a container.
pub fn unknown_subcommand(container: CommandId, args: Args<'_>) -> Error {
    let name = spec::row(container).name.to_ascii_uppercase();
    let line = refusal::unknown_subcommand(&name, args.get(1).unwrap_or_default());
    Error::Quoting(line.into())
}

/// Returns the error for too few or too many arguments of a subcommand, where its handler checks them.
pub fn wrong_subcommand_arity(container: CommandId, args: Args<'_>) -> Error {
    let name = spec::row(container).name.to_ascii_uppercase();
    Error::wrong_subcommand_arity(&name, args.get(1).unwrap_or_default())
}

/// Returns the error for too few or too many arguments.
pub fn wrong_arity(id: CommandId) -> Error {
    Error::wrong_arity(spec::row(id).full_name)
}

/// Returns the error for a command that subscribed clients may not call in RESP2.
pub fn subscribed(id: CommandId) -> Error {
    Error::Line(refusal::subscribed(spec::row(id).full_name).into())
}

/// Returns the error of an EXEC that discards its transaction, since it was refused itself.
pub fn exec_aborted(line: &[u8]) -> Error {
    Error::Quoting(refusal::exec_aborted(line).into())
}
