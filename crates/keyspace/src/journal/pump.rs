//! The pump: merges the lanes into one stream of bytes, in the order of numbers and without a gap.
//!
//! Must not know: who takes the stream, files, sockets, a clock.
//!
//! # How it works
//!
//! The pump is a role, not a thread; whoever offers itself with [`Journal::pump`] may get it. One word says where it is:
//! idle, busy, or busy and asked for again. To offer oneself is one exchange of that word for *again*: who finds it idle has
//! the role, all others go on at once, since the holder makes another round when it finds *again* where it had put *busy*. So
//! nobody waits for the role, and a record is not left behind by someone who did not get it: its publication comes before
//! the exchange, and the exchange before the holder's next round.
//!
//! A round takes from the lane whose head has the number that is due the longest run of numbers, and so on. A number that is
//! missing ends the round: whoever has taken it publishes it and offers itself. Then the stream gets what was taken, as
//! slices of the lanes' own memory, and that memory is free again.
//!
//! The pump adds to the commands: SELECT where the database is another one than the stream's, MULTI and EXEC around a
//! record of several commands. Messages to the nodes (PUBLISH) are written without SELECT and marked, so that a file can
//! leave them out.
//!
//! Attaching, cutting and detaching are *orders* with a number: the pump carries them out when it has merged everything up
//! to that number and nothing behind it.

use std::{collections::VecDeque, ops::Range};

use super::{
    Journal, NO_DB, Ordering,
    lane::{LaneReader, Lying},
    record::{EXEC, MULTI, append_select},
};
use crate::entry::Blob;

/// Nobody has the role.
pub(super) const IDLE: u32 = 0;
/// Somebody has it.
const BUSY: u32 = 1;
/// Somebody has it, and there may be more than it has seen.
const AGAIN: u32 = 2;

/// Bytes of a round, apart from its last record.
const ROUND_BYTES_MAX: usize = 1024 * 1024;
/// Pieces of a round, apart from its last record: about what one vectored write takes.
const ROUND_PIECES_MAX: usize = 1000;
/// Number of marks that are kept.
const POSITIONS_MAX: usize = 4096;

/// A place in the stream: behind a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The record's number; 0: before the first.
    pub number: u64,
    /// Bytes of the stream up to there.
    pub offset: u64,
}

/// A piece of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    bytes: &'a [u8],
    blob: Option<&'a Blob>,
    for_files: bool,
}

impl<'a> Piece<'a> {
    /// Returns its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the large word that it is, if it is one: it may be kept without a copy.
    pub fn blob(&self) -> Option<&'a Blob> {
        self.blob
    }

    /// Returns true if it belongs into a file; otherwise it is for replicas alone.
    pub fn is_for_files(&self) -> bool {
        self.for_files
    }
}

