//! `redline bench run`: mixes of commands, closed and open loops, and why the number is what it is.
//!
//! Shares its threads, connections and event loop (`worker`, `load`) with redis-benchmark's command line, and nothing
//! of its options or its output.
//!
//! | file | holds |
//! |---|---|
//! | `arguments` | the command line of the sub-commands |
//! | `execute` | one run from its first connection to its result |
//! | `drive`, `record` | one thread's part: what it sends when, what it measures |
//! | `result` | the result as it is kept |
//! | `text` | the result for a terminal |

mod arguments;
mod drive;
mod execute;
mod record;
mod result;
mod text;

use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use crate::failure::Failure;
use crate::{StartEmbedded, Streams};
use arguments::{Arguments, Command, RunArguments};
use execute::{Finished, Prepared};

/// The sub-commands: a first argument that is one of them is none of redis-benchmark's.
const COMMANDS: &[&str] = &["run"];
/// A usage, configuration or run error.
const FAILED: u8 = 1;

/// Whether redis-benchmark's command line does not begin like this.
pub fn is_command(argument: &[u8]) -> bool {
    COMMANDS.iter().any(|name| name.as_bytes() == argument)
}

/// Runs a sub-command; returns the exit code.
pub fn main(args: &[Vec<u8>], streams: Streams<'_>, start: Option<StartEmbedded<'_>>) -> u8 {
    let words = args.iter().map(|arg| OsString::from_vec(arg.clone()));
    let words = std::iter::once(OsString::from("redline bench")).chain(words);
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            let text = error.render().to_string();
            // A closed stream cannot be told about itself.
            return if matches!(error.kind(), ErrorKind::DisplayHelp) {
                let _ = streams.stdout.write_all(text.as_bytes());
                0
            } else {
                let _ = streams.stderr.write_all(text.as_bytes());
                FAILED
            };
        }
    };
    let result = match arguments.command {
        Command::Run(arguments) => run(*arguments, streams.stdout, start),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => {
            let _ = writeln!(streams.stderr, "{failure}");
            failure.exit_code()
        }
    }
}

fn run(
    arguments: RunArguments,
    stdout: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<(), Failure> {
    let plan = arguments.plan().map_err(Failure::Local)?;
    let pids = (plan.output.server_pid, plan.output.proxy_pid);
    let mut prepared = Prepared::new(&plan.target, pids.0, pids.1, start)?;
    let Finished { result, failure } = prepared.run(&plan)?;
    let json = plan.output.json.as_deref();
    if let Some(path) = json {
        let mut text = serde_json::to_string_pretty(&result)
            .map_err(|error| Failure::Local(format!("JSON: {error}")))?;
        text.push('\n');
        write(path, &text, stdout)?;
    }
    if json != Some(Path::new("-")) {
        write(Path::new("-"), &text::text(&result), stdout)?;
    }
    failure.map_or(Ok(()), Err)
}

/// Writes to a file, or to standard output for `-`.
fn write(path: &Path, text: &str, stdout: &mut dyn Write) -> Result<(), Failure> {
    let written = if path == Path::new("-") {
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
    } else {
        std::fs::write(path, text)
    };
    written.map_err(|error| Failure::local(&path.display().to_string(), &error))
}
