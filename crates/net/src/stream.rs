//! A connected socket, TCP or unix: non-blocking reads and writes, its options and its addresses.
//!
//! It must not know the meaning of the bytes, nor the reader.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use std::net::Shutdown;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::address::{unix_address, write_host_port};
use crate::pacing::Pacing;
use crate::tls::{ClientTls, ServerTls, Tls, TlsError};
use crate::{Address, Endpoint, NetError};

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// `bytes` bytes: at least one, but with TLS there may be none, if the bytes that came were not for the reader and
    /// more may be there.
    Data {
        /// Number of bytes.
        bytes: usize,
        /// Nothing more is there: the next byte that arrives raises an event. The caller need not try again (but see
        /// [`crate::Event::closed`]).
        drained: bool,
    },
    /// Nothing is there yet.
    WouldBlock,
    /// The peer will send no more.
    Eof,
}

/// A connected, non-blocking socket.
///
/// # Why a short read means drained
///
/// The poller reports edges: bytes that were there before the last event raise no other one. So a reader must know
/// that it has taken everything. A read that fills less than the room it was given has emptied the socket: the kernel
/// stops early only when its queue is empty (epoll(7) gives this as the rule for streams). A byte that arrives after
/// that read is new, and raises an event. This spares the second `recv` whose only answer would be "would block":
/// one system call of the two that a request costs.
///
/// Two exceptions exist. The end of a stream is no byte: when data and the peer's FIN arrive together, a short read
/// takes the data, and no event will follow; the event that announced both has `closed` set, and its receiver reads
/// until [`Read::Eof`]. And a peer that sends TCP urgent data, or file descriptors over a unix socket, makes a read
/// stop at that mark; such a peer delays its own requests until it sends more, and no other's.
///
/// # TLS
///
/// A stream may speak TLS ([`Stream::accept_tls`], [`Stream::connect_tls`]). Reads and writes then are of plain bytes,
/// and mean the same: `drained` also says that no decrypted bytes are left, which a socket's readiness cannot. The
/// handshake happens inside reads; until it is done they say [`Read::WouldBlock`], and writes take nothing. One thing
/// is new: bytes that a write took may wait, encrypted, for room in the socket. While [`Stream::has_unsent`] says so,
/// the owner wants writable events, and answers them with a write, be it of nothing.
pub struct Stream {
    socket: Socket,
    family: Family,
    tls: Option<Box<Tls>>,
    low_water_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Tcp,
    Unix,
}

impl Stream {
    pub(crate) fn tcp(socket: Socket) -> Self {
        Stream {
            socket,
            family: Family::Tcp,
            tls: None,
            low_water_bytes: 1,
        }
    }

    pub(crate) fn unix(socket: Socket) -> Self {
        Stream {
            socket,
            family: Family::Unix,
            tls: None,
            low_water_bytes: 1,
        }
    }

    /// Returns a pair of connected unix streams, for tests and for messages within a process.
    pub fn pair() -> io::Result<(Stream, Stream)> {
        let (a, b) = Socket::pair(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        Ok((Stream::unix(a), Stream::unix(b)))
    }

    /// Returns true if this is a unix socket, which has no ports, and no options of TCP.
    pub fn is_unix(&self) -> bool {
        self.family == Family::Unix
    }

    /// Begins TLS as the side that was called. Nothing may have been read or written before.
    pub fn accept_tls(&mut self, tls: &ServerTls) -> Result<(), TlsError> {
        self.tls = Some(Box::new(Tls::server(tls)?));
        Ok(())
    }

    /// Begins TLS as the side that called, and sends the first message of the handshake: so the connection must stand.
    /// Reads continue the handshake.
    pub fn connect_tls(&mut self, tls: &ClientTls) -> io::Result<()> {
        let mut tls = Tls::client(tls).map_err(io::Error::other)?;
        tls.begin(&self.socket)?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Continues the handshake as far as it goes without waiting; returns true if it is done. For owners that have
    /// nothing to read yet: a read does the same, and returns the bytes behind it.
    pub fn handshake(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.handshake(&self.socket),
        }
    }

    /// Returns true if this stream speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns true if its bytes may go through a [`crate::Pipe`]: they are plain, and TCP's.
    pub fn can_splice(&self) -> bool {
        self.tls.is_none() && self.family == Family::Tcp
    }

    /// Returns true while TLS is still being negotiated: nothing can be written yet.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.is_established())
    }