/// Receiver of the stream: a file, or a reader inside the process. Called by the holder of the pump's role, which holds no
/// stripe, on whatever thread that is, and by one at a time.
pub trait Stream: Send {
    /// Takes the next bytes: those of whole units, up to `end`. The memory of the pieces is used again afterwards.
    fn write(&mut self, pieces: &[Piece<'_>], end: Position);

    /// Hears that what follows comes after a cut, and begins with SELECT: at the start of the stream, and at each
    /// [`Unit::cut_journal`](crate::Unit::cut_journal).
    fn cut(&mut self, at: Position);
}

/// Work that the pump does once it has merged everything up to a number.
pub(super) enum Order {
    /// The stream begins.
    Attach(Box<dyn Stream>),
    /// A cut.
    Cut,
    /// The stream ends, and is dropped.
    Detach,
}

/// The state of the pump, which belongs to the holder of its role.
pub(super) struct State {
    lanes: Vec<LaneReader>,
    /// Number of lanes that were taken over.
    known: u32,
    stream: Option<Box<dyn Stream>>,
    merged: Position,
    /// The stream's database; [`NO_DB`] after a cut.
    db: u32,
    /// Parts of the round.
    parts: Vec<Part>,
    /// Text that the pump itself has added to the round.
    text: Vec<u8>,
}

struct Part {
    what: What,
    for_files: bool,
}

enum What {
    Lying(Lying),
    Text(Range<usize>),
}

// SAFETY: the addresses in it are of chunks that it shares or owns; nothing in it is bound to a thread.
unsafe impl Send for State {}

impl Default for State {
    fn default() -> State {
        State {
            lanes: Vec::new(),
            known: 0,
            stream: None,
            merged: Position::default(),
            db: NO_DB,
            parts: Vec::new(),
            text: Vec::new(),
        }
    }
}

/// The end of a round.
#[derive(PartialEq, Eq)]
enum Round {
    /// Nothing more was there.
    Dry,
    /// There may be more.
    Full,
}

impl State {
    /// Makes a round: see the head of the module.
    fn round(&mut self, journal: &Journal) -> Round {
        if journal.lane_count.load(Ordering::Acquire) != self.known {
            let mut lanes = journal.lanes.lock().expect("no panic under the lanes");
            self.known += lanes.new.len() as u32;
            self.lanes.append(&mut lanes.new);
        }
        if self.stream.is_none() {
            return self.obey(journal);
        }
        let (begin, mut bytes, mut full) = (self.merged, 0, false);
        let mut lane = 0;
        while !full {
            let number = self.merged.number + 1;
            // Mostly the lane of the last record.
            let next = self.lanes.get_mut(lane).and_then(LaneReader::peek);
            if next.is_none_or(|head| head.number != number) {
                match self.lane_of(number) {
                    Some(other) => lane = other,
                    None => break,
                }
            }
            // Asked once the record is seen: an order that was given before its unit began is seen as well.
            let due = journal.next_order().unwrap_or(u64::MAX);
            if number > due {
                break;
            }
            bytes += match self.lanes[lane].pass_plain(number, due, self.db) {
                Some((last, run)) => {
                    self.merged.number = last;
                    let len = add_lying(&mut self.parts, Lying::Bytes(run), true);
                    self.merged.offset += len as u64;
                    len
                }
                None => self.merge(lane),
            };
            full = bytes >= ROUND_BYTES_MAX || self.parts.len() >= ROUND_PIECES_MAX;
        }
        if self.merged != begin {
            self.flush(journal);
        }
        match journal.next_order() {
            Some(due) if self.merged.number >= due => self.obey(journal),
            _ if full => Round::Full,
            _ => Round::Dry,
        }
    }

    /// Returns the lane whose next record has this number. Records of an earlier stream that has ended are passed over.
    fn lane_of(&mut self, number: u64) -> Option<usize> {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            while let Some(head) = lane.peek() {
                if head.number >= number {
                    if head.number == number {
                        return Some(at);
                    }
                    break;
                }
                lane.pass(|_, _| ());
                lane.let_go();
            }
        }
        None
    }

    /// Adds the next record of a lane to the round; returns its bytes.
    fn merge(&mut self, lane: usize) -> usize {
        let head = *self.lanes[lane].peek().expect("seen by the caller");
        let before = self.merged.offset;
        let for_files = head.file_commands > 0;
        if head.db != NO_DB && head.db != self.db {
            let from = self.text.len();
            append_select(&mut self.text, head.db);
            self.add_text(from, true);
        }
        let is_several = head.commands > 1;
        if is_several {
            let from = self.text.len();
            self.text.extend_from_slice(MULTI);
            self.add_text(from, for_files);
        }
        let (parts, merged) = (&mut self.parts, &mut self.merged);
        self.lanes[lane].pass(|lying, for_files| {
            merged.offset += add_lying(parts, lying, for_files) as u64;
        });
        if is_several {
            let from = self.text.len();
            self.text.extend_from_slice(EXEC);
            self.add_text(from, for_files);
        }
        if head.last_db != NO_DB {
            self.db = head.last_db;
        }
        self.merged.number = head.number;
        (self.merged.offset - before) as usize
    }

    /// Adds what was written to `text` from a place on.
    fn add_text(&mut self, from: usize, for_files: bool) {
        let to = self.text.len();
        self.merged.offset += (to - from) as u64;
        if let Some(Part {
            what: What::Text(last),
            for_files: same,
        }) = self.parts.last_mut()
            && *same == for_files
        {
            last.end = to;
            return;
        }
        self.parts.push(Part {
            what: What::Text(from..to),
            for_files,
        });
    }

    /// Gives the round to the stream, and the memory back to the lanes.
    fn flush(&mut self, journal: &Journal) {
        let text = &self.text;
        let pieces: Vec<Piece<'_>> = self
            .parts
            .iter()
            .map(|part| {
                let (bytes, blob) = match &part.what {
                    What::Text(range) => (&text[range.clone()], None),
                    What::Lying(Lying::Blob(blob)) => (blob.as_slice(), Some(blob)),
                    What::Lying(Lying::Bytes(run)) => {
                        // SAFETY: published bytes of one chunk, which `LaneReader::pass` gave; its memory is not used
                        // again before `let_go`, which is called below, when the pieces are gone.
                        (
                            unsafe { std::slice::from_raw_parts(run.address, run.len) },
                            None,
                        )
                    }
                };
                Piece {
                    bytes,
                    blob,
                    for_files: part.for_files,
                }
            })
            .collect();
        let stream = self.stream.as_mut().expect("the caller has seen it");
        stream.write(&pieces, self.merged);
        drop(pieces);
        self.parts.clear();
        self.text.clear();
        self.lanes.iter_mut().for_each(LaneReader::let_go);
        journal.note_merged(self.merged);
    }

    /// Carries out the first order.
    fn obey(&mut self, journal: &Journal) -> Round {
        let Some((number, order)) = journal.take_order() else {
            return Round::Dry;
        };
        // What follows a cut may be read without what comes before it.
        self.db = NO_DB;
        match order {
            Order::Attach(stream) => {
                debug_assert!(self.stream.is_none(), "one stream at a time");
                self.merged.number = number;
                self.stream = Some(stream);
                journal.note_merged(self.merged);
            }
            Order::Cut => {}
            Order::Detach => {
                self.stream = None;
                self.discard(number);
            }
        }
        if let Some(stream) = &mut self.stream {
            stream.cut(self.merged);
        }
        Round::Full
    }

    /// Frees what is in the lanes up to this number: no stream gets it. What is behind it may belong to the next one, which
    /// may have records before its predecessor's end is carried out.
    fn discard(&mut self, number: u64) {
        for lane in &mut self.lanes {
            while lane.peek().is_some_and(|head| head.number <= number) {
                lane.pass(|_, _| ());
                lane.let_go();
            }
        }
    }
}

/// Adds a part that lies in a lane; returns its bytes.
fn add_lying(parts: &mut Vec<Part>, lying: Lying, for_files: bool) -> usize {
    let len = match &lying {
        Lying::Bytes(run) => run.len,
        Lying::Blob(blob) => blob.len(),
    };
    if let Lying::Bytes(run) = &lying
        && !run.begins_chunk
        && let Some(Part {
            what: What::Lying(Lying::Bytes(last)),
            for_files: same,
        }) = parts.last_mut()
        && *same == for_files
        && last.address.wrapping_add(last.len) == run.address
    {
        last.len += len;
        return len;
    }
    parts.push(Part {
        what: What::Lying(lying),
        for_files,
    });
    len
}

impl Journal {
    /// Offers the calling thread, which holds no stripe, to the pump, and returns without waiting for anything but the
    /// stream: if another thread has the role, it sees to what was published before this call. `is_tired` is called
    /// after each round; if it returns true the role is given up.
    ///
    /// Returns true if there may be more for the pump: the caller then has another thread call this. (Only now, since one that
    /// was asked before the role was free would find it taken.)
    #[must_use = "another thread has to go on if this one was tired"]
    pub fn pump(&self, is_tired: &mut dyn FnMut() -> bool) -> bool {
        self.offer(is_tired, true)
    }

