//! `cargo xtask cost`: the cost of every data command beside a real Redis, in user and system CPU time of the server, on
//! small keys and on large ones. A benchmark, so no part of the tests. The calls are in [`cases`].

mod cases;

use std::fs;
use std::time::{Duration, Instant};

use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::compat::{self, Setting, stop};
use crate::run::Failure;
use cases::{Kind, ROWS};

/// Largest ratio of our CPU time to Redis's for any command.
pub const RATIO_MAX: f64 = 0.9;
/// Requests that a connection sends before it reads the replies.
const PIPELINE: usize = 16;
/// Connections with requests in the server at a time, so that it seldom sleeps.
const CONNECTIONS: usize = 50;
/// Measurements of each server, alternating.
const ROUNDS: usize = 5;
/// Requests of a measurement by default.
const REQUESTS: usize = 20_000;
/// Time limit of a measurement of slow calls.
const MEASUREMENT_TIME_MAX: Duration = Duration::from_millis(100);
/// Bytes of different requests that are prepared for a connection.
const PREPARED_BYTES_MAX: usize = 1 << 20;
/// Batches of different requests that are prepared.
const PREPARED_BATCHES_MAX: usize = 64;
/// Not a divisor of any size, and coprime with all of them.
const STRIDE: usize = 7_919;

/// Options of the command line.
#[derive(Debug)]
pub struct Options {
    /// First words of the selected calls, in lower case; all without any.
    only: Vec<String>,
    requests: usize,
    /// Options that concern the programs.
    programs: compat::Options,
}

impl Options {
    /// Parses the arguments after `cost`.
    pub fn parse(words: &[String]) -> Result<Options, Failure> {
        let (mut only, mut requests, mut programs) = (Vec::new(), REQUESTS, Vec::new());
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name == "--only" => {
                    only.extend(value.split(',').map(str::to_ascii_lowercase));
                }
                [name, value] if name == "--requests" => {
                    requests = value.parse().map_err(|_| format!("{value} is no number"))?;
                }
                [name, _] if name == "--binary" => programs.extend_from_slice(pair),
                _ => return Err(crate::usage()),
            }
        }
        Ok(Options {
            only,
            requests,
            programs: compat::Options::parse(&programs)?,
        })
    }

    fn wants(&self, calls: &str) -> bool {
        let name = calls.split([' ', ';']).next().unwrap_or_default();
        self.only.is_empty() || self.only.iter().any(|only| name.eq_ignore_ascii_case(only))
    }
}

/// Calls on keys of one size.
#[derive(Clone, Copy)]
struct Case {
    calls: &'static str,
    kind: Kind,
    size: usize,
}

/// Result of a case: CPU time per request, and the ratio.
struct Measured {
    case: Case,
    ours_us: f64,
    theirs_us: f64,
    ratio: f64,
}

/// Measures all cases and prints the table.
pub fn run(options: &Options) -> Result<(), Failure> {
    let setting = Setting::installed(&options.programs)?;
    let (mut table, mut failures) = (Vec::new(), Vec::new());
    for case in wanted(options) {
        match measure(&setting, case, options.requests) {
            Ok(measured) => {
                eprintln!("{}", measured.line());
                table.push(measured);
            }
            Err(failure) => {
                failures.push(format!("{}, {}: {failure}", case.calls, case.key()));
            }
        }
    }
    table.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    println!("| calls | key | ours, us | Redis, us | ratio |\n|---|---|---|---|---|");
    table
        .iter()
        .for_each(|measured| println!("{}", measured.line()));
    let ratios = table.iter().map(|measured| measured.ratio).collect();
    let dear = table.iter().filter(|measured| measured.ratio > RATIO_MAX);
    let dear = dear.count();
    println!("\n{} cases, median {:.2}", table.len(), median(ratios));
    if dear > 0 {
        failures.push(format!("{dear} cost more than {RATIO_MAX} of Redis's"));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n")),
    }
}

fn wanted(options: &Options) -> impl Iterator<Item = Case> {
    let rows = ROWS.iter().flat_map(|row| {
        let calls = row.calls.iter();
        calls.flat_map(|calls| row.on.iter().map(move |kind| (*calls, *kind)))
    });
    let rows = rows.filter(|(calls, _)| options.wants(calls));
    rows.flat_map(|(calls, kind)| {
        let sizes = kind.sizes().iter();
        sizes.map(move |&size| Case { calls, kind, size })
    })
}

/// Measures both servers, started anew for each case, alternating.
fn measure(setting: &Setting, case: Case, requests: usize) -> Result<Measured, Failure> {
    let mut ours = Side::start(setting.start_redline(1, &[])?, case)?;
    let mut theirs = Side::start(setting.start_redis(&[])?, case)?;
    let (mut mine, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (ours_us, theirs_us) = (ours.cost_us(requests)?, theirs.cost_us(requests)?);
        mine.push(ours_us);
        other.push(theirs_us);
        ratios.push(ours_us / theirs_us);
    }
    stop(ours.server)?;
    Ok(Measured {
        case,
        ours_us: median(mine),
        theirs_us: median(other),
        ratio: median(ratios),
    })
}

impl Case {
    fn key(&self) -> String {
        self.kind.label(self.size)
    }

