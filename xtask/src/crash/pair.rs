//! `cargo xtask crash --servers 2`: a primary and its replica under load, of which one, or both after the other, is killed at a
//! random moment. What WAIT 1 or WAITAOF 1 1 has confirmed must be on the survivor; if both were killed, what WAITAOF has
//! confirmed must be in the replica's append-only file. At the end a replica is told other keys than it should be, which
//! must be found.
//!
//! Each client increments a number of its own, so the number says how many of its writes are there.
//!
//! Must not know: how a stream is replicated.

use std::{
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use redline_testkit::{
    client::{Client, Value, encode},
    process::free_port,
    relay::Relay,
};

use super::{CLIENTS, Folder, Options, PATIENCE, Random, Server, as_number, numbers};
use crate::run::Failure;

/// Load before a kill, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 5..120;
/// Time that a client waits for a confirmation, in milliseconds: one that is late is none.
const CONFIRMATION_MS: &str = "300";
/// Confirmations of the client whose key the replica is not told, at least.
const PLANTED_MIN: u64 = 50;
/// Servers are killed once in so many points while they bring each other up to date.
const HASTY_KILLS: u64 = 8;

/// A choice of those that are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    Primary,
    Replica,
    /// The primary, and then the replica, which is started again.
    Both,
}

impl Kill {
    /// Returns the value that a client's number has to have reached on the survivor.
    fn owed(self, tally: &Tally) -> u64 {
        match self {
            Kill::Replica => tally.answered,
            Kill::Primary => tally.acked.max(tally.on_disk),
            Kill::Both => tally.on_disk,
        }
    }
}

/// The writes of one client: the value of its number after those that it has sent, that were answered, and that were
/// confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    sent: u64,
    answered: u64,
    /// By WAIT.
    acked: u64,
    /// By WAITAOF.
    on_disk: u64,
}

#[derive(Debug, Default)]
struct Figures {
    kills: u64,
    acked: u64,
    on_disk: u64,
    lost: u64,
}

struct Pair<'a> {
    program: &'a Path,
    policy: &'a str,
    folders: [PathBuf; 2],
    servers: [Option<Server>; 2],
    /// Number of the primary.
    primary: usize,
    random: Random,
    /// The clients' numbers as they are.
    bases: [u64; CLIENTS],
    /// Number of starts, by which logs are told apart.
    starts: u64,
    /// The last log of each.
    logs: [PathBuf; 2],
    figures: Figures,
}

/// Kills servers as the options say.
pub(super) fn run(options: &Options, program: &Path) -> Result<(), Failure> {
    let folder = Folder::new().map_err(|error| format!("a folder: {error}"))?;
    let folders = ["one", "other"].map(|name| folder.0.join(name));
    for folder in &folders {
        fs::create_dir(folder).map_err(|error| format!("a folder: {error}"))?;
    }
    let mut pair = Pair {
        program,
        policy: &options.policy,
        folders,
        servers: [None, None],
        primary: 0,
        random: Random(options.seed),
        bases: [0; CLIENTS],
        starts: 0,
        logs: Default::default(),
        figures: Figures::default(),
    };
    println!(
        "crash: {} points with two servers, appendfsync {}, seed {}",
        options.points, options.policy, options.seed
    );
    let began = Instant::now();
    let done = pair.begin().and_then(|()| {
        (1..=options.points).try_for_each(|point| {
            pair.point()
                .map_err(|why| format!("point {point}: {why}\n{}", pair.logs()))
        })
    });
    let took_s = began.elapsed().as_secs_f64();
    let done = done.and_then(|()| pair.check_figures());
    if let Err(why) = done.and_then(|()| pair.plant()) {
        let kept = folder.keep();
        return Err(format!(
            "crash: seed {}: {why}\nthe files are in {}",
            options.seed,
            kept.display()
        ));
    }
    let Figures {
        kills,
        acked,
        on_disk,
        lost,
    } = pair.figures;
    println!(
        "crash: {} points and {kills} kills in {took_s:.1} s; {acked} writes confirmed by WAIT and {on_disk} by WAITAOF, {lost} of them lost; \
         a planted loss was found",
        options.points
    );
    Ok(())
}