    /// Returns true if encrypted bytes wait for room in the socket.
    pub fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }

    /// Tells a peer that speaks TLS that nothing more will come: called once, before the stream is dropped.
    pub fn close_notify(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close_notify(&self.socket);
        }
    }

    /// Reads into `buffer`, at most its length, which must not be zero.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Read> {
        let room = buffer.len();
        // SAFETY: initialised bytes may be looked at as possibly uninitialised ones, and `receive` writes only
        // initialised bytes, so `buffer` stays initialised.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), room) };
        self.receive(buffer)
    }

    /// Appends to `buffer` the bytes that are there: at most `bytes_max`, and at most what fits in its spare capacity.
    /// A buffer without spare capacity grows by `bytes_max` first. The bytes are not zeroed before they are read into.
    pub fn read_into(&mut self, buffer: &mut Vec<u8>, bytes_max: usize) -> io::Result<Read> {
        if buffer.len() == buffer.capacity() {
            buffer.reserve(bytes_max);
        }
        let filled = buffer.len();
        let spare = buffer.spare_capacity_mut();
        let room = spare.len().min(bytes_max);
        let read = self.receive(&mut spare[..room])?;
        if let Read::Data { bytes, .. } = read {
            // SAFETY: the kernel has written `bytes` bytes from the start of the spare capacity on; `receive` never
            // claims more than the room that it was given.
            unsafe { buffer.set_len(filled + bytes) };
        }
        Ok(read)
    }

    fn receive(&mut self, room: &mut [std::mem::MaybeUninit<u8>]) -> io::Result<Read> {
        assert!(
            !room.is_empty(),
            "a read into no room would look like the end of the stream"
        );
        match &mut self.tls {
            None => receive_some(&self.socket, room),
            Some(tls) => tls.receive(&self.socket, room),
        }
    }

    /// Writes from `bytes` what the socket takes now, and returns how much that was; `None` if it takes nothing now.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => send_some(&self.socket, bytes),
            Some(tls) => tls.send(&self.socket, &[IoSlice::new(bytes)]),
        }
    }

    /// Writes as [`Stream::write`] does, from several slices, of which the kernel looks at the first [`SLICES_MAX`].
    pub fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        match &mut self.tls {
            None => sent(|| {
                self.socket
                    .send_vectored_with_flags(slices, libc::MSG_NOSIGNAL)
            }),
            Some(tls) => tls.send(&self.socket, slices),
        }
    }

    /// Takes the pending error out of the socket. `None` once a connection attempt has succeeded.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Sends small writes at once (or lets the kernel collect them). Nothing to do for a unix socket.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self.family {
            Family::Tcp => self.socket.set_tcp_nodelay(nodelay),
            Family::Unix => Ok(()),
        }
    }

    /// Probes a silent peer after `seconds`, then three times within as many seconds again; off if zero. The error of a
    /// dead peer is reported by a read. Nothing to do for a unix socket.
    pub fn set_keepalive(&self, seconds: u32) -> io::Result<()> {
        if self.family == Family::Unix {
            return Ok(());
        }
        if seconds == 0 {
            return self.socket.set_keepalive(false);
        }
        let interval = (seconds / 3).max(1);
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(seconds.into()))
            .with_interval(Duration::from_secs(interval.into()))
            .with_retries(3);
        self.socket.set_tcp_keepalive(&keepalive)
    }

    /// Sets the size of the kernel's send buffer.
    pub fn set_send_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        self.socket.set_send_buffer_size(bytes)
    }

    /// Raises an event of data only once so many bytes are there, or the peer has ended (SO_RCVLOWAT); 1, as at first:
    /// with the first one. For a reader that knows how much is to come, since less than that raises none. Reads take
    /// what is there all the same. Where enough bytes are there already, setting it raises the event; to set the
    /// current value again costs nothing.
    pub fn set_receive_low_water_bytes(&mut self, bytes: u32) -> io::Result<()> {
        if bytes == self.low_water_bytes {
            return Ok(());
        }
        self.low_water_bytes = bytes;
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the descriptor is open as long as `self`, and the kernel reads one `c_int` from the address of one.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const bytes).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Ends one or both directions of the connection, for every holder of the socket.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Returns the address of this end. (`accept` returns that of the other one.)
    pub fn local_address(&self) -> io::Result<PeerAddr> {
        let address = self.socket.local_addr()?;
        match (self.family, address.as_socket()) {
            (Family::Tcp, Some(address)) => Ok(PeerAddr::Tcp(address)),
            (Family::Tcp, None) => Err(io::ErrorKind::InvalidData.into()),
            (Family::Unix, _) => Ok(PeerAddr::Unix(self.unix_path()?)),
        }
    }

    /// Returns the address of the other end.
    pub fn peer_address(&self) -> io::Result<PeerAddr> {
        let address = self.socket.peer_addr()?;
        match (self.family, address.as_socket()) {
            (Family::Tcp, Some(address)) => Ok(PeerAddr::Tcp(address)),
            (Family::Tcp, None) => Err(io::ErrorKind::InvalidData.into()),
            (Family::Unix, _) => Ok(PeerAddr::Unix(self.unix_path()?)),
        }
    }

    /// Returns the path of a unix connection. Only the listening end has a name; both ends are called by it.
    fn unix_path(&self) -> io::Result<PathBuf> {
        let local = self.socket.local_addr()?;
        if let Some(path) = local.as_pathname() {
            return Ok(path.to_owned());
        }
        let peer = self.socket.peer_addr()?;
        Ok(peer.as_pathname().map(PathBuf::from).unwrap_or_default())
    }

    /// Returns the descriptor's number, as CLIENT LIST shows it.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Reads what is there into `room`, which must not be empty.
