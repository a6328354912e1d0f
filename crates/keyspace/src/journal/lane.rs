//! A lane: the bytes of one worker's records, until the pump has taken them.
//!
//! Must not know: the order of records of several lanes, the readers of the stream.
//!
//! # How it works
//!
//! A lane is two chains of chunks: one of bytes, the commands of all records one behind the other and nothing else, so that
//! a write of a file takes them as they lie; one of heads, which say where records end. Both have one writer, the
//! worker's [`Writer`], and one reader, the holder of the pump's role ([`LaneReader`]).
//!
//! A unit's commands are written at the end of the bytes while it runs, and nobody can see them. Commit writes the head
//! and publishes the number of heads with one release store, the only word of a lane that both sides use per record. A
//! chunk's successor is behind a mutex, which is taken where a chunk ends. A chunk that the reader has passed goes back
//! to the writer.

use std::{cell::UnsafeCell, collections::VecDeque, mem, ptr};

use super::{
    Arc, AtomicU32, AtomicU64, Journal, Mutex, NO_DB, Ordering,
    record::{Effects, Head, LINE_BYTES_MAX, Mark, Word, append_select, length_line},
};
use crate::entry::{Blob, INLINE_BYTES_MAX};

#[cfg(not(loom))]
const CHUNK_BYTES: usize = 64 * 1024;
#[cfg(not(loom))]
const CHUNK_HEADS: usize = 1024;
/// A model comes to the ends of chunks soon.
#[cfg(loom)]
const CHUNK_BYTES: usize = 8;
#[cfg(loom)]
const CHUNK_HEADS: usize = 1;

/// Number of chunks of each kind that a lane keeps for reuse.
const SPARE_CHUNKS_MAX: usize = 8;

// ---- chains -------------------------------------------------------------------------------

/// A part of a chain. Elements are written once, in order, before they are published; then they are only read, until the chunk
/// is nobody else's.
pub(super) struct Chunk<T> {
    cells: Box<[UnsafeCell<T>]>,
    /// Taken where a chunk ends: a leaf among the locks.
    next: Mutex<Option<Arc<Chunk<T>>>>,
    /// The model checker's view of the cells.
    #[cfg(loom)]
    watched: Box<[loom::cell::UnsafeCell<()>]>,
}

// SAFETY: elements are plain data. A cell is written by the chain's one writer before the release store that publishes it,
// read by the one reader after the acquire load that shows it, and not written again before the chunk is recycled, which
// takes an `Arc` that nobody shares. `Writer` and `LaneReader` uphold it; the model of the pump checks it.
unsafe impl<T: Send> Sync for Chunk<T> {}

impl<T: Copy + Default> Chunk<T> {
    fn new(len: usize) -> Arc<Chunk<T>> {
        Arc::new(Chunk {
            cells: (0..len).map(|_| UnsafeCell::new(T::default())).collect(),
            next: Mutex::new(None),
            #[cfg(loom)]
            watched: (0..len).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        })
    }

    /// Returns the number of elements of a chunk.
    fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// Returns the address of a cell, which may be written through it.
    fn address(&self, at: usize) -> *mut T {
        // An `UnsafeCell` has the layout of its content, so neighbours in the slice are neighbours in memory.
        self.cells[at..].as_ptr().cast_mut().cast()
    }

    /// # Safety
    /// The caller is the chain's writer, and the cells from `at` on are not published.
    #[inline]
    unsafe fn write(&self, at: usize, elements: &[T]) {
        debug_assert!(at + elements.len() <= self.capacity());
        #[cfg(loom)]
        self.watched[at..][..elements.len()]
            .iter()
            .for_each(|cell| cell.with_mut(|_| ()));
        // SAFETY: the cells lie inside the chunk, and nobody reads them before they are published.
        unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), self.address(at), elements.len()) };
    }

    /// Tells the model checker that cells are read.
    #[inline]
    fn note_read(&self, at: usize, len: usize) {
        debug_assert!(at + len <= self.capacity());
        #[cfg(loom)]
        self.watched[at..][..len]
            .iter()
            .for_each(|cell| cell.with(|_| ()));
    }
}

