//! The part of the comparison that uses a proxy, and the differences between replies of a proxy and of the server behind
//! it. Must not know how calls are routed, only what the documentation says of it.

use redline_spec::{self as spec, CommandId};

use crate::differences::{Difference, NAME_WITH_ZERO_BYTE, begins};
use crate::generate::{Call, innermost};

/// The kind of servers behind the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// One server.
    One,
    /// Several, each with a part of the keys.
    Several,
    /// A Redis Cluster, and all keys have [`TAG`] and so one slot.
    Cluster,
}

/// Prefix of keys that are to be in one slot of a cluster.
pub const TAG: &str = "{t}";

/// Commands that concern one server, its administrators or one connection to it. A proxy refuses them, or answers itself.
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
/// Subcommands that concern one server, its administrators or one connection to it.
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
/// Commands that are refused between WATCH or MULTI, and EXEC.
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
    "asking",
    "readonly",
    "readwrite",
];
/// Commands that several servers cannot answer as one.
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
/// A cluster has one database, a cursor of all its nodes, no sharded channels but those of a node's own slots, and
/// scripts that one node may know and another not.
const NOT_OF_A_CLUSTER: &[&str] = &[
    "scan",
    "select",
    "move",
    "pubsub|shardchannels",
    "pubsub|shardnumsub",
    "script|exists",
    "script|kill",
    "function|kill",
];
/// Commands that concern all nodes of a cluster, and so are refused between MULTI and EXEC.
const OF_ALL_NODES: &[&str] = &[
    "dbsize",
    "flushall",
    "flushdb",
    "function",
    "keys",
    "pubsub",
    "randomkey",
    "script",
];
/// Commands whose keys may be on several servers.
const SPLIT: &[&str] = &["del", "exists", "mget", "mset", "touch", "unlink"];

/// Returns true if a proxy before these servers can answer the call as one server would.
fn is_compared(call: &Call, behind: Behind) -> bool {
    let Ok(id) = spec::resolve(&call[0], call.get(1).map(Vec::as_slice)) else {
        // Errors of unknown commands are the same.
        return !named(&call[0], OF_ONE_SERVER);
    };
    let row = spec::row(id);
    let first = row.full_name.split('|').next().unwrap_or_default();
    if OF_ONE_SERVER.contains(&first) || OF_ONE_CONNECTION.contains(&row.full_name) {
        return false;
    }
    match behind {
        Behind::One => true,
        Behind::Several => is_one_place(call, id, first),
        // A script without keys runs on any node; keys that cannot be found cannot be tagged; COPY may name another
        // database.
        Behind::Cluster => {
            !NOT_OF_A_CLUSTER.contains(&row.full_name)
                && innermost(call).len() == call.len()
                && spec::keys(id, call.len(), |at| &call[at]).is_ok()
                && !(id == CommandId::Copy && call.len() > 4)
        }
    }
}

/// Puts [`TAG`] before every key of the call, the patterns of SORT, and sharded channels.
fn tag(call: &mut Call) {
    let Ok(id) = spec::resolve(&call[0], call.get(1).map(Vec::as_slice)) else {
        return;
    };
    let mut places: Vec<usize> = match id {
        CommandId::Ssubscribe | CommandId::Sunsubscribe => (1..call.len()).collect(),
        CommandId::Spublish => vec![1],
        _ => match spec::keys(id, call.len(), |at| &call[at]) {
            Ok(keys) => keys.map(|key| key.position).collect(),
            Err(_) => Vec::new(),
        },
    };
    if matches!(id, CommandId::Sort | CommandId::SortRo) {
        let is_before = |at: usize| named(&call[at - 1], &["by", "get"]);
        places.extend((3..call.len()).filter(|at| is_before(*at) && call[*at] != b"#"));
    }
    places.sort_unstable();
    places.dedup();
    for at in places {
        if let Some(word) = call.get_mut(at) {
            word.splice(..0, TAG.bytes());
        }
    }
}

/// Returns the calls of a batch that a proxy in front of these servers answers as one server would.
///
/// Between MULTI and EXEC the connection is dedicated: commands that change a connection are refused there. The time at
/// which a server notices the end of subscriptions is not defined, so it is not asked for; nor is the time of a message
/// among replies. In a cluster messages go from node to node: a later subscriber to a pattern, or one after a PUBLISH in
/// a transaction, which any node may execute, may receive older ones.
pub fn kept(calls: Vec<Call>, behind: Behind) -> Vec<Call> {
    let (mut watched, mut queues, mut joined, mut left) = (false, false, false, false);
    let mut travels = false;
    let mut kept = Vec::new();
    for mut call in calls {
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
        let is_cluster = behind == Behind::Cluster;
        let published = published || is_cluster && queues && is(&["publish"]);
        let overtakes = travels && is(&["psubscribe"]);
        travels |= is_cluster && is(&["publish"]);
        let of_all = is_cluster && queues && is(OF_ALL_NODES);
        let is_promised = !(published || overtakes || of_all || is(&["pubsub"]) && left);
        if is_promised && is_compared(&call, behind) {
            if is_cluster {
                tag(&mut call);
            }
            kept.push(call);
        }
    }
    kept
}

/// Returns the lines of `clients/calls.txt` with the same replies.
pub fn kept_lines(text: &str) -> String {
    let kept = text.lines().filter(|line| {
        let call = line.trim_start_matches(['~', '?']).split_whitespace();
        let call: Call = call.map(|word| word.as_bytes().to_vec()).collect();
        call.is_empty() || line.starts_with('#') || is_compared(&call, Behind::One)
    });
    kept.map(|line| format!("{line}\n")).collect()
}

fn named(name: &[u8], list: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    list.iter().any(|listed| listed.as_bytes() == name)
}

/// Returns true if all keys are one, or each counts by itself.
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

/// The list. Differences of our server are on another: behind the proxy is a Redis.
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
    Difference {
        name: "keys that a script makes up, in a cluster",
        reason: "A node of a cluster refuses them unless they are in the slot of those that the call names.",
        parts_ways: true,
        explains: |call, ours, _| {
            let name = call[0].to_ascii_lowercase();
            (name.starts_with(b"eval") || name.starts_with(b"fcall"))
                && begins(ours, "ERR Script attempted to access")
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_several_places_are_left_out() {
        let split = |line: &str| -> Call {
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
            assert_eq!(is_compared(&split(line), Behind::One), one, "{line}");
            let kept = is_compared(&split(line), Behind::Several);
            assert_eq!(kept, several, "{line}");
        }
    }

    #[test]
    fn keys_for_a_cluster_have_one_slot() {
        for (line, tagged) in [
            ("GET a", "GET {t}a"),
            ("MSET a 1 b 2", "MSET {t}a 1 {t}b 2"),
            (
                "SORT l BY w* GET # GET v* STORE d",
                "SORT {t}l BY {t}w* GET # GET {t}v* STORE {t}d",
            ),
            ("SSUBSCRIBE a b", "SSUBSCRIBE {t}a {t}b"),
            ("PING a", "PING a"),
            ("SELECT 1", ""),
        ] {
            let call = line.split(' ').map(|word| word.as_bytes().to_vec());
            let kept = kept(vec![call.collect()], Behind::Cluster);
            let shown = kept.first().map(|call| call.join(&b' '));
            assert_eq!(shown.unwrap_or_default(), tagged.as_bytes(), "{line}");
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
