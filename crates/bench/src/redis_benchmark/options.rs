//! The command line: redis-benchmark's options, parsed as redis-benchmark parses them.
//!
//! Opens no socket and prints nothing: messages are returned as text with an exit code.
//!
//! The rules that differ from what a modern parser would do are deliberate, because scripts rely on
//! them: options match exactly (no `--opt=value`, no grouped short flags), `-h` is the host, and the
//! first argument that does not start with a dash begins a custom command that takes all the rest,
//! dashes included. A number that is none, or out of its range, is an error, where redis-benchmark
//! reads as much of it as is one.

use redline_net::Address;
use redline_net::tls::{ClientTlsOptions, Peer};
use redline_spec::nearest;

use crate::load::target::Uri;
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

/// The reason why an argument is not taken.
enum Refused {
    /// The text that it asks for, or an error with words of its own.
    Stop(Stop),
    /// The fault of it.
    Mistake(String),
}

impl From<Stop> for Refused {
    fn from(stop: Stop) -> Refused {
        Refused::Stop(stop)
    }
}

/// The result of parsing one argument.
enum Seen {
    Flag,
    Value,
    Command,
}

impl Parser {
    fn run(mut self, program: &str, args: &[Vec<u8>]) -> Result<Options, Stop> {
        let mut at = 0;
        while at < args.len() {
            let (argument, next) = (&args[at], args.get(at + 1).map(Vec::as_slice));
            let seen = self.one(program, argument, next).map_err(|why| match why {
                Refused::Stop(stop) => stop,
                Refused::Mistake(why) => {
                    Stop::failure(format!("{program}: {}: {why}", text(argument)))
                }
            })?;
            match seen {
                Seen::Flag => at += 1,
                Seen::Value => at += 2,
                Seen::Command => {
                    self.options.command = args[at..].to_vec();
                    break;
                }
            }
        }
        self.finish()
    }

