//! Results as people and programs get them: text, pages, files; and saved results, read again.
//!
//! Knows results, and neither their measurement nor the sub-commands: those add what only they have.
//!
//! | file | holds |
//! |---|---|
//! | `text` | the result of a run for a terminal |
//! | `html/` | results as a page with charts |
//! | `saved` | reads results of `--json` |

pub mod html;
pub mod saved;
pub mod text;

use std::io::Write;
use std::path::Path;

use clap::error::ErrorKind;

use crate::Streams;
use crate::load::failure::Failure;
use crate::load::result::RunResult;

/// A usage, configuration or run error.
const FAILED: u8 = 1;

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

/// Returns the page of one result, or of several side by side, each with its name.
pub fn page(results: &[(String, RunResult)]) -> Result<String, Failure> {
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
