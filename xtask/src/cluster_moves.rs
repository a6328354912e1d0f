//! Two shards of ours whose cluster is in a real etcd: messages that reach subscribers of both; slots that redis-cli moves key by
//! key, by `reshard` and `rebalance`; slots that move whole while a cluster client writes.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::cluster_etcd::{Etcd, Node, TIMEOUT, expect, managed};
use crate::compat::Setting;
use crate::install;
use crate::run::{Failure, Folder, Process, captured, until, workspace};

/// Tags of the keys that are written to while their slots move.
const TAGS: [&str; 4] = ["a", "b", "c", "d"];

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let etcd = Etcd::start(&install::etcd()?)?;
    let mut words = etcd.words("default");
    words.extend(["--enable-debug-command", "yes"].map(str::to_owned));
    let nodes = [
        Node::start(&setting.redline, &words)?,
        Node::start(&setting.redline, &words)?,
    ];
    expect(&nodes[0].told("CLUSTER ADDSLOTSRANGE 0 16383")?, "OK")?;
    let meet = format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port);
    expect(&nodes[1].told(&meet)?, "OK")?;
    until("both know both", || {
        let knows = |node: &Node| node.told("CLUSTER NODES").map(|said| said.lines().count());
        nodes.iter().all(|node| knows(node) == Ok(2))
    })?;
    messages_reach_all(&nodes)?;
    one_slot_by_hand(&nodes)?;
    moved_by_redis_cli(&nodes)?;
    let writes = moved_under_writes(&nodes)?;
    Ok(format!(
        "messages between nodes, ASK and TRYAGAIN, redis-cli's reshard and rebalance, slots moved whole and back with equal digests, \
         {writes} writes of redis-py meanwhile without an error"
    ))
}

/// A connection of which single lines are read.
struct Line {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Line {
    fn to(node: &Node) -> Result<Line, Failure> {
        let failed = |error: std::io::Error| format!("a connection: {error}");
        let stream = TcpStream::connect(("127.0.0.1", node.port)).map_err(failed)?;
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .map_err(failed)?;
        let reader = BufReader::new(stream.try_clone().map_err(failed)?);
        Ok(Line { stream, reader })
    }

    fn send(&mut self, line: &str) -> Result<(), Failure> {
        let sent = self.stream.write_all(format!("{line}\r\n").as_bytes());
        sent.map_err(|error| format!("{line}: {error}"))
    }

    /// Reads lines up to one that is this.
    fn read_up_to(&mut self, wanted: &str) -> Result<(), Failure> {
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line);
            match read {
                Ok(1..) if line.trim_end() == wanted => return Ok(()),
                Ok(1..) => {}
                other => return Err(format!("waiting for {wanted}: {other:?}")),
            }
        }
    }
}

fn messages_reach_all(nodes: &[Node; 2]) -> Result<(), Failure> {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut subscriber = Line::to(&nodes[to])?;
        subscriber.send("SUBSCRIBE news")?;
        subscriber.read_up_to(":1")?;
        // Its own subscribers are counted, as in Redis.
        expect(&nodes[from].told("PUBLISH news first")?, "0")?;
        subscriber.read_up_to("first")?;
        nodes[from].told("MULTI\nPUBLISH news second\nEXEC")?;
        subscriber.read_up_to("second")?;
        nodes[to].told("PUBLISH news third")?;
        subscriber.read_up_to("third")?;
        nodes[from].told("PUBLISH news last")?;
        // A message that came twice would stand before it.
        subscriber.read_up_to("message")?;
        subscriber.read_up_to("last")?;
    }
    expect(&nodes[1].told("SPUBLISH news x")?, "MOVED")?;
    let mut away = Line::to(&nodes[1])?;
    away.send("SSUBSCRIBE news")?;
    let wanted = format!(
        "-MOVED {} 127.0.0.1:{}",
        slot(&nodes[0], "news")?,
        nodes[0].port
    );
    away.read_up_to(&wanted)
}

