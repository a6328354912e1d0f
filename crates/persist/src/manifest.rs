//! The manifest of an append-only file: which files it consists of, in Redis's format.
//!
//! Each line names a file: `file appendonly.aof.1.incr.aof seq 1 type i`, type `b` for the base (the data at one instant),
//! `i` for what came after it, in the order of their numbers, and `h` for what a rewrite has replaced and nobody has
//! removed yet. A line that begins with `#` is a comment; names with spaces or quotes are quoted.
//!
//! Must not know what is in the files that it names.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use redline_resp::split_words;

use crate::disk::{Disk, error_text, read_whole, write_all};

/// Places and names of the files, from `dir`, `appenddirname` and `appendfilename`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The server's folder.
    pub dir: PathBuf,
    /// Name of the folder of the files, inside `dir`.
    pub folder_name: String,
    /// Beginning of the names of the files.
    pub file_name: String,
}

impl Paths {
    /// Returns the folder of the files.
    pub fn folder(&self) -> PathBuf {
        self.dir.join(&self.folder_name)
    }

    /// Returns the path of a file in that folder.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder().join(name)
    }

    /// Returns the path of the manifest.
    pub fn manifest(&self) -> PathBuf {
        self.file(format!("{}.manifest", self.file_name))
    }

    /// Returns the path of a manifest that is being written.
    pub fn temporary_manifest(&self) -> PathBuf {
        self.file(format!("temp-{}.manifest", self.file_name))
    }

    /// Returns the path of the file that takes what comes while a first base is written.
    pub fn temporary_incr(&self) -> PathBuf {
        self.file(format!("temp-{}.incr", self.file_name))
    }

    /// Returns the path of a single file of Redis before version 7.
    pub fn single_file(&self) -> PathBuf {
        self.dir.join(&self.file_name)
    }

    /// Returns the name of a base: a snapshot, or commands.
    pub fn base_name(&self, seq: i64, is_snapshot: bool) -> OsString {
        let form = if is_snapshot { "rdb" } else { "aof" };
        format!("{}.{seq}.base.{form}", self.file_name).into()
    }

    /// Returns the name of a file of commands after the base.
    pub fn incr_name(&self, seq: i64) -> OsString {
        format!("{}.{seq}.incr.aof", self.file_name).into()
    }
}

/// One file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, without a folder.
    pub name: OsString,
    /// Its number among those of its type.
    pub seq: i64,
}

/// The files that the data consist of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The data at one instant.
    pub base: Option<Entry>,
    /// The files of what came after it, in this order.
    pub incrs: Vec<Entry>,
    /// Files that are not needed any more.
    pub history: Vec<Entry>,
}

/// Longest line that is read, with its line end.
pub const LINE_BYTES_MAX: usize = 1024;
/// Largest manifest that is read.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// Error of a manifest's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// Number of the line, from 1, and its text; none if the line was not read whole.
    pub line: Option<(usize, String)>,
    /// The reason, as Redis words it.
    pub what: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\n*** FATAL AOF MANIFEST FILE ERROR ***\n\n")?;
        if let Some((number, text)) = &self.line {
            write!(
                f,
                "Reading the manifest file, at line {number}\n\n>>> '{text}'\n\n"
            )?;
        }
        writeln!(f, "{}", self.what)
    }
}

impl std::error::Error for ManifestError {}

const INVALID_FORMAT: &str = "Invalid AOF manifest file format";

