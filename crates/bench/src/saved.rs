//! Reads the files that `--json` has written: of a run, a staircase, a comparison, a suite, a failover; and describes
//! any other file.
//!
//! Knows their formats, and not their use.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;

use crate::compare::{self, Comparison};
use crate::failover::{self, FailoverResult};
use crate::failure::Failure;
use crate::run::result::{self, RunResult};
use crate::run::stairs::{self, Stairs};
use crate::suites::{self, SuiteResult};

/// A saved result.
pub enum Saved {
    /// Of `redline bench run`.
    Run(Box<RunResult>),
    /// Of `run --stairs`.
    Stairs(Box<Stairs>),
    /// Of `redline bench compare`.
    Comparison(Box<Comparison>),
    /// Of `redline bench run` with a suite.
    Suite(Box<SuiteResult>),
    /// Of `redline bench failover`.
    Failover(Box<FailoverResult>),
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Saved::Run(_) => "the result of a run",
            Saved::Stairs(_) => "the result of a staircase",
            Saved::Comparison(_) => "the result of a comparison",
            Saved::Suite(_) => "the result of a suite",
            Saved::Failover(_) => "the result of a failover",
        })
    }
}

/// The fields that only one kind has; their contents are ignored.
#[derive(Deserialize)]
struct Marks {
    format: Option<u64>,
    response_us: Option<IgnoredAny>,
    steps: Option<IgnoredAny>,
    figures: Option<IgnoredAny>,
    runs: Option<IgnoredAny>,
    happened: Option<IgnoredAny>,
}

/// Reads a file. If it has another content, the failure describes it.
pub fn read(path: &Path) -> Result<Saved, Failure> {
    let bytes =
        std::fs::read(path).map_err(|error| Failure::local(&path.display().to_string(), &error))?;
    parse(&bytes).map_err(|reason| {
        Failure::Local(format!(
            "{}: {reason} It takes what --json has left.",
            path.display()
        ))
    })
}

fn parse(bytes: &[u8]) -> Result<Saved, String> {
    let start = bytes.trim_ascii_start();
    if start.is_empty() {
        return Err("the file is empty.".into());
    }
    if start.starts_with(b"<") {
        return Err("this is a page (--html has left it?), and no JSON.".into());
    }
    if start.starts_with(b"at_s,") {
        return Err("this is the series that --csv has left, and no JSON.".into());
    }
    if start.starts_with(b"#[") {
        return Err("this is the log that --hdr has left, and no JSON.".into());
    }
    let marks: Marks = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Eof => format!("the JSON is cut off ({error})."),
        Category::Data => "this is JSON, but of nothing that redline bench measures.".into(),
        Category::Syntax | Category::Io => format!("this is no JSON ({error})."),
    })?;
    if marks.happened.is_some() {
        kept(bytes, &marks, failover::FORMAT).map(Saved::Failover)
    } else if marks.steps.is_some() {
        kept(bytes, &marks, stairs::FORMAT).map(Saved::Stairs)
    } else if marks.figures.is_some() {
        kept(bytes, &marks, compare::FORMAT).map(Saved::Comparison)
    } else if marks.runs.is_some() {
        kept(bytes, &marks, suites::FORMAT).map(Saved::Suite)
    } else if marks.response_us.is_some() {
        kept(bytes, &marks, result::FORMAT).map(Saved::Run)
    } else {
        Err("this is JSON, but of nothing that redline bench measures.".into())
    }
}

fn kept<T: DeserializeOwned>(bytes: &[u8], marks: &Marks, known: u32) -> Result<Box<T>, String> {
    match marks.format {
        Some(format) if format != u64::from(known) => Err(format!(
            "format {format} is not known here, which is {known}: another version of redline has left it."
        )),
        _ => serde_json::from_slice(bytes)
            .map(Box::new)
            .map_err(|error| format!("something is missing or wrong ({error}).")),
    }
}
