//! The logs of slow calls, and of those with large requests or replies: SLOWLOG and COMMANDLOG show them.
//!
//! One set of logs for all workers, each under a lock of its own: entries are rare by definition. Must not know: how
//! time is taken, how a log is shown.

use std::sync::Arc;

use redline_observe::slowlog::{Entry, Log};
use redline_resp::Args;
/// Kind of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Slow calls: microseconds.
    Slow,
    /// Large requests: bytes on the wire.
    LargeRequest,
    /// Large replies: bytes on the wire.
    LargeReply,
}

impl Kind {
    /// Every kind, with its name on the wire.
    pub const NAMES: [(Kind, &'static str); 3] = [
        (Kind::Slow, "slow"),
        (Kind::LargeRequest, "large-request"),
        (Kind::LargeReply, "large-reply"),
    ];
}

/// Threshold and length of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Least value that is logged; negative: none is.
    pub from: i64,
    /// Number of entries that the log holds.
    pub entries_max: usize,
}

impl Threshold {
    /// Returns the least value that is logged, if any is.
    pub fn least(&self) -> Option<u64> {
        u64::try_from(self.from)
            .ok()
            .filter(|_| self.entries_max > 0)
    }
}

/// All logs.
#[derive(Default)]
pub struct CommandLogs([Log; 3]);

impl CommandLogs {
    fn log(&self, kind: Kind) -> &Log {
        &self.0[kind as usize]
    }

    /// Adds a call, and removes the oldest ones above the limit.
    pub fn push(&self, kind: Kind, entries_max: usize, entry: Entry) {
        self.log(kind).push(entries_max, entry);
    }

    /// Returns the newest `count` entries.
    pub fn newest(&self, kind: Kind, count: usize) -> Vec<Arc<Entry>> {
        self.log(kind).newest(count)
    }

    /// Returns the number of entries.
    pub fn len(&self, kind: Kind) -> usize {
        self.log(kind).len()
    }

    /// Empties a log; ids are not reset.
    pub fn clear(&self, kind: Kind) {
        self.log(kind).clear();
    }
}

/// Returns the bytes of a request as an array of bulk strings.
pub(crate) fn request_bytes(args: Args<'_>) -> u64 {
    let header = |n: usize| 3 + n.checked_ilog10().map_or(1, |log| log as usize + 1);
    let bulks = args.iter().map(|arg| header(arg.len()) + arg.len() + 2);
    (header(args.len()) + bulks.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use redline_resp::ArgsBuf;

    use super::*;

    fn args(words: &[&[u8]]) -> ArgsBuf {
        let mut args = ArgsBuf::new();
        words.iter().for_each(|word| args.push(word));
        args
    }

    #[test]
    fn requests_are_measured_on_the_wire() {
        let wire = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$10\r\n0123456789\r\n";
        let args = args(&[b"SET", b"", b"0123456789"]);
        assert_eq!(request_bytes(args.as_args()), wire.len() as u64);
    }

    #[test]
    fn the_oldest_go_and_ids_stay() {
        let logs = CommandLogs::default();
        let entry = |value| Entry {
            id: 0,
            at_s: 0,
            value,
            args: Vec::new(),
            addr: String::new(),
            name: Vec::new(),
        };
        (0..5).for_each(|n| logs.push(Kind::Slow, 2, entry(n)));
        let ids: Vec<u64> = logs.newest(Kind::Slow, 10).iter().map(|e| e.id).collect();
        assert_eq!(ids, [4, 3]);
        logs.clear(Kind::Slow);
        assert_eq!(logs.len(Kind::Slow), 0);
        logs.push(Kind::Slow, 2, entry(9));
        assert_eq!(logs.newest(Kind::Slow, 1)[0].id, 5);
        assert_eq!(logs.len(Kind::LargeReply), 0);
    }
}
