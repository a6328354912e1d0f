//! The command line of the sub-commands: which there are, and which part each of them is.
//!
//! Knows all sub-commands, and nothing of what they do.

mod report;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::{CommandFactory, Parser, Subcommand};

use crate::convert::{self, Tool};
use crate::failover::arguments::FailoverArguments;
use crate::load::arguments::RunArguments;
use crate::output::say;
use crate::{StartEmbedded, Streams};
use crate::{compare, failover, run, suites};
use report::ReportArguments;

/// The sub-commands, whose names are not valid in redis-benchmark's command line.
const COMMANDS: &[&str] = &["run", "compare", "report", "failover", "memtier"];

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
    /// Does what a command line of memtier_benchmark asks for, and prints the line of `run` that does the same
    #[command(disable_help_flag = true)]
    Memtier {
        /// Options of memtier_benchmark.
        #[arg(
            value_name = "OPTIONS OF MEMTIER_BENCHMARK",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        rest: Vec<String>,
    },
    /// Makes an HTML page with charts of --json results: runs, a comparison, a suite, a staircase, a failover
    Report(ReportArguments),
}

/// Returns the sub-commands, described.
pub fn describe() -> clap::Command {
    let command = Arguments::command().subcommand_required(false);
    command.mut_subcommand("compare", |_| compare::describe().name("compare"))
}

/// Returns true if the argument is the name of a sub-command, with which no command line of redis-benchmark begins.
pub fn is_command(argument: &[u8]) -> bool {
    COMMANDS.iter().any(|name| name.as_bytes() == argument)
}

/// Words that name what a sub-command does, and the words for it.
const ELSEWHERE: &[(&str, &str)] = &[
    ("suite", "a suite is run by \"redline bench run FILE\"."),
    ("suites", "a suite is run by \"redline bench run FILE\"."),
    (
        "memtier_benchmark",
        "its options are taken by \"redline bench memtier\".",
    ),
    ("version", "did you mean \"--version\"?"),
    ("help", "did you mean \"--help\"?"),
];

/// Returns the error for a word that is no command of any server that the table knows, and close to a sub-command. Any
/// other word may be a command of a module.
pub fn mistaken(word: &[u8]) -> Option<String> {
    let shown = std::str::from_utf8(word).ok()?;
    if shown.starts_with('-') || redline_spec::lookup(word).is_some() {
        return None;
    }
    let folded = shown.to_ascii_lowercase();
    if let Some((_, what)) = ELSEWHERE.iter().find(|(name, _)| *name == folded) {
        return Some(format!("{shown}: no command and no sub-command; {what}"));
    }
    let meant = redline_spec::nearest(shown, COMMANDS.iter().copied())?;
    Some(format!(
        "{shown}: no command and no sub-command; did you mean \"{meant}\"?"
    ))
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
            if error.use_stderr()
                && let Some(text) = of_memtier(&args[1..])
            {
                // A closed stream cannot report its own error.
                let _ = streams.stderr.write_all(text.as_bytes());
                return 1;
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
        Command::Compare { .. } | Command::Memtier { .. } => {
            unreachable!("its arguments are taken apart before")
        }
    };
    match result {
        Ok(()) => 0,
        Err(failure) => {
            let _ = writeln!(streams.stderr, "{failure}");
            failure.exit_code()
        }
    }
}

