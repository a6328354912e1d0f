//! Workloads, load engine, measurement, reports: `redline bench`, with redis-benchmark's command line and one of its own.
//!
//! Must not know the keyspace or the server: the caller passes in the server of `--embedded`.
//!
//! | folder | holds |
//! |---|---|
//! | `load/` | the engine and one measured run; knows none of the others |
//! | `output/` | results as text, pages and files; knows `load` |
//! | `redis_benchmark/` | redis-benchmark's command line, tests and output |
//! | `run/` | `redline bench run` |
//! | `suites/` | `run` with a suite: published benchmarks as files, and their tables |
//! | `compare/` | `redline bench compare`: runs in pairs, and the confidence of a difference |
//! | `failover/` | `redline bench failover`: numbered values while a primary fails |
//! | `convert/` | command lines of other load generators as options of `run` |
//! | `command_line/` | the sub-commands, and `report`, which shows results of all of them |
//!
//! The sub-commands and redis-benchmark's part know `load` and `output`, and none of each other (`cargo xtask tidy`
//! checks it).
#![forbid(unsafe_code)]

mod command_line;
mod compare;
pub mod convert;
mod failover;
mod load;
mod output;
mod redis_benchmark;
mod run;
mod suites;

use std::any::Any;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

pub use redline_net::Address;

/// A server that runs in this process for `--embedded`, until it is dropped.
pub struct EmbeddedServer {
    /// Its listening address.
    pub address: Address,
    /// Its description for reports, such as "2 workers".
    pub description: String,
    /// Keeps it running.
    pub guard: Box<dyn Any>,
}

/// Starts the server of `--embedded`, or returns the reason why it cannot.
pub type StartEmbedded<'a> = &'a dyn Fn() -> Result<EmbeddedServer, String>;

/// The streams of the process, or a test's replacements.
pub struct Streams<'a> {
    /// Read with `-x`.
    pub stdin: &'a mut dyn Read,
    /// Reports, live lines, usage.
    pub stdout: &'a mut dyn Write,
    /// Warnings and errors.
    pub stderr: &'a mut dyn Write,
}

/// Runs the load generator. `program` is what the user called, for the usage text; `args` are the arguments after it.
pub fn main(
    program: &str,
    args: impl IntoIterator<Item = OsString>,
    embedded: Option<StartEmbedded<'_>>,
) -> ExitCode {
    let args: Vec<Vec<u8>> = args.into_iter().map(OsString::into_vec).collect();
    // Not locked for the whole run: an embedded server, or a panic, may write as well.
    let streams = Streams {
        stdin: &mut io::stdin(),
        stdout: &mut io::stdout(),
        stderr: &mut io::stderr(),
    };
    ExitCode::from(run(program, &args, streams, embedded))
}

/// Returns the command line as `clap` describes one: for completions and manual pages.
pub fn command() -> clap::Command {
    redis_benchmark::describe(command_line::describe())
}

/// Runs as [`main`], on streams of the caller's choice; returns the exit code.
pub fn run(
    program: &str,
    args: &[Vec<u8>],
    streams: Streams<'_>,
    embedded: Option<StartEmbedded<'_>>,
) -> u8 {
    if program == convert::Tool::Memtier.name() {
        return command_line::memtier(program, args, streams, embedded);
    }
    // Called through a link, all arguments are redis-benchmark's.
    let is_command = |first: &Vec<u8>| command_line::is_command(first);
    if !redis_benchmark::is_called(program) {
        if args.first().is_some_and(|first| first == b"memtier") {
            let program = format!("{program} memtier");
            return command_line::memtier(&program, &args[1..], streams, embedded);
        }
        if args.first().is_some_and(is_command) {
            return command_line::main(args, streams, embedded);
        }
        if let Some(why) = args.first().and_then(|first| command_line::mistaken(first)) {
            // A closed stream cannot report its own error.
            let _ = writeln!(streams.stderr, "{program}: {why} See {program} --help");
            return 1;
        }
    }
    redis_benchmark::run(program, args, streams, embedded)
}
