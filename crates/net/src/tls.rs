//! TLS over a connected socket: the handshake and the record protection of [`crate::Stream`], by `rustls`.
//!
//! It must not know the meaning of the plain bytes, nor the reader. [`crate::tls`] holds the options of both sides
//! (certificates, versions, ciphers); this file is one connection.
//!
//! # Buffers
//!
//! A read takes up to 64 KiB of ciphertext in one call into a buffer that the whole thread shares, records are
//! decrypted there in place, and the plain bytes go into the caller's room. A connection keeps bytes of its own only
//! while it must: the front of a record whose rest has not arrived (`held`), plain bytes for which the caller had no
//! room (`surplus`), and ciphertext that the socket did not take (`unsent`). An idle connection keeps none of them.
//! A write gathers its slices into records of up to 16 KiB, four of them for each call of the kernel.
//!
//! # What "drained" means here
//!
//! The same as without TLS: the next byte that arrives raises an event. It takes a short read of the socket, no
//! surplus, and no end of the stream that is still to be reported. A read that brought no plain bytes is repeated until
//! the socket has nothing: the end of the stream may have come with those bytes. But a peer may send records without
//! content, new keys, or tickets faster than they are processed, before it has authenticated. So after a few such reads
//! the caller gets a result that there may be more, and can serve others first.
//!
//! # Why the record layer is not ours
//!
//! With the keys extracted, records could be sealed straight into the output, without the allocation and the copy
//! that rustls makes for each. Measured, that is below a tenth of what a batch costs, and it would put nonces,
//! limits of keys and alerts into our hands.

mod ciphers;
mod client;
mod files;
mod server;
mod sessions;

pub use client::{ClientTls, ClientTlsOptions, Peer};
pub use server::{ClientAuth, ServerTls, ServerTlsOptions, SessionCache};

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use socket2::Socket;

use crate::Read;
use crate::stream::{receive_some, send_some};

/// The certificates, versions and ciphers that one side presents and accepts. Files are in PEM form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Our certificate, and the intermediate ones behind it.
    pub cert_file: Option<String>,
    /// Its private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key_file: Option<String>,
    /// Certificates of authorities that are trusted.
    pub ca_cert_file: Option<String>,
    /// Folder with more of them: every file in it that holds certificates counts.
    pub ca_cert_dir: Option<String>,
    /// Versions, as in `TLSv1.2 TLSv1.3`; empty: both.
    pub protocols: String,
    /// Ciphers of TLS 1.2 as an OpenSSL cipher list; empty: all that are supported.
    pub ciphers: String,
    /// Ciphers of TLS 1.3 by name, with colons between; empty: all that are supported.
    pub ciphersuites: String,
}

/// Reason why a TLS option cannot be used: one line, which names the file or the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    /// The part at fault.
    pub part: TlsPart,
    /// The line.
    pub text: String,
}

/// The parts of [`TlsOptions`] that an error can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPart {
    /// Our certificate.
    Certificate,
    /// Its key.
    Key,
    /// The authorities that are trusted.
    Authorities,
    /// The versions.
    Protocols,
    /// The ciphers of TLS 1.2.
    Ciphers,
    /// The ciphers of TLS 1.3.
    Ciphersuites,
    /// The server name to ask for.
    ServerName,
    /// A part that the library refused for a reason of its own.
    Library,
}

