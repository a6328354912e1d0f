//! Commands as bytes: how a unit's effect is written, what a record of it says, and how the stream is read again.
//!
//! Must not know: lanes and the order of records, the meaning of commands.

use super::{NO_DB, Piece, Position, Stream};
use crate::entry::Blob;

/// One word of a command.
#[derive(Clone, Copy, Debug)]
pub enum Word<'a> {
    /// Copied.
    Bytes(&'a [u8]),
    /// Referred to if it is large: unchanged as long as there is a reference to it.
    Blob(&'a Blob),
}

impl<'a> From<&'a [u8]> for Word<'a> {
    fn from(bytes: &'a [u8]) -> Word<'a> {
        Word::Bytes(bytes)
    }
}

impl<'a> From<&&'a [u8]> for Word<'a> {
    fn from(bytes: &&'a [u8]) -> Word<'a> {
        Word::Bytes(bytes)
    }
}

/// The words of a command. Their number is asked for before they are.
pub trait Words<'w>: IntoIterator<Item: Into<Word<'w>>, IntoIter: Clone> {}

impl<'w, I: IntoIterator<Item: Into<Word<'w>>, IntoIter: Clone>> Words<'w> for I {}

/// The facts about a unit's effect that stand beside its bytes in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Ascending by one from record to record; 0 before it has one.
    pub(super) number: u64,
    /// Bytes in the lane; large words that are referred to are not among them.
    pub(super) bytes: u64,
    /// The database of the first command that has one, or [`NO_DB`].
    pub(super) db: u32,
    /// The database of the last one, or [`NO_DB`].
    pub(super) last_db: u32,
    /// Number of commands, but for the SELECTs between them.
    pub(super) commands: u32,
    /// Number of those that a file gets as well.
    pub(super) file_commands: u32,
    /// Number of marks.
    pub(super) marks: u32,
}

impl Head {
    /// The head of a record to which nothing was written yet.
    pub(super) const EMPTY: Head = Head {
        number: 0,
        bytes: 0,
        db: NO_DB,
        last_db: NO_DB,
        commands: 0,
        file_commands: 0,
        marks: 0,
    };
}

/// Something that the bytes of a record do not show, at a place in them.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// A large word belongs here.
    Blob(Blob),
    /// Here begins a command that no file gets.
    PrivateFrom,
    /// Here it ends.
    PrivateTo,
}

/// The effect of a unit, taken out of its lane: see [`Local::take_effects`](crate::Local::take_effects).
#[derive(Debug)]
pub struct Effects {
    pub(super) head: Head,
    pub(super) bytes: Vec<u8>,
    pub(super) marks: Vec<(u64, Mark)>,
}

/// Longest line that tells a length: sign, digits, end.
pub(super) const LINE_BYTES_MAX: usize = 24;

/// Returns the line `<sign><number>\r\n`, written at the end of `line`.
#[inline]
pub(super) fn length_line(line: &mut [u8; LINE_BYTES_MAX], sign: u8, mut number: usize) -> &[u8] {
    let mut at = LINE_BYTES_MAX - 2;
    line[at..].copy_from_slice(b"\r\n");
    loop {
        at -= 1;
        line[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    at -= 1;
    line[at] = sign;
    &line[at..]
}

/// Appends SELECT.
pub(super) fn append_select(out: &mut Vec<u8>, db: u32) {
    let text = db.to_string();
    out.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n");
    out.extend_from_slice(length_line(&mut [0; LINE_BYTES_MAX], b'$', text.len()));
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
pub(super) const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

// ---- reading ------------------------------------------------------------------------------

/// A command of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The database that was selected.
    pub db: u32,
    /// Its words.
    pub words: Vec<Vec<u8>>,
}

/// The commands of one unit: all or none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Ascending by one from record to record.
    pub number: u64,
    /// The effect, in order.
    pub commands: Vec<Command>,
}

/// The reason for which bytes are no stream of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Bytes before the command that could not be read.
    pub offset: usize,
}

/// Reads the stream of the journal again: its records, for readers inside the process that replay or check them. The bytes
/// are the pump's own, so damage is a fault of the program.
pub struct RecordReader<S> {
    last: u64,
    db: u32,
    bytes: Vec<u8>,
    take: S,
}

impl<S: FnMut(Record) + Send> RecordReader<S> {
    /// Makes a reader that gives each record to `take`.
    pub fn new(take: S) -> RecordReader<S> {
        RecordReader {
            last: 0,
            db: 0,
            bytes: Vec::new(),
            take,
        }
    }

