//! The command line of the sub-commands: `redline bench run`.
//!
//! Opens no socket. What it leaves is checked: a [`RunPlan`] can be run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use redline_net::Address;
use redline_net::tls::{ClientTlsOptions, Peer, TlsOptions};

use super::stairs::{Climb, Objective};
use crate::cluster::source::{Reads, Source};
use crate::target::{self, Uri};
use crate::workload::keys::Shape;
use crate::workload::template::{Protocol, Template};
use crate::workload::values::{Content, Sizes};

/// A load generator that says why the number is what it is.
#[derive(Debug, Parser)]
#[command(
    name = "redline bench",
    bin_name = "redline bench",
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Loads a server with a mix of commands, in a closed or an open loop
    Run(Box<RunArguments>),
    /// Says whether one server, or one set of options, is faster than another, and how sure that is
    #[command(disable_help_flag = true)]
    Compare {
        /// What `compare` takes apart itself.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<String>,
    },
    /// Writes numbered values while a command of yours makes a primary fail, and says what was lost and for how long
    Failover(Box<FailoverArguments>),
    /// Makes a page with charts of what --json has left: of a run, of several side by side, of a comparison, a suite, a staircase, a failover
    Report(ReportArguments),
}

/// The options of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    /// What --json has left: one of a comparison, a suite or a staircase, or any number of runs and failovers
    #[arg(required = true, value_name = "FILE")]
    pub results: Vec<PathBuf>,
    /// The page, one HTML file that needs no other (- for standard output)
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    pub output: PathBuf,
}

/// The options of `failover`.
#[derive(Clone, Debug, Args)]
#[command(after_help = FAILOVER_EXAMPLES)]
pub struct FailoverArguments {
    /// Whom to load.
    #[command(flatten)]
    pub server: TargetArguments,
    /// A shell command that makes something fail; it is run once
    #[arg(long, value_name = "COMMAND")]
    pub run: String,
    /// When it is run, in seconds from the start
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    pub at: Duration,
    /// Seconds of load
    #[arg(long, default_value = "20", value_name = "SECONDS", value_parser = seconds)]
    pub duration: Duration,
    /// Writes a second
    #[arg(long, default_value_t = 1000.0, value_name = "RATE")]
    pub rps: f64,
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
  redline bench failover -p 7000 --cluster --at 3 --run \"redis-cli -p 7003 cluster failover\"";

/// The options of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct RunArguments {
    /// A file that describes many runs, with published figures to put beside the measured ones; options win over its own
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
    /// Where a suite's target is: NAME=HOST:PORT; may be given several times
    #[arg(long, value_name = "PLACE", requires = "suite")]
    pub target: Vec<String>,
    /// Whom to load.
    #[command(flatten)]
    pub server: TargetArguments,
    /// What to send.
    #[command(flatten)]
    pub workload: WorkloadArguments,
    /// How to send it.
    #[command(flatten)]
    pub manner: MannerArguments,
    /// What to leave.
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

/// Whom to load.
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
    /// All at once: redis://user:password@host:port/db, or rediss:// for TLS
    #[arg(short, long, conflicts_with_all = ["server", "port", "unix_socket"])]
    pub uri: Option<String>,
    /// One of several servers: HOST:PORT, the path of a unix socket, or a URI; connections are dealt out among them in turn
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["server", "port", "unix_socket", "uri", "embedded"])]
    pub endpoint: Vec<String>,
    /// The servers are nodes of one Redis Cluster: requests go to the node that owns their key, wherever that moves
    #[arg(long, conflicts_with_all = ["unix_socket", "embedded"])]
    pub cluster: bool,
    /// A Sentinel, which says where the primary is, also when that changes: HOST:PORT, or redis://user:password@host:port if
    /// it wants a password of its own; with --tls it has TLS too; may be given several times
    #[arg(long, value_name = "PLACE",
          conflicts_with_all = ["server", "port", "unix_socket", "uri", "endpoint", "cluster", "embedded"])]
    pub sentinel: Vec<String>,
    /// With --sentinel: the name under which it watches the primary
    #[arg(
        long,
        value_name = "NAME",
        default_value = "mymaster",
        requires = "sentinel"
    )]
    pub primary_name: String,
    /// With --cluster: where commands go that only read
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
    /// What is spoken; with memcache_text a command is one of memcached's: GET key, SET key {value} [TTL]
    #[arg(long, default_value = "resp", value_name = "PROTOCOL")]
    pub protocol: Protocol,
    /// Database
    #[arg(long, default_value_t = 0)]
    pub db: u32,
    /// Speaks RESP3
    #[arg(short = '3', long)]
    pub resp3: bool,
    /// Speaks TLS
    #[arg(long)]
    pub tls: bool,
    /// Certificates of trusted authorities
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<String>,
    /// Our certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<String>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<String>,
    /// Name to ask the server for
    #[arg(long, value_name = "HOST")]
    pub sni: Option<String>,
    /// Trusts any certificate
    #[arg(long)]
    pub insecure: bool,
}

