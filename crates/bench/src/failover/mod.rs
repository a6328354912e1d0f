//! `redline bench failover`: numbered values under load while a primary fails, and their fate.
//!
//! Knows no socket: a run (`load::execute`) follows the data, runs the user's command, and keeps the acknowledged writes,
//! which are then read back.
//!
//! # Definitions
//!
//! Every write has its own key, whose value is its number. A write is *acknowledged* when its reply has arrived, and
//! *gone* if it was acknowledged and its key has no value, or another, at the end. A shard is *without service* after an
//! acknowledgement if none follows for ten times the expected interval, and for a tenth of a second at least. A shard is
//! the set of slots that one node owned at the start.

pub mod arguments;
mod repeated;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use redline_cluster::slot_of;
use redline_net::{Address, clock};
use redline_resp::Value;
use serde::{Deserialize, Serialize};

use crate::load::arguments::RunArguments;
use crate::load::cluster::follow::Counts;
use crate::load::cluster::map::Map;
use crate::load::cluster::source::{Reads, Source};
use crate::load::execute::{Finished, Prepared};
use crate::load::failure::{Failure, said};
use crate::load::plan::{Incident, RunPlan};
use crate::load::result::RunResult;
use crate::load::watch::Happened;
use crate::load::workload::template::Protocol;
use crate::output::html;
use crate::output::{Written, can_be_written, write, write_json};
use arguments::FailoverArguments;

/// Changes when a field changes its meaning or is removed; new fields may be added without.
pub const FORMAT: u32 = 1;
/// Seconds until keys expire.
const EXPIRE_S: u32 = 3600;
/// Number of keys that are read back at a time: few enough for one write.
const READ_KEYS: usize = 64;
/// Largest number of writes in flight of one client.
const UNDER_WAY_MAX: usize = 1_000_000;
/// Time-out of reading back without progress.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// Shortest time without acknowledgements that is an outage.
const OUTAGE_S_MIN: f64 = 0.1;
/// Nor is a shorter time than that of this many expected writes.
const OUTAGE_WRITES: f64 = 10.0;
/// Largest number of ranges that are listed.
const RANGES_MAX: usize = 1000;

/// The result of `redline bench failover`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailoverResult {
    /// [`FORMAT`].
    pub format: u32,
    /// The command that was run.
    pub command: String,
    /// Start, end and exit status of the user's command.
    pub happened: Happened,
    /// Times in which shards were without service.
    pub outages: Vec<Outage>,
    /// The longest time of each shard between two acknowledgements, also if it is no outage.
    #[serde(default)]
    pub longest_pauses: Vec<Outage>,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Of these, those whose value was there at the end.
    pub found: u64,
    /// Of these, those whose value was not.
    pub gone: u64,
    /// Of these, those that could not be read back.
    #[serde(default)]
    pub unread: u64,
    /// The numbers of those that are gone, as ranges: the first and the last of each.
    pub gone_numbers: Vec<(u64, u64)>,
    /// Prefix of the keys; their number follows.
    pub key_prefix: String,
    /// Number of errors, by kind: the first word of an error, `lost` and `timeout` of connections, `connect` of attempts
    /// to make one.
    pub trouble: BTreeMap<String, u64>,
    /// Errors, by kind, in each piece of the series; without the warm-up.
    pub trouble_over_time: Vec<Trouble>,
    /// Latencies, costs, and the series with the CPUs of every node.
    pub run: RunResult,
}

/// A time in which a shard acknowledged nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// The node that owned the shard at the start.
    pub node: String,
    /// Its start, from the start of the run.
    pub from_s: f64,
    /// Its length.
    pub seconds: f64,
}

/// Errors in a piece of the series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// Its start.
    pub at_s: f64,
    /// Number of errors, by kind.
    pub kinds: BTreeMap<String, u64>,
}

