//! Snapshots on their way: workers encode entries into chunks, and whoever writes the snapshot takes these.
//!
//! Entries may be commands instead of records (`aof-use-rdb-preamble no`); what follows holds for both.
//!
//! A *chunk* is whole records of a file and begins with the number of their database, so chunks may be written in any
//! order. Large strings are not copied into it: it refers to them, and their bytes are encoded by the writer.
//!
//! A large collection is written in pieces: chunks of one record, between which the writer takes no other chunk. Those
//! that come meanwhile queue behind it. One such record is on its way at a time.
//!
//! The walk rests while [`STREAM_BYTES_MAX`] wait for the writer. Entries that are saved because a command is about to
//! change them cannot rest: what they bring comes on top, up to a limit beyond which it goes to the [`spool`].
//!
//! Must not know: where the bytes go, threads, commands.

pub mod file;
pub mod spool;

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redline_keyspace::{
    Blob, Clock, StringRef, ValueRef,
    snapshot::{PiecewiseEntry, SavedEntry, Saver, Savers},
};
use redline_rdb::{
    ObjectRef,
    file::{EntryMeta, Recency, write},
    format::Format,
    object::Pieces,
    primitive::{Writer, write_string},
};
use redline_types::Value;

use crate::{aof::commands, disk::error_text};
use spool::{SPOOL_BYTES_MIN, Spool};

/// Size of a chunk: bytes. The last entry may exceed it.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes of chunks that may wait for the writer before the walk rests.
pub const STREAM_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Bytes of the record that is written in pieces which may wait for the writer before its next piece is taken.
const RECORD_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Length from which a string is referred to, not copied.
const REFERRED_BYTES_MIN: usize = 16 * 1024;

/// Whole records of a file, or a piece of one, which stands behind the piece before it.
pub struct Chunk {
    pieces: Vec<Piece>,
    bytes: u64,
    /// Number of entries; one in pieces counts with its last.
    pub entries: u64,
}

enum Piece {
    Encoded(Vec<u8>),
    /// A string, yet to be encoded.
    String(Blob),
    /// The last word of a command.
    Word(Blob),
}

impl Chunk {
    /// Appends the records.
    pub fn write_to(&self, out: &mut Writer) {
        for piece in &self.pieces {
            match piece {
                Piece::Encoded(bytes) => out.extend_from_slice(bytes),
                Piece::String(blob) => write_string(out, blob),
                Piece::Word(blob) => commands::word(out, blob),
            }
        }
    }
}

/// How entries are encoded.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// The format.
    pub format: Format,
    /// The record of accesses, if the policy of eviction goes by one.
    pub accesses: Option<Clock>,
}

impl Encoding {
    /// Returns the facts that stand beside an entry's value.
    fn meta_of(&self, entry: &SavedEntry<'_>) -> EntryMeta {
        let recency = self.accesses.map(|clock| match clock.lfu {
            true => Recency::Frequency(clock.frequency(entry.access_word) as u8),
            false => Recency::IdleSeconds(clock.idle_s(entry.access_word).into()),
        });
        EntryMeta {
            expire_at_ms: entry.expire_at_ms,
            recency,
        }
    }
}

/// A snapshot from the workers to its writer.
pub struct Stream {
    encoding: Encoding,
    /// Entries are encoded as commands, not in the format.
    writes_commands: bool,
    /// Entries are not wanted, as the snapshot is one of what stands before them.
    is_head_alone: bool,
    queue: Mutex<Queue>,
    /// There is a chunk, or there will be none.
    filled: Condvar,
    /// There are too many of them, or the spool is closed.
    crowded: Condvar,
    waiting_bytes: AtomicU64,
    /// Those of them that are the record's in pieces.
    record_bytes: AtomicU64,
    entries: AtomicU64,
    is_unwanted: AtomicBool,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    /// The record in pieces that is being written.
    record: Option<OpenRecord>,
    spool: Spool,
    is_ended: bool,
    /// The key that the format cannot hold, and what it is.
    refused: Option<Refused>,
}

/// A record in pieces that has been begun.
#[derive(Default)]
struct OpenRecord {
    chunks: VecDeque<Chunk>,
    /// All of them have come.
    is_whole: bool,
}

