//! The streams by which two servers tell replicas and files of their effects, ours and that of a real Redis, compared
//! command by command.
//!
//! After each call a write of a marker ends the part of both streams that is due to it; differences between these parts are
//! grouped by kind. Rounds begin without data, and end early where the two servers hold different data. A third server,
//! the *mirror*, is sent our stream as it stands: it has to take every command of it, and to hold the same data as ours
//! at the end of a round.
//!
//! Must not know how servers are started.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use redline_resp::reply_decoder::Value;

use crate::client::Client;
use crate::differences;
use crate::generate::{Call, Generator, innermost};
use crate::rules::rule;

mod accepted;
mod mirror;
mod scenes;
mod side;
mod source;
mod told;

pub use accepted::{DELIBERATE, DELIBERATE_MAX};
pub use source::Source;

use accepted::Case;
use mirror::Mirror;
use scenes::Step;
use side::Side;
use told::{Hunk, Told, differences as differing, grouped_alike};

/// Number of calls in a round.
const ROUND_CALLS: usize = 400;
/// One batch in so many is a scene, and one restores a payload.
const BATCH_KINDS: usize = 10;
/// Largest number of faults of the mirror that are reported.
const FAULTS_MAX: usize = 20;

/// The options of a comparison.
#[derive(Debug)]
pub struct Options {
    /// Approximate number of calls.
    pub calls: usize,
    /// Seed of the generator.
    pub seed: u64,
}

/// The servers of a comparison.
#[derive(Debug)]
pub struct Servers {
    /// Our server, and its stream.
    pub ours: (SocketAddr, Source),
    /// A real Redis, and its stream.
    pub theirs: (SocketAddr, Source),
    /// A real Redis without data, which is sent our stream.
    pub mirror: SocketAddr,
}

/// The servers of a replay.
#[derive(Debug)]
pub struct ReplayServers {
    /// Our server, and its stream.
    pub ours: (SocketAddr, Source),
    /// A Redis of the version whose calls are sent, which is sent our stream.
    pub mirror: SocketAddr,
    /// A Redis of our version, into which the mirror's data is copied so that both have the same digest.
    pub newer: SocketAddr,
}

/// A kind of difference.
#[derive(Debug, Default)]
pub struct Kind {
    /// Number of such differences.
    pub count: usize,
    /// The first of them.
    pub example: String,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of calls.
    pub calls: usize,
    /// Number of commands in our stream.
    pub told: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Differences on no list, by kind.
    pub kinds: BTreeMap<String, Kind>,
    /// Number of uses of each deliberate difference.
    pub explained: BTreeMap<&'static str, usize>,
    /// Faults of our stream that the mirror has shown.
    pub faults: Vec<String>,
}

/// Compares the streams of two servers.
pub fn run(servers: Servers, options: &Options) -> io::Result<Report> {
    let mut report = Report::default();
    let mut ours = Side::new(servers.ours.0, servers.ours.1)?;
    let mut theirs = Side::new(servers.theirs.0, servers.theirs.1)?;
    let mut mirror = Mirror::connect(servers.mirror)?;
    let mut scenes = 0..scenes::count();
    let mut seed = options.seed;
    while report.calls < options.calls || scenes.start < scenes.end {
        let round = Round {
            generator: Generator::new(seed),
            ours: &mut ours,
            theirs: Some(&mut theirs),
            calls: Vec::new(),
        };
        round.run(&mut scenes, &mut report)?;
        mirror.follow(&mut ours, None, &mut report.faults)?;
        report.rounds += 1;
        seed += 1;
        if report.faults.len() >= FAULTS_MAX {
            break;
        }
    }
    Ok(report)
}

/// Sends our stream of calls that a version of Redis has to a server of that version.
pub fn replay(
    servers: ReplayServers,
    version: &'static str,
    options: &Options,
) -> io::Result<Report> {
    let mut report = Report::default();
    let mut ours = Side::new(servers.ours.0, servers.ours.1)?;
    let mut mirror = Mirror::connect(servers.mirror)?;
    let mut newer = Client::connect(servers.newer)?;
    let mut seed = options.seed;
    while report.calls < options.calls && report.faults.len() < FAULTS_MAX {
        let round = Round {
            generator: Generator::of_version(seed, version),
            ours: &mut ours,
            theirs: None,
            calls: Vec::new(),
        };
        round.run(&mut (0..0), &mut report)?;
        mirror.follow(&mut ours, Some(&mut newer), &mut report.faults)?;
        report.rounds += 1;
        seed += 1;
    }
    Ok(report)
}

/// Calls to servers that begin without data.
struct Round<'a> {
    generator: Generator,
    ours: &'a mut Side,
    /// None in a replay, which needs our stream alone.
    theirs: Option<&'a mut Side>,
    /// The calls since the streams were divided last, with the replies of both: what may explain a difference.
    calls: Vec<(Call, Value, Value)>,
}

/// State of a round after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// Both hold the same.
    Alike,
    /// They hold different data, so that the round ends.
    Parted,
}

