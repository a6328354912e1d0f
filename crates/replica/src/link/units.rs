//! The stream of a primary as units: commands, and transactions from MULTI to EXEC, which are applied whole.
//!
//! A unit that has not come whole is kept here and nowhere else: who drops it resumes behind the last unit.
//!
//! Must not know: what a command does.

use std::{fmt, ops::Range};

use redline_resp::{Args, Decoded, ProtocolError, RequestDecoder, RequestLimits, Span};

/// Most bytes of a unit.
pub const UNIT_BYTES_MAX: usize = 1 << 30;

/// Reads units out of a stream.
#[derive(Debug)]
pub struct Units {
    /// Most bytes of a unit.
    bytes_max: usize,
    limits: RequestLimits,
    decoder: RequestDecoder,
    /// Bytes of the stream; those before `begin` belong to units that were read.
    buffer: Vec<u8>,
    /// Where the next unit begins.
    begin: usize,
    /// Where the next command of it begins.
    at: usize,
    /// True behind MULTI.
    is_open: bool,
    /// The commands of the unit so far: where each begins, and its arguments' spans.
    commands: Vec<(usize, Range<usize>)>,
    spans: Vec<Span>,
}

/// A command, or a transaction.
#[derive(Debug)]
pub struct Unit<'a> {
    /// Its bytes in the stream.
    pub bytes: &'a [u8],
    /// True if it was told between MULTI and EXEC, which are none of its commands.
    pub is_transaction: bool,
    buffer: &'a [u8],
    commands: &'a [(usize, Range<usize>)],
    spans: &'a [Span],
}

/// Reason why the stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Its bytes are no commands.
    Protocol(ProtocolError),
    /// A line of words: no primary sends one, so bytes were lost.
    Inline,
    /// A unit is larger than [`UNIT_BYTES_MAX`].
    TooLarge,
    /// EXEC without MULTI, or MULTI in MULTI.
    Nesting,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Protocol(error) => {
                let line = error.error_line();
                write!(f, "its stream is damaged: {}", line.escape_ascii())
            }
            Broken::Inline => f.write_str("its stream is damaged: a line that is no command"),
            Broken::TooLarge => write!(
                f,
                "its stream has a transaction or a command of more than {UNIT_BYTES_MAX} bytes"
            ),
            Broken::Nesting => f.write_str("its stream is damaged: MULTI and EXEC do not match"),
        }
    }
}

impl Default for Units {
    fn default() -> Units {
        Units::with_bytes_max(UNIT_BYTES_MAX)
    }
}

