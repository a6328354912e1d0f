//! The result of a run: the schema of the JSON file.
//!
//! Must not know measurement. `docs/bench.md` describes the fields, and must be changed with them. Times are in the unit
//! that their name ends with.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::load::cause::parties::{Memory, Used};
use crate::load::cause::verdict::Verdict;
use crate::load::origin::Origin;

/// Changes when a field changes its meaning or is removed; new fields may be added without.
pub const FORMAT: u32 = 1;

/// The result of `redline bench run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program that measured.
    pub redline_version: String,
    /// Time of its start.
    pub started_unix_ms: u64,
    /// The target of the load.
    pub target: Target,
    /// Settings of the run.
    pub settings: Settings,
    /// The measured time, without warm-up.
    pub elapsed_s: f64,
    /// The reason why it ended early, if it did.
    pub ended_early: Option<String>,
    /// Requests and replies of the measured time.
    pub requests: Requests,
    /// Requests per second that were answered without an error.
    pub achieved_rps: f64,
    /// Share of hits of reads, each key of MGET and the like by itself; `None` without reads.
    pub hit_rate: Option<f64>,
    /// Times from when a request was due until its reply arrived. In a closed loop it is due when it is sent.
    pub response_us: Latency,
    /// Times from the write to the reply; in an open loop only.
    pub service_us: Option<Latency>,
    /// Delays of writes although a connection was free; in an open loop only.
    pub schedule_lag_us: Option<Latency>,
    /// By command, in the order of the command line.
    pub commands: Vec<CommandResult>,
    /// Over time.
    pub series: Vec<Point>,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of replies.
    pub received_bytes: u64,
    /// Median of some pings before the run, one after the other; `None` without replies.
    pub ping_us: Option<u64>,
    /// The generator's own cost, measured after the run; `None` if that was not done.
    #[serde(default)]
    pub own_cost: Option<OwnCost>,
    /// Redirects; only if requests follow their node, as in a cluster or with Sentinels.
    #[serde(default)]
    pub redirects: Option<Redirects>,
    /// Costs of the run for each party.
    pub parties: Vec<Party>,
    /// The limit of the run.
    pub verdict: Verdict,
    /// Warnings about conditions that may make the figures mean something else.
    pub warnings: Vec<String>,
    /// The machine and the command line; none of a part of something larger, and in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Target of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its address; of several, the first.
    pub address: String,
    /// All servers; of a cluster, all nodes.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// It runs in this process.
    pub embedded: bool,
    /// The server's name, from INFO.
    pub server: Option<String>,
    /// TLS is used.
    pub tls: bool,
}

/// Cost of the generator with the same requests in a closed loop, against a server in its process that only answers each
/// with five bytes: an overhead that is part of every other figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Number of requests that were measured.
    pub requests: u64,
    /// CPU time of the generator's threads in its own code per request.
    pub user_us_per_request: f64,
    /// CPU time in the kernel per request.
    pub system_us_per_request: f64,
    /// Response times.
    pub response_us: Latency,
}

/// One of several servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its address.
    pub address: String,
    /// Replies that settled a request; in a cluster only.
    pub replies: Option<u64>,
    /// Growth of its own counters (of INFO, by their names), warm-up and questions about it included; none if it was not
    /// asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// Redirects of requests, warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Redirects {
    /// Requests redirected by MOVED.
    pub moved: u64,
    /// Requests redirected by ASK.
    pub asked: u64,
    /// Requests sent again since some of their keys were still elsewhere.
    pub try_again: u64,
    /// Requests sent again since the node could not serve.
    pub refused: u64,
    /// Requests sent again since their connection was lost or silent: perhaps executed twice.
    pub resent: u64,
    /// Connections that were lost or given up.
    pub connections_lost: u64,
    /// Attempts to connect that failed.
    pub connects_failed: u64,
    /// Number of maps learned during the run; with one primary, the number of its changes.
    pub maps: u64,
}

impl Redirects {
    /// Adds another thread's counts.
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

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Templates with their weights.
    pub commands: Vec<Weighted>,
    /// Requests per second, in an open loop.
    pub offered_rps: Option<f64>,
    /// Connections over all threads.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Requests in flight on a connection.
    pub pipeline: usize,
    /// One request is sent after each reply.
    pub window: bool,
    /// Time that is not measured.
    pub warmup_s: f64,
    /// Measured time.
    pub duration_s: Option<f64>,
    /// Number of requests that ends the run, if it is limited.
    pub requests: Option<u64>,
    /// Length of a piece of the series.
    pub interval_s: f64,
    /// Seed of random numbers.
    pub seed: Option<u64>,
}

