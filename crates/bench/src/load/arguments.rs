//! The options of a run: their names, defaults and help.
//!
//! Knows the syntax only; `plan` checks what options mean together.

// Brackets in the help are optional parts, and no links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};

use super::objective::{Climb, Objective};
use crate::load::cluster::source::Reads;
use crate::load::workload::template::Protocol;

/// The command before the options of a run.
const NAME: &str = "redline bench run";
const ABOUT: &str = "Loads a server with a mix of commands, in a closed or an open loop";

/// The options of a run: of `redline bench run`, of each side of a comparison, of each run of a suite.
#[derive(Clone, Debug, Parser)]
#[command(name = NAME, about = ABOUT, after_help = EXAMPLES, args_override_self = true)]
pub struct RunArguments {
    /// Many runs, with published figures to put beside the measured ones: a file, or azure, memcached, modules, predixy,
    /// redis-docs, tair, tair-instance, tair-types, which are inside the program; options win over its own
    #[arg(value_name = "SUITE", conflicts_with_all = ["command", "load", "stairs", "csv", "hdr"])]
    pub suite: Option<PathBuf>,
    /// Multiplies a suite's requests and keys
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "FACTOR",
        allow_negative_numbers = true
    )]
    pub scale: f64,
    /// Address of a target of the suite: NAME=HOST:PORT; may be given several times
    #[arg(long, value_name = "PLACE", requires = "suite")]
    pub target: Vec<String>,
    /// The server.
    #[command(flatten)]
    pub server: TargetArguments,
    /// The requests.
    #[command(flatten)]
    pub workload: WorkloadArguments,
    /// The load.
    #[command(flatten)]
    pub manner: MannerArguments,
    /// The output.
    #[command(flatten)]
    pub output: OutputArguments,
}

const EXAMPLES: &str = "\
A command is words with placeholders:
  {uniform:N}  {seq:N}  {zipf:EXPONENT,N}  {gauss:N}  {gauss:MEAN,DEVIATION,N}
  {hotspot:SHARE_OF_KEYS,SHARE_OF_DRAWS,N}  {insert:N}  {latest:EXPONENT,N}
               a number from 0 to N-1, or FIRST to LAST with FIRST-LAST for N; |W behind
               it gives it at least W digits
  {value}  {value:16-64}  {value:16:9,4096:1}
               a value, of the sizes of --value-size or of its own
  {name=...}   draws a number and names it; {name} repeats it
  {{           a brace
A lone ; joins commands that are sent together, on one connection.

Examples:
  redline bench run --command \"GET key:{zipf:1.1,1000000}\" --ratio 9 \\
                    --command \"SET key:{zipf:1.1,1000000} {value}\" --ratio 1 \\
                    --load \"SET key:{seq:1000000} {value}\" --duration 60
  redline bench run --rps 50000 --command \"GET key:{uniform:1000000}\"

docs/bench.md explains every option, and has a table from memtier_benchmark's to these.";

/// Options of the server that is loaded.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Target")]
pub struct TargetArguments {
    /// Host name or address
    #[arg(short = 's', long, default_value = "127.0.0.1", value_name = "HOST")]
    pub server: String,
    /// Port
    #[arg(short, long, default_value_t = 6379)]
    pub port: u16,
    /// Unix socket, instead of host and port
    #[arg(short = 'S', long, value_name = "PATH", conflicts_with_all = ["server", "port"])]
    pub unix_socket: Option<PathBuf>,
    /// URI: redis://user:password@host:port/db, or rediss:// for TLS
    #[arg(short, long, conflicts_with_all = ["server", "port", "unix_socket"])]
    pub uri: Option<String>,
    /// One of several servers: HOST:PORT, the path of a unix socket, or a URI; connections are dealt out among them in turn
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["server", "port", "unix_socket", "uri", "embedded"])]
    pub endpoint: Vec<String>,
    /// The servers are nodes of one Redis Cluster: requests go to the node that owns their key, wherever that moves
    #[arg(long, conflicts_with_all = ["unix_socket", "embedded"])]
    pub cluster: bool,
    /// A Sentinel, which is asked for the primary, again after a failover: HOST:PORT, or redis://user:password@host:port if it
    /// has a password of its own; --tls is for it, too; may be given several times
    #[arg(long, value_name = "PLACE",
          conflicts_with_all = ["server", "port", "unix_socket", "uri", "endpoint", "cluster", "embedded"])]
    pub sentinel: Vec<String>,
    /// With --sentinel: name of the primary that it monitors
    #[arg(
        long,
        value_name = "NAME",
        default_value = "mymaster",
        requires = "sentinel"
    )]
    pub primary_name: String,
    /// With --cluster: nodes that read-only commands go to
    #[arg(
        long,
        value_name = "NODES",
        default_value = "primaries",
        requires = "cluster"
    )]
    pub reads: Reads,
    /// Starts the built-in server in this process and loads that
    #[arg(long, conflicts_with_all = ["server", "port", "unix_socket", "uri", "tls"])]
    pub embedded: bool,
    /// Password
    #[arg(short = 'a', long)]
    pub password: Option<String>,
    /// Name of an ACL user, with --password
    #[arg(long, requires = "password")]
    pub user: Option<String>,
    /// Protocol. With memcache_text, commands are memcached's: GET key, SET key {value} [TTL]
    #[arg(long, default_value = "resp", value_name = "PROTOCOL")]
    pub protocol: Protocol,
    /// Database [default: 0]
    #[arg(long)]
    pub db: Option<u32>,
    /// Use RESP3
    #[arg(short = '3', long)]
    pub resp3: bool,
    /// Use TLS
    #[arg(long)]
    pub tls: bool,
    /// CA certificates for verifying the server's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<String>,
    /// Client certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<String>,
    /// Private key of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<String>,
    /// Server name (SNI)
    #[arg(long, value_name = "HOST")]
    pub sni: Option<String>,
    /// Do not verify the server's certificate (insecure)
    #[arg(long, conflicts_with = "cacert")]
    pub insecure: bool,
}

