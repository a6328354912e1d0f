//! Error replies that do not belong to one command: refusals before a command runs. Clients match on
//! these texts, so they are Redis 8.2.3's. Must not know: sessions.

use redline_commands::Error;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

/// Authentication is required and missing.
pub const NO_AUTH: Error = Error::line("NOAUTH Authentication required.");
/// The memory limit is reached and nothing may be evicted.
pub const OOM: Error = Error::line("OOM command not allowed when used memory > 'maxmemory'.");
/// A monitor may not do what is for replicas only, which it counts as one of.
pub const MONITOR_TOUCHES_KEYS: Error = Error::line("ERR Replica can't interact with the keyspace");
/// A function is over its threshold.
pub const BUSY_FUNCTION: Error = Error::line(
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
);

/// A script is over its threshold.
pub const BUSY: Error = Error::line(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);

/// Bytes of an argument, and of all arguments, that the unknown-command error repeats.
const PREVIEW_BYTES_MAX: usize = 128;

/// There is no such command.
pub fn unknown_command(args: Args<'_>) -> Error {
    let mut rest = b"', with args beginning with: ".to_vec();
    let before = rest.len();
    for arg in args.iter().skip(1) {
        let left = PREVIEW_BYTES_MAX.saturating_sub(rest.len() - before);
        if left == 0 {
            break;
        }
        let shown = preview(arg);
        rest.push(b'\'');
        rest.extend_from_slice(&shown[..shown.len().min(left)]);
        rest.extend_from_slice(b"' ");
    }
    Error::quoting("ERR unknown command '", preview(&args[0]), &rest)
}

/// The container has no such subcommand.
pub fn unknown_subcommand(container: CommandId, args: Args<'_>) -> Error {
    let name = spec::row(container).name.to_ascii_uppercase();
    let sub = preview(args.get(1).unwrap_or_default());
    Error::quoting(
        "ERR unknown subcommand '",
        sub,
        &format!("'. Try {name} HELP."),
    )
}

/// Too few arguments of a subcommand, or too many, where only its handler can tell.
pub fn wrong_subcommand_arity(container: CommandId, args: Args<'_>) -> Error {
    let name = spec::row(container).name.to_ascii_uppercase();
    Error::wrong_subcommand_arity(&name, preview(args.get(1).unwrap_or_default()))
}

/// Too few arguments, or too many.
pub fn wrong_arity(id: CommandId) -> Error {
    Error::Line(
        format!(
            "ERR wrong number of arguments for '{}' command",
            spec::row(id).full_name
        )
        .into(),
    )
}

/// Subscribed clients that speak RESP2 may call few commands.
pub fn subscribed(id: CommandId) -> Error {
    Error::Line(
        format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            spec::row(id).full_name
        )
        .into(),
    )
}

/// EXEC gives the transaction up, for this reason.
pub fn exec_aborted(reason: &[u8]) -> Error {
    Error::quoting("EXECABORT Transaction discarded because of: ", reason, "")
}

/// An argument as part of an error: cut, at a zero byte, too.
fn preview(arg: &[u8]) -> &[u8] {
    let text = arg.split(|&byte| byte == 0).next().unwrap_or_default();
    &text[..text.len().min(PREVIEW_BYTES_MAX)]
}
