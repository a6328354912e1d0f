//! An HTTP/1.1 responder for one resource, `/metrics`: enough for Prometheus, for a browser and for curl, and no more.
//!
//! It has a thread and a poller of its own. Connections, bytes of a request and time are bounded; each connection is
//! answered once and closed. A peer that stalls delays no other: when all places are taken, the oldest exchange is
//! closed. Must not know: the contents of the resource.

use std::time::Duration;

use crate::{Interest, Listener, Poller, Read, Shutdown, Stream, Waker, clock};

/// Connections at a time.
const EXCHANGES_MAX: usize = 16;
/// Length of a request's line and headers.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of bytes behind a request that are read; a client that sends more is not read until its end.
const PASSED_OVER_BYTES_MAX: usize = 64 * 1024;
/// Longest time of an exchange: milliseconds.
const EXCHANGE_MS_MAX: u64 = 5_000;
/// Pause before accepting is tried again, after it has failed, most likely for want of a descriptor.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);
/// Descriptors that it takes: its connections, its poller and what wakes it. Listeners come on top.
pub const DESCRIPTORS: u64 = EXCHANGES_MAX as u64 + 2;

const WAKER: usize = 0;
const FIRST_LISTENER: usize = 1;
const FIRST_EXCHANGE: usize = 64;

/// The responder: see the module's text.
pub struct Responder {
    poller: Poller,
    listeners: Vec<Listener>,
    exchanges: Vec<Option<Exchange>>,
    accepted: u64,
    accept_again: bool,
}

/// A connection, from its request to its end.
struct Exchange {
    /// Number of connections that came before it.
    number: u64,
    stream: Stream,
    deadline_ms: u64,
    request: Vec<u8>,
    /// The whole reply, once the request is whole or wrong.
    reply: Vec<u8>,
    sent: usize,
    /// Bytes that came behind the request.
    passed_over: usize,
}

/// Result of a step of an exchange: it goes on, or it is over.
#[derive(PartialEq, Eq)]
enum Step {
    Goes,
    Ends,
}

impl Responder {
    /// Makes a responder to peers that connect to these listeners.
    pub fn new(listeners: Vec<Listener>) -> std::io::Result<Responder> {
        let poller = Poller::new(EXCHANGES_MAX)?;
        for (index, listener) in listeners.iter().enumerate() {
            poller.register(listener, FIRST_LISTENER + index, Interest::Read)?;
        }
        Ok(Responder {
            poller,
            listeners,
            exchanges: (0..EXCHANGES_MAX).map(|_| None).collect(),
            accepted: 0,
            accept_again: false,
        })
    }

    /// Returns a handle that ends the current wait.
    pub fn waker(&mut self) -> std::io::Result<Waker> {
        self.poller.waker(WAKER)
    }

    /// Answers with the text that `page` makes, until `is_over`. An error: the poller can wait for nothing any more.
    pub fn run(
        mut self,
        is_over: impl Fn() -> bool,
        page: impl Fn() -> String,
    ) -> std::io::Result<()> {
        while !is_over() {
            let deadlines = self.exchanges.iter().flatten().map(|e| e.deadline_ms);
            let wait = deadlines.min().map(|deadline_ms| {
                Duration::from_millis(deadline_ms.saturating_sub(clock::monotonic_ms()) + 1)
            });
            let again = self.accept_again.then_some(ACCEPT_AGAIN);
            self.poller.poll(wait.into_iter().chain(again).min())?;
            for at in 0..self.poller.event_count() {
                match self.poller.event(at).token {
                    WAKER => {}
                    token if token < FIRST_EXCHANGE => self.accept(token - FIRST_LISTENER),
                    token => self.go_on(token - FIRST_EXCHANGE, &page),
                }
            }
            if std::mem::take(&mut self.accept_again) {
                (0..self.listeners.len()).for_each(|index| self.accept(index));
            }
            let now_ms = clock::monotonic_ms();
            for exchange in &mut self.exchanges {
                exchange.take_if(|exchange| exchange.deadline_ms <= now_ms);
            }
        }
        Ok(())
    }

    fn accept(&mut self, index: usize) {
        loop {
            let stream = match self.listeners[index].accept() {
                Ok(Some((stream, _))) => stream,
                Ok(None) => return,
                Err(_) => {
                    self.accept_again = true;
                    return;
                }
            };
            let place = self.place();
            let watched =
                self.poller
                    .register(&stream, FIRST_EXCHANGE + place, Interest::ReadWrite);
            // A connection that cannot be watched is closed.
            self.accepted += 1;
            self.exchanges[place] = watched.is_ok().then(|| Exchange {
                number: self.accepted,
                stream,
                deadline_ms: clock::monotonic_ms() + EXCHANGE_MS_MAX,
                request: Vec::new(),
                reply: Vec::new(),
                sent: 0,
                passed_over: 0,
            });
        }
    }

    /// Returns a free place, or that of the oldest exchange.
    fn place(&self) -> usize {
        let number = |place: &usize| self.exchanges[*place].as_ref().map(|e| e.number);
        // No exchange is less than any.
        (0..EXCHANGES_MAX)
            .min_by_key(number)
            .expect("there are places")
    }

    fn go_on(&mut self, place: usize, page: impl Fn() -> String) {
        // An event may be of a connection that was closed for a newer one.
        if let Some(exchange) = &mut self.exchanges[place]
            && exchange.go_on(page).unwrap_or(Step::Ends) == Step::Ends
        {
            self.exchanges[place] = None;
        }
    }
}

