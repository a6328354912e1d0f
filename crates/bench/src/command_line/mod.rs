//! The command line of the sub-commands: which there are, and which part each of them is.
//!
//! Knows all sub-commands, and nothing of what they do.

mod report;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::failover::arguments::FailoverArguments;
use crate::load::arguments::RunArguments;
use crate::output::say;
use crate::{StartEmbedded, Streams};
use crate::{compare, failover, run, suites};
use report::ReportArguments;

/// The sub-commands, whose names are not valid in redis-benchmark's command line.
const COMMANDS: &[&str] = &["run", "compare", "report", "failover"];

/// A load generator that says why the number is what it is.
#[derive(Debug, Parser)]
#[command(
    name = "redline bench",
    bin_name = "redline bench",
    disable_help_subcommand = true
)]
struct Arguments {
    /// The sub-command.
    #[command(subcommand)]
    command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Loads a server with a mix of commands, in a closed or an open loop
    Run(Box<RunArguments>),
    /// Compares two servers, or two sets of options, with confidence intervals
    #[command(disable_help_flag = true)]
    Compare {
        /// The options of `compare`, which parses them itself.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<String>,
    },
    /// Measures a failover: writes numbered values while a command of yours makes a primary fail, and reports lost writes and
    /// downtime
    Failover(Box<FailoverArguments>),
    /// Makes an HTML page with charts of --json results: runs, a comparison, a suite, a staircase, a failover
    Report(ReportArguments),
}

/// Returns true if the argument is the name of a sub-command, with which no command line of redis-benchmark begins.
pub fn is_command(argument: &[u8]) -> bool {
    COMMANDS.iter().any(|name| name.as_bytes() == argument)
}

/// Runs a sub-command; returns the exit code.
pub fn main(args: &[Vec<u8>], streams: Streams<'_>, start: Option<StartEmbedded<'_>>) -> u8 {
    if args.first().is_some_and(|first| first == b"compare") {
        return compare::main(&args[1..], streams, start);
    }
    let words = args.iter().map(|arg| OsString::from_vec(arg.clone()));
    let words = std::iter::once(OsString::from("redline bench")).chain(words);
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(text) = unknown(&error) {
                // A closed stream cannot report its own error.
                let _ = streams.stderr.write_all(text.as_bytes());
            }
            return say(&error, streams);
        }
    };
    let (stdout, stderr) = (streams.stdout, &mut *streams.stderr);
    let result = match arguments.command {
        Command::Run(arguments) => match &arguments.suite {
            Some(suite) => suites::run(suite, &arguments, &args[1..], stdout, stderr, start),
            None => run::run(*arguments, stdout, stderr, start),
        },
        Command::Report(arguments) => report::run(&arguments, stdout),
        Command::Failover(arguments) => failover::run(&arguments, stdout, stderr),
        Command::Compare { .. } => unreachable!("its arguments are taken apart before"),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => {
            let _ = writeln!(streams.stderr, "{failure}");
            failure.exit_code()
        }
    }
}

/// Returns the meaning of an unknown option in memtier_benchmark, if it has it.
fn unknown(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let meaning = run::memtier::meaning(option).filter(|_| is_unknown)?;
    Some(format!("{option} of memtier_benchmark: {meaning}\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_parser_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn each_sub_command_of_the_parser_begins_a_line_of_its_own() {
        let command = Arguments::command();
        let names = command.get_subcommands().map(clap::Command::get_name);
        let (mut names, mut known): (Vec<_>, Vec<_>) = (names.collect(), COMMANDS.to_vec());
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
        assert!(is_command(b"run") && !is_command(b"-h"));
    }

    #[test]
    fn what_memtier_calls_an_unknown_option_is_said() {
        let words = ["redline bench", "run", "--test-time", "5"];
        let error = Arguments::try_parse_from(words).unwrap_err();
        let text = unknown(&error).unwrap();
        assert!(text.starts_with("--test-time of memtier_benchmark: --duration"));
    }
}
