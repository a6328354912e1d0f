//! A file as records: the scanner finds where each ends, and gives values as bytes. Must not know databases, nor where
//! bytes come from. It reads no value: another thread may do that ([`decode`]).

use std::{borrow::Cow, fmt, io, ops::Range};

use redline_types::Limits;

use super::{EntryMeta, Recency, feed::Feed, opcode};
use crate::{
    Corrupt, Object, ensure,
    format::{FileVersion, MAGIC_BYTES, ModuleType, Part},
    module::field,
    object::{self, Forms, MODULE, MODULE_EARLY},
    primitive::{Length, Reader},
};

/// Place that bytes of a file come from.
pub trait Source {
    /// Appends at least one byte, or returns 0 at the end; otherwise their number. The buffer has room for many, and
    /// what is in it stays as it is.
    ///
    /// # Errors
    ///
    /// If bytes cannot be read. An interruption is no error: the source tries again.
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize>;
}

/// Source of bytes in memory, in pieces of the size of the room that the buffer has.
impl Source for &[u8] {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let room = (buffer.capacity() - buffer.len()).max(1);
        let (piece, rest) = self.split_at(room.min(self.len()));
        buffer.extend_from_slice(piece);
        *self = rest;
        Ok(piece.len())
    }
}

/// A record.
#[derive(Debug)]
pub enum Record<'a> {
    /// A fact about the file itself.
    Aux {
        /// Its name.
        name: Cow<'a, [u8]>,
        /// Its value; a number as text.
        value: Cow<'a, [u8]>,
    },
    /// The number of the database to which the entries that follow belong.
    SelectDb(u64),
    /// Numbers for a reader that makes room; they may be wrong.
    ResizeDb {
        /// Number of keys of the database.
        keys: u64,
        /// Number of keys among them that expire.
        expiring: u64,
    },
    /// The text of a library of functions.
    Function(Cow<'a, [u8]>),
    /// A key and its value.
    Entry(RawEntry<'a>),
    /// The end; the checksum was right, or there was none.
    End,
}

/// A key, and its value in bytes.
#[derive(Debug)]
pub struct RawEntry<'a> {
    /// The key.
    pub key: Cow<'a, [u8]>,
    /// Byte that names the form of the value.
    pub rdb_type: u8,
    /// The value, for [`decode`]. Its extent is right, its contents may be damaged.
    pub value: &'a [u8],
    /// Facts that stand beside it.
    pub meta: EntryMeta,
    /// Offset in the file of the byte that names the form.
    pub offset: u64,
}

/// Error of a file, with the place where it was found.
#[derive(Debug)]
pub struct FileError {
    /// Offset in the file.
    pub offset: u64,
    /// The error.
    pub kind: FileErrorKind,
}

