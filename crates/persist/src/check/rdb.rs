//! The check of a snapshot: its records, each value as a load would read it, and its checksum.
//!
//! Must not know what stands behind a snapshot in the same file.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use redline_rdb::FileVersion;
use redline_rdb::file::{FileError, FileErrorKind, Record, Scanner, Source, decode};
use redline_types::Limits;

use super::Tool;
use crate::disk::{File, Reader, error_text};

/// Names of forms, as redis-check-rdb has them, and of later ones; by the byte that stands for them.
const FORMS: [&str; 26] = [
    "string",
    "list-linked",
    "set-hashtable",
    "zset-v1",
    "hash-hashtable",
    "zset-v2",
    "module-value",
    "module-value-2",
    "",
    "hash-zipmap",
    "list-ziplist",
    "set-intset",
    "zset-ziplist",
    "hash-ziplist",
    "quicklist",
    "stream",
    "hash-listpack",
    "zset-listpack",
    "quicklist-v2",
    "stream-v2",
    "set-listpack",
    "stream-v3",
    "hash-fields-expire-early",
    "hash-listpack-expire-early",
    "hash-fields-expire",
    "hash-listpack-expire",
];

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// A file as the scanner wants it.
struct Pieces(Reader);

impl Source for Pieces {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let filled = buffer.len();
        let room = (buffer.capacity() - filled).max(READ_BYTES);
        buffer.resize(filled + room, 0);
        let read = loop {
            match self.0.read(&mut buffer[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        buffer.truncate(filled + *read.as_ref().unwrap_or(&0));
        read
    }
}

/// Where a check is, for its report.
struct Progress {
    doing: &'static str,
    key: Option<String>,
    /// As in redis-check-rdb, a form is shown before the first key, too.
    form: Option<u8>,
    keys: u64,
    expires: u64,
    already_expired: u64,
}

/// Checks a snapshot and writes the report. `shown` is the name for it. Returns the offset of its end if it is good.
pub fn check_rdb(tool: &mut Tool<'_>, path: &Path, shown: &str) -> io::Result<Option<u64>> {
    writeln!(tool.out, "[offset 0] Checking RDB file {shown}")?;
    let file = match tool.disk.open(path) {
        Ok(file) => file,
        Err(error) => {
            writeln!(tool.out, "Cannot open file {shown}: {}", error_text(&error))?;
            return Ok(None);
        }
    };
    let mut progress = Progress {
        doing: "start",
        key: None,
        form: Some(0),
        keys: 0,
        expires: 0,
        already_expired: 0,
    };
    let mut scanner = Scanner::new(Pieces(Reader::new(file.clone(), 0)));
    let version = match scanner.header() {
        Ok(version) => version,
        Err(error) => return progress.fail(tool.out, &error).map(|()| None),
    };
    loop {
        let line = match progress.step(&mut scanner, version, tool.now_ms) {
            Ok(Step::End) => break,
            Ok(Step::Line(line)) => line,
            Ok(Step::Silent) => continue,
            Err(error) => return progress.fail(tool.out, &error).map(|()| None),
        };
        writeln!(tool.out, "[offset {}] {line}", scanner.offset())?;
    }
    let end = scanner.offset();
    if version.has_checksum() {
        let text = if is_unsummed(&*file, end) {
            "RDB file was saved with checksum disabled: no check performed."
        } else {
            "Checksum OK"
        };
        writeln!(tool.out, "[offset {end}] {text}")?;
    }
    writeln!(tool.out, "[offset {end}] \\o/ RDB looks OK! \\o/")?;
    progress.write_counts(tool.out)?;
    Ok(Some(end))
}

enum Step {
    Line(String),
    Silent,
    End,
}

impl Progress {
    fn step(
        &mut self,
        scanner: &mut Scanner<Pieces>,
        version: FileVersion,
        now_ms: i64,
    ) -> Result<Step, FileError> {
        self.doing = "read-type";
        Ok(match scanner.next()? {
            Record::Aux { name, value } => {
                let (name, value) = (
                    String::from_utf8_lossy(&name),
                    String::from_utf8_lossy(&value),
                );
                Step::Line(format!("AUX FIELD {name} = '{value}'"))
            }
            Record::SelectDb(db) => Step::Line(format!("Selecting DB ID {db}")),
            Record::ResizeDb { .. } | Record::Function(_) => Step::Silent,
            Record::End => Step::End,
            Record::Entry(entry) => {
                self.doing = "read-object-value";
                self.keys += 1;
                self.key = Some(String::from_utf8_lossy(&entry.key).into_owned());
                self.form = Some(entry.rdb_type);
                decode(version, entry.rdb_type, entry.value, &Limits::default())
                    .map_err(|corrupt| entry.error(corrupt))?;
                (self.key, self.form) = (None, None);
                if let Some(expire_at_ms) = entry.meta.expire_at_ms {
                    self.expires += 1;
                    self.already_expired += u64::from(expire_at_ms < now_ms);
                }
                Step::Silent
            }
        })
    }

    fn fail(&self, out: &mut dyn Write, error: &FileError) -> io::Result<()> {
        let text = match &error.kind {
            FileErrorKind::BadMagic => "Wrong signature trying to load DB from file".to_owned(),
            FileErrorKind::Version(FileVersion::Redis(number)) => {
                format!("Can't handle RDB format version {number}")
            }
            FileErrorKind::Version(version) => {
                format!("Can't handle RDB format version {version}")
            }
            FileErrorKind::Cut => "Unexpected EOF reading RDB file".to_owned(),
            FileErrorKind::UnknownType(byte) => format!("Invalid object type: {byte}"),
            FileErrorKind::WrongChecksum { .. } => "RDB CRC error".to_owned(),
            FileErrorKind::Corrupt(what) => format!("Internal error in RDB reading: {what}"),
            _ => error.to_string(),
        };
        let doing = match &error.kind {
            FileErrorKind::WrongChecksum { .. } => "check-sum",
            FileErrorKind::EarlyFunction => "read-functions",
            _ => self.doing,
        };
        writeln!(
            out,
            "--- RDB ERROR DETECTED ---\n[offset {}] {text}",
            error.offset
        )?;
        writeln!(out, "[additional info] While doing: {doing}")?;
        if let Some(key) = &self.key {
            writeln!(out, "[additional info] Reading key '{key}'")?;
        }
        if let Some(form) = self.form {
            let name = FORMS.get(usize::from(form)).unwrap_or(&"unknown");
            writeln!(out, "[additional info] Reading type {form} ({name})")?;
        }
        self.write_counts(out)
    }

    fn write_counts(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "[info] {} keys read", self.keys)?;
        writeln!(out, "[info] {} expires", self.expires)?;
        writeln!(out, "[info] {} already expired", self.already_expired)
    }
}

/// Returns true if the eight bytes before the end are zeros: written instead of a checksum.
fn is_unsummed(file: &dyn File, end: u64) -> bool {
    let mut sum = [0xff; 8];
    let at = end.saturating_sub(8);
    file.read_at(&mut sum, at).is_ok() && sum == [0; 8]
}

#[cfg(test)]
mod tests;
