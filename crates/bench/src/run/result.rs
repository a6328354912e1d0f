//! The result of a run, as it is kept: the schema of the JSON file.
//!
//! Knows how nothing is measured. `docs/bench.md` describes the fields; what changes there changes here, and the other
//! way round. Times are in the unit that their name ends with.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::cause::parties::{Memory, Used};
use crate::cause::verdict::Verdict;

/// Changes when a field changes its meaning or goes away; new fields may come without.
pub const FORMAT: u32 = 1;

/// The result of `redline bench run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`FORMAT`].
    pub format: u32,
    /// The program that measured.
    pub redline_version: String,
    /// When it began.
    pub started_unix_ms: u64,
    /// The target of the load.
    pub target: Target,
    /// How.
    pub settings: Settings,
    /// The measured time, without warm-up.
    pub elapsed_s: f64,
    /// Why it ended before its time, if it did.
    pub ended_early: Option<String>,
    /// Requests and replies of the measured time.
    pub requests: Requests,
    /// Requests a second that were answered without an error.
    pub achieved_rps: f64,
    /// Share of the reads that found something, each key of MGET and the like by itself; `None` without reads.
    pub hit_rate: Option<f64>,
    /// From when a request was due until its reply arrived. In a closed loop it is due when it is sent.
    pub response_us: Latency,
    /// From when it was written; in an open loop only.
    pub service_us: Option<Latency>,
    /// How late requests were written although a connection was free; in an open loop only.
    pub schedule_lag_us: Option<Latency>,
    /// By command, in the order of the command line.
    pub commands: Vec<CommandResult>,
    /// Over time.
    pub series: Vec<Point>,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of replies.
    pub received_bytes: u64,
    /// Half of some pings before the run took at most so long, one after the other; `None` without replies.
    pub ping_us: Option<u64>,
    /// The generator's own cost, measured after the run; `None` where that was not done.
    #[serde(default)]
    pub own_cost: Option<OwnCost>,
    /// How requests found their node; only where they follow it, as in a cluster or behind Sentinels.
    #[serde(default)]
    pub redirects: Option<Redirects>,
    /// Costs of the run for each party.
    pub parties: Vec<Party>,
    /// The limit of the run.
    pub verdict: Verdict,
    /// Warnings about conditions that may make the figures mean something else.
    pub warnings: Vec<String>,
}

/// Target of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// As it was called; of several, the first.
    pub address: String,
    /// All servers; of a cluster, all nodes.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// In this process.
    pub embedded: bool,
    /// How it calls itself, from INFO.
    pub server: Option<String>,
    /// With TLS.
    pub tls: bool,
}

/// Cost of the generator with the same requests in a closed loop, when a server in its process does nothing but answer
/// each with five bytes: an overhead that is part of every other figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Requests that it was measured with.
    pub requests: u64,
    /// CPU time of the generator's threads in its own code for each.
    pub user_us_per_request: f64,
    /// CPU time in the kernel for each.
    pub system_us_per_request: f64,
    /// Response times.
    pub response_us: Latency,
}

/// One of several servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Where it is.
    pub address: String,
    /// Replies that settled a request; in a cluster only.
    pub replies: Option<u64>,
    /// By how much its own counters (those of INFO, by their names) have grown, warm-up and questions about it included;
    /// none of one that was not asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// How requests found their node, warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Redirects {
    /// Sent on since their slot had moved.
    pub moved: u64,
    /// Sent on since their slot is moving.
    pub asked: u64,
    /// Sent again because some of their keys were still elsewhere.
    pub try_again: u64,
    /// Sent again because the node could not serve.
    pub refused: u64,
    /// Sent again because their connection was lost or silent: perhaps executed twice.
    pub resent: u64,
    /// Connections that were lost or given up.
    pub connections_lost: u64,
    /// Attempts to connect that failed.
    pub connects_failed: u64,
    /// Maps that were learned during the run; where there is one primary, how often it was another.
    pub maps: u64,
}

