//! A server that does nothing: it counts requests and answers each with the same five bytes.
//!
//! The cost of a load against this server is the generator's own cost. It runs on a thread of this process and listens
//! on the loopback; it knows RESP's framing of requests and nothing of their meaning. Only the generator's own requests
//! go there: anything else ends the connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};

use redline_net::{Endpoint, Interest, Listener, Poller, Read, Stream, Waker};

/// The server, until it is dropped.
pub struct NullServer {
    endpoint: Endpoint,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

const REPLY: &[u8] = b"+OK\r\n";
const BACKLOG: u32 = 1024;
const EVENTS_MAX: usize = 1024;
const LISTENER_TOKEN: usize = usize::MAX - 1;
const STOP_TOKEN: usize = usize::MAX;
const READ_BYTES: usize = 64 * 1024;

impl NullServer {
    /// Starts a server on a free port of the loopback.
    pub fn start() -> io::Result<NullServer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind_address(address, BACKLOG).map_err(|error| error.error)?;
        let port = listener.port().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut poller = Poller::new(EVENTS_MAX)?;
        let waker = poller.waker(STOP_TOKEN)?;
        poller.register(&listener, LISTENER_TOKEN, Interest::Read)?;
        let serving = Serving {
            listener,
            poller,
            connections: Vec::new(),
            replies: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name("null-server".into())
            .spawn(move || serving.serve())?;
        Ok(NullServer {
            endpoint: Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            waker,
            thread: Some(thread),
        })
    }

    /// Returns its listening endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported there.
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct Serving {
    listener: Listener,
    poller: Poller,
    connections: Vec<Option<Connection>>,
    /// Many replies, of which a prefix is sent.
    replies: Vec<u8>,
}

struct Connection {
    stream: Stream,
    input: Vec<u8>,
    counter: Counter,
    /// Bytes of replies that the socket did not take.
    owed: usize,
}

impl Serving {
    fn serve(mut self) {
        while self.poller.poll(None).is_ok() {
            for index in 0..self.poller.event_count() {
                let event = self.poller.event(index);
                match event.token {
                    STOP_TOKEN => return,
                    LISTENER_TOKEN => self.accept(),
                    token => {
                        if self.answer(token).is_none() {
                            self.connections[token] = None;
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok(Some((stream, _))) = self.listener.accept() {
            let token = self.connections.len();
            let _ = stream.set_nodelay(true);
            let watched = self.poller.register(&stream, token, Interest::ReadWrite);
            if watched.is_ok() {
                self.connections.push(Some(Connection {
                    stream,
                    input: Vec::new(),
                    counter: Counter::default(),
                    owed: 0,
                }));
            }
        }
    }

    /// Answers requests that have arrived; `None` when the connection is over.
    fn answer(&mut self, token: usize) -> Option<()> {
        let connection = self.connections.get_mut(token)?.as_mut()?;
        loop {
            let drained = match connection
                .stream
                .read_into(&mut connection.input, READ_BYTES)
            {
                Ok(Read::Data { drained, .. }) => drained,
                Ok(Read::WouldBlock) => true,
                Ok(Read::Eof) | Err(_) => return None,
            };
            let (consumed, requests) = connection.counter.count(&connection.input)?;
            connection.input.drain(..consumed);
            connection.owed += requests * REPLY.len();
            if connection.owed > self.replies.len() {
                let all = connection.owed.next_multiple_of(READ_BYTES * REPLY.len());
                self.replies = REPLY.repeat(all / REPLY.len());
            }
            if connection.owed > 0 {
                // Unsent replies end where the buffer ends.
                let from = self.replies.len() - connection.owed;
                let written = connection.stream.write(&self.replies[from..]).ok()?;
                connection.owed -= written.unwrap_or(0);
            }
            if drained {
                return Some(());
            }
        }
    }
}

/// Counts requests by their headers, in pieces of any size.
#[derive(Default)]
struct Counter {
    /// Missing words of the request; 0 between requests.
    words: usize,
    /// Missing bytes of the word, its line end included.
    jump: usize,
    /// The word is the last of its request.
    is_last: bool,
}

impl Counter {
    /// Returns the bytes that may be dropped, and the number of completed requests; `None` if it is no request.
    fn count(&mut self, buf: &[u8]) -> Option<(usize, usize)> {
        let (mut at, mut requests) = (0, 0);
        loop {
            let step = self.jump.min(buf.len() - at);
            (at, self.jump) = (at + step, self.jump - step);
            if self.jump > 0 {
                return Some((at, requests));
            }
            requests += usize::from(std::mem::take(&mut self.is_last));
            let Some(length) = buf[at..].iter().position(|&byte| byte == b'\n') else {
                return (buf.len() - at < 32).then_some((at, requests));
            };
            let line = buf[at..at + length].trim_ascii_end();
            let number = std::str::from_utf8(line.get(1..)?).ok()?.parse().ok()?;
            match (line[0], self.words) {
                (b'*', 0) => self.words = number,
                (b'$', 1..) => {
                    self.jump = usize::checked_add(number, 2)?;
                    self.words -= 1;
                    self.is_last = self.words == 0;
                }
                _ => return None,
            }
            at += length + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use redline_resp::encode_request;

    use super::*;

    fn requests() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_request(&["SET", "a", "*1\r\n$2\r\n"], &mut bytes);
        encode_request(&["PING"], &mut bytes);
        encode_request(&["GET", ""], &mut bytes);
        bytes
    }

    #[test]
    fn requests_are_counted_wherever_they_are_cut() {
        let all = requests();
        for piece in [1, 2, 5, all.len()] {
            let (mut counter, mut held, mut counted) = (Counter::default(), Vec::new(), 0);
            for bytes in all.chunks(piece) {
                held.extend_from_slice(bytes);
                let (consumed, requests) = counter.count(&held).expect("they are requests");
                held.drain(..consumed);
                counted += requests;
            }
            assert_eq!(counted, 3, "in pieces of {piece}");
        }
        for wrong in [&b"PING\r\n"[..], b"*1\r\nx", b"*x\r\n", b"$1\r\n"] {
            let mut held = wrong.to_vec();
            held.resize(64, b'x');
            assert!(
                Counter::default().count(&held).is_none(),
                "{}",
                wrong.escape_ascii()
            );
        }
    }

    #[test]
    fn a_request_counts_when_its_last_byte_is_there() {
        let mut counter = Counter::default();
        let mut request = Vec::new();
        encode_request(&["SET", "a", "x".repeat(100).as_str()], &mut request);
        let (last, before) = request.split_last().unwrap();
        assert_eq!(counter.count(before), Some((before.len(), 0)));
        assert_eq!(counter.count(&[*last]), Some((1, 1)));
    }

    #[test]
    fn every_request_is_answered_and_the_end_is_the_end() {
        let server = NullServer::start().unwrap();
        let Endpoint::Tcp(address) = *server.endpoint() else {
            panic!("it listens on TCP")
        };
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(&requests()).unwrap();
        let mut replies = vec![0; 3 * REPLY.len()];
        client.read_exact(&mut replies).unwrap();
        assert_eq!(replies, REPLY.repeat(3));
        drop(server);
        assert_eq!(client.read(&mut replies).unwrap(), 0);
    }
}
