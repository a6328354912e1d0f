//! One of our servers as the only node of a cluster: the same calls to it and to a real Redis that owns all slots, read by
//! redis-cli in both protocols; cluster clients; redis-cli's checks; the bench.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use redline_testkit::process::ServerProcess;

use crate::compat::Setting;
use crate::proxy_face;
use crate::run::{Failure, captured, until};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Calls whose replies are equal but for ids, ports and epochs.
const CALLS: &str = r##"
CONFIG SET cluster-announce-ip 127.0.0.1
FLUSHALL
MSET {x}1 1 {x}2 2
RPUSH a 1 2
MGET a b
MSETNX a 1 b 2
RENAME a b
SINTERCARD 2 a b
SINTERCARD 3 a b
SINTERCARD x a b
LMPOP 2 a b LEFT
BLPOP a b 1
XREAD STREAMS a b 0 0
XREAD STREAMS a b 0
ZUNIONSTORE {a}x 2 a b
GEORADIUS a 1 1 1 m STORE b
PFMERGE a
MSET a 1 b
MIGRATE 127.0.0.1 1 "" 0 100 KEYS a b
RESTORE-ASKING r 0 x
WATCH a b
SPUBLISH x y
PUBLISH x y
SELECT 1
SELECT 0
SELECT x
SWAPDB 0 0
MOVE a 0
MOVE a x
COPY {x}1 {x}3 DB 0
COPY {x}1 {x}4 DB 1
COPY {x}1 {x}4 DB x
COPY a b
REPLICAOF localhost 1
SLAVEOF NO ONE
FAILOVER
FAILOVER ABORT
READONLY
READWRITE
ASKING
READONLY x
AUTH "internal connection" x
SORT a BY w_* GET x_*
SORT a BY {a}w_*
SORT a BY {a*
SORT a BY {}w_*
SORT a BY nosort GET #
SORT a GET {a}x
SORT a GET {a}x_*->f
SORT a GET b
SORT a GET a
SORT a BY {b}w_*
SORT_RO a BY \\{a}w_*
EVAL "return 1" 2 a b
EVAL "return redis.call('get','b')" 0
EVAL "redis.call('get','b') return redis.call('get','c')" 0
EVAL "return redis.call('get','b')" 1 a
EVAL "return redis.call('mget','a','b')" 0
EVAL "return redis.pcall('mget','a','b')" 0
EVAL "#!lua\nredis.call('get','b') return redis.call('get','c')" 0
EVAL "#!lua\nredis.pcall('get','b') return redis.pcall('get','c')" 0
EVAL "#!lua\nreturn redis.call('get','b')" 1 a
EVAL "#!lua flags=allow-cross-slot-keys\nredis.call('get','b') return redis.call('get','c')" 0
EVAL "#!lua flags=allow-cross-slot-keys\nreturn redis.call('mget','a', 'b')" 0
EVAL "#!lua flags=allow-cross-slot-keys\nreturn redis.call('get','b')" 2 a b
EVAL "#!lua flags=no-cluster\nreturn 1" 0
EVAL "#!lua flags=no-cluster,no-writes\nreturn 1" 0
EVAL_RO "#!lua flags=no-cluster\nreturn 1" 0
EVAL "return redis.call('select','1')" 0
EVAL "return redis.call('cluster','keyslot', 'foo')" 0
EVAL "return redis.call('cluster','countkeysinslot', '16287')" 0
EVAL "#!lua\nredis.call('spublish','x', 'y') return redis.call('spublish','y', 'z')" 0
MULTI
GET a
GET {b}
EXEC
MULTI
MGET a b
EXEC
MULTI
TYPE a
LLEN a
SELECT 1
EXEC
MULTI
CLUSTER KEYSLOT a
CLUSTER COUNTKEYSINSLOT 16287
TYPE b
EXEC
CLUSTER MYID
CLUSTER MYSHARDID
CLUSTER NODES
CLUSTER SLOTS
CLUSTER SHARDS
CLUSTER INFO
CLUSTER LINKS
CLUSTER REPLICAS x
CLUSTER SLAVES x
CLUSTER COUNT-FAILURE-REPORTS x
CLUSTER KEYSLOT foo{hash_tag}
CLUSTER KEYSLOT
CLUSTER COUNTKEYSINSLOT 16287
CLUSTER COUNTKEYSINSLOT 16384
CLUSTER COUNTKEYSINSLOT x
CLUSTER COUNTKEYSINSLOT -1
CLUSTER GETKEYSINSLOT 15495 10
CLUSTER GETKEYSINSLOT 0 -1
CLUSTER GETKEYSINSLOT x 1
CLUSTER GETKEYSINSLOT 0 x
CLUSTER GETKEYSINSLOT 16384 1
CLUSTER SLOT-STATS SLOTSRANGE 16286 16287
CLUSTER SLOT-STATS SLOTSRANGE 5 1
CLUSTER SLOT-STATS SLOTSRANGE 0 16384
CLUSTER SLOT-STATS SLOTSRANGE 1 2 3
CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 3
CLUSTER SLOT-STATS ORDERBY KEY-COUNT ASC LIMIT 3
CLUSTER SLOT-STATS ORDERBY KEY-COUNT FOO 3
CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 0
CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 3 LIMIT 4
CLUSTER SLOT-STATS ORDERBY cpu-usec
CLUSTER SLOT-STATS foo 1 2
CLUSTER ADDSLOTS 0
CLUSTER ADDSLOTS 16384
CLUSTER ADDSLOTSRANGE 5 4
CLUSTER ADDSLOTSRANGE 1 2 3
CLUSTER DELSLOTS 5 5
CLUSTER DELSLOTSRANGE 3 4 9 8
CLUSTER DELSLOTSRANGE 3 4 4 8
CLUSTER MEET x 1
CLUSTER MEET 1.2.3.4 x
CLUSTER MEET 127.0.0.1 99999
CLUSTER MEET 127.0.0.1 1 x
CLUSTER REPLICATE x
CLUSTER FORGET x
CLUSTER FAILOVER
CLUSTER FAILOVER x
CLUSTER RESET foo
CLUSTER RESET
CLUSTER FLUSHSLOTS
CLUSTER SET-CONFIG-EPOCH x
CLUSTER SET-CONFIG-EPOCH -1
CLUSTER SETSLOT 1 NODE x
CLUSTER SETSLOT 1 foo
CLUSTER SETSLOT 0 STABLE
CLUSTER SETSLOT 0 MIGRATING x
CLUSTER SETSLOT 0 IMPORTING x
CLUSTER SETSLOT 99999 STABLE
CLUSTER SAVECONFIG
CLUSTER FOO
CLUSTER
INFO cluster
ROLE
CONFIG GET databases
CONFIG SET cluster-announce-hostname h.example
CLUSTER SLOTS
CLUSTER NODES
CLUSTER SHARDS
CONFIG SET cluster-preferred-endpoint-type hostname
CLUSTER SLOTS
CLUSTER SHARDS
CONFIG SET cluster-preferred-endpoint-type unknown-endpoint
CLUSTER SLOTS
CLUSTER SHARDS
CONFIG SET cluster-announce-hostname ""
CLUSTER SLOTS
CONFIG SET cluster-preferred-endpoint-type hostname
CLUSTER SLOTS
CLUSTER SHARDS
CONFIG SET cluster-preferred-endpoint-type ip
CONFIG SET cluster-require-full-coverage no
CLUSTER DELSLOTS 12182 3
CLUSTER DELSLOTS 3
GET foo
CLUSTER NODES
CLUSTER SLOT-STATS SLOTSRANGE 3 4
EVAL "return redis.call('get','foo')" 0
EVAL "return redis.call('get','foo')" 1 foo
CLUSTER ADDSLOTSRANGE 3 3 12182 12182
CONFIG SET cluster-require-full-coverage yes
FLUSHALL
"##;

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let words = ["--cluster-enabled", "yes"].map(str::to_owned);
    let ours = ServerProcess::redline(&setting.redline, 2, &words)
        .map_err(|error| format!("redline server: {error}"))?;
    let compared = same_answers(setting, ours.address())?;
    let port = ours.address().port();
    let ways = proxy_face::use_cluster(port, 1)?;
    for action in ["check", "info"] {
        let mut cli = Command::new("redis-cli");
        let node = ours.address().to_string();
        cli.args(["--cluster", action, &node]);
        let said = captured(cli, b"", TIMEOUT)?;
        if !said.contains("16384 slots") || said.contains("[ERR]") || said.contains("[WARNING]") {
            return Err(format!("redis-cli --cluster {action}:\n{said}"));
        }
    }
    let mut bench = Command::new(&setting.redline);
    bench.args(["bench", "run", "--cluster", "-p", &port.to_string()]);
    bench.args([
        "--command",
        "SET key:{uniform:1000} x",
        "--requests",
        "20000",
    ]);
    captured(bench, b"", TIMEOUT)?;
    let keys = number_of_keys(ours.address())?;
    if !(900..=1000).contains(&keys) {
        return Err(format!(
            "redline bench run --cluster left {keys} of 1000 keys"
        ));
    }
    Ok(format!(
        "{compared} calls answered as by a real node, {ways} ways of cluster clients, redis-cli -c and --cluster check and info, and redline bench run --cluster take it for a cluster"
    ))
}

