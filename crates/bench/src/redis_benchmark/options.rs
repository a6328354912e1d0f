//! The command line: redis-benchmark's options, parsed as redis-benchmark parses them.
//!
//! Opens no socket and prints nothing: messages are returned as text with an exit code.
//!
//! The rules that differ from what a modern parser would do are deliberate, because scripts rely on
//! them: options match exactly (no `--opt=value`, no grouped short flags), `-h` is the host, numbers
//! are read as C's `atoi` reads them, and the first argument that does not start with a dash begins
//! a custom command that takes all the rest, dashes included.

use redline_net::Address;
use redline_net::tls::{ClientTlsOptions, Peer};

use crate::load::target::{Uri, atoi};
use crate::redis_benchmark::compat::Compat;
use crate::redis_benchmark::usage;

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The long form, with latency distributions.
    Normal,
    /// `-q`: one line per test.
    Quiet,
    /// `--csv`.
    Csv,
}

/// The parsed command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server to load, unless `embedded`.
    pub server: Address,
    /// `--embedded`: start the built-in server and load that.
    pub embedded: bool,
    /// `-a`, or the password of `-u`.
    pub password: Option<Vec<u8>>,
    /// `--user`, or the user of `-u`.
    pub user: Option<Vec<u8>>,
    /// `--dbnum`, or the path of `-u`; 0 sends no SELECT.
    pub db: i64,
    /// `-3`.
    pub resp3: bool,
    /// `--tls`, or the scheme `rediss` of `-u`.
    pub tls: bool,
    /// Settings of TLS from the other options; without `tls` they have no effect.
    pub tls_options: ClientTlsOptions,
    /// `--cluster`: the server is a node of a cluster.
    pub cluster: bool,
    /// `--enable-tracking`.
    pub tracking: bool,
    /// `-c`, at least 1.
    pub clients: usize,
    /// `-n`, at least 0.
    pub requests: u64,
    /// `-d`, 1 byte to 1 GiB.
    pub payload_bytes: usize,
    /// `-P`, at least 1.
    pub pipeline: usize,
    /// `-r`: number of different values of `__rand_int__`; `None` leaves the text as it is.
    pub keyspace: Option<u64>,
    /// `--threads`, 0 if not given.
    pub threads: usize,
    /// `-k`, false reconnects after every batch.
    pub keep_alive: bool,
    /// `--precision`, clamped to 0..=4.
    pub precision: Option<u8>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `-q`, `--csv` or neither.
    pub output: Output,
    /// `-l`.
    pub forever: bool,
    /// `-I`.
    pub idle: bool,
    /// `-x`.
    pub stdin_argument: bool,
    /// `-t`, lower-cased.
    pub tests: Option<Vec<String>>,
    /// `--compat`.
    pub compat: Compat,
    /// The arguments after the options.
    pub command: Vec<Vec<u8>>,
    /// Printed on standard error before anything runs.
    pub warnings: Vec<String>,
}

/// The reason why a command line does not lead to a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Stop {
    /// Exit code.
    pub code: u8,
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
}

impl Stop {
    fn failure(line: impl Into<String>) -> Stop {
        Stop {
            code: 1,
            stdout: String::new(),
            stderr: line.into() + "\n",
        }
    }
}

const PAYLOAD_BYTES_MAX: i64 = 1 << 30;
const THREADS_MAX: i64 = 500;
const PRECISION_DEFAULT: i64 = 3;
const PRECISION_MAX: i64 = 4;

