//! Three Sentinels, a primary and a replica: ours, and mixed with redis-server 7.0 in either role.
//!
//! The primary is killed without a warning. Then the replica has to be the primary, with everything, and the old primary
//! has to follow it when it comes back; each of this is the Sentinels' doing alone. redis-py and ioredis write meanwhile, and find the
//! new primary by themselves.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::compat::Setting;
use crate::failover::Sentinel;
use crate::install;
use crate::run::{Failure, Folder, Process, captured, free_port, until, workspace};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Keys that are written before the primary dies.
const KEYS: usize = 100;
/// Writes that a client makes before it dies, and behind it.
const WRITES: usize = 50;

/// A program that is a server with a configuration file.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    program: PathBuf,
    /// The part of the program, if it has several.
    part: Option<&'static str>,
}

/// A server that can be started again where it was.
struct Node {
    kind: Kind,
    port: u16,
    folder: Folder,
    process: Option<Process>,
}

impl Node {
    /// Starts one; it follows a port, or nobody.
    fn start(kind: &Kind, follows: Option<u16>) -> Result<Node, Failure> {
        let mut node = Node {
            kind: kind.clone(),
            port: free_port()?,
            folder: Folder::new("watched")?,
            process: None,
        };
        let mut text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsave \"\"\nrepl-diskless-sync-delay 0\nenable-debug-command yes\n",
            node.port,
            node.folder.path().display()
        );
        if let Some(port) = follows {
            text += &format!("replicaof 127.0.0.1 {port}\n");
        }
        let file = node.file();
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        node.run()?;
        Ok(node)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("redis.conf")
    }

    /// Starts the process, with the configuration file as it is by now.
    fn run(&mut self) -> Result<(), Failure> {
        let mut command = Command::new(&self.kind.program);
        command.args(self.kind.part).arg(self.file());
        self.process = Some(Process::start(&mut command)?);
        until("a server answers", || self.asked(&["PING"]) == "PONG")
    }

    fn asked(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(words);
        let said = captured(command, b"", TIMEOUT).unwrap_or_default();
        said.trim().to_owned()
    }

    /// Returns true if INFO replication has this line.
    fn tells(&self, line: &str) -> bool {
        self.asked(&["INFO", "replication"])
            .lines()
            .any(|told| told.trim() == line)
    }
}

/// A program that writes numbered keys to the primary that the Sentinels name, in database 1.
struct Writer {
    name: &'static str,
    process: Process,
    said: PathBuf,
}

impl Writer {
    /// Starts one of each library, with what it says in this folder.
    fn start_all(sentinels: &[Sentinel], folder: &Folder) -> Result<Vec<Writer>, Failure> {
        let sources = workspace().join("crates/testkit/clients");
        let mut python = Command::new(install::redis_py()?);
        python.arg(sources.join("py/sentinel.py"));
        let mut node = Command::new("node");
        node.arg(sources.join("js/sentinel.js"));
        node.env("NODE_PATH", install::node_clients()?.join("node_modules"));
        let mut writers = Vec::new();
        for (name, mut command) in [("redis-py", python), ("ioredis", node)] {
            let ports = sentinels.iter().map(|sentinel| sentinel.port().to_string());
            command.arg(name).args(ports);
            let said = folder.path().join(name);
            let process = Process::start_into(&mut command, &said)?;
            writers.push(Writer {
                name,
                process,
                said,
            });
        }
        Ok(writers)
    }

    fn said(&self) -> Vec<String> {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        // The last line may not be whole.
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(str::to_owned).collect()
    }

    /// Returns the numbers of the keys that were acknowledged behind the last failure, and true if there was one.
    fn acknowledged(&self) -> (Vec<usize>, bool) {
        let said = self.said();
        let lost = said.iter().rposition(|line| line == "lost");
        let numbers = said[lost.map_or(0, |at| at + 1)..].iter();
        (
            numbers.filter_map(|line| line.parse().ok()).collect(),
            lost.is_some(),
        )
    }