impl Pair<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        self.start(0, None)?;
        self.start(1, Some(self.address(0)))
    }

    /// Starts a server in its folder.
    fn start(&mut self, at: usize, primary: Option<SocketAddr>) -> Result<(), Failure> {
        let failed = |error: io::Error| format!("start of a server: {error}");
        loop {
            let port = free_port().map_err(failed)?;
            let folder = &self.folders[at];
            let log = folder.join(format!("log.{}", self.starts));
            self.starts += 1;
            let out = File::create(&log).map_err(failed)?;
            let mut command = Command::new(self.program);
            command
                .args(["server", "--bind", "127.0.0.1", "--port", &port.to_string()])
                .args(["--threads", "2", "--save", "", "--appendonly", "yes"])
                .args(["--appendfsync", self.policy])
                .args(["--auto-aof-rewrite-min-size", "128kb"])
                .args(["--repl-diskless-sync-delay", "0"])
                .current_dir(folder)
                .stdin(Stdio::null())
                .stdout(out.try_clone().map_err(failed)?)
                .stderr(out);
            if let Some(primary) = primary {
                let (host, port) = (primary.ip().to_string(), primary.port().to_string());
                command.args(["--replicaof", &host, &port]);
            }
            let child = command.spawn().map_err(failed)?;
            self.logs[at].clone_from(&log);
            let mut server = Server { child, port, log };
            match server.wait() {
                Ok(()) => {
                    self.servers[at] = Some(server);
                    return Ok(());
                }
                // A free port may be taken before the server binds it.
                Err(why) if why.contains("Address already in use") => {}
                Err(why) => return Err(why),
            }
        }
    }

    fn server(&self, at: usize) -> &Server {
        self.servers[at].as_ref().expect("it runs")
    }

    fn address(&self, at: usize) -> SocketAddr {
        ([127, 0, 0, 1], self.server(at).port).into()
    }

    fn kill(&mut self, at: usize) -> Result<(), Failure> {
        let mut server = self.servers[at].take().expect("it runs");
        if let Ok(Some(status)) = server.child.try_wait() {
            return Err(format!(
                "a server has ended with {status}:\n{}",
                server.log()
            ));
        }
        drop(server);
        self.figures.kills += 1;
        Ok(())
    }

    fn call(&self, at: usize, words: &[&str]) -> Result<Value, Failure> {
        let reply = self.server(at).connect();
        let reply = reply.and_then(|mut client| client.call(words));
        reply.map_err(|error| format!("{}: {error}", words.join(" ")))
    }

    /// Waits until the replica's link stands.
    fn link(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let info = self.call(1 - self.primary, &["INFO", "replication"])?;
            let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
            if info.contains("master_link_status:up") {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the replica never follows:\n{info}"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs a load, kills, compares, and brings the pair up again.
    fn point(&mut self) -> Result<(), Failure> {
        if self.random.below(HASTY_KILLS) > 0 {
            self.link()?;
        }
        let kill = match self.random.below(4) {
            0 | 1 => Kill::Primary,
            2 => Kill::Replica,
            _ => Kill::Both,
        };
        let load_ms = self.random.within(LOAD_MS);
        let tallies = self.load(kill, |_| thread::sleep(Duration::from_millis(load_ms)))?;
        let lost = self.check(kill, &tallies)?;
        self.figures.lost += lost;
        if lost > 0 {
            return Err(format!(
                "{lost} confirmed writes are lost: {kill:?}, {tallies:?}, found {:?}",
                self.bases
            ));
        }
        let old = match kill {
            Kill::Replica => 1 - self.primary,
            Kill::Primary | Kill::Both => {
                self.primary = 1 - self.primary;
                1 - self.primary
            }
        };
        self.start(old, Some(self.address(self.primary)))
    }

    /// Has clients write until the end of a time, and then whoever is killed is. The numbers of confirmations of the first
    /// client are counted meanwhile.
    fn load(&mut self, kill: Kill, time: impl FnOnce(&AtomicU64)) -> Result<Vec<Tally>, Failure> {
        let failed = |error: io::Error| format!("a client: {error}");
        let primary = self.address(self.primary);
        let (ends, confirmed) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut writers = Vec::new();
        for (number, base) in self.bases.into_iter().enumerate() {
            writers.push(Writer {
                client: Client::connect(primary).map_err(failed)?,
                number,
                tally: Tally {
                    sent: base,
                    answered: base,
                    // That those were confirmed is past.
                    acked: 0,
                    on_disk: 0,
                },
                random: Random(self.random.next()),
            });
        }
        let (tallies, killed) = thread::scope(|scope| {
            let writers: Vec<_> = writers
                .into_iter()
                .map(|writer| {
                    let (ends, confirmed) = (&ends, &confirmed);
                    scope.spawn(move || writer.run(ends, confirmed))
                })
                .collect();
            time(&confirmed);
            let killed = match kill {
                Kill::Primary => self.kill(self.primary),
                Kill::Replica => self.kill(1 - self.primary),
                Kill::Both => self
                    .kill(self.primary)
                    .and_then(|()| self.kill(1 - self.primary)),
            };
            ends.store(true, Ordering::Release);
            let join = |writer: thread::ScopedJoinHandle<'_, Result<Tally, Failure>>| {
                writer.join().expect("a client does not panic")
            };
            let tallies: Result<Vec<Tally>, Failure> = writers.into_iter().map(join).collect();
            (tallies, killed)
        });
        killed?;
        let tallies = tallies?;
        for (tally, base) in tallies.iter().zip(self.bases) {
            self.figures.acked += tally.acked.saturating_sub(base);
            self.figures.on_disk += tally.on_disk.saturating_sub(base);
        }
        Ok(tallies)
    }

    /// Compares the survivor with what was confirmed, and goes on from there. Returns the number of writes that are missing.
    fn check(&mut self, kill: Kill, tallies: &[Tally]) -> Result<u64, Failure> {
        let survivor = match kill {
            Kill::Replica => self.primary,
            Kill::Primary => {
                let survivor = 1 - self.primary;
                self.call(survivor, &["REPLICAOF", "NO", "ONE"])?;
                survivor
            }
            Kill::Both => {
                let survivor = 1 - self.primary;
                self.start(survivor, None)?;
                survivor
            }
        };
        let client = self.server(survivor).connect();
        let mut client = client.map_err(|error| format!("the check: {error}"))?;
        let keys: Vec<String> = (0..CLIENTS).map(key).collect();
        let found = numbers(&mut client, &keys)?;
        let mut lost = 0;
        // A replica that has confirmed nothing may still have what it had before, of another history; and so has its file
        // before that has a base of the primary's data.
        let is_old = match kill {
            Kill::Replica => false,
            Kill::Primary => tallies.iter().all(|it| it.acked == 0 && it.on_disk == 0),
            Kill::Both => tallies.iter().all(|tally| tally.on_disk == 0),
        };
        for ((tally, found), base) in tallies.iter().zip(found).zip(&mut self.bases) {
            let found = found as u64;
            if found > tally.sent && !is_old {
                return Err(format!("{found} is more than was written: {tally:?}"));
            }
            lost += kill.owed(tally).saturating_sub(found);
            *base = found;
        }
        Ok(lost)
    }

    /// A run in which nothing was confirmed has checked nothing.
    fn check_figures(&self) -> Result<(), Failure> {
        match self.figures.acked > 0 && self.figures.on_disk > 0 {
            true => Ok(()),
            false => Err(format!("nothing was confirmed: {:?}", self.figures)),
        }
    }

    /// Has the replica told another key than one client's, and the primary killed: the loss must be found.
    fn plant(&mut self) -> Result<(), Failure> {
        let [from, to] = [key(0), key(0).replace("count", "ghost")]
            .map(|key| format!("\r\n${}\r\n{key}\r\n", key.len()));
        let seed = self.random.next();
        let target = self.address(self.primary);
        let relay = Relay::altering(target, seed, from.as_bytes(), to.as_bytes());
        let relay = relay.map_err(|error| format!("a relay: {error}"))?;
        self.link()?;
        let port = relay.address().port().to_string();
        self.call(1 - self.primary, &["REPLICAOF", "127.0.0.1", &port])?;
        self.link()?;
        let tallies = self.load(Kill::Primary, |confirmed| {
            let deadline = Instant::now() + PATIENCE;
            while confirmed.load(Ordering::Relaxed) < PLANTED_MIN && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        })?;
        match self.check(Kill::Primary, &tallies)? {
            0 => Err("a planted loss was not found".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns the ends of the logs.
    fn logs(&self) -> String {
        let last = |log: &PathBuf| {
            let log = fs::read(log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).into_owned();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(20)..].join("\n")
        };
        self.logs.each_ref().map(last).join("\n----\n")
    }
}

/// Returns the key of a client's number.
fn key(client: usize) -> String {
    format!("count:{client}")
}

/// A client that writes.
struct Writer {
    client: Client,
    number: usize,
    tally: Tally,
    random: Random,
}

impl Writer {
    /// Increments, and asks if that is confirmed, until the end or until the server is gone. An error: a reply that is one.
    fn run(mut self, ends: &AtomicBool, confirmed: &AtomicU64) -> Result<Tally, Failure> {
        while !ends.load(Ordering::Acquire) {
            match self.write() {
                Ok(true) if self.number == 0 => {
                    confirmed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {}
                // A server that is killed under a reply has said nothing.
                Err(Broken::Gone) => break,
                Err(Broken::Wrong(reply)) => {
                    return Err(format!("client {}: {reply:?}", self.number));
                }
            }
        }
        Ok(self.tally)
    }

    /// Writes a few times and asks once. Returns true if it was confirmed.
    fn write(&mut self) -> Result<bool, Broken> {
        let count = 1 + self.random.below(4);
        let asks_for_files = self.random.below(2) == 0;
        let mut requests = Vec::new();
        for _ in 0..count {
            encode(&["INCR", &key(self.number)], &mut requests);
        }
        match asks_for_files {
            true => encode(&["WAITAOF", "1", "1", CONFIRMATION_MS], &mut requests),
            false => encode(&["WAIT", "1", CONFIRMATION_MS], &mut requests),
        }
        self.tally.sent += count;
        self.client.send(&requests).map_err(|_| Broken::Gone)?;
        for _ in 0..count {
            let reply = self.reply()?;
            let number = as_number(&reply).ok_or(Broken::Wrong(reply))?;
            self.tally.answered = number as u64;
        }
        let reply = self.reply()?;
        let is_confirmed = match &reply {
            Value::Integer(replicas) => *replicas > 0,
            Value::Array(both) => both.iter().all(|one| as_number(one) == Some(1)),
            _ => return Err(Broken::Wrong(reply)),
        };
        let kind = match asks_for_files {
            true => &mut self.tally.on_disk,
            false => &mut self.tally.acked,
        };
        if is_confirmed {
            *kind = self.tally.answered;
        }
        Ok(is_confirmed)
    }

    fn reply(&mut self) -> Result<Value, Broken> {
        match self.client.reply() {
            Ok(Some(reply)) if reply.is_error() => Err(Broken::Wrong(reply)),
            Ok(Some(reply)) => Ok(reply),
            Ok(None) | Err(_) => Err(Broken::Gone),
        }
    }
}

/// The end of a client's conversation.
enum Broken {
    /// The server is gone.
    Gone,
    /// A reply that should not be.
    Wrong(Value),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_owes_what_was_told_of_it() {
        let tally = Tally {
            sent: 9,
            answered: 7,
            acked: 6,
            on_disk: 4,
        };
        let owed = [Kill::Replica, Kill::Primary, Kill::Both].map(|kill| kill.owed(&tally));
        assert_eq!(owed, [7, 6, 4]);
    }
}
