//! The terms in which one speaks with the writer: settings, states, wishes.
//!
//! Must not know how the writer works.

use std::path::PathBuf;

use super::job::Job;

/// `appendfsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A reply leaves when what it tells is on disk.
    Always,
    /// A sync each second.
    EverySecond,
    /// The kernel decides.
    No,
}

/// The settings of the file, which may change at any time.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `appendfsync`.
    pub policy: Policy,
    /// `aof-timestamp-enabled`: a line with the time when the second changes.
    pub writes_timestamps: bool,
    /// `auto-aof-rewrite-percentage`: growth over the base at which it is rewritten; 0: never.
    pub rewrite_percentage: u64,
    /// `auto-aof-rewrite-min-size`, bytes.
    pub rewrite_bytes_min: u64,
    /// `aof-disable-auto-gc`: files that a rewrite has replaced stay.
    pub keeps_history: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::EverySecond,
            writes_timestamps: false,
            rewrite_percentage: 100,
            rewrite_bytes_min: 64 << 20,
            keeps_history: false,
        }
    }
}

/// A base that has been written, under a name that does not count yet.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its place, on the file system of the folder.
    pub path: PathBuf,
    /// It is on disk; if not, it is synced before it counts.
    pub is_synced: bool,
    /// Number of its bytes.
    pub bytes: u64,
    /// True for a snapshot, false for commands (`aof-use-rdb-preamble`).
    pub is_snapshot: bool,
}

/// The state of the file, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Bytes go nowhere.
    Off,
    /// Bytes go to a file that counts when the first base is there.
    Starting,
    /// Bytes go to the last file.
    On,
    /// As on; a base is being made.
    Rewriting,
    /// Bytes go nowhere and wait: the disk has failed, and clients may not write.
    Refusing,
    /// The last bytes are being synced.
    Ending,
}

/// The condition under which a reply may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// At once.
    Open,
    /// If it tells of nothing after this number.
    UpTo(u64),
}

/// The fate of bytes that were to be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// They are in the file, or the file is off.
    Written,
    /// They wait for the sync of the file before, or for the file itself. The same bytes, and more if there are, are to be given again after the
    /// next [`Writer::done`].
    Wait,
    /// They could not be written. The same bytes, and more if there are, are to be given again after [`RETRY_MS`].
    Refused,
}

/// Something that whoever has the writer is asked to do.
pub enum Wish {
    /// Run a job, in the order of the wishes, and give its result to [`Writer::done`].
    Run(Job),
    /// Write a line to the log.
    Log(Level, String),
    /// Refuse writes of clients with this error.
    Refuse(String),
    /// Accept writes again.
    Accept,
    /// End the process with this code. No reply may leave before.
    Exit(u8),
    /// Cut the data as soon as that is possible, call [`Writer::switch`], and write a base.
    Cut {
        /// Number of the rewrite, for the calls that follow.
        rewrite: u64,
    },
    /// Everything up to this number is on disk.
    Synced(u64),
    /// A rewrite or a start has ended. If it failed, a base that is being written is of no use.
    RewriteEnded {
        /// Its number.
        rewrite: u64,
        /// True if the new base is in its place.
        is_done: bool,
    },
    /// The file is off, and synced if that was possible.
    Stopped,
    /// The process may end.
    Ended {
        /// True if all that was appended is on disk.
        is_synced: bool,
    },
}

/// The weight of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As usual.
    Notice,
    /// Somebody should look.
    Warning,
}
