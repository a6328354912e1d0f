//! The stream of a primary as units: commands, and transactions from MULTI to EXEC, which are applied whole.
//!
//! A unit that has not come whole is kept here and nowhere else: who drops it resumes behind the last unit.
//!
//! Must not know: what a command does.

use std::{fmt, ops::Range};

use redline_resp::{
    Args, Decoded, HEADS, Heads, Name, ProtocolError, RequestDecoder, RequestKind, RequestLimits,
    Span,
};

/// Most bytes of a unit.
pub const UNIT_BYTES_MAX: usize = 1 << 30;

/// Reads units out of a stream: [`Units::look_ahead`] decodes some, and [`Units::next_unit`] returns them one by one.
#[derive(Debug)]
pub struct Units {
    /// Most bytes of a unit.
    bytes_max: usize,
    limits: RequestLimits,
    decoder: RequestDecoder,
    heads: Heads,
    /// Meaning of the numbered names of `heads` for the order of units.
    brackets: [Bracket; HEADS],
    /// Bytes of the stream; those before `begin` belong to units that were read.
    buffer: Vec<u8>,
    /// Where the next unit begins.
    begin: usize,
    /// Units that were decoded; those before `next` were read.
    units: Vec<Extent>,
    next: usize,
    /// Where the unit that is being decoded begins.
    open_from: usize,
    /// Where the next command of it begins.
    at: usize,
    /// True behind MULTI.
    is_open: bool,
    /// The commands of all units that were decoded, those of the open one included.
    commands: Vec<Command>,
    /// The number of commands before the open unit.
    open_commands: usize,
    spans: Vec<Span>,
    /// Nothing behind the decoded units can be read.
    broken: Option<Broken>,
}

/// A unit that was decoded: where it ends, in the buffer and among the commands.
#[derive(Debug)]
struct Extent {
    end: usize,
    commands: Range<usize>,
    is_transaction: bool,
}

/// A command: where it begins, its arguments' spans, and the number of its name.
#[derive(Debug)]
struct Command {
    at: usize,
    spans: Range<usize>,
    name: Name,
}

/// The part that a command has in the order of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    /// It begins a transaction.
    Multi,
    /// It ends one.
    Exec,
    /// None.
    None,
}

impl Bracket {
    fn of(name: &[u8]) -> Bracket {
        match name {
            name if name.eq_ignore_ascii_case(b"multi") => Bracket::Multi,
            name if name.eq_ignore_ascii_case(b"exec") => Bracket::Exec,
            _ => Bracket::None,
        }
    }
}