/// Options of the requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArguments {
    /// A command with placeholders (see below); may be given several times
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "suite")]
    pub command: Vec<String>,
    /// Weight of each command, in their order: --ratio 9 --ratio 1, or --ratio 9:1
    #[arg(long, value_name = "WEIGHT", value_delimiter = ':')]
    pub ratio: Vec<u32>,
    /// Sent once for each number of its range, before the run: fills the server
    #[arg(long, value_name = "TEMPLATE")]
    pub load: Option<String>,
    /// Sizes of {value}: SIZE[:WEIGHT],... in bytes, a size may be FROM-TO [default: 32]
    #[arg(short = 'd', long, value_name = "SIZES")]
    pub value_size: Option<String>,
    /// Content of values [default: random]
    #[arg(long, value_name = "KIND")]
    pub value_content: Option<ContentKind>,
    /// With --value-content compressible: the share of a value that is one repeated letter, 0 to 1 [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    pub compressible: Option<f64>,
    /// Seed of the random numbers: with the same seed and as many threads, a run sends the same requests again
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Content of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContentKind {
    /// Random bytes, no two values the same
    Random,
    /// Letters and digits, a share of which is one letter
    Compressible,
    /// The same byte, always
    Fixed,
}

/// Options of the load.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct MannerArguments {
    /// Connections, over all threads
    #[arg(short = 'c', long, default_value_t = 50, value_name = "N")]
    pub connections: usize,
    /// Threads of the generator
    #[arg(short = 't', long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
    /// Requests in flight on a connection
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    pub pipeline: usize,
    /// Send the next request at each reply, so that --pipeline requests are always in flight [default: send a whole pipeline,
    /// then await its replies]
    #[arg(long, conflicts_with_all = ["rps", "stairs"])]
    pub window: bool,
    /// Open loop: so many requests a second, due at their times whether or not earlier ones are answered
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub rps: Option<f64>,
    /// Open loop at one rate after the other, each FACTOR (1.5) times the last, until --objective breaks
    #[arg(long, value_name = "RATE[:FACTOR]", value_parser = Climb::parse, requires = "objective",
          conflicts_with_all = ["rps", "csv", "hdr", "requests"])]
    pub stairs: Option<Climb>,
    /// Latency objective of --stairs: p99=2ms, p99.9=500us, mean, p50, p90, max
    #[arg(long, value_name = "FIGURE=TIME", value_parser = Objective::parse, requires = "stairs")]
    pub objective: Option<Objective>,
    /// Seconds that are measured [default: 10, unless --requests is given]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<Duration>,
    /// Seconds of warm-up, which are not measured
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub warmup: Duration,
    /// Ends after so many requests
    #[arg(short = 'n', long, value_name = "N")]
    pub requests: Option<u64>,
    /// Effect of an error reply on the run
    #[arg(long, default_value = "stop", value_name = "WHAT")]
    pub on_error: OnError,
    /// Opens connections again that are lost, with growing pauses; requests in flight there are counted
    #[arg(long)]
    pub reconnect: bool,
    /// Gives up a request that was not answered in so many seconds, and its connection; implies --reconnect
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Replaces a connection by a new one after so many requests
    #[arg(long, value_name = "N")]
    pub reconnect_after: Option<u64>,
    /// Does not measure the generator by itself after the run, which takes a fifth of a second
    #[arg(long)]
    pub no_calibration: bool,
    /// Warns when fewer than this share of the reads find something, 0 to 1 [default: 0.9]
    #[arg(long, value_name = "SHARE")]
    pub hit_rate_min: Option<f64>,
}

