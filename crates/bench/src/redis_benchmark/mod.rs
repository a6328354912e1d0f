//! redis-benchmark's command line, tests and output: `redline bench` without a sub-command.
//!
//! | file | holds |
//! |---|---|
//! | `options`, `usage` | the command line |
//! | `compat`, `suite` | tests and output of each release of redis-benchmark |
//! | `session` | one invocation from its first connection to its exit code |
//! | `closed`, `batch` | its load: batches |
//! | `masters` | the masters of `--cluster`, and batches for each |
//! | `report` | the text of results |
//! | `idle` | `-I` |

mod batch;
mod closed;
mod compat;
mod idle;
mod masters;
mod options;
mod report;
mod session;
mod suite;
mod usage;

pub use options::{Options, Output};

use crate::{StartEmbedded, Streams};

/// A command line of redis-benchmark, and the words of each test that it asks for; `None` stands for the payload.
pub struct Parsed {
    /// The options.
    pub options: Options,
    /// Words of the tests, or of the command of its own.
    pub tests: Vec<Vec<Option<String>>>,
}

/// Parses a command line without running it.
pub fn parse(args: &[String]) -> Result<Parsed, String> {
    let bytes: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    let options = options::parse("redis-benchmark", &bytes).map_err(|stop| {
        let text = format!("{}{}", stop.stderr, stop.stdout);
        text.lines().next().unwrap_or_default().to_owned()
    })?;
    if !options.command.is_empty() {
        let words = options.command.iter();
        let words = words.map(|word| Some(String::from_utf8_lossy(word).into_owned()));
        let tests = vec![words.collect()];
        return Ok(Parsed { options, tests });
    }
    let wanted = options.tests.as_deref().unwrap_or_default();
    if let Some(unknown) = suite::unknown(options.compat, wanted).next() {
        return Err(format!("redis-benchmark: -t: there is no test {unknown}"));
    }
    let tests = suite::select(options.compat, options.tests.as_deref());
    let (random, tagged) = (options.keyspace.is_some(), options.cluster);
    let tests = tests.map(|test| test.words(random, tagged)).collect();
    Ok(Parsed { options, tests })
}

/// Adds redis-benchmark's options to a description.
pub fn describe(command: clap::Command) -> clap::Command {
    let mut command = command.disable_help_flag(true).arg(
        clap::Arg::new("words")
            .value_name("COMMAND ARGS")
            .num_args(0..)
            .help("A command of your own, sent as it is; without one the suite is run"),
    );
    for option in usage::described() {
        let mut arg = clap::Arg::new(option.name)
            .help(option.text)
            .help_heading("redis-benchmark's options");
        arg = match option.name.strip_prefix("--") {
            Some(long) => arg.long(long),
            None => arg.short(option.name.chars().nth(1).unwrap_or('?')),
        };
        arg = match option.value {
            Some(value) => arg.value_name(value).num_args(1),
            None => arg.num_args(0),
        };
        if matches!(option.value, Some("file" | "dir" | "socket")) {
            arg = arg.value_hint(clap::ValueHint::AnyPath);
        }
        command = command.arg(arg);
    }
    command
}

/// Returns true if the program was called as redis-benchmark, or as Valkey's copy of it: then there are no sub-commands.
pub fn is_called(program: &str) -> bool {
    ["redis-benchmark", "valkey-benchmark"].contains(&program)
}

/// Runs what the arguments after `program` ask for; returns the exit code.
pub fn run(
    program: &str,
    args: &[Vec<u8>],
    streams: Streams<'_>,
    start: Option<StartEmbedded<'_>>,
) -> u8 {
    match options::parse(program, args) {
        Ok(options) => session::run(options, streams, start),
        Err(stop) => {
            // A closed stream cannot report its own error.
            let _ = streams.stdout.write_all(stop.stdout.as_bytes());
            let _ = streams.stdout.flush();
            let _ = streams.stderr.write_all(stop.stderr.as_bytes());
            stop.code
        }
    }
}
