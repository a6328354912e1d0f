//! Hashes: fields and values, loose or packed, and with an expiry for each field. Must not know other types.

use redline_types::{DataType, Element, Hash, IntBuf, Limits};

use crate::{
    Corrupt, ensure,
    format::{CannotTell, FileVersion, ModuleType, Part},
    listpack::{read_pack, write_element, write_elements_packed},
    object::{Codec, Rest},
    packed,
    primitive::{Reader, Writer, write_len},
};

const LOOSE: u8 = 4;
const ZIPMAP: u8 = 9;
const ZIPLIST: u8 = 13;
const LISTPACK: u8 = 16;
/// Form with an expiry for each field, relative to the soonest.
const TIMED: u8 = 24;
/// Form with triples of field, value and expiry.
const LISTPACK_TIMED: u8 = 25;

/// Forms like the two before, of release candidates of Redis 7.4: times are absolute, and the soonest does not come
/// first.
const TIMED_EARLY: u8 = 22;
const LISTPACK_TIMED_EARLY: u8 = 23;
/// Form of Valkey, with an expiry behind each value.
const VALKEY_TIMED: u8 = 22;

/// Versions of Redis since which there are listpacks, and fields that expire.
const LISTPACKS_SINCE: u16 = 10;
const TIMED_SINCE: u16 = 12;

/// End of the range of expiries of fields, as in Redis: 46 bits of milliseconds.
const EXPIRY_MS_MAX: i64 = (1 << 46) - 1;
/// Stands for the soonest expiry where no field expires.
const NO_EXPIRY_MS: i64 = 0;
/// Stands for no expiry in Valkey's form.
const VALKEY_NO_EXPIRY_MS: i64 = -1;

const WRONG_ZIPLIST: Corrupt = Corrupt("Hash ziplist integrity check failed");
const WRONG_EXPIRY: Corrupt = Corrupt("the expiry of a field");

