//! Redis's serialised form of a value: the reply of DUMP, and the contents of files and replication.
//!
//! Start with [`object`] (one value, of any type; each type has a file of its own), then [`payload`] (the frame that DUMP puts
//! around it). [`primitive`] has the lengths and strings of all forms, [`packed`] the packed forms that older servers wrote.
//!
//! Input is not trusted. It is checked whole: a value that is damaged anywhere is refused, and memory is never
//! allocated because a header claims a length, only for bytes that have arrived. Output is that of Redis 8.2.3.
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

/// The version of the format written, and the highest that is read: that of Redis 8.2.
pub const VERSION: u16 = 12;

/// Error for input that is damaged, or of an unknown kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(
    /// Condition that does not hold, for a log.
    pub &'static str,
);

/// Returns `Ok` if the condition holds.
pub(crate) fn ensure(holds: bool, what: &'static str) -> Result<(), Corrupt> {
    if holds { Ok(()) } else { Err(Corrupt(what)) }
}
