//! A connection of the control side to a server: questions in order, answers in order, each by its deadline.
//! Must not know what is asked.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use redline_net::tls::ClientTls;
use redline_net::{Endpoint, Event, Interest, Poller, Read, Stream, connect_endpoint};
use redline_resp::{ReplyDecoder, Value, encode_request};

/// One read.
const READ_BYTES: usize = 64 * 1024;
/// An answer longer than this is none that we asked for.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The connection. `Q` says what an answer is about.
pub struct Line<Q> {
    stream: Stream,
    is_connecting: bool,
    /// To be spoken as soon as the connection stands.
    tls: Option<ClientTls>,
    token: usize,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Bytes of an answer that is not whole.
    taken: usize,
    decoder: ReplyDecoder,
    awaited: VecDeque<(Option<Q>, u64)>,
}

impl<Q> Line<Q> {
    /// Begins to connect, and to say who we are.
    pub fn open(
        poller: &Poller,
        token: usize,
        endpoint: &Endpoint,
        tls: Option<ClientTls>,
        who: Option<(Option<&str>, &str)>,
        deadline_ms: u64,
    ) -> io::Result<Line<Q>> {
        let stream = connect_endpoint(endpoint).map_err(|error| error.error)?;
        // Sends small writes at once; without it an answer only comes later.
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
        };
        if let Some((user, password)) = who {
            let words = ["AUTH"].into_iter().chain(user).chain([password]);
            line.put(None, words, deadline_ms);
        }
        Ok(line)
    }

    /// Asks something. What cannot be sent now is sent when the server takes it.
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

    /// When its oldest question has waited for too long.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.awaited.front().map(|(_, deadline_ms)| *deadline_ms)
    }

    /// What was asked and not answered.
    pub fn unanswered(self) -> impl Iterator<Item = Q> {
        self.awaited
            .into_iter()
            .filter_map(|(question, _)| question)
    }

    /// Takes an event in; what was answered goes to `answers`, what nobody asked for (a message) without a question.
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
                // Its handshake may want to write at any time.
                Some(tls) => self.stream.connect_tls(tls)?,
                None => poller.reregister(&self.stream, self.token, Interest::Read)?,
            }
            self.send()?;
        }
        loop {
            match self.stream.read_into(&mut self.input, READ_BYTES)? {
                Read::Data { drained, .. } => {
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
            // What was put waits for the end of the handshake.
            Some(_) => self.send(),
            None => Ok(()),
        }
    }

    /// Questions are a few hundred bytes: a socket that does not take them is one of a server that hangs.
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
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "the answer is too long",
                    ));
                }
                return Ok(());
            };
            self.taken = 0;
            match self.awaited.pop_front() {
                Some((Some(question), _)) => answers.push((Some(question), value)),
                // Whoever we are not still may answer PING.
                Some((None, _)) => {}
                None => answers.push((None, value)),
            }
        }
    }
}
