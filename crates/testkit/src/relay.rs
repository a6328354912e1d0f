//! A relay: an address whose connections go on to a target that may change, in pieces of random lengths, and that are held up,
//! cut or altered as a test likes.
//!
//! Must not know what the bytes mean.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Largest number of bytes that are sent on at once.
const PIECE_BYTES_MAX: usize = 8 << 10;
/// Number of bytes that are kept of what the target says first on a connection.
const BEGINNING_BYTES: usize = 4 << 10;
/// Number of bytes after which a relay cuts, where none has been named.
const NEVER: u64 = u64::MAX;

/// A relay; it ends with its value.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

/// The state that a relay and its connections share.
#[derive(Debug)]
struct State {
    target: Mutex<SocketAddr>,
    /// Both sides of every connection.
    streams: Mutex<Vec<TcpStream>>,
    /// Bytes from the target that are still let through before all is cut.
    left: Mutex<u64>,
    held_until: Mutex<Option<Instant>>,
    /// Words of the target, and what is sent on in their place.
    altered: Option<(Vec<u8>, Vec<u8>)>,
    alterations: AtomicU64,
    /// First bytes of the target on each connection.
    beginnings: Mutex<Vec<Vec<u8>>>,
    is_over: AtomicBool,
}

impl State {
    /// Keeps bytes that the target has said on the connection of this number, if they are among the first.
    fn note_beginning(&self, number: usize, bytes: &[u8]) {
        let beginning = &mut lock(&self.beginnings)[number];
        let room = BEGINNING_BYTES - beginning.len();
        beginning.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    fn cut(&self) {
        for stream in lock(&self.streams).drain(..) {
            // A side that is closed already is as wanted.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits as long as bytes are to be held up.
    fn wait(&self) {
        let until = *lock(&self.held_until);
        if let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
            thread::sleep(left);
        }
    }

    /// Takes so many bytes of those that are let through; returns how many there were.
    fn take(&self, bytes: usize) -> usize {
        let mut left = lock(&self.left);
        if *left == NEVER {
            return bytes;
        }
        let taken = (*left).min(bytes as u64);
        *left -= taken;
        taken as usize
    }
}

impl Relay {
    /// Starts a relay to this target; the seed is that of the lengths of pieces.
    pub fn start(target: SocketAddr, seed: u64) -> io::Result<Relay> {
        Relay::launch(target, seed, None)
    }

    /// Starts a relay which replaces these words of the target by others of the same length, where they come in one read.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn altering(target: SocketAddr, seed: u64, from: &[u8], to: &[u8]) -> io::Result<Relay> {
        assert_eq!(
            from.len(),
            to.len(),
            "an altered stream has the same offsets"
        );
        Relay::launch(target, seed, Some((from.to_vec(), to.to_vec())))
    }

    fn launch(
        target: SocketAddr,
        seed: u64,
        altered: Option<(Vec<u8>, Vec<u8>)>,
    ) -> io::Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            target: Mutex::new(target),
            streams: Mutex::default(),
            left: Mutex::new(NEVER),
            held_until: Mutex::default(),
            altered,
            alterations: AtomicU64::new(0),
            beginnings: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let acceptor = thread::spawn(move || accept(&listener, &shared, Rng::with_seed(seed)));
        Ok(Relay {
            address,
            state,
            acceptor: Some(acceptor),
        })
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Directs connections that come from now on to another target, and cuts those that are there.
    pub fn aim(&self, target: SocketAddr) {
        *lock(&self.state.target) = target;
        self.state.cut();
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Cuts all connections when the target has sent so many bytes more.
    pub fn cut_after(&self, bytes: u64) {
        *lock(&self.state.left) = bytes;
    }

    /// Holds up everything for so long.
    pub fn hold(&self, time: Duration) {
        *lock(&self.state.held_until) = Some(Instant::now() + time);
    }

    /// Lets everything through from now on.
    pub fn relent(&self) {
        *lock(&self.state.left) = NEVER;
        *lock(&self.state.held_until) = None;
    }

    /// Returns what the target has said first on each connection so far, in their order: up to 4 KiB of each.
    pub fn beginnings(&self) -> Vec<Vec<u8>> {
        lock(&self.state.beginnings).clone()
    }

    /// Returns the number of places where words were replaced.
    pub fn alterations(&self) -> u64 {
        self.state.alterations.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
        self.state.cut();
        // The acceptor looks at the end when somebody comes.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.state.cut();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics under it")
}

fn accept(listener: &TcpListener, state: &Arc<State>, mut random: Rng) {
    for client in listener.incoming() {
        if state.is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else { continue };
        let target = *lock(&state.target);
        // Without a target the client's connection ends, as if the target had refused it.
        let Ok(server) = TcpStream::connect(target) else {
            continue;
        };
        // A connection that ended meanwhile has nothing to be carried.
        let _ = connect(state, client, server, &mut random);
    }
}

/// Carries bytes between two sockets until one of them ends.
fn connect(
    state: &Arc<State>,
    client: TcpStream,
    server: TcpStream,
    random: &mut Rng,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    lock(&state.streams).extend([client.try_clone()?, server.try_clone()?]);
    let number = {
        let mut beginnings = lock(&state.beginnings);
        beginnings.push(Vec::new());
        beginnings.len() - 1
    };
    let pairs = [
        (client.try_clone()?, server.try_clone()?, None),
        (server, client, Some(number)),
    ];
    for (from, to, number) in pairs {
        let (state, random) = (Arc::clone(state), random.fork());
        thread::spawn(move || carry(&state, from, to, number, random));
    }
    Ok(())
}

/// Carries bytes in one direction. `number`: that of the connection, if the target says them.
fn carry(
    state: &State,
    mut from: TcpStream,
    mut to: TcpStream,
    number: Option<usize>,
    mut random: Rng,
) {
    let mut piece = vec![0; PIECE_BYTES_MAX];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        state.wait();
        let mut bytes = read;
        if let Some(number) = number {
            alter(state, &mut piece[..read]);
            bytes = state.take(read);
            state.note_beginning(number, &piece[..bytes]);
        }
        if send(&mut to, &piece[..bytes], &mut random).is_err() {
            break;
        }
        if bytes < read {
            *lock(&state.left) = NEVER;
            state.cut();
            break;
        }
    }
    // The other direction ends with this one.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Sends bytes in two pieces, divided anywhere.
fn send(to: &mut TcpStream, bytes: &[u8], random: &mut Rng) -> io::Result<()> {
    let (first, second) = bytes.split_at(random.usize(..=bytes.len()));
    to.write_all(first)?;
    to.write_all(second)
}

fn alter(state: &State, bytes: &mut [u8]) {
    let Some((from, to)) = &state.altered else {
        return;
    };
    let mut at = 0;
    while at + from.len() <= bytes.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            state.alterations.fetch_add(1, Ordering::Relaxed);
            at += to.len();
        } else {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that sends these bytes to whoever comes, and then waits for the end.
    fn target(bytes: Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let _ = client.write_all(&bytes);
                let _ = client.shutdown(Shutdown::Write);
                let _ = client.read(&mut [0]);
            }
        });
        address
    }

