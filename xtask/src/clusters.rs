//! Several servers under `redline bench`: a Redis Cluster of the system's redis-servers whose slots move and whose
//! primaries fail under load, and two servers side by side.
//!
//! The bench's figures are checked against the nodes' own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::benched::{begin, check, end, number, run as benched};
use crate::compat::Setting;
use crate::install;
use crate::run::{Failure, captured, free_port, line, until};
use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

const TIMEOUT: Duration = Duration::from_secs(120);
const SLOTS: u32 = 16_384;
/// Number of counters.
const COUNTERS: u32 = 1_000;

/// Runs them.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let mut cluster = Cluster::start()?;
    at_rest(setting, &cluster)?;
    let drop_in = as_redis_benchmark(setting, &cluster)?;
    let moved = while_slots_move(setting, &cluster)?;
    let resent = while_a_primary_dies(setting, &mut cluster)?;
    side_by_side(setting)?;
    Ok(format!(
        "every node loaded, {drop_in} runs as redis-benchmark --cluster prints them, {moved} requests redirected while slots moved and none lost or done twice, \
         {resent} sent again when a primary died, two servers side by side"
    ))
}

/// Three primaries, usually with a replica each, of the system's redis-server.
pub struct Cluster {
    /// The nodes that run; the first three began as primaries.
    pub nodes: Vec<ServerProcess>,
}

impl Cluster {
    /// Starts the nodes and waits until all of them agree.
    pub fn start() -> Result<Cluster, Failure> {
        Cluster::of(&install::older_redis_server()?, &[], 1)
    }

    /// Starts a cluster of this redis-server, with further arguments and this many replicas of each primary.
    pub fn of(program: &Path, more: &[&str], replicas: usize) -> Result<Cluster, Failure> {
        let count = 3 * (1 + replicas);
        let mut nodes = Vec::new();
        for _ in 0..count {
            let bus = free_port()?.to_string();
            let words = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
            let usual = [
                "--cluster-port",
                &bus,
                "--cluster-replica-validity-factor",
                "0",
                "--repl-ping-replica-period",
                "1",
            ];
            let words = words.iter().chain(&usual).chain(more);
            let words: Vec<String> = words.map(|&word| word.to_owned()).collect();
            let node = ServerProcess::redis(program, &words);
            nodes.push(node.map_err(|error| format!("redis-server: {error}"))?);
        }
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(nodes.iter().map(|node| node.address().to_string()));
        create.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]);
        captured(create, b"", TIMEOUT)?;
        let cluster = Cluster { nodes };
        cluster.until_whole(count)?;
        Ok(cluster)
    }

    /// Waits until this many nodes are up, serve all slots, and agree about it.
    pub fn until_whole(&self, up: usize) -> Result<(), Failure> {
        until("the cluster is whole", || {
            self.nodes.iter().all(|node| {
                let said = told(node, &["CLUSTER", "INFO"]).unwrap_or_default();
                let has = |line: &str| said.contains(line);
                let slaves = told(node, &["CLUSTER", "NODES"]).unwrap_or_default();
                let well = slaves.lines().filter(|line| !line.contains("fail"));
                let linked = well.filter(|line| line.contains(" connected")).count();
                has("cluster_state:ok") && has("cluster_slots_ok:16384") && linked >= up
            })
        })?;
        // Replicas are part of the map from their first byte on.
        until("the map has all nodes", || {
            self.nodes.iter().all(|node| {
                let said = told(node, &["CLUSTER", "SLOTS"]).unwrap_or_default();
                said.matches("127.0.0.1").count() >= up
            })
        })?;
        // A replica without its primary's data cannot take over.
        until("replicas are in step", || {
            self.nodes.iter().all(|node| {
                let said = told(node, &["INFO", "replication"]).unwrap_or_default();
                said.contains("role:master") || said.contains("master_link_status:up")
            })
        })
    }

    /// Returns the index of a running node that is a primary.
    pub fn primary(&self) -> Result<usize, Failure> {
        let of = |node: &ServerProcess| told(node, &["ROLE"]).unwrap_or_default();
        let place = self.nodes.iter().position(|n| of(n).starts_with("master"));
        place.ok_or_else(|| "no node is a primary".to_owned())
    }
}

