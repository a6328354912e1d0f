//! Replication under faults: ours and real servers as primaries and replicas of each other, while links are cut at random
//! bytes and held up, and servers are killed. Each time the load pauses, servers of equal offsets have equal data.

mod contents;
mod formats;
mod load;
mod pairs;

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use redline_testkit::client::{Client, Value};
use redline_testkit::process::ServerProcess;
use redline_testkit::relay::Relay;

use crate::compat::{DEBUG, Setting};
use crate::install;
use crate::run::{Failure, Folder};
use contents::{Contents, Digests};
use load::{Breadth, Load, PLANTED_KEY};

/// Seconds of all constellations by default.
const SECONDS: u64 = 90;
/// Rounds of each pair of servers by default.
const ROUNDS: u64 = 1;
/// Time under load before servers are compared.
const ROUND: Duration = Duration::from_secs(3);
/// Time that replicas have to catch up.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time after which servers of equal offsets that still differ do so for good: keys that were due have expired.
const SETTLED: Duration = Duration::from_secs(5);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Number of clients of the load.
const CLIENTS: u64 = 3;
/// Number of workers of each server of ours: more than there are CPUs, so that they meet at any point.
const WORKERS: usize = 8;
/// Largest number of keys that a report of a difference names.
const NAMED_KEYS_MAX: usize = 5;
/// Size of a backlog that keeps little of the stream, so that some go on where they were and some do not.
const LITTLE: &str = "16kb";
/// Arguments of all servers.
const WORDS: [&str; 5] = ["--repl-diskless-sync-delay", "0", "--save", "3600", "1"];

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ours,
    Redis7,
    Redis8,
    Valkey,
}

/// A constellation of servers: each with the number of whom it follows.
struct Scene {
    name: &'static str,
    servers: &'static [(Kind, Option<usize>)],
    breadth: Breadth,
    backlog: &'static str,
}

/// The faults of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    None,
    /// Links are cut at random bytes.
    Cuts,
    /// Links are cut and held up, servers are killed.
    All,
}

const SCENES: [Scene; 5] = [
    Scene {
        name: "ours, and replicas: ours, behind it ours and Redis 8.2.3, and a Redis 8.2.3",
        servers: &[
            (Kind::Ours, None),
            (Kind::Ours, Some(0)),
            (Kind::Ours, Some(1)),
            (Kind::Redis8, Some(1)),
            (Kind::Redis8, Some(0)),
        ],
        breadth: Breadth::Newer,
        backlog: LITTLE,
    },
    Scene {
        name: "ours, and replicas: ours, behind it Valkey 9.1.2, and a Redis 7.0.15",
        servers: &[
            (Kind::Ours, None),
            (Kind::Ours, Some(0)),
            (Kind::Valkey, Some(1)),
            (Kind::Redis7, Some(0)),
        ],
        breadth: Breadth::Common,
        backlog: LITTLE,
    },
    Scene {
        name: "from Redis 8.2.3 and back",
        servers: &[
            (Kind::Redis8, None),
            (Kind::Ours, Some(0)),
            (Kind::Ours, Some(1)),
        ],
        breadth: Breadth::Newer,
        backlog: LITTLE,
    },
    Scene {
        name: "from Redis 7.0.15 and back",
        servers: &[
            (Kind::Redis7, None),
            (Kind::Ours, Some(0)),
            (Kind::Ours, Some(1)),
        ],
        breadth: Breadth::Common,
        backlog: LITTLE,
    },
    Scene {
        name: "from Valkey 9.1.2 and back",
        servers: &[
            (Kind::Valkey, None),
            (Kind::Ours, Some(0)),
            (Kind::Ours, Some(1)),
        ],
        breadth: Breadth::Timed,
        backlog: LITTLE,
    },
];

/// Ours, and a replica of ours that is told one effect in the words of the call.
const PLANTED: Scene = Scene {
    name: "a planted fault",
    servers: &[(Kind::Ours, None), (Kind::Ours, Some(0))],
    breadth: Breadth::Planted,
    backlog: LITTLE,
};

/// Figures of a run.
#[derive(Debug, Default)]
struct Figures {
    calls: u64,
    comparisons: u64,
    cuts: u64,
    kills: u64,
    full: u64,
    partial: u64,
    /// Full resynchronisations when roles were exchanged without load.
    moved_full: u64,
    moves: u64,
}

