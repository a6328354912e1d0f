//! The tools `check-aof` and `check-rdb`, worded as redis-check-aof and redis-check-rdb 7.0.15, whose output people and test
//! suites read. They differ where those let pass what no server would load, and in offsets inside a damaged value.
//!
//! Must not know: servers, settings.

mod aof;
mod rdb;

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::Path;

use crate::disk::Disk;
pub use aof::{AofCheck, Repair, check_aof};
pub use rdb::check_rdb;

/// The surroundings of a tool.
pub struct Tool<'a> {
    /// Name by which it was called, for its own usage.
    pub name: &'a str,
    /// The files.
    pub disk: &'a dyn Disk,
    /// The time, in milliseconds since 1970: keys that were due are counted.
    pub now_ms: i64,
    /// Answers to questions.
    pub input: &'a mut dyn BufRead,
    /// The report.
    pub out: &'a mut dyn Write,
}

/// Runs `check-aof` with its arguments and returns its exit code. An error is one of the report itself.
pub fn aof_main(tool: &mut Tool<'_>, args: impl Iterator<Item = OsString>) -> io::Result<u8> {
    let args: Vec<OsString> = args.collect();
    if asks_for_help(&args) {
        aof_usage(tool)?;
        write!(tool.out, "{AOF_HELP}")?;
        return Ok(0);
    }
    let Some((file, flags)) = args.split_last() else {
        return aof_usage(tool);
    };
    let mut check = AofCheck {
        path: Path::new(file),
        repair: Repair::No,
        cut_after_s: None,
    };
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match flag.to_str() {
            Some("--fix") if check.repair == Repair::No => check.repair = Repair::Ask,
            Some("--yes") if check.repair == Repair::Ask => check.repair = Repair::Always,
            Some("--truncate-to-timestamp") => {
                let Some(time) = flags.next() else {
                    return aof_usage(tool);
                };
                let Some(time) = time.to_str().and_then(|time| time.parse().ok()) else {
                    writeln!(tool.out, "Invalid timestamp, aborting...")?;
                    return Ok(1);
                };
                // As in Redis, 0 is none.
                check.cut_after_s = Some(time).filter(|time| *time != 0);
            }
            _ => return aof_usage(tool),
        }
    }
    let is_good = check_aof(tool, &check)?;
    Ok(u8::from(!is_good))
}

fn aof_usage(tool: &mut Tool<'_>) -> io::Result<u8> {
    writeln!(
        tool.out,
        "Usage: {} [--fix [--yes]|--truncate-to-timestamp $timestamp] <file.manifest|file.aof>",
        tool.name
    )?;
    Ok(1)
}

/// Runs `check-rdb` with its arguments and returns its exit code. An error is one of the report itself.
pub fn rdb_main(tool: &mut Tool<'_>, args: impl Iterator<Item = OsString>) -> io::Result<u8> {
    let args: Vec<OsString> = args.collect();
    if asks_for_help(&args) {
        rdb_usage(tool)?;
        write!(tool.out, "{RDB_HELP}")?;
        return Ok(0);
    }
    let [argument] = &args[..] else {
        return rdb_usage(tool);
    };
    if argument == "-v" || argument == "--version" {
        writeln!(tool.out, "{} {}", tool.name, env!("CARGO_PKG_VERSION"))?;
        return Ok(0);
    }
    let path = Path::new(argument);
    let end = check_rdb(tool, path, &path.display().to_string())?;
    Ok(u8::from(end.is_none()))
}

fn rdb_usage(tool: &mut Tool<'_>) -> io::Result<u8> {
    writeln!(tool.out, "Usage: {} <rdb-file-name>", tool.name)?;
    Ok(1)
}

/// Returns true if the one argument is the option for help. Redis's tools have none, and would look for such a file.
fn asks_for_help(args: &[OsString]) -> bool {
    matches!(args, [word] if word == "--help" || word == "-h")
}

const AOF_HELP: &str = "
Checks an append-only file, or all files of a manifest. Exit code: 0 if they are valid or were repaired, else 1.
A file is never cut within a transaction. Stop the server before a repair.

  --fix                             Cut off an end that is incomplete or damaged, after a question.
  --fix --yes                       The same without the question.
  --truncate-to-timestamp <seconds> Cut off what was written after this Unix time; the file needs timestamps
                                    (aof-timestamp-enabled yes).
";

const RDB_HELP: &str = "
Checks a snapshot, and counts its keys. Exit code: 0 if a server can load it, else 1.

  --version, -v  Print the version.
";

#[cfg(test)]
mod tests;