impl Default for Options {
    fn default() -> Options {
        Options {
            server: Address::tcp("127.0.0.1", 6379),
            embedded: false,
            password: None,
            user: None,
            db: 0,
            resp3: false,
            tls: false,
            tls_options: ClientTlsOptions::default(),
            cluster: false,
            tracking: false,
            clients: 50,
            requests: 100_000,
            payload_bytes: 3,
            pipeline: 1,
            keyspace: None,
            threads: 0,
            keep_alive: true,
            precision: None,
            seed: None,
            output: Output::Normal,
            forever: false,
            idle: false,
            stdin_argument: false,
            tests: None,
            compat: Compat::default(),
            command: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Parses the arguments after the program's name. `program` is the name that the user called, for the usage text.
pub fn parse(program: &str, args: &[Vec<u8>]) -> Result<Options, Stop> {
    Parser {
        options: Options::default(),
        host: None,
        port: None,
        socket: None,
        quiet: false,
        csv: false,
    }
    .run(program, args)
}

struct Parser {
    options: Options,
    host: Option<String>,
    port: Option<i64>,
    socket: Option<std::path::PathBuf>,
    quiet: bool,
    csv: bool,
}

/// The result of parsing one argument.
enum Seen {
    Flag,
    Value,
    Command,
    Invalid,
    /// The value after it is invalid; the error names it.
    InvalidValue,
}

impl Parser {
    fn run(mut self, program: &str, args: &[Vec<u8>]) -> Result<Options, Stop> {
        let mut at = 0;
        while at < args.len() {
            match self.one(program, &args[at], args.get(at + 1).map(Vec::as_slice))? {
                Seen::Flag => at += 1,
                Seen::Value => at += 2,
                Seen::Command => {
                    self.options.command = args[at..].to_vec();
                    break;
                }
                seen @ (Seen::Invalid | Seen::InvalidValue) => {
                    let behind = usize::from(matches!(seen, Seen::InvalidValue));
                    let name = String::from_utf8_lossy(&args[at + behind]);
                    let stdout = format!(
                        "Invalid option \"{name}\" or option argument missing\n\n{}",
                        usage::text(program)
                    );
                    return Err(Stop {
                        code: 1,
                        stdout,
                        stderr: String::new(),
                    });
                }
            }
        }
        self.finish()
    }

    fn one(&mut self, program: &str, argument: &[u8], next: Option<&[u8]>) -> Result<Seen, Stop> {
        if argument.first() != Some(&b'-') {
            return Ok(Seen::Command);
        }
        let Ok(name) = std::str::from_utf8(argument) else {
            return Ok(Seen::Invalid);
        };
        if self.flag(program, name)? {
            return Ok(Seen::Flag);
        }
        match next {
            // A dash needs a digit after it: `-r -x` is a forgotten argument.
            Some([b'-', rest @ ..])
                if name == "-r" && !rest.first().is_some_and(u8::is_ascii_digit) =>
            {
                Ok(Seen::InvalidValue)
            }
            Some(value) if self.value(name, value)? => Ok(Seen::Value),
            _ => Ok(Seen::Invalid),
        }
    }

    /// Parses an option without an argument. Returns false if `name` is none of them.
    fn flag(&mut self, program: &str, name: &str) -> Result<bool, Stop> {
        let o = &mut self.options;
        match name {
            "-q" => self.quiet = true,
            "--csv" => self.csv = true,
            "-l" => o.forever = true,
            "-I" => o.idle = true,
            "-x" => o.stdin_argument = true,
            "-3" => o.resp3 = true,
            "-e" => o
                .warnings
                .push("WARNING: -e option has no effect: every error reply ends the run.".into()),
            "--enable-tracking" => o.tracking = true,
            "--embedded" => o.embedded = true,
            "--help" => {
                return Err(Stop {
                    code: 0,
                    stdout: usage::text(program),
                    stderr: String::new(),
                });
            }
            "-v" | "--version" => {
                return Err(Stop {
                    code: 0,
                    stdout: usage::version(o.compat),
                    stderr: String::new(),
                });
            }
            "--tls" => o.tls = true,
            "--insecure" => o.tls_options.peer = Peer::Anyone,
            "--cluster" => o.cluster = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Parses an option with an argument. Returns false if `name` is none of them or cannot take this value.
    fn value(&mut self, name: &str, value: &[u8]) -> Result<bool, Stop> {
        let number = || atoi(value);
        let o = &mut self.options;
        match name {
            "-h" => self.host = Some(text(value)),
            "-p" => self.port = Some(number()),
            "-s" => self.socket = Some(text(value).into()),
            "-a" => o.password = Some(value.to_vec()),
            "--user" => o.user = Some(value.to_vec()),
            "-u" => self.uri(value)?,
            "-c" => o.clients = number().max(1) as usize,
            "-n" => o.requests = number().max(0) as u64,
            "-d" => o.payload_bytes = number().clamp(1, PAYLOAD_BYTES_MAX) as usize,
            "-P" => o.pipeline = number().max(1) as usize,
            "-k" => o.keep_alive = number() != 0,
            "-r" => o.keyspace = Some(number().max(0) as u64),
            "--threads" => {
                if number() > THREADS_MAX {
                    o.warnings.push(format!(
                        "WARNING: Too many threads, limiting threads to {THREADS_MAX}."
                    ));
                }
                o.threads = number().clamp(0, THREADS_MAX) as usize;
            }
            "--dbnum" => o.db = number(),
            "--precision" => {
                let digits = if number() < 0 {
                    PRECISION_DEFAULT
                } else {
                    number().min(PRECISION_MAX)
                };
                o.precision = Some(digits as u8);
            }
            "--sni" => o.tls_options.server_name = Some(text(value)),
            "--cacert" => o.tls_options.common.ca_cert_file = Some(text(value)),
            "--cacertdir" => o.tls_options.common.ca_cert_dir = Some(text(value)),
            "--cert" => o.tls_options.common.cert_file = Some(text(value)),
            "--key" => o.tls_options.common.key_file = Some(text(value)),
            "--tls-ciphers" => o.tls_options.common.ciphers = text(value),
            "--tls-ciphersuites" => o.tls_options.common.ciphersuites = text(value),
            "--seed" => o.seed = Some(number() as u64),
            "-t" => {
                o.tests = Some(
                    text(value)
                        .to_ascii_lowercase()
                        .split(',')
                        .map(str::to_owned)
                        .collect(),
                )
            }
            "--compat" => {
                let asked = text(value);
                o.compat = Compat::from_name(&asked).ok_or_else(|| {
                    Stop::failure(format!(
                        "Invalid --compat \"{asked}\": it must be one of {}.",
                        Compat::names()
                    ))
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn uri(&mut self, uri: &[u8]) -> Result<(), Stop> {
        let uri = Uri::parse(&text(uri)).map_err(Stop::failure)?;
        if let Some(user) = uri.user {
            self.options.user = Some(user);
        }
        if let Some(password) = uri.password {
            self.options.password = Some(password);
        }
        if let Some(db) = uri.db {
            self.options.db = db;
        }
        self.options.tls |= uri.tls;
        self.host = uri.host.or(self.host.take());
        self.port = uri.port.or(self.port.take());
        Ok(())
    }

    fn finish(mut self) -> Result<Options, Stop> {
        let o = &mut self.options;
        if o.embedded && (self.host.is_some() || self.port.is_some() || self.socket.is_some()) {
            return Err(Stop::failure(
                "--embedded starts a server of its own: it does not go with -h, -p, -s or a host in -u.",
            ));
        }
        if o.embedded && o.cluster {
            return Err(Stop::failure(
                "--embedded starts a single server: it does not go with --cluster.",
            ));
        }
        if o.embedded && o.tls {
            return Err(Stop::failure(
                "--embedded is reached without TLS: it does not go with --tls.",
            ));
        }
        let port = u16::try_from(self.port.unwrap_or(6379))
            .map_err(|_| Stop::failure("Invalid server port."))?;
        o.server = match self.socket {
            Some(path) => Address::unix(path),
            None => Address::tcp(self.host.as_deref().unwrap_or("127.0.0.1"), port),
        };
        o.output = match (self.csv, self.quiet) {
            (true, _) => Output::Csv,
            (false, true) => Output::Quiet,
            (false, false) => Output::Normal,
        };
        if !o.keep_alive {
            o.warnings.push(
                "WARNING: Keepalive disabled. Each batch takes a new port: with many requests, allow reuse \
                 first ('echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse' on Linux, \
                 'sudo sysctl -w net.inet.tcp.msl=1000' on macOS)."
                    .into(),
            );
        }
        if o.tests.is_some() && !o.command.is_empty() {
            o.warnings.push("WARNING: Option -t is ignored.".into());
        }
        Ok(self.options)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<Options, Stop> {
        let args: Vec<Vec<u8>> = line.iter().map(|a| a.as_bytes().to_vec()).collect();
        parse("redline bench", &args)
    }

    fn options(line: &[&str]) -> Options {
        parsed(line).expect("a valid command line")
    }

    fn stopped(line: &[&str]) -> Stop {
        parsed(line).expect_err("a command line that does not run")
    }

    #[test]
    fn defaults_are_those_of_redis_benchmark() {
        let o = options(&[]);
        assert_eq!(o.server, Address::tcp("127.0.0.1", 6379));
        assert_eq!(
            (
                o.clients,
                o.requests,
                o.payload_bytes,
                o.pipeline,
                o.threads
            ),
            (50, 100_000, 3, 1, 0)
        );
        assert!(o.keep_alive && o.keyspace.is_none() && o.tests.is_none() && o.command.is_empty());
    }

    #[test]
    fn the_command_takes_everything_after_the_first_word() {
        let o = options(&["-n", "10", "-q", "set", "-x", "--csv", "-n"]);
        assert_eq!(o.command, [&b"set"[..], b"-x", b"--csv", b"-n"]);
        assert_eq!(o.output, Output::Quiet);
        assert_eq!(o.requests, 10);
    }

    #[test]
    fn numbers_are_read_as_atoi_reads_them() {
        for (input, expected) in [
            ("12", 12),
            (" 12", 12),
            ("+7", 7),
            ("1e6", 1),
            ("x", 0),
            ("", 0),
            ("-5", -5),
            ("99999999999999999999", i64::MAX),
        ] {
            assert_eq!(atoi(input.as_bytes()), expected, "{input:?}");
        }
    }

    #[test]
    fn numbers_are_clamped() {
        let o = options(&[
            "-c",
            "0",
            "-n",
            "-5",
            "-d",
            "0",
            "-P",
            "-1",
            "--threads",
            "-2",
            "--precision",
            "9",
            "-r",
            "-1",
        ]);
        assert_eq!(
            (
                o.clients,
                o.requests,
                o.payload_bytes,
                o.pipeline,
                o.threads
            ),
            (1, 0, 1, 1, 0)
        );
        assert_eq!((o.precision, o.keyspace), (Some(4), Some(0)));
        assert_eq!(options(&["-d", "2000000000"]).payload_bytes, 1 << 30);
        let o = options(&["--threads", "1000"]);
        assert_eq!(o.threads, 500);
        assert_eq!(
            o.warnings,
            ["WARNING: Too many threads, limiting threads to 500."]
        );
    }

    #[test]
    fn an_unknown_or_incomplete_option_prints_the_usage_on_stdout() {
        for (line, named) in [
            (&["--nope"][..], "--nope"),
            (&["-n"], "-n"),
            (&["-u"], "-u"),
            (&["-r"], "-r"),
            (&["-r", "-x"], "-x"),
            (&["-r", "-"], "-"),
            (&["--csv=1"], "--csv=1"),
            (&["-qc", "5"], "-qc"),
        ] {
            let stop = stopped(line);
            assert_eq!(stop.code, 1);
            let first = format!("Invalid option \"{named}\" or option argument missing\n\nUsage: ");
            assert!(stop.stdout.starts_with(&first), "{line:?}: {}", stop.stdout);
            assert!(stop.stderr.is_empty());
        }
        assert_eq!(stopped(&["--help"]).code, 0);
    }

    #[test]
    fn a_cluster_is_not_embedded() {
        assert!(options(&["--cluster"]).cluster);
        let stop = stopped(&["--cluster", "--embedded"]);
        assert_eq!((stop.code, stop.stdout.as_str()), (1, ""));
        assert!(stop.stderr.contains("--cluster"));
    }

    #[test]
    fn tls_is_asked_for_and_then_described() {
        let o = options(&["--cacert", "ca", "--insecure"]);
        assert!(!o.tls, "without --tls the others have no effect");
        let o = options(&[
            "--tls",
            "--sni",
            "name",
            "--cacert",
            "ca",
            "--cacertdir",
            "dir",
            "--cert",
            "c",
            "--key",
            "k",
            "--tls-ciphers",
            "HIGH",
            "--tls-ciphersuites",
            "S",
        ]);
        let some = |text: &str| Some(text.to_owned());
        assert!(o.tls);
        assert_eq!(o.tls_options.server_name, some("name"));
        assert_eq!(o.tls_options.peer, Peer::Trusted);
        let common = o.tls_options.common;
        assert_eq!(
            [
                common.ca_cert_file,
                common.ca_cert_dir,
                common.cert_file,
                common.key_file
            ],
            [some("ca"), some("dir"), some("c"), some("k")]
        );
        assert_eq!(
            (&common.ciphers[..], &common.ciphersuites[..]),
            ("HIGH", "S")
        );
        let o = options(&["-u", "rediss://user:pw@h:7/2"]);
        assert!(o.tls);
        assert_eq!((o.server, o.db), (Address::tcp("h", 7), 2));
        assert!(!options(&["-u", "redis://h"]).tls);
        for lonely in ["--sni", "--cacert", "--tls-ciphers"] {
            assert_eq!(stopped(&["--tls", lonely]).code, 1);
        }
        assert!(stopped(&["--embedded", "--tls"]).stderr.contains("--tls"));
    }

    #[test]
    fn csv_wins_over_quiet() {
        assert_eq!(options(&["-q", "--csv"]).output, Output::Csv);
    }

    #[test]
    fn test_names_are_lower_cased_and_not_trimmed() {
        let o = options(&["-t", "PING_INLINE,Get, set"]);
        assert_eq!(o.tests.unwrap(), ["ping_inline", "get", " set"]);
        assert_eq!(
            options(&["-t", "get", "ping"]).warnings,
            ["WARNING: Option -t is ignored."]
        );
    }

    #[test]
    fn ports_outside_the_range_are_refused() {
        for port in ["99999", "-1"] {
            assert_eq!(stopped(&["-p", port]).stderr, "Invalid server port.\n");
        }
    }

    #[test]
    fn a_uri_sets_what_it_names_and_no_more() {
        let o = options(&["-p", "7", "-u", "REDIS://al%69ce:p%40ss@example.org/3"]);
        assert_eq!(o.server, Address::tcp("example.org", 7));
        assert_eq!(
            (o.user.as_deref(), o.password.as_deref()),
            (Some(&b"alice"[..]), Some(&b"p@ss"[..]))
        );
        assert_eq!(o.db, 3);
        let o = options(&["-u", "redis://secret@[::1]:7000"]);
        assert_eq!(o.server, Address::tcp("::1", 7000));
        assert_eq!(
            (o.user, o.password.as_deref()),
            (None, Some(&b"secret"[..]))
        );
        let o = options(&["-u", "valkeys://:secret@h"]);
        assert_eq!((o.user, o.password), (None, Some(b"secret".to_vec())));
        assert!(o.tls);
        assert_eq!(stopped(&["-u", "http://x"]).stderr, "Invalid URI scheme\n");
        for (credentials, text) in [
            ("a%", "Incomplete URI encoding\n"),
            ("a%4", "Illegal character in URI encoding\n"),
            ("a%zz", "Illegal character in URI encoding\n"),
        ] {
            let uri = format!("redis://{credentials}@h");
            assert_eq!(stopped(&["-u", &uri]).stderr, text);
        }
    }

    #[test]
    fn the_socket_overrides_host_and_port() {
        let o = options(&["-h", "x", "-p", "1", "-s", "/tmp/s"]);
        assert_eq!(o.server, Address::unix("/tmp/s"));
    }

    #[test]
    fn embedded_excludes_another_server() {
        assert!(options(&["--embedded"]).embedded);
        assert!(
            stopped(&["--embedded", "-p", "1"])
                .stderr
                .starts_with("--embedded")
        );
    }

    #[test]
    fn compat_names() {
        assert_eq!(options(&["--compat", "redis-5"]).compat, Compat::Redis5);
        assert!(stopped(&["--compat", "x"]).stderr.contains("redis-7.0"));
    }
}
