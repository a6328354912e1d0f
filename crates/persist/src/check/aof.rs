//! The check of an append-only file: of one file, or of all that a manifest names.
//!
//! Must not know what commands do.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{Tool, check_rdb};
use crate::aof::scan::{Annotation, End, Item, Scanner, What, starts_with_snapshot};
use crate::disk::{Disk, Reader, error_text};
use crate::manifest::{LINE_BYTES_MAX, MANIFEST_BYTES_MAX};

/// The check of an append-only file that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct AofCheck<'a> {
    /// A manifest, or one file.
    pub path: &'a Path,
    /// The treatment of a file whose end is missing or damaged.
    pub repair: Repair,
    /// `--truncate-to-timestamp`: what was written after this time, in seconds since 1970, is cut off.
    pub cut_after_s: Option<i64>,
}

/// The treatment of a file whose end is missing or damaged: it can be cut after its last whole unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It stays as it is.
    No,
    /// `--fix`: it is cut if the question is answered with yes.
    Ask,
    /// `--fix --yes`: it is cut.
    Always,
}

/// Checks a file or all files of a manifest, and writes the report. Returns true if they are good now.
pub fn check_aof(tool: &mut Tool<'_>, check: &AofCheck<'_>) -> io::Result<bool> {
    let mut run = Run {
        tool,
        check: *check,
        line: 1,
    };
    match run.check() {
        Ok(()) => Ok(true),
        Err(Stop::Told) => Ok(false),
        Err(Stop::Report(error)) => Err(error),
    }
}

/// Reason to end a check.
enum Stop {
    /// The report says it.
    Told,
    /// The report cannot be written.
    Report(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Report(error)
    }
}

struct Run<'a, 't> {
    tool: &'a mut Tool<'t>,
    check: AofCheck<'a>,
    /// Number of the line, over all files.
    line: u64,
}

/// A file to check.
struct Part {
    /// The name for the report.
    shown: String,
    path: PathBuf,
    /// True if no file after it holds anything: only then it may be cut.
    is_last: bool,
    is_snapshot: bool,
}

/// A good file.
enum Good {
    Valid,
    Empty,
    CutAtTime,
    Cut,
}

impl Run<'_, '_> {
    fn check(&mut self) -> Result<(), Stop> {
        let path = self.check.path;
        if self.is_manifest(path)? {
            return self.check_all(path);
        }
        let is_snapshot = self.is_snapshot(path)?;
        writeln!(self.tool.out, "Start checking Old-Style AOF")?;
        let part = Part {
            shown: path.display().to_string(),
            path: path.to_owned(),
            is_last: true,
            is_snapshot,
        };
        self.check_part("AOF", &part)
    }

    fn check_all(&mut self, path: &Path) -> Result<(), Stop> {
        writeln!(self.tool.out, "Start checking Multi Part AOF")?;
        let manifest = match crate::manifest::read(self.tool.disk, path) {
            Ok(manifest) => manifest,
            Err(error) => return self.stop(error.text.trim_start()),
        };
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        for (index, entry) in manifest.files().enumerate() {
            let path = folder.join(&entry.name);
            let is_base = index == 0 && manifest.base.is_some();
            let is_snapshot = is_base && self.is_snapshot(&path)?;
            if is_base {
                let form = if is_snapshot { "RDB" } else { "RESP" };
                writeln!(self.tool.out, "Start to check BASE AOF ({form} format).")?;
            } else if index == usize::from(manifest.base.is_some()) {
                writeln!(self.tool.out, "Start to check INCR files.")?;
            }
            let part = Part {
                shown: entry.name.display().to_string(),
                is_last: manifest.is_end(self.tool.disk, folder, index),
                path,
                is_snapshot,
            };
            self.check_part(if is_base { "BASE AOF" } else { "INCR AOF" }, &part)?;
        }
        writeln!(self.tool.out, "All AOF files and manifest are valid")?;
        Ok(())
    }