fn number_of_keys(node: SocketAddr) -> Result<u64, Failure> {
    let said = told(node, "DBSIZE\n", "")?;
    let number = said
        .trim()
        .strip_prefix("(integer) ")
        .and_then(|n| n.parse().ok());
    number.ok_or_else(|| format!("DBSIZE: {said}"))
}

/// Compares the replies of the two, and returns the number of calls.
fn same_answers(setting: &Setting, ours: SocketAddr) -> Result<usize, Failure> {
    let bus = crate::run::free_port()?.to_string();
    let words = ["--cluster-enabled", "yes", "--cluster-port", &bus].map(str::to_owned);
    let real = ServerProcess::redis(&setting.redis, &words)
        .map_err(|error| format!("redis-server: {error}"))?;
    told(real.address(), "CLUSTER ADDSLOTSRANGE 0 16383\n", "")?;
    until("the real node serves its slots", || {
        told(real.address(), "CLUSTER INFO\n", "")
            .is_ok_and(|info| info.contains("cluster_state:ok"))
    })?;
    for protocol in ["-2", "-3"] {
        let expected = equal_parts(real.address(), protocol)?;
        let said = equal_parts(ours, protocol)?;
        let (mut theirs, mut own) = (expected.lines(), said.lines());
        let mut number = 0;
        loop {
            number += 1;
            let (one, other) = (theirs.next(), own.next());
            if one != other {
                let before: Vec<&str> = said.lines().take(number - 1).collect();
                let before = before[before.len().saturating_sub(8)..].join("\n");
                return Err(format!(
                    "{protocol}, line {number}: Redis says {one:?}, ours {other:?}, behind\n{before}"
                ));
            }
            if one.is_none() {
                break;
            }
        }
    }
    Ok(2 * CALLS.trim().lines().count())
}