/// What to send.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArguments {
    /// A command with placeholders (see below); may be given several times
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "suite")]
    pub command: Vec<String>,
    /// How often each command comes beside the others, in their order: 9 --ratio 1, or 9:1
    #[arg(long, value_name = "WEIGHT", value_delimiter = ':')]
    pub ratio: Vec<u32>,
    /// Sent once for each number of its range, before the run: fills the server
    #[arg(long, value_name = "TEMPLATE")]
    pub load: Option<String>,
    /// Sizes of {value}: SIZE[:WEIGHT],... in bytes, a size may be FROM-TO
    #[arg(short = 'd', long, default_value = "32", value_name = "SIZES")]
    pub value_size: String,
    /// What is in values
    #[arg(long, default_value = "random", value_name = "KIND")]
    pub value_content: ContentKind,
    /// With --value-content compressible: the share of a value that is one repeated letter, 0 to 1
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    pub compressible: f64,
    /// Makes a run with as many threads send the same again
    #[arg(long)]
    pub seed: Option<u64>,
}

/// What is in values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContentKind {
    /// Random bytes, no two values the same
    Random,
    /// Letters and digits, a share of which is one letter
    Compressible,
    /// The same byte, always
    Fixed,
}

/// How to send it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct MannerArguments {
    /// Connections, over all threads
    #[arg(short = 'c', long, default_value_t = 50, value_name = "N")]
    pub connections: usize,
    /// Threads of the generator
    #[arg(short = 't', long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
    /// Requests under way on a connection
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    pub pipeline: usize,
    /// Each reply makes room for the next request; otherwise a whole pipeline is sent, then awaited
    #[arg(long)]
    pub window: bool,
    /// Open loop: so many requests a second, due at their times whether or not earlier ones are answered
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub rps: Option<f64>,
    /// Open loop at one rate after the other, each FACTOR (1.5) times the last, until --objective breaks
    #[arg(long, value_name = "RATE[:FACTOR]", value_parser = Climb::parse, requires = "objective",
          conflicts_with_all = ["rps", "csv", "hdr", "requests"])]
    pub stairs: Option<Climb>,
    /// What --stairs looks for the limit of: p99=2ms, p99.9=500us, mean, p50, p90, max
    #[arg(long, value_name = "FIGURE=TIME", value_parser = Objective::parse, requires = "stairs")]
    pub objective: Option<Objective>,
    /// Seconds that are measured [default: 10, unless --requests is given]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<Duration>,
    /// Seconds before them that are not
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub warmup: Duration,
    /// Ends after so many requests
    #[arg(short = 'n', long, value_name = "N")]
    pub requests: Option<u64>,
    /// What an error reply does
    #[arg(long, default_value = "stop", value_name = "WHAT")]
    pub on_error: OnError,
    /// Opens connections again that are lost, with growing pauses; requests under way there are counted
    #[arg(long)]
    pub reconnect: bool,
    /// Gives up a request that was not answered in so many seconds, and its connection; implies --reconnect
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Replaces a connection by a new one after so many requests
    #[arg(long, value_name = "N")]
    pub reconnect_after: Option<u64>,
    /// Leaves out what is done after the run: a fifth of a second in which the generator is measured by itself
    #[arg(long)]
    pub no_calibration: bool,
    /// Warns when fewer than this share of the reads find something, 0 to 1
    #[arg(long, default_value_t = 0.9, value_name = "SHARE")]
    pub hit_rate_min: f64,
}