impl Manifest {
    /// Reads the text of a manifest.
    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        if text.is_empty() {
            return Err(ManifestError {
                line: None,
                what: "Found an empty AOF manifest",
            });
        }
        let mut manifest = Manifest::default();
        for (index, line) in lines(text).enumerate() {
            // As in Redis, a long comment is several lines, of which only the first is known to be one.
            if line.first() == Some(&b'#') {
                continue;
            }
            let Some(line) = line.strip_suffix(b"\n") else {
                return Err(ManifestError {
                    line: None,
                    what: "The AOF manifest file contains too long line",
                });
            };
            let line = trimmed(line);
            manifest.add(line).map_err(|what| ManifestError {
                line: Some((index + 1, String::from_utf8_lossy(line).into_owned())),
                what,
            })?;
        }
        Ok(manifest)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let words = if line.contains(&0) {
            None
        } else {
            split_words(line)
        };
        let Some(words) = words.filter(|words| words.len() >= 6 && words.len() % 2 == 0) else {
            return Err(INVALID_FORMAT);
        };
        let (mut name, mut seq, mut kind) = (None, 0, None);
        for pair in words.chunks_exact(2) {
            let value = &pair[1];
            // Other keys are for versions to come.
            match &*pair[0].to_ascii_lowercase() {
                b"file" => name = Some(checked_name(value)?),
                b"seq" => seq = leading_number(value),
                b"type" => kind = value.first().copied(),
                _ => {}
            }
        }
        let (Some(name), Some(kind), true) = (name, kind, seq != 0 && seq != i64::MAX) else {
            return Err(INVALID_FORMAT);
        };
        let entry = Entry { name, seq };
        match kind {
            b'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            b'b' => self.base = Some(entry),
            b'h' => self.history.push(entry),
            b'i' if seq <= self.incr_seq() => return Err("Found a non-monotonic sequence number"),
            b'i' => self.incrs.push(entry),
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    /// Returns the text, which [`Manifest::parse`] reads as the same manifest unless a name is too long for a line.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let base = self.base.iter().map(|entry| (entry, 'b'));
        let history = self.history.iter().map(|entry| (entry, 'h'));
        let incrs = self.incrs.iter().map(|entry| (entry, 'i'));
        for (entry, kind) in base.chain(history).chain(incrs) {
            text.extend_from_slice(b"file ");
            push_name(&mut text, entry.name.as_bytes());
            text.extend_from_slice(format!(" seq {} type {kind}\n", entry.seq).as_bytes());
        }
        text
    }

    /// Returns true if no file holds data.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.incrs.is_empty()
    }

    /// Returns the files that hold data, in the order in which they are loaded.
    pub fn files(&self) -> impl Iterator<Item = &Entry> {
        self.base.iter().chain(&self.incrs)
    }

    /// Returns true if all files after number `index` of [`Manifest::files`], in `folder`, are there and empty: then the end of
    /// that one may be missing. A rewrite names a new file before it lets go of the one before.
    pub fn is_end(&self, disk: &dyn Disk, folder: &Path, index: usize) -> bool {
        let mut later = self.files().skip(index + 1);
        later.all(|entry| {
            disk.len(&folder.join(&entry.name))
                .is_ok_and(|bytes| bytes == 0)
        })
    }

    /// Returns the number of the last file of commands; 0 if there is none.
    pub fn incr_seq(&self) -> i64 {
        self.incrs.last().map_or(0, |entry| entry.seq)
    }

    /// Returns the number of the base; 0 if there is none.
    pub fn base_seq(&self) -> i64 {
        self.base.as_ref().map_or(0, |entry| entry.seq)
    }

    /// Adds a file of commands, to which all that follows is written.
    pub fn add_incr(&mut self, paths: &Paths) -> OsString {
        let seq = self.incr_seq() + 1;
        let name = paths.incr_name(seq);
        self.incrs.push(Entry {
            name: name.clone(),
            seq,
        });
        name
    }

    /// Replaces the base, and all files of commands but the last `kept`, which become history.
    pub fn replace_base(&mut self, paths: &Paths, is_snapshot: bool, kept: usize) -> OsString {
        let seq = self.base_seq() + 1;
        let name = paths.base_name(seq, is_snapshot);
        let gone = self.incrs.len().saturating_sub(kept);
        self.history.extend(self.base.take());
        self.history.extend(self.incrs.drain(..gone));
        self.base = Some(Entry {
            name: name.clone(),
            seq,
        });
        name
    }

    /// Returns the names of the history that no line claims to be in use.
    pub fn removable(&self) -> Vec<OsString> {
        let is_used = |entry: &&Entry| self.files().any(|used| used.name == entry.name);
        let unused = self.history.iter().filter(|entry| !is_used(entry));
        unused.map(|entry| entry.name.clone()).collect()
    }
}

/// Cuts a text after each line end, and after [`LINE_BYTES_MAX`] bytes without one.
fn lines(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let window = &text[..text.len().min(LINE_BYTES_MAX)];
        let end = window.iter().position(|&byte| byte == b'\n');
        let (line, rest) = text.split_at(end.map_or(window.len(), |end| end + 1));
        text = rest;
        (!line.is_empty()).then_some(line)
    })
}