/// Effect of an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// Ends the run
    Stop,
    /// Is counted
    Count,
}

/// Options of the output.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArguments {
    /// Writes the result as JSON (- for standard output, which then holds nothing else)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes the time series as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Writes the response times by interval as an HDR log
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Writes a page with charts: one HTML file that needs no other
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Shows the run while it goes on: rate, latencies, CPU of each party, the verdict so far; on a terminal only
    #[arg(long, conflicts_with_all = ["suite", "stairs"])]
    pub live: bool,
    /// Seconds in a piece of the time series
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub interval: Duration,
    /// The server's process, if it is on this machine and not found by its port
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// The process of a proxy; the server behind it is then named with --server-pid
    #[arg(long, value_name = "PID")]
    pub proxy_pid: Option<u32>,
    /// Bandwidth of the network in one direction, in Mbit/s
    #[arg(long, value_name = "MBIT")]
    pub link_mbit: Option<f64>,
}

impl RunArguments {
    /// Parses the options of one run, given as the words after `redline bench run`.
    pub fn parse_words<'w>(
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<RunArguments, clap::Error> {
        RunArguments::try_parse_from(std::iter::once(NAME).chain(words))
    }
}

impl OutputArguments {
    /// Returns true if an output other than the text goes to standard output.
    pub fn takes_stdout(&self) -> bool {
        [&self.json, &self.csv, &self.html]
            .into_iter()
            .flatten()
            .any(|path| path.as_os_str() == "-")
    }

    /// Returns true if the result of the run goes to any file.
    pub fn names_file(&self) -> bool {
        [&self.json, &self.csv, &self.hdr, &self.html]
            .into_iter()
            .any(Option::is_some)
    }
}

/// Checks that no two outputs go to standard output, where they could not be told apart.
pub fn one_to_stdout<'p>(
    paths: impl IntoIterator<Item = Option<&'p PathBuf>>,
) -> Result<(), String> {
    let to_stdout = paths.into_iter().flatten();
    match to_stdout.filter(|path| path.as_os_str() == "-").count() {
        0 | 1 => Ok(()),
        _ => Err("Only one of --json, --csv and --html can go to standard output (-).".into()),
    }
}

/// Parses a number of seconds, decimals allowed.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a span of time".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_parser_is_consistent() {
        RunArguments::command().debug_assert();
    }
}