    /// Has it end, and looks if the primary has what it was told to have, and a replica what the writer wrote last.
    fn end(&mut self, primary: &Node) -> Result<(), Failure> {
        let name = self.name;
        let wrong = |writer: &Writer, what: &str| {
            let said = writer.said();
            let last = &said[said.len().saturating_sub(5)..];
            format!("{name}: {what}; it said at last {last:?}")
        };
        primary.asked(&["-n", "1", "SET", &format!("{name}:end"), "x"]);
        let mut status = None;
        let ended = until("a client of the Sentinels ends", || {
            status = self.process.ended();
            status.is_some()
        });
        ended.map_err(|why| wrong(self, &why))?;
        if status.is_none_or(|status| !status.success()) {
            return Err(wrong(self, "it failed"));
        }
        let (numbers, has_lost) = self.acknowledged();
        let last = numbers.last().copied().unwrap_or(0);
        if !has_lost || self.said().last() != Some(&format!("read {last}")) {
            return Err(wrong(
                self,
                "it met no failover, or read nothing from a replica",
            ));
        }
        let keys: Vec<String> = numbers.iter().map(|n| format!("{name}:{n}")).collect();
        let mut words = vec!["-n", "1", "EXISTS"];
        words.extend(keys.iter().map(String::as_str));
        match primary.asked(&words) == keys.len().to_string() {
            true => Ok(()),
            false => Err(wrong(self, "a write behind the failover is gone")),
        }
    }
}

/// Runs it with each pair.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let ours = Kind {
        name: "redline",
        program: setting.redline.clone(),
        part: Some("server"),
    };
    let redis = Kind {
        name: "redis-server 7.0",
        program: install::older_redis_server()?,
        part: None,
    };
    let pairs = [(&ours, &ours), (&ours, &redis), (&redis, &ours)];
    for (primary, replica) in pairs {
        fail_over(primary, replica, &redis).map_err(|why| {
            let (primary, replica) = (primary.name, replica.name);
            format!("a primary of {primary} with a replica of {replica}: {why}")
        })?;
    }
    Ok(format!(
        "{} pairs: the replica took over from a killed primary, which followed it when it came back; redis-py and ioredis went on \
         writing",
        pairs.len()
    ))
}

fn fail_over(primary: &Kind, replica: &Kind, redis: &Kind) -> Result<(), Failure> {
    let mut old = Node::start(primary, None)?;
    let new = Node::start(replica, Some(old.port))?;
    until("the replica is in step", || {
        new.tells("master_link_status:up")
    })?;
    let mut sentinels = Vec::new();
    for _ in 0..3 {
        sentinels.push(Sentinel::start(&redis.program, old.port)?);
    }
    for sentinel in &sentinels {
        sentinel.await_acquaintance()?;
    }
    for number in 0..KEYS {
        let key = format!("key:{number}");
        if old.asked(&["SET", &key, "x"]) != "OK" {
            return Err(format!("{key} was not written"));
        }
    }
    let digest = old.asked(&["DEBUG", "DIGEST"]);
    until("the replica has everything", || {
        new.asked(&["DEBUG", "DIGEST"]) == digest
    })?;
    let folder = Folder::new("writers")?;
    let mut writers = Writer::start_all(&sentinels, &folder)?;
    let go_on = |writers: &[Writer], is_behind: bool| {
        until("both clients write", || {
            writers.iter().all(|writer| {
                let (numbers, has_lost) = writer.acknowledged();
                has_lost == is_behind && numbers.len() >= WRITES
            })
        })
        .map_err(|why| {
            let said = writers
                .iter()
                .map(|writer| (writer.name, writer.said().len()));
            format!("{why}; lines of each: {:?}", said.collect::<Vec<_>>())
        })
    };
    go_on(&writers, false)?;
    old.process = None;
    let place = format!("127.0.0.1\n{}", new.port);
    for sentinel in &sentinels {
        until("each Sentinel names the replica", || {
            let said = sentinel.asked(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]);
            said.trim() == place
        })?;
    }
    if new.asked(&["DBSIZE"]) != KEYS.to_string() || new.asked(&["SET", "after", "x"]) != "OK" {
        return Err("the new primary lacks something, or takes no writes".into());
    }
    go_on(&writers, true)?;
    // It was told to note its role.
    let kept = fs::read_to_string(new.file()).unwrap_or_default();
    if kept.contains(&format!("replicaof 127.0.0.1 {}", old.port)) {
        return Err("the new primary's file still names the old one".into());
    }
    old.run()?;
    until("the old primary follows the new one", || {
        old.tells("role:slave") && old.tells("master_link_status:up")
    })?;
    for writer in &mut writers {
        writer.end(&new)?;
    }
    until("both have the same", || {
        old.asked(&["DEBUG", "DIGEST"]) == new.asked(&["DEBUG", "DIGEST"])
    })
}
