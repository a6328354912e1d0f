//! `redline bench run`: mixes of commands, closed and open loops, and the limit of the result.
//!
//! Shares its threads, connections and event loop (`worker`, `load`) with redis-benchmark's command line, but neither
//! options nor output.
//!
//! | file | holds |
//! |---|---|
//! | `arguments` | the command line of the sub-commands |
//! | `plan` | the checked plan of a run |
//! | `memtier` | memtier_benchmark's options, and their names here |
//! | `execute` | one run from its first connection to its result |
//! | `server` | one server that takes part |
//! | `watch`, `measured` | observations during a run, and its result |
//! | `live` | the view of a running test |
//! | `drive`, `record` | one thread's part: sending and recording |
//! | `stairs` | runs at ever higher rates, until a latency objective breaks |
//! | `series` | measurements of all threads, over time |
//! | `result` | the schema of the result |
//! | `csv` | its series as a table |
//! | `text` | the result for a terminal |

pub mod arguments;
mod csv;
pub mod drive;
pub mod execute;
mod live;
mod measured;
mod memtier;
pub mod plan;
pub(crate) mod record;
pub mod result;
mod series;
mod server;
pub mod stairs;
pub mod text;
pub mod watch;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::saved::{self, Saved};
use crate::{StartEmbedded, Streams};
use crate::{compare, failover, html, suites};
use arguments::{Arguments, Command, ReportArguments, RunArguments, one_to_stdout};
use execute::{Finished, Prepared};
use plan::RunPlan;
use result::RunResult;
use stairs::{Climb, Objective, Stairs};

/// The sub-commands, whose names are not valid in redis-benchmark's command line.
const COMMANDS: &[&str] = &["run", "compare", "report", "failover"];
/// A usage, configuration or run error.
const FAILED: u8 = 1;

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
    let result = match arguments.command {
        Command::Run(arguments) => run(
            *arguments,
            &args[1..],
            streams.stdout,
            streams.stderr,
            start,
        ),
        Command::Report(arguments) => report(&arguments, streams.stdout),
        Command::Failover(arguments) => failover::run(&arguments, streams.stdout, streams.stderr),
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
    let meaning = memtier::meaning(option).filter(|_| is_unknown)?;
    Some(format!("{option} of memtier_benchmark: {meaning}\n"))
}

/// Prints the parser's message: help, or an error. Returns the exit code.
pub fn say(error: &clap::Error, streams: Streams<'_>) -> u8 {
    let text = error.render().to_string();
    // A closed stream cannot report its own error.
    if error.kind() == ErrorKind::DisplayHelp {
        let _ = streams.stdout.write_all(text.as_bytes());
        0
    } else {
        let _ = streams.stderr.write_all(text.as_bytes());
        FAILED
    }
}

fn run(
    arguments: RunArguments,
    words: &[Vec<u8>],
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.suite {
        let request = suites::Request {
            path,
            scale: arguments.scale,
            targets: &arguments.target,
            words: &words_of_runs(words, path),
        };
        let output = &arguments.output;
        one_to_stdout([output.json.as_ref(), output.html.as_ref()]).map_err(Failure::Local)?;
        can_be_written([output.json.as_deref(), output.html.as_deref()])?;
        return suites::run(
            &request,
            arguments.output.json.as_deref(),
            arguments.output.html.as_deref(),
            stdout,
            stderr,
            start,
        );
    }
    let plan = arguments.plan().map_err(Failure::Local)?;
    if let Some(text) = plan.idle.first() {
        return Err(Failure::Local(text.clone()));
    }
    if plan.output.live && !std::io::stdout().is_terminal() {
        let text = "--live draws on a terminal, and standard output is none.";
        return Err(Failure::Local(text.into()));
    }
    let output = &plan.output;
    let files = [&output.json, &output.csv, &output.hdr, &output.html];
    can_be_written(files.map(Option::as_deref))?;
    let mut prepared = Prepared::new(&plan, start)?;
    if let Some((climb, objective)) = plan.manner.stairs.zip(plan.manner.objective) {
        return climb_stairs(&mut prepared, &plan, climb, objective, stdout, stderr);
    }
    let Finished {
        mut result,
        failure,
        log,
        ..
    } = prepared.run(&plan)?;
    if failure.is_none() && !plan.manner.no_calibration {
        result.own_cost = prepared.calibrate(&plan);
    }
    let mut written = Written::default();
    if !output.takes_stdout() {
        written.and(write(Path::new("-"), &text::text(&result), stdout));
    }
    written.and(log.map_or(Ok(()), Err));
    if let Some(path) = &output.json {
        written.and(write_json(path, &result, stdout));
    }
    if let Some(path) = &output.csv {
        written.and(write(path, &csv::series(&result), stdout));
    }
    if let Some(path) = &output.html {
        let named = [(result.target.address.clone(), result.clone())];
        written.and(page(&named).and_then(|page| write(path, &page, stdout)));
    }
    written.end(failure)
}

/// The results of writing a result to all its outputs. A failure of one (a closed pipe, a full disk) must not affect the
/// others: the measurement cannot be repeated.
#[derive(Default)]
pub struct Written(Option<Failure>);

impl Written {
    /// Keeps the first failure.
    pub fn and(&mut self, written: Result<(), Failure>) {
        if let Err(failure) = written {
            self.0.get_or_insert(failure);
        }
    }