/// Returns the replies of a node to all calls, without what differs from node to node.
fn equal_parts(node: SocketAddr, protocol: &str) -> Result<String, Failure> {
    let one = |call: &str| {
        told(node, call, protocol).map(|said| said.trim().trim_matches('"').to_owned())
    };
    let (id, shard) = (one("CLUSTER MYID\n")?, one("CLUSTER MYSHARDID\n")?);
    let said = told(node, CALLS.trim_start(), protocol)?;
    let port = node.port().to_string();
    let said = said.replace(&id, "ID").replace(&shard, "SHARD");
    let said = said.replace(&port, "PORT");
    let lines = said.lines().filter_map(|line| {
        let is_epoch = ["cluster_current_epoch", "cluster_my_epoch"];
        if is_epoch.iter().any(|name| line.contains(name)) && !line.contains("\\r\\n") {
            return None;
        }
        Some(without_epochs(line))
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Takes the port of the bus and the epochs out of a line.
fn without_epochs(line: &str) -> String {
    let mut line = line.to_owned();
    for (before, after) in [
        ("PORT@", &[' ', ','][..]),
        ("master - 0 0 ", &[' ']),
        ("cluster_current_epoch:", &['\\']),
        ("cluster_my_epoch:", &['\\']),
    ] {
        if let Some(at) = line.find(before) {
            let from = at + before.len();
            let to = line[from..]
                .find(after)
                .map_or(line.len(), |len| from + len);
            line.replace_range(from..to, "");
        }
    }
    line
}

/// Sends lines to a node by redis-cli, and returns its output with the types of replies.
fn told(node: SocketAddr, lines: &str, protocol: &str) -> Result<String, Failure> {
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &node.port().to_string(), "--no-raw"]);
    if protocol == "-3" {
        cli.arg(protocol);
    }
    captured(cli, lines.as_bytes(), TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_bus_and_epochs_is_taken_out() {
        for (line, rest) in [
            (
                "ID 127.0.0.1:PORT@17000,h myself,master - 0 0 12 connected 0-16383",
                "ID 127.0.0.1:PORT@,h myself,master - 0 0  connected 0-16383",
            ),
            ("cluster_size:1", "cluster_size:1"),
            ("cluster_my_epoch:12\\r\\n", "cluster_my_epoch:\\r\\n"),
        ] {
            assert_eq!(without_epochs(line), rest);
        }
    }
}