/// Runs the sub-command.
pub fn run(
    arguments: &FailoverArguments,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<(), Failure> {
    let prefix = match &arguments.prefix {
        Some(prefix) => prefix.clone(),
        None => format!("failover:{}:", clock::wall_ms()),
    };
    let files = [&arguments.acks, &arguments.json, &arguments.html];
    if arguments.repeat > 1 {
        return repeated::run(arguments, &prefix, stdout, stderr);
    }
    let plan = plan(arguments, &prefix).map_err(Failure::Local)?;
    can_be_written(files.map(Option::as_deref))?;
    let mut written = Written::default();
    let prepared = Prepared::new(&plan, None)?;
    let round = round(arguments, &plan, prefix, prepared, stdout, stderr)?;
    let result = &round.result;
    written.and(round.acks);
    let is_taken = |path: &std::path::PathBuf| path.as_os_str() == "-";
    if !files.into_iter().flatten().any(is_taken) {
        written.and(write(Path::new("-"), &text::text(result), stdout));
    }
    if let Some(path) = &arguments.json {
        written.and(write_json(path, result, stdout));
    }
    if let Some(path) = &arguments.html {
        let named = [(result.command.clone(), result.run.clone())];
        let page = html::page(&named).map_err(|error| Failure::Local(format!("charts: {error}")));
        written.and(page.and_then(|page| write(path, &page, stdout)));
    }
    written.end(round.failure)
}

/// A load with one failure in it, and what became of its writes.
struct Round {
    result: FailoverResult,
    /// Result of writing the file of acknowledgements.
    acks: Result<(), Failure>,
    failure: Option<Failure>,
}

/// Runs a round.
fn round(
    arguments: &FailoverArguments,
    plan: &RunPlan,
    prefix: String,
    mut prepared: Prepared,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<Round, Failure> {
    let map = prepared.known_map();
    let finished = prepared.run(plan)?;
    let acks = &finished.counts.acks;
    let mut acks_written = Ok(());
    if let Some(path) = &arguments.acks {
        let mut log = String::new();
        for (number, at) in acks {
            let _ = writeln!(log, "{number} {:.6}", at.as_secs_f64());
        }
        acks_written = write(path, &log, stdout);
    }
    if !matches!(finished.failure, Some(Failure::Interrupted)) {
        // Progress is informative only; errors of a closed stream are ignored.
        let _ = writeln!(stderr, "reading back {} acknowledged writes", acks.len());
    }
    let mut read = read_back(&mut prepared, &prefix, acks);
    let Finished {
        mut result,
        failure,
        counts,
        happened,
        ..
    } = finished;
    let status = happened
        .as_ref()
        .and_then(|happened| happened.status.as_deref());
    if let Some(status) = status.filter(|status| *status != "exit status: 0") {
        result.warnings.push(format!(
            "the command of --run failed ({status}): perhaps nothing was made to fail."
        ));
    }
    let primaries = prepared.who_is_primary();
    if primaries.len() > 1 {
        let names: Vec<String> = primaries.iter().map(Address::to_string).collect();
        result.warnings.push(format!(
            "{} all say that they are the primary: each may have acknowledged writes that the others never saw, and what \
             is read back is what {} has.",
            names.join(", "),
            names[0]
        ));
    }
    let (of_cluster, duration_s) = (prepared.is_cluster(), result.elapsed_s);
    let pauses = pauses(&counts, &map, &prefix, of_cluster, duration_s);
    let outages = outages(&pauses, map.primaries().len(), arguments.rps);
    let gone_numbers = ranges(&mut read.gone);
    let result = FailoverResult {
        format: FORMAT,
        command: arguments.run.clone(),
        happened: happened.unwrap_or_default(),
        outages,
        longest_pauses: longest(pauses),
        acknowledged: counts.acks.len() as u64,
        found: (counts.acks.len() - read.gone.len() - read.unread.len()) as u64,
        gone: read.gone.len() as u64,
        unread: read.unread.len() as u64,
        gone_numbers,
        key_prefix: prefix,
        trouble: trouble(&counts),
        trouble_over_time: trouble_over_time(&counts, arguments.interval),
        run: result,
    };
    Ok(Round {
        result,
        acks: acks_written,
        failure: failure.or(read.failure),
    })
}

/// Returns the plan of the run: an open loop of one command, which counts errors and continues.
fn plan(arguments: &FailoverArguments, prefix: &str) -> Result<RunPlan, String> {
    if prefix.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '{' | '}')) {
        return Err("--prefix: no spaces, quotes or braces.".into());
    }
    if arguments.at >= arguments.duration {
        return Err("--at is less than --duration.".into());
    }
    let template = format!("SETEX {prefix}{{id=insert:1}} {EXPIRE_S} {{id}}");
    let words = ["--on-error", "count", "--command", template.as_str()];
    let mut run = RunArguments::parse_words(words).map_err(|error| error.to_string())?;
    run.server = arguments.server.clone();
    run.manner.rps = Some(arguments.rps);
    run.manner.connections = arguments.connections;
    // Writes to one shard do not wait for those to another without service.
    run.manner.pipeline = UNDER_WAY_MAX;
    run.manner.duration = Some(arguments.duration);
    run.manner.timeout = Some(arguments.timeout);
    run.output.interval = arguments.interval;
    let mut plan = run.plan()?;
    if plan.target.reads != Reads::Primaries {
        return Err("--reads has no effect: all that is sent are writes.".into());
    }
    if plan.target.embedded {
        return Err("--embedded: a server in this process is not made to fail.".into());
    }
    if plan.target.protocol != Protocol::Resp {
        return Err("--protocol: only Redis has primaries that fail over.".into());
    }
    if plan.target.source.is_none() {
        let places = plan.target.servers.iter();
        plan.target.source = Some(Source::Roles {
            at: places.map(|server| server.address.clone()).collect(),
        });
    }
    plan.incident = Some(Incident {
        command: arguments.run.clone(),
        at: arguments.at,
    });
    Ok(plan)
}