/// Reason why a file cannot be read further.
#[derive(Debug)]
pub enum FileErrorKind {
    /// The source failed.
    Io(io::Error),
    /// It does not begin as such a file does.
    BadMagic,
    /// It is of a version that is not read.
    Version(FileVersion),
    /// It ends before its end.
    Cut,
    /// It is damaged; the condition that does not hold.
    Corrupt(&'static str),
    /// A record begins with a byte that stands for nothing in files of this version.
    UnknownType(u8),
    /// It holds a value of a type that comes from a module, which is not here.
    Module(ModuleType),
    /// It holds a library of functions as release candidates of Redis 7.0 wrote them.
    EarlyFunction,
    /// Its checksum is another one than that of its bytes.
    WrongChecksum {
        /// Checksum that the file says it has.
        expected: u64,
        /// Checksum of the file's bytes.
        found: u64,
    },
}

impl From<Corrupt> for FileErrorKind {
    fn from(corrupt: Corrupt) -> FileErrorKind {
        FileErrorKind::Corrupt(corrupt.0)
    }
}

impl RawEntry<'_> {
    /// Returns the error of the file for this value, which [`decode`] refused.
    pub fn error(&self, corrupt: Corrupt) -> FileError {
        FileError {
            offset: self.offset,
            kind: corrupt.into(),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FileErrorKind::*;
        match &self.kind {
            Io(error) => write!(f, "RDB file cannot be read: {error}")?,
            BadMagic => write!(f, "no RDB file: it begins with neither REDIS nor VALKEY")?,
            Version(version) => write!(
                f,
                "RDB file of version {version}, which is not read: versions up to {} and {} are",
                FileVersion::LATEST,
                FileVersion::VALKEY
            )?,
            Cut => write!(f, "RDB file ends too early")?,
            Corrupt(what) => write!(f, "RDB file is damaged: {what}")?,
            UnknownType(byte) => write!(f, "RDB file has a record of unknown type {byte}")?,
            Module(name) => write!(
                f,
                "RDB file has a value of the type {name}, version {}, of a module that is not here; `skip-unknown-module-values yes` leaves out such keys",
                name.version()
            )?,
            EarlyFunction => write!(
                f,
                "RDB file has functions in the form of a release candidate of Redis 7.0, which is not read"
            )?,
            WrongChecksum { expected, found } => write!(
                f,
                "RDB CRC error: its checksum is {expected:016x}, that of its bytes {found:016x}"
            )?,
        }
        write!(f, " (offset {})", self.offset)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            FileErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

type Result<T> = std::result::Result<T, FileErrorKind>;

/// Reader of a file, record by record. It holds the present record, and what has arrived of the bytes behind it. After
/// an error it is of no more use.
pub struct Scanner<S> {
    feed: Feed<S>,
    /// The version, and the parts of its forms; `None` before the header.
    version: Option<(FileVersion, Box<Forms>)>,
    /// Texts of the present record that are not in it as they are.
    decoded: Vec<u8>,
    skipped_module: Option<ModuleType>,
    skips_unknown_modules: bool,
    skipped_values: u64,
    is_over: bool,
}

/// A text of the present record.
enum Text {
    /// Place in the record.
    Kept(Range<usize>),
    /// Place among the texts that are not in it as they are.
    Decoded(Range<usize>),
}

/// A record, as places.
enum Found {
    Aux {
        name: Text,
        value: Text,
    },
    SelectDb(u64),
    ResizeDb {
        keys: u64,
        expiring: u64,
    },
    Function(Text),
    Entry {
        key: Text,
        rdb_type: u8,
        value_at: usize,
        meta: EntryMeta,
        offset: u64,
    },
    End,
}

impl<S: Source> Scanner<S> {
    /// Creates a scanner of a file from its first byte on.
    pub fn new(source: S) -> Scanner<S> {
        Scanner {
            feed: Feed::new(source),
            version: None,
            decoded: Vec::new(),
            skipped_module: None,
            skips_unknown_modules: false,
            skipped_values: 0,
            is_over: false,
        }
    }

    /// Lets the checksum be (`rdbchecksum no`): it is neither computed nor compared.
    pub fn ignore_checksum(&mut self) {
        self.feed.sums = false;
    }

    /// Lets keys be whose values are of modules' types that are not read (`skip-unknown-module-values yes`): they are
    /// passed over, and counted.
    pub fn skip_unknown_modules(&mut self) {
        self.skips_unknown_modules = true;
    }

    /// Returns the number of keys that were passed over, since their values are of modules' types that are not read.
    pub fn skipped_values(&self) -> u64 {
        self.skipped_values
    }

    /// Returns the offset of the first byte that was not read: the file's length, after its end.
    pub fn offset(&self) -> u64 {
        self.feed.offset()
    }

    /// Returns the type of a module whose data were passed over, of a key or of none: the first such module.
    pub fn skipped_module(&self) -> Option<ModuleType> {
        self.skipped_module
    }

    /// Returns the source, and the bytes from it that were not read: after the end, those behind the file.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        self.feed.into_parts()
    }

    /// Reads the magic and the version, and no more. Later calls return the version again.
    ///
    /// # Errors
    ///
    /// If it is no such file, or of a version that is not read.
    pub fn header(&mut self) -> std::result::Result<FileVersion, FileError> {
        if let Some((version, _)) = &self.version {
            return Ok(*version);
        }
        self.read_header().map_err(|kind| FileError {
            offset: match kind {
                FileErrorKind::BadMagic | FileErrorKind::Version(_) => 0,
                _ => self.feed.offset(),
            },
            kind,
        })
    }

    fn read_header(&mut self) -> Result<FileVersion> {
        let magic = self.feed.array::<MAGIC_BYTES>()?;
        let version = FileVersion::of_magic(&magic).ok_or(FileErrorKind::BadMagic)?;
        if !version.is_read() {
            return Err(FileErrorKind::Version(version));
        }
        self.version = Some((version, object::forms(version)));
        Ok(version)
    }

    /// Reads the next record, after the header if that has not been read. After the end it is the end again.
    ///
    /// # Errors
    ///
    /// If the file is damaged, cut, or holds what is not read.
    #[expect(clippy::should_implement_trait, reason = "records borrow from it")]
    pub fn next(&mut self) -> std::result::Result<Record<'_>, FileError> {
        self.header()?;
        match self.find() {
            Ok(found) => Ok(self.record(found)),
            Err(kind) => Err(FileError {
                offset: self.feed.offset(),
                kind,
            }),
        }
    }

    /// Returns the number of bytes for which it has memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.feed.room() + self.decoded.capacity()
    }

