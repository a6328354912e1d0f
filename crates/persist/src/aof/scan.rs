//! Reads the commands of an append-only file, for loading and for checking, and tells how its end is.
//!
//! A file is a sequence of commands, `*2\r\n$4\r\nPING\r\n$1\r\nx\r\n`, and of lines that begin with `#`, which are no
//! commands (`#TS:1700000000`, the time of what follows). Before them there may be a snapshot ([`starts_with_snapshot`]),
//! which is read elsewhere. A *unit* is a command, or MULTI … EXEC as one: a file is cut only between units.
//!
//! Redis's loader takes more than this (signs, spaces, any two bytes after an argument); nobody writes that, and a
//! damaged file must not pass for a good one.
//!
//! Must not know what the commands do.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use redline_resp::{Args, Span};

/// Longest line `*…` or `$…`, without its line end.
const HEADER_BYTES_MAX: usize = 24;
/// Longest line `#…`, with its line end; as in Redis.
pub const ANNOTATION_BYTES_MAX: usize = 1023;
/// Longest command. Offsets of arguments have 32 bits.
pub const COMMAND_BYTES_MAX: u64 = u32::MAX as u64 - READ_BYTES as u64;
/// Bytes that are asked for at once.
const READ_BYTES: usize = 64 << 10;

/// Returns true if a file with these first bytes begins with a snapshot.
pub fn starts_with_snapshot(first: &[u8]) -> bool {
    // A shorter file has no room for the version.
    first.len() >= 8 && (first.starts_with(b"REDIS") || first.starts_with(b"VALKEY"))
}

/// The reader of a file.
pub struct Scanner<R> {
    source: R,
    /// Number of bytes of the file, so that a length that reaches beyond its end is known before anything is read.
    size: u64,
    /// Bytes from `base` on; those before `at` are done with.
    buffer: Vec<u8>,
    base: u64,
    at: usize,
    is_at_end: bool,
    spans: Vec<Span>,
    is_in_transaction: bool,
    /// True inside a MULTI or an EXEC, until all of it has been read.
    begins_or_ends: bool,
    /// Offset after the last whole unit.
    whole: u64,
    /// Offset of the last line or argument that was begun, for reports.
    begun: u64,
    line_ends: u64,
    end: Option<End>,
}

/// A step through a file.
#[derive(Debug)]
pub enum Item<'a> {
    /// A command; MULTI, what it queues, and EXEC are such, too.
    Command(Command<'a>),
    /// A line that begins with `#`.
    Annotation(Annotation<'a>),
    /// The end: of the file, or of what can be read. It is told again if one asks again.
    End(End),
}

/// A command of a file.
#[derive(Debug)]
pub struct Command<'a> {
    /// Its arguments, at least one.
    pub args: Args<'a>,
    /// Offset of its first byte.
    pub offset: u64,
    /// True after MULTI, up to EXEC itself.
    pub is_in_transaction: bool,
}

/// A line that is no command.
#[derive(Debug)]
pub struct Annotation<'a> {
    /// The line with its `#`, without its line end.
    pub line: &'a [u8],
    /// Offset of its first byte.
    pub offset: u64,
    /// Offset at which the file can be cut so that this line and all after it are gone: not inside a transaction.
    pub cut_at: u64,
}

impl Annotation<'_> {
    /// Returns the time of a line `#TS:…`, in seconds. `Some(None)`: it is such a line without a number.
    pub fn time_s(&self) -> Option<Option<i64>> {
        let digits = self.line.strip_prefix(b"#TS:")?;
        Some(
            std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok()),
        )
    }
}

/// The end of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it was read.
    Whole {
        /// Number of bytes.
        size: u64,
    },
    /// The end is missing, as after a crash.
    Cut {
        /// Offset after the last whole unit.
        whole: u64,
        /// Offset of the end.
        size: u64,
        /// The place and the reason.
        flaw: Flaw,
    },
    /// There is something that is no command.
    Corrupt {
        /// Offset after the last whole unit.
        whole: u64,
        /// Number of bytes of the file.
        size: u64,
        /// The place and the reason.
        flaw: Flaw,
    },
}