/// Returns a node's reply: its words by lines.
pub fn told(node: &ServerProcess, words: &[&str]) -> Option<String> {
    use redline_testkit::client::Value;
    fn text(value: &Value) -> String {
        match value {
            Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join("\n"),
            Value::Integer(number) => number.to_string(),
            value => String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned(),
        }
    }
    let mut client = Client::connect(node.address()).ok()?;
    client.call(words).ok().map(|value| text(&value))
}

/// Loads an unchanging cluster: every primary answers, and with replica reads every replica as well.
fn at_rest(setting: &Setting, cluster: &Cluster) -> Result<(), Failure> {
    let port = cluster.nodes[0].address().port().to_string();
    let local = ["-p", &port, "--cluster", "--duration", "1", "-c", "6"];
    let fill = [
        "--load",
        "SET key:{seq:3000} {value}",
        "--command",
        "GET key:{uniform:3000}",
    ];
    let deep = ["-P", "4", "--threads", "2", "--reads", "all"];
    for (more, nodes) in [(&[][..], 3), (&["--rps", "500"][..], 3), (&deep[..], 6)] {
        let words = [&local[..], &fill[..], more].concat();
        let result = benched(setting, &words)?;
        let used = result["target"]["nodes"].as_array().map_or(0, |nodes| {
            nodes
                .iter()
                .filter(|n| n["replies"].as_u64() > Some(0))
                .count()
        });
        let requests = &result["requests"];
        check(used == nodes, "nodes used", &result)?;
        let all = number(&result, "/requests/values");
        // A replica may lag behind.
        let hits = number(&result, "/requests/nulls") * 100 <= all;
        check(
            hits && requests["errors"] == 0,
            "all keys are found",
            &result,
        )?;
        let servers = result["parties"].as_array().map_or(0, |parties| {
            parties.iter().filter(|p| p["role"] == "server").count()
        });
        check(servers == 6, "every node's CPU is known", &result)?;
    }
    Ok(())
}

/// Runs redis-benchmark's own command line, beside the real one on the same cluster; then while slots move.
fn as_redis_benchmark(setting: &Setting, cluster: &Cluster) -> Result<usize, Failure> {
    const WAYS: [&[&str]; 6] = [
        &["-q", "-n", "2000", "-c", "6"],
        &["-n", "2000", "-t", "set", "-P", "4"],
        &["-n", "2000", "-t", "get", "--threads", "2"],
        &["--csv", "-n", "2000", "-t", "mset", "-r", "1000", "-3"],
        &[
            "-q",
            "-n",
            "2000",
            "-t",
            "lpush",
            "--threads",
            "7",
            "-k",
            "0",
        ],
        &["-q", "-n", "2000", "sadd", "{tag}own", "__rand_int__"],
    ];
    let node = &cluster.nodes[0];
    let port = node.address().port().to_string();
    let local = ["-p", &port, "--cluster"];
    for way in WAYS {
        let mut theirs = Command::new("redis-benchmark");
        theirs.args(local).args(way);
        let mut ours = Command::new(&setting.redline);
        ours.arg("bench").args(local).args(way);
        let text = line(&ours);
        let [theirs, ours] = [
            captured(theirs, b"", TIMEOUT)?,
            captured(ours, b"", TIMEOUT)?,
        ];
        if without_digits(&theirs) != without_digits(&ours) {
            return Err(format!("{text} printed\n{ours}\nredis-benchmark\n{theirs}"));
        }
    }
    let moved = |node: &ServerProcess| {
        // Which of the two it is depends on when the slot's next request arrives.
        let said = told(node, &["INFO", "errorstats"]).unwrap_or_default();
        said.contains("errorstat_MOVED") || said.contains("errorstat_ASK")
    };
    if moved(node) {
        return Err("requests went to the wrong node".into());
    }
    // The first slot of the first master is the one that its connections use.
    let mut ours = Command::new(&setting.redline);
    ours.arg("bench").args(local);
    ours.args(["-q", "-n", "10000000", "-t", "incr", "-c", "6"]);
    ours.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = ours.spawn().map_err(|error| error.to_string())?;
    let reset = told(node, &["CONFIG", "RESETSTAT"]).is_some();
    let counts = || told(node, &["INFO", "commandstats"]).unwrap_or_default();
    let begun = until("the run has begun", || {
        reset && counts().contains("cmdstat_incr:")
    });
    let resharded = begun.and_then(|()| reshard(node, &cluster.nodes[1], 16));
    let seen = resharded.and_then(|()| until("a slot was seen to move", || moved(node)));
    let survived = running.try_wait().map_err(|error| error.to_string());
    // Its output is sufficient.
    let _ = running.kill();
    let output = running
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    seen?;
    if survived?.is_some() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("it did not survive that slots moved: {said}"));
    }
    Ok(WAYS.len())
}