impl<T> Drop for Chunk<T> {
    /// Drops a long chain without as deep a recursion.
    fn drop(&mut self) {
        let mut next = self.next.lock().expect("no panic at a chunk's end").take();
        while let Some(chunk) = next {
            next = match Arc::try_unwrap(chunk) {
                Ok(chunk) => chunk.next.lock().expect("no panic at a chunk's end").take(),
                Err(_) => return,
            };
        }
    }
}

/// Elements of one chunk, one behind the other.
pub(super) struct Run<T> {
    /// May be used up to the end of the chunk.
    pub(super) address: *const T,
    pub(super) len: usize,
    /// False if what lies before it in memory is of the same chunk.
    pub(super) begins_chunk: bool,
}

/// A place in a chain.
struct Cursor<T> {
    chunk: Arc<Chunk<T>>,
    at: usize,
}

impl<T> Clone for Cursor<T> {
    fn clone(&self) -> Cursor<T> {
        Cursor {
            chunk: self.chunk.clone(),
            at: self.at,
        }
    }
}

impl<T: Copy + Default> Cursor<T> {
    /// Appends elements: for the writer alone. `passed` hears of each chunk that is full.
    ///
    /// # Safety
    /// The caller is the chain's writer, and nothing from here on is published.
    #[inline]
    unsafe fn put(
        &mut self,
        mut elements: &[T],
        spare: &Mutex<Vec<Arc<Chunk<T>>>>,
        mut passed: impl FnMut(Arc<Chunk<T>>),
    ) {
        if elements.len() <= self.chunk.capacity() - self.at {
            // SAFETY: as the caller says.
            unsafe { self.chunk.write(self.at, elements) };
            self.at += elements.len();
            return;
        }
        loop {
            let room = self.chunk.capacity() - self.at;
            let (here, rest) = elements.split_at(room.min(elements.len()));
            // SAFETY: as the caller says.
            unsafe { self.chunk.write(self.at, here) };
            self.at += here.len();
            if rest.is_empty() {
                return;
            }
            elements = rest;
            passed(self.extend(spare));
        }
    }

    /// Goes to the next chunk, made if there is none; returns the last.
    #[cold]
    fn extend(&mut self, spare: &Mutex<Vec<Arc<Chunk<T>>>>) -> Arc<Chunk<T>> {
        let mut next = self.chunk.next.lock().expect("no panic at a chunk's end");
        let fresh = next.get_or_insert_with(|| {
            let kept = spare.lock().expect("no panic under spare chunks").pop();
            kept.unwrap_or_else(|| Chunk::new(self.chunk.capacity()))
        });
        let fresh = fresh.clone();
        drop(next);
        self.at = 0;
        mem::replace(&mut self.chunk, fresh)
    }

    /// Goes to the next chunk, in which something is published; returns the last.
    #[cold]
    fn leave(&mut self) -> Arc<Chunk<T>> {
        let next = self
            .chunk
            .next
            .lock()
            .expect("no panic at a chunk's end")
            .clone();
        let next = next.expect("what follows is published");
        self.at = 0;
        mem::replace(&mut self.chunk, next)
    }

    /// Passes the next `len` elements, which are written. They go to `visit` in as few runs as they lie in, and each
    /// chunk that was passed to `passed`: an address holds as long as its chunk.
    #[inline]
    fn take(
        &mut self,
        mut len: usize,
        mut visit: impl FnMut(Run<T>),
        mut passed: impl FnMut(Arc<Chunk<T>>),
    ) {
        while len > 0 {
            if self.at == self.chunk.capacity() {
                passed(self.leave());
            }
            let here = len.min(self.chunk.capacity() - self.at);
            self.chunk.note_read(self.at, here);
            visit(Run {
                address: self.chunk.address(self.at),
                len: here,
                begins_chunk: self.at == 0,
            });
            self.at += here;
            len -= here;
        }
    }
}