/// A command, or a transaction.
#[derive(Debug)]
pub struct Unit<'a> {
    /// Its bytes in the stream.
    pub bytes: &'a [u8],
    /// True if it was told between MULTI and EXEC, which are none of its commands.
    pub is_transaction: bool,
    buffer: &'a [u8],
    commands: &'a [Command],
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
            heads: Heads::new(),
            brackets: [Bracket::None; HEADS],
            buffer: Vec::new(),
            begin: 0,
            units: Vec::new(),
            next: 0,
            open_from: 0,
            at: 0,
            is_open: false,
            commands: Vec::new(),
            open_commands: 0,
            spans: Vec::new(),
            broken: None,
        }
    }

    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        // Moving less than was read keeps the cost of each byte constant.
        if self.begin > self.buffer.len() / 2 {
            let gone = self.begin;
            self.buffer.drain(..gone);
            (self.begin, self.open_from, self.at) = (0, self.open_from - gone, self.at - gone);
            self.units.drain(..self.next);
            self.next = 0;
            self.units.iter_mut().for_each(|unit| unit.end -= gone);
            // Those of units that were read are not looked at any more.
            let commands = self.commands.iter_mut();
            commands.for_each(|command| command.at = command.at.saturating_sub(gone));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the last bytes of the units that were read, which are so many since bytes were last added.
    pub fn read_bytes(&self, count: usize) -> &[u8] {
        &self.buffer[self.begin - count..self.begin]
    }

    /// Returns the number of bytes that were added and belong to no unit that was read.
    pub fn waiting_bytes(&self) -> usize {
        self.buffer.len() - self.begin
    }

    /// Returns true if a unit that was decoded has not been read.
    pub fn has_decoded(&self) -> bool {
        self.next < self.units.len()
    }

    /// Decodes units: until they have this many commands or bytes, or no more has come. Returns their commands, in order,
    /// each with the number of its name; numbers hold from one call to the next. Units that were decoded and not yet
    /// read are left as they are: `None`.
    pub fn look_ahead(
        &mut self,
        commands_max: usize,
        bytes_max: usize,
    ) -> Option<impl Iterator<Item = (Name, Args<'_>)> + Clone> {
        if self.has_decoded() {
            return None;
        }
        self.forget_read();
        while self.broken.is_none()
            && self.open_commands < commands_max
            && self.open_from - self.begin < bytes_max
        {
            match self.decode_unit() {
                Ok(true) => {}
                Ok(false) => break,
                Err(broken) => self.broken = Some(broken),
            }
        }
        let (buffer, spans) = (&self.buffer, &self.spans);
        let commands = self.commands[..self.open_commands].iter();
        Some(commands.map(move |command| {
            let args = Args::new(&buffer[command.at..], &spans[command.spans.clone()]);
            (command.name, args)
        }))
    }

    /// Returns the next unit of those that were decoded. After an error nothing more can be read.
    pub fn next_unit(&mut self) -> Result<Option<Unit<'_>>, Broken> {
        let Some(extent) = self.units.get(self.next) else {
            return self.broken.map_or(Ok(None), Err);
        };
        let bytes = self.begin..extent.end;
        self.begin = extent.end;
        self.next += 1;
        Ok(Some(Unit {
            bytes: &self.buffer[bytes],
            is_transaction: extent.is_transaction,
            buffer: &self.buffer,
            commands: &self.commands[extent.commands.clone()],
            spans: &self.spans,
        }))
    }

    /// Drops the commands of units that were all read. What has come of an open one moves to the front.
    fn forget_read(&mut self) {
        self.units.clear();
        self.next = 0;
        if self.open_commands == 0 {
            return;
        }
        let read_spans = self.commands[self.open_commands - 1].spans.end;
        self.spans.drain(..read_spans);
        self.commands.drain(..self.open_commands);
        for command in &mut self.commands {
            command.spans.start -= read_spans;
            command.spans.end -= read_spans;
        }
        self.open_commands = 0;
    }

    /// Decodes the next unit. Returns false if it has not come whole.
    fn decode_unit(&mut self) -> Result<bool, Broken> {
        loop {
            if self.at - self.open_from > self.bytes_max {
                return Err(Broken::TooLarge);
            }
            match self.buffer.get(self.at) {
                None => return Ok(false),
                Some(b'*' | b'\r' | b'\n') => {}
                Some(_) => return Err(Broken::Inline),
            }
            let before = self.spans.len();
            let rest = &mut self.buffer[self.at..];
            let decoded =
                self.decoder
                    .decode_with(&mut self.heads, rest, &self.limits, &mut self.spans);
            let (from, is_transaction) = (self.at, self.is_open);
            match decoded.map_err(Broken::Protocol)? {
                Decoded::Incomplete { .. } => {
                    let is_too_large = self.buffer.len() - self.open_from > self.bytes_max;
                    return if is_too_large {
                        Err(Broken::TooLarge)
                    } else {
                        Ok(false)
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
                // A line that begins as an empty one does.
                Decoded::Request {
                    kind: RequestKind::Inline,
                    ..
                } => return Err(Broken::Inline),
                Decoded::Request { consumed, .. } => {
                    self.at += consumed;
                    match self.bracket(from, before) {
                        Bracket::None => self.commands.push(Command {
                            at: from,
                            spans: before..self.spans.len(),
                            name: self.heads.name(),
                        }),
                        bracket => {
                            self.spans.truncate(before);
                            let begins = bracket == Bracket::Multi;
                            if begins == self.is_open {
                                return Err(Broken::Nesting);
                            }
                            self.is_open = begins;
                        }
                    }
                    if self.is_open {
                        continue;
                    }
                }
            }
            self.units.push(Extent {
                end: self.at,
                commands: self.open_commands..self.commands.len(),
                is_transaction,
            });
            self.open_from = self.at;
            self.open_commands = self.commands.len();
            return Ok(true);
        }
    }

    /// Returns the part of the command that was decoded last, whose spans begin there.
    fn bracket(&mut self, from: usize, spans_from: usize) -> Bracket {
        let name = self.heads.name();
        if let Name::Known(number) = name {
            return self.brackets[usize::from(number)];
        }
        let args = Args::new(&self.buffer[from..], &self.spans[spans_from..]);
        let bracket = Bracket::of(&args[0]);
        if let Name::New(number) = name {
            self.brackets[usize::from(number)] = bracket;
        }
        bracket
    }
}

impl<'a> Unit<'a> {
    /// Returns its commands, in order. An empty line of the stream is a unit without any.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = Args<'a>> + Clone + use<'a> {
        let (buffer, spans) = (self.buffer, self.spans);
        let commands = self.commands.iter();
        commands.map(move |command| Args::new(&buffer[command.at..], &spans[command.spans.clone()]))
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

    fn next(units: &mut Units) -> Result<Option<Unit<'_>>, Broken> {
        let _ = units.look_ahead(2, 1000);
        units.next_unit()
    }

    /// Reads all units as text: the length of each, and its commands.
    fn read(units: &mut Units) -> Result<Vec<(usize, Vec<String>)>, Broken> {
        let mut all = Vec::new();
        while let Some(unit) = next(units)? {
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
            assert!(next(&mut units).expect("whole").is_some());
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
    fn the_commands_ahead_are_those_of_the_units_that_follow_each_once() {
        let mut stream = Vec::new();
        for number in 0..40 {
            stream.extend(request(&format!("SET key:{number} value")));
            stream.extend(request("MULTI"));
            stream.extend(request(&format!("INCR count:{number}")));
            stream.extend(request(&format!("SET b {number}")));
            stream.extend(request("EXEC"));
            stream.extend(request("a-name-longer-than-any-head x"));
        }
        let text = |args: Args<'_>| args.iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let mut whole = Units::default();
        whole.push(&stream);
        let expected: Vec<_> = whole
            .look_ahead(usize::MAX, usize::MAX)
            .expect("nothing was decoded before")
            .map(|(_, args)| text(args))
            .collect();
        assert_eq!(expected.len(), 160);
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let (mut units, mut rest) = (Units::default(), stream.as_slice());
            let (mut ahead, mut read) = (Vec::new(), Vec::new());
            let mut names = [const { Vec::new() }; HEADS];
            while read.len() < expected.len() {
                let (now, later) = rest.split_at(rng.usize(..300).min(rest.len()));
                units.push(now);
                rest = later;
                if let Some(commands) = units.look_ahead(rng.usize(..9), rng.usize(..400)) {
                    for (name, args) in commands {
                        match name {
                            Name::New(number) => names[usize::from(number)] = args[0].to_vec(),
                            Name::Known(number) => assert_eq!(names[usize::from(number)], args[0]),
                            Name::Unnumbered => {}
                        }
                        ahead.push(text(args));
                    }
                }
                for _ in 0..rng.usize(..5) {
                    if let Some(unit) = units.next_unit().expect("whole") {
                        read.extend(unit.commands().map(text));
                    }
                }
                assert!(ahead.starts_with(&read));
            }
            assert_eq!((ahead, read), (expected.clone(), expected.clone()));
        }
    }

    #[test]
    fn a_flaw_is_told_behind_the_units_before_it() {
        let mut units = Units::default();
        units.push(&[request("SET a 1"), request("EXEC")].concat());
        let commands = units.look_ahead(100, 1000).expect("nothing before");
        assert_eq!(commands.count(), 1);
        assert!(units.next_unit().expect("whole").is_some());
        for _ in 0..2 {
            assert_eq!(units.next_unit().map(|_| ()), Err(Broken::Nesting));
            assert_eq!(units.look_ahead(100, 1000).expect("read").count(), 0);
        }
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
        assert_eq!(read_all(b"\rSET a '1'\r\n"), Err(Broken::Inline));
        assert!(matches!(read_all(b"*x\r\n"), Err(Broken::Protocol(_))));
        assert!(matches!(
            read_all(b"*1\r\n$99999999999\r\n"),
            Err(Broken::Protocol(_))
        ));
    }
}
