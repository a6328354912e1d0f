//! Hashes: fields and values, loose or packed, and with an expiry for each field. Must not know other types.

use redline_types::{DataType, Element, Hash, IntBuf, Limits};

use crate::{
    Corrupt, ensure,
    listpack::{read_pack, write_element, write_elements_packed},
    object::Codec,
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

/// End of the range of expiries of fields, as in Redis: 46 bits of milliseconds.
const EXPIRY_MS_MAX: i64 = (1 << 46) - 1;
/// Stands for the soonest expiry where no field expires.
const NO_EXPIRY_MS: i64 = 0;

impl Codec for Hash {
    const RDB_TYPES: &'static [u8] = &[LOOSE, ZIPMAP, ZIPLIST, LISTPACK, TIMED, LISTPACK_TIMED];

    fn rdb_type(&self) -> u8 {
        match self.encoding() {
            "listpack" => LISTPACK,
            "listpackex" => LISTPACK_TIMED,
            _ if soonest(self).is_some() => TIMED,
            _ => LOOSE,
        }
    }

    fn encode(&self, out: &mut Writer) {
        let elements = self.iter().flat_map(|(field, value)| [field, value]);
        match (self.encoding(), soonest(self)) {
            ("listpack", _) => write_elements_packed(out, elements),
            ("listpackex", soonest) => {
                out.extend_from_slice(&soonest.unwrap_or(NO_EXPIRY_MS).to_le_bytes());
                let mut triples: Vec<_> = self.iter_timed().collect();
                // The soonest first, those without an expiry last.
                triples.sort_by_key(|(_, _, at)| at.unwrap_or(i64::MAX));
                let elements = triples
                    .into_iter()
                    .flat_map(|(field, value, at)| [field, value, Element::Int(at.unwrap_or(0))]);
                write_elements_packed(out, elements);
            }
            (_, Some(soonest)) => {
                out.extend_from_slice(&soonest.to_le_bytes());
                write_len(out, self.iter_timed().count() as u64);
                for (field, value, at) in self.iter_timed() {
                    write_len(out, at.map_or(0, |at| (at - soonest) as u64 + 1));
                    write_element(out, field);
                    write_element(out, value);
                }
            }
            (_, None) => {
                write_len(out, self.len() as u64);
                elements.for_each(|element| write_element(out, element));
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, rdb_type: u8, limits: &Limits) -> Result<Hash, Corrupt> {
        match rdb_type {
            ZIPMAP => of_elements(packed::zipmap(&reader.string()?)?.into_iter(), limits),
            ZIPLIST => {
                let blob = reader.string()?;
                of_elements(packed::ziplist(&blob)?.into_iter(), &by_count(limits))
            }
            LISTPACK => of_elements(read_pack(reader)?.iter(), &by_count(limits)),
            TIMED => read_timed(reader, rdb_type, limits),
            LISTPACK_TIMED => read_timed(reader, rdb_type, &by_count(limits)),
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
        ensure(hash.set(field, value, limits), "a field twice")?;
    }
    Ok(hash)
}

/// Reads a hash whose fields may expire.
fn read_timed(reader: &mut Reader<'_>, rdb_type: u8, limits: &Limits) -> Result<Hash, Corrupt> {
    const WRONG: Corrupt = Corrupt("the expiry of a field");
    let soonest_ms = i64::from_le_bytes(reader.array()?);
    let count = match rdb_type {
        TIMED => reader.count()?,
        _ => 0,
    };
    let mut hash = Hash::for_loose(count, limits);
    if rdb_type == LISTPACK_TIMED {
        // Also if no field expires any more.
        hash.prepare_expiry();
    }
    let mut add = |field: &[u8], value: &[u8], at_ms: i64| {
        ensure(hash.set(field, value, limits), "a field twice")?;
        ensure((0..=EXPIRY_MS_MAX).contains(&at_ms), WRONG.0)?;
        if at_ms > 0 {
            hash.set_expire_at_ms(field, Some(at_ms));
        }
        Ok(())
    };
    if rdb_type == TIMED {
        for _ in 0..count {
            let span = i64::try_from(reader.number()?).map_err(|_| WRONG)?;
            let at_ms = match span {
                0 => 0,
                span => soonest_ms.checked_add(span - 1).ok_or(WRONG)?,
            };
            add(&reader.string()?, &reader.string()?, at_ms)?;
        }
        return Ok(hash);
    }
    let pack = read_pack(reader)?;
    let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
    let mut elements = pack.iter();
    while let Some(field) = elements.next() {
        let value = elements.next().ok_or(Corrupt("a field without a value"))?;
        let Some(Element::Int(at_ms)) = elements.next() else {
            return Err(WRONG);
        };
        add(
            field.bytes(&mut field_buf),
            value.bytes(&mut value_buf),
            at_ms,
        )?;
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
