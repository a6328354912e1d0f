//! An HTTP/1.1 responder for a few small resources: enough for Prometheus, for a browser and for curl, and no more.
//!
//! It has a thread and a poller of its own. Connections, bytes of a request and time are bounded; each connection is
//! answered once and closed. A peer that stalls delays no other: when all places are taken, the oldest exchange is
//! closed. Requests are parsed by `httparse`. Must not know: the resources.

use std::net::IpAddr;
use std::time::Duration;

use crate::{Interest, Listener, PeerAddr, Poller, Read, Shutdown, Stream, Waker, clock};

/// Connections at a time.
const EXCHANGES_MAX: usize = 16;
/// Length of a request's line and headers.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of bytes behind a request that are read; a client that sends more is not read until its end.
const PASSED_OVER_BYTES_MAX: usize = 64 * 1024;
/// Longest time of an exchange: milliseconds.
const EXCHANGE_MS_MAX: u64 = 5_000;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// Interval of the responder's own work.
const TICK_MS: u64 = 1_000;
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

/// The resources, and the responder's own work.
pub trait Site {
    /// Returns the answer to a GET or HEAD.
    fn answer(&mut self, request: &Request<'_>) -> Reply;

    /// Called about once a second.
    fn tick(&mut self) {}
}

/// A request for a resource.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Path of the resource.
    pub path: &'a str,
    /// Text behind the question mark; empty without one.
    pub query: &'a str,
    /// The host that the peer has meant, with its port; `None` if it has not said.
    pub host: Option<&'a str>,
    /// The peer is on this machine.
    pub is_local: bool,
}

impl Request<'_> {
    /// Returns true if the host that is meant is an address, `localhost` or one of `names`.
    ///
    /// A page of another site can make a browser send requests here under a name of its own, which it lets point to this
    /// machine. Then the browser takes the reply for that site's, and lets its script read it.
    pub fn names_host(&self, names: &[String]) -> bool {
        let Some(host) = self.host else {
            // Every browser says which host it means.
            return true;
        };
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, _)) => address,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// A reply: status, further headers as lines, and body.
#[derive(Debug)]
pub struct Reply {
    status: &'static str,
    headers: String,
    body: String,
}

impl Reply {
    /// Returns a reply; `headers` are whole lines.
    pub fn new(status: &'static str, headers: &str, body: String) -> Reply {
        Reply {
            status,
            headers: headers.to_owned(),
            body,
        }
    }

    /// Returns plain text.
    pub fn text(status: &'static str, body: &str) -> Reply {
        Reply::new(status, TEXT, body.to_owned())
    }

    /// Returns metrics in Prometheus's text format.
    pub fn metrics(body: String) -> Reply {
        Reply::new("200 OK", METRICS, body)
    }

    /// Returns the answer of a health check; the body is one line.
    pub fn health(state: Result<(), String>) -> Reply {
        match state {
            Ok(()) => Reply::text("200 OK", "ok\n"),
            Err(why) => Reply::text("503 Service Unavailable", &format!("{why}\n")),
        }
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {}\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.status,
            self.headers,
            self.body.len()
        );
        let body = if with_body { self.body.as_str() } else { "" };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

/// A connection, from its request to its end.
struct Exchange {
    is_local: bool,
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

    /// Returns the addresses that it listens on and that other machines may reach.
    pub fn open_addresses(&self) -> Vec<PeerAddr> {
        let addresses = self
            .listeners
            .iter()
            .filter_map(|it| it.local_address().ok());
        addresses.filter(|address| !address.is_local()).collect()
    }

    /// Returns a handle that ends the current wait.
    pub fn waker(&mut self) -> std::io::Result<Waker> {
        self.poller.waker(WAKER)
    }