/// Keeps a chunk for reuse that its chain has left behind.
fn recycle<T>(spare: &Mutex<Vec<Arc<Chunk<T>>>>, mut chunk: Arc<Chunk<T>>) {
    // The writer may still be about to let go of it.
    if Arc::get_mut(&mut chunk).is_none() {
        return;
    }
    chunk.next.lock().expect("no panic at a chunk's end").take();
    let mut spare = spare.lock().expect("no panic under spare chunks");
    if spare.len() < SPARE_CHUNKS_MAX {
        spare.push(chunk);
    }
}

// ---- the lane -----------------------------------------------------------------------------

/// The words of a lane that both of its sides use.
#[repr(align(128))] // its owner writes it often
pub(super) struct Lane {
    /// Number of heads that may be read.
    published: AtomicU64,
    /// Bytes of all records that were written, large words included.
    written_bytes: AtomicU64,
    /// Those of them that the pump has taken.
    taken_bytes: OwnLine<AtomicU64>,
    /// The marks of published records: the record's number of marks says whose they are. Touched for records that have any.
    marks: Mutex<VecDeque<(u64, Mark)>>,
    spare_bytes: Mutex<Vec<Arc<Chunk<u8>>>>,
    spare_heads: Mutex<Vec<Arc<Chunk<Head>>>>,
}

#[repr(align(128))]
struct OwnLine<T>(T);

impl Lane {
    /// Returns the number of bytes that wait for the pump.
    pub(super) fn waiting_bytes(&self) -> u64 {
        let taken = self.taken_bytes.0.load(Ordering::Relaxed);
        let written = self.written_bytes.load(Ordering::Relaxed);
        written.saturating_sub(taken)
    }
}

/// The end of a lane at which a worker writes.
struct End {
    lane: Arc<Lane>,
    bytes: Cursor<u8>,
    heads: Cursor<Head>,
    published: u64,
    written_bytes: u64,
    /// Place in the chunk at which the running unit's bytes begin.
    start_at: usize,
    /// The chunk that was meant, if it is not the current one any more.
    start_chunk: Option<Arc<Chunk<u8>>>,
}

impl End {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let start_chunk = &mut self.start_chunk;
        // SAFETY: `End` is the chain's one writer, and bytes behind the last head are not published.
        unsafe {
            self.bytes.put(bytes, &self.lane.spare_bytes, |full| {
                start_chunk.get_or_insert(full);
            });
        }
    }

    /// Writes a word with its length and its end; returns their bytes.
    #[inline]
    fn put_word(&mut self, word: &[u8]) -> usize {
        let mut line = [0; LINE_BYTES_MAX];
        let line = length_line(&mut line, b'$', word.len());
        let at = self.bytes.at;
        let len = line.len() + word.len() + 2;
        if len <= self.bytes.chunk.capacity() - at {
            // SAFETY: as in `put`, and there is room for all three.
            unsafe {
                self.bytes.chunk.write(at, line);
                self.bytes.chunk.write(at + line.len(), word);
                self.bytes.chunk.write(at + len - 2, b"\r\n");
            }
            self.bytes.at = at + len;
        } else {
            [line, word, b"\r\n"].iter().for_each(|part| self.put(part));
        }
        len
    }

    /// Goes back to where the running unit's bytes begin.
    fn rewind(&mut self) {
        if let Some(chunk) = self.start_chunk.take() {
            self.bytes.chunk = chunk;
        }
        self.bytes.at = self.start_at;
    }

    #[cold]
    fn publish_marks(&mut self, marks: &mut Vec<(u64, Mark)>) {
        let mut queue = self.lane.marks.lock().expect("no panic under marks");
        let bytes = marks.iter().map(|(_, mark)| match mark {
            Mark::Blob(blob) => blob.len() as u64,
            Mark::PrivateFrom | Mark::PrivateTo => 0,
        });
        self.written_bytes += bytes.sum::<u64>();
        queue.extend(marks.drain(..));
    }

    /// Publishes the bytes that were written since the last call as one record.
    #[inline]
    fn publish(&mut self, head: Head, marks: &mut Vec<(u64, Mark)>) {
        if !marks.is_empty() {
            self.publish_marks(marks);
        }
        self.start_chunk = None;
        self.start_at = self.bytes.at;
        // SAFETY: as in `put`; a head is published below, once it is written.
        unsafe { self.heads.put(&[head], &self.lane.spare_heads, drop) };
        self.written_bytes += head.bytes;
        let written = &self.lane.written_bytes;
        written.store(self.written_bytes, Ordering::Relaxed);
        self.published += 1;
        // Release: whoever sees the number sees the head, its bytes and its marks.
        let published = &self.lane.published;
        published.store(self.published, Ordering::Release);
    }
}