impl TlsError {
    fn new(part: TlsPart, text: impl Into<String>) -> Self {
        TlsError {
            part,
            text: text.into(),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TlsError {}

/// Most plain bytes of a record.
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Fewest bytes by which a record is longer than its plain bytes, in any version and cipher.
const RECORD_OVERHEAD_BYTES_MIN: usize = 21;
/// Most bytes by which a record is longer than its plain bytes.
const RECORD_OVERHEAD_BYTES_MAX: usize = 64;
/// Ciphertext that one read takes at most.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Records that leave in one call of the kernel.
const RECORDS_PER_SEND: usize = 4;
/// Reads of the socket in a row that may bring no plain bytes before the read returns.
const EMPTY_READS_MAX: usize = 4;
/// A connection's front of a record moves to an allocation of its size if it wastes more than this.
const HELD_WASTE_BYTES_MAX: usize = 4 * 1024;

/// Buffers of a thread, for the connection that is being read from or written to.
#[derive(Default)]
struct Scratch {
    /// Ciphertext that arrived.
    received: Vec<u8>,
    /// Plain bytes of several slices, together.
    gathered: Vec<u8>,
    /// Ciphertext that leaves.
    sealed: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The TLS of one connection.
pub(crate) struct Tls {
    side: Side,
    /// Ciphertext that begins with a record (or a handshake message) that is not whole.
    held: Vec<u8>,
    /// Plain bytes for which the reader had no room.
    surplus: Vec<u8>,
    /// Ciphertext that the socket did not take.
    unsent: Vec<u8>,
    progress: Progress,
    /// The peer has broken the protocol: nothing more is sent to it, and the library is called no more.
    broken: bool,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

#[derive(Default)]
struct Progress {
    /// The handshake is done.
    established: bool,
    /// Nothing more will come: the peer ended the stream, the socket did, or the protocol was broken.
    ended: bool,
}

impl Tls {
    pub(crate) fn server(server: &ServerTls) -> Result<Tls, TlsError> {
        let connection = UnbufferedServerConnection::new(server.config())
            .map_err(|error| TlsError::new(TlsPart::Library, error.to_string()))?;
        Ok(Tls::of(Side::Server(Box::new(connection))))
    }

    pub(crate) fn client(client: &ClientTls) -> Result<Tls, TlsError> {
        let connection = UnbufferedClientConnection::new(client.config(), client.name())
            .map_err(|error| TlsError::new(TlsPart::Library, error.to_string()))?;
        Ok(Tls::of(Side::Client(Box::new(connection))))
    }

    fn of(side: Side) -> Tls {
        Tls {
            side,
            held: Vec::new(),
            surplus: Vec::new(),
            unsent: Vec::new(),
            progress: Progress::default(),
            broken: false,
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        self.progress.established
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends the handshake's message that needs nothing from the peer: a client's first one.
    pub(crate) fn begin(&mut self, socket: &Socket) -> io::Result<()> {
        self.advance_held()?;
        self.send_unsent(socket).map(|_| ())
    }

    /// Does the work of [`crate::Stream::handshake`]. Bytes behind the handshake become surplus.
    pub(crate) fn handshake(&mut self, socket: &Socket) -> io::Result<bool> {
        self.send_unsent(socket)?;
        while !self.progress.established {
            match self.receive(socket, &mut [])? {
                Read::Data { .. } => {}
                Read::WouldBlock => break,
                Read::Eof => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(self.progress.established)
    }

    /// Does the work of [`crate::Stream::read`].
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        room: &mut [MaybeUninit<u8>],
    ) -> io::Result<Read> {
        if !self.surplus.is_empty() {
            return Ok(self.receive_surplus(room));
        }
        for _ in 0..EMPTY_READS_MAX {
            if self.progress.ended {
                return Ok(Read::Eof);
            }
            let wanted = (room.len() + RECORD_OVERHEAD_BYTES_MIN)
                .saturating_sub(self.held.len())
                .clamp(RECORD_BYTES_MAX, READ_BYTES_MAX);
            let mut buffer = self.take_buffer();
            buffer.reserve(wanted);
            let read = receive_some(socket, &mut buffer.spare_capacity_mut()[..wanted]);
            let bytes = match read {
                Ok(Read::Data { bytes, .. }) => bytes,
                other => {
                    self.progress.ended |= !matches!(other, Ok(Read::WouldBlock));
                    self.keep_buffer(buffer, 0, true);
                    return other;
                }
            };
            let drained = bytes < wanted;
            // SAFETY: the kernel has written `bytes` bytes from the start of the spare capacity on.
            unsafe { buffer.set_len(buffer.len() + bytes) };
            let mut filled = 0;
            let surplus = &mut self.surplus;
            let mut sink = |plain: &[u8]| {
                let here = plain.len().min(room.len() - filled);
                fill(&mut room[filled..], &plain[..here]);
                filled += here;
                surplus.extend_from_slice(&plain[here..]);
            };
            let used =
                self.side
                    .advance(&mut buffer, &mut sink, &mut self.unsent, &mut self.progress);
            match used {
                Ok(used) => self.keep_buffer(buffer, used, drained),
                Err(Broken { used, error }) => {
                    // Behind the error is an alert, which tells the peer what was wrong.
                    self.progress.ended = true;
                    self.broken = true;
                    self.side
                        .last_words(&error, &mut buffer[used..], &mut self.unsent);
                    let _ = self.send_unsent(socket);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
            self.send_unsent(socket)?;
            if filled > 0 {
                return Ok(Read::Data {
                    bytes: filled,
                    drained: drained && self.surplus.is_empty() && !self.progress.ended,
                });
            }
            // Messages of the protocol's own, or a part of a record. Only the socket says that nothing is there: the end
            // of the stream may have come with them, and raises no event of its own.
        }
        Ok(Read::Data {
            bytes: 0,
            drained: false,
        })
    }

    /// Returns surplus of an earlier read. Whether the socket holds more is not known: so it is not reported as
    /// drained.
    fn receive_surplus(&mut self, room: &mut [MaybeUninit<u8>]) -> Read {
        let bytes = self.surplus.len().min(room.len());
        fill(room, &self.surplus[..bytes]);
        if bytes == self.surplus.len() {
            self.surplus = Vec::new();
        } else {
            self.surplus.drain(..bytes);
        }
        Read::Data {
            bytes,
            drained: false,
        }
    }

    /// Returns the connection's own buffer if it holds the front of a record, else the thread's.
    fn take_buffer(&mut self) -> Vec<u8> {
        if !self.held.is_empty() {
            return mem::take(&mut self.held);
        }
        SCRATCH.with_borrow_mut(|scratch| mem::take(&mut scratch.received))
    }

    /// Keeps the bytes behind `used` for the next time. A peer that has fallen silent keeps no more than that.
    fn keep_buffer(&mut self, mut buffer: Vec<u8>, used: usize, silent: bool) {
        let left = buffer.len() - used;
        if left > 0 && silent && buffer.capacity() - left > HELD_WASTE_BYTES_MAX {
            self.held = buffer[used..].to_vec();
        } else if left > 0 {
            buffer.drain(..used);
            self.held = buffer;
            return;
        }
        buffer.clear();
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.received.capacity() < buffer.capacity() {
                scratch.received = buffer;
            }
        });
    }

    /// Sends pending messages of the protocol, with nothing new from the peer.
    fn advance_held(&mut self) -> io::Result<()> {
        let mut held = mem::take(&mut self.held);
        let surplus = &mut self.surplus;
        let mut sink = |plain: &[u8]| surplus.extend_from_slice(plain);
        let used = self
            .side
            .advance(&mut held, &mut sink, &mut self.unsent, &mut self.progress)
            .map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken.error))?;
        held.drain(..used);
        self.held = held;
        Ok(())
    }

    /// Does the work of [`crate::Stream::write_vectored`]: plain bytes count as written when they are encrypted, and
    /// the last of their ciphertext may still be unsent ([`crate::Stream::has_unsent`]).
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        slices: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !self.send_unsent(socket)? || !self.progress.established {
            return Ok(None);
        }
        let mut scratch = SCRATCH.with_borrow_mut(mem::take);
        let result = self.send_with(&mut scratch, socket, slices);
        scratch.gathered.clear();
        SCRATCH.set(scratch);
        result
    }

    fn send_with(
        &mut self,
        scratch: &mut Scratch,
        socket: &Socket,
        slices: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        let mut plain = Pieces::new(slices);
        let mut accepted = 0;
        while self.unsent.is_empty() && !plain.is_empty() {
            let mut sealed = 0;
            for _ in 0..RECORDS_PER_SEND {
                let piece = plain.next(&mut scratch.gathered);
                if piece.is_empty() {
                    break;
                }
                sealed += self
                    .side
                    .seal(piece, &mut self.held, &mut scratch.sealed, sealed)?;
                accepted += piece.len();
            }
            let sent = send_some(socket, &scratch.sealed[..sealed])?.unwrap_or(0);
            self.unsent.extend_from_slice(&scratch.sealed[sent..sealed]);
        }
        Ok(Some(accepted))
    }

    /// Sends ciphertext that waits; returns false if some has to go on waiting.
    fn send_unsent(&mut self, socket: &Socket) -> io::Result<bool> {
        if self.unsent.is_empty() {
            return Ok(true);
        }
        let sent = send_some(socket, &self.unsent)?.unwrap_or(0);
        if sent == self.unsent.len() {
            self.unsent = Vec::new();
        } else {
            self.unsent.drain(..sent);
        }
        Ok(self.unsent.is_empty())
    }

    /// Tells the peer that nothing more will come (close_notify), as far as the socket takes it.
    pub(crate) fn close_notify(&mut self, socket: &Socket) {
        if !self.progress.established || self.broken {
            return;
        }
        let mut sealed = Vec::new();
        if let Ok(bytes) = self.side.seal_close(&mut self.held, &mut sealed) {
            self.unsent.extend_from_slice(&sealed[..bytes]);
            // The connection closes whatever becomes of it.
            let _ = self.send_unsent(socket);
        }
    }
}

/// Copies `bytes` to the start of `room`, which has place for them.
fn fill(room: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    for (place, byte) in room[..bytes.len()].iter_mut().zip(bytes) {
        place.write(*byte);
    }
}

/// The slices of a write, cut into what one record takes each.
struct Pieces<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes of the first slice that were taken.
    at: usize,
}

impl<'a> Pieces<'a> {
    fn new(slices: &'a [IoSlice<'a>]) -> Self {
        let mut pieces = Pieces { slices, at: 0 };
        pieces.take(0);
        pieces
    }

    fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Returns the next piece: a part of a slice if that fills a record or is the last one, else gathered. Empty at the
    /// end.
    fn next<'b>(&mut self, gathered: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        let Some(first) = self.slices.first() else {
            return &[];
        };
        let slice: &'a [u8] = &first[self.at..];
        if slice.len() >= RECORD_BYTES_MAX || self.slices.len() == 1 {
            let piece = &slice[..slice.len().min(RECORD_BYTES_MAX)];
            self.take(piece.len());
            return piece;
        }
        gathered.clear();
        while let Some(slice) = self.slices.first() {
            let slice = &slice[self.at..];
            let bytes = slice.len().min(RECORD_BYTES_MAX - gathered.len());
            if bytes == 0 {
                break;
            }
            gathered.extend_from_slice(&slice[..bytes]);
            self.take(bytes);
        }
        gathered
    }

    /// Goes on by `bytes` of the first slice, and past slices that are used up or empty.
    fn take(&mut self, bytes: usize) {
        self.at += bytes;
        while let Some(slice) = self.slices.first()
            && self.at == slice.len()
        {
            self.slices = &self.slices[1..];
            self.at = 0;
        }
    }
}

/// The two kinds of connection, which rustls gives no common trait.
trait Connection {
    type Data;

    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8])
    -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Connection for UnbufferedServerConnection {
    type Data = rustls::server::ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }
}