impl Units {
    /// Reads units of at most so many bytes.
    pub fn with_bytes_max(bytes_max: usize) -> Units {
        Units {
            bytes_max,
            limits: RequestLimits {
                bulk_bytes_max: bytes_max as u64,
                big_bulk_bytes_min: usize::MAX,
                ..RequestLimits::default()
            },
            decoder: RequestDecoder::new(),
            buffer: Vec::new(),
            begin: 0,
            at: 0,
            is_open: false,
            commands: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        // Moving less than was read keeps the cost of each byte constant.
        if self.begin > self.buffer.len() / 2 {
            self.forget_read();
            self.buffer.drain(..self.begin);
            self.at -= self.begin;
            for (at, _) in &mut self.commands {
                *at -= self.begin;
            }
            self.begin = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Drops the commands of a unit that was read.
    fn forget_read(&mut self) {
        if !self.is_open {
            self.commands.clear();
            self.spans.clear();
        }
    }

    /// Returns the last bytes of the units that were read, which are so many since bytes were last added.
    pub fn read_bytes(&self, count: usize) -> &[u8] {
        &self.buffer[self.begin - count..self.begin]
    }

    /// Returns the number of bytes that were added and belong to no unit that was read.
    pub fn waiting_bytes(&self) -> usize {
        self.buffer.len() - self.begin
    }

    /// Returns the next unit, if it has come whole. After an error nothing more can be read.
    pub fn next_unit(&mut self) -> Result<Option<Unit<'_>>, Broken> {
        self.forget_read();
        loop {
            if self.at - self.begin > self.bytes_max {
                return Err(Broken::TooLarge);
            }
            match self.buffer.get(self.at) {
                None => return Ok(None),
                Some(b'*' | b'\r' | b'\n') => {}
                Some(_) => return Err(Broken::Inline),
            }
            let before = self.spans.len();
            let rest = &mut self.buffer[self.at..];
            let decoded = self.decoder.decode(rest, &self.limits, &mut self.spans);
            let (from, is_transaction) = (self.at, self.is_open);
            match decoded.map_err(Broken::Protocol)? {
                Decoded::Incomplete { .. } => {
                    let is_too_large = self.buffer.len() - self.begin > self.bytes_max;
                    return if is_too_large {
                        Err(Broken::TooLarge)
                    } else {
                        Ok(None)
                    };
                }
                // Large bulks stay in the buffer.
                Decoded::Big { .. } => unreachable!("the limit of large bulks is none"),
                Decoded::Empty { consumed } => {
                    self.at += consumed;
                    if self.is_open {
                        continue;
                    }
                }
                Decoded::Request { consumed, .. } => {
                    let args = Args::new(&self.buffer[from..], &self.spans[before..]);
                    let is = |word: &[u8]| args[0].eq_ignore_ascii_case(word);
                    let (begins, ends) = (is(b"multi"), is(b"exec"));
                    self.at += consumed;
                    if begins || ends {
                        self.spans.truncate(before);
                        if begins == self.is_open {
                            return Err(Broken::Nesting);
                        }
                        self.is_open = begins;
                    } else {
                        self.commands.push((from, before..self.spans.len()));
                    }
                    if self.is_open {
                        continue;
                    }
                }
            }
            let bytes = self.begin..self.at;
            self.begin = self.at;
            return Ok(Some(Unit {
                bytes: &self.buffer[bytes],
                is_transaction,
                buffer: &self.buffer,
                commands: &self.commands,
                spans: &self.spans,
            }));
        }
    }
}

impl<'a> Unit<'a> {
    /// Returns its commands, in order. An empty line of the stream is a unit without any.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = Args<'a>> + Clone + use<'a> {
        let (buffer, spans) = (self.buffer, self.spans);
        let commands = self.commands.iter();
        commands.map(move |(at, range)| Args::new(&buffer[*at..], &spans[range.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let words: Vec<&str> = words.split(' ').collect();
        redline_resp::encode_request(words, &mut out);
        out
    }

    /// Reads all units as text: the length of each, and its commands.
    fn read(units: &mut Units) -> Result<Vec<(usize, Vec<String>)>, Broken> {
        let mut all = Vec::new();
        while let Some(unit) = units.next_unit()? {
            let commands = unit.commands().map(|args| {
                let words: Vec<_> = args.iter().map(String::from_utf8_lossy).collect();
                words.join(" ")
            });
            all.push((unit.bytes.len(), commands.collect()));
        }
        Ok(all)
    }

    #[test]
    fn units_are_the_same_wherever_the_stream_is_cut() {
        let stream = [
            request("SELECT 0"),
            request("SET a 1"),
            b"\r\n".to_vec(),
            request("MULTI"),
            request("SET b 2"),
            request("INCR c"),
            request("exec"),
            request("multi"),
            request("EXEC"),
            request(&format!("MSET {}", "k v ".repeat(40).trim_end())),
        ];
        let transaction: usize = stream[3..7].iter().map(Vec::len).sum();
        let expected = [
            (stream[0].len(), vec!["SELECT 0".to_owned()]),
            (stream[1].len(), vec!["SET a 1".to_owned()]),
            (2, vec![]),
            (transaction, vec!["SET b 2".to_owned(), "INCR c".to_owned()]),
            (stream[7].len() + stream[8].len(), vec![]),
            (
                stream[9].len(),
                vec![format!("MSET {}", "k v ".repeat(40).trim_end())],
            ),
        ];
        let all = stream.concat();
        for cut in 0..=all.len() {
            let mut units = Units::default();
            units.push(&all[..cut]);
            let mut found = read(&mut units).expect("whole so far");
            units.push(&all[cut..]);
            found.extend(read(&mut units).expect("whole"));
            assert_eq!(found, expected, "cut at {cut}");
            assert_eq!(units.waiting_bytes(), 0);
        }
        let mut units = Units::default();
        let mut found = Vec::new();
        for byte in all {
            units.push(&[byte]);
            found.extend(read(&mut units).expect("whole so far"));
        }
        assert_eq!(found, expected, "byte by byte");
    }

    #[test]
    fn bytes_come_between_two_units_of_which_one_is_read() {
        let mut units = Units::default();
        units.push(&[request("SET a 1"), request("SET b 2"), request("X")].concat());
        for _ in 0..2 {
            assert!(units.next_unit().expect("whole").is_some());
        }
        units.push(&request("Y"));
        let read = read(&mut units).expect("whole");
        assert_eq!(read.len(), 2);
        assert_eq!(
            units.read_bytes(2 * request("X").len()),
            [request("X"), request("Y")].concat()
        );
    }

    #[test]
    fn a_transaction_without_its_end_is_no_unit() {
        let mut units = Units::default();
        units.push(&[request("MULTI"), request("SET a 1")].concat());
        assert_eq!(read(&mut units), Ok(vec![]));
        assert!(units.waiting_bytes() > 0);
    }

    #[test]
    fn a_transaction_without_an_end_is_given_up_at_the_limit() {
        let mut units = Units::with_bytes_max(1000);
        units.push(&request("MULTI"));
        let one = request("SET a 1");
        let mut came = request("MULTI").len();
        while came + one.len() <= 1000 {
            units.push(&one);
            came += one.len();
            assert_eq!(read(&mut units), Ok(vec![]), "{came} bytes");
        }
        units.push(&one);
        assert_eq!(read(&mut units), Err(Broken::TooLarge));
        // Nor is a call waited for whose argument would be larger.
        let mut units = Units::with_bytes_max(1000);
        units.push(b"*1\r\n$1001\r\n");
        assert!(matches!(read(&mut units), Err(Broken::Protocol(_))));
        // Units that fit go on and on.
        let mut units = Units::with_bytes_max(1000);
        for _ in 0..100 {
            units.push(&one);
            assert_eq!(read(&mut units).expect("small").len(), 1);
        }
    }

    #[test]
    fn damaged_streams_are_refused() {
        let read_all = |bytes: &[u8]| {
            let mut units = Units::default();
            units.push(bytes);
            read(&mut units)
        };
        assert_eq!(read_all(&request("EXEC")), Err(Broken::Nesting));
        let nested = [request("MULTI"), request("MULTI")].concat();
        assert_eq!(read_all(&nested), Err(Broken::Nesting));
        assert_eq!(read_all(b"SET a 1\r\n"), Err(Broken::Inline));
        assert!(matches!(read_all(b"*x\r\n"), Err(Broken::Protocol(_))));
        assert!(matches!(
            read_all(b"*1\r\n$99999999999\r\n"),
            Err(Broken::Protocol(_))
        ));
    }
}