fn slot(node: &Node, key: &str) -> Result<u16, Failure> {
    let said = node.told(&format!("CLUSTER KEYSLOT {key}"))?;
    said.trim().parse().map_err(|_| format!("no slot: {said}"))
}

/// Moves one slot as redis-cli does, and looks at each state.
fn one_slot_by_hand(nodes: &[Node; 2]) -> Result<(), Failure> {
    let [from, to] = nodes;
    let (slot, from_id, to_id) = (slot(from, "{hand}")?, from.id()?, to.id()?);
    from.told("SET {hand}1 one\nSET {hand}2 two\nSET {hand}3 three")?;
    let mut blocked = Line::to(from)?;
    blocked.send("BLPOP {hand}list 0")?;
    let mut shard = Line::to(from)?;
    shard.send("SSUBSCRIBE {hand}")?;
    shard.read_up_to(":1")?;
    expect(
        &to.told(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"))?,
        "OK",
    )?;
    expect(
        &from.told(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"))?,
        "OK",
    )?;
    expect(&from.told("CLUSTER NODES")?, &format!("[{slot}->-{to_id}]"))?;
    expect(&to.told("CLUSTER NODES")?, &format!("[{slot}-<-{from_id}]"))?;
    let ask = format!("ASK {slot} 127.0.0.1:{}", to.port);
    for (node, line, wanted) in [
        (from, "GET {hand}1", "one"),
        (from, "SET {hand}4 x", ask.as_str()),
        (from, "GET {hand}4", ask.as_str()),
        (from, "MGET {hand}1 {hand}4", "TRYAGAIN"),
        (from, "MGET {hand}1 {hand}2", "two"),
        (to, "GET {hand}4", "MOVED"),
        (to, "ASKING\nSET {hand}4 four", "OK\nOK"),
        (to, "ASKING\nGET {hand}4\nGET {hand}4", "MOVED"),
        (to, "ASKING\nMGET {hand}4 {hand}1", "TRYAGAIN"),
        (to, "ASKING\nMULTI\nGET {hand}4\nEXEC", "four"),
        (
            from,
            "EVAL \"return redis.call('GET',KEYS[1])\" 1 {hand}4",
            ask.as_str(),
        ),
        (
            from,
            "EVAL \"return redis.call('GET',KEYS[1])\" 1 {hand}1",
            "one",
        ),
        (from, "DEL {hand}3", "1"),
        (from, "SET {hand}3 x", ask.as_str()),
    ] {
        let said = node.told(line)?;
        expect(&said, wanted).map_err(|failure| format!("{line}: {failure}"))?;
    }
    let node = format!("CLUSTER SETSLOT {slot} NODE {to_id}");
    expect(&from.told(&node)?, "ERR Can't assign hashslot")?;
    let migrate = format!(
        "MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {{hand}}1 {{hand}}2",
        to.port
    );
    expect(&from.told(&migrate)?, "OK")?;
    expect(&from.told(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))?, "0")?;
    expect(&to.told(&node)?, "OK")?;
    expect(&from.told(&node)?, "OK")?;
    expect(&to.told("MGET {hand}1 {hand}2 {hand}4")?, "one\ntwo\nfour")?;
    expect(&from.told("GET {hand}1")?, "MOVED")?;
    let moved = format!("-MOVED {slot} 127.0.0.1:{}", to.port);
    blocked.read_up_to(&moved)?;
    shard.read_up_to("sunsubscribe")?;
    for node in nodes {
        let said = node.told("CLUSTER NODES")?;
        if said.contains('[') {
            return Err(format!("a slot is open: {said}"));
        }
    }
    Ok(())
}

fn sizes(nodes: &[Node; 2]) -> Result<[u64; 2], Failure> {
    let size = |node: &Node| -> Result<u64, Failure> {
        let said = node.told("DBSIZE")?;
        said.trim().parse().map_err(|_| format!("no size: {said}"))
    };
    Ok([size(&nodes[0])?, size(&nodes[1])?])
}

fn moved_by_redis_cli(nodes: &[Node; 2]) -> Result<(), Failure> {
    let lines: String = (0..5000)
        .map(|key| format!("SET key:{key} {key}\n"))
        .collect();
    let mut cli = Command::new("redis-cli");
    cli.args(["-c", "-p", &nodes[0].port.to_string()]);
    captured(cli, lines.as_bytes(), TIMEOUT)?;
    let before = sizes(nodes)?;
    let (from, to, address) = (nodes[0].id()?, nodes[1].id()?, nodes[0].address());
    let mut words = vec![
        "reshard",
        &address,
        "--cluster-from",
        &from,
        "--cluster-to",
        &to,
    ];
    words.extend(["--cluster-slots", "40", "--cluster-yes"]);
    managed(&words)?;
    let after = sizes(nodes)?;
    if after[0] + after[1] != before[0] + before[1] || after[1] <= before[1] {
        return Err(format!(
            "after a reshard: {after:?} keys, and before {before:?}"
        ));
    }
    let said = managed(&["check", &address])?;
    expect(&said, "All nodes agree about slots configuration")?;
    expect(&said, "All 16384 slots covered")?;
    let heavy = format!("{from}=340");
    let mut words = vec!["rebalance", &address, "--cluster-weight", &heavy];
    words.extend(["--cluster-threshold", "1"]);
    managed(&words)?;
    let last = sizes(nodes)?;
    if last[0] + last[1] != before[0] + before[1] {
        return Err(format!(
            "after a rebalance: {last:?} keys, and before {before:?}"
        ));
    }
    managed(&["check", &address]).map(|_| ())
}

/// Returns the digests of all values whose keys have these tags.
fn digests(node: &Node) -> Result<String, Failure> {
    let keys = (0..200).flat_map(|key| TAGS.map(|tag| format!("{{{tag}}}:fixed:{key}")));
    let lines: String = keys
        .map(|key| format!("DEBUG DIGEST-VALUE {key}\n"))
        .collect();
    node.told(&lines)
}

/// Asks a node to move the slots of all tags to the other one, and waits for the end.
fn move_slots(from: &Node, to: &Node) -> Result<(), Failure> {
    let mut call = "CLUSTER MIGRATESLOTS SLOTSRANGE".to_owned();
    for tag in TAGS {
        let slot = slot(from, tag)?;
        call += &format!(" {slot} {slot}");
    }
    expect(&from.told(&format!("{call} NODE {}", to.id()?))?, "OK")?;
    let state = || state_of(&from.told("CLUSTER GETSLOTMIGRATIONS").unwrap_or_default());
    until("the move ends", || state() != "replicating")?;
    match state().as_str() {
        "success" => Ok(()),
        _ => Err(from.told("CLUSTER GETSLOTMIGRATIONS")?),
    }
}

/// Returns the state of the last move, of those that redis-cli prints.
fn state_of(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| *line != "state");
    lines.nth(1).unwrap_or_default().to_owned()
}