/// Acknowledged writes whose value was not found.
#[derive(Default)]
struct ReadBack {
    /// Without a value, or with another.
    gone: Vec<u64>,
    /// No node could be asked, or all refused.
    unread: Vec<u64>,
    /// The reason.
    failure: Option<Failure>,
}

/// Reads back acknowledged writes, again and again until all of them could be read, or none for [`READ_WITHIN`].
fn read_back(prepared: &mut Prepared, prefix: &str, acks: &[(u64, Duration)]) -> ReadBack {
    let mut read = ReadBack {
        unread: acks.iter().map(|&(number, _)| number).collect(),
        ..ReadBack::default()
    };
    let mut deadline = Instant::now() + READ_WITHIN;
    while !read.unread.is_empty() && read.failure.is_none() {
        let before = read.unread.len();
        let passed = match prepared.ask_map(deadline) {
            Ok(map) => read_pass(prepared, prefix, &map, &mut read),
            Err(failure) => {
                read.failure = Some(failure);
                break;
            }
        };
        let left = read.unread.len();
        if left < before {
            deadline = Instant::now() + READ_WITHIN;
        }
        read.failure = match passed {
            Err(Failure::Interrupted) => Some(Failure::Interrupted),
            Err(reason) if Instant::now() > deadline => Some(Failure::Local(format!(
                "{left} acknowledged writes could not be read back: {reason}"
            ))),
            Err(_) => prepared.pause().err(),
            Ok(()) => None,
        };
    }
    read
}

/// Reads each unread one once, over one connection to each node. The error is the last of those that left some unread.
fn read_pass(
    prepared: &mut Prepared,
    prefix: &str,
    map: &Map,
    read: &mut ReadBack,
) -> Result<(), Failure> {
    let mut by_node: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for number in read.unread.drain(..) {
        let key = format!("{prefix}{number}");
        let owner = map.owner(slot_of(key.as_bytes())).unwrap_or(0);
        by_node.entry(owner).or_default().push(number);
    }
    let mut result = Ok(());
    for (node, numbers) in by_node {
        // After an interrupt no other node is asked.
        if matches!(result, Err(Failure::Interrupted)) {
            read.unread.extend(numbers);
            continue;
        }
        let asked = read_node(prepared, prefix, map.address(node), &numbers, read);
        result = asked.and(result);
    }
    result
}

/// Reads the keys that one node owns. The error is the last of those that left some unread.
fn read_node(
    prepared: &mut Prepared,
    prefix: &str,
    address: &Address,
    numbers: &[u64],
    read: &mut ReadBack,
) -> Result<(), Failure> {
    let mut connection = match prepared.connect_node(address) {
        Ok(connection) => connection,
        Err(failure) => {
            read.unread.extend_from_slice(numbers);
            return Err(failure);
        }
    };
    let mut result = Ok(());
    for (index, chunk) in numbers.chunks(READ_KEYS).enumerate() {
        let keys: Vec<String> = chunk.iter().map(|n| format!("{prefix}{n}")).collect();
        let gets: Vec<[&str; 2]> = keys.iter().map(|key| ["GET", key]).collect();
        let gets: Vec<&[&str]> = gets.iter().map(|get| get.as_slice()).collect();
        let replies = match prepared.ask_node(&mut connection, &gets) {
            Ok(replies) => replies,
            Err(failure) => {
                read.unread.extend_from_slice(&numbers[index * READ_KEYS..]);
                return Err(failure);
            }
        };
        for (&number, reply) in chunk.iter().zip(&replies) {
            match reply {
                Value::Bulk(value) if *value == number.to_string().as_bytes() => {}
                // It is elsewhere, or not available yet.
                reply if reply.is_error() => {
                    let text = reply.as_bytes().unwrap_or_default();
                    result = Err(Failure::Reply(said(text)));
                    read.unread.push(number);
                }
                _ => read.gone.push(number),
            }
        }
    }
    result
}