/// A worker's pen: writes the commands of the running unit at the end of its lane.
#[derive(Default)]
pub struct Writer {
    /// Made with the first command.
    end: Option<Box<End>>,
    head: Head,
    marks: Vec<(u64, Mark)>,
    /// A record was published since the worker last offered itself to the pump.
    pub(crate) has_news: bool,
}

impl Writer {
    /// Returns the number of bytes that this worker's records wait with for the pump.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let end = self.end.as_ref();
        end.map_or(0, |end| end.lane.waiting_bytes())
    }

    /// Returns true if the running unit has written nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.commands == 0
    }

    /// Writes a command of the running unit. `db`: `None` for a message to the nodes, which has no database and goes to no
    /// file.
    pub(crate) fn push<'a>(
        &mut self,
        journal: &Journal,
        db: Option<u32>,
        words: impl Iterator<Item = Word<'a>> + Clone,
    ) {
        let count = match words.size_hint() {
            (least, Some(most)) if least == most => least,
            _ => words.clone().count(),
        };
        self.begin(journal, db);
        self.put(length_line(&mut [0; LINE_BYTES_MAX], b'*', count));
        let mut written = 0;
        for word in words {
            self.word(word);
            written += 1;
        }
        assert_eq!(written, count, "an iterator knows its length");
        if db.is_none() {
            self.mark(Mark::PrivateTo);
        }
    }

    /// Writes a command of the running unit that is in the stream's form already.
    #[inline]
    pub(crate) fn push_frame(&mut self, journal: &Journal, db: u32, frame: &[u8]) {
        self.begin(journal, Some(db));
        self.put(frame);
    }

    #[inline]
    fn begin(&mut self, journal: &Journal, db: Option<u32>) {
        if self.end.is_none() {
            self.end = Some(Box::new(journal.make_lane()));
        }
        if self.head.commands == 0 {
            self.head = Head::EMPTY;
        }
        match db {
            None => self.mark(Mark::PrivateFrom),
            Some(db) => {
                if self.head.db == NO_DB {
                    self.head.db = db;
                } else if self.head.last_db != db {
                    self.select(db);
                }
                self.head.last_db = db;
                self.head.file_commands += 1;
            }
        }
        self.head.commands += 1;
    }

    #[cold]
    fn select(&mut self, db: u32) {
        let mut select = Vec::new();
        append_select(&mut select, db);
        self.put(&select);
    }

    fn word(&mut self, word: Word<'_>) {
        let bytes = match word {
            Word::Blob(blob) if blob.len() > INLINE_BYTES_MAX => {
                self.put(length_line(&mut [0; LINE_BYTES_MAX], b'$', blob.len()));
                self.mark(Mark::Blob(blob.clone()));
                return self.put(b"\r\n");
            }
            Word::Blob(blob) => blob.as_slice(),
            Word::Bytes(bytes) => bytes,
        };
        let end = self.end.as_mut().expect("made by `begin`");
        self.head.bytes += end.put_word(bytes) as u64;
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push((self.head.bytes, mark));
        self.head.marks += 1;
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.head.bytes += bytes.len() as u64;
        self.end.as_mut().expect("made by `begin`").put(bytes);
    }

    /// Gives the running unit's commands a number and publishes them; returns it. The unit still holds its stripes.
    pub(crate) fn commit(&mut self, journal: &Journal) -> u64 {
        let mut head = mem::take(&mut self.head);
        // Relaxed: the stripes order units that have something in common, and so their turns at the counter.
        head.number = journal.next.fetch_add(1, Ordering::Relaxed);
        let end = self.end.as_mut().expect("something was written");
        end.publish(head, &mut self.marks);
        self.has_news = true;
        head.number
    }

    /// Drops what the running unit has written.
    pub(crate) fn give_up(&mut self) {
        self.head = Head::default();
        self.marks.clear();
        if let Some(end) = &mut self.end {
            end.rewind();
        }
    }

    /// Takes out what the running unit has written so far.
    pub(crate) fn take(&mut self) -> Effects {
        let mut bytes = Vec::new();
        if let Some(end) = &self.end {
            let mut from = Cursor {
                chunk: end.start_chunk.as_ref().unwrap_or(&end.bytes.chunk).clone(),
                at: end.start_at,
            };
            let visit = |run: Run<u8>| {
                // SAFETY: the writer has written these bytes itself, and holds their chunk.
                bytes
                    .extend_from_slice(unsafe { std::slice::from_raw_parts(run.address, run.len) });
            };
            from.take(self.head.bytes as usize, visit, drop);
        }
        let head = mem::take(&mut self.head);
        let marks = mem::take(&mut self.marks);
        self.give_up();
        Effects { head, bytes, marks }
    }

    /// Writes again what [`Writer::take`] took out.
    pub(crate) fn put_back(&mut self, effects: Effects) {
        debug_assert!(self.is_empty(), "every unit has ended");
        if let Some(end) = &mut self.end {
            end.put(&effects.bytes);
        }
        self.head = effects.head;
        self.marks = effects.marks;
    }
}