/// Runs every constellation, and the planted fault.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let each = Duration::from_secs(setting.seconds_or(SECONDS)) / (SCENES.len() as u32 + 1);
    let mut figures = Figures::default();
    if let Some(rounds) = setting.rounds() {
        return pairs::run(setting, rounds);
    }
    let formats = formats::run(setting)?;
    let pairs = pairs::run(setting, ROUNDS)?;
    find_the_planted_fault(setting, each)?;
    let mut failures = Vec::new();
    for (scene, seed) in SCENES.iter().zip(setting.seed()..) {
        println!("  {}", scene.name);
        if let Err(failure) = play(setting, scene, seed, each, &mut figures) {
            failures.push(format!("{}, seed {seed}: {failure}", scene.name));
        }
    }
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    Ok(format!(
        "{} calls, {} cuts, {} kills, {} comparisons; {} full and {} partial resynchronisations; {} exchanges of roles, {} of \
         them with full ones; {formats} cases of formats; {pairs}; the planted fault was found",
        figures.calls,
        figures.cuts,
        figures.kills,
        figures.comparisons,
        figures.full,
        figures.partial,
        figures.moves,
        figures.moved_full
    ))
}

fn play(
    setting: &Setting,
    scene: &Scene,
    seed: u64,
    time: Duration,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let end = Instant::now() + time;
    let mut random = Rng::with_seed(seed);
    let mut group = Group::start(setting, scene, &mut random)?;
    loop {
        group.round(&mut random, Faults::All, figures)?;
        if Instant::now() > end {
            break;
        }
    }
    let is_moved = scene.servers[0].0 != Kind::Ours;
    let result = match is_moved {
        true => group.exchange_roles(&mut random, figures),
        false => Ok(()),
    };
    group.count_syncs(figures)?;
    result
}

/// Plays a scene in which a replica is told SPOP where SREM is the effect; a failure if nobody notices.
fn find_the_planted_fault(setting: &Setting, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    let mut random = Rng::with_seed(setting.seed());
    let mut group = Group::start(setting, &PLANTED, &mut random)?;
    let mut figures = Figures::default();
    loop {
        match group.round(&mut random, Faults::None, &mut figures) {
            Err(failure) if failure.contains(PLANTED_KEY) => return Ok(()),
            Err(failure) => return Err(format!("the planted fault: {failure}")),
            Ok(()) if Instant::now() > end => {
                let alterations = group.members[1]
                    .relay
                    .as_ref()
                    .map_or(0, Relay::alterations);
                return Err(format!(
                    "{alterations} effects were told in other words, and nobody noticed"
                ));
            }
            Ok(()) => {}
        }
    }
}

/// A server, and how it is reached by its primary's bytes.
struct Member {
    kind: Kind,
    program: std::path::PathBuf,
    folder: Folder,
    server: Option<ServerProcess>,
    /// Number of its primary.
    follows: Option<usize>,
    /// The relay between it and its primary.
    relay: Option<Relay>,
    backlog: &'static str,
}

impl Member {
    /// Starts it on its folder.
    fn start(&mut self) -> Result<(), Failure> {
        let folder = self.folder.path().display().to_string();
        let mut words: Vec<&str> = WORDS.to_vec();
        words.extend(["--dir", &folder, "--repl-backlog-size", self.backlog]);
        words.extend(DEBUG);
        let port = self
            .relay
            .as_ref()
            .map(|relay| relay.address().port().to_string());
        match &port {
            Some(port) => words.extend(["--replicaof", "127.0.0.1", port]),
            // What a killed primary has on disk is what its replicas have to have afterwards.
            None => words.extend(["--appendonly", "yes"]),
        }
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let started = match self.kind {
            Kind::Ours => ServerProcess::redline(&self.program, WORKERS, &words),
            _ => ServerProcess::redis(&self.program, &words),
        };
        self.server = Some(started.map_err(|error| format!("{:?}: {error}", self.kind))?);
        Ok(())
    }

    fn running(&self) -> &ServerProcess {
        self.server.as_ref().expect("it is started again at once")
    }

    fn connect(&self) -> Result<Client, Failure> {
        Client::connect(self.running().address()).map_err(|error| self.failed(&error.to_string()))
    }

    fn call(&self, words: &[&str]) -> Result<Value, Failure> {
        let reply = self.connect()?.call(words);
        reply.map_err(|error| self.failed(&format!("{}: {error}", words.join(" "))))
    }

    /// Makes a failure with the end of its log.
    fn failed(&self, what: &str) -> Failure {
        let log = self.running().log();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(30)..];
        format!("{:?}: {what}\n{}", self.kind, last.join("\n"))
    }

    /// Returns a field of INFO; an empty text if there is none.
    fn info(&self, field: &str) -> Result<String, Failure> {
        let reply = self.call(&["INFO", "everything"])?;
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
        let value = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned());
        Ok(text.lines().find_map(value).unwrap_or_default())
    }

    fn number(&self, field: &str) -> Result<u64, Failure> {
        Ok(self.info(field)?.parse().unwrap_or(0))
    }

    /// Returns what two servers of equal offsets have in common.
    fn data(&self, digests: Digests) -> Result<Contents, Failure> {
        let data = contents::of_everything(&mut self.connect()?, digests);
        data.map_err(|error| self.failed(&error.to_string()))
    }

    /// Returns what it holds, key by key.
    fn keys(&self, digests: Digests) -> Result<Contents, Failure> {
        let keys = contents::of_each_key(&mut self.connect()?, digests);
        keys.map_err(|error| self.failed(&error.to_string()))
    }
}