/// Moves slots there and back while a client writes to them. Returns the number of its writes.
fn moved_under_writes(nodes: &[Node; 2]) -> Result<u64, Failure> {
    let mut fill = String::new();
    for key in 0..200 {
        for tag in TAGS {
            let key = format!("{{{tag}}}:fixed:{key}");
            fill += &match tag {
                "a" => format!("SET {key} {key}\n"),
                "b" => format!("RPUSH {key} 1 2 3 {key}\n"),
                "c" => format!("ZADD {key} 1.5 x 2 {key}\n"),
                _ => format!("HSET {key} f {key} g 1\nEXPIRE {key} 100000\n"),
            };
        }
    }
    let mut cli = Command::new("redis-cli");
    cli.args(["-c", "-p", &nodes[0].port.to_string()]);
    captured(cli, fill.as_bytes(), TIMEOUT)?;
    // All begin at the same node.
    let owner = usize::from(nodes[0].told("GET {a}:fixed:0")?.contains("MOVED"));
    let (from, to) = (&nodes[owner], &nodes[1 - owner]);
    for tag in TAGS {
        if from
            .told(&format!("TYPE {{{tag}}}:fixed:0"))?
            .contains("MOVED")
        {
            move_one(to, from, tag)?;
        }
    }
    let folder = Folder::new("moving")?;
    let (flag, out) = (folder.path().join("on"), folder.path().join("out"));
    std::fs::write(&flag, "").map_err(|error| format!("a flag: {error}"))?;
    let mut client = Command::new(install::redis_py()?);
    client
        .arg(workspace().join("crates/testkit/clients/py/moving.py"))
        .args([&nodes[0].port.to_string(), "3", &TAGS.join(",")])
        .arg(&flag);
    let mut client = Process::start_into(&mut client, &out)?;
    until("the client writes", || {
        from.told("GET {a}:0:0")
            .is_ok_and(|said| said.trim().parse::<u64>().is_ok())
    })?;
    let fixed = digests(from)?;
    for round in 0..3 {
        let (from, to) = if round % 2 == 0 {
            (from, to)
        } else {
            (to, from)
        };
        move_slots(from, to)?;
        if digests(to)? != fixed {
            return Err(format!("round {round}: values differ after a move"));
        }
        until("no key is left behind", || {
            TAGS.iter().all(|tag| {
                slot(from, tag)
                    .and_then(|slot| from.told(&format!("CLUSTER COUNTKEYSINSLOT {slot}")))
                    .is_ok_and(|said| said.trim() == "0")
            })
        })?;
    }
    std::fs::remove_file(&flag).map_err(|error| format!("a flag: {error}"))?;
    until("the client ends", || client.ended().is_some())?;
    let said = std::fs::read_to_string(&out).map_err(|error| format!("its output: {error}"))?;
    expect(&said, "errors 0 wrong 0")?;
    cancelled(to, from)?;
    let writes = said
        .split_whitespace()
        .skip_while(|word| *word != "writes")
        .nth(1);
    writes
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| format!("no writes: {said}"))
}