/// What an error reply does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// Ends the run
    Stop,
    /// Is counted
    Count,
}

/// What to leave.
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
    /// What the network carries in one direction, in Mbit/s
    #[arg(long, value_name = "MBIT")]
    pub link_mbit: Option<f64>,
}

impl OutputArguments {
    /// Whether something else than the text goes to standard output.
    pub fn takes_stdout(&self) -> bool {
        [&self.json, &self.csv, &self.html]
            .into_iter()
            .flatten()
            .any(|path| path.as_os_str() == "-")
    }

    /// Whether the result of the run goes to any file.
    pub fn names_file(&self) -> bool {
        [&self.json, &self.csv, &self.hdr, &self.html]
            .into_iter()
            .any(Option::is_some)
    }
}

/// Two outputs in one place could not be told apart.
pub fn one_to_stdout<'p>(
    paths: impl IntoIterator<Item = Option<&'p PathBuf>>,
) -> Result<(), String> {
    let to_stdout = paths.into_iter().flatten();
    match to_stdout.filter(|path| path.as_os_str() == "-").count() {
        0 | 1 => Ok(()),
        _ => Err("Only one of --json, --csv and --html can go to standard output (-).".into()),
    }
}

/// A run that has been checked.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// As it was called.
    pub target: TargetPlan,
    /// What to send.
    pub templates: Vec<Template>,
    /// Their weights.
    pub weights: Vec<u64>,
    /// Sent once for each number of its range.
    pub load: Option<Template>,
    /// What is in values.
    pub content: Content,
    /// For random numbers.
    pub seed: Option<u64>,
    /// How to send.
    pub manner: MannerArguments,
    /// What to leave.
    pub output: OutputArguments,
    /// What is made to happen meanwhile.
    pub incident: Option<Incident>,
}

/// A command of the user's that is run while a run goes on.
#[derive(Clone, Debug)]
pub struct Incident {
    /// For the shell.
    pub command: String,
    /// From the start of the measured time.
    pub at: Duration,
}

/// Whom to load.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// The servers, at least one; the one there is has no meaning when it is embedded. With Sentinels it is these.
    pub servers: Vec<ServerPlan>,
    /// Who says where the data is, if requests have to follow it.
    pub source: Option<Source>,
    /// Where reads go in a cluster.
    pub reads: Reads,
    /// In what words it is spoken to.
    pub protocol: Protocol,
    /// Start one in this process.
    pub embedded: bool,
    /// RESP3.
    pub resp3: bool,
    /// TLS, as told.
    pub tls: Option<ClientTlsOptions>,
}

/// One server, and as whom.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// Where it is.
    pub address: Address,
    /// Arguments of AUTH, or none.
    pub auth: Vec<Vec<u8>>,
    /// Database.
    pub db: i64,
}

/// A piece of the series costs a histogram.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
/// A reply that takes longer is not expected any more where nothing else ends a run.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
const CONNECTIONS_MAX: usize = 1_000_000;
const PIPELINE_MAX: usize = 1_000_000;
const THREADS_MAX: usize = 500;
/// The highest rate that can be asked for, in requests a second.
pub const RATE_MAX: f64 = 1e9;
/// A fill has at most so many numbers.
const LOAD_MAX: u64 = 100_000_000_000;

impl RunPlan {
    /// Bytes of a request on average, without what frames its words.
    pub fn mean_bytes(&self) -> f64 {
        let weighted = self.templates.iter().zip(&self.weights);
        let (mut bytes, mut requests) = (0.0, 0.0);
        for (template, &weight) in weighted {
            bytes += weight as f64 * template.mean_bytes();
            requests += weight as f64 * template.requests() as f64;
        }
        bytes / requests
    }
}