    pub(super) fn offer(&self, is_tired: &mut dyn FnMut() -> bool, asks_again: bool) -> bool {
        let found = if asks_again {
            // Acquire and release: either this call finds what the last holder has left, or the holder finds what was published
            // before this call.
            self.role.swap(AGAIN, Ordering::AcqRel)
        } else {
            // A fault that only the model plants.
            let order = Ordering::AcqRel;
            let tried = self.role.compare_exchange(IDLE, AGAIN, order, order);
            tried.unwrap_or_else(|found| found)
        };
        if found != IDLE {
            return false;
        }
        loop {
            self.role.swap(BUSY, Ordering::AcqRel);
            let round = self.state.with_role(|state| state.round(self));
            if round == Round::Dry {
                let over =
                    self.role
                        .compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Relaxed);
                if over.is_ok() {
                    return false;
                }
            }
            if is_tired() {
                // A swap, so that the next holder also sees what those have published who have found it busy.
                self.role.swap(IDLE, Ordering::AcqRel);
                return true;
            }
        }
    }

    /// Does the same without getting tired.
    pub fn pump_all(&self) {
        let _ = self.pump(&mut || false);
    }

    /// Gives an order: in ascending order of numbers.
    pub(super) fn give_order(&self, number: u64, order: Order) {
        let mut orders = self.orders.lock().expect("no panic under the orders");
        orders.push_back((number, order));
        self.order_count.fetch_add(1, Ordering::Release);
    }

