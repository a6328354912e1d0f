//! A connection of the control side to a server: questions in order, replies in order, each by its deadline. Must not
//! know the questions.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use redline_net::tls::ClientTls;
use redline_net::{Endpoint, Event, Interest, Poller, Read, Stream, connect_endpoint};
use redline_resp::{ReplyDecoder, Value, encode_request};

/// Size of one read: bytes.
const READ_BYTES: usize = 64 * 1024;
/// Largest reply, or all replies of one turn: bytes. More than any question asks for.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest pushed message, or all messages of one turn: bytes.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The connection. `Q` is the subject of a reply.
pub struct Line<Q> {
    stream: Stream,
    is_connecting: bool,
    /// TLS to begin once the connection is established.
    tls: Option<ClientTls>,
    token: usize,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Bytes of an incomplete reply.
    taken: usize,
    decoder: ReplyDecoder,
    awaited: VecDeque<(Option<Q>, u64)>,
    /// Pushed messages are expected.
    hears: bool,
}

/// The parameters of a new connection.
pub struct Opening<'a> {
    /// Its token in the poller.
    pub token: usize,
    /// The server's address.
    pub endpoint: &'a Endpoint,
    /// With TLS.
    pub tls: Option<ClientTls>,
    /// User and password to authenticate with.
    pub who: Option<(Option<&'a str>, &'a str)>,
    /// Deadline of the first reply.
    pub deadline_ms: u64,
    /// Pushed messages are expected, besides replies.
    pub hears: bool,
}

impl<Q> Line<Q> {
    /// Begins to connect, and to authenticate.
    pub fn open(poller: &Poller, opening: Opening<'_>) -> io::Result<Line<Q>> {
        let Opening {
            token,
            endpoint,
            tls,
            who,
            deadline_ms,
            hears,
        } = opening;
        let stream = connect_endpoint(endpoint).map_err(|error| error.error)?;
        // Sends small writes at once; without it replies only arrive later.
        let _ = stream.set_nodelay(true);
        poller.register(&stream, token, Interest::ReadWrite)?;
        let mut line = Line {
            stream,
            is_connecting: true,
            tls,
            token,
            out: Vec::new(),
            input: Vec::new(),
            taken: 0,
            decoder: ReplyDecoder::new(),
            awaited: VecDeque::new(),
            hears,
        };
        if let Some((user, password)) = who {
            let words = ["AUTH"].into_iter().chain(user).chain([password]);
            line.put(None, words, deadline_ms);
        }
        Ok(line)
    }