impl RunArguments {
    /// Checks what the parser cannot; an error is one line.
    pub fn plan(mut self) -> Result<RunPlan, String> {
        if self.scale != 1.0 {
            return Err("--scale is for suites.".into());
        }
        let sizes = Sizes::parse(&self.workload.value_size)
            .map_err(|reason| format!("--value-size: {reason}"))?;
        let protocol = self.server.protocol;
        let template = |option: &str, text: &String| {
            Template::parse(text, &sizes)
                .and_then(|template| template.check_for(protocol).map(|()| template))
                .map_err(|reason| format!("{option} \"{text}\": {reason}"))
        };
        let templates: Vec<Template> = self
            .workload
            .command
            .iter()
            .map(|text| template("--command", text))
            .collect::<Result<_, _>>()?;
        let load = self.workload.load.as_ref();
        let load = load.map(|text| template("--load", text)).transpose()?;
        if let Some(load) = &load {
            check_load(load)?;
        }
        let weights = weights(&self.workload.ratio, templates.len())?;
        let content = match self.workload.value_content {
            ContentKind::Random => Content::Random,
            ContentKind::Fixed => Content::Fixed,
            ContentKind::Compressible if (0.0..=1.0).contains(&self.workload.compressible) => {
                Content::Compressible(self.workload.compressible)
            }
            ContentKind::Compressible => return Err("--compressible is a share, 0 to 1.".into()),
        };
        self.manner.check()?;
        let follows = self.server.cluster || !self.server.sentinel.is_empty();
        if follows && self.manner.reconnect_after.is_some() {
            return Err("--reconnect-after: not with --cluster or --sentinel.".into());
        }
        if self.manner.duration.is_none() && self.manner.requests.is_none() {
            self.manner.duration = Some(DURATION_DEFAULT);
        }
        let output = &self.output;
        one_to_stdout([
            output.json.as_ref(),
            output.csv.as_ref(),
            output.html.as_ref(),
        ])?;
        if self.output.live && self.output.takes_stdout() {
            return Err("--live draws on standard output: nothing else can go there (-).".into());
        }
        if output.hdr.as_deref() == Some(Path::new("-")) {
            return Err("--hdr writes to a file, not to standard output (-).".into());
        }
        if output
            .link_mbit
            .is_some_and(|mbit| !(mbit > 0.0 && mbit.is_finite()))
        {
            return Err("--link-mbit is more than 0 Mbit/s.".into());
        }
        if self.output.interval < INTERVAL_MIN {
            return Err("--interval is at least 0.001 seconds.".into());
        }
        Ok(RunPlan {
            target: self.server.plan()?,
            templates,
            weights,
            load,
            content,
            seed: self.workload.seed,
            manner: self.manner,
            output: self.output,
            incident: None,
        })
    }
}

/// A fill says what to fill: one sequence.
fn check_load(load: &Template) -> Result<(), String> {
    let sequences: Vec<_> = load
        .numbers()
        .iter()
        .filter(|number| number.shape == Shape::Sequential)
        .collect();
    match sequences.as_slice() {
        [one] if one.count <= LOAD_MAX => Ok(()),
        [_] => Err(format!("--load: more than {LOAD_MAX} keys.")),
        _ => Err("--load: it needs one {seq:N}, which is what is filled.".into()),
    }
}

fn weights(ratio: &[u32], commands: usize) -> Result<Vec<u64>, String> {
    if ratio.is_empty() {
        return Ok(vec![1; commands]);
    }
    if ratio.len() != commands {
        return Err(format!(
            "There are {} weights (--ratio) for {commands} commands (--command).",
            ratio.len()
        ));
    }
    if ratio.contains(&0) {
        return Err("A weight (--ratio) is at least 1.".into());
    }
    Ok(ratio.iter().map(|&weight| weight.into()).collect())
}

impl MannerArguments {
    /// How long a request may be unanswered. Where only replies end a run, it must not wait for ever for one.
    pub fn patience(&self) -> Option<Duration> {
        let endless = self.duration.is_none().then_some(SILENCE_MAX);
        self.timeout.or(endless)
    }

    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: usize, max: usize| {
            let fits = (1..=max).contains(&value);
            fits.then_some(())
                .ok_or_else(|| format!("--{name} is 1 to {max}."))
        };
        within("connections", self.connections, CONNECTIONS_MAX)?;
        within("pipeline", self.pipeline, PIPELINE_MAX)?;
        within("threads", self.threads, THREADS_MAX)?;
        if self
            .rps
            .is_some_and(|rate| !(rate > 0.0 && rate <= RATE_MAX))
        {
            return Err(format!(
                "--rps is more than 0 requests a second, and at most {RATE_MAX}."
            ));
        }
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err("--duration is more than 0 seconds.".into());
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err("--timeout is more than 0 seconds.".into());
        }
        if self.reconnect_after == Some(0) {
            return Err("--reconnect-after is at least 1.".into());
        }
        if !(0.0..=1.0).contains(&self.hit_rate_min) {
            return Err("--hit-rate-min is a share, 0 to 1.".into());
        }
        Ok(())
    }
}

