//! Reads the files that `--json` has written: of a run, a staircase, a comparison, a suite, a failover; and describes
//! any other file.
//!
//! Knows their kinds, and not their contents: who asks for a result says what it is.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;

use crate::load::failure::Failure;

/// Kinds of saved results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of `redline bench run`.
    Run,
    /// Of `run --stairs`.
    Stairs,
    /// Of `redline bench compare`.
    Comparison,
    /// Of `redline bench run` with a suite.
    Suite,
    /// Of `redline bench failover`.
    Failover,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Run => "the result of a run",
            Kind::Stairs => "the result of a staircase",
            Kind::Comparison => "the result of a comparison",
            Kind::Suite => "the result of a suite",
            Kind::Failover => "the result of a failover",
        })
    }
}

/// A saved result that has not been taken apart yet.
#[derive(Debug)]
pub struct Saved {
    /// Its kind.
    pub kind: Kind,
    path: PathBuf,
    bytes: Vec<u8>,
    format: Option<u64>,
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

impl Saved {
    /// Reads a file. If it has another content, the failure describes it.
    pub fn read(path: &Path) -> Result<Saved, Failure> {
        let bytes = std::fs::read(path)
            .map_err(|error| Failure::local(&path.display().to_string(), &error))?;
        let (kind, format) = kind_of(&bytes).map_err(|reason| refusal(path, &reason))?;
        Ok(Saved {
            kind,
            path: path.to_owned(),
            bytes,
            format,
        })
    }

    /// Returns the result, whose fields are those of the format `known`.
    pub fn result<T: DeserializeOwned>(&self, known: u32) -> Result<T, Failure> {
        if let Some(format) = self.format
            && format != u64::from(known)
        {
            let reason = format!(
                "format {format} is not known here, which is {known}: another version of redline has left it."
            );
            return Err(refusal(&self.path, &reason));
        }
        serde_json::from_slice(&self.bytes).map_err(|error| {
            let reason = format!("something is missing or wrong ({error}).");
            refusal(&self.path, &reason)
        })
    }
}

fn refusal(path: &Path, reason: &str) -> Failure {
    Failure::Local(format!(
        "{}: {reason} It takes what --json has left.",
        path.display()
    ))
}

/// Returns the kind of a saved result and its format, or what else this is.
fn kind_of(bytes: &[u8]) -> Result<(Kind, Option<u64>), String> {
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
    let kinds = [
        (&marks.happened, Kind::Failover),
        (&marks.steps, Kind::Stairs),
        (&marks.figures, Kind::Comparison),
        (&marks.runs, Kind::Suite),
        (&marks.response_us, Kind::Run),
    ];
    let found = kinds.into_iter().find(|(mark, _)| mark.is_some());
    match found {
        Some((_, kind)) => Ok((kind, marks.format)),
        None => Err("this is JSON, but of nothing that redline bench measures.".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_known_by_the_field_that_only_it_has() {
        for (text, kind) in [
            (r#"{"format":1,"response_us":{},"runs_of":1}"#, Kind::Run),
            (r#"{"format":1,"steps":[],"objective":1}"#, Kind::Stairs),
            (r#"{"format":1,"figures":[]}"#, Kind::Comparison),
            (r#"{"format":1,"runs":[]}"#, Kind::Suite),
            (r#"{"format":1,"happened":{},"run":{}}"#, Kind::Failover),
        ] {
            assert_eq!(kind_of(text.as_bytes()), Ok((kind, Some(1))), "{text}");
        }
        for (text, said) in [
            ("", "empty"),
            (" <html>", "a page"),
            ("at_s,x", "--csv"),
            ("#[x", "--hdr"),
            (r#"{"steps":["#, "cut off"),
            ("{}", "of nothing"),
            ("[]", "of nothing"),
            ("?", "no JSON"),
        ] {
            let reason = kind_of(text.as_bytes()).unwrap_err();
            assert!(reason.contains(said), "{text}: {reason}");
        }
    }

    #[test]
    fn another_format_is_refused_by_its_number() {
        let saved = |format| Saved {
            kind: Kind::Run,
            path: "a.json".into(),
            bytes: b"[7]".to_vec(),
            format,
        };
        assert_eq!(saved(Some(2)).result::<Vec<u8>>(2).unwrap(), [7]);
        assert_eq!(saved(None).result::<Vec<u8>>(2).unwrap(), [7]);
        let error = saved(Some(1)).result::<Vec<u8>>(2).unwrap_err();
        assert!(error.to_string().contains("a.json: format 1 is not known"));
        let error = saved(Some(2)).result::<Vec<String>>(2).unwrap_err();
        assert!(error.to_string().contains("missing or wrong"));
    }
}
