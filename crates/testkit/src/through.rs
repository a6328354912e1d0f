//! What of the comparison goes through a proxy, and where the answers of one may differ from those of the server behind it.
//! Must not know how calls are routed, only what a user is told of it.

use redline_spec::{self as spec, CommandId};

use crate::differences::{Difference, NAME_WITH_ZERO_BYTE, begins};

/// Commands that concern one server, its keepers or one connection to it. A proxy refuses them, or answers for itself.
const OF_ONE_SERVER: &[&str] = &[
    "acl",
    "bgrewriteaof",
    "bgsave",
    "cluster",
    "config",
    "debug",
    "failover",
    "info",
    "lastsave",
    "latency",
    "migrate",
    "module",
    "monitor",
    "pfselftest",
    "psync",
    "replconf",
    "replicaof",
    "role",
    "save",
    "shutdown",
    "slaveof",
    "slowlog",
    "swapdb",
    "sync",
    "wait",
    "waitaof",
];
/// The same of subcommands.
const OF_ONE_CONNECTION: &[&str] = &[
    "client|caching",
    "client|getredir",
    "client|id",
    "client|info",
    "client|kill",
    "client|list",
    "client|pause",
    "client|tracking",
    "client|trackinginfo",
    "client|unblock",
    "client|unpause",
    "memory|doctor",
    "memory|malloc-stats",
    "memory|purge",
    "memory|stats",
    "script|debug",
    "client|no-touch",
];
/// What is refused between WATCH or MULTI, and EXEC.
const OF_A_CONNECTION: &[&str] = &[
    "hello",
    "auth",
    "select",
    "client",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
];
/// Several servers together have no answer of one.
const OF_ONE_KEYSPACE: &[&str] = &[
    "discard",
    "exec",
    "multi",
    "randomkey",
    "scan",
    "sort",
    "sort_ro",
    "unwatch",
    "watch",
    "subscribe",
    "psubscribe",
    "unsubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "pubsub",
    "publish",
    "spublish",
    "function",
    "client",
    "reset",
    "quit",
    "move",
];
/// Whose keys may be on several servers.
const SPLIT: &[&str] = &["del", "exists", "mget", "mset", "touch", "unlink"];

/// Whether a proxy before so many servers can answer the call as one server would.
fn is_compared(call: &[Vec<u8>], servers: usize) -> bool {
    let Ok(id) = spec::resolve(&call[0], call.get(1).map(Vec::as_slice)) else {
        // Errors of what there is not are the same.
        return !named(&call[0], OF_ONE_SERVER);
    };
    let row = spec::row(id);
    let first = row.full_name.split('|').next().unwrap_or_default();
    if OF_ONE_SERVER.contains(&first) || OF_ONE_CONNECTION.contains(&row.full_name) {
        return false;
    }
    servers < 2 || is_one_place(call, id, first)
}

/// The calls of a batch of which one can expect that a proxy before so many servers answers them as one server would.
///
/// Between MULTI and EXEC the connection is somebody's own for a while: what changes a connection is refused there. And
/// when a server hears that nobody listens any more is not promised, so nobody asks; nor is it when a message comes among
/// replies.
pub fn kept(calls: Vec<Vec<Vec<u8>>>, servers: usize) -> Vec<Vec<Vec<u8>>> {
    let (mut watched, mut queues, mut joined, mut left) = (false, false, false, false);
    let mut kept = Vec::new();
    for call in calls {
        let name = call[0].to_ascii_lowercase();
        let is = |names: &[&str]| names.iter().any(|other| other.as_bytes() == name);
        if is(&["multi"]) {
            queues = true;
        } else if is(&["watch"]) {
            watched = true;
        } else if is(&["reset"]) || queues && is(&["exec", "discard"]) && call.len() == 1 {
            (watched, queues) = (false, false);
        } else if is(&["unwatch"]) {
            watched = false;
        } else if (watched || queues) && is(OF_A_CONNECTION) {
            continue;
        }
        joined |= is(&["subscribe", "psubscribe", "ssubscribe"]);
        left |= is(&["reset", "unsubscribe", "punsubscribe", "sunsubscribe"]);
        let published = is(&["publish", "spublish"]) && (joined || left);
        if is_compared(&call, servers) && !published && !(is(&["pubsub"]) && left) {
            kept.push(call);
        }
    }
    kept
}

/// The lines of `clients/calls.txt` of which the same can be expected.
pub fn kept_lines(text: &str) -> String {
    let kept = text.lines().filter(|line| {
        let call = line.trim_start_matches(['~', '?']).split_whitespace();
        let call: Vec<Vec<u8>> = call.map(|word| word.as_bytes().to_vec()).collect();
        call.is_empty() || line.starts_with('#') || is_compared(&call, 1)
    });
    kept.map(|line| format!("{line}\n")).collect()
}

fn named(name: &[u8], list: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    list.iter().any(|listed| listed.as_bytes() == name)
}

/// Whether all keys are one, or each counts by itself.
fn is_one_place(call: &[Vec<u8>], id: CommandId, first: &str) -> bool {
    if OF_ONE_KEYSPACE.contains(&first) {
        return false;
    }
    if SPLIT.contains(&first) {
        return true;
    }
    let Ok(mut keys) = spec::keys(id, call.len(), |at| &call[at]) else {
        return false;
    };
    match keys.next() {
        // A script that names no key may still use some.
        None => !first.contains("eval") && first != "fcall" && first != "fcall_ro",
        Some(first) => keys.all(|key| call[key.position] == call[first.position]),
    }
}

/// The list. What servers of ours answer otherwise is on another: behind the proxy is a Redis.
pub const DIFFERENCES: &[Difference] = &[
    NAME_WITH_ZERO_BYTE,
    Difference {
        name: "keys that cannot be told",
        reason: "The proxy must know where a call goes before anybody looks at it: what names no keys where it should is refused as COMMAND GETKEYS refuses it.",
        parts_ways: false,
        explains: |_, ours, theirs| {
            begins(ours, "ERR Invalid arguments specified for command") && theirs.is_error()
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_several_places_are_left_out() {
        let split = |line: &str| -> Vec<Vec<u8>> {
            line.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect()
        };
        for (line, one, several) in [
            ("GET a", true, true),
            ("RENAME a b", true, false),
            ("RENAME a a", true, true),
            ("MGET a b", true, true),
            ("EVAL x 0 a", true, false),
            ("EVAL x 1 a", true, true),
            ("NONESUCH a", true, true),
            ("CLIENT LIST", false, false),
            ("CONFIG NONESUCH", false, false),
            ("MULTI", true, false),
        ] {
            assert_eq!(is_compared(&split(line), 1), one, "{line}");
            assert_eq!(is_compared(&split(line), 3), several, "{line}");
        }
    }

    #[test]
    fn each_difference_has_its_reason() {
        assert!(
            DIFFERENCES
                .iter()
                .all(|difference| !difference.reason.is_empty())
        );
    }
}
