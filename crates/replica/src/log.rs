//! The stream of a server: its identity, the bytes of it that are kept, and the records that its offsets stand for.
//!
//! A primary's lanes or a replica's link append whole units here; replicas of this server read from here. While nothing is
//! kept (no replica, and none expected back) the offset stands still.
//!
//! Must not know: peers, sockets, a clock.

use std::collections::VecDeque;

use crate::{
    blocks::Blocks,
    identity::{Identity, Replid},
};

/// Number of marks that are kept.
const MARKS_MAX: usize = 16 * 1024;

/// See the module's text.
#[derive(Debug)]
pub struct Log {
    identity: Identity,
    blocks: Option<Blocks>,
    /// Number of streams that were kept so far.
    kept: u64,
    /// Ends of rounds, ascending: the number of the last record, and the offset behind it. A replica's are the records that
    /// its own journal has of what it applied.
    marks: VecDeque<(u64, u64)>,
}

/// The answer to PSYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The replica's data is part of the history, and all that it lacks is kept: it goes on behind this offset.
    From(u64),
    /// A history that is not this one's, or a place behind the fork.
    OtherHistory,
    /// Bytes that it lacks are not kept.
    NotKept,
}

impl Log {
    /// Makes the stream of an identity, of which nothing is kept yet.
    pub fn new(identity: Identity) -> Log {
        Log {
            identity,
            blocks: None,
            kept: 0,
            marks: VecDeque::new(),
        }
    }

    /// Returns ids and offset.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the bytes that are kept, if there are any to be.
    pub fn blocks(&self) -> Option<&Blocks> {
        self.blocks.as_ref()
    }

    /// Returns the bytes that are kept, for the caller that spills some of them.
    pub fn blocks_mut(&mut self) -> Option<&mut Blocks> {
        self.blocks.as_mut()
    }

    /// Begins to keep what comes, if nothing was kept.
    pub fn keep(&mut self) {
        if self.blocks.is_none() {
            self.keep_anew();
        }
    }

    /// Keeps what comes from here on.
    fn keep_anew(&mut self) {
        self.kept += 1;
        self.blocks = Some(Blocks::new(self.identity.offset(), self.kept));
    }

    /// Keeps nothing any more.
    pub fn forget(&mut self) {
        self.blocks = None;
        self.marks.clear();
    }

    /// Frees what is older than the backlog and behind the slowest reader: see [`Blocks::trim`].
    pub fn trim(&mut self, backlog_bytes: u64, slowest: Option<u64>) {
        if let Some(blocks) = &mut self.blocks {
            blocks.trim(backlog_bytes, slowest);
        }
    }

