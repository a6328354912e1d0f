//! `redline bench failover` on real failures: a primary with a replica that three Sentinels monitor, and a Redis Cluster.
//!
//! Its lost writes are checked by reading everything back with another client.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redline_testkit::process::ServerProcess;
use serde_json::Value;

use crate::benched::{self, check};
use crate::clusters::{Cluster, told};
use crate::compat::Setting;
use crate::install;
use crate::run::{Failure, Folder, Process, captured, free_port, until};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Writes per second.
const RATE: u64 = 2_000;
/// Time between the replica's cut-off and the primary's death.
const CUT_OFF_S: f64 = 0.5;

/// Runs both.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let sentinel = with_sentinels(setting)?;
    let cluster = with_a_cluster(setting)?;
    Ok(format!(
        "as another client read it back: Sentinel, {sentinel}; a cluster, {cluster}"
    ))
}

/// Cuts the replica off, and kills the primary half a second later: acknowledged writes in between are lost.
fn with_sentinels(setting: &Setting) -> Result<String, Failure> {
    let watched = Watched::start()?;
    let (replica, primary) = (&watched.replica, watched.primary.as_ref());
    let cut = format!(
        "redis-cli -p {} replicaof 127.0.0.1 1; sleep {CUT_OFF_S}; kill -KILL {}",
        replica.address().port(),
        primary.map_or(0, ServerProcess::pid)
    );
    let places = watched.places();
    let mut words: Vec<&str> = Vec::new();
    for place in &places {
        words.extend(["--sentinel", place]);
    }
    words.extend(["--duration", "10", "--at", "2", "--run", &cut]);
    let (result, acks) = failover(setting, &words)?;
    let gone = compare(&result, &acks, replica.address().port())?;
    let expected = (RATE as f64 * CUT_OFF_S * 0.5) as u64;
    check(gone >= expected, "half a second of writes is gone", &result)?;
    let outage = outage(&result)?;
    check(
        result["run"]["target"]["nodes"]
            .as_array()
            .map_or(0, Vec::len)
            == 2,
        "both nodes",
        &result,
    )?;
    Ok(format!(
        "{gone} of {} acknowledged writes gone, {outage:.1} s without service",
        acks.len()
    ))
}

/// Kills a primary of a cluster.
fn with_a_cluster(setting: &Setting) -> Result<String, Failure> {
    let cluster = Cluster::start()?;
    let victim = &cluster.nodes[cluster.primary()?];
    let kill = format!("kill -KILL {}", victim.pid());
    let other = cluster.nodes.iter().find(|node| node.pid() != victim.pid());
    let port = other.map_or(0, |node| node.address().port());
    let text = port.to_string();
    let words = [
        "-p",
        &text,
        "--cluster",
        "--duration",
        "8",
        "--at",
        "2",
        "--run",
        &kill,
    ];
    let (result, acks) = failover(setting, &words)?;
    let gone = compare(&result, &acks, port)?;
    let outage = outage(&result)?;
    let outages = result["outages"].as_array().cloned().unwrap_or_default();
    let seconds = |outage: &Value| outage["seconds"].as_f64().unwrap_or(0.0);
    let longest = outages
        .iter()
        .max_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    let of = longest.and_then(|outage| outage["node"].as_str());
    let victims = victim.address().to_string();
    check(of == Some(&victims), "the victim's shard", &result)?;
    check(
        result["run"]["target"]["nodes"]
            .as_array()
            .map_or(0, Vec::len)
            == 6,
        "all nodes",
        &result,
    )?;
    Ok(format!(
        "{gone} of {} acknowledged writes gone, {outage:.1} s without service",
        acks.len()
    ))
}

/// A primary and its replica that three Sentinels monitor as `mymaster`.
pub struct Watched {
    primary: Option<ServerProcess>,
    replica: ServerProcess,
    sentinels: Vec<Sentinel>,
}

impl Watched {
    /// Starts them, and waits until they know each other.
    pub fn start() -> Result<Watched, Failure> {
        let program = install::older_redis_server()?;
        let start = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let started = ServerProcess::redis(&program, &words);
            started.map_err(|error| format!("redis-server: {error}"))
        };
        let primary = start(&[])?;
        let port = primary.address().port().to_string();
        let replica = start(&["--replicaof", "127.0.0.1", &port])?;
        let link = || told(&replica, &["INFO", "replication"]);
        until("the replica is in step", || {
            link().is_some_and(|said| said.contains("master_link_status:up"))
        })?;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Sentinel::start(&program, primary.address().port())?);
        }
        for sentinel in &sentinels {
            sentinel.await_acquaintance()?;
        }
        Ok(Watched {
            primary: Some(primary),
            replica,
            sentinels,
        })
    }

    /// Returns the addresses of the Sentinels.
    pub fn places(&self) -> Vec<String> {
        let place = |sentinel: &Sentinel| format!("127.0.0.1:{}", sentinel.port);
        self.sentinels.iter().map(place).collect()
    }

    /// Returns the address of the replica.
    pub fn replica(&self) -> SocketAddr {
        self.replica.address()
    }

    /// Kills the primary.
    pub fn kill_primary(&mut self) {
        self.primary = None;
    }
}