impl Codec for Hash {
    fn parts(version: FileVersion, rdb_type: u8) -> Option<&'static [Part]> {
        use {FileVersion::*, Part::*};
        Some(match (rdb_type, version) {
            (LOOSE, _) => &[Each(&[String, String])],
            (ZIPMAP | ZIPLIST | LISTPACK, _) => &[String],
            (TIMED_EARLY, Redis(12)) => &[Each(&[Number, String, String])],
            (LISTPACK_TIMED_EARLY, Redis(12)) => &[String],
            (TIMED, Redis(_)) => &[Bytes(8), Each(&[Number, String, String])],
            (LISTPACK_TIMED, Redis(_)) => &[Bytes(8), String],
            (VALKEY_TIMED, Valkey(_)) => &[Each(&[String, String, Bytes(8)])],
            _ => return None,
        })
    }

    fn rdb_type(&self, version: FileVersion) -> Result<u8, CannotTell> {
        let has_timed = self.earliest_expiry_ms().is_some();
        let is_packed = match self.encoding() {
            "listpackex" if version.redis_forms() >= TIMED_SINCE => return Ok(LISTPACK_TIMED),
            encoding => matches!(encoding, "listpack" | "listpackex"),
        };
        if has_timed {
            return match version {
                FileVersion::Valkey(_) => Ok(VALKEY_TIMED),
                _ if version.redis_forms() >= TIMED_SINCE => Ok(TIMED),
                _ => Err(CannotTell {
                    what: "a hash with fields that expire",
                }),
            };
        }
        Ok(
            match is_packed && version.redis_forms() >= LISTPACKS_SINCE {
                true => LISTPACK,
                false => LOOSE,
            },
        )
    }

    fn encode(&self, out: &mut Writer, rdb_type: u8) {
        let elements = self.iter().flat_map(|(field, value)| [field, value]);
        match rdb_type {
            LISTPACK => write_elements_packed(out, elements),
            LISTPACK_TIMED => {
                out.extend_from_slice(&soonest(self).unwrap_or(NO_EXPIRY_MS).to_le_bytes());
                let mut triples: Vec<_> = self.iter_timed().collect();
                // The soonest first, those without an expiry last.
                triples.sort_by_key(|(_, _, at)| at.unwrap_or(i64::MAX));
                let elements = triples
                    .into_iter()
                    .flat_map(|(field, value, at)| [field, value, Element::Int(at.unwrap_or(0))]);
                write_elements_packed(out, elements);
            }
            TIMED => {
                let soonest = soonest(self).unwrap_or(NO_EXPIRY_MS);
                out.extend_from_slice(&soonest.to_le_bytes());
                write_len(out, self.len() as u64);
                for (field, value, at) in self.iter_timed() {
                    write_len(out, at.map_or(0, |at| (at - soonest) as u64 + 1));
                    write_element(out, field);
                    write_element(out, value);
                }
            }
            VALKEY_TIMED => {
                write_len(out, self.len() as u64);
                for (field, value, at) in self.iter_timed() {
                    write_element(out, field);
                    write_element(out, value);
                    out.extend_from_slice(&at.unwrap_or(VALKEY_NO_EXPIRY_MS).to_le_bytes());
                }
            }
            _ => {
                write_len(out, self.len() as u64);
                elements.for_each(|element| write_element(out, element));
            }
        }
    }

    fn encode_head(&self, out: &mut Writer, rdb_type: u8) -> Rest {
        // No later than the soonest one, which is all that a reader may take it for.
        let from_ms = self.earliest_expiry_ms().unwrap_or(NO_EXPIRY_MS).max(0);
        if rdb_type == TIMED {
            out.extend_from_slice(&from_ms.to_le_bytes());
        }
        write_len(out, self.len() as u64);
        Rest {
            number: from_ms,
            tail: Vec::new(),
        }
    }

    fn encode_piece(&mut self, out: &mut Writer, rdb_type: u8, from_ms: i64) -> bool {
        let is_relative = rdb_type == TIMED;
        let is_absolute = !is_relative && rdb_type == VALKEY_TIMED;
        self.give_piece(&mut |field, value, at| {
            if is_relative {
                write_len(out, at.map_or(0, |at| (at - from_ms) as u64 + 1));
            }
            write_element(out, field);
            write_element(out, value);
            if is_absolute {
                out.extend_from_slice(&at.unwrap_or(VALKEY_NO_EXPIRY_MS).to_le_bytes());
            }
        })
    }

    fn decode(
        reader: &mut Reader<'_>,
        version: FileVersion,
        rdb_type: u8,
        _: Option<ModuleType>,
        limits: &Limits,
    ) -> Result<Hash, Corrupt> {
        match (rdb_type, version) {
            (ZIPMAP, _) => of_elements(packed::zipmap(&reader.string()?)?.into_iter(), limits),
            (ZIPLIST, _) => {
                let blob = reader.string()?;
                let elements = packed::ziplist(&blob, WRONG_ZIPLIST)?;
                of_elements(elements.into_iter(), &by_count(limits))
            }
            (LISTPACK, _) => of_elements(read_pack(reader)?.iter(), &by_count(limits)),
            (VALKEY_TIMED, FileVersion::Valkey(_)) => read_valkey_timed(reader, limits),
            (TIMED | TIMED_EARLY, _) => read_timed(reader, rdb_type == TIMED, limits),
            (LISTPACK_TIMED, _) => {
                // It follows from the fields.
                let _soonest_ms = reader.array::<8>()?;
                read_packed_timed(reader, &by_count(limits))
            }
            (LISTPACK_TIMED_EARLY, _) => read_packed_timed(reader, &by_count(limits)),
            _ => read_loose(reader, limits),
        }
    }
}

/// Returns the time at which the first field of a hash expires.
fn soonest(hash: &Hash) -> Option<i64> {
    hash.iter_timed().filter_map(|(_, _, at)| at).min()
}

/// Returns limits under which a hash that was packed by its writer stays packed, whatever the length of its texts,
/// unless it has too many fields.
fn by_count(limits: &Limits) -> Limits {
    Limits {
        hash_max_listpack_value: usize::MAX,
        ..limits.clone()
    }
}

fn read_loose(reader: &mut Reader<'_>, limits: &Limits) -> Result<Hash, Corrupt> {
    let count = reader.count()?;
    let mut hash = Hash::for_loose(count, limits);
    for _ in 0..count {
        let (field, value) = (reader.string()?, reader.string()?);
        ensure(hash.set(&field, &value, limits), "a field twice")?;
    }
    Ok(hash)
}

fn of_elements<'a>(
    mut elements: impl Iterator<Item = Element<'a>>,
    limits: &Limits,
) -> Result<Hash, Corrupt> {
    let mut hash = Hash::new();
    let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
    while let Some(field) = elements.next() {
        let value = elements.next().ok_or(Corrupt("a field without a value"))?;
        let (field, value) = (field.bytes(&mut field_buf), value.bytes(&mut value_buf));
        ensure(
            hash.set(field, value, limits),
            "Hash listpack with dup elements",
        )?;
    }
    Ok(hash)
}

