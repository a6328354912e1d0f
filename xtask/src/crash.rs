//! `cargo xtask crash`: a server under load is killed at random moments and started again; what its clients were told
//! must be in its append-only file, and no unit torn. The last point plants a loss, which must be found. With two servers:
//! see [`pair`].
//!
//! A kill of the process leaves what the kernel has taken; losses of power are simulated in `redline-persist`.
//!
//! Must not know: the form of the files, but which of them is the last.

mod history;
mod pair;

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use redline_testkit::{
    client::{Client, Value, encode},
    process::free_port,
};

use self::history::{History, KINDS, Kind, Outcome, Pops, Tally};
use crate::{compat::release_binary, run::Failure};

/// Clients that write, and whose acknowledgements are counted.
const CLIENTS: usize = 4;
/// Accounts between which scripts and transactions move amounts; their sum stays 0.
const ACCOUNTS: usize = 8;
/// Requests that a client sends at once, at most.
const PIPELINE_MAX: u64 = 8;
/// Longer than any start takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Load before a kill, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 10..150;
/// One start in so many is killed before it is ready.
const KILLED_STARTS: u64 = 6;
/// Length of a large value: longer than what is copied.
const LARGE_BYTES: usize = 20_000;
/// Acknowledged operations behind the planted loss, at least.
const PLANTED_MIN: u64 = 400;

/// The options of the command line.
pub struct Options {
    points: u64,
    policy: String,
    seed: u64,
    /// A replica is there as well.
    has_replica: bool,
    binary: Option<PathBuf>,
}

impl Options {
    /// Reads them.
    pub fn parse(words: &[String]) -> Result<Options, Failure> {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut options = Options {
            points: 100,
            policy: "always".to_owned(),
            seed: now.as_nanos() as u64,
            has_replica: false,
            binary: None,
        };
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Err(format!("{} needs a value", pair[0]));
            };
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|error| format!("{name} {value}: {error}"))
            };
            match name.as_str() {
                "--points" => options.points = number()?,
                "--seed" => options.seed = number()?,
                "--servers" if ["1", "2"].contains(&value.as_str()) => {
                    options.has_replica = value == "2";
                }
                "--servers" => return Err(format!("--servers {value}: 1 or 2")),
                "--policy" if ["always", "everysec", "no"].contains(&value.as_str()) => {
                    options.policy = value.clone();
                }
                "--policy" => return Err(format!("--policy {value}: always, everysec or no")),
                "--binary" => options.binary = Some(value.into()),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

/// Kills servers as the options say.
pub fn run(options: &Options) -> Result<(), Failure> {
    let program = match &options.binary {
        Some(binary) => binary
            .canonicalize()
            .map_err(|error| format!("{}: {error}", binary.display()))?,
        None => release_binary()?,
    };
    if options.has_replica {
        return pair::run(options, &program);
    }
    let folder = Folder::new().map_err(|error| format!("a folder: {error}"))?;
    let mut trial = Trial {
        program,
        policy: options.policy.clone(),
        folder: &folder.0,
        random: Random(options.seed),
        bases: [[0; KINDS]; CLIENTS],
        pops: Pops::default(),
        growth: 100,
        figures: Figures::default(),
    };
    println!(
        "crash: {} points, appendfsync {}, seed {}",
        options.points, options.policy, options.seed
    );
    let began = Instant::now();
    let done = (1..=options.points).try_for_each(|point| {
        let outcome = trial
            .point(Plant::None)
            .map_err(|why| format!("point {point}: {why}"))?;
        match outcome.lost > 0 && trial.policy == "always" {
            true => Err(format!(
                "point {point}: {} acknowledged operations are lost",
                outcome.lost
            )),
            false => Ok(()),
        }
    });
    let took_s = began.elapsed().as_secs_f64();
    let done = done.and_then(|()| trial.plant());
    if let Err(why) = done {
        let kept = folder.keep();
        return Err(format!(
            "crash: seed {}: {why}\nthe files are in {}",
            options.seed,
            kept.display()
        ));
    }
    let Figures {
        acknowledged,
        outcome,
        cut_tails,
        killed_starts,
    } = trial.figures;
    println!(
        "crash: {} points in {took_s:.1} s, {:.2} a second; {acknowledged} operations acknowledged, {} of them lost; {} more were there; \
         {cut_tails} tails cut at the start, {killed_starts} starts killed; a planted loss was found",
        options.points,
        options.points as f64 / took_s,
        outcome.lost,
        outcome.unanswered,
    );
    Ok(())
}

/// A temporary folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("redline-crash-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    fn keep(self) -> PathBuf {
        let path = self.0.clone();
        std::mem::forget(self);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }
}