    fn next_order(&self) -> Option<u64> {
        if self.order_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let orders = self.orders.lock().expect("no panic under the orders");
        orders.front().map(|(number, _)| *number)
    }

    fn take_order(&self) -> Option<(u64, Order)> {
        let mut orders = self.orders.lock().expect("no panic under the orders");
        let order = orders.pop_front()?;
        self.order_count.fetch_sub(1, Ordering::Relaxed);
        Some(order)
    }

    fn note_merged(&self, position: Position) {
        let mut positions = self.positions.lock().expect("no panic under positions");
        if positions.len() == POSITIONS_MAX {
            positions.pop_front();
        }
        positions.push_back(position);
    }

    /// Returns the end of the last round: everything up to there has been given to the stream.
    pub fn merged(&self) -> Position {
        let positions = self.positions.lock().expect("no panic under positions");
        positions.back().copied().unwrap_or_default()
    }

    /// Returns the last end of a round at or before this offset: how far a reader has got that has reached the offset. `None`:
    /// it is too long ago.
    pub fn position_at(&self, offset: u64) -> Option<Position> {
        let positions = self.positions.lock().expect("no panic under positions");
        let behind = positions.partition_point(|position| position.offset <= offset);
        Some(positions[behind.checked_sub(1)?])
    }

    /// Returns the first end of a round at or behind this record: a reader that has reached its offset has the record. `None`:
    /// it has not been merged yet.
    pub fn position_of(&self, number: u64) -> Option<Position> {
        let positions = self.positions.lock().expect("no panic under positions");
        let before = positions.partition_point(|position| position.number < number);
        positions.get(before).copied()
    }

    /// Returns the number of bytes that wait for the pump in all lanes.
    pub fn waiting_bytes(&self) -> u64 {
        let lanes = self.lanes.lock().expect("no panic under the lanes");
        lanes.all.iter().map(|lane| lane.waiting_bytes()).sum()
    }
}

/// The ends of the latest rounds.
pub(super) type Positions = VecDeque<Position>;

/// The orders that were not carried out yet, each with its number.
pub(super) type Orders = VecDeque<(u64, Order)>;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
