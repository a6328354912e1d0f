//! Redis's serialised form of a value: what DUMP answers, and what files and replicas hold.
//!
//! Start with [`object`] (one value, of whichever type; each type has a file of its own), then [`payload`] (what DUMP puts
//! around it). [`primitive`] has the lengths and strings that everything is made of, [`packed`] the packed forms that older servers wrote.
//!
//! What is read may come from anybody. It is checked whole: a value that is damaged anywhere is refused, and nothing is
//! ever allocated because a header says so, only because bytes have arrived. What is written is what Redis 8.2.3 writes.
//!
//! Must not know: keys, their expiry, sockets, files.
#![forbid(unsafe_code)]

pub mod crc64;
pub mod functions;
mod hash;
mod list;
mod listpack;
pub mod lzf;
pub mod object;
pub mod packed;
pub mod payload;
pub mod primitive;
mod set;
mod stream;
mod vector_set;
mod zset;

pub use object::{Object, ObjectRef};
pub use payload::{RestoreError, dump, restore};

/// The version of the format that is written, and the highest that is read: that of Redis 8.2.
pub const VERSION: u16 = 12;

/// The error for input that is damaged, or of a kind that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(
    /// The condition that does not hold, for a log.
    pub &'static str,
);

/// `Ok`, if it holds.
pub(crate) fn ensure(holds: bool, what: &'static str) -> Result<(), Corrupt> {
    if holds { Ok(()) } else { Err(Corrupt(what)) }
}