    /// Answers for `site` until `is_over`. An error: the poller can wait for nothing any more.
    pub fn run(mut self, is_over: impl Fn() -> bool, site: &mut impl Site) -> std::io::Result<()> {
        let mut tick_ms = clock::monotonic_ms();
        while !is_over() {
            let now_ms = clock::monotonic_ms();
            if now_ms >= tick_ms {
                site.tick();
                tick_ms = now_ms + TICK_MS;
            }
            let tick = Duration::from_millis(tick_ms.saturating_sub(now_ms) + 1);
            let deadlines = self.exchanges.iter().flatten().map(|e| e.deadline_ms);
            let wait = deadlines.min().map(|deadline_ms| {
                Duration::from_millis(deadline_ms.saturating_sub(clock::monotonic_ms()) + 1)
            });
            let again = self.accept_again.then_some(ACCEPT_AGAIN);
            self.poller
                .poll(wait.into_iter().chain(again).chain([tick]).min())?;
            for at in 0..self.poller.event_count() {
                match self.poller.event(at).token {
                    WAKER => {}
                    token if token < FIRST_EXCHANGE => self.accept(token - FIRST_LISTENER),
                    token => self.go_on(token - FIRST_EXCHANGE, site),
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
            let (stream, peer) = match self.listeners[index].accept() {
                Ok(Some(accepted)) => accepted,
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
                is_local: peer.is_local(),
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

    fn go_on(&mut self, place: usize, site: &mut impl Site) {
        // An event may be of a connection that was closed for a newer one.
        if let Some(exchange) = &mut self.exchanges[place]
            && exchange.go_on(site).unwrap_or(Step::Ends) == Step::Ends
        {
            self.exchanges[place] = None;
        }
    }
}

impl Exchange {
    /// Does the steps that are possible now.
    fn go_on(&mut self, site: &mut impl Site) -> std::io::Result<Step> {
        let ended = self.receive()?;
        if self.reply.is_empty()
            && let Some(reply) = answer(&self.request, self.is_local, site)
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
fn answer(request: &[u8], is_local: bool, site: &mut impl Site) -> Option<Vec<u8>> {
    let refused =
        |status, headers: &str| Some(Reply::new(status, headers, String::new()).bytes(true));
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() <= REQUEST_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return refused("431 Request Header Fields Too Large", "");
        }
        Err(httparse::Error::Version) if is_other_version(request) => {
            return refused("505 HTTP Version Not Supported", "");
        }
        Err(_) => return refused("400 Bad Request", ""),
    }
    let (method, target) = (parsed.method.unwrap_or(""), parsed.path.unwrap_or(""));
    if !matches!(method, "GET" | "HEAD") {
        return refused("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    }
    let headers = parsed.headers.iter();
    let mut hosts = headers.filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = hosts.next();
    if hosts.next().is_some() {
        return refused("400 Bad Request", "");
    }
    let host = host.map(|header| std::str::from_utf8(header.value).unwrap_or_default());
    let (host, target) = match target.split_once("://") {
        // A target may be a whole address (RFC 9112, 3.2.2), whose host then counts.
        Some((_, rest)) => {
            let at = rest.find('/').unwrap_or(rest.len());
            let path = if at == rest.len() { "/" } else { &rest[at..] };
            (Some(&rest[..at]), path)
        }
        None => (host, target),
    };
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let reply = site.answer(&Request {
        path,
        query,
        host,
        is_local,
    });
    Some(reply.bytes(method == "GET"))
}

/// Returns true if the first line ends with the name of a version that is not 1.0 or 1.1.
fn is_other_version(request: &[u8]) -> bool {
    let line = request
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let mut words = line.trim_ascii_end().rsplit(|byte| *byte == b' ');
    words.next().is_some_and(|word| word.starts_with(b"HTTP/"))
}

const METRICS: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with what it was asked.
    struct Echo;

    impl Site for Echo {
        fn answer(&mut self, request: &Request<'_>) -> Reply {
            let Request {
                path, query, host, ..
            } = request;
            Reply::text("200 OK", &format!("{path} {query} {host:?}"))
        }
    }

    fn answered(request: &str) -> String {
        let reply = answer(request.as_bytes(), true, &mut Echo).expect("a whole request");
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn who_goes_on_sending_behind_a_request_is_not_listened_to_for_ever() {
        let (near, mut far) = Stream::pair().unwrap();
        far.set_send_buffer_bytes(4 * PASSED_OVER_BYTES_MAX)
            .unwrap();
        let mut exchange = Exchange {
            is_local: true,
            number: 1,
            stream: near,
            deadline_ms: u64::MAX,
            request: Vec::new(),
            reply: Vec::new(),
            sent: 0,
            passed_over: 0,
        };
        far.write(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(exchange.go_on(&mut Echo).unwrap() == Step::Goes);
        assert_eq!(exchange.sent, exchange.reply.len());
        let flood = vec![b'x'; PASSED_OVER_BYTES_MAX];
        assert_eq!(far.write(&flood).unwrap(), Some(flood.len()));
        assert!(exchange.go_on(&mut Echo).unwrap() == Step::Goes);
        assert_eq!(far.write(b"x").unwrap(), Some(1));
        assert!(exchange.go_on(&mut Echo).unwrap() == Step::Ends);
    }

    #[test]
    fn a_resource_is_asked_for_by_path_query_and_host() {
        for (target, said) in [
            ("/metrics", "/metrics  Some(\"x:1\")"),
            ("/metrics?x=1", "/metrics x=1 Some(\"x:1\")"),
            ("http://host:1/metrics", "/metrics  Some(\"host:1\")"),
            ("http://host", "/  Some(\"host\")"),
        ] {
            let reply = answered(&format!("GET {target} HTTP/1.1\r\nHost: x:1\r\n\r\n"));
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
            assert!(reply.ends_with(&format!("\r\n\r\n{said}")), "{reply}");
            let length = format!("\r\nContent-Length: {}\r\n", said.len());
            assert!(reply.contains(&length), "{reply}");
        }
        let head = answered("HEAD /metrics HTTP/1.0\n\n");
        assert!(head.contains("\r\nContent-Length: 14\r\n"), "{head}");
        assert!(head.ends_with("close\r\n\r\n"), "{head}");
    }

    #[test]
    fn an_address_that_others_may_reach_is_told_apart() {
        let open = |host: &str| {
            let listeners = Listener::bind_tcp(&[host], 0, 1).expect("a free port");
            Responder::new(listeners).unwrap().open_addresses().len()
        };
        assert_eq!((open("127.0.0.1"), open("0.0.0.0")), (0, 1));
    }

    #[test]
    fn a_name_of_another_site_is_not_this_host() {
        let names = ["cache.example".to_owned()];
        let named = |host| {
            Request {
                path: "/",
                query: "",
                host,
                is_local: true,
            }
            .names_host(&names)
        };
        for host in [
            "127.0.0.1:9121",
            "127.0.0.1",
            "[::1]:9121",
            "[::1]",
            "localhost:9121",
            "LOCALHOST",
            "cache.example:1",
            "10.1.2.3",
        ] {
            assert!(named(Some(host)), "{host}");
        }
        for host in [
            "evil.example:9121",
            "127.0.0.1.evil.example",
            "",
            "localhost.evil",
        ] {
            assert!(!named(Some(host)), "{host}");
        }
        assert!(named(None));
    }

    #[test]
    fn everything_else_has_its_status() {
        for (request, status) in [
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("PING a b c\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "505"),
            ("GET / HTTP/1.1\r\n\x01: x\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        ] {
            let reply = answered(request);
            assert_eq!(reply.split(' ').nth(1), Some(status), "{request}");
        }
        assert!(answer(b"GET /metrics HTTP/1.1\r\n", true, &mut Echo).is_none());
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(HEADERS_MAX + 1)
        );
        assert!(answered(&many).starts_with("HTTP/1.1 431 "));
        let long = [b"GET /".as_slice(), &vec![b'x'; REQUEST_BYTES_MAX]].concat();
        let reply = answer(&long, true, &mut Echo).unwrap();
        assert!(reply.starts_with(b"HTTP/1.1 431 "));
        assert!(answer(&long[..REQUEST_BYTES_MAX], true, &mut Echo).is_none());
    }
}