    fn received(relay: &Relay) -> Vec<u8> {
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let mut bytes = Vec::new();
        // A cut may be told as a reset: what came before it is there all the same.
        let _ = client.read_to_end(&mut bytes);
        bytes
    }

    fn numbers(count: u32) -> Vec<u8> {
        (0..count).flat_map(u32::to_be_bytes).collect()
    }

    #[test]
    fn bytes_arrive_as_they_were_sent() {
        let relay = Relay::start(target(numbers(50_000)), 1).unwrap();
        assert_eq!(received(&relay), numbers(50_000));
        relay.aim(target(numbers(7)));
        assert_eq!(received(&relay), numbers(7));
        let beginnings = relay.beginnings();
        assert_eq!(beginnings[0], numbers(50_000)[..BEGINNING_BYTES]);
        assert_eq!(beginnings[1..], [numbers(7)]);
    }

    #[test]
    fn a_cut_falls_at_its_byte_and_once() {
        let relay = Relay::start(target(numbers(50_000)), 1).unwrap();
        relay.cut_after(12_345);
        assert_eq!(received(&relay), numbers(50_000)[..12_345]);
        assert_eq!(received(&relay), numbers(50_000));
    }

    #[test]
    fn words_are_replaced_in_what_the_target_says() {
        let relay = Relay::altering(target(b"one two one".to_vec()), 1, b"one", b"six").unwrap();
        assert_eq!(received(&relay), b"six two six");
        assert_eq!(relay.alterations(), 2);
    }
}
