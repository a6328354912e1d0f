//! Helpers of the tests over real sockets: connected pairs of every family, and waits with an end.
#![allow(dead_code)] // `alone` uses a part of it

use std::path::Path;
use std::time::{Duration, Instant};

use redline_net::{
    Address, Event, Interest, Listener, PeerAddr, Poller, Read, Stream, connect_blocking,
};

/// Time that a test waits for an event before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
    Unix,
}

impl Family {
    /// Returns the families that this machine has.
    pub fn all() -> Vec<Family> {
        let mut all = vec![Family::V4, Family::Unix];
        if std::net::TcpListener::bind("[::1]:0").is_ok() {
            all.push(Family::V6);
        }
        all
    }
}

pub struct Pair {
    pub listener: Listener,
    pub client: Stream,
    pub server: Stream,
    /// The client's address, as `accept` returned it.
    pub peer: PeerAddr,
    folder: Option<tempfile::TempDir>,
}

impl Pair {
    pub fn port(&self) -> u16 {
        self.listener.port().unwrap()
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.folder.as_ref().unwrap().path().join("socket")
    }
}

/// Makes a connection of `family` within this process.
pub fn connected(family: Family) -> Pair {
    let (listener, address, folder) = match family {
        Family::V4 => tcp("127.0.0.1"),
        Family::V6 => tcp("::1"),
        Family::Unix => {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            (
                Listener::bind_unix(&path, redline_net::UnixAccess::default(), 16).unwrap(),
                Address::unix(path),
                Some(folder),
            )
        }
    };
    let client = connect_blocking(&address, PATIENCE).unwrap();
    let (server, peer) = accept(&listener);
    Pair {
        listener,
        client,
        server,
        peer,
        folder,
    }
}

fn tcp(host: &str) -> (Listener, Address, Option<tempfile::TempDir>) {
    let listener = Listener::bind_tcp(&[host], 0, 16).unwrap().remove(0);
    let address = Address::tcp(host, listener.port().unwrap());
    (listener, address, None)
}

/// Waits for the next connection.
pub fn accept(listener: &Listener) -> (Stream, PeerAddr) {
    let mut poller = Poller::new(1).unwrap();
    poller.register(listener, 0, Interest::Read).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(accepted) = listener.accept().unwrap() {
            return accepted;
        }
        assert!(Instant::now() < deadline, "nobody connected");
        poller.poll(Some(PATIENCE)).unwrap();
    }
}

/// Polls until an event with `token` fulfils `wanted`.
pub fn wait_for(poller: &mut Poller, token: usize, wanted: impl Fn(&Event) -> bool) -> Event {
    let deadline = Instant::now() + PATIENCE;
    loop {
        poller.poll(Some(PATIENCE)).unwrap();
        if let Some(event) = poller
            .events()
            .find(|event| event.token == token && wanted(event))
        {
            return event;
        }
        assert!(Instant::now() < deadline, "the event never came");
    }
}

/// Reads `count` bytes, and waits for them.
pub fn read_exactly(stream: &mut Stream, count: usize) -> Vec<u8> {
    let mut poller = Poller::new(1).unwrap();
    poller.register(stream, 0, Interest::Read).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = Vec::with_capacity(count);
    while bytes.len() < count {
        let missing = count - bytes.len();
        match stream.read_into(&mut bytes, missing).unwrap() {
            Read::Data { .. } => {}
            Read::Eof => panic!("the stream ended after {} of {count} bytes", bytes.len()),
            Read::WouldBlock => {
                assert!(
                    Instant::now() < deadline,
                    "{} of {count} bytes came",
                    bytes.len()
                );
                poller.poll(Some(PATIENCE)).unwrap();
            }
        }
    }
    bytes
}

/// Returns true if `path` exists.
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