/// Adds a field that expires at a time, or never at 0.
fn add_timed(
    hash: &mut Hash,
    field: &[u8],
    value: &[u8],
    at_ms: i64,
    limits: &Limits,
) -> Result<(), Corrupt> {
    ensure(hash.set(field, value, limits), "a field twice")?;
    ensure((0..=EXPIRY_MS_MAX).contains(&at_ms), WRONG_EXPIRY.0)?;
    if at_ms > 0 {
        hash.set_expire_at_ms(field, Some(at_ms));
    }
    Ok(())
}

/// Reads a hash whose fields may expire; `is_relative`: the times are counted from the soonest, which comes first.
fn read_timed(
    reader: &mut Reader<'_>,
    is_relative: bool,
    limits: &Limits,
) -> Result<Hash, Corrupt> {
    // A time of 1 stands for the first millisecond there is.
    let from_ms = match is_relative {
        true => i64::from_le_bytes(reader.array()?),
        false => 1,
    };
    let count = reader.count()?;
    let mut hash = Hash::for_loose(count, limits);
    for _ in 0..count {
        let span = i64::try_from(reader.number()?).map_err(|_| WRONG_EXPIRY)?;
        let at_ms = match span {
            0 => 0,
            span => from_ms.checked_add(span - 1).ok_or(WRONG_EXPIRY)?,
        };
        let (field, value) = (reader.string()?, reader.string()?);
        add_timed(&mut hash, &field, &value, at_ms, limits)?;
    }
    Ok(hash)
}

/// Reads a listpack of fields, values and times.
fn read_packed_timed(reader: &mut Reader<'_>, limits: &Limits) -> Result<Hash, Corrupt> {
    let mut hash = Hash::new();
    // Also if no field expires any more.
    hash.prepare_expiry();
    let pack = read_pack(reader)?;
    let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
    let mut elements = pack.iter();
    while let Some(field) = elements.next() {
        let value = elements.next().ok_or(Corrupt("a field without a value"))?;
        let Some(Element::Int(at_ms)) = elements.next() else {
            return Err(WRONG_EXPIRY);
        };
        let (field, value) = (field.bytes(&mut field_buf), value.bytes(&mut value_buf));
        add_timed(&mut hash, field, value, at_ms, limits)?;
    }
    Ok(hash)
}

/// Reads Valkey's form of a hash whose fields may expire.
fn read_valkey_timed(reader: &mut Reader<'_>, limits: &Limits) -> Result<Hash, Corrupt> {
    let count = reader.count()?;
    let mut hash = Hash::for_loose(count, limits);
    for _ in 0..count {
        let (field, value) = (reader.string()?, reader.string()?);
        // Valkey has no end of the range of times. A time beyond ours is as good as the last one.
        let at_ms = match i64::from_le_bytes(reader.array()?) {
            VALKEY_NO_EXPIRY_MS => 0,
            at_ms if at_ms > 0 => at_ms.min(EXPIRY_MS_MAX),
            _ => return Err(WRONG_EXPIRY),
        };
        add_timed(&mut hash, &field, &value, at_ms, limits)?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use redline_types::Value;

    use super::*;
    use crate::{Object, ObjectRef, dump, restore};

    /// Payload of Redis 8.2.3, after `HSET h a 1 b 2`, `HPEXPIREAT h 9999999999999 FIELDS 1 a` and `HDEL h a`.
    const LOST_ITS_EXPIRING_FIELD: &[u8] =
        b"\x19\0\0\0\0\0\0\0\0\x0e\x0e\0\0\0\x03\0\x81b\x02\x02\x01\0\x01\xff\x0c\0\x15\xc1a\x07\xd7Rt\x19";

    #[test]
    fn a_hash_whose_expiring_fields_had_gone_was_dumped_with_a_time_of_its_own() {
        let object = restore(LOST_ITS_EXPIRING_FIELD, &Limits::default()).expect("a payload");
        let Object::Value(value @ Value::Hash(hash)) = &object else {
            panic!("not a hash");
        };
        assert_eq!(hash.iter().count(), 1);
        assert_eq!(dump(ObjectRef::Value(value), true), LOST_ITS_EXPIRING_FIELD);
    }
}