/// Returns all times between two acknowledgements of each shard, named by its owner at the start; the start of the run and its
/// end count as acknowledgements.
fn pauses(
    counts: &Counts,
    map: &Map,
    prefix: &str,
    of_cluster: bool,
    duration_s: f64,
) -> Vec<Vec<Outage>> {
    let mut by_owner: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for &owner in map.primaries() {
        by_owner.insert(owner, Vec::new());
    }
    let first = map.primaries().first().copied().unwrap_or(0);
    for (number, at) in &counts.acks {
        let owner = if of_cluster {
            map.owner(slot_of(format!("{prefix}{number}").as_bytes()))
        } else {
            Some(first)
        };
        let times = owner.and_then(|owner| by_owner.get_mut(&owner));
        times
            .into_iter()
            .for_each(|times| times.push(at.as_secs_f64()));
    }
    let of_shard = |(owner, mut times): (usize, Vec<f64>)| {
        times.push(0.0);
        times.push(duration_s);
        times.sort_by(f64::total_cmp);
        let pauses = times.windows(2).map(|pair| Outage {
            node: map.address(owner).to_string(),
            from_s: pair[0],
            seconds: pair[1] - pair[0],
        });
        pauses.collect()
    };
    by_owner.into_iter().map(of_shard).collect()
}

/// Returns the pauses that are outages, of so many shards that are written to at this rate together.
fn outages(pauses: &[Vec<Outage>], shards: usize, rate: f64) -> Vec<Outage> {
    let share = 1.0 / shards.max(1) as f64;
    let least = (OUTAGE_WRITES / (rate * share)).max(OUTAGE_S_MIN);
    let all = pauses.iter().flatten();
    let mut found: Vec<Outage> = all.filter(|one| one.seconds >= least).cloned().collect();
    found.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    found
}

/// Returns the longest pause of each shard.
fn longest(pauses: Vec<Vec<Outage>>) -> Vec<Outage> {
    let of_shard = |pauses: Vec<Outage>| {
        let mut pauses = pauses.into_iter();
        let first = pauses.next()?;
        Some(pauses.fold(first, |a, b| match a.seconds < b.seconds {
            true => b,
            false => a,
        }))
    };
    pauses.into_iter().filter_map(of_shard).collect()
}

/// Returns numbers as ranges, at most as many as can be read.
fn ranges(numbers: &mut [u64]) -> Vec<(u64, u64)> {
    numbers.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers.iter() {
        if let Some((_, last)) = ranges.last_mut()
            && *last + 1 == number
        {
            *last = number;
        } else if ranges.len() < RANGES_MAX {
            ranges.push((number, number));
        } else {
            break;
        }
    }
    ranges
}

fn trouble(counts: &Counts) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (kind, times) in counts.trouble.values().flatten() {
        *all.entry(kind.clone()).or_default() += times;
    }
    all
}

fn trouble_over_time(counts: &Counts, interval: Duration) -> Vec<Trouble> {
    let slices = counts.trouble.iter();
    slices
        .map(|(&slice, kinds)| Trouble {
            at_s: slice as f64 * interval.as_secs_f64(),
            kinds: kinds.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges(&mut [5, 3, 4, 9, 1]), [(1, 1), (3, 5), (9, 9)]);
        assert_eq!(ranges(&mut []), []);
    }

    #[test]
    fn a_pause_without_acknowledgements_is_an_outage() {
        let at = |ms| Duration::from_millis(ms);
        let mut counts = Counts::default();
        let before = (0..100).map(|number| (number, at(number * 10)));
        let after = (100..200).map(|number| (number, at(2000 + (number - 100) * 10)));
        counts.acks = before.chain(after).collect();
        let map = Map::of(Address::tcp("a", 1));
        let of = |duration_s| pauses(&counts, &map, "k", false, duration_s);
        let found = outages(&of(3.0), 1, 100.0);
        let [one] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!((one.from_s - 0.99).abs() < 1e-9 && (one.seconds - 1.01).abs() < 1e-9);
        assert_eq!(one.node, "a:1");
        // The end of the run counts as well: 0.99 s, 1.01 s, and 1.01 s to the end.
        let found = outages(&of(4.0), 1, 100.0);
        assert_eq!(found.len(), 2);
        // With one write per second, a second without one means nothing.
        assert!(outages(&of(3.0), 1, 1.0).is_empty());
        // What is too short for that is still the longest.
        let longest = longest(of(3.0));
        assert!(longest.len() == 1 && (longest[0].seconds - 1.01).abs() < 1e-9);
    }
}