/// A value that the format cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of its database.
    pub db: u32,
    /// Its key.
    pub key: Box<[u8]>,
    /// The kind of value.
    pub what: &'static str,
}

/// The reason why there are no further chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All have been taken.
    Complete,
    /// The snapshot is not wanted any more.
    Unwanted,
    /// A value cannot be written.
    Refused(Refused),
    /// The spool cannot be written or read, for this reason.
    Spool(String),
}

impl Stream {
    /// Makes an empty one.
    pub fn new(encoding: Encoding) -> Arc<Stream> {
        Arc::new(Stream::of(encoding, false))
    }

    /// Makes one that no entry comes to: the walk marks only, and nobody waits for it.
    pub fn of_head_alone(encoding: Encoding) -> Arc<Stream> {
        Arc::new(Stream {
            is_head_alone: true,
            is_unwanted: AtomicBool::new(true),
            ..Stream::of(encoding, false)
        })
    }

    /// Makes an empty one whose entries are commands. Of the format it matters whether payloads are compressed.
    pub fn of_commands(format: Format) -> Arc<Stream> {
        let encoding = Encoding {
            format,
            accesses: None,
        };
        Arc::new(Stream::of(encoding, true))
    }

    fn of(encoding: Encoding, writes_commands: bool) -> Stream {
        Stream {
            encoding,
            writes_commands,
            is_head_alone: false,
            queue: Mutex::default(),
            filled: Condvar::new(),
            crowded: Condvar::new(),
            waiting_bytes: AtomicU64::new(0),
            record_bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            is_unwanted: AtomicBool::new(false),
        }
    }

    /// Returns the savers that feed it. `everything_is_saved` is called as
    /// [`Savers::everything_is_saved`] is.
    pub fn savers(
        self: &Arc<Stream>,
        everything_is_saved: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<dyn Savers> {
        Arc::new(StreamSavers {
            stream: self.clone(),
            everything_is_saved,
        })
    }

    /// Returns the format.
    pub fn format(&self) -> &Format {
        &self.encoding.format
    }

    /// Returns true if its entries are commands.
    pub fn writes_commands(&self) -> bool {
        self.writes_commands
    }

    /// Returns the number of entries that were encoded so far.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns the bytes of chunks that wait for the writer in memory.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Drops everything, now and later: the walk goes on, since entries have to be marked, and saves nothing.
    pub fn give_up(&self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
        let mut queue = self.queue();
        self.drop_chunks(&mut queue);
        self.filled.notify_all();
        self.crowded.notify_all();
    }

    /// Takes the next chunk. Waits for it.
    pub fn take(&self) -> Result<Chunk, End> {
        let mut queue = self.queue();
        loop {
            if let Some(refused) = &queue.refused {
                return Err(End::Refused(refused.clone()));
            }
            if let Some(why) = &queue.spool.failed {
                return Err(End::Spool(why.clone()));
            }
            if self.is_head_alone {
                return Err(End::Complete);
            }
            if self.is_unwanted() {
                return Err(End::Unwanted);
            }
            if let Some(record) = &mut queue.record {
                let chunk = record.chunks.pop_front();
                if record.is_whole && record.chunks.is_empty() {
                    queue.record = None;
                }
                if let Some(chunk) = chunk {
                    self.release_bytes(chunk.bytes);
                    self.record_bytes.fetch_sub(chunk.bytes, Ordering::Relaxed);
                    return Ok(chunk);
                }
            } else if let Some(chunk) = queue.chunks.pop_front() {
                self.release_bytes(chunk.bytes);
                return Ok(chunk);
            } else if let Some(read) = queue.spool.next() {
                drop(queue);
                return read().map_err(|error| {
                    self.fail_spool(&mut self.queue(), &error);
                    End::Spool(error_text(&error))
                });
            } else if queue.is_ended && !queue.spool.has_chunks() {
                return Err(End::Complete);
            }
            let waited = self.filled.wait(queue);
            queue = waited.expect("no panic under a queue of chunks");
        }
    }

    /// Waits, unless and until the snapshot is not wanted any more.
    pub(crate) fn rest(&self, span: Duration) {
        let queue = self.queue();
        let rested = self
            .filled
            .wait_timeout_while(queue, span, |_| !self.is_unwanted());
        drop(rested.expect("no panic under a queue of chunks"));
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic under a queue of chunks")
    }

    /// Returns true if it was given up, or a value could not be written.
    pub fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::Relaxed)
    }

    /// Takes bytes off those that wait in memory.
    fn release_bytes(&self, bytes: u64) {
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn drop_chunks(&self, queue: &mut Queue) {
        queue.chunks.clear();
        queue.record = None;
        queue.spool.clear();
        self.waiting_bytes.store(0, Ordering::Relaxed);
        self.record_bytes.store(0, Ordering::Relaxed);
    }

    /// Adds a piece of the record that is on its way.
    fn push_piece(&self, piece: Chunk, is_last: bool) {
        let mut queue = self.queue();
        if self.is_unwanted() {
            return;
        }
        self.entries.fetch_add(piece.entries, Ordering::Relaxed);
        self.waiting_bytes.fetch_add(piece.bytes, Ordering::Relaxed);
        self.record_bytes.fetch_add(piece.bytes, Ordering::Relaxed);
        let record = queue.record.get_or_insert_default();
        record.chunks.push_back(piece);
        record.is_whole = is_last;
        self.filled.notify_one();
    }

    fn push(&self, chunk: Chunk) {
        let mut queue = self.queue();
        if self.is_unwanted() {
            return;
        }
        self.entries.fetch_add(chunk.entries, Ordering::Relaxed);
        self.waiting_bytes.fetch_add(chunk.bytes, Ordering::Relaxed);
        queue.chunks.push_back(chunk);
        self.filled.notify_one();
        if self.waiting_bytes() > SPOOL_BYTES_MIN {
            self.crowded.notify_one();
        }
    }

    fn refuse(&self, refused: Refused) {
        let mut queue = self.queue();
        queue.refused.get_or_insert(refused);
        self.is_unwanted.store(true, Ordering::Relaxed);
        self.drop_chunks(&mut queue);
        self.filled.notify_all();
        self.crowded.notify_all();
    }
}

