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

use crate::{StartEmbedded, Streams};

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
