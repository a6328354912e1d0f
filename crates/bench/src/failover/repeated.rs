//! Several rounds of `redline bench failover`: how long shards were without service, over all of them.
//!
//! Must not know: how a round is run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::arguments::FailoverArguments;
use super::{FORMAT, FailoverResult, plan, round};
use crate::load::execute::Prepared;
use crate::load::failure::Failure;
use crate::load::plan::RunPlan;
use crate::output::{Written, can_be_written, write, write_json};

/// Time after a round until the servers can be used again.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
const RECOVERY_PAUSE: Duration = Duration::from_millis(250);

/// The result of several rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Repeated {
    /// [`FORMAT`].
    pub format: u32,
    /// The command that was run in each round.
    pub command: String,
    /// Of each round, the longest time in which a shard acknowledged no write: seconds.
    pub gaps_s: Vec<f64>,
    /// Median of these.
    pub gap_p50_s: f64,
    /// The one that one in a hundred rounds reaches.
    pub gap_p99_s: f64,
    /// The longest.
    pub gap_max_s: f64,
    /// Writes that were acknowledged, in all rounds.
    pub acknowledged: u64,
    /// Of these, those that are gone.
    pub gone: u64,
    /// Of these, those that could not be read back.
    pub unread: u64,
    /// Number of errors, by kind, as in a round.
    pub trouble: BTreeMap<String, u64>,
    /// The rounds.
    pub rounds: Vec<FailoverResult>,
}

/// Runs the rounds, with a line for each.
pub(super) fn run(
    arguments: &FailoverArguments,
    prefix: &str,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<(), Failure> {
    if arguments.acks.is_some() || arguments.html.is_some() {
        return Err(Failure::Local(
            "--repeat: --acks and --html are of one round.".into(),
        ));
    }
    can_be_written([arguments.json.as_deref()])?;
    let mut rounds = Vec::new();
    let mut failure = None;
    for number in 1..=arguments.repeat {
        let prefix = format!("{prefix}{number}:");
        let plan = plan(arguments, &prefix).map_err(Failure::Local)?;
        let prepared = match number {
            1 => Prepared::new(&plan, None)?,
            _ => until_prepared(&plan)?,
        };
        let round = round(arguments, &plan, prefix, prepared, stdout, stderr)?;
        let result = &round.result;
        // Progress is informative only; errors of a closed stream are ignored.
        let _ = writeln!(
            stderr,
            "round {number} of {}: {:.3} s without service, {} of {} acknowledged writes gone",
            arguments.repeat,
            gap(result),
            result.gone,
            result.acknowledged
        );
        rounds.push(round.result);
        if round.failure.is_some() {
            failure = round.failure;
            break;
        }
    }
    let result = summary(arguments.run.clone(), rounds);
    let mut written = Written::default();
    if arguments.json.as_deref() != Some(Path::new("-")) {
        written.and(write(Path::new("-"), &text(&result), stdout));
    }
    if let Some(path) = &arguments.json {
        written.and(write_json(path, &result, stdout));
    }
    written.end(failure)
}

/// Prepares a round once the servers have recovered from the last.
fn until_prepared(plan: &RunPlan) -> Result<Prepared, Failure> {
    let deadline = Instant::now() + RECOVERY_MAX;
    loop {
        match Prepared::new(plan, None) {
            Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            Err(failure) if Instant::now() > deadline => return Err(failure),
            Err(_) => std::thread::sleep(RECOVERY_PAUSE),
            Ok(prepared) => return Ok(prepared),
        }
    }
}

/// Returns the longest time in which a shard acknowledged no write.
fn gap(round: &FailoverResult) -> f64 {
    let pauses = round.longest_pauses.iter().map(|pause| pause.seconds);
    pauses.fold(0.0, f64::max)
}

fn summary(command: String, rounds: Vec<FailoverResult>) -> Repeated {
    let gaps_s: Vec<f64> = rounds.iter().map(gap).collect();
    let mut sorted = gaps_s.clone();
    sorted.sort_by(f64::total_cmp);
    let mut trouble: BTreeMap<String, u64> = BTreeMap::new();
    for (kind, times) in rounds.iter().flat_map(|round| &round.trouble) {
        *trouble.entry(kind.clone()).or_default() += times;
    }
    let sum = |of: fn(&FailoverResult) -> u64| rounds.iter().map(of).sum();
    Repeated {
        format: FORMAT,
        command,
        gap_p50_s: reached(&sorted, 0.5),
        gap_p99_s: reached(&sorted, 0.99),
        gap_max_s: reached(&sorted, 1.0),
        gaps_s,
        acknowledged: sum(|round| round.acknowledged),
        gone: sum(|round| round.gone),
        unread: sum(|round| round.unread),
        trouble,
        rounds,
    }
}

/// Returns the least of ascending numbers that this part of them does not exceed.
fn reached(sorted: &[f64], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    let index = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(index).copied().unwrap_or(0.0)
}

fn text(result: &Repeated) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} rounds of: {}\n\nthe longest time of a shard without an acknowledged write: median {:.3} s, p99 {:.3} s, maximum {:.3} s",
        result.rounds.len(),
        result.command,
        result.gap_p50_s,
        result.gap_p99_s,
        result.gap_max_s
    );
    let _ = writeln!(out, "{} writes acknowledged", result.acknowledged);
    let _ = writeln!(out, "{} of them gone", result.gone);
    if result.unread > 0 {
        let _ = writeln!(out, "{} of them could not be read back", result.unread);
    }
    for (kind, times) in &result.trouble {
        let _ = writeln!(out, "{times} times {kind}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_rounds() {
        let hundred: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(reached(&hundred, 0.5), 100.0);
        assert_eq!(reached(&hundred, 0.99), 198.0);
        assert_eq!(reached(&hundred, 1.0), 200.0);
        assert_eq!(reached(&[3.0], 0.5), 3.0);
        assert_eq!(reached(&[], 0.99), 0.0);
    }
}
