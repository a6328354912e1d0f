//! Three Sentinels, a primary and a replica: ours, and mixed with redis-server 7.0 in either role.
//!
//! The primary is killed without a warning. Then the replica has to be the primary, with everything, and the old primary
//! has to follow it when it comes back; each of this is the Sentinels' doing alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::compat::Setting;
use crate::failover::Sentinel;
use crate::install;
use crate::run::{Failure, Folder, Process, captured, free_port, until};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Keys that are written before the primary dies.
const KEYS: usize = 100;

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
        "{} pairs: the replica took over from a killed primary, which followed it when it came back",
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
    // It was told to note its role.
    let kept = fs::read_to_string(new.file()).unwrap_or_default();
    if kept.contains(&format!("replicaof 127.0.0.1 {}", old.port)) {
        return Err("the new primary's file still names the old one".into());
    }
    old.run()?;
    until("the old primary follows the new one", || {
        old.tells("role:slave") && old.tells("master_link_status:up")
    })?;
    until("both have the same", || {
        old.asked(&["DEBUG", "DIGEST"]) == new.asked(&["DEBUG", "DIGEST"])
    })
}