/// Returns the printed lines with a mark for each number: alignment, and the number of lines of a distribution, differ
/// as well. Of a line that was rewritten, its last state.
fn without_digits(said: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in said.lines() {
        let line = line.rsplit('\r').next().unwrap_or(line);
        let words = line.split([' ', '"']).filter(|word| !word.is_empty());
        let masked: Vec<String> = words
            .map(|word| {
                let mut out = String::new();
                for char in word.chars() {
                    match char {
                        '0'..='9' | '.' if out.ends_with('#') => {}
                        '0'..='9' => out.push('#'),
                        char => out.push(char),
                    }
                }
                out
            })
            .collect();
        let line = masked.join(" ");
        if lines.last() != Some(&line) || !line.contains("<=") {
            lines.push(line);
        }
    }
    lines
}

/// Moves this many slots, the first ones. All nodes have to know earlier moves, or redis-cli refuses.
pub fn reshard(from: &ServerProcess, to: &ServerProcess, slots: u32) -> Result<(), Failure> {
    until("all nodes agree about the slots", || {
        let mut check = Command::new("redis-cli");
        check.args(["--cluster", "check", &from.address().to_string()]);
        captured(check, b"", TIMEOUT).is_ok_and(|said| said.contains("All nodes agree"))
    })?;
    let id = |node: &ServerProcess| told(node, &["CLUSTER", "MYID"]).unwrap_or_default();
    let mut reshard = Command::new("redis-cli");
    reshard
        .args(["--cluster", "reshard", &from.address().to_string()])
        .args(["--cluster-from", &id(from), "--cluster-to", &id(to)])
        .args(["--cluster-slots", &slots.to_string(), "--cluster-yes"]);
    captured(reshard, b"", TIMEOUT).map(drop)
}

/// Moves slots while counters are incremented: each request is executed exactly once.
fn while_slots_move(setting: &Setting, cluster: &Cluster) -> Result<u64, Failure> {
    const REQUESTS: u64 = 150_000;
    let [first, second] = [0, 1].map(|at| &cluster.nodes[at]);
    let port = first.address().port().to_string();
    let count = REQUESTS.to_string();
    let template = format!("INCR counter:{{uniform:{COUNTERS}}}");
    let words = [
        "-p",
        &port,
        "--cluster",
        "-c",
        "8",
        "-n",
        &count,
        "--rps",
        "25000",
    ];
    let child = begin(setting, &[&words[..], &["--command", &template]].concat())?;
    let resharded = reshard(first, second, SLOTS / 16);
    let result = end(child)?;
    resharded?;
    let answered = number(&result, "/requests/values");
    check(answered == REQUESTS, "all requests are answered", &result)?;
    let moved = number(&result, "/redirects/moved");
    check(moved > 0, "slots were seen to move", &result)?;
    check(
        number(&result, "/redirects/resent") == 0,
        "nothing was lost",
        &result,
    )?;
    let sum = sum_of_counters(cluster)?;
    check(
        sum == REQUESTS,
        &format!("the counters' sum is {sum}"),
        &result,
    )?;
    Ok(moved + number(&result, "/redirects/asked"))
}