impl Connection for UnbufferedClientConnection {
    type Data = rustls::client::ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }
}

/// The peer has broken the protocol, or cannot be trusted.
struct Broken {
    /// Result of processing records.
    used: usize,
    error: rustls::Error,
}

impl Side {
    /// Processes `records`, and returns how many bytes of them are done with.
    fn advance(
        &mut self,
        records: &mut [u8],
        sink: &mut impl FnMut(&[u8]),
        unsent: &mut Vec<u8>,
        progress: &mut Progress,
    ) -> Result<usize, Broken> {
        match self {
            Side::Server(connection) => {
                advance(connection.as_mut(), records, sink, unsent, progress)
            }
            Side::Client(connection) => {
                advance(connection.as_mut(), records, sink, unsent, progress)
            }
        }
    }

    /// Sends what is still to be sent after an error; `records` are all that is behind the error.
    fn last_words(&mut self, error: &rustls::Error, records: &mut [u8], unsent: &mut Vec<u8>) {
        match self {
            Side::Server(connection) => last_words(connection.as_mut(), error, records, unsent),
            Side::Client(connection) => last_words(connection.as_mut(), error, records, unsent),
        }
    }

    /// Makes a record of `plain` at `at` of `sealed`, which grows as it must; returns the record's length. `held` is
    /// the received part of the peer's unfinished record, which the library wants to see at every call.
    fn seal(
        &mut self,
        plain: &[u8],
        held: &mut [u8],
        sealed: &mut Vec<u8>,
        at: usize,
    ) -> io::Result<usize> {
        match self {
            Side::Server(connection) => seal(connection.as_mut(), Some(plain), held, sealed, at),
            Side::Client(connection) => seal(connection.as_mut(), Some(plain), held, sealed, at),
        }
    }