struct StreamSavers {
    stream: Arc<Stream>,
    everything_is_saved: Box<dyn Fn() + Send + Sync>,
}

impl Savers for StreamSavers {
    fn saver(&self) -> Box<dyn Saver> {
        let compresses = self.stream.format().compresses;
        Box::new(ChunkSaver {
            stream: self.stream.clone(),
            out: Writer::new(compresses),
            pieces: Vec::new(),
            pieces_bytes: 0,
            entries: 0,
            db: None,
        })
    }

    fn everything_is_saved(&self) {
        (self.everything_is_saved)();
    }

    fn end(&self) {
        self.stream.queue().is_ended = true;
        self.stream.filled.notify_all();
    }
}

/// Encodes the entries of one share.
struct ChunkSaver {
    stream: Arc<Stream>,
    /// The last piece of the chunk.
    out: Writer,
    pieces: Vec<Piece>,
    /// Bytes of the pieces, the strings that are referred to included.
    pieces_bytes: usize,
    entries: u64,
    /// The database that the chunk has selected.
    db: Option<u32>,
}

impl ChunkSaver {
    fn push_piece(&mut self) {
        if !self.out.is_empty() {
            let fresh = Writer::new(self.stream.format().compresses);
            let full = mem::replace(&mut self.out, fresh);
            self.pieces_bytes += full.len();
            self.pieces.push(Piece::Encoded(full.into_bytes()));
        }
    }

    fn push_chunk(&mut self) {
        self.push_piece();
        let bytes = mem::take(&mut self.pieces_bytes) as u64;
        if !self.pieces.is_empty() {
            self.stream.push(Chunk {
                pieces: mem::take(&mut self.pieces),
                bytes,
                entries: mem::take(&mut self.entries),
            });
        }
        self.db = None;
    }
}

