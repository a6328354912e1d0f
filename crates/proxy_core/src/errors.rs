//! Error replies of the proxy itself. Where Redis has an error for the case, it is Redis 8.2.3's, since clients match on
//! the texts; those that the server has as well are worded in `redline_spec::refusal` and `redline_acl`. Must not know
//! connections.

use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Unresolved, refusal};

/// The keys of one call belong to different servers.
pub const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
/// The call's keys cannot be found.
pub const INVALID_KEYS: &str = "ERR Invalid arguments specified for command";
/// SORT's options read keys that may be on other servers.
pub const SORT_BY_ELSEWHERE: &str = "ERR BY option of SORT denied in cluster mode when keys formed by the pattern may be in different slots.";
/// SORT with GET reads keys that may be on other servers.
pub const SORT_GET_ELSEWHERE: &str = "ERR GET option of SORT denied in cluster mode when keys formed by the pattern may be in different slots.";
/// SELECT of a database that does not exist.
pub const DB_OUT_OF_RANGE: &str = "ERR DB index is out of range";
/// Not an integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// An integer, but not one of 32 bits.
pub const NOT_A_SHORT_INTEGER: &str =
    "ERR value is out of range, value must between -2147483648 and 2147483647";
/// The arguments of a call do not fit its grammar.
pub const SYNTAX: &str = "ERR syntax error";
/// The slot has no server.
pub const CLUSTER_DOWN: &str = "CLUSTERDOWN Hash slot not served";
/// A shard that Sentinels watch has no primary yet.
pub const NO_PRIMARY: &str = "ERR upstream is not available: no Sentinel has named its primary yet";
/// CLUSTER, READONLY, READWRITE, ASKING.
pub const CLUSTER_DISABLED: &str = "ERR This instance has cluster support disabled";

/// Returns the error for a command or subcommand that does not exist.
pub fn unresolved(reason: Unresolved, args: Args<'_>) -> Vec<u8> {
    match reason {
        // The command exists, and is administrative.
        Unresolved::Command => match spec::unbuilt(&args[0]) {
            Some(name) => refused_name(name).into_bytes(),
            None => refusal::unknown_command(args.iter()),
        },
        Unresolved::Subcommand(container) => {
            let name = spec::row(container).name.to_ascii_uppercase();
            refusal::unknown_subcommand(&name, args.get(1).unwrap_or_default())
        }
    }
}

/// Returns the error for too few arguments, or too many.
pub fn wrong_arity(id: CommandId) -> String {
    refusal::wrong_arity(spec::row(id).full_name)
}

/// Returns the error for a split command whose keys only servers could find.
pub fn keys_untold(name: &str) -> String {
    format!(
        "ERR '{name}' is not available through the proxy: its arguments do not show which server has its keys"
    )
}

/// Returns the error for a command that concerns one server, or its administrators, and is not forwarded.
pub fn refused(id: CommandId) -> String {
    if matches!(id, CommandId::Wait | CommandId::Waitaof) {
        return format!(
            "ERR '{}' is not available through the proxy: it counts what was written on its own connection, and that is not the client's alone",
            spec::row(id).full_name.to_ascii_uppercase()
        );
    }
    refused_name(spec::row(id).full_name)
}

/// Returns the same by the full name.
pub fn refused_name(full_name: &str) -> String {
    let name = full_name.replace('|', " ");
    format!(
        "ERR '{}' is not available through the proxy: call it on the server itself",
        name.to_ascii_uppercase()
    )
}

/// Returns the error for a command that subscribed RESP2 clients may not call.
pub fn subscribed(id: CommandId) -> String {
    refusal::subscribed(spec::row(id).full_name)
}

/// Returns the error for a call that was not made, since there is no connection to the server.
pub fn unavailable(server: &str, reason: &str) -> String {
    format!("ERR upstream {server} is not available: {reason}")
}

/// Returns the error for a call that may have been made, whose connection broke.
pub fn outcome_unknown(server: &str, reason: &str) -> String {
    format!(
        "ERR upstream {server} was lost before it answered ({reason}): the outcome of this command is unknown"
    )
}

/// Returns a server's error reply to the connection set-up, for clients and the log: without the password, which it may
/// repeat. (A server without AUTH repeats the arguments of the call.)
pub fn of_setup(said: &str, password: Option<&str>) -> String {
    const ARGUMENTS: &str = "with args beginning with";
    /// A password of more characters may be repeated in part.
    const BEGINNING_CHARS: usize = 8;
    /// A password of fewer characters occurs in texts that do not repeat it.
    const PASSWORD_CHARS_MIN: usize = 4;
    let said = match said.find(ARGUMENTS) {
        Some(at) => said[..at].trim_end_matches([' ', ',']),
        None => said,
    };
    let (code, rest) = said.split_once(' ').unwrap_or((said, ""));
    let beginning: String = password
        .unwrap_or_default()
        .chars()
        .take(BEGINNING_CHARS)
        .collect();
    let is_telling = beginning.chars().count() >= PASSWORD_CHARS_MIN;
    match is_telling && rest.contains(&beginning) {
        true => format!("{code} (it repeats the password)"),
        false => said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_to_a_password_does_not_repeat_it() {
        let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
        for (said, password, shown) in [
            (wrong, Some("secret"), wrong),
            (wrong, None, wrong),
            (
                "ERR unknown command 'AUTH', with args beginning with: 'secret' ",
                Some("secret"),
                "ERR unknown command 'AUTH'",
            ),
            (
                "ERR no AUTH (verylongsecr...) here",
                Some("verylongsecret"),
                "ERR (it repeats the password)",
            ),
            ("NOPERM", Some("NO"), "NOPERM"),
            (
                "ERR DB index is out of range",
                Some(""),
                "ERR DB index is out of range",
            ),
            (
                "ERR DB index is out of range",
                Some("out"),
                "ERR DB index is out of range",
            ),
        ] {
            assert_eq!(of_setup(said, password), shown);
        }
    }
}