    /// Closes the open block: see [`Blocks::close`].
    pub fn close_block(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.close();
        }
    }

    /// Adds bytes, which end with a whole unit when the caller lets go of the log.
    pub fn append(&mut self, bytes: &[u8]) {
        if let Some(blocks) = &mut self.blocks {
            blocks.append(bytes);
        }
        self.identity.add(bytes.len() as u64);
    }

    /// Notes that everything up to this record of the journal is before the end.
    pub fn mark(&mut self, number: u64) {
        if self.marks.len() == MARKS_MAX {
            // Of older ones every other will do: who is between two has what is before the first.
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at > MARKS_MAX / 2 || at % 2 == 1
            });
        }
        self.marks.push_back((number, self.identity.offset()));
    }

    /// Returns the last record that somebody has who has everything up to this offset; 0: none that is known.
    pub fn record_at(&self, offset: u64) -> u64 {
        let behind = self.marks.partition_point(|(_, end)| *end <= offset);
        behind.checked_sub(1).map_or(0, |at| self.marks[at].0)
    }

    /// Returns the offset up to which somebody has everything who has this record, and all before it. `None`: none that is
    /// known.
    pub fn offset_at(&self, record: u64) -> Option<u64> {
        let behind = self.marks.partition_point(|(number, _)| *number <= record);
        behind.checked_sub(1).map(|at| self.marks[at].1)
    }

    /// Returns the last record that is in the stream; 0: none that is known.
    pub fn last_record(&self) -> u64 {
        self.marks.back().map_or(0, |(number, _)| *number)
    }

    /// Answers PSYNC: `asked` is the offset of the first byte wanted, counted from 1.
    pub fn resume(&self, replid: &[u8], asked: i64) -> Resume {
        let Some(asked) = u64::try_from(asked).ok().filter(|asked| *asked > 0) else {
            return Resume::OtherHistory;
        };
        let shares = |replid| self.identity.shares(replid, asked);
        if !Replid::parse(replid).is_some_and(shares) {
            return Resume::OtherHistory;
        }
        let from = asked - 1;
        match &self.blocks {
            Some(blocks) if (blocks.begin()..=blocks.end()).contains(&from) => Resume::From(from),
            _ => Resume::NotKept,
        }
    }

    /// See [`Identity::demoted`].
    pub fn demoted(&mut self) {
        self.identity.demoted();
    }

    /// Takes over a primary's history and data ([`Identity::full_resync`]): what was kept is of another history.
    pub fn full_resync(&mut self, replid: Replid, offset: u64) {
        self.identity.full_resync(replid, offset);
        self.marks.clear();
        self.keep_anew();
    }

    /// See [`Identity::continued`].
    pub fn continued(&mut self, replid: Option<Replid>) -> bool {
        let is_other = self.identity.continued(replid);
        self.keep();
        is_other
    }

    /// See [`Identity::promoted`]. What is kept stays.
    pub fn promoted(&mut self, fresh: Replid) {
        self.identity.promoted(fresh);
    }

    /// Goes on where a file says that its primary was: see [`Identity::restarted_as_primary`].
    pub fn restarted_as_primary(&mut self, fresh: Replid, replid: Replid, offset: u64) {
        self.identity = Identity::restarted_as_primary(fresh, replid, offset);
        self.marks.clear();
        self.keep_anew();
    }

    /// Takes a fresh id, and goes on with the bytes that are kept.
    pub fn change_id(&mut self, fresh: Replid) {
        self.identity.restarted(fresh);
    }

    /// Takes a fresh id and keeps nothing any more: see [`Identity::restarted`].
    pub fn restarted(&mut self, fresh: Replid) {
        self.identity.restarted(fresh);
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::REPLID_LEN;

    fn id(seed: u8) -> Replid {
        Replid::from_random([seed; REPLID_LEN / 2])
    }

    #[test]
    fn a_replica_goes_on_inside_what_is_kept_and_one_byte_beyond() {
        let mut log = Log::new(Identity::new(id(1)));
        let (own, other) = (id(1), id(2));
        assert_eq!(log.resume(own.as_bytes(), 1), Resume::NotKept);
        log.append(&[0; 10]);
        log.keep();
        log.append(&[1; 10]);
        assert_eq!(log.resume(own.as_bytes(), 21), Resume::From(20));
        assert_eq!(log.resume(own.as_bytes(), 11), Resume::From(10));
        assert_eq!(log.resume(own.as_bytes(), 10), Resume::NotKept);
        assert_eq!(log.resume(own.as_bytes(), 22), Resume::NotKept);
        assert_eq!(log.resume(own.as_bytes(), 0), Resume::OtherHistory);
        assert_eq!(log.resume(own.as_bytes(), i64::MIN), Resume::OtherHistory);
        assert_eq!(log.resume(own.as_bytes(), i64::MAX), Resume::NotKept);
        assert_eq!(log.resume(other.as_bytes(), 15), Resume::OtherHistory);
        assert_eq!(log.resume(b"?", -1), Resume::OtherHistory);
    }

    #[test]
    fn offsets_stand_for_records() {
        let mut log = Log::new(Identity::new(id(1)));
        log.keep();
        for number in [3, 5, 9] {
            log.append(&[0; 10]);
            log.mark(number);
            log.append(&[0; 2]);
        }
        let records = [9, 10, 11, 21, 22, 34, 35, 1000].map(|offset| log.record_at(offset));
        assert_eq!(records, [0, 3, 3, 3, 5, 9, 9, 9]);
        let offsets = [0, 2, 3, 4, 5, 8, 9, 1000].map(|record| log.offset_at(record));
        let [none, first, second, third] = [None, Some(10), Some(22), Some(34)];
        assert_eq!(
            offsets,
            [none, none, first, first, second, second, third, third]
        );
        assert_eq!(log.last_record(), 9);
    }

    #[test]
    fn old_records_are_known_less_exactly_but_not_forgotten() {
        let mut log = Log::new(Identity::new(id(1)));
        log.keep();
        let many = 5 * MARKS_MAX as u64;
        let kept = MARKS_MAX as u64;
        for number in 1..=many {
            log.append(&[0; 10]);
            log.mark(number);
        }
        assert!(log.marks.len() <= MARKS_MAX);
        // The newest exactly, and then ever less so.
        for (age, tolerated) in [(0, 0), (kept / 2, 0), (kept, 9), (2 * kept, 99)] {
            let number = many - age;
            let record = log.record_at(10 * number);
            assert!((number - tolerated..=number).contains(&record), "{record}");
            assert_eq!(log.offset_at(number), Some(10 * record));
        }
        assert_eq!(log.record_at(10), 1);
    }
}
