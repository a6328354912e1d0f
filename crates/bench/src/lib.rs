//! Workloads, load engine, measurement, reports: `redline bench`, with redis-benchmark's command line and one of its own.
//!
//! Must not know the keyspace or the server: the caller passes in the server of `--embedded`.
//!
//! | file | holds |
//! |---|---|
//! | `options`, `usage` | the command line |
//! | `compat`, `suite` | tests and output of each release of redis-benchmark |
//! | `session` | one invocation from its first connection to its exit code |
//! | `probe` | the first connection, which asks the server for its configuration |
//! | `load` | one test: its threads, its start and its end |
//! | `worker`, `outgoing` | one load thread: the hot path; bytes that wait for room in a socket |
//! | `null_server` | a server that does nothing, to measure the generator's own cost |
//! | `memcached` | replies of memcached's text protocol |
//! | `closed`, `batch` | the load of redis-benchmark's command line: batches |
//! | `report` | the text of results |
//! | `idle` | `-I` |
//! | `failure` | reasons for ending a run early, and exit codes |
//! | `control` | the main thread's wait: signals, finished workers, deadlines |
//! | `target` | the server to load, and its user |
//! | `run/` | `redline bench run` |
//! | `cluster/` | loads that follow their data from node to node: Redis Cluster, Sentinel |
//! | `workload/` | requests: templates, distributions of keys, values |
//! | `cause/` | resources of each party, and the bottleneck |
//! | `compare/` | `redline bench compare`: runs in pairs, and the confidence of a difference |
//! | `failover/` | `redline bench failover`: numbered values while a primary fails |
//! | `suites/` | published benchmarks as files, and their tables (`suite` is redis-benchmark's own) |
//! | `saved` | reads results of `--json` |
//! | `html/` | results as a page with charts |
#![forbid(unsafe_code)]

mod batch;
mod cause;
mod closed;
mod cluster;
mod compare;
mod compat;
mod control;
mod failover;
mod failure;
mod html;
mod idle;
mod load;
mod memcached;
mod null_server;
mod options;
mod outgoing;
mod probe;
mod report;
mod run;
mod saved;
mod session;
mod suite;
mod suites;
mod target;
mod usage;
mod worker;
mod workload;

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

/// Runs as [`main`], on streams of the caller's choice; returns the exit code.
pub fn run(
    program: &str,
    args: &[Vec<u8>],
    streams: Streams<'_>,
    embedded: Option<StartEmbedded<'_>>,
) -> u8 {
    // Called as redis-benchmark, all arguments are redis-benchmark's.
    if program != "redis-benchmark" && args.first().is_some_and(|first| run::is_command(first)) {
        return run::main(args, streams, embedded);
    }
    match options::parse(program, args) {
        Ok(options) => session::run(options, streams, embedded),
        Err(stop) => {
            // A closed stream cannot report its own error.
            let _ = streams.stdout.write_all(stop.stdout.as_bytes());
            let _ = streams.stdout.flush();
            let _ = streams.stderr.write_all(stop.stderr.as_bytes());
            stop.code
        }
    }
}
