//! The options of `redline bench failover`. Knows the syntax only.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::load::arguments::{TargetArguments, seconds};

/// The options of `failover`.
#[derive(Clone, Debug, Args)]
#[command(after_help = FAILOVER_EXAMPLES)]
pub struct FailoverArguments {
    /// The server.
    #[command(flatten)]
    pub server: TargetArguments,
    /// A shell command that makes something fail; it is run once
    #[arg(long, value_name = "COMMAND")]
    pub run: String,
    /// Start of --run, in seconds from the start of the load
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    pub at: Duration,
    /// Seconds of load
    #[arg(long, default_value = "20", value_name = "SECONDS", value_parser = seconds)]
    pub duration: Duration,
    /// Writes a second
    #[arg(long, default_value_t = 1000.0, value_name = "RATE")]
    pub rps: f64,
    /// Rounds one after the other, each with its own load and its own call of --run; the longest times without an
    /// acknowledged write and the writes that are gone are told of all together
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Connections to each node, over all threads
    #[arg(short = 'c', long, default_value_t = 50, value_name = "N")]
    pub connections: usize,
    /// A node that leaves a write unanswered for so many seconds is given up, and asked again on a new connection
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Duration,
    /// Seconds in a piece of the timeline
    #[arg(long, default_value = "0.25", value_name = "SECONDS", value_parser = seconds)]
    pub interval: Duration,
    /// Keys are this and a number; by default the prefix names the run, so that none was there before
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Writes the number of each acknowledged write, and when that came, to a file
    #[arg(long, value_name = "FILE")]
    pub acks: Option<PathBuf>,
    /// Writes the result as JSON (- for standard output, which then holds nothing else)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes a page with charts: one HTML file that needs no other
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const FAILOVER_EXAMPLES: &str = "\
Writes go to the primary that --sentinel names, to the owners of their slots (--cluster), or to whichever of several
--endpoint says that it is a primary. Each value is a number, acknowledged or not; at the end all keys whose write was
acknowledged are read back. They expire after an hour.

Examples:
  redline bench failover --sentinel 10.0.0.5:26379 --run \"ssh cache1 systemctl kill -s KILL redis\"
  redline bench failover -p 7000 --cluster --at 3 --run \"redis-cli -p 7003 cluster failover\"
  redline bench failover -p 7000 --cluster --duration 10 --repeat 200 --run ./kill-and-restart-a-primary";
