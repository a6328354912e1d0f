//! Nodes of ours whose cluster is in a real etcd: the gateway's own tests; `redis-cli --cluster create`, `check`, `info`,
//! `add-node` and `del-node`; a cluster client; etcd and a primary that are killed; a node alone that grows.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::compat::Setting;
use crate::install;
use crate::run::{
    Failure, Folder, Process, captured, cargo, ended, free_port, until, watched, workspace,
};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// Key of the map of the cluster `default`, in base64.
const MAP: &str = "L3JlZGxpbmUvZGVmYXVsdC9tYXA=";
/// A map in which nobody owns a slot, and one that is none, in base64.
const NOBODY: &str = "eyJ2IjoxLCJydW5zIjpbXX0=";
const NO_MAP: &str = "bm9uc2Vuc2U=";

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let program = install::etcd()?;
    let mut tests = cargo(&["test", "--quiet", "-p", "redline-etcd", "--lib"]);
    tests
        .args(["--", "--include-ignored"])
        .env("REDLINE_ETCD", &program);
    watched(tests)?;
    let mut tests = cargo(&["test", "--quiet", "-p", "redline-cli", "--test", "it"]);
    tests
        .args(["cluster_failover::", "--", "--ignored", "--test-threads=1"])
        .env("REDLINE_ETCD", &program);
    watched(tests)?;
    let mut etcd = Etcd::start(&program)?;
    let mut nodes = Vec::new();
    for _ in 0..6 {
        nodes.push(Node::start(&setting.redline, &etcd.words("default"))?);
    }
    created(&nodes)?;
    let keys = used_by_a_client(&nodes)?;
    members_come_and_go(setting, &etcd, &nodes)?;
    etcd_is_killed(&mut etcd, &nodes)?;
    a_primary_is_killed(&mut nodes)?;
    alone_and_grown(setting, &etcd)?;
    damage_is_found(&etcd, &nodes)?;
    Ok(format!(
        "the gateway's tests with a real etcd, redis-cli's create, check, info, add-node and del-node, {keys} keys of redis-py on primaries and replicas, \
         etcd killed and back, a primary killed and back, a node alone grown; a map without owners and one that is none were noticed"
    ))
}

/// A running etcd with its folder.
pub(crate) struct Etcd {
    process: Option<Process>,
    program: std::path::PathBuf,
    folder: Folder,
    port: u16,
    peer_port: u16,
}

impl Etcd {
    pub(crate) fn start(program: &Path) -> Result<Etcd, Failure> {
        let mut etcd = Etcd {
            process: None,
            program: program.to_owned(),
            folder: Folder::new("etcd")?,
            port: free_port()?,
            peer_port: free_port()?,
        };
        etcd.begin()?;
        Ok(etcd)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let clients = format!("http://127.0.0.1:{}", self.port);
        let peers = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new(&self.program);
        command
            .arg("--data-dir")
            .arg(self.folder.path().join("data"));
        command.args([
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ]);
        command.args([
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
        ]);
        command.args([
            "--initial-cluster",
            &format!("default={peers}"),
            "--log-level",
            "error",
        ]);
        self.process = Some(Process::start(&mut command)?);
        until("etcd answers", || self.put("cmVhZHk=", "").is_ok())
    }

    fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        ["--cluster-etcd", &endpoint, "--cluster-name", name]
            .map(str::to_owned)
            .into()
    }

    /// Writes a key; both in base64.
    fn put(&self, key: &str, value: &str) -> Result<(), Failure> {
        let failed = |error: std::io::Error| format!("etcd: {error}");
        let body = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(failed)?;
        let head = format!(
            "POST /v3/kv/put HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        match answer.contains(" 200 ") {
            true => Ok(()),
            false => Err(format!("etcd: {answer}")),
        }
    }
}

/// A node with its folder, which may be started again.
pub(crate) struct Node {
    process: Option<Process>,
    folder: Folder,
    pub(crate) port: u16,
    program: std::path::PathBuf,
}