impl TargetArguments {
    pub(crate) fn plan(self) -> Result<TargetPlan, String> {
        let mut tls = self.tls;
        let mut servers = Vec::new();
        let mut sentinel_auth = Vec::new();
        for place in self.endpoint.iter().chain(&self.sentinel) {
            let (mut server, with_tls) = self.place(place)?;
            if !self.sentinel.is_empty() {
                // What stands in its URI is the Sentinel's own.
                let data = self.server_at(server.address.clone());
                let is_of_uri = place.contains("://") && place.contains('@');
                sentinel_auth.push(if is_of_uri { server.auth } else { Vec::new() });
                if server.db != data.db {
                    return Err(format!(
                        "--sentinel \"{place}\": a Sentinel has no databases; --db is the servers'."
                    ));
                }
                server = data;
            }
            if !servers.is_empty() && with_tls != tls {
                return Err("--endpoint: all of them with TLS, or none.".into());
            }
            tls = with_tls;
            servers.push(server);
        }
        if servers.is_empty() {
            let (server, with_tls) = match (&self.uri, &self.unix_socket) {
                (Some(uri), _) => self.place(uri)?,
                (_, Some(path)) => (self.server_at(Address::unix(path)), tls),
                _ => (
                    self.server_at(Address::tcp(without_brackets(&self.server), self.port)),
                    tls,
                ),
            };
            tls = with_tls;
            servers.push(server);
        }
        let redis_only = self.cluster
            || !self.sentinel.is_empty()
            || self.resp3
            || servers.iter().any(|s| s.db != 0 || !s.auth.is_empty());
        if self.protocol != Protocol::Resp && redis_only {
            return Err(
                "--protocol memcache_text: without users, databases, RESP3, Sentinels and clusters.".into(),
            );
        }
        if self.cluster && servers.iter().any(|server| server.db != 0) {
            return Err("--cluster: a Redis Cluster has database 0 only.".into());
        }
        let places: Vec<Address> = servers
            .iter()
            .map(|server| server.address.clone())
            .collect();
        let source = if self.cluster {
            Some(Source::Cluster)
        } else if self.sentinel.is_empty() {
            None
        } else {
            Some(Source::Sentinels {
                name: self.primary_name.clone(),
                at: places,
                auth: sentinel_auth,
            })
        };
        let reads = self.reads;
        let files = [&self.cacert, &self.cert, &self.key, &self.sni];
        if !tls && (self.insecure || files.iter().any(|file| file.is_some())) {
            return Err("--cacert, --cert, --key, --sni and --insecure are about TLS: say --tls, or rediss://.".into());
        }
        let tls = tls.then(|| ClientTlsOptions {
            common: TlsOptions {
                ca_cert_file: self.cacert,
                cert_file: self.cert,
                key_file: self.key,
                ..TlsOptions::default()
            },
            server_name: self.sni,
            peer: if self.insecure {
                Peer::Anyone
            } else {
                Peer::Trusted
            },
        });
        Ok(TargetPlan {
            servers,
            source,
            reads,
            protocol: self.protocol,
            embedded: self.embedded,
            resp3: self.resp3,
            tls,
        })
    }
}

impl TargetArguments {
    /// A server with the credentials that hold for all.
    fn server_at(&self, address: Address) -> ServerPlan {
        let bytes = |text: &Option<String>| text.clone().map(String::into_bytes);
        let (user, password) = (bytes(&self.user), bytes(&self.password));
        ServerPlan {
            address,
            auth: target::auth(user.as_deref(), password.as_deref()),
            db: self.db.into(),
        }
    }