// ---- the reader ---------------------------------------------------------------------------

/// The end of a lane from which the pump takes records.
pub(super) struct LaneReader {
    lane: Arc<Lane>,
    bytes: Cursor<u8>,
    heads: Cursor<Head>,
    /// The head of the next record, if it was seen.
    next: Option<Head>,
    /// Number of heads that were fetched, and of those that are known to be published.
    fetched: u64,
    seen: u64,
    taken_bytes: u64,
    /// Chunks that were passed and whose bytes may still be referred to.
    passed: Vec<Arc<Chunk<u8>>>,
}

impl LaneReader {
    /// Returns the head of the next record that is published.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<&Head> {
        if self.next.is_none() {
            self.fetch();
        }
        self.next.as_ref()
    }

    #[inline]
    fn fetch(&mut self) {
        if self.fetched == self.seen {
            // Acquire: see `publish`.
            self.seen = self.lane.published.load(Ordering::Acquire);
            if self.fetched == self.seen {
                return;
            }
        }
        self.fetched += 1;
        let spare = &self.lane.spare_heads;
        let next = &mut self.next;
        let visit = |run: Run<Head>| {
            // SAFETY: the head is published, and copied before its chunk is recycled.
            *next = Some(unsafe { *run.address });
        };
        self.heads.take(1, visit, |chunk| recycle(spare, chunk));
    }

    /// Passes as many records of one command as follow each other without anything between them, and lie in one chunk; returns
    /// the number of the last and their bytes. Looks at those alone that were published when [`LaneReader::peek`] last
    /// looked. `number`: of the first; `due`: of the last one that may be passed; `db`: the stream's database.
    pub(super) fn pass_plain(&mut self, number: u64, due: u64, db: u32) -> Option<(u64, Run<u8>)> {
        let room = self.bytes.chunk.capacity() - self.bytes.at;
        let (mut next, mut len) = (number, 0);
        let is_plain = |head: &Head, next: u64, len: usize| {
            head.number == next
                && (head.commands, head.marks) == (1, 0)
                && (head.db, head.last_db) == (db, db)
                && head.bytes <= (room - len) as u64
        };
        while next <= due {
            if self.next.is_none() && self.fetched < self.seen {
                self.fetch();
            }
            let Some(head) = self.next.take_if(|head| is_plain(head, next, len)) else {
                break;
            };
            len += head.bytes as usize;
            next += 1;
            // Those behind it in its chunk are looked at where they lie.
            let heads = &mut self.heads;
            let rest = (heads.chunk.capacity() - heads.at) as u64;
            let due = due
                .checked_sub(next)
                .map_or(0, |last| last.saturating_add(1));
            let count = rest.min(self.seen - self.fetched).min(due);
            heads.chunk.note_read(heads.at, count as usize);
            let address = heads.chunk.address(heads.at).cast_const();
            // SAFETY: so many heads are published and lie in the chunk, which is not recycled before the reader has left it.
            let rest = unsafe { std::slice::from_raw_parts(address, count as usize) };
            let mut passed = 0;
            for head in rest {
                if !is_plain(head, next, len) {
                    break;
                }
                len += head.bytes as usize;
                next += 1;
                passed += 1;
            }
            heads.at += passed;
            self.fetched += passed as u64;
            if passed as u64 != count {
                break;
            }
        }
        let last = next.checked_sub(1).filter(|last| *last >= number)?;
        self.taken_bytes += len as u64;
        let begins_chunk = self.bytes.at == 0;
        self.bytes.chunk.note_read(self.bytes.at, len);
        let address = self.bytes.chunk.address(self.bytes.at).cast_const();
        self.bytes.at += len;
        let run = Run {
            address,
            len,
            begins_chunk,
        };
        Some((last, run))
    }

    /// Passes the next record. Its parts go to `visit`, with true for those that files get as well: they lie where they lie
    /// until [`LaneReader::let_go`].
    pub(super) fn pass(&mut self, mut visit: impl FnMut(Lying, bool)) {
        let Some(head) = self.next.take() else {
            return;
        };
        self.taken_bytes += head.bytes;
        if head.marks == 0 {
            return self.pass_bytes(head.bytes, true, &mut visit);
        }
        let mut at = 0;
        let mut for_files = true;
        for _ in 0..head.marks {
            let mark = self
                .lane
                .marks
                .lock()
                .expect("no panic under marks")
                .pop_front();
            let (place, mark) = mark.expect("as many as the head says");
            self.pass_bytes(place - at, for_files, &mut visit);
            at = place;
            match mark {
                Mark::Blob(blob) => {
                    self.taken_bytes += blob.len() as u64;
                    visit(Lying::Blob(blob), for_files);
                }
                Mark::PrivateFrom => for_files = false,
                Mark::PrivateTo => for_files = true,
            }
        }
        self.pass_bytes(head.bytes - at, for_files, &mut visit);
    }

    fn pass_bytes(&mut self, len: u64, for_files: bool, visit: &mut impl FnMut(Lying, bool)) {
        let passed = &mut self.passed;
        self.bytes.take(
            len as usize,
            |run| visit(Lying::Bytes(run), for_files),
            |chunk| passed.push(chunk),
        );
    }

    /// Gives back the memory of the records that were passed.
    pub(super) fn let_go(&mut self) {
        let taken = &self.lane.taken_bytes.0;
        if taken.load(Ordering::Relaxed) != self.taken_bytes {
            taken.store(self.taken_bytes, Ordering::Relaxed);
        }
        for chunk in self.passed.drain(..) {
            recycle(&self.lane.spare_bytes, chunk);
        }
    }
}