    fn check_part(&mut self, kind: &str, part: &Part) -> Result<(), Stop> {
        let shown = &part.shown;
        let line = match self.check_file(part)? {
            Good::Valid => format!("{kind} {shown} is valid"),
            Good::Empty => format!("{kind} {shown} is empty"),
            Good::CutAtTime => {
                let time = self.check.cut_after_s.unwrap_or_default();
                format!("Successfully truncated AOF {shown} to timestamp {time}")
            }
            Good::Cut => format!("Successfully truncated AOF {shown}"),
        };
        writeln!(self.tool.out, "{line}")?;
        Ok(())
    }

    fn check_file(&mut self, part: &Part) -> Result<Good, Stop> {
        let (shown, path) = (&part.shown, part.path.display());
        let file = match self.tool.disk.open(&part.path) {
            Ok(file) => file,
            Err(error) => {
                return self.stop(&format!(
                    "Cannot open file {path}: {}, aborting...",
                    error_text(&error)
                ));
            }
        };
        let Ok(size) = file.bytes() else {
            return self.stop(&format!("Cannot stat file: {shown}, aborting..."));
        };
        if size == 0 {
            return Ok(Good::Empty);
        }
        let mut start = 0;
        if part.is_snapshot {
            let Some(end) = check_rdb(self.tool, &part.path, shown)? else {
                return self.stop("RDB preamble of AOF file is not sane, aborting.");
            };
            writeln!(
                self.tool.out,
                "RDB preamble is OK, proceeding with AOF tail..."
            )?;
            start = end;
        }
        let mut scanner = Scanner::new(Reader::new(file, start), start, size);
        let end = loop {
            match scanner.next() {
                Ok(Item::Command(_)) => {}
                Ok(Item::Annotation(annotation)) => {
                    if self.cuts_at(part, &annotation)? {
                        return Ok(Good::CutAtTime);
                    }
                }
                Ok(Item::End(end)) => break end,
                Err(error) => {
                    let why = error_text(&error);
                    return self.stop(&format!(
                        "Failed to read from AOF {shown}: {why}, aborting..."
                    ));
                }
            }
        };
        self.line += scanner.line_ends();
        self.end(part, size, &end)
    }

    /// Cuts the file if the annotation is of a time that is not wanted any more.
    fn cuts_at(&mut self, part: &Part, annotation: &Annotation<'_>) -> Result<bool, Stop> {
        let Some(last_s) = self.check.cut_after_s else {
            return Ok(false);
        };
        match annotation.time_s() {
            None => return Ok(false),
            Some(None) => return self.stop("Invalid timestamp annotation"),
            Some(Some(time_s)) if time_s <= last_s => return Ok(false),
            Some(Some(_)) => {}
        }
        let (path, at) = (part.path.display(), annotation.cut_at);
        if at == 0 {
            return self.stop(&format!(
                "AOF {path} has nothing before timestamp {last_s}, aborting..."
            ));
        }
        if !part.is_last {
            return self.stop(&format!(
                "Failed to truncate AOF {path} to timestamp {last_s} to offset {at} because it is not the last file.\n\
                 If you insist, please delete all files after this file according to the manifest file and delete the \
                 corresponding records in manifest file manually. Then re-run {}.",
                self.tool.name
            ));
        }
        match cut(self.tool.disk, &part.path, at) {
            Ok(()) => Ok(true),
            Err(error) => self.stop(&format!(
                "Failed to truncate AOF {path} to timestamp {last_s}: {}",
                error_text(&error)
            )),
        }
    }