impl Exchange {
    /// Does the steps that are possible now.
    fn go_on(&mut self, page: impl Fn() -> String) -> std::io::Result<Step> {
        let ended = self.receive()?;
        if self.reply.is_empty()
            && let Some(reply) = answer(&self.request, page)
        {
            self.reply = reply;
        }
        if self.reply.is_empty() {
            return Ok(if ended { Step::Ends } else { Step::Goes });
        }
        while self.sent < self.reply.len() {
            match self.stream.write(&self.reply[self.sent..])? {
                Some(bytes) => self.sent += bytes,
                None => return Ok(Step::Goes),
            }
        }
        // To close with unread bytes would discard what the peer has not read yet: its end is awaited.
        self.stream.shutdown(Shutdown::Write)?;
        Ok(if ended { Step::Ends } else { Step::Goes })
    }

    /// Reads the bytes that are there; returns true if no more will come, or be waited for. Behind a whole request
    /// everything is passed over, up to a limit: a thread that only reads answers no other peer.
    fn receive(&mut self) -> std::io::Result<bool> {
        let mut passed_over = Vec::new();
        loop {
            let into = match self.reply.is_empty() {
                true => &mut self.request,
                false => &mut passed_over,
            };
            // What does not fit is answered as too long.
            let room = (REQUEST_BYTES_MAX + 1).saturating_sub(into.len());
            if room == 0 {
                return Ok(false);
            }
            match self.stream.read_into(into, room)? {
                Read::Data { .. } => {
                    self.passed_over += passed_over.len();
                    passed_over.clear();
                    if self.passed_over > PASSED_OVER_BYTES_MAX {
                        return Ok(true);
                    }
                }
                Read::WouldBlock => return Ok(false),
                Read::Eof => return Ok(true),
            }
        }
    }
}

/// Returns the reply to a request; `None`: it is not whole yet.
fn answer(request: &[u8], page: impl Fn() -> String) -> Option<Vec<u8>> {
    let Some(end) = head_end(request) else {
        return (request.len() > REQUEST_BYTES_MAX)
            .then(|| reply("431 Request Header Fields Too Large", "", "", true));
    };
    let line = request[..end].split(|byte| *byte == b'\n').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let [method, target, version] = words[..] else {
        return Some(reply("400 Bad Request", "", "", true));
    };
    if !version.starts_with("HTTP/1.") {
        return Some(reply("505 HTTP Version Not Supported", "", "", true));
    }
    Some(match method {
        "GET" | "HEAD" if path(target) == "/metrics" => {
            reply("200 OK", METRICS, &page(), method == "GET")
        }
        "GET" | "HEAD" => {
            let text = "There is only /metrics here.\n";
            reply("404 Not Found", TEXT, text, method == "GET")
        }
        _ => reply("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "", true),
    })
}

const METRICS: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\n";

/// Returns the place of the empty line that ends a request's head.
fn head_end(request: &[u8]) -> Option<usize> {
    let ends = |line: &[u8]| request.windows(line.len()).position(|bytes| bytes == line);
    ends(b"\r\n\r\n").or_else(|| ends(b"\n\n"))
}

/// Returns the path of a target, which may be a whole address (RFC 9112, 3.2.2) and may have a query.
fn path(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    target.split(['?', '#']).next().unwrap_or_default()
}

fn reply(status: &str, headers: &str, body: &str, with_body: bool) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if with_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(request: &str) -> String {
        let reply = answer(request.as_bytes(), || "page\n".into()).expect("a whole request");
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn who_goes_on_sending_behind_a_request_is_not_listened_to_for_ever() {
        let (near, mut far) = Stream::pair().unwrap();
        far.set_send_buffer_bytes(4 * PASSED_OVER_BYTES_MAX)
            .unwrap();
        let mut exchange = Exchange {
            number: 1,
            stream: near,
            deadline_ms: u64::MAX,
            request: Vec::new(),
            reply: Vec::new(),
            sent: 0,
            passed_over: 0,
        };
        far.write(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let page = || "page\n".to_owned();
        assert!(exchange.go_on(page).unwrap() == Step::Goes);
        assert_eq!(exchange.sent, exchange.reply.len());
        let flood = vec![b'x'; PASSED_OVER_BYTES_MAX];
        assert_eq!(far.write(&flood).unwrap(), Some(flood.len()));
        assert!(exchange.go_on(page).unwrap() == Step::Goes);
        assert_eq!(far.write(b"x").unwrap(), Some(1));
        assert!(exchange.go_on(page).unwrap() == Step::Ends);
    }

    #[test]
    fn the_one_resource_is_found_by_path() {
        for target in ["/metrics", "/metrics?x=1", "http://host:1/metrics"] {
            let reply = answered(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
            assert!(reply.contains("\r\nContent-Length: 5\r\n"), "{reply}");
            assert!(reply.ends_with("\r\n\r\npage\n"), "{reply}");
        }
        let head = answered("HEAD /metrics HTTP/1.0\n\n");
        assert!(head.contains("\r\nContent-Length: 5\r\n"), "{head}");
        assert!(head.ends_with("close\r\n\r\n"), "{head}");
    }

    #[test]
    fn everything_else_has_its_status() {
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET http://host HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("PING a b c\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "505"),
        ] {
            let reply = answered(request);
            assert_eq!(reply.split(' ').nth(1), Some(status), "{request}");
        }
        assert!(answer(b"GET /metrics HTTP/1.1\r\n", String::new).is_none());
        let long = vec![b'x'; REQUEST_BYTES_MAX + 1];
        let reply = answer(&long, String::new).unwrap();
        assert!(reply.starts_with(b"HTTP/1.1 431 "));
        assert!(answer(&long[..REQUEST_BYTES_MAX], String::new).is_none());
    }
}
