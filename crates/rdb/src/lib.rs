//! Redis's serialised form of a value: the reply of DUMP; and the files that consist of such
//! values, which replicas are sent as well.
//!
//! Start with [`object`] (one value, of any type; each type has a file of its own), then [`payload`] (the frame that
//! DUMP puts around it) and [`file`](mod@file) (what stands around values in files). [`format`](mod@format) has the
//! versions of files, and the parts that tell where a value ends. [`primitive`] has the lengths and strings of all
//! forms, [`packed`] the packed forms that older servers wrote, and `module` the frame of modules' values.
//!
//! Input is not trusted. It is checked whole: a value that is damaged anywhere is refused, and memory is never
//! allocated because a header claims a length, only for bytes that have arrived. Payloads are those of Redis 8.2.3;
//! files are of the version that the caller names.
//!
//! Must not know: databases and their keys, whether a key has expired, where bytes come from and go to.
#![forbid(unsafe_code)]

mod bloom;
mod count_min;
pub mod crc64;
mod cuckoo;
mod ex_hash;
mod ex_string;
mod ex_zset;
pub mod file;
pub mod format;
pub mod functions;
mod gis;
mod hash;
mod json;
mod list;
mod listpack;
pub mod lzf;
mod module;
pub mod object;
pub mod packed;
pub mod payload;
pub mod primitive;
mod roaring_bitmap;
mod series;
mod set;
mod stream;
mod t_digest;
mod timelines;
mod top_k;
mod vector_set;
mod zset;

pub use format::{CannotTell, FileVersion, Format, ModuleType};
pub use object::{Object, ObjectRef};
pub use payload::{RestoreError, dump, dump_for_any, dump_in_place, restore};

/// The version of payloads, and the highest of Redis's that is read: that of Redis 8.2.
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
