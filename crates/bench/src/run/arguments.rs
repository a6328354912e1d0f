//! The command line of the sub-commands: `redline bench run`.
//!
//! Opens no socket. What it leaves is checked: a [`RunPlan`] can be run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use redline_net::Address;
use redline_net::tls::{ClientTlsOptions, Peer, TlsOptions};

use super::stairs::{Climb, Objective};
use crate::target::{self, Uri};
use crate::workload::keys::Shape;
use crate::workload::template::Template;
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
    /// Makes a page with charts of results that --json has left, several side by side if wanted
    Report(ReportArguments),
}

/// The options of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    /// Results of `redline bench run --json`
    #[arg(required = true, value_name = "FILE")]
    pub results: Vec<PathBuf>,
    /// The page, one HTML file that needs no other (- for standard output)
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    pub output: PathBuf,
}

/// The options of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct RunArguments {
    /// A file that describes many runs, with published figures to put beside the measured ones; options win over its own
    #[arg(value_name = "SUITE", conflicts_with_all = ["command", "load", "stairs", "csv", "hdr", "html"])]
    pub suite: Option<PathBuf>,
    /// Multiplies a suite's requests and keys
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
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
    /// Starts the built-in server in this process and loads that
    #[arg(long, conflicts_with_all = ["server", "port", "unix_socket", "uri", "tls"])]
    pub embedded: bool,
    /// Password
    #[arg(short = 'a', long)]
    pub password: Option<String>,
    /// Name of an ACL user, with --password
    #[arg(long, requires = "password")]
    pub user: Option<String>,
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
    #[arg(long, value_name = "RATE")]
    pub rps: Option<f64>,
    /// Open loop at one rate after the other, each FACTOR (1.5) times the last, until --objective breaks
    #[arg(long, value_name = "RATE[:FACTOR]", value_parser = Climb::parse, requires = "objective",
          conflicts_with_all = ["rps", "csv", "hdr", "requests"])]
    pub stairs: Option<Climb>,
    /// What --stairs looks for the limit of: p99=2ms, p99.9=500us, mean, p50, p90, max
    #[arg(long, value_name = "FIGURE=TIME", value_parser = Objective::parse, requires = "stairs")]
    pub objective: Option<Objective>,
    /// Seconds that are measured [default: 10, unless --requests is given]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Seconds before them that are not
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = seconds)]
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
}

/// Whom to load.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// The server; of no meaning when it is embedded.
    pub address: Address,
    /// Start one in this process.
    pub embedded: bool,
    /// Arguments of AUTH, or none.
    pub auth: Vec<Vec<u8>>,
    /// Database.
    pub db: i64,
    /// RESP3.
    pub resp3: bool,
    /// TLS, as told.
    pub tls: Option<ClientTlsOptions>,
}

const DURATION_DEFAULT: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: usize = 1_000_000;
const PIPELINE_MAX: usize = 1_000_000;
const THREADS_MAX: usize = 500;
const RATE_MAX: f64 = 1e9;
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
        let sizes = Sizes::parse(&self.workload.value_size)
            .map_err(|reason| format!("--value-size: {reason}"))?;
        let template = |option: &str, text: &String| {
            Template::parse(text, &sizes).map_err(|reason| format!("{option} \"{text}\": {reason}"))
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
        if self.manner.duration.is_none() && self.manner.requests.is_none() {
            self.manner.duration = Some(DURATION_DEFAULT);
        }
        if self.output.interval.is_zero() {
            return Err("--interval is more than 0 seconds.".into());
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
            return Err("--rps is more than 0 requests a second, and at most 1000000000.".into());
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
    fn plan(self) -> Result<TargetPlan, String> {
        let (mut user, mut password) = (
            self.user.map(String::into_bytes),
            self.password.map(String::into_bytes),
        );
        let (mut address, mut tls, mut db) = match self.unix_socket {
            Some(path) => (Address::unix(path), self.tls, self.db.into()),
            None => (
                Address::tcp(self.server, self.port),
                self.tls,
                self.db.into(),
            ),
        };
        if let Some(uri) = &self.uri {
            let uri = Uri::parse(uri)?;
            let port = u16::try_from(uri.port.unwrap_or(6379));
            let port = port.map_err(|_| "Invalid server port.")?;
            address = Address::tcp(uri.host.unwrap_or_else(|| "127.0.0.1".into()), port);
            tls |= uri.tls;
            db = uri.db.unwrap_or(db);
            user = uri.user.or(user);
            password = uri.password.or(password);
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
            address,
            embedded: self.embedded,
            auth: target::auth(user.as_deref(), password.as_deref()),
            db,
            resp3: self.resp3,
            tls,
        })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
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
    }

    #[test]
    fn what_cannot_be_run_is_refused_in_words() {
        for (line, words) in [
            (
                &["--command", "GET {x}"][..],
                "--command \"GET {x}\": {x}: not known",
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
            (&["--command", "PING", "--user", "bob"], "--password"),
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
    fn a_uri_says_everything_about_the_target() {
        let line = ["--command", "PING", "-u", "rediss://bob:p%20w@cache:7000/3"];
        let target = plan(&line).unwrap().target;
        assert_eq!(target.address, Address::tcp("cache", 7000));
        assert_eq!(
            target.auth,
            [b"AUTH".to_vec(), b"bob".to_vec(), b"p w".to_vec()]
        );
        assert_eq!(target.db, 3);
        assert!(target.tls.is_some());
    }
}
