//! A server that answers with whatever a test wants, and remembers what it was sent. Knows no commands.
#![allow(dead_code)] // each test binary uses a part of it

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

/// Action of the server on a request.
pub enum Answer {
    Reply(Vec<u8>),
    /// Says this, if anything, and closes.
    Close(Vec<u8>),
    /// Says nothing.
    Silence,
}

pub fn reply(text: &str) -> Answer {
    Answer::Reply(text.as_bytes().to_vec())
}

pub type Request = Vec<Vec<u8>>;

/// Listens on a free port until the process ends.
pub struct FakeServer {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl FakeServer {
    /// `answer` decides on each request; CONFIG GET and HELLO are answered as a real server would.
    pub fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> FakeServer {
        FakeServer::start_raw(move |request| known(request).unwrap_or_else(|| answer(request)))
    }

    /// `answer` decides on everything.
    pub fn start_raw(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> FakeServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                // The client's end of the test ends the connection: its errors are not ours to report.
                thread::spawn(move || {
                    stream.set_nodelay(true).ok()?;
                    serve(stream, &*answer, &log)
                });
            }
        });
        FakeServer { address, requests }
    }

    /// Answers everything with +OK.
    pub fn ok() -> FakeServer {
        FakeServer::start(|_| reply("+OK\r\n"))
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Everything received so far, over all connections.
    pub fn requests(&self) -> Vec<Request> {
        self.requests
            .lock()
            .expect("no test panics while it holds the log")
            .clone()
    }

    /// The same as text, words joined by spaces.
    pub fn lines(&self) -> Vec<String> {
        let text = |request: &Request| String::from_utf8_lossy(&request.join(&b' ')).into_owned();
        self.requests().iter().map(text).collect()
    }
}

/// Returns a real server's reply, for requests that are answered alike in all tests.
pub fn known(request: &Request) -> Option<Answer> {
    match request[0].to_ascii_uppercase().as_slice() {
        b"CONFIG" if request[2] == b"save" => Some(reply("*2\r\n$4\r\nsave\r\n$0\r\n\r\n")),
        b"CONFIG" => Some(reply("*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n")),
        b"HELLO" => Some(reply("%1\r\n+proto\r\n:3\r\n")),
        _ => None,
    }
}

/// Answers on one connection, and notes the requests in `log`, until either side closes.
pub fn serve(
    mut stream: impl Read + Write,
    answer: &dyn Fn(&Request) -> Answer,
    log: &Mutex<Vec<Request>>,
) -> Option<()> {
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let bytes = stream.read(&mut chunk).ok().filter(|&bytes| bytes > 0)?;
        buffer.extend_from_slice(&chunk[..bytes]);
        let (mut at, mut out, mut received) = (0, Vec::new(), Vec::new());
        let mut closing = false;
        while let Some((request, end)) = request(&buffer, at).filter(|_| !closing) {
            at = end;
            match answer(&request) {
                Answer::Reply(bytes) => out.extend(bytes),
                Answer::Close(bytes) => {
                    out.extend(bytes);
                    closing = true;
                }
                Answer::Silence => {}
            }
            received.push(request);
        }
        buffer.drain(..at);
        log.lock().ok()?.extend(received);
        stream.write_all(&out).ok()?;
        if closing {
            return None;
        }
    }
}

/// The request at `at`, if it is whole, and its end.
fn request(buffer: &[u8], at: usize) -> Option<(Request, usize)> {
    let (first, mut at) = line(buffer, at)?;
    let Some(count) = first.strip_prefix(b"*") else {
        return Some((vec![first.to_vec()], at));
    };
    let mut request = Vec::new();
    for _ in 0..number(count) {
        let (header, body) = line(buffer, at)?;
        let length = number(&header[1..]);
        request.push(buffer.get(body..body + length)?.to_vec());
        at = body + length + 2;
    }
    (at <= buffer.len()).then_some((request, at))
}

fn line(buffer: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at
        + buffer
            .get(at..)?
            .windows(2)
            .position(|pair| pair == b"\r\n")?;
    Some((&buffer[at..end], end + 2))
}

fn number(digits: &[u8]) -> usize {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}