    fn seal_close(&mut self, held: &mut [u8], sealed: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Side::Server(connection) => seal(connection.as_mut(), None, held, sealed, 0),
            Side::Client(connection) => seal(connection.as_mut(), None, held, sealed, 0),
        }
    }
}

fn advance(
    connection: &mut impl Connection,
    records: &mut [u8],
    sink: &mut impl FnMut(&[u8]),
    unsent: &mut Vec<u8>,
    progress: &mut Progress,
) -> Result<usize, Broken> {
    let mut used = 0;
    loop {
        let UnbufferedStatus { mut discard, state } = connection.process(&mut records[used..]);
        let broken = |discard, error| Broken {
            used: used + discard,
            error,
        };
        let mut more = true;
        match state.map_err(|error| broken(discard, error))? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(|error| broken(discard, error))?;
                    discard += record.discard;
                    sink(record.payload);
                }
            }
            ConnectionState::EncodeTlsData(mut data) => encode(|out| data.encode(out), unsent)
                .map_err(|error| broken(discard, rustls::Error::General(error.to_string())))?,
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => progress.ended = true,
            ConnectionState::WriteTraffic(_) => {
                progress.established = true;
                more = false;
            }
            ConnectionState::BlockedHandshake => more = false,
            ConnectionState::Closed => {
                progress.ended = true;
                more = false;
            }
            // Early data is not offered, so no peer may send any.
            _ => {
                let error = rustls::Error::General("unexpected state".into());
                return Err(broken(discard, error));
            }
        }
        used += discard;
        if !more {
            return Ok(used);
        }
    }
}