/// The servers of a scene.
struct Group {
    members: Vec<Member>,
    breadth: Breadth,
}

impl Group {
    fn start(setting: &Setting, scene: &Scene, random: &mut Rng) -> Result<Group, Failure> {
        let mut group = Group {
            members: Vec::new(),
            breadth: scene.breadth,
        };
        for &(kind, follows) in scene.servers {
            let (seed, is_planted) = (random.u64(..), scene.breadth == Breadth::Planted);
            let key = format!("\r\n${}\r\n{PLANTED_KEY}\r\n", PLANTED_KEY.len());
            let [effect, call] = ["SREM", "SPOP"].map(|word| format!("{word}{key}"));
            group.join(
                setting,
                kind,
                follows,
                scene.backlog,
                |target| match is_planted {
                    true => Relay::altering(target, seed, effect.as_bytes(), call.as_bytes()),
                    false => Relay::start(target, seed),
                },
            )?;
        }
        Ok(group)
    }

    /// Adds a server that follows one of those that are here, by a relay.
    fn join(
        &mut self,
        setting: &Setting,
        kind: Kind,
        follows: Option<usize>,
        backlog: &'static str,
        relay: impl FnOnce(SocketAddr) -> io::Result<Relay>,
    ) -> Result<(), Failure> {
        let target = follows.map(|at| self.members[at].running().address());
        let relay = target.map(relay).transpose();
        let mut member = Member {
            kind,
            program: match kind {
                Kind::Ours => setting.redline.clone(),
                Kind::Redis7 => install::older_redis_server()?,
                Kind::Redis8 => setting.redis.clone(),
                Kind::Valkey => install::valkey_server()?,
            },
            folder: Folder::new("replication")?,
            server: None,
            follows,
            relay: relay.map_err(|error| format!("a relay: {error}"))?,
            backlog,
        };
        member.start()?;
        self.members.push(member);
        Ok(())
    }

    /// Returns how far the digests of its servers can be compared.
    fn digests(&self) -> Digests {
        let has_valkey = self
            .members
            .iter()
            .any(|member| member.kind == Kind::Valkey);
        match has_valkey && self.breadth.has_timed_fields() {
            true => Digests::ButOfHashes,
            false => Digests::Alike,
        }
    }

    /// Returns the number of the server that follows nobody.
    fn primary(&self) -> usize {
        let is_primary = |member: &Member| member.follows.is_none();
        self.members.iter().position(is_primary).expect("one")
    }