/// A part of a record where it lies.
pub(super) enum Lying {
    /// Bytes of a lane.
    Bytes(Run<u8>),
    /// A large word.
    Blob(Blob),
}

impl Journal {
    /// Makes a lane: returns one end, and keeps the other for the pump.
    #[cold]
    fn make_lane(&self) -> End {
        let lane = Arc::new(Lane {
            published: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            taken_bytes: OwnLine(AtomicU64::new(0)),
            marks: Mutex::default(),
            spare_bytes: Mutex::default(),
            spare_heads: Mutex::default(),
        });
        let bytes = Cursor {
            chunk: Chunk::new(CHUNK_BYTES),
            at: 0,
        };
        let heads = Cursor {
            chunk: Chunk::new(CHUNK_HEADS),
            at: 0,
        };
        let reader = LaneReader {
            lane: lane.clone(),
            bytes: bytes.clone(),
            heads: heads.clone(),
            next: None,
            fetched: 0,
            seen: 0,
            taken_bytes: 0,
            passed: Vec::new(),
        };
        let mut lanes = self.lanes.lock().expect("no panic under the lanes");
        lanes.all.push(lane.clone());
        lanes.new.push(reader);
        // Before the lane's first record: whoever sees that one sees this.
        self.lane_count.fetch_add(1, Ordering::Release);
        End {
            lane,
            bytes,
            heads,
            published: 0,
            written_bytes: 0,
            start_at: 0,
            start_chunk: None,
        }
    }
}