///
/// By rustix, here and in [`send_some`]: the C library's calls may be cancelled (pthreads(7)), which costs four locked
/// instructions for each request of a short pipeline.
pub(crate) fn receive_some(
    socket: &Socket,
    room: &mut [std::mem::MaybeUninit<u8>],
) -> io::Result<Read> {
    loop {
        return match net::recv(socket, &mut *room, RecvFlags::empty()) {
            Ok((_, 0)) => Ok(Read::Eof),
            Ok((_, bytes)) => Ok(Read::Data {
                bytes,
                drained: bytes < room.len(),
            }),
            Err(Errno::WOULDBLOCK) => Ok(Read::WouldBlock),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

/// Writes what the socket takes; `None` if that is nothing.
pub(crate) fn send_some(socket: &Socket, bytes: &[u8]) -> io::Result<Option<usize>> {
    sent(|| Ok(net::send(socket, bytes, SendFlags::NOSIGNAL)?))
}

fn sent(send: impl Fn() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        return match send() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                io::ErrorKind::Interrupted => continue,
                _ => Err(error),
            },
        };
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("family", &self.family)
            .field("fd", &self.fd())
            .field("tls", &self.is_tls())
            .finish()
    }
}

/// One end of a connection. Prints as Redis prints it: `127.0.0.1:50123`, `[::1]:123`, `/path/sock:0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerAddr {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of the listening socket; empty if it has none.
    Unix(PathBuf),
}

impl PeerAddr {
    /// Returns true if the peer runs on this machine as far as its address tells: a loopback address or a unix socket.
    pub fn is_local(&self) -> bool {
        match self {
            PeerAddr::Tcp(address) => address.ip().to_canonical().is_loopback(),
            PeerAddr::Unix(_) => true,
        }
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddr::Tcp(address) => write_host_port(f, &address.ip().to_string(), address.port()),
            PeerAddr::Unix(path) => write!(f, "{}:0", path.display()),
        }
    }
}