/// A fault that is planted in a point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plant {
    None,
    /// The last file is cut before the restart.
    Loss,
}

#[derive(Default)]
struct Figures {
    acknowledged: u64,
    outcome: Outcome,
    cut_tails: usize,
    killed_starts: u64,
}

struct Trial<'a> {
    program: PathBuf,
    policy: String,
    folder: &'a Path,
    random: Random,
    bases: [Tally; CLIENTS],
    pops: Pops,
    /// Growth at which files are rewritten, in percent.
    growth: u32,
    figures: Figures,
}

/// A server that was started here.
struct Server {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn connect(&self) -> io::Result<Client> {
        Client::connect(([127, 0, 0, 1], self.port).into())
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it has loaded. An error: it has ended, or is never ready.
    fn wait(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                return Err(format!(
                    "the server has ended at its start with {status}:\n{}",
                    self.log()
                ));
            }
            let answer = self.connect().and_then(|mut client| client.call(&["PING"]));
            if answer.is_ok_and(|answer| !answer.is_error()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the server is never ready:\n{}", self.log()));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Trial<'_> {
    fn spawn(&mut self) -> Result<Server, Failure> {
        let failed = |error: io::Error| format!("start of a server: {error}");
        let port = free_port().map_err(failed)?;
        let log = self.folder.join("log");
        let out = File::create(&log).map_err(failed)?;
        let child = Command::new(&self.program)
            .args(["server", "--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--threads", "2", "--save", "", "--appendonly", "yes"])
            .args([
                "--appendfsync",
                &self.policy,
                "--auto-aof-rewrite-min-size",
                "128kb",
            ])
            .args(["--auto-aof-rewrite-percentage", &self.growth.to_string()])
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(failed)?)
            .stderr(out)
            .spawn()
            .map_err(failed)?;
        Ok(Server { child, port, log })
    }

    /// Starts a server; now and then one is killed before it is ready.
    fn start(&mut self) -> Result<Server, Failure> {
        while self.random.below(KILLED_STARTS) == 0 {
            let server = self.spawn()?;
            thread::sleep(Duration::from_millis(self.random.below(30)));
            let log = server.log();
            drop(server);
            self.note_log(&log);
            self.figures.killed_starts += 1;
        }
        // A free port may be taken before the server binds it.
        let mut server = self.spawn()?;
        while let Err(why) = server.wait() {
            if !why.contains("Address already in use") {
                return Err(why);
            }
            server = self.spawn()?;
        }
        self.note_log(&server.log());
        Ok(server)
    }

    fn note_log(&mut self, log: &str) {
        self.figures.cut_tails += log.matches("!!! Truncating the AOF").count();
    }

    /// Runs a load, kills the server, starts it again, and compares.
    fn point(&mut self, plant: Plant) -> Result<Outcome, Failure> {
        let failed = |error: io::Error| format!("a loss cannot be planted: {error}");
        let server = self.start()?;
        let before = last_file(self.folder).map_err(failed)?;
        let histories = self.load(server, plant)?;
        if plant == Plant::Loss {
            cut_last_file(self.folder, before).map_err(failed)?;
        }
        let server = self.start()?;
        let outcome = self.check(&server, &histories)?;
        self.figures.acknowledged += histories
            .iter()
            .map(|history| history.acknowledged as u64)
            .sum::<u64>();
        if plant == Plant::None {
            self.figures.outcome.add(outcome);
        }
        Ok(outcome)
    }

    /// Plants a loss, which must be found.
    fn plant(&mut self) -> Result<(), Failure> {
        // Nothing is rewritten, so that what is cut off is nowhere else.
        self.growth = 0;
        match self.point(Plant::Loss) {
            Ok(outcome) if outcome.lost > 0 => Ok(()),
            Ok(_) => Err("a planted loss was not found".to_owned()),
            Err(why) => Err(format!("behind a planted loss: {why}")),
        }
    }