/// Appends what `data` writes, once it has room.
fn encode(
    mut data: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    unsent: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let at = unsent.len();
    let written = match data(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            unsent.resize(at + required_size, 0);
            data(&mut unsent[at..])
        }
        other => other,
    };
    unsent.truncate(at + *written.as_ref().unwrap_or(&0));
    written.map(|_| ())
}

/// Does the work of [`Side::last_words`]. The library must not be shown records once it has refused one: it would
/// refuse them again, and panic over its second alert. But its first call returns the alert that waits, before it looks
/// at anything. So there is one call, and none where the peer was first to send an alert, which is not answered, nor
/// where it sends bytes that are no record at all: a client that speaks plain text would take the alert for a reply.
fn last_words(
    connection: &mut impl Connection,
    error: &rustls::Error,
    records: &mut [u8],
    unsent: &mut Vec<u8>,
) {
    let in_the_clear = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    if matches!(error, rustls::Error::AlertReceived(_)) || *error == in_the_clear {
        return;
    }
    if let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.process(records).state {
        // Room is made as needed; should it fail, the peer sees its connection closed all the same.
        let _ = encode(|out| data.encode(out), unsent);
    }
}

/// Does the work of [`Side::seal`]; without `plain` it makes the message that closes our direction.
fn seal(
    connection: &mut impl Connection,
    plain: Option<&[u8]>,
    held: &mut [u8],
    sealed: &mut Vec<u8>,
    at: usize,
) -> io::Result<usize> {
    let room = plain.map_or(0, <[u8]>::len) + RECORD_OVERHEAD_BYTES_MAX;
    if sealed.len() < at + room {
        sealed.resize(at + room, 0);
    }
    let UnbufferedStatus { discard, state } = connection.process(held);
    debug_assert_eq!(discard, 0, "whatever was whole was taken when it arrived");
    let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let ConnectionState::WriteTraffic(mut traffic) = state else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    loop {
        let out = &mut sealed[at..];
        let result = match plain {
            Some(plain) => traffic.encrypt(plain, out),
            None => traffic.queue_close_notify(out),
        };
        match result {
            Ok(bytes) => return Ok(bytes),
            // A message of the protocol's own goes first: new keys, say.
            Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                sealed.resize(at + required_size, 0);
            }
            Err(error) => return Err(io::Error::other(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(slices: &[&[u8]]) -> Vec<Vec<u8>> {
        let slices: Vec<IoSlice> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut pieces = Pieces::new(&slices);
        let mut gathered = Vec::new();
        let mut all = Vec::new();
        while !pieces.is_empty() {
            all.push(pieces.next(&mut gathered).to_vec());
        }
        all
    }

    #[test]
    fn small_slices_share_a_record_and_large_ones_are_cut() {
        assert_eq!(pieces(&[]), Vec::<Vec<u8>>::new());
        assert_eq!(pieces(&[b"", b""]), Vec::<Vec<u8>>::new());
        assert_eq!(pieces(&[b"a", b"", b"bc"]), [b"abc".to_vec()]);
        let large = vec![7; 2 * RECORD_BYTES_MAX + 5];
        let cut = pieces(&[b"head", &large, b"tail"]);
        let lengths: Vec<usize> = cut.iter().map(Vec::len).collect();
        assert_eq!(lengths, [RECORD_BYTES_MAX, RECORD_BYTES_MAX, 4 + 5 + 4]);
        let mut whole = b"head".to_vec();
        whole.extend_from_slice(&large);
        whole.extend_from_slice(b"tail");
        assert_eq!(cut.concat(), whole);
    }
}