/// Slices that the kernel takes in one vectored write (`IOV_MAX`).
pub const SLICES_MAX: usize = 1024;

/// Result of a [`flush`].
#[derive(Debug)]
pub enum Flush {
    /// Everything was written.
    Done,
    /// This many bytes were written (perhaps none, and with TLS perhaps all); the rest waits until the socket is
    /// writable.
    Partial(usize),
    /// The connection is gone.
    Closed(io::Error),
}

/// Writes `slices` as far as the socket takes them; `slices` is used up in doing so. A short write means that the
/// socket is full: it is not tried again, but left to a writable event, for which the caller asks the poller.
pub fn flush(stream: &mut Stream, mut slices: &mut [IoSlice<'_>]) -> Flush {
    let mut written = 0;
    // Empty slices at the front would make a write of nothing, which says nothing.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let offered: usize = slices
            .iter()
            .take(SLICES_MAX)
            .map(|slice| slice.len())
            .sum();
        match stream.write_vectored(slices) {
            Ok(None) => return Flush::Partial(written),
            Ok(Some(bytes)) => {
                written += bytes;
                if bytes < offered {
                    return Flush::Partial(written);
                }
                IoSlice::advance_slices(&mut slices, bytes);
            }
            Err(error) => return Flush::Closed(error),
        }
    }
    if stream.has_unsent() {
        return Flush::Partial(written);
    }
    Flush::Done
}

/// Starts to connect to `address` without waiting: the stream becomes writable when the attempt has ended, and
/// [`Stream::take_error`] then returns its error. Of a name's endpoints the first is taken whose attempt can be
/// started. A name is looked up, which may block; a caller that connects often resolves once and calls
/// [`connect_endpoint`].
pub fn connect(address: &Address) -> Result<Stream, NetError> {
    first_success(address, connect_endpoint)
}

/// Starts to connect to `endpoint` without waiting, as [`connect`].
pub fn connect_endpoint(endpoint: &Endpoint) -> Result<Stream, NetError> {
    let (stream, target) = unconnected(endpoint).map_err(|error| NetError::new(endpoint, error))?;
    match stream.socket.connect(&target) {
        Ok(()) => Ok(stream),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(stream),
        Err(error) => Err(NetError::new(endpoint, error)),
    }
}

/// Connects to `address`, waiting at most `timeout` in all. Every endpoint of a name is tried in turn. The stream is
/// non-blocking, as all are.
pub fn connect_blocking(address: &Address, timeout: Duration) -> Result<Stream, NetError> {
    let deadline = Instant::now() + timeout;
    first_success(address, |endpoint| {
        let (stream, target) =
            unconnected(endpoint).map_err(|error| NetError::new(endpoint, error))?;
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        stream
            .socket
            .connect_timeout(&target, left)
            .map_err(|error| NetError::new(endpoint, error))?;
        // `connect_timeout` leaves the socket blocking.
        stream
            .socket
            .set_nonblocking(true)
            .map_err(|error| NetError::new(endpoint, error))?;
        Ok(stream)
    })
}

fn first_success(
    address: &Address,
    mut connect: impl FnMut(&Endpoint) -> Result<Stream, NetError>,
) -> Result<Stream, NetError> {
    let mut last = None;
    for endpoint in address.resolve()? {
        match connect(&endpoint) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error.error),
        }
    }
    Err(NetError::new(
        address,
        last.expect("an address resolves to one endpoint at least, or to an error"),
    ))
}

fn unconnected(endpoint: &Endpoint) -> io::Result<(Stream, SockAddr)> {
    let kind = Type::STREAM.nonblocking();
    match endpoint {
        Endpoint::Tcp(address) => {
            let socket = Socket::new(Domain::for_address(*address), kind, None)?;
            if address.ip().is_loopback() {
                Pacing::take_off(&socket);
            }
            Ok((Stream::tcp(socket), SockAddr::from(*address)))
        }
        Endpoint::Unix(path) => {
            let target = unix_address(path)?;
            Ok((Stream::unix(Socket::new(Domain::UNIX, kind, None)?), target))
        }
    }
}