/// The place in a file where it cannot be read on, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Offset of the line or argument that was being read.
    pub at: u64,
    /// The reason.
    pub what: What,
}

/// A reason why a file cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The file ends where a line must begin.
    NoLine,
    /// A command must begin with `*`, an annotation with `#`.
    NoCommand,
    /// The first byte of a line within a command.
    Prefix(u8),
    /// The two bytes at the place of a line end; 0 for those that are missing.
    LineEnd([u8; 2]),
    /// An argument is shorter than its length with the line end says.
    Short {
        /// The number of bytes that there should be.
        wanted: u64,
        /// The number of bytes that there are.
        got: u64,
    },
    /// A length that is none.
    Length(i64),
    /// A number of arguments that is none.
    Count(i64),
    /// MULTI inside a transaction.
    NestedMulti,
    /// EXEC outside of one.
    LoneExec,
    /// The file ends inside a transaction.
    OpenMulti,
    /// The file ends in a line that begins with `#`.
    CutAnnotation,
    /// A line that begins with `#` has bytes that are no text.
    BadAnnotation,
    /// A line that begins with `#` is too long.
    LongAnnotation,
    /// A command is too long.
    LongCommand,
}

impl What {
    /// Returns the text as redis-check-aof has it, where it has one. `file` is the name of the file.
    pub fn text(&self, file: &dyn fmt::Display) -> Option<String> {
        Some(match self {
            What::NoLine | What::NoCommand => return None,
            What::Prefix(got) => {
                format!("Expected prefix '$', got: '{}'", [*got].escape_ascii())
            }
            What::LineEnd([first, second]) => {
                format!("Expected \\r\\n, got: {first:02x}{second:02x}")
            }
            What::Short { wanted, got } => {
                format!("Expected to read {wanted} bytes, got {got} bytes")
            }
            What::Length(length) => format!(
                "Expected to read string of {length} bytes, which is not in the suitable range"
            ),
            What::Count(count) => {
                format!("Expected a command of at least 1 argument, got: {count}")
            }
            What::NestedMulti => format!("Unexpected MULTI in AOF {file}"),
            What::LoneExec => format!("Unexpected EXEC in AOF {file}"),
            What::OpenMulti => "Reached EOF before reading EXEC for MULTI".to_owned(),
            What::CutAnnotation => "Reached EOF before the end of an annotation".to_owned(),
            What::BadAnnotation => "Expected an annotation without control characters".to_owned(),
            What::LongAnnotation => {
                format!("Expected an annotation of at most {ANNOTATION_BYTES_MAX} bytes")
            }
            What::LongCommand => {
                format!("Expected a command of at most {COMMAND_BYTES_MAX} bytes")
            }
        })
    }
}

/// Reason to end a step: a flaw, or a source that cannot be read.
enum Stop {
    Cut(u64, What),
    Corrupt(u64, What),
    Read(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Read(error)
    }
}

/// A line with a number, inside the buffer.
struct Header {
    number: i64,
    /// Offset in the buffer after the line end.
    next: usize,
}

/// A step, as places in the buffer.
enum Step {
    Command(usize),
    Annotation(usize),
    End,
}

impl<R: Read> Scanner<R> {
    /// Creates one of a source that yields a file of `size` bytes from `offset` on, which is behind a snapshot.
    pub fn new(source: R, offset: u64, size: u64) -> Scanner<R> {
        Scanner {
            source,
            size: size.max(offset),
            buffer: Vec::new(),
            base: offset,
            at: 0,
            is_at_end: false,
            spans: Vec::new(),
            is_in_transaction: false,
            begins_or_ends: false,
            whole: offset,
            begun: offset,
            line_ends: 0,
            end: None,
        }
    }

    /// Returns the offset after the last whole unit.
    pub fn whole(&self) -> u64 {
        if self.is_in_transaction || self.end.is_some() {
            self.whole
        } else {
            self.offset()
        }
    }