    /// A server as `--endpoint` or `--uri` names it, and whether it speaks TLS.
    fn place(&self, text: &str) -> Result<(ServerPlan, bool), String> {
        // --uri is a URI even if it does not look like one; the reader says what is wrong with it.
        if self.uri.is_none() && !text.contains("://") {
            if text.starts_with(['/', '.']) {
                return Ok((self.server_at(Address::unix(text)), self.tls));
            }
            let wrong = || format!("--endpoint \"{text}\": not HOST:PORT, a path or a URI.");
            let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
            let host = without_brackets(host);
            let port = port.parse().map_err(|_| wrong())?;
            return Ok((self.server_at(Address::tcp(host, port)), self.tls));
        }
        let uri = Uri::parse(text)?;
        if !uri.path.is_empty() && uri.path.parse::<u32>().is_err() {
            return Err(format!("\"{text}\": /{} is no database.", uri.path));
        }
        let port = u16::try_from(uri.port.unwrap_or(6379));
        let port = port.map_err(|_| "Invalid server port.")?;
        let host = uri.host.unwrap_or_else(|| "127.0.0.1".into());
        let mut server = self.server_at(Address::tcp(host, port));
        if uri.password.is_some() {
            let user = uri.user.or(self.user.clone().map(String::into_bytes));
            server.auth = target::auth(user.as_deref(), uri.password.as_deref());
        }
        server.db = uri.db.unwrap_or(server.db);
        Ok((server, self.tls || uri.tls))
    }
}