/// A template with its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weighted {
    /// As it was written.
    pub template: String,
    /// Its weight among all.
    pub weight: u64,
}

/// Requests and their outcomes.
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
    /// Due and never written. Their response times are counted, as a lower bound.
    pub unsent: u64,
    /// Written and not answered at the end; counted likewise.
    pub unanswered: u64,
    /// In flight on lost connections; counted likewise.
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
    /// Number of latencies.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p99_9: u64,
    /// The 99.99th percentile.
    pub p99_99: u64,
    /// The largest.
    pub max: u64,
    /// Pairs of a percentile and its latency, for a curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(f64, u64)>,
}

impl Latency {
    /// Returns the figures of a histogram, without its curve.
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

    /// Returns the figures of a histogram, and its curve.
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
    /// Requests per second that were answered without an error.
    pub rps: f64,
    /// As in the whole result.
    pub response_us: Latency,
    /// As in the whole result.
    pub service_us: Option<Latency>,
}

/// A piece of the series. Pieces without replies are present, with zeroes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its start, from the start of the measured time.
    pub at_s: f64,
    /// Answered without an error.
    pub answered: u64,
    /// Given up: lost with their connections, or not sent or not answered at the end. Their waits until then are among
    /// the response times.
    #[serde(default)]
    pub unanswered: u64,
    /// Answered with an error.
    pub errors: u64,
    /// Mean response time.
    pub mean_us: f64,
    /// The median.
    pub p50_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
    /// The 99.9th percentile.
    pub p99_9_us: u64,
    /// The largest.
    pub max_us: u64,
    /// CPUs that the server used: 1.0 is one of them.
    pub server_cpus: Option<f64>,
    /// CPUs that the proxy used.
    pub proxy_cpus: Option<f64>,
    /// CPUs that each of several servers used, in the order of the target's nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_cpus: Vec<Option<f64>>,
}

impl RunResult {
    /// Returns the pieces of the series that stand for a rate, with their lengths in seconds: all but a last one of less
    /// than half an interval, in which a reply more or less would be a leap.
    pub fn whole_pieces(&self) -> impl Iterator<Item = (&Point, f64)> {
        let interval = self.settings.interval_s;
        let length = move |point: &Point| (self.elapsed_s - point.at_s).min(interval);
        let pieces = self.series.iter().map(move |point| (point, length(point)));
        let is_only = self.series.len() == 1;
        pieces.filter(move |(_, length)| *length >= interval / 2.0 || (is_only && *length > 0.0))
    }
}

/// Cost of a run for one party.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// `generator`, `server` or `proxy`.
    pub role: String,
    /// The process, if it is known.
    pub name: Option<String>,
    /// Its process id.
    pub pid: Option<u32>,
    /// Source of the figures: `threads` (of this process), `proc`, `info`.
    pub measured_by: String,
    /// The time in which it was measured.
    pub wall_s: f64,
    /// CPU time in its own code.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Time that its threads waited for a CPU.
    pub waited_s: f64,
    /// Number of threads that ran at all.
    pub threads: usize,
    /// Share of the time in which the busiest thread was running or waiting for a CPU.
    pub busiest_share: f64,
    /// Sleeps of that thread per second; `None` if not known.
    #[serde(default)]
    pub busiest_sleeps_per_s: Option<f64>,
    /// CPU time in its own code per reply, in microseconds.
    pub user_us_per_request: f64,
    /// CPU time in the kernel per reply.
    pub system_us_per_request: f64,
    /// Resident memory of its process from the start of the measured time on, sampled as often as the series, at most
    /// ten times a second; that of the generator includes a server inside its process.
    #[serde(default)]
    pub memory: Option<Memory>,
}

impl Party {
    /// Returns the cost per reply of `used` for `replies` replies.
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
        let mut histogram = crate::load::engine::histogram(3);
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
        assert_eq!(Latency::of(&crate::load::engine::histogram(3)).max, 0);
    }
}
