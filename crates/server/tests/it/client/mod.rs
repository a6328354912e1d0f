//! A blocking client for the tests of this folder: writes requests, reads replies. Of RESP3's types those that tests
//! meet are there; maps and sets are arrays. Must not know the
//! server's insides.
#![allow(dead_code)] // `alone` uses a part of it

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use redline_server::{Origin, Server, Settings};

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Value>),
    Push(Vec<Value>),
}

impl Value {
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Value::Integer(n) => *n,
            Value::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
            other => panic!("no integer: {other:?}"),
        }
    }

    #[track_caller]
    pub fn array(&self) -> &[Value] {
        match self {
            Value::Array(items) => items,
            other => panic!("no array: {other:?}"),
        }
    }

    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Value::Error(text) => text,
            other => panic!("no error: {other:?}"),
        }
    }

    #[track_caller]
    pub fn ok(&self) {
        assert_eq!(*self, Value::Simple("OK".into()));
    }
}

/// Longer than anything takes that works: only a lost reply lets a read wait so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Client {
    pub fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", server.port()));
        Client::of(stream.expect("the server listens"))
    }

    pub fn of(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// Writes bytes as they are.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Writes a request; its words have no spaces.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        self.write(&request(line));
    }

    /// Writes a request and reads its reply.
    #[track_caller]
    pub fn call(&mut self, line: &str) -> Value {
        self.send(line);
        self.read()
    }

    /// The same, with arguments of any bytes.
    #[track_caller]
    pub fn call_args(&mut self, args: &[&[u8]]) -> Value {
        self.write(&encode(args));
        self.read()
    }

    /// The next reply.
    #[track_caller]
    pub fn read(&mut self) -> Value {
        self.try_read().expect("a reply")
    }

    /// The next reply, or how the connection ended.
    pub fn try_read(&mut self) -> io::Result<Value> {
        let line = self.line()?;
        let text = || String::from_utf8_lossy(&line[1..]).into_owned();
        let number = || text().parse::<i64>().map_err(io::Error::other);
        Ok(match line[0] {
            b'+' => Value::Simple(text()),
            b'-' => Value::Error(text()),
            b':' => Value::Integer(number()?),
            b'$' => match number()? {
                ..0 => Value::Nil,
                len => {
                    let mut bytes = self.take(len as usize + 2)?;
                    bytes.truncate(len as usize);
                    Value::Bulk(bytes)
                }
            },
            b'*' => match number()? {
                ..0 => Value::Nil,
                len => Value::Array(
                    (0..len)
                        .map(|_| self.try_read())
                        .collect::<Result<_, _>>()?,
                ),
            },
            b'_' => Value::Nil,
            b'=' => {
                let mut bytes = self.take(number()? as usize + 2)?;
                bytes.truncate(bytes.len() - 2);
                Value::Bulk(bytes.split_off(4))
            }
            b'~' | b'%' | b'>' => {
                let words = number()? * if line[0] == b'%' { 2 } else { 1 };
                let words = (0..words).map(|_| self.try_read());
                let words = words.collect::<Result<_, _>>()?;
                match line[0] {
                    b'>' => Value::Push(words),
                    _ => Value::Array(words),
                }
            }
            other => panic!("a reply that starts with {:?}", other as char),
        })
    }

    /// Reads to the end of the stream: how many bytes came. A reset counts as an end.
    pub fn drain(&mut self) -> usize {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        self.buffer.len() - self.at + rest.len()
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let unread = &self.buffer[self.at..];
            if let Some(end) = unread.windows(2).position(|pair| pair == b"\r\n") {
                let line = unread[..end].to_vec();
                self.at += end + 2;
                return Ok(line);
            }
            self.more()?;
        }
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() - self.at < len {
            self.more()?;
        }
        let bytes = self.buffer[self.at..self.at + len].to_vec();
        self.at += len;
        Ok(bytes)
    }

    fn more(&mut self) -> io::Result<()> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
        }
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Ok(())
            }
        }
    }
}

/// A request of words without spaces.
pub fn request(line: &str) -> Vec<u8> {
    encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// A request.
pub fn encode(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Settings for a server on a free port of this machine.
pub fn settings(workers: usize) -> Settings {
    Settings {
        port: Some(0),
        bind: vec!["127.0.0.1".into()],
        threads: workers,
        // Tests count on who serves whom.
        balance_clients: false,
        save_points: Vec::new(),
        ..Settings::default()
    }
}

/// A running server.
pub fn start(settings: Settings) -> Server {
    Server::start(settings, Origin::default(), false).expect("the server starts")
}

/// Waits until something is so, and leaves the CPU meanwhile to those that it waits for.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a statement of Lua that keeps a script busy for that time by the wall clock. (`os.clock` counts the CPU time of the
/// whole process: with tests on many threads it may run many times as fast.)
pub fn busy(ms: u64) -> String {
    format!(
        "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end \
         local ends = now() + {} while now() < ends do end",
        ms * 1000
    )
}

/// Resident memory of this process, the server included.
pub fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