/// An IPv6 address as it stands in front of a port.
fn without_brackets(host: &str) -> &str {
    let inside = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inside.unwrap_or(host)
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a span of time".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &[&str]) -> Result<RunPlan, String> {
        let words = ["redline bench", "run"].iter().chain(line);
        match Arguments::try_parse_from(words) {
            Ok(Arguments {
                command: Command::Run(run),
            }) => run.plan(),
            Ok(_) => panic!("another sub-command"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_parser_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn two_outputs_cannot_share_standard_output() {
        let both = plan(&["--command", "GET a", "--json", "-", "--html", "-"]);
        assert!(both.unwrap_err().starts_with("Only one of --json"));
        assert!(plan(&["--command", "GET a", "--json", "-", "--html", "x"]).is_ok());
    }

    #[test]
    fn weights_belong_to_commands_in_their_order() {
        let two = [
            "--command",
            "GET a",
            "--ratio",
            "9",
            "--command",
            "SET a b",
            "--ratio",
            "1",
        ];
        assert_eq!(plan(&two).unwrap().weights, [9, 1]);
        let colon = [
            "--command",
            "GET a",
            "--command",
            "SET a b",
            "--ratio",
            "3:4",
        ];
        assert_eq!(plan(&colon).unwrap().weights, [3, 4]);
        assert_eq!(plan(&["--command", "PING"]).unwrap().weights, [1]);
        let wrong = plan(&["--command", "PING", "--ratio", "1:2"]).unwrap_err();
        assert!(wrong.contains("2 weights"), "{wrong}");
    }

    #[test]
    fn a_run_lasts_ten_seconds_unless_it_is_told_otherwise() {
        let of = |line: &[&str]| {
            let line = [&["--command", "PING"], line].concat();
            plan(&line).unwrap().manner.duration
        };
        assert_eq!(of(&[]), Some(Duration::from_secs(10)));
        assert_eq!(of(&["-n", "5"]), None);
        assert_eq!(
            of(&["--duration", "0.25"]),
            Some(Duration::from_millis(250))
        );
        let patience = |line: &[&str]| {
            let line = [&["--command", "PING"], line].concat();
            plan(&line).unwrap().manner.patience()
        };
        assert_eq!(patience(&[]), None);
        assert_eq!(patience(&["-n", "5"]), Some(SILENCE_MAX));
        assert_eq!(
            patience(&["-n", "5", "--timeout", "90"]),
            Some(Duration::from_secs(90))
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused_in_words() {
        for (line, words) in [
            (
                &["--command", "GET {x}"][..],
                "--command \"GET {x}\": {x}: there is no such placeholder",
            ),
            (&["--command", "PING", "--load", "SET a b"], "one {seq:N}"),
            (
                &["--command", "PING", "--load", "SET {seq:5} {seq:5}"],
                "one {seq:N}",
            ),
            (&["--command", "PING", "-d", "x"], "--value-size"),
            (&["--command", "PING", "-c", "0"], "--connections is 1 to"),
            (&["--command", "PING", "--rps", "0"], "--rps"),
            (&["--command", "PING", "--rps", "nan"], "--rps"),
            (&["--command", "PING", "--duration=-1"], "span of time"),
            (&["--command", "PING", "--interval=0"], "0.001"),
            (&["--command", "PING", "--user", "bob"], "--password"),
            (&["--command", "PING", "--rps", "-1"], "--rps is more than"),
            (&["--command", "PING", "--warmup", "-1"], "span of time"),
            (&["--command", "PING", "--link-mbit", "0"], "--link-mbit"),
            (&["--command", "PING", "--hdr", "-"], "--hdr"),
            (&["--command", "PING", "--cacert", "f"], "say --tls"),
            (&["--command", "PING", "--scale", "2"], "for suites"),
            (
                &["--command", "PING", "-u", "redis://h/x"],
                "/x is no database",
            ),
            (
                &["--command", "PING", "-u", "http://x"],
                "Invalid URI scheme",
            ),
            (&[], "--command"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(words), "{line:?}: {error}");
        }
    }

    #[test]
    fn a_staircase_needs_an_objective() {
        let line = ["--command", "GET a", "--stairs", "100:2"];
        assert!(plan(&line).unwrap_err().contains("--objective"));
        let both = [&line[..], &["--objective", "p99=1ms"]].concat();
        assert!(plan(&both).is_ok());
        let rate = [&both[..], &["--rps", "5"]].concat();
        assert!(plan(&rate).unwrap_err().contains("--rps"));
    }

    #[test]
    fn memcached_is_asked_for_nothing_that_it_has_not() {
        let line = ["--protocol", "memcache_text", "--command", "GET a"];
        assert_eq!(plan(&line).unwrap().target.protocol, Protocol::MemcacheText);
        for more in [&["-a", "p"][..], &["--db", "1"], &["-3"], &["--cluster"]] {
            let error = plan(&[&line[..], more].concat()).unwrap_err();
            assert!(error.contains("memcache_text"), "{error}");
        }
        let command = ["--command", "GET {value}"];
        assert!(
            plan(&[&line[..2], &command].concat())
                .unwrap_err()
                .contains("stored")
        );
    }

    #[test]
    fn a_uri_says_everything_about_the_target() {
        let line = ["--command", "PING", "-u", "rediss://bob:p%20w@cache:7000/3"];
        let target = plan(&line).unwrap().target;
        let server = &target.servers[0];
        assert_eq!(server.address, Address::tcp("cache", 7000));
        assert_eq!(
            server.auth,
            [b"AUTH".to_vec(), b"bob".to_vec(), b"p w".to_vec()]
        );
        assert_eq!(server.db, 3);
        assert!(target.tls.is_some());
    }

    #[test]
    fn an_ipv6_address_may_stand_in_brackets() {
        let target = plan(&["--command", "PING", "-s", "[::1]"]).unwrap().target;
        assert_eq!(target.servers[0].address, Address::tcp("::1", 6379));
    }

    #[test]
    fn endpoints_are_places_paths_and_uris() {
        let line = ["--command", "PING", "-a", "all", "--endpoint", "h:1"];
        let more = [
            "--endpoint",
            "/tmp/s",
            "--endpoint",
            "redis://:own@[::1]:7/2",
        ];
        let servers = plan(&[&line[..], &more[..]].concat())
            .unwrap()
            .target
            .servers;
        let places: Vec<String> = servers.iter().map(|s| s.address.to_string()).collect();
        assert_eq!(places, ["h:1", "/tmp/s", "[::1]:7"]);
        assert_eq!(servers[1].auth[1], b"all");
        assert_eq!(servers[2].auth[1], b"own");
        assert_eq!((servers[0].db, servers[2].db), (0, 2));
        let mixed = [&line[..], &["--endpoint", "rediss://h:2"]].concat();
        assert!(plan(&mixed).unwrap_err().contains("all of them with TLS"));
        for wrong in ["h", "h:x", "h:70000"] {
            let line = ["--command", "PING", "--endpoint", wrong];
            assert!(plan(&line).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
        let db = ["--command", "PING", "--cluster", "--db", "1"];
        assert!(plan(&db).unwrap_err().contains("database 0"));
    }
}