    /// Returns the offset up to which the file has been read, for progress.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Returns the number of line ends of commands up to here.
    pub fn line_ends(&self) -> u64 {
        self.line_ends
    }

    /// Returns the next command, annotation, or the end. An error is one of the source.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend its items"
    )]
    pub fn next(&mut self) -> io::Result<Item<'_>> {
        if let Some(end) = &self.end {
            return Ok(Item::End(end.clone()));
        }
        if !self.is_in_transaction {
            self.whole = self.offset();
        }
        let was_in_transaction = self.is_in_transaction;
        let start = self.begin();
        let end = match self.step() {
            Ok(Step::Command(next)) => {
                self.at = next;
                return Ok(Item::Command(Command {
                    args: Args::new(&self.buffer[start..], &self.spans),
                    offset: self.base + start as u64,
                    is_in_transaction: was_in_transaction,
                }));
            }
            Ok(Step::Annotation(next)) => {
                self.at = next;
                let line = &self.buffer[start..next - 1];
                return Ok(Item::Annotation(Annotation {
                    line: line.strip_suffix(b"\r").unwrap_or(line),
                    offset: self.base + start as u64,
                    cut_at: self.whole,
                }));
            }
            Ok(Step::End) => End::Whole { size: self.whole },
            Err(Stop::Cut(at, what)) => End::Cut {
                whole: self.whole,
                size: self.size,
                flaw: Flaw { at, what },
            },
            Err(Stop::Corrupt(at, what)) => End::Corrupt {
                whole: self.whole,
                size: self.size,
                flaw: Flaw { at, what },
            },
            Err(Stop::Read(error)) => return Err(error),
        };
        self.end = Some(end.clone());
        Ok(Item::End(end))
    }

    /// Drops the bytes that are done with, if that is cheap, and returns the place of the next ones.
    fn begin(&mut self) -> usize {
        let left = self.buffer.len() - self.at;
        if left <= self.at {
            self.buffer.copy_within(self.at.., 0);
            self.buffer.truncate(left);
            self.base += self.at as u64;
            self.at = 0;
            // A long command does not keep its memory for the short ones after it.
            if self.buffer.capacity() > 4 * READ_BYTES.max(left) {
                self.buffer.shrink_to(2 * READ_BYTES.max(left));
            }
        }
        self.at
    }

    fn step(&mut self) -> Result<Step, Stop> {
        let start = self.at;
        let Some(first) = self.byte(start)? else {
            if self.is_in_transaction {
                return Err(Stop::Cut(self.begun, What::OpenMulti));
            }
            return Ok(Step::End);
        };
        match first {
            b'#' => self.annotation(start),
            b'*' => self.command(start),
            _ => Err(Stop::Corrupt(self.base + start as u64, What::NoCommand)),
        }
    }

    fn annotation(&mut self, start: usize) -> Result<Step, Stop> {
        let at = self.base + start as u64;
        let mut place = start;
        loop {
            if place - start >= ANNOTATION_BYTES_MAX {
                return Err(Stop::Corrupt(at, What::LongAnnotation));
            }
            match self.byte(place)? {
                None => return Err(Stop::Cut(at, What::CutAnnotation)),
                Some(b'\n') => return Ok(Step::Annotation(place + 1)),
                Some(b' '.. | b'\t' | b'\r') => place += 1,
                // Zeros are what a loss of power leaves; up to the next line end they would hide commands.
                Some(_) => return Err(Stop::Corrupt(at, What::BadAnnotation)),
            }
        }
    }

    fn command(&mut self, start: usize) -> Result<Step, Stop> {
        self.spans.clear();
        let Header { number, mut next } = self.header(start, b'*')?;
        if number < 1 {
            return Err(Stop::Corrupt(self.begun, What::Count(number)));
        }
        for index in 0..number {
            let header = self.header(next, b'$')?;
            let (length, from) = (header.number, header.next);
            if !(0..=i64::MAX - 2).contains(&length) {
                return Err(Stop::Corrupt(self.begun, What::Length(length)));
            }
            let to = self.argument(start, from, length as u64)?;
            let argument = &self.buffer[from..to];
            if index == 0 {
                let (is_multi, is_exec) = (
                    argument.eq_ignore_ascii_case(b"multi"),
                    argument.eq_ignore_ascii_case(b"exec"),
                );
                match self.is_in_transaction {
                    true if is_multi => return Err(Stop::Corrupt(self.begun, What::NestedMulti)),
                    false if is_exec => return Err(Stop::Corrupt(self.begun, What::LoneExec)),
                    // EXEC is not the end before all of it is there.
                    is_open => self.begins_or_ends = is_multi || (is_open && is_exec),
                }
            }
            self.spans.push(Span {
                start: (from - start) as u32,
                len: length as u32,
            });
            next = to + 2;
        }
        self.is_in_transaction ^= std::mem::take(&mut self.begins_or_ends);
        Ok(Step::Command(next))
    }

    /// Reads an argument from `from` on, and its line end. Returns the place of the line end.
    fn argument(&mut self, start: usize, from: usize, length: u64) -> Result<usize, Stop> {
        let offset = self.base + from as u64;
        let wanted = length + 2;
        self.begun = offset;
        let got = self.size.saturating_sub(offset);
        if got < wanted {
            return Err(Stop::Cut(offset, What::Short { wanted, got }));
        }
        if (from - start) as u64 + wanted > COMMAND_BYTES_MAX {
            return Err(Stop::Corrupt(offset, What::LongCommand));
        }
        let to = from + length as usize;
        if !self.holds(to + 2)? {
            // The file has become shorter while it was read.
            let got = (self.buffer.len() - from) as u64;
            return Err(Stop::Cut(offset, What::Short { wanted, got }));
        }
        let line_end = [self.buffer[to], self.buffer[to + 1]];
        if line_end != *b"\r\n" {
            return Err(Stop::Corrupt(offset, What::LineEnd(line_end)));
        }
        self.line_ends += 1;
        Ok(to)
    }

    /// Reads a line that is a letter and a number.
    fn header(&mut self, start: usize, prefix: u8) -> Result<Header, Stop> {
        let at = self.base + start as u64;
        self.begun = at;
        let Some(first) = self.byte(start)? else {
            let is_open = self.is_in_transaction;
            return Err(Stop::Cut(
                at,
                if is_open {
                    What::OpenMulti
                } else {
                    What::NoLine
                },
            ));
        };
        if first != prefix {
            return Err(Stop::Corrupt(at, What::Prefix(first)));
        }
        let mut place = start + 1;
        let is_negative = self.byte(place)? == Some(b'-');
        place += usize::from(is_negative);
        let (digits, mut number) = (place, 0_i64);
        while let Some(digit @ b'0'..=b'9') = self.byte(place)?
            && place - start < HEADER_BYTES_MAX
        {
            number = number
                .saturating_mul(10)
                .saturating_add(i64::from(digit - b'0'));
            place += 1;
        }
        let line_end = [self.byte(place)?, self.byte(place + 1)?];
        // As in redis-check-aof, which reads up to a line feed.
        let shown = match line_end {
            [Some(b'\n'), _] => [b'\n', 0],
            line_end => line_end.map(|byte| byte.unwrap_or(0)),
        };
        match line_end {
            [Some(b'\r'), Some(b'\n')] if place > digits => {
                self.line_ends += 1;
                let number = if is_negative { -number } else { number };
                let next = place + 2;
                Ok(Header { number, next })
            }
            [None, _] => Err(Stop::Cut(at, What::LineEnd(shown))),
            [Some(b'\r'), None] if place > digits => Err(Stop::Cut(at, What::LineEnd(shown))),
            _ => Err(Stop::Corrupt(at, What::LineEnd(shown))),
        }
    }

    fn byte(&mut self, place: usize) -> io::Result<Option<u8>> {
        if place >= self.buffer.len() && !self.holds(place + 1)? {
            return Ok(None);
        }
        Ok(Some(self.buffer[place]))
    }

    /// Reads until the buffer has so many bytes. False: the file ends before.
    fn holds(&mut self, bytes: usize) -> io::Result<bool> {
        while self.buffer.len() < bytes && !self.is_at_end {
            // At most twice of what has arrived, whatever a length claims.
            let missing = bytes - self.buffer.len();
            let room = missing.clamp(READ_BYTES, self.buffer.len().max(READ_BYTES));
            let filled = self.buffer.len();
            // A byte more than there should be tells that there is no more.
            let left = self.size.saturating_sub(self.base + filled as u64);
            let left = left.saturating_add(1);
            let room = room.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.buffer.resize(filled + room, 0);
            let read = loop {
                match self.source.read(&mut self.buffer[filled..]) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => break read,
                }
            };
            self.buffer.truncate(filled + *read.as_ref().unwrap_or(&0));
            self.is_at_end = read? == 0;
        }
        Ok(self.buffer.len() >= bytes)
    }
}

