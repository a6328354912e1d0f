//! The records of a file, each appended to a [`Writer`]. Must not know in which order they are written, nor where the
//! bytes go.

use redline_types::Value;

use super::{EntryMeta, Recency, opcode};
use crate::{
    ObjectRef, crc64,
    format::{CannotTell, FileVersion, Format},
    object::{Pieces, type_of, write_as},
    primitive::{Writer, write_len, write_string},
};

/// Appends the magic and the version.
pub fn header(out: &mut Writer, format: &Format) {
    out.extend_from_slice(&format.version.magic());
}

/// Appends a fact about the file itself.
pub fn aux(out: &mut Writer, name: &[u8], value: &[u8]) {
    out.push(opcode::AUX);
    write_string(out, name);
    write_string(out, value);
}

/// Appends the number of the database to which the entries that follow belong.
pub fn select_db(out: &mut Writer, db: u64) {
    out.push(opcode::SELECT_DB);
    write_len(out, db);
}

/// Appends the numbers of keys of the database and of those that expire, for a reader that makes room.
pub fn resize_db(out: &mut Writer, keys: u64, expiring: u64) {
    out.push(opcode::RESIZE_DB);
    write_len(out, keys);
    write_len(out, expiring);
}

/// Appends a library of functions, for versions that [have them](FileVersion::has_functions).
pub fn function(out: &mut Writer, text: &[u8]) {
    out.push(opcode::FUNCTION);
    write_string(out, text);
}

/// Appends a key, its value and what stands beside it.
///
/// # Errors
///
/// If the version has no form for the value. Nothing is appended then.
pub fn entry(
    out: &mut Writer,
    format: &Format,
    key: &[u8],
    value: ObjectRef<'_>,
    meta: &EntryMeta,
) -> Result<(), CannotTell> {
    let rdb_type = type_of(value, format.version)?;
    entry_head(out, key, rdb_type, meta);
    write_as(out, value, rdb_type);
    Ok(())
}

/// Appends the beginning of an entry whose value is about to be frozen, and returns how the pieces that follow are
/// written.
///
/// # Errors
///
/// As for [`entry`].
pub fn entry_in_pieces(
    out: &mut Writer,
    format: &Format,
    key: &[u8],
    value: &Value,
    meta: &EntryMeta,
) -> Result<Pieces, CannotTell> {
    let rdb_type = type_of(ObjectRef::Value(value), format.version)?;
    entry_head(out, key, rdb_type, meta);
    Ok(Pieces::begin(out, value, rdb_type))
}

/// Appends the beginning of an entry whose value is a string, which the caller lets follow in any of its forms.
pub fn string_entry_head(out: &mut Writer, key: &[u8], meta: &EntryMeta) {
    const STRING: u8 = 0;
    entry_head(out, key, STRING, meta);
}

fn entry_head(out: &mut Writer, key: &[u8], rdb_type: u8, meta: &EntryMeta) {
    if let Some(at_ms) = meta.expire_at_ms {
        out.push(opcode::EXPIRE_MS);
        out.extend_from_slice(&at_ms.to_le_bytes());
    }
    match meta.recency {
        Some(Recency::IdleSeconds(seconds)) => {
            out.push(opcode::IDLE);
            write_len(out, seconds);
        }
        Some(Recency::Frequency(frequency)) => out.extend([opcode::FREQUENCY, frequency]),
        None => {}
    }
    out.push(rdb_type);
    write_string(out, key);
}

/// Appends the end: its mark, and the checksum of the whole file, which follows from that of all bytes before the
/// mark; `None` for a file without.
pub fn trailer(out: &mut Writer, crc64_of_everything_before: Option<u64>) {
    out.push(opcode::END);
    let checksum = crc64_of_everything_before.map_or(0, |crc| crc64::update(crc, &[opcode::END]));
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Returns the lowest version of Redis that holds the value, but no lower one than 11: that of Redis 7.2 and Valkey up
/// to 8, which all others since then read.
pub fn needs_version(value: ObjectRef<'_>) -> u16 {
    const USUAL: u16 = 11;
    match type_of(value, FileVersion::Redis(USUAL)) {
        Ok(_) => USUAL,
        Err(_) => crate::VERSION,
    }
}
