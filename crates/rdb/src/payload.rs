//! The payload that DUMP returns and RESTORE takes: an object, the version of the format, and a checksum over both. Must
//! not know keys.

use redline_types::{Limits, Value};

use crate::{
    Corrupt, Object, ObjectRef, VERSION, crc64,
    format::FileVersion,
    object::{read, type_of, write_as},
    primitive::{Reader, Writer},
};

/// Reason why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// It is too short, of a newer version, or its checksum does not match.
    VersionOrChecksum,
    /// The object inside is damaged, or of an unknown type.
    Object(Corrupt),
}

impl From<Corrupt> for RestoreError {
    fn from(corrupt: Corrupt) -> RestoreError {
        RestoreError::Object(corrupt)
    }
}

/// Returns the payload of an object. `compresses`: see [`Writer::new`].
pub fn dump(object: ObjectRef<'_>, compresses: bool) -> Vec<u8> {
    dump_as(Writer::of_payload(compresses), object, VERSION)
}

/// Returns the payload of an object that stays in its database, with what it has of other keys.
pub fn dump_in_place(object: ObjectRef<'_>, compresses: bool) -> Vec<u8> {
    dump_as(Writer::new(compresses), object, VERSION)
}

/// Returns the payload in the lowest version that has all of the object, from that of Redis 7.0 on: servers take no payload of
/// a version later than their own, whatever is in it.
pub fn dump_for_any(object: ObjectRef<'_>, compresses: bool) -> Vec<u8> {
    // Version 10 has not when a consumer of a stream was last active.
    let lowest = match object {
        ObjectRef::Value(Value::Stream(_)) => 11,
        _ => 10,
    };
    let holds = |version: &u16| type_of(object, FileVersion::Redis(*version)).is_ok();
    let version = (lowest..VERSION).find(holds).unwrap_or(VERSION);
    dump_as(Writer::of_payload(compresses), object, version)
}

fn dump_as(mut out: Writer, object: ObjectRef<'_>, version: u16) -> Vec<u8> {
    let rdb_type = type_of(object, FileVersion::Redis(version)).expect("it was chosen so");
    out.push(rdb_type);
    write_as(&mut out, object, rdb_type);
    out.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64::update(0, &out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.into_bytes()
}

/// Returns the object of a payload, in the encoding that the limits require.
pub fn restore(payload: &[u8], limits: &Limits) -> Result<Object, RestoreError> {
    const WRONG: RestoreError = RestoreError::VersionOrChecksum;
    let (signed, checksum) = payload.split_last_chunk::<8>().ok_or(WRONG)?;
    let (body, version) = signed.split_last_chunk::<2>().ok_or(WRONG)?;
    let is_right = || u64::from_le_bytes(*checksum) == crc64::update(0, signed);
    if !(limits.payload_checksum_skipped || is_right()) {
        return Err(WRONG);
    }
    let number = u16::from_le_bytes(*version);
    let version = match FileVersion::Valkey(number) {
        _ if number <= VERSION => FileVersion::LATEST,
        FileVersion::VALKEY => FileVersion::VALKEY,
        _ => return Err(WRONG),
    };
    let mut reader = Reader::new(body);
    let kind = reader.byte()?;
    let object = read(&mut reader, version, kind, limits)?;
    if !reader.is_empty() {
        return Err(Corrupt("bytes behind the object").into());
    }
    Ok(object)
}