    /// Returns the failure to report at the end: of an output, or of the run.
    pub fn end(self, failure: Option<Failure>) -> Result<(), Failure> {
        self.0.or(failure).map_or(Ok(()), Err)
    }
}

/// Checks before a run that its outputs can be written, so that a mistyped path is found early. Leaves no file behind,
/// and does not open what is no file (a pipe's only reader would take this for the end).
pub fn can_be_written<'p>(
    paths: impl IntoIterator<Item = Option<&'p Path>>,
) -> Result<(), Failure> {
    for path in paths
        .into_iter()
        .flatten()
        .filter(|path| *path != Path::new("-"))
    {
        let looked = match std::fs::metadata(path) {
            Ok(about) if about.is_file() || about.is_dir() => std::fs::OpenOptions::new()
                .append(true)
                .open(path)
                .map(drop),
            Ok(_) => Ok(()),
            Err(_) => std::fs::File::create_new(path)
                .map(drop)
                .and_then(|()| std::fs::remove_file(path)),
        };
        looked.map_err(|error| Failure::local(&path.display().to_string(), &error))?;
    }
    Ok(())
}

/// Returns the user's arguments without those of the suite itself: the rest applies to each of its runs.
fn words_of_runs(words: &[Vec<u8>], suite: &Path) -> Vec<String> {
    let words = words
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned());
    let (mut out, mut words) = (Vec::new(), words.peekable());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--scale" | "--target" | "--json" | "--html" => {
                words.next();
            }
            _ if ["--scale=", "--target=", "--json=", "--html="]
                .iter()
                .any(|name| word.starts_with(name)) => {}
            _ if Path::new(&word) == suite => {}
            _ => out.push(word),
        }
    }
    out
}

fn climb_stairs(
    prepared: &mut Prepared,
    plan: &RunPlan,
    climb: Climb,
    objective: Objective,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<(), Failure> {
    let (stairs, failure) = stairs::climb(prepared, plan, climb, objective, |step| {
        // Progress is informative only; errors of a closed stream are ignored.
        let _ = writeln!(stderr, "{}", stairs::line(step, objective));
    })?;
    let mut written = Written::default();
    if !plan.output.takes_stdout() {
        written.and(write(Path::new("-"), &stairs::text(&stairs), stdout));
    }
    if let Some(path) = &plan.output.json {
        written.and(write_json(path, &stairs, stdout));
    }
    if let Some(path) = &plan.output.html {
        let page = page_of_stairs(&stairs);
        written.and(page.and_then(|page| write(path, &page, stdout)));
    }
    written.end(failure)
}

fn report(arguments: &ReportArguments, stdout: &mut dyn Write) -> Result<(), Failure> {
    let path = &arguments.output;
    write(path, &page_of_saved(&arguments.results)?, stdout)?;
    if path == Path::new("-") {
        return Ok(());
    }
    write(Path::new("-"), &format!("{}\n", path.display()), stdout)
}

fn page_of_saved(paths: &[PathBuf]) -> Result<String, Failure> {
    let mut results: Vec<(String, RunResult)> = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        match saved::read(path)? {
            Saved::Run(result) => results.push((name, *result)),
            Saved::Failover(failover) => results.push((name, failover.run)),
            other if paths.len() > 1 => {
                let text = format!(
                    "{}: this is {other}, which has a page of its own: side by side stand runs and failovers.",
                    path.display()
                );
                return Err(Failure::Local(text));
            }
            Saved::Comparison(comparison) => return compare::page(&comparison),
            Saved::Suite(suite) => return suites::page(&suite),
            Saved::Stairs(stairs) => return page_of_stairs(&stairs),
        }
    }
    page(&results)
}

/// Returns a page with the steps side by side.
fn page_of_stairs(stairs: &Stairs) -> Result<String, Failure> {
    let named = stairs.steps.iter().map(|step| {
        let rate = step.result.settings.offered_rps.unwrap_or(0.0);
        (format!("{rate:.0} requests/s"), step.result.clone())
    });
    page(&named.collect::<Vec<_>>())
}

fn page(results: &[(String, RunResult)]) -> Result<String, Failure> {
    html::page(results).map_err(|error| Failure::Local(format!("charts: {error}")))
}

/// Writes a result as JSON, to a file or to standard output, piece by piece: a long series is large as text.
pub fn write_json(
    path: &Path,
    what: &impl serde::Serialize,
    stdout: &mut dyn Write,
) -> Result<(), Failure> {
    let failed = |error| cannot_write(path, &error);
    let mut file;
    let to: &mut dyn Write = if path == Path::new("-") {
        stdout
    } else {
        file = std::fs::File::create(path).map_err(failed)?;
        &mut file
    };
    let mut out = std::io::BufWriter::new(to);
    serde_json::to_writer_pretty(&mut out, what)
        .map_err(|error| failed(error.into()))
        .and_then(|()| out.write_all(b"\n").map_err(failed))
        .and_then(|()| out.flush().map_err(failed))
}

/// Writes to a file, or to standard output for `-`.
pub fn write(path: &Path, text: &str, stdout: &mut dyn Write) -> Result<(), Failure> {
    let written = if path == Path::new("-") {
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
    } else {
        std::fs::write(path, text)
    };
    written.map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    let name = match path.to_string_lossy() {
        name if name == "-" => "standard output".into(),
        name => name,
    };
    Failure::local(&name, error)
}