/// The lanes of a journal.
#[derive(Default)]
pub(super) struct Lanes {
    /// All of them.
    pub(super) all: Vec<Arc<Lane>>,
    /// Those that the pump has not taken over yet.
    pub(super) new: Vec<LaneReader>,
}

/// Number of lanes that were made.
pub(super) type LaneCount = AtomicU32;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn chunks_that_were_passed_are_written_again() {
        let journal = Journal::default();
        let mut writer = Writer::default();
        let word = [b'x'; 1000];
        let (mut reader, mut chunks) = (None, HashSet::new());
        for n in 0..100 * CHUNK_HEADS {
            let words = [Word::Bytes(b"SET"), Word::Bytes(&word)];
            writer.push(&journal, Some(0), words.into_iter());
            writer.commit(&journal);
            let end = writer.end.as_ref().expect("made by the first");
            chunks.insert(Arc::as_ptr(&end.bytes.chunk).addr());
            chunks.insert(Arc::as_ptr(&end.heads.chunk).addr());
            // The reader is behind by up to a hundred records.
            if n % 100 == 0 {
                let lanes = || journal.lanes.lock().unwrap().new.pop();
                let reader: &mut LaneReader = reader.get_or_insert_with(|| lanes().unwrap());
                while reader.peek().is_some() {
                    let mut bytes = 0;
                    reader.pass(|part, _| match part {
                        Lying::Bytes(run) => bytes += run.len,
                        Lying::Blob(_) => unreachable!("no word is large"),
                    });
                    assert_eq!(bytes, 4 + 9 + 7 + 1002);
                }
                reader.let_go();
            }
        }
        assert!(chunks.len() < 20, "{} chunks", chunks.len());
    }

    #[test]
    fn a_long_chain_is_freed_on_a_small_stack() {
        let free = || {
            let spare = Mutex::default();
            let mut end = Cursor {
                chunk: Chunk::<u8>::new(1),
                at: 0,
            };
            let first = end.chunk.clone();
            // SAFETY: nobody else knows the chain.
            unsafe { end.put(&[1; 100_000], &spare, drop) };
            drop(end);
            drop(first);
        };
        let thread = std::thread::Builder::new().stack_size(128 * 1024);
        thread.spawn(free).unwrap().join().unwrap();
    }
}