/// Returns the sum of all counters, from the nodes.
fn sum_of_counters(cluster: &Cluster) -> Result<u64, Failure> {
    let mut get = String::new();
    for counter in 0..COUNTERS {
        get += &format!("GET counter:{counter}\n");
    }
    let mut command = Command::new("redis-cli");
    let port = cluster.nodes[1].address().port().to_string();
    command.args(["-c", "-p", &port]);
    let said = captured(command, get.as_bytes(), TIMEOUT)?;
    // Between the values, redis-cli prints redirects.
    Ok(said
        .lines()
        .filter_map(|line| line.trim().parse::<u64>().ok())
        .sum())
}

/// Kills a primary: its replica takes over, and all requests are answered in the end.
fn while_a_primary_dies(setting: &Setting, cluster: &mut Cluster) -> Result<u64, Failure> {
    let victim = cluster.primary()?;
    let alive = (victim + 1) % cluster.nodes.len();
    let port = cluster.nodes[alive].address().port().to_string();
    let words = [
        "-p",
        &port,
        "--cluster",
        "-c",
        "8",
        "--duration",
        "6",
        "--rps",
        "5000",
    ];
    let template = [
        "--command",
        "SET key:{uniform:30000} {value}",
        "--timeout",
        "1",
    ];
    // Earlier counts must not interfere.
    let reset = told(&cluster.nodes[victim], &["CONFIG", "RESETSTAT"]);
    reset.ok_or("the victim does not answer")?;
    let child = begin(setting, &[&words[..], &template].concat())?;
    // Not before it has sent something: then it has its connections.
    let counts = || told(&cluster.nodes[victim], &["INFO", "commandstats"]);
    let sets = |said: String| said.contains("cmdstat_set:");
    until("the run has begun", || counts().is_some_and(sets))?;
    drop(cluster.nodes.remove(victim));
    let result = end(child)?;
    let redirects = &result["redirects"];
    let answered = number(&result, "/requests/values");
    let sent = number(&result, "/requests/sent");
    check(
        answered == sent && sent > 0,
        "all requests are answered",
        &result,
    )?;
    check(
        number(&result, "/requests/errors") == 0,
        "none with an error",
        &result,
    )?;
    let resent = number(&result, "/redirects/resent");
    let failed = redirects["connects_failed"].as_u64() > Some(0);
    check(failed || resent > 0, "the death was noticed", &result)?;
    Ok(resent)
}

/// Checks that two independent servers get half of the connections each.
fn side_by_side(setting: &Setting) -> Result<(), Failure> {
    let servers = [setting.start_redis(&[])?, setting.start_redis(&[])?];
    let [one, two] = [0, 1].map(|at| servers[at].address().to_string());
    let uri = format!("redis://{two}/1");
    let words = [
        "--endpoint",
        &one,
        "--endpoint",
        &uri,
        "-c",
        "4",
        "-n",
        "20000",
    ];
    let set = ["--command", "SET key:{seq:20000} {value}"];
    let result = benched(setting, &[&words[..], &set].concat())?;
    check(
        number(&result, "/requests/values") == 20_000,
        "all answered",
        &result,
    )?;
    let sizes: Vec<u64> = servers
        .iter()
        .map(|server| told(server, &["INFO", "keyspace"]).unwrap_or_default())
        .map(|said| {
            let keys = said.split("keys=").nth(1).unwrap_or("0");
            keys.split(',')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        })
        .collect();
    let fair = sizes.iter().sum::<u64>() == 20_000 && sizes.iter().all(|&size| size > 2_000);
    check(fair, &format!("keys by server: {sizes:?}"), &result)
}