/// Moves the slot of one tag.
fn move_one(from: &Node, to: &Node, tag: &str) -> Result<(), Failure> {
    let (slot, id) = (slot(from, tag)?, to.id()?);
    let call = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}");
    expect(&from.told(&call)?, "OK")?;
    until("the slot is there", || {
        to.told(&format!("TYPE {{{tag}}}:fixed:0"))
            .is_ok_and(|said| !said.contains("MOVED"))
    })
}

/// Asks for what cannot be done, or is done no more.
fn cancelled(from: &Node, to: &Node) -> Result<(), Failure> {
    let slot = slot(from, TAGS[0])?;
    for (node, line, wanted) in [
        (
            from,
            "CLUSTER CANCELSLOTMIGRATIONS".to_owned(),
            "ERR No migrations ongoing",
        ),
        (from, "CLUSTER MIGRATION CANCEL ALL".to_owned(), "0"),
        (
            from,
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE x"),
            "ERR Invalid node name: x",
        ),
        (
            to,
            format!(
                "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}",
                from.id()?
            ),
            "ERR Slots are not served",
        ),
        (
            from,
            "CLUSTER SYNCSLOTS SEE".to_owned(),
            "ERR only a node of the cluster",
        ),
        (from, "CLUSTER SYNCSLOTS NODE x y".to_owned(), "ERR"),
    ] {
        let said = node.told(&line)?;
        expect(&said, wanted).map_err(|failure| format!("{line}: {failure}"))?;
    }
    let id = to.told(&format!("CLUSTER MIGRATION IMPORT {slot} {slot}"))?;
    until("the slot that was asked for is there", || {
        to.told(&format!("CLUSTER MIGRATION STATUS ID {}", id.trim()))
            .is_ok_and(|said| said.contains("completed"))
    })?;
    expect(&to.told(&format!("CLUSTER FLUSHSLOT {slot}"))?, "OK")?;
    expect(&to.told(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))?, "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_move_is_the_first_that_is_listed() {
        let said = "name\nx\nstate\nsuccess\nmessage\n\nname\ny\nstate\nfailed\n";
        assert_eq!(
            (state_of(said), state_of("")),
            ("success".into(), String::new())
        );
    }
}
