//! State of a client that every worker may see: CLIENT LIST shows it, and CLIENT KILL selects by it. Must not know connections.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last command of a client that has called nothing.
pub const NOTHING_CALLED: u16 = u16::MAX;

/// State of a client that every worker may see.
pub struct ClientInfo {
    /// Its number.
    pub id: u64,
    /// The peer's address.
    pub addr: PeerAddr,
    /// The local address.
    pub laddr: Option<PeerAddr>,
    /// Its file descriptor.
    pub fd: i32,
    /// Time at which it connected: seconds since 1970.
    pub since_s: u64,
    /// Time at which bytes last arrived: seconds of the coarse monotonic clock.
    pub active_s: AtomicU32,
    /// The last command that it called, [`NOTHING_CALLED`] before the first.
    pub last: AtomicU16,
    /// Number of its channels, patterns and shard channels.
    pub subscriptions: [AtomicU32; 3],
    /// Names, database, protocol and user of the client.
    pub told: Mutex<Told>,
}

/// Names, database, protocol and user of a client.
#[derive(Clone, Default)]
pub struct Told {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_ver: Vec<u8>,
    /// Its database.
    pub db: u16,
    /// It speaks RESP3.
    pub resp3: bool,
    /// The name of its user.
    pub user: Vec<u8>,
}

/// The address of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddr {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of the listening socket; empty if it has none.
    Unix(PathBuf),
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddr::Tcp(address) => match address.ip() {
                IpAddr::V4(ip) => write!(f, "{ip}:{}", address.port()),
                IpAddr::V6(ip) => write!(f, "[{ip}]:{}", address.port()),
            },
            PeerAddr::Unix(path) => write!(f, "{}:0", path.display()),
        }
    }
}

impl ClientInfo {
    /// Returns the state of a client that connected at this time, in seconds of either clock.
    pub fn new(
        id: u64,
        (addr, laddr): (PeerAddr, Option<PeerAddr>),
        fd: i32,
        (since_s, active_s): (u64, u32),
    ) -> ClientInfo {
        ClientInfo {
            id,
            addr,
            laddr,
            fd,
            since_s,
            active_s: AtomicU32::new(active_s),
            last: AtomicU16::new(NOTHING_CALLED),
            subscriptions: Default::default(),
            told: Mutex::default(),
        }
    }

    /// Notes that bytes arrived at this time of the worker's clock in milliseconds.
    pub fn heard(&self, now_ms: u64) {
        let now_s = (now_ms / 1000) as u32;
        self.active_s.store(now_s, Ordering::Relaxed);
    }

    /// Returns its names, database, protocol and user.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets its user.
    pub fn set_user(&self, name: &[u8]) {
        self.told().user = name.to_vec();
    }

    /// Returns true if it has any subscription.
    pub fn is_subscriber(&self) -> bool {
        let mut counts = self.subscriptions.iter();
        counts.any(|count| count.load(Ordering::Relaxed) > 0)
    }
}
