//! `redline proxy` with TLS on both sides in front of the system's redis-servers: a cluster whose nodes use only TLS for
//! clients and each other, and a primary that a Sentinel replaces. The clients are redis-cli and redis-benchmark.

use std::fs;
use std::process::Command;
use std::time::Duration;

use redline_testkit::process::ServerProcess;

use crate::clusters::told;
use crate::compat::Setting;
use crate::install;
use crate::run::{Failure, Folder, Process, captured, free_port, until};
use crate::tls::{Certificates, ran};

const TIMEOUT: Duration = Duration::from_secs(60);
const KEYS: usize = 100;
/// A key whose slot moves.
const MOVES: &str = "key:7";

/// Runs both.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let folder = Certificates::new()?;
    a_cluster(setting, &folder)?;
    a_primary_that_a_sentinel_replaces(setting, &folder)?;
    Ok(format!(
        "{KEYS} keys and redis-benchmark through TLS to a cluster with TLS, a slot that moves, and a primary that a Sentinel \
         with TLS replaces"
    ))
}

/// A server with a TLS port beside the plain one, by which it is waited for.
struct Secured {
    server: ServerProcess,
    port: u16,
}

fn redis(folder: &Certificates, words: &[&str]) -> Result<Secured, Failure> {
    let program = install::redis_server_with_tls()?;
    let port = free_port()?;
    let mut all = folder.server_words(port, "TLSv1.2 TLSv1.3");
    let more = ["--tls-replication", "yes"];
    all.extend(more.iter().chain(words).map(|&word| word.to_owned()));
    let server = ServerProcess::redis(&program, &all);
    let server = server.map_err(|error| format!("redis-server: {error}"))?;
    Ok(Secured { server, port })
}

/// Returns the words of TLS to servers.
fn upstream_words(folder: &Certificates) -> Vec<String> {
    let path = |name: &str| folder.path(name).display().to_string();
    let words = [
        ("--upstream-tls-ca-cert-file", path("ca.pem")),
        ("--upstream-tls-cert-file", path("client.pem")),
        ("--upstream-tls-key-file", path("client.key")),
    ];
    let words = words.into_iter();
    let words = words.flat_map(|(name, value)| [name.to_owned(), value]);
    std::iter::once("--upstream-tls".to_owned())
        .chain(words)
        .collect()
}

/// Returns redis-cli's reply over TLS.
fn asked(folder: &Certificates, port: u16, words: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &port.to_string()]);
    command.args(folder.client_words()).args(words);
    Ok(captured(command, b"", TIMEOUT)?.trim().to_owned())
}

#[track_caller]
fn expect(said: &str, expected: &str) -> Result<(), Failure> {
    match said == expected {
        true => Ok(()),
        false => Err(format!("{said:?} in place of {expected:?}")),
    }
}

fn a_cluster(setting: &Setting, folder: &Certificates) -> Result<(), Failure> {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let bus = free_port()?.to_string();
        let words = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
        let words: Vec<&str> = words.into_iter().chain(["--cluster-port", &bus]).collect();
        nodes.push(redis(folder, &words)?);
    }
    let mut create = Command::new("redis-cli");
    create.args(folder.client_words());
    create.args(["--cluster", "create", "--cluster-yes"]);
    create.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
    captured(create, b"", TIMEOUT)?;
    for node in &nodes {
        until("the cluster is whole", || {
            let said = told(&node.server, &["CLUSTER", "INFO"]).unwrap_or_default();
            said.contains("cluster_state:ok")
        })?;
    }
    let port = free_port()?;
    let mut words = folder.server_words(port, "TLSv1.3");
    words.truncate(words.len() - 2);
    words.extend(["--cluster", "--upstream"].map(str::to_owned));
    words.push(format!("127.0.0.1:{}", nodes[0].port));
    words.extend(upstream_words(folder));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let proxy = setting.start_proxy(&[], &words)?;
    for number in 0..KEYS {
        let key = format!("key:{number}");
        expect(&asked(folder, port, &["SET", &key, &key])?, "OK")?;
    }
    expect(&asked(folder, port, &["DBSIZE"])?, &KEYS.to_string())?;
    // The slot moves step by step: requests during and after the move.
    let from = nodes
        .iter()
        .position(|node| told(&node.server, &["GET", MOVES]).as_deref() == Some(MOVES))
        .ok_or("nobody has the key")?;
    let (from, to) = (&nodes[from], &nodes[(from + 1) % nodes.len()]);
    let tell = |node: &Secured, words: &[&str]| {
        told(&node.server, words).ok_or_else(|| format!("{words:?} is not answered"))
    };
    let slot = tell(from, &["CLUSTER", "KEYSLOT", MOVES])?;
    let [old, new] = [from, to].map(|node| tell(node, &["CLUSTER", "MYID"]));
    let (old, new) = (old?, new?);
    tell(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old])?;
    tell(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &new])?;
    let target = to.port.to_string();
    let migrated = tell(from, &["MIGRATE", "127.0.0.1", &target, MOVES, "0", "5000"])?;
    expect(&migrated, "OK")?;
    expect(&asked(folder, port, &["GET", MOVES])?, MOVES)?;
    for node in [to, from] {
        tell(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &new])?;
    }
    expect(&asked(folder, port, &["GET", MOVES])?, MOVES)?;
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args(["-p", &port.to_string(), "-P", "16", "-r", "1000"]);
    ran(folder, benchmark)?;
    crate::compat::stop(proxy)
}

fn a_primary_that_a_sentinel_replaces(
    setting: &Setting,
    folder: &Certificates,
) -> Result<(), Failure> {
    let primary = redis(folder, &[])?;
    let at = primary.port.to_string();
    let replica = redis(folder, &["--replicaof", "127.0.0.1", &at])?;
    until("the replica is in step", || {
        let said = told(&replica.server, &["INFO", "replication"]).unwrap_or_default();
        said.contains("master_link_status:up")
    })?;
    let (own, port) = (Folder::new("sentinel-tls")?, free_port()?);
    let mut text = "port 0\ntls-replication yes\n".to_owned();
    for pair in folder.server_words(port, "\"TLSv1.2 TLSv1.3\"").chunks(2) {
        text += &format!("{} {}\n", pair[0].trim_start_matches("--"), pair[1]);
    }
    text += &format!("sentinel monitor mymaster 127.0.0.1 {at} 1\n");
    text +=
        "sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 5000\n";
    let file = own.path().join("sentinel.conf");
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = Command::new(install::redis_server_with_tls()?);
    command.arg(&file).arg("--sentinel");
    let _sentinel = Process::start(command.current_dir(own.path()))?;
    until("the Sentinel knows the replica", || {
        let said = asked(folder, port, &["SENTINEL", "REPLICAS", "mymaster"]);
        let said = said.unwrap_or_default();
        said.contains(&replica.port.to_string()) && said.contains("master-link-status\nok")
    })?;
    let upstream = format!("127.0.0.1:{port}");
    let mut words = upstream_words(folder);
    let more = ["--sentinel", "mymaster", "--upstream", &upstream];
    words.extend(more.map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let proxy = setting.start_proxy(&[], &words)?;
    let set = |value: &str| told(&proxy, &["SET", "key", value]).unwrap_or_default();
    expect(&set("before"), "OK")?;
    drop(primary);
    until("writes reach the new primary", || set("after") == "OK")?;
    expect(&asked(folder, replica.port, &["GET", "key"])?, "after")?;
    crate::compat::stop(proxy)
}