impl Node {
    pub(crate) fn start(program: &Path, words: &[String]) -> Result<Node, Failure> {
        let mut node = Node {
            process: None,
            folder: Folder::new("node")?,
            port: free_port()?,
            program: program.to_owned(),
        };
        node.begin(words)?;
        Ok(node)
    }

    fn begin(&mut self, words: &[String]) -> Result<(), Failure> {
        self.process = None;
        let mut command = Command::new(&self.program);
        let port = self.port.to_string();
        command.args([
            "server",
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--cluster-enabled",
            "yes",
        ]);
        command
            .args(["--appendonly", "yes", "--logfile", "log"])
            .args(words);
        self.process = Some(Process::start(command.current_dir(self.folder.path()))?);
        until("a node answers", || {
            self.told("PING").is_ok_and(|said| said.trim() == "PONG")
        })
    }

    /// Sends lines by redis-cli, and returns what it prints.
    pub(crate) fn told(&self, lines: &str) -> Result<String, Failure> {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &self.port.to_string()]);
        captured(cli, lines.as_bytes(), TIMEOUT)
    }

    pub(crate) fn id(&self) -> Result<String, Failure> {
        self.told("CLUSTER MYID").map(|said| said.trim().to_owned())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// Runs `redis-cli --cluster`; it must end well.
pub(crate) fn managed(words: &[&str]) -> Result<String, Failure> {
    let mut cli = Command::new("redis-cli");
    cli.arg("--cluster").args(words);
    let said = captured(cli, b"", TIMEOUT)?;
    match said.contains("[ERR]") {
        true => Err(format!("redis-cli --cluster {}:\n{said}", words.join(" "))),
        false => Ok(said),
    }
}

pub(crate) fn expect(said: &str, wanted: &str) -> Result<(), Failure> {
    match said.contains(wanted) {
        true => Ok(()),
        false => Err(format!("no \"{wanted}\" in\n{said}")),
    }
}

fn created(nodes: &[Node]) -> Result<(), Failure> {
    let addresses: Vec<String> = nodes.iter().map(Node::address).collect();
    let mut words = vec!["create"];
    words.extend(addresses.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    expect(&managed(&words)?, "All 16384 slots covered")?;
    for node in nodes {
        let said = managed(&["check", &node.address()])?;
        expect(&said, "All nodes agree about slots configuration")?;
        expect(&said, "All 16384 slots covered")?;
    }
    expect(&managed(&["info", &addresses[0]])?, "in 3 masters")
}

/// Has redis-py use the cluster; afterwards replicas have what their primaries have. Returns the number of keys.
fn used_by_a_client(nodes: &[Node]) -> Result<u64, Failure> {
    let script = workspace().join("crates/testkit/clients/py/cluster.py");
    let python = install::redis_py()?;
    for protocol in ["2", "3"] {
        let mut client = Command::new(&python);
        client
            .arg(&script)
            .arg(nodes[4].port.to_string())
            .arg(protocol);
        let said = captured(client, b"", TIMEOUT)?;
        expect(&said, "nodes 6")?;
        expect(&said, "sum 19900")?;
    }
    let mut cli = Command::new("redis-cli");
    cli.args(["-c", "-p", &nodes[5].port.to_string()]);
    let lines: String = (0..300)
        .map(|key| format!("SET key:{key} {key}\n"))
        .collect();
    captured(cli, lines.as_bytes(), TIMEOUT)?;
    let sizes = || -> Result<Vec<(bool, u64)>, Failure> {
        let of = |node: &Node| {
            let said = node.told("ROLE\nDBSIZE")?;
            let size = said
                .lines()
                .last()
                .and_then(|line| line.trim().parse().ok());
            Ok((said.starts_with("master"), size.unwrap_or(0)))
        };
        nodes.iter().map(of).collect()
    };
    let sum = |sizes: &[(bool, u64)], primary: bool| -> u64 {
        let of = sizes
            .iter()
            .filter(|(is_primary, _)| *is_primary == primary);
        of.map(|(_, size)| size).sum()
    };
    until("replicas have what their primaries have", || {
        sizes()
            .is_ok_and(|sizes| sum(&sizes, true) >= 300 && sum(&sizes, true) == sum(&sizes, false))
    })?;
    let replica = nodes.iter().find(|node| {
        node.told("ROLE")
            .is_ok_and(|said| said.starts_with("slave"))
    });
    let replica = replica.ok_or("no node is a replica")?;
    let keys: String = (0..300).map(|key| format!("GET key:{key}\n")).collect();
    let away = replica.told(&keys)?;
    let near = replica.told(&format!("READONLY\n{keys}"))?;
    let (away, near) = (away.matches("MOVED").count(), near.matches("MOVED").count());
    if away != 300 || near >= 300 || near == 0 {
        return Err(format!(
            "a replica sends {away} of 300 reads away, and {near} after READONLY"
        ));
    }
    Ok(sum(&sizes()?, true))
}

fn members_come_and_go(setting: &Setting, etcd: &Etcd, nodes: &[Node]) -> Result<(), Failure> {
    let known = nodes[0].address();
    for (more, role) in [(&[][..], "master"), (&["--cluster-slave"], "slave")] {
        let node = Node::start(&setting.redline, &etcd.words("default"))?;
        let address = node.address();
        let mut words = vec!["add-node", &address, &known];
        words.extend(more);
        expect(&managed(&words)?, "[OK] New node added correctly")?;
        until("all know the new node", || {
            nodes.iter().all(|node| {
                node.told("CLUSTER NODES")
                    .is_ok_and(|said| said.lines().count() == 7)
            })
        })?;
        expect(&node.told("ROLE")?, role)?;
        managed(&["del-node", &known, &node.id()?])?;
        until("nobody knows it any more", || {
            nodes.iter().all(|node| {
                node.told("CLUSTER NODES")
                    .is_ok_and(|said| said.lines().count() == 6)
            })
        })?;
        expect(&node.told("ROLE")?, "master")?;
        expect(&node.told("DBSIZE")?, "0")?;
        let again = Node::start(&setting.redline, &etcd.words("other"))?;
        let met = nodes[0].told(&format!("CLUSTER MEET 127.0.0.1 {}", again.port))?;
        expect(&met, "ERR no node in this node's etcd has the address")?;
    }
    Ok(())
}

fn etcd_is_killed(etcd: &mut Etcd, nodes: &[Node]) -> Result<(), Failure> {
    etcd.kill();
    until("nodes notice", || {
        nodes.iter().all(|node| {
            node.told("CLUSTER INFO")
                .is_ok_and(|said| said.contains("cluster_etcd_ok:0"))
        })
    })?;
    let mut cli = Command::new("redis-cli");
    cli.args(["-c", "-p", &nodes[0].port.to_string()]);
    let lines: String = (0..100)
        .map(|key| format!("SET key:{key} without\n"))
        .collect();
    let said = captured(cli, lines.as_bytes(), TIMEOUT)?;
    if said.lines().filter(|line| *line == "OK").count() != 100 {
        return Err(format!("without etcd: {said}"));
    }
    expect(
        &nodes[0].told("CLUSTER DELSLOTS 0")?,
        "ERR the cluster could not be changed: etcd at http://",
    )?;
    etcd.begin()?;
    until("nodes use it again", || {
        nodes.iter().all(|node| {
            let info = node.told("CLUSTER INFO").unwrap_or_default();
            let others = node.told("CLUSTER NODES").unwrap_or_default();
            info.contains("cluster_etcd_ok:1") && !others.contains("fail")
        })
    })
}

fn a_primary_is_killed(nodes: &mut [Node]) -> Result<(), Failure> {
    let is_primary = |node: &Node| {
        node.told("ROLE")
            .is_ok_and(|said| said.starts_with("master"))
    };
    let at = nodes
        .iter()
        .position(is_primary)
        .ok_or("no node is a primary")?;
    let (id, size) = (nodes[at].id()?, nodes[at].told("DBSIZE")?);
    let words = node_words(&nodes[at])?;
    let port = nodes[at].port;
    // The next process is not let in before the lease of this one has ended; meanwhile its replica takes over.
    nodes[at].begin(&words)?;
    let node = &nodes[at];
    if node.id()? != id {
        return Err("a primary came back as another one".into());
    }
    until("it follows, and has its keys again", || {
        node.told("ROLE")
            .is_ok_and(|said| said.starts_with("slave"))
            && node.told("DBSIZE").is_ok_and(|said| said == size)
    })?;
    until("the cluster is whole", || {
        managed(&["check", &format!("127.0.0.1:{port}")])
            .is_ok_and(|said| said.contains("All 16384 slots covered"))
    })?;
    until("its replica has found it", || {
        let linked = |node: &Node| {
            node.told("INFO replication").is_ok_and(|said| {
                said.contains("role:master") || said.contains("master_link_status:up")
            })
        };
        nodes.iter().all(linked)
    })
}

/// Returns the arguments with which a node was started, as far as they are about etcd.
fn node_words(node: &Node) -> Result<Vec<String>, Failure> {
    let said = node.told("CONFIG GET cluster-etcd")?;
    let endpoint = said.lines().nth(1).unwrap_or_default().to_owned();
    Ok(vec!["--cluster-etcd".into(), endpoint])
}

fn alone_and_grown(setting: &Setting, etcd: &Etcd) -> Result<(), Failure> {
    let mut node = Node::start(&setting.redline, &[])?;
    let lines: String = (0..500)
        .map(|key| format!("SET key:{key} {key}\n"))
        .collect();
    node.told(&lines)?;
    expect(
        &node.told("CLUSTER MEET 127.0.0.1 1")?,
        "start it with --cluster-etcd",
    )?;
    let id = node.id()?;
    node.begin(&etcd.words("grown"))?;
    expect(&node.told("DBSIZE")?, "500")?;
    if node.id()? != id {
        return Err("a node that grows has another id".into());
    }
    let other = Node::start(&setting.redline, &etcd.words("grown"))?;
    managed(&[
        "add-node",
        &other.address(),
        &node.address(),
        "--cluster-slave",
    ])?;
    until("the new replica has the keys", || {
        other.told("DBSIZE").is_ok_and(|said| said.trim() == "500")
    })?;
    expect(&other.told("GET key:1")?, "MOVED")?;
    // A third one is of another cluster.
    node.process = None;
    let mut wrong = Command::new(&setting.redline);
    wrong.args(["server", "--port", "0", "--cluster-enabled", "yes"]);
    wrong
        .args(["--port", &free_port()?.to_string()])
        .args(etcd.words("default"));
    let output = ended(
        {
            wrong.current_dir(node.folder.path());
            wrong
        },
        b"",
        TIMEOUT,
    )?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1) {
        return Err(format!(
            "a node of another cluster: {}\n{said}",
            output.status
        ));
    }
    expect(&said, "this node is of the cluster")
}

/// Plants damage in the records: redis-cli finds the one, and the nodes' logs name the other.
fn damage_is_found(etcd: &Etcd, nodes: &[Node]) -> Result<(), Failure> {
    etcd.put(MAP, NO_MAP)?;
    until("the nodes name the record", || {
        nodes.iter().all(|node| {
            node.log().contains(
                "The cluster's records cannot be used, the last ones stay: the record map",
            )
        })
    })?;
    managed(&["check", &nodes[0].address()])?;
    etcd.put(MAP, NOBODY)?;
    until("redis-cli finds slots without an owner", || {
        managed(&["check", &nodes[0].address()])
            .is_err_and(|said| said.contains("Not all 16384 slots are covered"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_shown_with_where_it_was_looked_for() {
        assert_eq!(expect("All 16384 slots covered", "slots covered"), Ok(()));
        let failure = expect("[ERR] Nodes don't agree", "covered").unwrap_err();
        assert!(failure.contains("\"covered\"") && failure.contains("don't agree"));
    }
}