    /// Returns the words of a call, the `turn`-th of its kind.
    fn words(&self, call: &str, turn: usize, payload: &[u8]) -> Vec<Vec<u8>> {
        let words = call.split_whitespace().map(|word| {
            if word == "{dump}" {
                return payload.to_vec();
            }
            let mut text = word.to_owned();
            for (name, value) in [
                ("{j}", turn * STRIDE % self.size),
                ("{u}", turn),
                ("{n}", self.size),
                ("{h}", self.size / 2),
            ] {
                if text.contains(name) {
                    text = text.replace(name, &value.to_string());
                }
            }
            if text.contains("{v}") {
                text = text.replace("{v}", &letters(self.size));
            }
            text.into_bytes()
        });
        words.collect()
    }

    /// Returns the batches of a connection: different requests, up to the limits.
    fn batches(&self, connection: usize, payload: &[u8]) -> Vec<Vec<u8>> {
        let calls: Vec<&str> = self.calls.split(';').collect();
        let turns = PIPELINE / calls.len();
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while batches.is_empty()
            || batches.len() < PREPARED_BATCHES_MAX && bytes < PREPARED_BYTES_MAX
        {
            let mut batch = Vec::new();
            let first = (batches.len() * CONNECTIONS + connection) * turns;
            for turn in first..first + turns {
                for call in &calls {
                    encode(&self.words(call, turn, payload), &mut batch);
                }
            }
            bytes += batch.len();
            batches.push(batch);
        }
        batches
    }
}

impl Measured {
    fn line(&self) -> String {
        let Measured {
            case,
            ours_us,
            theirs_us,
            ratio,
        } = self;
        format!(
            "| {} | {} | {ours_us:.3} | {theirs_us:.3} | {ratio:.2} |",
            case.calls,
            case.key()
        )
    }
}

/// Returns text of this many bytes, of which no part repeats soon.
fn letters(len: usize) -> String {
    let mut state = 1u32;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 16) as u8 % 26)
    });
    letters.take(len).collect()
}

/// A server with the keys of a case, and its requests.
struct Side {
    server: ServerProcess,
    connections: Vec<(Client, Vec<Vec<u8>>)>,
    calls_per_batch: u64,
}

impl Side {
    fn start(server: ServerProcess, case: Case) -> Result<Side, Failure> {
        let failed = |error: std::io::Error| error.to_string();
        let mut client = Client::connect(server.address()).map_err(failed)?;
        for call in case.kind.made_by(case.size) {
            let reply = client.call(&case.words(&call, 0, b"")).map_err(failed)?;
            if reply.is_error() {
                return Err(format!("{:.100}: {reply:?}", call));
            }
        }
        let payload = client.call(&["DUMP", "a"]).map_err(failed)?;
        let payload = payload.as_bytes().unwrap_or_default().to_vec();
        let connections = (0..CONNECTIONS).map(|connection| {
            let client = Client::connect(server.address()).map_err(failed)?;
            Ok((client, case.batches(connection, &payload)))
        });
        let calls = case.calls.split(';').count();
        let mut side = Side {
            connections: connections.collect::<Result<_, Failure>>()?,
            calls_per_batch: (PIPELINE / calls * calls) as u64,
            server,
        };
        // One-time work, such as a new encoding, is not a call's cost.
        side.send(0)?;
        Ok(side)
    }

    /// Returns the user and system CPU time of a request.
    fn cost_us(&mut self, requests: usize) -> Result<f64, Failure> {
        let (before, start) = (cpu_ns(self.server.pid())?, Instant::now());
        let (mut sent, mut turn) = (0, 0);
        while sent < requests as u64 && start.elapsed() < MEASUREMENT_TIME_MAX {
            sent += self.send(turn)?;
            turn += 1;
        }
        let used = cpu_ns(self.server.pid())? - before;
        Ok(used as f64 / 1e3 / sent as f64)
    }

    /// Sends a batch on each connection; returns the number of requests.
    fn send(&mut self, turn: usize) -> Result<u64, Failure> {
        let failed = |error: std::io::Error| error.to_string();
        for (client, batches) in &mut self.connections {
            client
                .send(&batches[turn % batches.len()])
                .map_err(failed)?;
        }
        for (client, _) in &mut self.connections {
            if let Some(error) = client.skip(self.calls_per_batch).map_err(failed)? {
                return Err(String::from_utf8_lossy(&error).into_owned());
            }
        }
        Ok(self.calls_per_batch * self.connections.len() as u64)
    }
}

/// Returns the time that all threads of a process have run, user and system time together: the kernel's exact count, not
/// that of its ticks.
fn cpu_ns(pid: u32) -> Result<u64, Failure> {
    let folder = format!("/proc/{pid}/task");
    let failed = |error: std::io::Error| format!("{folder}: {error}");
    let mut sum = 0;
    for task in fs::read_dir(&folder).map_err(failed)? {
        let file = task.map_err(failed)?.path().join("schedstat");
        let text = fs::read_to_string(&file).map_err(failed)?;
        let ran = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
        sum += ran.ok_or_else(|| format!("{}: {text}", file.display()))?;
    }
    Ok(sum)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}
