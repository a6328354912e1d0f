//! Files: what stands around values, written by [`write`] and read by [`read`]. Must not know databases, nor where
//! bytes come from and go to.
//!
//! A file is a magic with a version, records, and a checksum. A record is a byte that says what it is, and the record;
//! a byte that is no [`opcode`] names the form of a value, which follows behind its key.

mod feed;
pub mod read;
pub mod write;

pub use read::{FileError, FileErrorKind, RawEntry, Record, Scanner, Source, decode};

/// Bytes that say what a record is.
pub mod opcode {
    /// Number of a slot, of its keys, and of those that expire.
    pub const SLOT_INFO: u8 = 244;
    /// A library of functions.
    pub const FUNCTION: u8 = 245;
    /// A library as release candidates of Redis 7.0 wrote it.
    pub const FUNCTION_EARLY: u8 = 246;
    /// Data of a module that belong to no key.
    pub const MODULE_AUX: u8 = 247;
    /// Seconds since the next key was used.
    pub const IDLE: u8 = 248;
    /// How often the next key is used, on the scale of `OBJECT FREQ`.
    pub const FREQUENCY: u8 = 249;
    /// A name and a value, which say where the file is from.
    pub const AUX: u8 = 250;
    /// Numbers of keys and of those that expire.
    pub const RESIZE_DB: u8 = 251;
    /// The next key's expiry as Unix time in milliseconds.
    pub const EXPIRE_MS: u8 = 252;
    /// The next key's expiry as Unix time in seconds.
    pub const EXPIRE_SECONDS: u8 = 253;
    /// Number of the database of the keys that follow.
    pub const SELECT_DB: u8 = 254;
    /// The end; the checksum follows.
    pub const END: u8 = 255;
}

/// Facts about a key that stand beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryMeta {
    /// Unix time in milliseconds at which the key expires.
    pub expire_at_ms: Option<i64>,
    /// Use of the key, for eviction.
    pub recency: Option<Recency>,
}

/// Use of a key, as the server's policy of eviction counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recency {
    /// Seconds since it was used.
    IdleSeconds(u64),
    /// How often it is used, on the scale of `OBJECT FREQ`.
    Frequency(u8),
}