impl Redirects {
    /// Adds another thread's.
    pub fn add(&mut self, other: &Redirects) {
        for (to, from) in [
            (&mut self.moved, other.moved),
            (&mut self.asked, other.asked),
            (&mut self.try_again, other.try_again),
            (&mut self.refused, other.refused),
            (&mut self.resent, other.resent),
            (&mut self.connections_lost, other.connections_lost),
            (&mut self.connects_failed, other.connects_failed),
            (&mut self.maps, other.maps),
        ] {
            *to += from;
        }
    }
}

/// How a run was to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Templates with their weights.
    pub commands: Vec<Weighted>,
    /// Requests a second, in an open loop.
    pub offered_rps: Option<f64>,
    /// Connections over all threads.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Requests under way on a connection.
    pub pipeline: usize,
    /// True if each reply makes room for the next request.
    pub window: bool,
    /// Not measured.
    pub warmup_s: f64,
    /// Measured.
    pub duration_s: Option<f64>,
    /// The end, if it is a number of requests.
    pub requests: Option<u64>,
    /// Length of a piece of the series.
    pub interval_s: f64,
    /// For random numbers.
    pub seed: Option<u64>,
}

/// A template with its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weighted {
    /// As it was written.
    pub template: String,
    /// How often it comes beside the others.
    pub weight: u64,
}

/// Requests and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Written.
    pub sent: u64,
    /// Answered with a value.
    pub values: u64,
    /// Answered with null.
    pub nulls: u64,
    /// Answered with an error.
    pub errors: u64,
    /// Due and never written. Their response times are counted, as the least that they would have been.
    pub unsent: u64,
    /// Written and not answered at the end; likewise.
    pub unanswered: u64,
    /// Under way on connections that were lost; likewise.
    #[serde(default)]
    pub lost: u64,
    /// Connections that were lost.
    #[serde(default)]
    pub connections_lost: u64,
    /// Attempts to connect again that failed.
    #[serde(default)]
    pub reconnects_failed: u64,
}

/// Latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many there are.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub min: u64,
    /// Half of them are not above.
    pub p50: u64,
    /// 90 % are not above.
    pub p90: u64,
    /// 95 % are not above.
    pub p95: u64,
    /// 99 % are not above.
    pub p99: u64,
    /// 99.9 % are not above.
    pub p99_9: u64,
    /// 99.99 % are not above.
    pub p99_99: u64,
    /// The largest.
    pub max: u64,
    /// Pairs of a percentile and what it is, for a curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(f64, u64)>,
}

impl Latency {
    /// The figures of a histogram, without its curve.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        let percentile = |percentile| histogram.value_at_percentile(percentile);
        Latency {
            count: histogram.len(),
            mean: histogram.mean(),
            min: histogram.min(),
            p50: percentile(50.0),
            p90: percentile(90.0),
            p95: percentile(95.0),
            p99: percentile(99.0),
            p99_9: percentile(99.9),
            p99_99: percentile(99.99),
            max: histogram.max(),
            curve: Vec::new(),
        }
    }

    /// The figures of a histogram, and its curve.
    pub fn with_curve(histogram: &Histogram<u64>) -> Latency {
        let mut curve: Vec<(f64, u64)> = Vec::new();
        for step in histogram.iter_quantiles(CURVE_STEPS_PER_HALF) {
            let value = step.value_iterated_to();
            if curve.last().is_none_or(|&(_, last)| last != value) {
                curve.push((step.percentile(), value));
            }
        }
        Latency {
            curve,
            ..Latency::of(histogram)
        }
    }
}

const CURVE_STEPS_PER_HALF: u32 = 4;

/// Figures of one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    /// Its name.
    pub name: String,
    /// The template that it is part of.
    pub template: String,
    /// Answered with a value.
    pub values: u64,
    /// Answered with null.
    pub nulls: u64,
    /// Answered with an error.
    pub errors: u64,
    /// Share of values among replies that are no errors, or among their elements; for reads.
    pub hit_rate: Option<f64>,
    /// Answered without an error, a second.
    pub rps: f64,
    /// As in the whole result.
    pub response_us: Latency,
    /// As in the whole result.
    pub service_us: Option<Latency>,
}