/// Runs a command line of memtier_benchmark; returns the exit code.
pub fn memtier(
    program: &str,
    args: &[Vec<u8>],
    streams: Streams<'_>,
    start: Option<StartEmbedded<'_>>,
) -> u8 {
    let args: Vec<String> = args
        .iter()
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect();
    // A closed stream cannot report its own error.
    if args.iter().any(|arg| arg == "--help") {
        let _ = write!(streams.stdout, "{MEMTIER_HELP}");
        return 0;
    }
    if args.iter().any(|arg| arg == "--version" || arg == "-v") {
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(
            streams.stdout,
            "redline bench {version}, in place of memtier_benchmark"
        );
        return 0;
    }
    let runs = match convert::convert(Tool::Memtier, &args) {
        Ok(runs) => runs,
        Err(why) => {
            let why = why.strip_prefix("memtier_benchmark: ").unwrap_or(&why);
            let _ = writeln!(streams.stderr, "{program}: {why}");
            return 1;
        }
    };
    for note in runs.notes.iter().filter(|note| note.is_lost) {
        let _ = writeln!(streams.stderr, "{program}: {}", note.text);
    }
    let mut file;
    let stdout: &mut dyn std::io::Write = match &runs.out_file {
        None => streams.stdout,
        Some(path) => match std::fs::File::create(path) {
            Ok(made) => {
                file = made;
                &mut file
            }
            Err(error) => {
                let why = redline_net::error_text(&error);
                let _ = writeln!(streams.stderr, "{program}: {}: {why}", path.display());
                return 1;
            }
        },
    };
    for words in &runs.runs {
        let _ = writeln!(
            streams.stderr,
            "{}",
            convert::line_of(&without_password(words))
        );
        let words = words.iter().map(|word| word.clone().into_bytes());
        let words: Vec<Vec<u8>> = std::iter::once(b"run".to_vec()).chain(words).collect();
        let streams = Streams {
            stdin: &mut *streams.stdin,
            stdout: &mut *stdout,
            stderr: &mut *streams.stderr,
        };
        let code = main(&words, streams, start);
        if code != 0 {
            return code;
        }
    }
    0
}

/// Returns the words with stars in place of a password: standard error may be kept.
fn without_password(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    for at in 1..words.len() {
        if words[at - 1] == "-a" {
            words[at] = "***".to_owned();
        }
        if words[at - 1] == "-u" && words[at].contains('@') {
            words[at] = "***".to_owned();
        }
    }
    words
}

const MEMTIER_HELP: &str = "\
Usage: redline bench memtier [OPTIONS OF MEMTIER_BENCHMARK]

Does what a command line of memtier_benchmark asks for, and prints the line of redline bench run that does the
same on standard error. Options without a counterpart are errors, or a line on standard error where only the
report is another. docs/bench.md has the table of options. Through a link named memtier_benchmark it is the same.

  redline bench memtier -s cache.example -p 6379 --test-time 30 --ratio 1:10 -d 100
  redline convert memtier -- --test-time 30 --ratio 1:10     (prints the line, and runs nothing)
";

/// Returns what all of memtier_benchmark's options among the words are here, if there are any that have another name.
fn of_memtier(words: &[Vec<u8>]) -> Option<String> {
    let command = RunArguments::command();
    let is_ours = |option: &str| {
        let mut all = command.get_arguments();
        option == "--help"
            || all.any(|known| {
                known
                    .get_long()
                    .is_some_and(|long| option.strip_prefix("--") == Some(long))
                    || known
                        .get_short()
                        .is_some_and(|short| option == format!("-{short}"))
            })
    };
    let words: Vec<&str> = words
        .iter()
        .filter_map(|word| std::str::from_utf8(word).ok())
        .collect();
    let mut lines = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (*word, words.get(at + 1).copied()),
        };
        let line = match (option, value) {
            ("--protocol" | "-P", Some(value @ ("redis" | "resp2" | "resp3"))) => {
                let ours = match value {
                    "resp3" => "--resp3",
                    _ => "leave it out, RESP2 is the default",
                };
                format!("  {option} {value}: {ours}\n")
            }
            _ if !option.starts_with('-') || is_ours(option) => continue,
            _ => match convert::table::meaning(option) {
                Some(meaning) => format!("  {option}: {meaning}\n"),
                None => continue,
            },
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    (!lines.is_empty()).then(|| {
        format!(
            "redline bench run: options of memtier_benchmark, and what does the same:\n{}",
            lines.concat()
        )
    })
}

#[cfg(test)]
mod tests {
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
    fn what_memtier_calls_its_options_is_said_of_all_at_once() {
        let words = |line: &str| -> Vec<Vec<u8>> {
            line.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect()
        };
        let text = of_memtier(&words("--test-time 5 --clients=50 -P redis -t 2")).unwrap();
        for part in [
            "--test-time: --duration",
            "--clients: -c, --connections",
            "-P redis: leave",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("  -t"), "{text}");
        assert_eq!(of_memtier(&words("--nope -t 2")), None);
    }
}