    fn record(&self, found: Found) -> Record<'_> {
        let record = self.feed.since();
        let text = |text: Text| {
            Cow::Borrowed(match text {
                Text::Kept(place) => &record[place],
                Text::Decoded(place) => &self.decoded[place],
            })
        };
        match found {
            Found::Aux { name, value } => Record::Aux {
                name: text(name),
                value: text(value),
            },
            Found::SelectDb(db) => Record::SelectDb(db),
            Found::ResizeDb { keys, expiring } => Record::ResizeDb { keys, expiring },
            Found::Function(code) => Record::Function(text(code)),
            Found::Entry {
                key,
                rdb_type,
                value_at,
                meta,
                offset,
            } => Record::Entry(RawEntry {
                key: text(key),
                rdb_type,
                value: &record[value_at..],
                meta,
                offset,
            }),
            Found::End => Record::End,
        }
    }

    /// Finds the next record that is returned.
    fn find(&mut self) -> Result<Found> {
        if self.is_over {
            return Ok(Found::End);
        }
        self.decoded.clear();
        let mut meta = EntryMeta::default();
        loop {
            self.feed.keep();
            match self.feed.byte()? {
                opcode::EXPIRE_MS => {
                    let at_ms = i64::from_le_bytes(self.feed.array()?);
                    // Redis's word for none.
                    meta.expire_at_ms = Some(at_ms).filter(|at_ms| *at_ms != -1);
                }
                opcode::EXPIRE_SECONDS => {
                    let at = i32::from_le_bytes(self.feed.array()?);
                    meta.expire_at_ms = Some(i64::from(at) * 1000);
                }
                opcode::IDLE => meta.recency = Some(Recency::IdleSeconds(self.feed.number()?)),
                opcode::FREQUENCY => meta.recency = Some(Recency::Frequency(self.feed.byte()?)),
                opcode::SELECT_DB => return Ok(Found::SelectDb(self.feed.number()?)),
                opcode::RESIZE_DB => {
                    let (keys, expiring) = (self.feed.number()?, self.feed.number()?);
                    return Ok(Found::ResizeDb { keys, expiring });
                }
                opcode::AUX => {
                    let (name, value) = (self.text()?, self.text()?);
                    return Ok(Found::Aux { name, value });
                }
                opcode::FUNCTION => return self.text().map(Found::Function),
                opcode::FUNCTION_EARLY => return Err(FileErrorKind::EarlyFunction),
                opcode::SLOT_INFO => self.skip(&[Part::Number, Part::Number, Part::Number])?,
                opcode::MODULE_AUX => {
                    let name = ModuleType(self.feed.number()?);
                    self.skipped_module.get_or_insert(name);
                    self.skip_module(true)?;
                }
                opcode::END => {
                    self.end()?;
                    return Ok(Found::End);
                }
                rdb_type => match self.entry(rdb_type, meta)? {
                    Some(found) => return Ok(found),
                    None => {
                        self.decoded.clear();
                        meta = EntryMeta::default();
                    }
                },
            }
        }
    }

    #[inline]
    fn entry(&mut self, rdb_type: u8, meta: EntryMeta) -> Result<Option<Found>> {
        let offset = self.feed.offset() - 1;
        let form = match &self.version {
            Some((_, forms)) => forms[usize::from(rdb_type)],
            None => None,
        };
        let Some(parts) = form else {
            return Err(self.unknown(rdb_type)?);
        };
        let key = self.text()?;
        let value_at = self.feed.place();
        if rdb_type == MODULE {
            let module_type = ModuleType(self.feed.number()?);
            if !object::has_module_type(module_type) {
                if !self.skips_unknown_modules {
                    return Err(FileErrorKind::Module(module_type));
                }
                self.skipped_module.get_or_insert(module_type);
                self.skipped_values += 1;
                self.skip_module(true)?;
                return Ok(None);
            }
            self.skip_module(false)?;
        } else {
            self.skip(parts)?;
        }
        Ok(Some(Found::Entry {
            key,
            rdb_type,
            value_at,
            meta,
            offset,
        }))
    }

    /// Returns the error for a record that begins with this byte.
    #[cold]
    fn unknown(&mut self, byte: u8) -> Result<FileErrorKind> {
        if byte != MODULE_EARLY {
            return Ok(FileErrorKind::UnknownType(byte));
        }
        self.feed.skip_string()?;
        Ok(FileErrorKind::Module(ModuleType(self.feed.number()?)))
    }

    /// Reads what follows the mark of the end.
    fn end(&mut self) -> Result<()> {
        let has_checksum = matches!(&self.version, Some((version, _)) if version.has_checksum());
        if has_checksum {
            let found = self.feed.checksum();
            let expected = u64::from_le_bytes(self.feed.array()?);
            // Its writer did without one.
            let is_compared = self.feed.sums && expected != 0;
            if is_compared && expected != found {
                return Err(FileErrorKind::WrongChecksum { expected, found });
            }
        }
        self.is_over = true;
        self.feed.keep();
        Ok(())
    }

    /// Reads a string.
    #[inline]
    fn text(&mut self) -> Result<Text> {
        match self.feed.length()? {
            Length::Plain(len) => {
                let from = self.feed.place();
                self.feed.skip(len)?;
                Ok(Text::Kept(from..self.feed.place()))
            }
            Length::Encoded(form) => {
                let from = self.feed.place();
                self.feed.skip_encoded(form)?;
                let mut reader = Reader::new(&self.feed.since()[from..]);
                let from = self.decoded.len();
                reader.encoded_string(form, &mut self.decoded)?;
                Ok(Text::Decoded(from..self.decoded.len()))
            }
        }
    }

    /// Passes over parts.
    fn skip(&mut self, parts: &[Part]) -> Result<()> {
        for part in parts {
            match part {
                Part::String => self.feed.skip_string()?,
                Part::Number => drop(self.feed.number()?),
                Part::Bytes(bytes) => self.feed.skip(u64::from(*bytes))?,
                Part::DoubleText => match self.feed.byte()? {
                    // No digits follow the lengths that stand for values.
                    253..=255 => {}
                    len => self.feed.skip(u64::from(len))?,
                },
                Part::Each(parts) => {
                    for _ in 0..self.feed.number()? {
                        self.skip(parts)?;
                    }
                }
                Part::Module => {
                    self.feed.number()?;
                    self.skip_module(false)?;
                }
            }
        }
        Ok(())
    }

    /// Passes over the parts of a module's value, up to their end. `forgets`: they belong to no record that is
    /// returned, so none is held.
    fn skip_module(&mut self, forgets: bool) -> Result<()> {
        loop {
            if forgets {
                self.feed.keep();
            }
            match self.feed.number()? {
                field::END => return Ok(()),
                field::SIGNED | field::UNSIGNED => drop(self.feed.number()?),
                field::FLOAT => self.feed.skip(4)?,
                field::DOUBLE => self.feed.skip(8)?,
                field::STRING => self.feed.skip_string()?,
                _ => {
                    return Err(FileErrorKind::Corrupt(
                        "an unknown part of a module's value",
                    ));
                }
            }
        }
    }
}

/// Reads a value that a scanner found in a file of this version.
///
/// # Errors
///
/// If it is damaged, or would be without elements that a key cannot be without.
pub fn decode(
    version: FileVersion,
    rdb_type: u8,
    value: &[u8],
    limits: &Limits,
) -> std::result::Result<Object, Corrupt> {
    let mut reader = Reader::new(value);
    let object = object::read(&mut reader, version, rdb_type, limits)?;
    ensure(reader.is_empty(), "bytes behind the object")?;
    Ok(object)
}

#[cfg(test)]
mod tests;