/// A piece of the series. Pieces in which nothing was answered are there, with zeroes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its start, from the start of the measured time.
    pub at_s: f64,
    /// Answered without an error.
    pub answered: u64,
    /// Given up: lost with their connections, or not sent or not answered when the run ended. What they had waited until
    /// then is among the response times.
    #[serde(default)]
    pub unanswered: u64,
    /// Answered with an error.
    pub errors: u64,
    /// Response times.
    pub mean_us: f64,
    /// Half of them are not above.
    pub p50_us: u64,
    /// 99 % are not above.
    pub p99_us: u64,
    /// 99.9 % are not above.
    pub p99_9_us: u64,
    /// The largest.
    pub max_us: u64,
    /// CPUs that the server used meanwhile: 1.0 is one of them.
    pub server_cpus: Option<f64>,
    /// CPUs that the proxy used meanwhile.
    pub proxy_cpus: Option<f64>,
    /// The same of each of several servers, in the order of the target's nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_cpus: Vec<Option<f64>>,
}

/// Cost of a run for one party.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// `generator`, `server` or `proxy`.
    pub role: String,
    /// The process, if it is known.
    pub name: Option<String>,
    /// Its number.
    pub pid: Option<u32>,
    /// How it was measured: `threads` (of this process), `proc`, `info`.
    pub measured_by: String,
    /// The time in which it was measured.
    pub wall_s: f64,
    /// CPU time in its own code.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Time that its threads waited for a CPU.
    pub waited_s: f64,
    /// Threads that ran at all.
    pub threads: usize,
    /// Share of the time that the busiest thread was running or waiting for a CPU.
    pub busiest_share: f64,
    /// How often a second that thread had nothing to do and slept; `None` where that is not known.
    #[serde(default)]
    pub busiest_sleeps_per_s: Option<f64>,
    /// CPU time in its own code for each reply, in microseconds.
    pub user_us_per_request: f64,
    /// CPU time in the kernel for each reply.
    pub system_us_per_request: f64,
    /// Resident memory of its process from the start of the measured time on, looked at as often as the series, at most
    /// ten times a second; that of the generator is also that of a server inside its process.
    #[serde(default)]
    pub memory: Option<Memory>,
}

impl Party {
    /// Returns the cost that `used` means for `replies` replies.
    pub fn of(
        role: &str,
        process: Option<(u32, &str)>,
        measured_by: &str,
        used: &Used,
        replies: u64,
    ) -> Party {
        let per_request = |span: std::time::Duration| match replies {
            0 => 0.0,
            replies => span.as_secs_f64() * 1e6 / replies as f64,
        };
        Party {
            role: role.to_owned(),
            name: process.map(|(_, name)| name.to_owned()),
            pid: process.map(|(pid, _)| pid),
            measured_by: measured_by.to_owned(),
            wall_s: used.wall.as_secs_f64(),
            user_s: used.cpu.user.as_secs_f64(),
            system_s: used.cpu.system.as_secs_f64(),
            waited_s: used.waited.as_secs_f64(),
            threads: used.threads,
            busiest_share: used.load().busiest,
            busiest_sleeps_per_s: used.load().sleeps_per_second,
            user_us_per_request: per_request(used.cpu.user),
            system_us_per_request: per_request(used.cpu.system),
            memory: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_curve_are_those_of_the_histogram() {
        let mut histogram = crate::load::histogram(3);
        for us in 1..=1000 {
            histogram.record(us).unwrap();
        }
        let latency = Latency::with_curve(&histogram);
        assert_eq!((latency.count, latency.min, latency.max), (1000, 1, 1000));
        assert_eq!((latency.p50, latency.p90, latency.p99), (500, 900, 990));
        assert!(
            latency
                .curve
                .windows(2)
                .all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1)
        );
        assert_eq!(latency.curve.last().unwrap().1, 1000);
        assert_eq!(Latency::of(&crate::load::histogram(3)).max, 0);
    }
}
