//! Verdicts of `redline bench run` on real bottlenecks: each must be right in all of its runs.
//!
//! Needs a quiet machine with two CPUs or more, and root, for the network namespaces of the limited link: with other
//! load on the CPUs, that is the bottleneck.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::benched;
use crate::compat::{Setting, stop};
use crate::install;
use crate::proxy::Nutcracker;
use crate::run::{Failure, Folder, Process, captured, until};

/// Runs of each bottleneck.
const RUNS: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Bandwidth of the link of limited bandwidth, in Mbit/s.
const LINK_MBIT: &str = "200";
/// Elements that LRANGE_600 asks for.
const ELEMENTS: &str = "RPUSH list {seq:600}";

/// Builds each bottleneck and counts the verdicts that name it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let redis = setting.start_redis(&[])?;
    let workers = setting.start_redline(2, &[])?;
    let (one, two) = (port_of(redis.address()), port_of(workers.address()));
    let dear = format!("GET {}", "{zipf:1.1,1000000}".repeat(24));
    let mut all = Vec::new();
    let mut judge = |expected: &str, words: &[&str]| {
        let bench = || bench(&setting.redline, words);
        all.push(count(expected, bench));
    };
    // fast enough to be reached by any machine
    judge("rate", &["-p", &one, "--command", "GET a", "--rps", "2000"]);
    let list = ["--load", ELEMENTS, "--command", "LRANGE list 0 599"];
    let local = ["-p", &one];
    judge(
        "server-user",
        &[&local[..], &list[..], &["-c", "50"]].concat(),
    );
    // A read and a write of a small message cost a generator about as much as the server: with some hundred connections
    // there are hosts on which both are full. With thousands the server has more work.
    let short = ["--command", "GET a", "-c", "2000"];
    judge("server-kernel", &[&local[..], &short[..]].concat());
    // Draws from an expensive distribution, for each cheap request to two workers.
    let slow = ["-p", &two, "--command", &dear, "-c", "8", "-P", "32"];
    judge("client", &slow);
    let behind = [("one".to_owned(), redis.address().port(), 1)];
    let proxy = Nutcracker::start("fnv1a_64", "ketama", &behind)?;
    let (port, pid) = (proxy.port.to_string(), proxy.process.id());
    let (pid, behind) = (pid.to_string(), redis.pid().to_string());
    let who = ["-p", &port, "--proxy-pid", &pid, "--server-pid", &behind];
    let what = ["--command", "GET key:{uniform:10000}", "-P", "16"];
    judge("proxy", &[&who[..], &what[..]].concat());
    drop(proxy);
    let link = Link::new(&setting.redis)?;
    all.push(count("bandwidth", || link.bench(&setting.redline)));
    drop(link);
    stop(workers)?;
    let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    let lines: Vec<String> = all.iter().map(Count::line).collect();
    if all.iter().all(|count| count.right == RUNS) {
        return Ok(lines.join(", "));
    }
    Err(lines.join("\n"))
}

fn port_of(address: std::net::SocketAddr) -> String {
    address.port().to_string()
}

fn bench(redline: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(redline);
    command.args(["bench", "run", "--json", "-", "--duration", "1"]);
    command.args(words);
    command
}

/// Number of right verdicts.
struct Count {
    expected: String,
    right: usize,
    /// The wrong verdicts, with their evidence.
    wrong: Vec<String>,
}

impl Count {
    fn line(&self) -> String {
        let mut line = format!("{} {} of {RUNS}", self.expected, self.right);
        for wrong in &self.wrong {
            line += &format!("\n    {wrong}");
        }
        line
    }
}

fn count(expected: &str, bench: impl Fn() -> Command) -> Result<Count, Failure> {
    let mut count = Count {
        expected: expected.to_owned(),
        right: 0,
        wrong: Vec::new(),
    };
    for _ in 0..RUNS {
        let result = benched::result(bench())?;
        let verdict = &result["verdict"];
        if verdict["bottleneck"] == expected {
            count.right += 1;
        } else {
            let evidence = &verdict["evidence"];
            count
                .wrong
                .push(format!("{}: {evidence}", verdict["bottleneck"]));
        }
    }
    println!("  {}", count.line());
    Ok(count)
}

/// A server behind a link of low bandwidth: two network namespaces, and a queue with a limited rate.
struct Link {
    server: Option<Process>,
    names: [String; 2],
    _folder: Folder,
}

const SERVER_ADDRESS: &str = "10.97.0.1";
const CLIENT_ADDRESS: &str = "10.97.0.2";

impl Link {
    fn new(redis: &Path) -> Result<Link, Failure> {
        install::network_tools()?;
        let id = std::process::id();
        let mut link = Link {
            server: None,
            names: [format!("redline-s{id}"), format!("redline-c{id}")],
            _folder: Folder::new("link")?,
        };
        let [server, client] = &link.names;
        let veth = format!("link add rl0 netns {server} type veth peer name rl1 netns {client}");
        ip(&format!("netns add {server}"))?;
        ip(&format!("netns add {client}"))?;
        ip(&veth)?;
        ip(&format!("-n {server} addr add {SERVER_ADDRESS}/24 dev rl0"))?;
        ip(&format!("-n {client} addr add {CLIENT_ADDRESS}/24 dev rl1"))?;
        ip(&format!("-n {server} link set rl0 up"))?;
        ip(&format!("-n {client} link set rl1 up"))?;
        ip(&format!(
            "netns exec {server} tc qdisc add dev rl0 root tbf rate {LINK_MBIT}mbit burst 64kb latency 50ms"
        ))?;
        let mut command = inside(server);
        command
            .arg(redis)
            .args(["--port", "6379", "--save", "", "--appendonly", "no"])
            .args(["--protected-mode", "no", "--dir"])
            .arg(link._folder.path());
        link.server = Some(Process::start(&mut command)?);
        let answers = || {
            let mut ping = inside(client);
            ping.args(["redis-cli", "-h", SERVER_ADDRESS, "ping"]);
            captured(ping, b"", START_TIMEOUT).is_ok_and(|said| said.trim() == "PONG")
        };
        until("the server behind the link answers", answers)?;
        Ok(link)
    }

    fn bench(&self, redline: &Path) -> Command {
        // `ip netns exec` becomes the program, so its process id is the server's.
        let pid = self.server.as_ref().map_or(0, Process::id).to_string();
        let mut command = inside(&self.names[1]);
        command
            .arg(redline)
            .args(["bench", "run", "--json", "-", "--duration", "1"])
            .args(["-s", SERVER_ADDRESS, "--server-pid", &pid])
            .args(["--link-mbit", LINK_MBIT])
            .args(["--load", "SET key:{seq:1000} {value:4096}"])
            .args(["--command", "GET key:{uniform:1000}"]);
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.server = None;
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn inside(namespace: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]);
    command
}

fn ip(words: &str) -> Result<(), Failure> {
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    captured(command, b"", TIMEOUT).map(drop)
}