    /// Asks a question. Bytes that the socket does not take now are sent later.
    pub fn ask<'a>(
        &mut self,
        question: Q,
        words: impl IntoIterator<Item = &'a str>,
        deadline_ms: u64,
    ) -> io::Result<()> {
        self.put(Some(question), words, deadline_ms);
        self.send()
    }

    fn put<'a>(
        &mut self,
        question: Option<Q>,
        words: impl IntoIterator<Item = &'a str>,
        deadline_ms: u64,
    ) {
        let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
        encode_request(words.iter().copied(), &mut self.out);
        self.awaited.push_back((question, deadline_ms));
    }

    /// Returns the deadline of its oldest question.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.awaited.front().map(|(_, deadline_ms)| *deadline_ms)
    }

    /// Returns the questions that are not answered.
    pub fn unanswered(self) -> impl Iterator<Item = Q> {
        self.awaited
            .into_iter()
            .filter_map(|(question, _)| question)
    }

    /// Handles an event; replies are added to `answers`, pushed messages without a question. An error of the kind
    /// `InvalidData`: the peer sends invalid replies, or far more than it was asked for.
    pub fn turn(
        &mut self,
        poller: &Poller,
        event: Event,
        answers: &mut Vec<(Option<Q>, Value)>,
    ) -> io::Result<()> {
        if self.is_connecting {
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            if !event.writable {
                return Ok(());
            }
            self.is_connecting = false;
            match &self.tls {
                // Its handshake may need to write at any time.
                Some(tls) => self.stream.connect_tls(tls)?,
                None => poller.reregister(&self.stream, self.token, Interest::Read)?,
            }
            self.send()?;
        }
        let mut left = match self.hears {
            true => MESSAGE_BYTES_MAX,
            false => ANSWER_BYTES_MAX,
        };
        loop {
            match self.stream.read_into(&mut self.input, READ_BYTES)? {
                Read::Data { drained, bytes } => {
                    // A read without content, which TLS has, counts as a full one: their number is bounded.
                    let counted = if bytes == 0 { READ_BYTES } else { bytes };
                    left = left.checked_sub(counted).ok_or_else(too_much)?;
                    self.decode(answers)?;
                    if drained && !event.closed {
                        break;
                    }
                }
                Read::WouldBlock => break,
                Read::Eof => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
        match self.tls {
            // Queued bytes wait for the end of the handshake.
            Some(_) => self.send(),
            None => Ok(()),
        }
    }

    /// Sends queued bytes. Questions are a few hundred bytes: a socket that does not take them is one of a server that hangs.
    fn send(&mut self) -> io::Result<()> {
        if self.is_connecting {
            return Ok(());
        }
        if self.stream.has_unsent() {
            self.stream.write(&[])?;
        }
        while !self.out.is_empty() {
            match self.stream.write(&self.out)? {
                Some(bytes) => drop(self.out.drain(..bytes)),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn decode(&mut self, answers: &mut Vec<(Option<Q>, Value)>) -> io::Result<()> {
        loop {
            let decoded = self.decoder.decode(&self.input);
            let decoded = decoded.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            self.input.drain(..decoded.consumed);
            let Some(value) = decoded.value else {
                self.taken += decoded.consumed;
                if self.taken + self.input.len() > ANSWER_BYTES_MAX {
                    return Err(too_much());
                }
                if self.input.is_empty() {
                    self.input.shrink_to(READ_BYTES);
                }
                return Ok(());
            };
            self.taken = 0;
            match self.awaited.pop_front() {
                Some((Some(question), _)) => answers.push((Some(question), value)),
                // A server that requires authentication may still answer PING.
                Some((None, _)) => {}
                None if self.hears => answers.push((None, value)),
                None => return Err(too_much()),
            }
        }
    }
}

fn too_much() -> io::Error {
    let text = "it says more than it was asked";
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Connects a line to a server that sends this again and again, unasked: returns the largest number of replies taken
    /// in one turn, and the error that ended it.
    fn flooded(what: &[u8], hears: bool) -> (usize, io::Error) {
        // Enough to be noticed, and little enough for a line that takes it all.
        const SAID_BYTES: usize = 64 * 1024 * 1024;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
        let piece = what.repeat(64 * 1024 / what.len());
        let says = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut said = 0;
            while said < SAID_BYTES && stream.write_all(&piece).is_ok() {
                said += piece.len();
            }
        });
        let mut poller = Poller::new(8).unwrap();
        let opening = Opening {
            token: 1,
            endpoint: &endpoint,
            tls: None,
            who: None,
            deadline_ms: u64::MAX,
            hears,
        };
        let mut line: Line<u8> = Line::open(&poller, opening).unwrap();
        line.ask(7, ["PING"], u64::MAX).unwrap();
        let mut most = 0;
        let error = loop {
            poller.poll(Some(Duration::from_secs(20))).unwrap();
            assert!(poller.event_count() > 0, "it was silent");
            let mut answers = Vec::new();
            let turned = line.turn(&poller, poller.event(0), &mut answers);
            most = most.max(answers.len());
            if let Err(error) = turned {
                break error;
            }
        };
        drop(line);
        says.join().unwrap();
        (most, error)
    }

    #[test]
    fn who_says_what_nobody_asked_for_is_not_listened_to() {
        let (answers, error) = flooded(b"+PONG\r\n", false);
        assert_eq!((answers, error.kind()), (1, ErrorKind::InvalidData));
    }

    #[test]
    fn who_never_comes_to_an_end_is_not_listened_to() {
        for endless in [&b"x"[..], b"*9\r\n", b"$1\r\n", b"+"] {
            let (answers, error) = flooded(endless, false);
            assert!(answers <= 1, "{answers}");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn messages_without_end_are_not_collected() {
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n";
        // The sender may be as slow as the reader: then all of them are passed on, a few at a time.
        let (answers, _) = flooded(message, true);
        assert!(
            answers <= MESSAGE_BYTES_MAX / message.len() + 1,
            "{answers}"
        );
    }
}