    /// Lets the load run, with faults or without, and compares the servers in the pause behind it.
    fn round(
        &mut self,
        random: &mut Rng,
        faults: Faults,
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        let load = Load {
            primary: Mutex::new(self.members[self.primary()].running().address()),
            is_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            breadth: self.breadth,
        };
        let result = std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (load, seed) = (&load, random.u64(..));
                scope.spawn(move || load.run(seed));
            }
            let result = self.disturb(random, faults, &load, figures);
            load.is_over.store(true, Ordering::Release);
            result
        });
        result?;
        let calls = load.calls.load(Ordering::Relaxed);
        if calls == 0 {
            return Err(self.members[self.primary()].failed("no call of the load was answered"));
        }
        figures.calls += calls;
        for relay in self
            .members
            .iter()
            .filter_map(|member| member.relay.as_ref())
        {
            relay.relent();
        }
        self.compare()?;
        figures.comparisons += 1;
        Ok(())
    }

    /// Passes the time of a round, with faults at random moments.
    fn disturb(
        &mut self,
        random: &mut Rng,
        faults: Faults,
        load: &Load,
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        let time = match faults {
            Faults::Cuts => pairs::ROUND,
            Faults::None | Faults::All => ROUND,
        };
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(random.u64(50..400)));
            let fault = match faults {
                Faults::None => continue,
                Faults::Cuts => random.u8(2..15),
                Faults::All => random.u8(..20),
            };
            let at = random.usize(..self.members.len());
            match fault {
                0 => self.restart(at, true, load, figures)?,
                1 => self.restart(at, false, load, figures)?,
                kind => {
                    let Some(relay) = &self.members[at].relay else {
                        continue;
                    };
                    match kind {
                        2..=6 => relay.cut(),
                        7..=14 => relay.cut_after(random.u64(..60_000)),
                        _ => relay.hold(Duration::from_millis(random.u64(..800))),
                    }
                    figures.cuts += u64::from(kind < 15);
                }
            }
        }
        Ok(())
    }

    /// Kills a server, or ends it in good order, and starts it again; who follows it finds it at its new address.
    fn restart(
        &mut self,
        at: usize,
        is_killed: bool,
        load: &Load,
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        self.count_syncs_of(at, figures)?;
        let mut server = self.members[at].server.take().expect("it runs");
        if !server.is_running() {
            return Err(format!("a server had ended:\n{}", server.log()));
        }
        match is_killed {
            true => drop(server),
            false => drop(server.stop().map_err(|error| error.to_string())?),
        }
        figures.kills += 1;
        self.members[at].start()?;
        let address = self.members[at].running().address();
        if self.members[at].follows.is_none() {
            *load.primary.lock().expect("nobody panics under it") = address;
        }
        for member in self
            .members
            .iter()
            .filter(|member| member.follows == Some(at))
        {
            if let Some(relay) = &member.relay {
                relay.aim(address);
            }
        }
        Ok(())
    }

    fn count_syncs_of(&self, at: usize, figures: &mut Figures) -> Result<(), Failure> {
        figures.full += self.members[at].number("sync_full")?;
        figures.partial += self.members[at].number("sync_partial_ok")?;
        Ok(())
    }

    fn count_syncs(&self, figures: &mut Figures) -> Result<(), Failure> {
        (0..self.members.len()).try_for_each(|at| self.count_syncs_of(at, figures))
    }

    /// Waits until all have the primary's offset, and compares what they hold.
    fn compare(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        let primary = &self.members[self.primary()];
        let mut settled: Option<(String, Instant)> = None;
        loop {
            std::thread::sleep(LOOK);
            let offset = primary.info("master_repl_offset")?;
            let behind = self.behind(&offset)?;
            if Instant::now() > deadline {
                let member = behind.unwrap_or(primary);
                let own = member.info("master_repl_offset")?;
                let link = member.info("master_link_status")?;
                return Err(member.failed(&format!(
                    "not caught up in {} s: it has {own} of {offset}, its link is {link}",
                    PATIENCE.as_secs()
                )));
            }
            if behind.is_some() {
                settled = None;
                continue;
            }
            let digests = self.digests();
            let wanted = primary.data(digests)?;
            let mut different = None;
            for member in &self.members {
                if member.data(digests)? != wanted {
                    different = Some(member);
                }
            }
            if primary.info("master_repl_offset")? != offset {
                continue;
            }
            let Some(different) = different else {
                return Ok(());
            };
            match &settled {
                Some((at, since)) if *at == offset && since.elapsed() > SETTLED => {
                    let (wanted, held) = (primary.keys(digests)?, different.keys(digests)?);
                    let keys = contents::difference(&wanted, &held, NAMED_KEYS_MAX);
                    return Err(different.failed(&format!(
                        "at the primary's offset {offset} it has other data: {keys}"
                    )));
                }
                Some((at, _)) if *at == offset => {}
                _ => settled = Some((offset, Instant::now())),
            }
        }
    }

    /// Returns a replica that is not at this offset.
    fn behind(&self, offset: &str) -> Result<Option<&Member>, Failure> {
        for member in self
            .members
            .iter()
            .filter(|member| member.follows.is_some())
        {
            let is_there = member.info("master_link_status")? == "up"
                && member.info("master_repl_offset")? == offset;
            if !is_there {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// Makes ours the primary of the real one that it followed, and back again, each with a load behind it.
    fn exchange_roles(&mut self, random: &mut Rng, figures: &mut Figures) -> Result<(), Failure> {
        for (old, new) in [(0, 1), (1, 0)] {
            self.round(random, Faults::None, figures)?;
            let before = self.members[new].number("sync_full")?;
            self.members[new].call(&["REPLICAOF", "NO", "ONE"])?;
            let address = self.members[new].running().address();
            let relay = Relay::start(address, random.u64(..));
            let relay = relay.map_err(|error| format!("a relay: {error}"))?;
            let port = relay.address().port().to_string();
            self.members[old].call(&["REPLICAOF", "127.0.0.1", &port])?;
            self.members[new].follows = None;
            self.members[new].relay = None;
            self.members[old].follows = Some(new);
            self.members[old].relay = Some(relay);
            self.round(random, Faults::None, figures)
                .map_err(|failure| format!("number {new} as the primary: {failure}"))?;
            figures.moves += 1;
            figures.moved_full += u64::from(self.members[new].number("sync_full")? > before);
        }
        Ok(())
    }
}
