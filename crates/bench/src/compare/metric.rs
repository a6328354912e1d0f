//! The figures that are compared, and their values in a run.
//!
//! Must not know how they are judged.

use serde::{Deserialize, Serialize};

use crate::load::cause::verdict::Bottleneck;
use crate::load::plan::HIT_RATE_MIN_DEFAULT;
use crate::load::result::{RunResult, Settings};

/// A figure of a run that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Requests a second
    Rps,
    /// Mean response time
    Mean,
    /// Median response time
    P50,
    /// 99th percentile of the response time
    P99,
    /// 99.9th percentile of the response time
    #[value(name = "p99.9")]
    P999,
    /// CPU time of the server for each request
    ServerCpu,
}

impl Metric {
    /// All figures, in the order in which they are listed.
    pub const ALL: [Metric; 6] = [
        Metric::Rps,
        Metric::Mean,
        Metric::P50,
        Metric::P99,
        Metric::P999,
        Metric::ServerCpu,
    ];

    fn of(self, result: &RunResult, server_cpu_us: Option<f64>) -> Option<f64> {
        let response = &result.response_us;
        let figure = match self {
            Metric::Rps => result.achieved_rps,
            Metric::Mean => response.mean,
            Metric::P50 => response.p50 as f64,
            Metric::P99 => response.p99 as f64,
            Metric::P999 => response.p99_9 as f64,
            Metric::ServerCpu => server_cpu_us.unwrap_or_default(),
        };
        (figure > 0.0).then_some(figure)
    }

    /// Returns true if B is worse by this many percent of A, as the sentence counts them.
    pub fn is_worse(self, ratio: f64, percent: f64) -> bool {
        match self {
            Metric::Rps => ratio <= 1.0 - percent / 100.0,
            _ => ratio >= 1.0 + percent / 100.0,
        }
    }

    /// Returns true if it comes from a histogram.
    pub fn is_rounded(self) -> bool {
        matches!(self, Metric::P50 | Metric::P99 | Metric::P999)
    }

    /// Returns its name in sentences, and the words for more and less of it.
    pub fn words(self) -> (&'static str, &'static str, &'static str) {
        // name, more, less
        match self {
            Metric::Rps => ("requests/s", "more requests/s", "fewer requests/s"),
            Metric::Mean => ("mean response time", "longer", "shorter"),
            Metric::P50 => ("median response time", "longer", "shorter"),
            Metric::P99 => ("p99 of the response time", "longer", "shorter"),
            Metric::P999 => ("p99.9 of the response time", "longer", "shorter"),
            Metric::ServerCpu => ("server's CPU per request", "more", "less"),
        }
    }

    /// Returns its name in tables and charts.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Rps => "requests/s",
            Metric::Mean => "mean response time, us",
            Metric::P50 => "p50, us",
            Metric::P99 => "p99, us",
            Metric::P999 => "p99.9, us",
            Metric::ServerCpu => "server's CPU, us/request",
        }
    }
}

/// The figures of a run that a comparison keeps.
#[derive(Clone, Debug)]
pub struct Sample {
    figures: [Option<f64>; Metric::ALL.len()],
    /// The bottleneck.
    pub bottleneck: Bottleneck,
    /// Set if the share of misses is worth a note.
    pub misses_many: bool,
    /// The reason why it ended early, if it did; such a slice does not count.
    pub ended_early: Option<String>,
    /// True for an open loop.
    pub is_paced: bool,
    /// The load in words; of a saved result.
    pub load: Option<String>,
}

impl Sample {
    /// Returns the sample of a saved result.
    pub fn of(result: &RunResult) -> Sample {
        // Of several servers, the sum.
        let parties = result.parties.iter();
        let servers = parties.filter(|party| party.role == "server");
        let cpu_us = servers
            .map(|one| one.user_us_per_request + one.system_us_per_request)
            .sum();
        let misses_many = result
            .hit_rate
            .is_some_and(|rate| rate < HIT_RATE_MIN_DEFAULT);
        Sample {
            load: Some(load(&result.settings)),
            ended_early: result.ended_early.clone(),
            misses_many,
            ..Sample::of_slice(result, Some(cpu_us))
        }
    }

    /// Returns the sample of a run with this CPU time of its servers per reply.
    pub fn of_slice(result: &RunResult, server_cpu_us: Option<f64>) -> Sample {
        Sample {
            figures: Metric::ALL.map(|metric| metric.of(result, server_cpu_us)),
            bottleneck: result.verdict.bottleneck,
            misses_many: false,
            ended_early: None,
            is_paced: result.settings.offered_rps.is_some(),
            load: None,
        }
    }

    /// Returns a figure, if it is known.
    pub fn figure(&self, metric: Metric) -> Option<f64> {
        self.figures[metric as usize]
    }
}

fn load(settings: &Settings) -> String {
    let commands = settings.commands.iter();
    let commands = commands.map(|command| format!("{} x {}", command.weight, command.template));
    let commands: Vec<String> = commands.collect();
    let rate = settings.offered_rps;
    let rate = rate.map_or(String::new(), |rps| format!(", {rps} requests/s"));
    let (connections, pipeline) = (settings.connections, settings.pipeline);
    format!(
        "{}{rate}, {connections} connections, pipeline {pipeline}",
        commands.join(", ")
    )
}