    /// Has clients write until the server is killed; returns what they have done.
    fn load(&mut self, mut server: Server, plant: Plant) -> Result<Vec<History>, Failure> {
        let failed = |error: io::Error| format!("a client: {error}");
        let (answered, ends) = (AtomicU64::new(0), AtomicBool::new(false));
        let load_ms = self.random.within(LOAD_MS);
        let mut writers = Vec::new();
        for (number, base) in self.bases.into_iter().enumerate() {
            writers.push(Writer {
                client: server.connect().map_err(failed)?,
                number,
                history: History::new(base),
                random: Random(self.random.next()),
            });
        }
        let mut taker = server.connect().map_err(failed)?;
        let mut chores = server.connect().map_err(failed)?;
        let (mut pops, random) = (self.pops, Random(self.random.next()));
        thread::scope(|scope| {
            let writers: Vec<_> = writers
                .into_iter()
                .map(|writer| {
                    let answered = &answered;
                    scope.spawn(move || writer.run(answered))
                })
                .collect();
            let taker = scope.spawn(|| take(&mut taker, &mut pops));
            let chores = scope.spawn(|| {
                if plant == Plant::None {
                    do_chores(&mut chores, random, &ends);
                }
            });
            let deadline = Instant::now() + PATIENCE;
            match plant {
                Plant::None => thread::sleep(Duration::from_millis(load_ms)),
                Plant::Loss => {
                    while answered.load(Ordering::Relaxed) < PLANTED_MIN
                        && Instant::now() < deadline
                    {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            }
            ends.store(true, Ordering::Relaxed);
            let early = server.child.try_wait();
            let log = server.log();
            drop(server);
            if let Ok(Some(status)) = early {
                return Err(format!(
                    "the server has ended under load with {status}:\n{log}"
                ));
            }
            let mut histories = Vec::new();
            let mut fault = taker.join().expect("a client does not panic").err();
            for writer in writers {
                let (history, result) = writer.join().expect("a client does not panic");
                histories.push(history);
                fault = fault.or(result.err());
            }
            chores.join().expect("a client does not panic");
            match fault {
                Some(why) => Err(format!("{why}\n{log}")),
                None => Ok(histories),
            }
        })
        .inspect(|_| self.pops = pops)
    }

    /// Compares the data with what was done, and goes on from there.
    fn check(&mut self, server: &Server, histories: &[History]) -> Result<Outcome, Failure> {
        let failed = |error: io::Error| format!("the check: {error}");
        let mut client = server.connect().map_err(failed)?;
        let mut all = Outcome::default();
        for (number, history) in histories.iter().enumerate() {
            let found =
                tally_of(&mut client, number).map_err(|why| format!("client {number}: {why}"))?;
            let outcome = history
                .check(&found)
                .map_err(|why| format!("client {number}: {why}"))?;
            all.add(outcome);
            self.bases[number] = found;
        }
        let accounts: Vec<String> = (0..ACCOUNTS)
            .map(|number| format!("account:{number}"))
            .collect();
        let amounts = numbers(&mut client, &accounts)?;
        if amounts.iter().sum::<i64>() != 0 {
            return Err(format!("the sum of the accounts is not 0: {amounts:?}"));
        }
        let elements = client
            .call(&["LRANGE", "queue", "0", "-1"])
            .map_err(failed)?;
        let Value::Array(elements) = elements else {
            return Err(format!("LRANGE queue: {elements:?}"));
        };
        let mut queue: Vec<u64> = elements
            .iter()
            .filter_map(as_number)
            .map(|number| number as u64)
            .collect();
        queue.reverse();
        let pushed = self.bases[0][Kind::Push as usize];
        let (outcome, popped) = self
            .pops
            .check(&queue, pushed)
            .map_err(|why| format!("the queue: {why}"))?;
        all.add(outcome);
        self.pops = Pops {
            acknowledged: popped,
            is_asking: false,
        };
        Ok(all)
    }
}

/// Returns the number that a reply is, or with which it begins up to a colon.
fn as_number(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::NullBulk => Some(0),
        value => {
            let text = std::str::from_utf8(value.as_bytes()?).ok()?;
            text.split(':').next()?.parse().ok()
        }
    }
}

/// Returns the numbers of these keys; of one that is not there 0.
fn numbers(client: &mut Client, keys: &[String]) -> Result<Vec<i64>, Failure> {
    let words: Vec<&str> = std::iter::once("MGET")
        .chain(keys.iter().map(String::as_str))
        .collect();
    let reply = client
        .call(&words)
        .map_err(|error| format!("the check: {error}"))?;
    let Value::Array(values) = &reply else {
        return Err(format!("MGET: {reply:?}"));
    };
    let numbers: Option<Vec<i64>> = values.iter().map(as_number).collect();
    numbers.ok_or_else(|| format!("MGET {keys:?}: no numbers: {reply:?}"))
}

/// Reads the tally of a client. The error says which unit is torn.
fn tally_of(client: &mut Client, number: usize) -> Result<Tally, Failure> {
    let names = [
        "register", "count", "a", "script:x", "pushed", "large", "b", "script:y",
    ];
    let keys = names.map(|name| format!("{name}:{number}"));
    let found = numbers(client, &keys)?;
    if found[2] != found[6] {
        return Err(format!(
            "a transaction is torn: {} and {}",
            found[2], found[6]
        ));
    }
    if found[3] != found[7] {
        return Err(format!("a script is torn: {} and {}", found[3], found[7]));
    }
    let large = client
        .call(&["STRLEN", &keys[5]])
        .map_err(|error| format!("the check: {error}"))?;
    let is_whole = as_number(&large).is_some_and(|bytes| bytes == 0 || bytes >= LARGE_BYTES as i64);
    if !is_whole {
        return Err(format!("a large value is torn: {large:?} bytes"));
    }
    let mut tally = [0; KINDS];
    for (count, found) in tally.iter_mut().zip(found) {
        *count = found as u64;
    }
    Ok(tally)
}

/// A client that writes.
struct Writer {
    client: Client,
    number: usize,
    history: History,
    random: Random,
}

const TWINS: &str = "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])";
const TRANSFER: &str =
    "redis.call('DECRBY', KEYS[1], ARGV[1]) return redis.call('INCRBY', KEYS[2], ARGV[1])";

impl Writer {
    /// Writes until the server is gone. An error: a reply that is one.
    fn run(mut self, answered: &AtomicU64) -> (History, Result<(), Failure>) {
        let mut tally = self.history.base;
        let result = loop {
            let mut requests = Vec::new();
            // For each request the number of its replies, and if it is counted.
            let mut awaited = Vec::new();
            for _ in 0..=self.random.below(PIPELINE_MAX) {
                let replies = match self.random.below(7) {
                    6 => self.transfer(&mut requests),
                    kind => self.operation(kind, &mut tally, &mut requests),
                };
                awaited.push(replies);
            }
            if self.client.send(&requests).is_err() {
                break Ok(());
            }
            match self.read(&awaited, answered) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(why) => break Err(why),
            }
        };
        (self.history, result)
    }