impl ChunkSaver {
    fn encode(&mut self, entry: &SavedEntry<'_>) {
        if self.db != Some(entry.db) {
            write::select_db(&mut self.out, entry.db.into());
            self.db = Some(entry.db);
        }
        let meta = self.stream.encoding.meta_of(entry);
        let value = match entry.value {
            ValueRef::String(StringRef::Blob(blob)) if blob.len() >= REFERRED_BYTES_MIN => {
                write::string_entry_head(&mut self.out, entry.key, &meta);
                self.push_piece();
                self.pieces.push(Piece::String(blob.clone()));
                self.pieces_bytes += blob.len();
                None
            }
            ValueRef::String(string) => Some(ObjectRef::String(string.as_bytes())),
            ValueRef::Object(value) => Some(ObjectRef::Value(value)),
        };
        let format = self.stream.format();
        if let Some(value) = value
            && let Err(refused) = write::entry(&mut self.out, format, entry.key, value, &meta)
        {
            self.stream.refuse(Refused {
                db: entry.db,
                key: entry.key.into(),
                what: refused.what,
            });
        }
    }

    fn encode_as_commands(&mut self, entry: &SavedEntry<'_>) {
        if self.db != Some(entry.db) {
            commands::select(&mut self.out, entry.db);
            self.db = Some(entry.db);
        }
        match entry.value {
            ValueRef::String(string) => {
                commands::set_without_value(&mut self.out, entry.key);
                match string {
                    StringRef::Blob(blob) if blob.len() >= REFERRED_BYTES_MIN => {
                        self.push_piece();
                        self.pieces.push(Piece::Word(blob.clone()));
                        self.pieces_bytes += blob.len();
                    }
                    _ => commands::word(&mut self.out, string.as_bytes()),
                }
            }
            ValueRef::Object(value) => {
                let compresses = self.stream.format().compresses;
                commands::value(&mut self.out, entry.key, value, compresses);
            }
        }
        if let Some(at_ms) = entry.expire_at_ms {
            commands::expire(&mut self.out, entry.key, at_ms);
        }
    }
}

impl Saver for ChunkSaver {
    fn save(&mut self, entry: &SavedEntry<'_>) {
        if self.stream.is_unwanted() {
            return;
        }
        match self.stream.writes_commands {
            true => self.encode_as_commands(entry),
            false => self.encode(entry),
        }
        self.entries += 1;
        if self.out.len() + self.pieces_bytes >= CHUNK_BYTES {
            self.push_chunk();
        }
    }

    fn begin(&mut self, entry: &SavedEntry<'_>) -> Option<Box<dyn PiecewiseEntry>> {
        let ValueRef::Object(value) = entry.value else {
            return None;
        };
        // A base of commands has no pieces: what is large is taken at one go.
        if self.stream.is_unwanted() || self.stream.writes_commands {
            return None;
        }
        let format = self.stream.format();
        let meta = self.stream.encoding.meta_of(entry);
        let mut out = Writer::new(format.compresses);
        write::select_db(&mut out, entry.db.into());
        // One that the format cannot hold is refused by `save`.
        let pieces = write::entry_in_pieces(&mut out, format, entry.key, value, &meta).ok()?;
        Some(Box::new(RecordInPieces {
            stream: self.stream.clone(),
            out,
            pieces,
            is_open: false,
        }))
    }

    fn has_room(&self) -> bool {
        self.stream.waiting_bytes() < STREAM_BYTES_MAX
    }

    fn hand_in(&mut self) {
        self.push_chunk();
    }
}

/// A large collection on its way.
struct RecordInPieces {
    stream: Arc<Stream>,
    /// The bytes that are in no chunk yet.
    out: Writer,
    pieces: Pieces,
    /// Some of it is in the stream.
    is_open: bool,
}

impl PiecewiseEntry for RecordInPieces {
    fn take_piece(&mut self, value: &mut Value) -> bool {
        if self.stream.is_unwanted() {
            value.thaw();
            return true;
        }
        let is_last = self.pieces.append(&mut self.out, value);
        if is_last || self.out.len() >= CHUNK_BYTES {
            let fresh = Writer::new(self.stream.format().compresses);
            let full = mem::replace(&mut self.out, fresh);
            let chunk = Chunk {
                bytes: full.len() as u64,
                pieces: vec![Piece::Encoded(full.into_bytes())],
                entries: is_last.into(),
            };
            match is_last && !self.is_open {
                // It has become whole records as others are.
                true => self.stream.push(chunk),
                false => self.stream.push_piece(chunk, is_last),
            }
            self.is_open = true;
        }
        is_last
    }

    fn has_room(&self) -> bool {
        self.stream.record_bytes.load(Ordering::Relaxed) < RECORD_BYTES_MAX
    }
}

#[cfg(test)]
pub(crate) mod tests;
