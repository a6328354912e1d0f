//! Commands of a stream: read with their database and their transaction, and compared with those of another server.
//! Must not know which differences are accepted.

use std::io;

use redline_resp::reply_decoder::{ReplyDecoder, Value};

use crate::generate::Call;
use crate::stream::source::Source;

/// The key of the writes that end the part of the stream which is due to one step. It is in no pool of the generator.
pub const MARKER: &[u8] = b"stream:marker";
/// Times of two servers that differ by less are equal: milliseconds.
const TIMES_APART_MAX_MS: u64 = 60_000;
/// Numbers from here on are times since the epoch: milliseconds, in the year 2017.
const TIMES_FROM_MS: u64 = 1_500_000_000_000;
/// Options whose case is that of the caller, unless the call was rewritten.
const OPTIONS: &[&[u8]] = &[
    b"LEFT", b"RIGHT", b"FIELDS", b"EX", b"PX", b"PXAT", b"KEEPTTL", b"MAXLEN", b"NX", b"XX", b"CH",
];

/// A command of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Database.
    pub db: i64,
    /// Number of its transaction in its stream; `None` outside of one.
    pub group: Option<u64>,
    /// The command.
    pub words: Call,
}

impl Told {
    /// Returns the name in upper case.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.words[0]).to_ascii_uppercase()
    }

    /// Returns true if the name is this one, in upper case.
    pub fn is(&self, name: &str) -> bool {
        self.words[0].eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Reads a stream up to its markers.
#[derive(Debug)]
pub struct Listener {
    source: Source,
    decoder: ReplyDecoder,
    buffer: Vec<u8>,
    db: i64,
    group: Option<u64>,
    groups: u64,
    /// Everything that was read, as a server without data has to be sent it.
    raw: Vec<Call>,
}

impl Listener {
    /// Returns the reader of a stream.
    pub fn new(source: Source) -> Listener {
        Listener {
            source,
            decoder: ReplyDecoder::new(),
            buffer: Vec::new(),
            db: 0,
            group: None,
            groups: 0,
            raw: Vec::new(),
        }
    }

    /// Returns true if messages of PUBLISH are part of the stream.
    pub fn has_messages(&self) -> bool {
        self.source.has_messages()
    }

    /// Returns the commands before the marker with this number, without those that carry no effect.
    pub fn until(&mut self, number: u64) -> io::Result<Vec<Told>> {
        let mut told = Vec::new();
        loop {
            let decoded = self
                .decoder
                .decode(&self.buffer)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.buffer.drain(..decoded.consumed);
            let Some(value) = decoded.value else {
                self.source.read(&mut self.buffer)?;
                continue;
            };
            let Some(words) = command(&value) else {
                return Err(io::Error::other(format!("no command: {value:?}")));
            };
            if self.take(words, number, &mut told)? {
                return Ok(told);
            }
        }
    }

    /// Returns the commands since the last call as they stand in the stream, SELECT, MULTI and EXEC included.
    pub fn take_raw(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.raw)
    }

    /// Takes the next command; returns true if it is the marker.
    fn take(&mut self, words: Call, number: u64, told: &mut Vec<Told>) -> io::Result<bool> {
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        // They are about the connection.
        if is("PING") || is("REPLCONF") {
            return Ok(false);
        }
        self.raw.push(words.clone());
        if is("SELECT") {
            let db = words.get(1).and_then(|word| integer(word));
            self.db = db.ok_or_else(|| io::Error::other("SELECT without a number"))?;
        } else if is("MULTI") {
            self.groups += 1;
            self.group = Some(self.groups);
        } else if is("EXEC") {
            self.group = None;
        } else if is("SET") && words.get(1).is_some_and(|key| key == MARKER) {
            if words.get(2) != Some(&number.to_string().into_bytes()) {
                let text = words.join(&b' ').escape_ascii().to_string();
                return Err(io::Error::other(format!("{text} instead of {number}")));
            }
            return Ok(true);
        } else {
            told.push(Told {
                db: self.db,
                group: self.group,
                words,
            });
        }
        Ok(false)
    }
}

fn command(value: &Value) -> Option<Call> {
    let Value::Array(words) = value else {
        return None;
    };
    let words: Option<Call> = words
        .iter()
        .map(|word| match word {
            Value::Bulk(word) => Some(word.clone()),
            _ => None,
        })
        .collect();
    words.filter(|words| !words.is_empty())
}

fn integer(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Parts of two streams, one behind the other, that differ between equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Our commands.
    pub ours: Vec<Told>,
    /// Those of Redis.
    pub theirs: Vec<Told>,
}

/// Returns the parts that differ. `lots` is true if which elements went was drawn by lot.
pub fn differences(ours: &[Told], theirs: &[Told], lots: bool) -> Vec<Hunk> {
    let mut hunks = Vec::new();
    let (mut our, mut their) = (0, 0);
    loop {
        let (rest, other) = (&ours[our..], &theirs[their..]);
        if let ([a, ..], [b, ..]) = (rest, other)
            && same(a, b, lots)
        {
            (our, their) = (our + 1, their + 1);
            continue;
        }
        if rest.is_empty() && other.is_empty() {
            return hunks;
        }
        // The nearest place from which on both go on alike.
        let place = (1..=rest.len() + other.len()).find_map(|sum| {
            (0..=sum.min(rest.len())).find_map(|skip| {
                let (a, b) = (rest.get(skip)?, other.get(sum - skip)?);
                same(a, b, lots).then_some((skip, sum - skip))
            })
        });
        let (skip, skip_other) = place.unwrap_or((rest.len(), other.len()));
        let (rest, other) = (&rest[..skip], &other[..skip_other]);
        let of = |ours: &[Told], theirs: &[Told]| Hunk {
            ours: ours.to_vec(),
            theirs: theirs.to_vec(),
        };
        if skip == skip_other {
            let pairs = rest.iter().zip(other);
            hunks.extend(pairs.map(|(a, b)| of(std::slice::from_ref(a), std::slice::from_ref(b))));
        } else {
            hunks.push(of(rest, other));
        }
        (our, their) = (our + skip, their + skip_other);
    }
}