    fn end(&mut self, part: &Part, size: u64, end: &End) -> Result<Good, Stop> {
        let (shown, path) = (&part.shown, part.path.display());
        let whole = match end {
            End::Whole { .. } => size,
            End::Cut { whole, flaw, .. } | End::Corrupt { whole, flaw, .. } => {
                if flaw.what == What::NoCommand {
                    writeln!(self.tool.out, "AOF {shown} format error")?;
                }
                if let Some(text) = flaw.what.text(&path) {
                    writeln!(self.tool.out, "0x{:16x}: {text}", flaw.at)?;
                }
                *whole
            }
        };
        let rest = size - whole;
        if let (0, Some(time_s)) = (rest, self.check.cut_after_s) {
            writeln!(
                self.tool.out,
                "Truncate nothing in AOF {shown} to timestamp {time_s}"
            )?;
            return Ok(Good::Valid);
        }
        let line = self.line;
        writeln!(
            self.tool.out,
            "AOF analyzed: filename={shown}, size={size}, ok_up_to={whole}, ok_up_to_line={line}, diff={rest}"
        )?;
        match self.check.repair {
            _ if rest == 0 => return Ok(Good::Valid),
            Repair::No => {
                let text =
                    format!("AOF {shown} is not valid. Use the --fix option to try fixing it.");
                return self.stop(&text);
            }
            _ if !part.is_last => {
                let text =
                    format!("Failed to truncate AOF {shown} because it is not the last file");
                return self.stop(&text);
            }
            Repair::Ask | Repair::Always => {}
        }
        writeln!(
            self.tool.out,
            "This will shrink the AOF {shown} from {size} bytes, with {rest} bytes, to {whole} bytes"
        )?;
        if self.check.repair == Repair::Ask && !self.is_wanted()? {
            return self.stop("Aborting...");
        }
        match cut(self.tool.disk, &part.path, whole) {
            Ok(()) => Ok(Good::Cut),
            Err(error) => {
                let why = error_text(&error);
                self.stop(&format!("Failed to truncate AOF {shown}: {why}"))
            }
        }
    }

    fn is_wanted(&mut self) -> Result<bool, Stop> {
        write!(self.tool.out, "Continue? [y/N]: ")?;
        self.tool.out.flush()?;
        let mut answer = Vec::new();
        // No answer is none.
        let _ = self.tool.input.read_until(b'\n', &mut answer);
        Ok(matches!(answer.first(), Some(b'y' | b'Y')))
    }

    fn stop<T>(&mut self, line: &str) -> Result<T, Stop> {
        writeln!(self.tool.out, "{line}")?;
        Err(Stop::Told)
    }

    fn is_snapshot(&mut self, path: &Path) -> Result<bool, Stop> {
        let first = self.first_bytes(path, 16)?;
        Ok(starts_with_snapshot(&first))
    }

    /// True if a line of the file begins as those of a manifest do, and the file not as one with data.
    fn is_manifest(&mut self, path: &Path) -> Result<bool, Stop> {
        let first = self.first_bytes(path, MANIFEST_BYTES_MAX)?;
        let is_data = first.first() == Some(&b'*') || starts_with_snapshot(&first);
        let mut lines = first
            .split_inclusive(|byte| *byte == b'\n')
            .flat_map(|line| line.chunks(LINE_BYTES_MAX));
        Ok(!is_data && lines.any(|line| line.starts_with(b"file")))
    }

    fn first_bytes(&mut self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, Stop> {
        let shown = path.display();
        let file = match self.tool.disk.open(path) {
            Ok(file) => file,
            Err(error) => {
                return self.stop(&format!("Cannot open file {shown}: {}", error_text(&error)));
            }
        };
        let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        while (bytes.len() as u64) < bytes_max {
            match file.read_at(&mut piece, bytes.len() as u64) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.stop(&format!("Cannot read file: {shown}")),
            }
            // Most files with data are told by their first piece.
            if bytes.first() == Some(&b'*') || starts_with_snapshot(&bytes) {
                break;
            }
        }
        Ok(bytes)
    }
}

fn cut(disk: &dyn Disk, path: &Path, at: u64) -> io::Result<()> {
    disk.truncate(path, at)?;
    disk.open(path)?.sync_data()
}

#[cfg(test)]
mod tests;