    fn one(
        &mut self,
        program: &str,
        argument: &[u8],
        next: Option<&[u8]>,
    ) -> Result<Seen, Refused> {
        if argument.first() != Some(&b'-') {
            return Ok(Seen::Command);
        }
        let unknown = || Refused::Mistake(no_such_option(program, &text(argument)));
        let name = std::str::from_utf8(argument).map_err(|_| unknown())?;
        if self.flag(program, name)? {
            return Ok(Seen::Flag);
        }
        let missing = || {
            let is_known = usage::options().any(|known| known == name);
            match is_known {
                true => Refused::Mistake(format!("its value is missing. See {program} --help")),
                false => unknown(),
            }
        };
        let value = match next {
            // A dash needs a digit after it: `-r -x` is a forgotten argument.
            Some([b'-', rest @ ..])
                if name == "-r" && !rest.first().is_some_and(u8::is_ascii_digit) =>
            {
                return Err(missing());
            }
            next => next.ok_or_else(missing)?,
        };
        match self.value(name, value)? {
            true => Ok(Seen::Value),
            false => Err(unknown()),
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

    /// Parses an option with an argument. Returns false if `name` is none of them.
    fn value(&mut self, name: &str, value: &[u8]) -> Result<bool, Refused> {
        let within = |least, most| number(value, least, most).map_err(Refused::Mistake);
        let o = &mut self.options;
        match name {
            "-h" => self.host = Some(text(value)),
            "-p" => self.port = Some(within(0, 65_535)?),
            "-s" => self.socket = Some(text(value).into()),
            "-a" => o.password = Some(value.to_vec()),
            "--user" => o.user = Some(value.to_vec()),
            "-u" => self.uri(value)?,
            "-c" => o.clients = within(1, i64::from(u32::MAX))? as usize,
            "-n" => o.requests = within(0, i64::MAX)? as u64,
            "-d" => o.payload_bytes = within(1, PAYLOAD_BYTES_MAX)? as usize,
            "-P" => o.pipeline = within(1, i64::MAX)? as usize,
            "-k" => o.keep_alive = within(i64::MIN, i64::MAX)? != 0,
            "-r" => o.keyspace = Some(within(0, i64::MAX)? as u64),
            "--threads" => {
                let threads = within(0, i64::MAX)?;
                if threads > THREADS_MAX {
                    o.warnings.push(format!(
                        "WARNING: Too many threads, limiting threads to {THREADS_MAX}."
                    ));
                }
                o.threads = threads.min(THREADS_MAX) as usize;
            }
            "--dbnum" => o.db = within(i64::MIN, i64::MAX)?,
            "--precision" => o.precision = Some(within(0, PRECISION_MAX)? as u8),
            "--sni" => o.tls_options.server_name = Some(text(value)),
            "--cacert" => o.tls_options.common.ca_cert_file = Some(text(value)),
            "--cacertdir" => o.tls_options.common.ca_cert_dir = Some(text(value)),
            "--cert" => o.tls_options.common.cert_file = Some(text(value)),
            "--key" => o.tls_options.common.key_file = Some(text(value)),
            "--tls-ciphers" => o.tls_options.common.ciphers = text(value),
            "--tls-ciphersuites" => o.tls_options.common.ciphersuites = text(value),
            "--seed" => o.seed = Some(within(i64::MIN, i64::MAX)? as u64),
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

/// Reads a whole number; `k` and `m` behind it are thousands and millions.
fn number(value: &[u8], least: i64, most: i64) -> Result<i64, String> {
    let shown = text(value);
    let (digits, factor) = match value.split_last() {
        Some((b'k' | b'K', digits)) => (digits, 1_000),
        Some((b'm' | b'M', digits)) => (digits, 1_000_000),
        _ => (value, 1),
    };
    let parsed = std::str::from_utf8(digits).ok();
    let parsed = parsed.and_then(|digits| digits.trim().parse::<i128>().ok());
    let Some(number) = parsed.map(|number| number.saturating_mul(factor)) else {
        return Err(format!("\"{shown}\" is no number"));
    };
    if number < i128::from(least) {
        return Err(format!("\"{shown}\" is below {least}"));
    }
    if number > i128::from(most) {
        return Err(format!("\"{shown}\" is above {most}"));
    }
    Ok(number as i64)
}

/// Returns the error for an unknown option, with the one that may have been meant.
fn no_such_option(program: &str, name: &str) -> String {
    // Of one letter each is as near as any other.
    let meant = nearest(name, usage::options().filter(|_| name.len() > 2));
    let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?"));
    format!(
        "no such option{} See {program} --help",
        meant.unwrap_or_else(|| ".".into())
    )
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
    fn numbers_are_whole_and_may_be_thousands() {
        for (input, expected) in [
            ("12", 12),
            (" 12", 12),
            ("+7", 7),
            ("10k", 10_000),
            ("2M", 2_000_000),
        ] {
            assert_eq!(
                number(input.as_bytes(), 0, 1 << 40),
                Ok(expected),
                "{input:?}"
            );
        }
        for wrong in ["1e6", "x", "", "k", "1kk", "0x10", "1.5"] {
            assert!(number(wrong.as_bytes(), 0, 9).is_err(), "{wrong:?}");
        }
        let most = "99999999999999999999999999999999999999m";
        assert!(number(most.as_bytes(), 0, 9).is_err());
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        for line in [
            ["-c", "0"],
            ["-n", "-5"],
            ["-d", "0"],
            ["-d", "2000000000"],
            ["-P", "-1"],
            ["--threads", "-2"],
            ["--precision", "9"],
        ] {
            let stop = stopped(&line);
            assert_eq!((stop.code, &*stop.stdout), (1, ""), "{line:?}");
            let start = format!("redline bench: {}: \"{}\" is ", line[0], line[1]);
            assert!(stop.stderr.starts_with(&start), "{}", stop.stderr);
        }
        let o = options(&["--threads", "1000"]);
        assert_eq!(o.threads, 500);
        assert_eq!(
            o.warnings,
            ["WARNING: Too many threads, limiting threads to 500."]
        );
    }

    #[test]
    fn an_unknown_or_incomplete_option_is_one_line() {
        for (line, said) in [
            (&["--nope"][..], "--nope: no such option. "),
            (&["-n"], "-n: its value is missing. "),
            (&["-u"], "-u: its value is missing. "),
            (&["-r"], "-r: its value is missing. "),
            (&["-r", "-x"], "-r: its value is missing. "),
            (&["-r", "-"], "-r: its value is missing. "),
            (
                &["--csv=1"],
                "--csv=1: no such option; did you mean \"--csv\"? ",
            ),
            (&["-qc", "5"], "-qc: no such option"),
        ] {
            let stop = stopped(line);
            assert_eq!((stop.code, &*stop.stdout), (1, ""), "{line:?}");
            let start = format!("redline bench: {said}");
            assert!(stop.stderr.starts_with(&start), "{line:?}: {}", stop.stderr);
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
            assert!(stopped(&["-p", port]).stderr.contains(port));
        }
        let stop = stopped(&["-u", "redis://h:99999"]);
        assert_eq!(stop.stderr, "Invalid server port.\n");
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