    fn read(&mut self) -> Result<(), Damaged> {
        let mut at = 0;
        let mut open: Option<Vec<Command>> = None;
        while at < self.bytes.len() {
            let (words, end) = read_command(&self.bytes, at).ok_or(Damaged { offset: at })?;
            let name = words[0].as_slice();
            match (name, &mut open) {
                (b"SELECT", _) => {
                    let db = words
                        .get(1)
                        .and_then(|db| str::from_utf8(db).ok()?.parse().ok());
                    self.db = db.ok_or(Damaged { offset: at })?;
                }
                (b"MULTI", None) => open = Some(Vec::new()),
                (b"EXEC", Some(_)) => {
                    let commands = open.take().unwrap_or_default();
                    self.give(commands);
                }
                (_, Some(commands)) => commands.push(Command { db: self.db, words }),
                (_, None) => {
                    let command = Command { db: self.db, words };
                    self.give(vec![command]);
                }
            }
            at = end;
        }
        match open {
            Some(_) => Err(Damaged { offset: at }),
            None => Ok(()),
        }
    }

    fn give(&mut self, commands: Vec<Command>) {
        self.last += 1;
        (self.take)(Record {
            number: self.last,
            commands,
        });
    }
}

impl<S: FnMut(Record) + Send> Stream for RecordReader<S> {
    /// # Panics
    /// If the bytes are not the commands of exactly the records up to `end`.
    fn write(&mut self, pieces: &[Piece<'_>], end: Position) {
        self.bytes.clear();
        for piece in pieces {
            self.bytes.extend_from_slice(piece.bytes());
        }
        let read = self.read();
        assert_eq!(read, Ok(()), "the stream is no sequence of commands");
        assert_eq!(self.last, end.number, "as many units as numbers");
    }

    fn cut(&mut self, at: Position) {
        self.last = at.number;
    }
}

/// Returns the command that begins at `at`, and where it ends; `None`: there is no whole one.
fn read_command(bytes: &[u8], at: usize) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut at) = read_line(bytes, at, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (len, from) = read_line(bytes, at, b'$')?;
        let to = from.checked_add(len)?;
        words.push(bytes.get(from..to)?.to_vec());
        at = to + 2;
        if bytes.get(to..at)? != b"\r\n" {
            return None;
        }
    }
    (count > 0).then_some((words, at))
}

fn read_line(bytes: &[u8], at: usize, sign: u8) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let len = line
        .iter()
        .take(LINE_BYTES_MAX)
        .position(|byte| *byte == b'\r')?;
    if line.first() != Some(&sign) || line.get(len + 1) != Some(&b'\n') {
        return None;
    }
    let number = str::from_utf8(&line[1..len]).ok()?.parse().ok()?;
    Some((number, at + len + 2))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_digits() {
        for (number, text) in [
            (0, "$0\r\n"),
            (9, "$9\r\n"),
            (10, "$10\r\n"),
            (123456, "$123456\r\n"),
        ] {
            let mut line = [0; LINE_BYTES_MAX];
            assert_eq!(length_line(&mut line, b'$', number), text.as_bytes());
        }
        let mut line = [0; LINE_BYTES_MAX];
        let longest = length_line(&mut line, b'*', usize::MAX);
        assert_eq!(longest, format!("*{}\r\n", usize::MAX).as_bytes());
    }

    fn read(text: &str) -> Result<Vec<Record>, Damaged> {
        let (give, get) = std::sync::mpsc::channel();
        let mut reader = RecordReader::new(move |record| give.send(record).expect("read below"));
        reader.bytes = text.as_bytes().to_vec();
        reader.read()?;
        Ok(get.try_iter().collect())
    }

    #[test]
    fn a_stream_is_read_as_units_with_their_databases() {
        let select = "*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n";
        let ping = "*1\r\n$4\r\nPING\r\n";
        let text =
            format!("{ping}*1\r\n$5\r\nMULTI\r\n{ping}{select}{ping}*1\r\n$4\r\nEXEC\r\n{ping}");
        let records = read(&text).expect("whole commands");
        let dbs = |at: usize| -> Vec<u32> {
            let record: &Record = &records[at];
            assert_eq!(record.number, at as u64 + 1);
            record.commands.iter().map(|command| command.db).collect()
        };
        assert_eq!([dbs(0), dbs(1), dbs(2)], [vec![0], vec![0, 12], vec![12]]);
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let ping = "*1\r\n$4\r\nPING\r\n";
        for (text, offset) in [
            (&ping[..13], 0),
            ("*1\r\n$4\r\nPINGxx", 0),
            ("*1\r\n$99999999999999999999\r\n", 0),
            ("*1\r\n$18446744073709551615\r\n", 0),
            ("*0\r\n", 0),
            (&format!("{ping}+OK\r\n"), 14),
            (&format!("{ping}*1\r\n$6\r\nSELECT\r\n"), 14),
            ("*1\r\n$5\r\nMULTI\r\n", 15),
        ] {
            assert_eq!(read(text), Err(Damaged { offset }), "{text}");
        }
    }
}