/// A Sentinel that monitors a primary as `mymaster`.
pub struct Sentinel {
    port: u16,
    _process: Process,
    _folder: Folder,
}

impl Sentinel {
    /// Starts one for the primary at this port.
    pub fn start(program: &Path, primary: u16) -> Result<Sentinel, Failure> {
        let (folder, port) = (Folder::new("sentinel")?, free_port()?);
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor mymaster 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 4000\n",
            folder.path().display()
        );
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(program);
        command.arg(&file).arg("--sentinel");
        let sentinel = Sentinel {
            port,
            _process: Process::start(&mut command)?,
            _folder: folder,
        };
        until("a Sentinel answers", || {
            sentinel.asked(&["PING"]).trim() == "PONG"
        })?;
        Ok(sentinel)
    }

    /// Waits until it knows the replica and two other Sentinels.
    pub fn await_acquaintance(&self) -> Result<(), Failure> {
        until("the Sentinels know each other", || {
            let said = self.asked(&["SENTINEL", "MASTER", "mymaster"]);
            let words: Vec<&str> = said.lines().collect();
            let is = |name: &str, value: &str| words.windows(2).any(|pair| pair == [name, value]);
            is("num-slaves", "1") && is("num-other-sentinels", "2")
        })
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns what it answers; nothing if it does not.
    pub fn asked(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(words);
        captured(command, b"", TIMEOUT).unwrap_or_default()
    }
}

/// Runs it; returns the result, and the numbers of acknowledged writes.
fn failover(setting: &Setting, words: &[&str]) -> Result<(Value, BTreeSet<u64>), Failure> {
    let folder = Folder::new("failover")?;
    let file = folder.path().join("acks");
    let mut command = benched::command(setting, "failover");
    command
        .args(["--rps", &RATE.to_string()])
        .arg("--acks")
        .arg(&file)
        .args(words);
    let result = benched::result(command)?;
    let acks = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let numbers = acks
        .lines()
        .filter_map(|line| line.split(' ').next()?.parse().ok());
    Ok((result, numbers.collect()))
}

/// Reads everything back with redis-cli and compares lost writes; returns their number.
fn compare(result: &Value, acks: &BTreeSet<u64>, port: u16) -> Result<u64, Failure> {
    let prefix = result["key_prefix"].as_str().unwrap_or_default();
    let gets: String = acks
        .iter()
        .map(|number| format!("GET {prefix}{number}\n"))
        .collect();
    let mut client = Command::new("redis-cli");
    client.args(["-c", "-p", &port.to_string()]);
    let said = captured(client, gets.as_bytes(), TIMEOUT)?;
    // Between the values, redis-cli may print redirects.
    let there: BTreeSet<u64> = said
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    let gone: BTreeSet<u64> = acks.difference(&there).copied().collect();
    let mut claimed = BTreeSet::new();
    for range in result["gone_numbers"].as_array().into_iter().flatten() {
        let end = |place: usize| range[place].as_u64().unwrap_or(0);
        claimed.extend(end(0)..=end(1));
    }
    let count = gone.len() as u64;
    check(
        claimed == gone,
        &format!("redis-cli misses {count}"),
        result,
    )?;
    check(result["gone"] == count, "the count", result)?;
    check(
        result["acknowledged"] == acks.len(),
        "all acknowledged writes are named",
        result,
    )?;
    check(
        acks.len() as u64 > 2 * RATE,
        "writes were acknowledged",
        result,
    )?;
    Ok(count)
}

/// Returns the time without service of the failed shard, after checking the other fields.
fn outage(result: &Value) -> Result<f64, Failure> {
    let outages = result["outages"].as_array().cloned().unwrap_or_default();
    let seconds = outages
        .iter()
        .filter_map(|outage| outage["seconds"].as_f64());
    let longest = seconds.fold(0.0, f64::max);
    check(
        (0.5..8.0).contains(&longest),
        "a time without service",
        result,
    )?;
    let kinds = result["trouble"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    check(kinds > 0, "errors by kind", result)?;
    let series = result["run"]["series"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let cpus = |point: &Value| point["node_cpus"].as_array().map_or(0, Vec::len);
    check(
        series.iter().any(|point| cpus(point) >= 2),
        "every node's CPU",
        result,
    )?;
    let ran = result["happened"]["ended_s"].as_f64().is_some();
    check(ran, "the command ran", result)?;
    Ok(longest)
}
