//! Files of other programs: which program one is of, and its conversion. Must not know any program's file.

use std::path::Path;

use super::converted::Converted;
pub use super::source::bytes_of;
use super::source::text_in;
use super::{nutcracker, predixy, sentinel};

/// A program whose configuration is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// predixy.
    Predixy,
    /// nutcracker (twemproxy).
    Nutcracker,
    /// A Sentinel of Redis or Valkey.
    Sentinel,
}

impl Origin {
    /// Returns the program of a file with this text, if it is one of these, faultless or not.
    pub fn of(text: &str) -> Option<Origin> {
        match text {
            text if predixy::is_its_file(text) => Some(Origin::Predixy),
            text if nutcracker::is_its_file(text) => Some(Origin::Nutcracker),
            text if sentinel::is_its_file(text) => Some(Origin::Sentinel),
            _ => None,
        }
    }

    /// Returns the program's name.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Predixy => "predixy",
            Origin::Nutcracker => "nutcracker (twemproxy)",
            Origin::Sentinel => "a Sentinel",
        }
    }

    /// Returns the beginning of a command line that takes its file.
    pub fn taken_by(self) -> &'static str {
        match self {
            Origin::Predixy => "redline proxy --predixy",
            Origin::Nutcracker => "redline proxy --nutcracker",
            Origin::Sentinel => "redline convert",
        }
    }
}

/// A configuration of ours, as a file, and notes.
#[derive(Debug)]
pub struct Ours {
    /// The file.
    pub toml: String,
    /// Notes with file and line; true: the proxy behaves otherwise.
    pub notes: Vec<(String, bool)>,
}

/// Converts a file, of which `bytes` are the content; files that it includes are read. The result is checked.
pub fn convert(origin: Origin, path: &Path, bytes: Vec<u8>) -> Result<Ours, String> {
    let shown = path.display().to_string();
    let Converted { config, notes } = match origin {
        Origin::Predixy => predixy::read(path)?,
        Origin::Nutcracker => nutcracker::convert(&shown, &text_in(&shown, bytes)?)?,
        Origin::Sentinel => sentinel::convert(&shown, &text_in(&shown, bytes)?)?,
    };
    let problems = config.check();
    let fatal = problems.iter().filter(|problem| problem.is_fatal);
    let fatal: Vec<String> = fatal.map(|problem| problem.to_string()).collect();
    if !fatal.is_empty() {
        return Err(format!("{shown}: {}", fatal.join("\n")));
    }
    let warnings = problems.iter().map(|problem| (problem.to_string(), false));
    let notes = notes.into_iter().map(|note| (note.text, note.differs));
    Ok(Ours {
        toml: config.to_toml(),
        notes: notes.chain(warnings).collect(),
    })
}