    /// Reads replies. False: the server is gone.
    fn read(&mut self, awaited: &[(usize, bool)], answered: &AtomicU64) -> Result<bool, Failure> {
        for (replies, is_counted) in awaited {
            for _ in 0..*replies {
                match self.client.reply() {
                    Ok(Some(reply)) if reply.is_error() => {
                        return Err(format!("client {}: {reply:?}", self.number));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Err(format!("client {} gets no reply", self.number));
                    }
                    Err(_) => return Ok(false),
                }
            }
            if *is_counted {
                self.history.acknowledged += 1;
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(true)
    }

    /// Appends an operation that is counted.
    fn operation(&mut self, kind: u64, tally: &mut Tally, out: &mut Vec<u8>) -> (usize, bool) {
        let kinds = [
            Kind::Register,
            Kind::Count,
            Kind::Transaction,
            Kind::Script,
            Kind::Push,
            Kind::Large,
        ];
        let kind = kinds[kind as usize];
        tally[kind as usize] += 1;
        let count = tally[kind as usize].to_string();
        let key = |name: &str| format!("{name}:{}", self.number);
        let mut add = |words: &[&str]| encode(words, out);
        let replies = match kind {
            Kind::Register => {
                add(&["SET", &key("register"), &count]);
                1
            }
            Kind::Count => {
                add(&["INCR", &key("count")]);
                1
            }
            Kind::Transaction => {
                add(&["MULTI"]);
                add(&["INCR", &key("a")]);
                add(&["INCR", &key("b")]);
                add(&["EXEC"]);
                4
            }
            Kind::Script => {
                add(&["EVAL", TWINS, "2", &key("script:x"), &key("script:y")]);
                1
            }
            Kind::Push => {
                // The first client's elements are waited for by somebody.
                let queue = if self.number == 0 {
                    "queue".to_owned()
                } else {
                    key("queue")
                };
                add(&["MULTI"]);
                add(&["LPUSH", &queue, &count]);
                add(&["LTRIM", &key("queue"), "0", "9"]);
                add(&["INCR", &key("pushed")]);
                add(&["EXEC"]);
                5
            }
            Kind::Large => {
                let value = format!("{count}:{}", "x".repeat(LARGE_BYTES));
                add(&["SET", &key("large"), &value]);
                1
            }
        };
        self.history.sent.push(kind);
        (replies, true)
    }

    /// Appends a move of an amount between two accounts, which all clients do.
    fn transfer(&mut self, out: &mut Vec<u8>) -> (usize, bool) {
        let mut account = || format!("account:{}", self.random.below(ACCOUNTS as u64));
        let (from, to) = (account(), account());
        let amount = self.random.below(100).to_string();
        if self.random.below(2) == 0 {
            encode(&["EVAL", TRANSFER, "2", &from, &to, &amount], out);
            return (1, false);
        }
        encode(&["MULTI"], out);
        encode(&["DECRBY", &from, &amount], out);
        encode(&["INCRBY", &to, &amount], out);
        encode(&["EXEC"], out);
        (4, false)
    }
}

/// Takes elements out of the queue, in the order in which they were put in, until the server is gone.
fn take(client: &mut Client, pops: &mut Pops) -> Result<(), Failure> {
    loop {
        pops.is_asking = true;
        match client.call(&["BRPOP", "queue", "1"]) {
            Ok(Value::NullArray) => pops.is_asking = false,
            Ok(Value::Array(pair)) => {
                let element = pair.get(1).and_then(as_number);
                if element != Some(pops.acknowledged as i64 + 1) {
                    return Err(format!(
                        "behind element {} came {element:?}",
                        pops.acknowledged
                    ));
                }
                pops.acknowledged += 1;
                pops.is_asking = false;
            }
            Ok(other) => return Err(format!("BRPOP: {other:?}")),
            Err(_) => return Ok(()),
        }
    }
}

/// Has files rewritten and saved at random moments.
fn do_chores(client: &mut Client, mut random: Random, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(random.within(2..40)));
        let chore = if random.below(3) == 0 {
            "BGSAVE"
        } else {
            "BGREWRITEAOF"
        };
        // One may be under way already.
        if client.call(&[chore]).is_err() {
            return;
        }
    }
}

/// Returns the last file of commands that is not empty, and its length: a rewrite that had just begun has made an empty one.
fn last_file(folder: &Path) -> io::Result<Option<(PathBuf, u64)>> {
    let mut last: Option<(u64, PathBuf, u64)> = None;
    for entry in fs::read_dir(folder.join("appendonlydir"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let number = name
            .strip_prefix("appendonly.aof.")
            .and_then(|rest| rest.strip_suffix(".incr.aof"))
            .and_then(|number| number.parse::<u64>().ok());
        let Some(number) = number else {
            continue;
        };
        // Files are removed meanwhile.
        let bytes = path.metadata().map_or(0, |facts| facts.len());
        if bytes > 0 && last.as_ref().is_none_or(|(highest, ..)| *highest < number) {
            last = Some((number, path, bytes));
        }
    }
    Ok(last.map(|(_, path, bytes)| (path, bytes)))
}

/// Cuts off the last half of what the last file of commands has got since it was as it was `before`.
fn cut_last_file(folder: &Path, before: Option<(PathBuf, u64)>) -> io::Result<()> {
    let last = last_file(folder)?;
    let (path, bytes) = last.ok_or_else(|| io::Error::other("there is no file"))?;
    let same = before.filter(|(known, _)| *known == path);
    let from = same.map_or(0, |(_, bytes)| bytes);
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len((from + bytes) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = Options::parse(&words("--points 7 --policy everysec --seed 3")).unwrap();
        assert_eq!((options.points, options.seed), (7, 3));
        assert_eq!(options.policy, "everysec");
        assert!(!options.has_replica);
        assert!(Options::parse(&words("--servers 2")).unwrap().has_replica);
        for wrong in [
            "--points",
            "--points x",
            "--policy sometimes",
            "--servers 3",
            "--other 1",
        ] {
            assert!(Options::parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_file_with_commands_is_cut() {
        let folder =
            std::env::temp_dir().join(format!("redline-crash-test-{}", std::process::id()));
        let files = folder.join("appendonlydir");
        fs::create_dir_all(&files).unwrap();
        let file = |name: &str| files.join(format!("appendonly.aof.{name}"));
        for name in ["9.incr.aof", "10.incr.aof", "11.base.rdb", "manifest"] {
            fs::write(file(name), [0; 10]).unwrap();
        }
        fs::write(file("11.incr.aof"), "").unwrap();
        let before = last_file(&folder).unwrap();
        assert_eq!(before, Some((file("10.incr.aof"), 10)));
        fs::write(file("10.incr.aof"), [0; 20]).unwrap();
        cut_last_file(&folder, before).unwrap();
        let lengths = ["9.incr.aof", "10.incr.aof", "11.base.rdb", "manifest"]
            .map(|name| file(name).metadata().unwrap().len());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(lengths, [10, 15, 10, 10]);
    }
}
