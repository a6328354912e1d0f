//! A snapshot into a file: written under another name, made durable, then renamed.
//!
//! Must not know: commands, threads, what the caller does when it is done.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use redline_keyspace::snapshot::CutDatabase;
use redline_rdb::{crc64, file::write, format::Format, primitive::Writer};

use super::{CHUNK_BYTES, End, Refused, Stream};
use crate::aof::commands;
use crate::disk::{Disk, File, error_text, write_all};

/// Bytes after which a file is flushed, if it is flushed in steps.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

/// Records that stand before the entries.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Facts about the file: name and value.
    pub facts: Vec<(&'static str, Vec<u8>)>,
    /// Sources of the libraries of functions.
    pub libraries: Vec<Vec<u8>>,
    /// The databases at the cut.
    pub databases: Vec<CutDatabase>,
    /// The time that a file of commands names first (`aof-timestamp-enabled`): Unix time in seconds.
    pub timestamp_s: Option<i64>,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// It is flushed in steps (`rdb-save-incremental-fsync`).
    pub in_steps: bool,
    /// Time that each entry takes at least (`rdb-key-save-delay`), for tests.
    pub key_delay: Duration,
}

/// Size of a file that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
}

/// Reason why there is no file.
#[derive(Debug)]
pub enum SaveError {
    /// The file system refused: which step, and how.
    Disk(&'static str, io::Error),
    /// A value cannot be written in this format.
    Refused(Refused),
    /// The spool of chunks that do not fit into memory cannot be written or read, for this reason.
    Spool(String),
    /// It was not wanted any more.
    Unwanted,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaveError::Disk(step, error) => write!(f, "{step}: {}", error_text(error)),
            SaveError::Refused(refused) => write!(
                f,
                "the key '{}' of database {} has {}, which the format of this snapshot cannot hold",
                refused.key.escape_ascii(),
                refused.db,
                refused.what
            ),
            SaveError::Spool(why) => {
                write!(f, "The spool of what waits for the file failed: {why}")
            }
            SaveError::Unwanted => f.write_str("it is not wanted any more"),
        }
    }
}

impl std::error::Error for SaveError {}

/// Writes a snapshot to `temporary`, and makes that `path`. Waits for the workers' chunks.
///
/// # Errors
/// If a call of the disk fails, or the snapshot ends early. The stream is given up then, the temporary file is removed,
/// and `path` is what it was; but after a flush of the folder that failed it is the new file, which a loss of power may
/// take back.
pub fn write_file(
    disk: &dyn Disk,
    stream: &Stream,
    head: &Head,
    manner: Manner,
    temporary: &Path,
    path: &Path,
) -> Result<Written, SaveError> {
    let result = write_temporary(disk, stream, head, manner, temporary).and_then(|written| {
        disk.rename(temporary, path).map_err(|error| {
            SaveError::Disk("Error moving temp DB file on the final destination", error)
        })?;
        let folder = folder_of(path);
        let folder = if folder == Path::new("") {
            Path::new(".")
        } else {
            &folder
        };
        disk.sync_dir(folder)
            .map_err(|error| SaveError::Disk("Failed to fsync the folder of the DB file", error))?;
        Ok(written)
    });
    if result.is_err() {
        stream.give_up();
        // There may be none.
        let _ = disk.remove(temporary);
    }
    result
}

/// Returns the folder of a file; empty for the working directory.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) => folder.to_owned(),
        None => PathBuf::new(),
    }
}

fn write_temporary(
    disk: &dyn Disk,
    stream: &Stream,
    head: &Head,
    manner: Manner,
    temporary: &Path,
) -> Result<Written, SaveError> {
    let file = disk
        .create(temporary)
        .map_err(|error| SaveError::Disk("Failed opening the temp RDB file for saving", error))?;
    let format = stream.format();
    let mut out = Output {
        file: &*file,
        out: Writer::new(format.compresses),
        crc: (format.checksums && !stream.writes_commands()).then_some(0),
        bytes: 0,
        unflushed: 0,
        in_steps: manner.in_steps,
    };
    match stream.writes_commands() {
        true => out.begin_commands(head)?,
        false => out.begin_snapshot(head, format)?,
    }
    let mut entries = 0;
    loop {
        match stream.take() {
            Ok(chunk) => {
                chunk.write_to(&mut out.out);
                out.flush_if_full()?;
                entries += chunk.entries;
                if !manner.key_delay.is_zero() {
                    let delay = manner.key_delay.saturating_mul(chunk.entries as u32);
                    stream.rest(delay);
                }
            }
            Err(End::Complete) => break,
            Err(End::Unwanted) => return Err(SaveError::Unwanted),
            Err(End::Refused(refused)) => return Err(SaveError::Refused(refused)),
            Err(End::Spool(why)) => return Err(SaveError::Spool(why)),
        }
    }
    out.flush()?;
    if !stream.writes_commands() {
        let crc = out.crc;
        write::trailer(&mut out.out, crc);
        out.flush()?;
    }
    file.sync_data()
        .map_err(|error| SaveError::Disk("Write error saving DB on disk (fsync)", error))?;
    Ok(Written {
        bytes: out.bytes,
        entries,
    })
}

/// The file, with what is not yet written to it.
struct Output<'a> {
    file: &'a dyn File,
    out: Writer,
    /// The checksum of what was written, if there is one.
    crc: Option<u64>,
    bytes: u64,
    unflushed: u64,
    in_steps: bool,
}

impl Output<'_> {
    /// Writes what a snapshot has before the entries.
    fn begin_snapshot(&mut self, head: &Head, format: &Format) -> Result<(), SaveError> {
        write::header(&mut self.out, format);
        for (name, value) in &head.facts {
            write::aux(&mut self.out, name.as_bytes(), value);
        }
        if format.version.has_functions() {
            for library in &head.libraries {
                write::function(&mut self.out, library);
                self.flush_if_full()?;
            }
        }
        for database in &head.databases {
            write::select_db(&mut self.out, database.number.into());
            write::resize_db(&mut self.out, database.keys, database.expiring);
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Writes what a file of commands has before the entries.
    fn begin_commands(&mut self, head: &Head) -> Result<(), SaveError> {
        if let Some(time_s) = head.timestamp_s {
            self.out
                .extend_from_slice(format!("#TS:{time_s}\r\n").as_bytes());
        }
        for source in &head.libraries {
            commands::library(&mut self.out, source);
            self.flush_if_full()?;
        }
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), SaveError> {
        match self.out.len() >= CHUNK_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), SaveError> {
        let write_error = |error| SaveError::Disk("Write error saving DB on disk", error);
        if let Some(crc) = &mut self.crc {
            *crc = crc64::update(*crc, &self.out);
        }
        write_all(self.file, &[&self.out]).map_err(|(_, error)| write_error(error))?;
        let bytes = self.out.len() as u64;
        self.out.clear();
        self.out.shrink_to(4 * CHUNK_BYTES);
        self.bytes += bytes;
        self.unflushed += bytes;
        if self.in_steps && self.unflushed >= STEP_BYTES {
            self.unflushed = 0;
            self.file.sync_data().map_err(write_error)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