/// Settings of what is done with a file that cannot be read to its end.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// `aof-load-truncated`: a file whose end is missing is cut.
    pub takes_truncated: bool,
    /// `aof-load-corrupt-tail-max-size`, bytes: a file with such a tail is cut; 0: never.
    pub corrupt_tail_bytes_max: u64,
}

/// The course for a file that was read up to an [`End`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// Take it as it is.
    Load,
    /// Cut it at `at`, and say why.
    Cut {
        /// Offset of the end after that.
        at: u64,
        /// Lines for the log.
        lines: Vec<String>,
    },
    /// Do not start, and say why.
    Refuse(Vec<String>),
}

/// Decides about a file. `is_last` says that all files after it are empty: only then may its end be missing. `name` is
/// that of the file.
pub fn course(end: &End, name: &str, is_last: bool, tolerance: Tolerance) -> Course {
    let mut lines = Vec::new();
    let (End::Cut { whole, size, flaw } | End::Corrupt { whole, size, flaw }) = end else {
        return Course::Load;
    };
    let is_cut = matches!(end, End::Cut { .. });
    let reason = flaw
        .what
        .text(&name)
        .unwrap_or_else(|| "no command begins there".into());
    let place = format!("at offset {} of {size} bytes: {reason}", flaw.at);
    if flaw.what == What::OpenMulti {
        lines.push(format!(
            "Revert incomplete MULTI/EXEC transaction in AOF file {name}"
        ));
    }
    let tail = size - whole;
    let is_taken = if is_cut {
        tolerance.takes_truncated
    } else {
        tail <= tolerance.corrupt_tail_bytes_max
    };
    if is_taken && is_last {
        let what = if is_cut { "short read" } else { "corrupt tail" };
        let setting = if is_cut {
            "aof-load-truncated is enabled"
        } else {
            "aof-load-corrupt-tail-max-size allows it"
        };
        lines.push(format!(
            "!!! Warning: {what} while loading the AOF file {name}!!! ({place})"
        ));
        lines.push(format!(
            "!!! Truncating the AOF {name} at offset {whole} !!!"
        ));
        lines.push(format!("AOF {name} loaded anyway because {setting}"));
        return Course::Cut { at: *whole, lines };
    }
    if is_taken {
        lines.push(format!("AOF {name} ends too early ({place})"));
        lines.push("Fatal error: the truncated file is not the last file".to_owned());
    } else if is_cut {
        lines.push(format!(
            "Unexpected end of file reading the append only file {name} ({place}). You can: 1) Make a backup of your AOF \
             file, then use redline check-aof --fix <filename.manifest>. 2) Alternatively you can set the \
             'aof-load-truncated' configuration option to yes and restart the server."
        ));
    } else {
        lines.push(format!(
            "Bad file format reading the append only file {name} ({place}; {tail} bytes are behind the last whole \
             command): make a backup of your AOF file, then use redline check-aof --fix <filename.manifest>"
        ));
    }
    Course::Refuse(lines)
}

#[cfg(test)]
mod tests;