impl Round<'_> {
    fn run(mut self, scenes: &mut std::ops::Range<usize>, report: &mut Report) -> io::Result<()> {
        self.ours.clear()?;
        if let Some(theirs) = &mut self.theirs {
            theirs.clear()?;
        }
        let mut done = 0;
        while done < ROUND_CALLS {
            let steps = match self.generator.below(BATCH_KINDS) {
                0 if scenes.start < scenes.end => {
                    self.ours.reconnect()?;
                    if let Some(theirs) = &mut self.theirs {
                        theirs.reconnect()?;
                    }
                    scenes.next().map(scenes::scene).unwrap_or_default()
                }
                1 => self.payload()?,
                _ => {
                    let compares = self.theirs.is_some();
                    let client = self.generator.below(scenes::CLIENTS);
                    let calls = self.generator.batch().into_iter();
                    calls
                        .filter(is_comparable)
                        .filter(|call| compares || !is_newer_operation(call))
                        .map(|call| (Step::Call(client, call), true))
                        .collect()
                }
            };
            for (step, divided) in steps {
                done += 1;
                report.calls += 1;
                if self.step(&step, divided, report)? == Data::Parted {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns a call that restores a payload which Redis has made: of a key, or of all libraries.
    fn payload(&mut self) -> io::Result<Vec<(Step, bool)>> {
        const OPTIONS: &[&[&str]] = &[
            &["0", "REPLACE"],
            &["0"],
            &["1000000", "REPLACE"],
            &["4000000000000", "ABSTTL", "REPLACE"],
            &["1", "REPLACE", "ABSTTL"],
            &["1000000", "REPLACE", "IDLETIME", "5"],
        ];
        let Some(theirs) = &mut self.theirs else {
            return Ok(Vec::new());
        };
        let word = |text: &str| text.as_bytes().to_vec();
        let call = if self.generator.below(4) == 0 {
            let policy = *self.generator.one_of(&["FLUSH", "REPLACE", "APPEND"]);
            let reply = theirs.control().call(&["FUNCTION", "DUMP"])?;
            let payload = reply.as_bytes().map(<[u8]>::to_vec);
            payload.map(|bytes| vec![word("FUNCTION"), word("RESTORE"), bytes, word(policy)])
        } else {
            let [from, to] = self.generator.two_keys();
            let options = *self.generator.one_of(OPTIONS);
            let reply = theirs.control().call(&["DUMP", from])?;
            let payload = reply.as_bytes().map(<[u8]>::to_vec);
            payload.map(|bytes| {
                let mut call = vec![word("RESTORE"), word(to), word(options[0]), bytes];
                call.extend(options[1..].iter().map(|option| word(option)));
                call
            })
        };
        Ok(call
            .map(|call| (Step::Call(0, call), true))
            .into_iter()
            .collect())
    }

    /// Takes a step on both sides, and compares what they tell of it.
    fn step(&mut self, step: &Step, divided: bool, report: &mut Report) -> io::Result<Data> {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{step:?}: {error}"));
        let waiters = self.ours.has_waiters();
        let our = self.ours.take(step).map_err(failed)?;
        let their = match &mut self.theirs {
            Some(theirs) => theirs.take(step).map_err(failed)?,
            None => our.clone(),
        };
        if let Step::Call(client, call) = step {
            let queued = self.ours.queued(*client, call, &our);
            match (queued, &our, &their) {
                (Some(queued), Value::Array(ours), Value::Array(theirs))
                    if queued.len() == ours.len() && ours.len() == theirs.len() =>
                {
                    let replies = ours.iter().cloned().zip(theirs.iter().cloned());
                    let all = queued.into_iter().zip(replies);
                    self.calls.extend(all.map(|(call, (a, b))| (call, a, b)));
                }
                _ => self.calls.push((call.clone(), our, their)),
            }
        } else if let Step::Wait(_, call) | Step::Gone(call) = step {
            self.calls.push((call.clone(), our, their));
        }
        if !divided {
            return Ok(Data::Alike);
        }
        let mut ours = self.ours.told().map_err(failed)?;
        report.told += ours.len();
        let calls = std::mem::take(&mut self.calls);
        let Some(side) = &mut self.theirs else {
            return Ok(Data::Alike);
        };
        let mut theirs = side.told().map_err(failed)?;
        if !self.ours.has_messages() {
            for told in [&mut ours, &mut theirs] {
                told.retain(|told| !told.is("PUBLISH") && !told.is("SPUBLISH"));
            }
        }
        self.compare(&calls, waiters, [ours, theirs], report)
    }

    fn compare(
        &mut self,
        calls: &[(Call, Value, Value)],
        waiters: bool,
        [ours, theirs]: [Vec<Told>; 2],
        report: &mut Report,
    ) -> io::Result<Data> {
        let inner: Vec<Call> = calls
            .iter()
            .map(|(call, _, _)| innermost(call).to_vec())
            .collect();
        let lots = inner.iter().any(|call| draws_lots(call));
        let mut hunks = differing(&ours, &theirs, lots);
        let grouping = hunks.is_empty();
        if grouping {
            if grouped_alike(&ours, &theirs) {
                return Ok(Data::Alike);
            }
            hunks.push(Hunk { ours, theirs });
        }
        // What replies explain, the comparison of replies is about.
        let parted = calls.iter().any(|(call, our, their)| {
            let call = innermost(call);
            !rule(call).agree(our, their)
                && differences::explain(differences::DIFFERENCES, call, our, their).is_some()
        });
        if parted {
            *report.explained.entry("(different replies)").or_default() += 1;
            return Ok(Data::Parted);
        }
        let mut data = Data::Alike;
        for hunk in &hunks {
            let case = Case {
                hunk,
                grouping,
                waiters,
            };
            match accepted::explain(case) {
                Some(entry) => *report.explained.entry(entry.name).or_default() += 1,
                None => report.note(kind_of(&inner, case), &inner, hunk),
            }
        }
        if let Some(side) = &mut self.theirs
            && self.ours.digest()? != side.digest()?
        {
            data = Data::Parted;
        }
        Ok(data)
    }
}

impl Report {
    fn note(&mut self, kind: String, calls: &[Call], hunk: &Hunk) {
        let kind = self.kinds.entry(kind).or_default();
        kind.count += 1;
        if kind.count == 1 {
            let called: Vec<String> = calls.iter().map(|call| shown(call)).collect();
            kind.example = format!(
                "after  {}\n    ours   {}\n    theirs {}",
                called.join("\n           "),
                listed(&hunk.ours),
                listed(&hunk.theirs)
            );
        }
    }
}

/// Returns the kind of a difference: what was called, and the names of what was told.
fn kind_of(calls: &[Call], case: Case<'_>) -> String {
    if case.grouping {
        return format!("{}: other transactions", names(calls));
    }
    let hunk = case.hunk;
    let of = |told: &[Told]| match told {
        [] => "nothing".to_owned(),
        told => {
            let mut names: Vec<String> = told.iter().map(Told::name).collect();
            names.dedup();
            names.join(", ")
        }
    };
    let names = names(calls);
    format!(
        "{names}: ours {}, theirs {}",
        of(&hunk.ours),
        of(&hunk.theirs)
    )
}

/// Returns the name of the call, unless there were several.
fn names(calls: &[Call]) -> String {
    match calls {
        [call] => String::from_utf8_lossy(&call[0]).to_ascii_lowercase(),
        _ => "several calls".to_owned(),
    }
}

fn listed(told: &[Told]) -> String {
    match told {
        [] => "(nothing)".to_owned(),
        told => {
            let lines = told.iter().map(|told| {
                let group = if told.group.is_some() {
                    " in MULTI"
                } else {
                    ""
                };
                format!("[{}{group}] {}", told.db, shown(&told.words))
            });
            lines.collect::<Vec<_>>().join("\n           ")
        }
    }
}

fn shown(words: &[Vec<u8>]) -> String {
    let words = words.iter().map(|word| match word.is_empty() {
        true => "\"\"".to_owned(),
        false => word.escape_ascii().to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns true if which elements the call takes is drawn by lot.
fn draws_lots(call: &[Vec<u8>]) -> bool {
    call.iter().any(|word| {
        let word = word.to_ascii_lowercase();
        word.windows(4).any(|part| part == b"spop")
    })
}

/// Returns false for calls that change data without telling anybody, or the stream itself.
fn is_comparable(call: &Call) -> bool {
    let inner = innermost(call);
    let is = |at: usize, word: &str| {
        inner
            .get(at)
            .is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()))
    };
    let untold = is(0, "debug") && (is(1, "populate") || is(1, "change-repl-id"));
    let switches = is(0, "config") && inner.iter().any(|word| word == b"appendonly");
    !untold && !switches
}

/// Returns true for operations of BITOP that came with Redis 8.2: the grammar does not say so.
fn is_newer_operation(call: &Call) -> bool {
    let newer = ["DIFF", "DIFF1", "ANDOR", "ONE"];
    let is_newer = |word: &Vec<u8>| {
        let mut newer = newer.iter();
        newer.any(|operation| word.eq_ignore_ascii_case(operation.as_bytes()))
    };
    let inner = innermost(call);
    inner[0].eq_ignore_ascii_case(b"bitop") && inner.get(1).is_some_and(is_newer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_nobody_is_told_of_are_left_out_inside_of_scripts_too() {
        let call = |line: &str| -> Call {
            let words = line.split(' ').map(|word| word.as_bytes().to_vec());
            words.collect()
        };
        assert!(is_comparable(&call("DEBUG DIGEST")));
        assert!(!is_comparable(&call("debug populate 3")));
        assert!(!is_comparable(&call("CONFIG SET save x appendonly no")));
        let mut scripted = call("EVAL script 0");
        scripted[1] = crate::generate::CALL_IN_SCRIPT.as_bytes().to_vec();
        scripted.extend(call("BITOP diff1 a b c"));
        assert!(is_newer_operation(&scripted));
        assert!(!is_newer_operation(&call("BITOP AND a b")));
        assert!(draws_lots(&call("spop s")) && !draws_lots(&call("SADD s a")));
    }
}