/// Returns true if two equal lists of commands lie in transactions alike. One around a single command counts as none:
/// what lay beside that may be missing on purpose.
pub fn grouped_alike(ours: &[Told], theirs: &[Told]) -> bool {
    let together = |told: &[Told]| -> Vec<bool> {
        told.windows(2)
            .map(|two| two[0].group.is_some() && two[0].group == two[1].group)
            .collect()
    };
    together(ours) == together(theirs)
}

/// Returns true if two commands have the same effect in the same database.
fn same(ours: &Told, theirs: &Told, lots: bool) -> bool {
    if ours.db != theirs.db
        || ours.words.len() != theirs.words.len()
        || !ours.words[0].eq_ignore_ascii_case(&theirs.words[0])
    {
        return false;
    }
    if ours.is("SREM") {
        // The order of what is taken out is that of a hash table.
        let sorted = |told: &Told| {
            let mut words = told.words[1..].to_vec();
            words[1..].sort_unstable();
            words
        };
        return ours.words[1] == theirs.words[1] && (lots || sorted(ours) == sorted(theirs));
    }
    let pairs = ours.words.iter().zip(&theirs.words).skip(1);
    pairs.into_iter().all(|(a, b)| alike(a, b))
}

/// Returns true if two words mean the same.
pub fn alike(ours: &[u8], theirs: &[u8]) -> bool {
    let is_option = || {
        OPTIONS
            .iter()
            .any(|option| option.eq_ignore_ascii_case(ours))
    };
    // Redis writes an id as it was called, ours is whole.
    let whole_id = || {
        ours.strip_suffix(b"-0") == Some(theirs)
            && !theirs.is_empty()
            && theirs.iter().all(u8::is_ascii_digit)
    };
    ours == theirs
        || close(ours, theirs)
        || whole_id()
        || ours.eq_ignore_ascii_case(theirs) && is_option()
}

/// Returns true if both are times, or ids of a stream that were made of times.
fn close(ours: &[u8], theirs: &[u8]) -> bool {
    let parts = |word: &[u8]| -> Option<(u64, Option<String>)> {
        let text = std::str::from_utf8(word).ok()?;
        match text.split_once('-') {
            Some((time, rest)) => Some((time.parse().ok()?, Some(rest.to_owned()))),
            None => Some((text.parse().ok()?, None)),
        }
    };
    match (parts(ours), parts(theirs)) {
        (Some((a, rest)), Some((b, other))) => {
            rest.is_some() == other.is_some()
                && a.min(b) >= TIMES_FROM_MS
                && a.abs_diff(b) < TIMES_APART_MAX_MS
        }
        _ => false,
    }
}

/// Returns commands outside of transactions, one for each line.
#[cfg(test)]
pub(super) fn told(lines: &[&str]) -> Vec<Told> {
    let told = |line: &&str| Told {
        db: 0,
        group: None,
        words: line
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect(),
    };
    lines.iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_too_many_is_one_difference_and_what_follows_is_compared_again() {
        let ours = told(&["SET a 1", "DEL b", "SET c 1", "SET d 2"]);
        let theirs = told(&["SET a 1", "SET c 1", "SET d 1"]);
        let found = differences(&ours, &theirs, false);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].ours.len(), found[0].theirs.len()),
            (1, 0),
            "{found:?}"
        );
        assert_eq!(found[1].theirs, told(&["SET d 1"]));
        assert_eq!(differences(&ours, &ours, false), []);
    }

    #[test]
    fn times_may_differ_by_less_than_a_minute_and_other_numbers_not_at_all() {
        let alike = |a: &str, b: &str| differences(&told(&[a]), &told(&[b]), false).is_empty();
        let time = "PEXPIREAT k 1755555555000";
        assert!(alike(time, "PEXPIREAT k 1755555555999"));
        assert!(!alike(time, "PEXPIREAT k 1755555616000"));
        assert!(!alike(time, "PEXPIREAT j 1755555555000"));
        assert!(alike(
            "XADD x 1755555555000-0 a b",
            "XADD x 1755555555001-0 a b"
        ));
        assert!(!alike("XADD x 5-0 a b", "XADD x 6-0 a b"));
        assert!(!alike("INCRBY k 1", "INCRBY k 2"));
        assert!(alike("XADD x 5-0 a b", "XADD x 5 a b"));
        assert!(!alike("XADD x 5-1 a b", "XADD x 5 a b"));
    }

    #[test]
    fn members_that_go_have_no_order_and_where_lots_are_drawn_no_names() {
        let (a, b, c) = (
            told(&["SREM s a b"]),
            told(&["SREM s b a"]),
            told(&["SREM s c d"]),
        );
        assert_eq!(differences(&a, &b, false), []);
        assert_eq!(differences(&a, &c, false).len(), 1);
        assert_eq!(differences(&a, &c, true), []);
    }

    #[test]
    fn a_transaction_around_one_command_counts_as_none() {
        let mut two = told(&["SET a 1", "SET b 1"]);
        let apart = two.clone();
        two[0].group = Some(1);
        assert!(grouped_alike(&two, &apart));
        two[1].group = Some(1);
        assert!(!grouped_alike(&two, &apart));
    }
}