fn trimmed(mut line: &[u8]) -> &[u8] {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    while let [first, rest @ ..] = line
        && is_space(*first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && is_space(*last)
    {
        line = rest;
    }
    line
}

fn checked_name(name: &[u8]) -> Result<OsString, &'static str> {
    match name {
        b"" => Err(INVALID_FORMAT),
        _ if name.contains(&0) => Err(INVALID_FORMAT),
        b"." | b".." => Err(NO_PATH),
        _ if name.iter().any(|byte| matches!(byte, b'/' | b'\\')) => Err(NO_PATH),
        _ => Ok(OsString::from_vec(name.to_vec())),
    }
}

const NO_PATH: &str = "File can't be a path, just a filename";

/// Reads digits up to the first other byte, as C's `atoll` does. Too large a number is the largest.
fn leading_number(text: &[u8]) -> i64 {
    let text = trimmed(text);
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let mut number = 0_i64;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        number = number
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'));
    }
    if is_negative { -number } else { number }
}

fn push_name(text: &mut Vec<u8>, name: &[u8]) {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if name.iter().all(is_plain) && name.first() != Some(&b'#') {
        return text.extend_from_slice(name);
    }
    text.push(b'"');
    for &byte in name {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => text.push(byte),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            0x07 => text.extend_from_slice(b"\\a"),
            0x08 => text.extend_from_slice(b"\\b"),
            _ => text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    text.push(b'"');
}

/// Error of files: with the text for a log.
#[derive(Debug)]
pub struct FileError {
    /// The line for the log, as Redis words it.
    pub text: String,
    /// The error of the system, if it was one.
    pub error: Option<io::Error>,
    /// True if the new manifest may have its name: then either one may be there, now and after a loss of power.
    pub may_be_renamed: bool,
}

impl FileError {
    /// Creates one whose line ends with the error's text.
    pub(crate) fn new(what: String, error: io::Error) -> FileError {
        FileError {
            text: format!("{what}: {}", error_text(&error)),
            error: Some(error),
            may_be_renamed: false,
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FileError {}

/// Reads the manifest at `path`.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<Manifest, FileError> {
    let text = read_whole(disk, path, MANIFEST_BYTES_MAX).map_err(|error| {
        let path = path.display();
        let what = format!("Fatal error: can't open the AOF manifest file {path} for reading");
        FileError::new(what, error)
    })?;
    let whole = |text: String| FileError {
        text,
        error: None,
        may_be_renamed: false,
    };
    let Some(text) = text else {
        let (path, max) = (path.display(), MANIFEST_BYTES_MAX);
        return Err(whole(format!(
            "Fatal error: the AOF manifest file {path} is larger than {max} bytes: it cannot be one"
        )));
    };
    Manifest::parse(&text).map_err(|error| whole(error.to_string()))
}

/// Reads the manifest of a server, if there is one.
pub fn load(disk: &dyn Disk, paths: &Paths) -> Result<Option<Manifest>, FileError> {
    let path = paths.manifest();
    match disk.exists(&path) {
        Ok(false) => Ok(None),
        // An error is told by whoever opens it.
        _ => read(disk, &path).map(Some),
    }
}

/// Writes the manifest of a server, so that either the old one or the new one is there whatever happens. The files that
/// it names must be on disk under their names.
pub fn write(disk: &dyn Disk, paths: &Paths, manifest: &Manifest) -> Result<(), FileError> {
    let (path, temporary) = (paths.manifest(), paths.temporary_manifest());
    let named =
        |what: &str, error| FileError::new(format!("{what} {}", temporary.display()), error);
    let file = disk
        .create(&temporary)
        .map_err(|error| named("Can't open the AOF manifest file", error))?;
    write_all(&*file, &[&manifest.text()]).map_err(|(_, error)| {
        named(
            "Error trying to write the temporary AOF manifest file",
            error,
        )
    })?;
    file.sync_data()
        .map_err(|error| named("Fail to fsync the temp AOF file", error))?;
    disk.rename(&temporary, &path).map_err(|error| {
        let (from, to) = (temporary.display(), path.display());
        let what =
            format!("Error trying to rename the temporary AOF manifest file {from} into {to}");
        FileError {
            // Over a network a rename can be done whose answer was lost.
            may_be_renamed: true,
            ..FileError::new(what, error)
        }
    })?;
    sync_folder(disk, paths).map_err(|error| FileError {
        may_be_renamed: true,
        ..error
    })
}

/// Makes the names in the folder of the files outlive a loss of power.
pub(crate) fn sync_folder(disk: &dyn Disk, paths: &Paths) -> Result<(), FileError> {
    let folder = paths.folder();
    disk.sync_dir(&folder).map_err(|error| {
        FileError::new(
            format!("Fail to fsync AOF directory {}", folder.display()),
            error,
        )
    })
}

/// Creates the folder of the files, if it is not there.
pub fn create_folder(disk: &dyn Disk, paths: &Paths) -> Result<(), FileError> {
    let failed = |error| {
        let name = &paths.folder_name;
        FileError::new(
            format!("Can't open or create append-only dir {name}"),
            error,
        )
    };
    disk.create_dir(&paths.folder()).map_err(failed)?;
    disk.sync_dir(&paths.dir).map_err(failed)
}

/// Takes over the single file of a Redis before version 7 as the base, if that is what there is: it is moved into the
/// folder. A take-over that was interrupted goes on. Returns the line for the log if a file was taken over.
pub fn take_over(
    disk: &dyn Disk,
    paths: &Paths,
    manifest: &mut Manifest,
) -> Result<Option<String>, FileError> {
    let (single, inside) = (paths.single_file(), paths.file(&paths.file_name));
    let asked = |path: &Path, answer: io::Result<bool>| {
        answer.map_err(|error| FileError::new(format!("Can't look for {}", path.display()), error))
    };
    if !asked(&single, disk.exists(&single))? {
        return Ok(None);
    }
    let name = OsStr::new(&paths.file_name);
    let is_half_done = manifest.incrs.is_empty()
        && manifest.base.as_ref().is_some_and(|base| base.name == name)
        && !asked(&inside, disk.exists(&inside))?;
    if !manifest.is_empty() && !is_half_done {
        return Ok(None);
    }
    create_folder(disk, paths)?;
    let mut taken = manifest.clone();
    taken.base = Some(Entry {
        name: name.to_owned(),
        seq: 1,
    });
    // First the manifest: a base that it names and that is still outside is looked for there, a base that nobody names is not.
    write(disk, paths, &taken)?;
    disk.rename(&single, &inside).map_err(|error| {
        let (name, folder) = (&paths.file_name, &paths.folder_name);
        FileError::new(
            format!("Error trying to move the old AOF file {name} into dir {folder}"),
            error,
        )
    })?;
    sync_folder(disk, paths)?;
    *manifest = taken;
    let (name, folder) = (&paths.file_name, &paths.folder_name);
    Ok(Some(format!(
        "Successfully migrated an old-style AOF file ({name}) into the AOF directory ({folder})."
    )))
}

/// Makes a finished base, which is on disk at `path`, the only file that holds data: no file of commands follows it.
/// Returns the manifest that says so. `is_snapshot`: as for [`Manifest::replace_base`].
pub fn put_lone_base(
    disk: &dyn Disk,
    paths: &Paths,
    path: &Path,
    is_snapshot: bool,
) -> Result<Manifest, FileError> {
    create_folder(disk, paths)?;
    let mut manifest = load(disk, paths)?.unwrap_or_default();
    let name = manifest.replace_base(paths, is_snapshot, 0);
    disk.rename(path, &paths.file(&name)).map_err(|error| {
        FileError::new(format!("Error trying to rename {}", path.display()), error)
    })?;
    sync_folder(disk, paths)?;
    write(disk, paths, &manifest)?;
    remove_history(disk, paths, &manifest)
}

/// Removes the files of the history, and then their lines. Files that cannot be removed keep theirs.
pub fn remove_history(
    disk: &dyn Disk,
    paths: &Paths,
    manifest: &Manifest,
) -> Result<Manifest, FileError> {
    let mut left = manifest.clone();
    let removable = manifest.removable();
    left.history.retain(|entry| {
        removable.contains(&entry.name)
            && disk
                .remove(&paths.file(&entry.name))
                .is_err_and(|error| error.kind() != ErrorKind::NotFound)
    });
    if left != *manifest {
        write(disk, paths, &left)?;
    }
    Ok(left)
}

#[cfg(test)]
mod tests;
