//! A hash whose fields have versions beside their expiry: Tair's exHash. Must not know a clock, nor who compares
//! versions.
//!
//! It is a [`Hash`], so its forms are those, and its timed fields. The version stands before the value, in the hash's
//! bytes of the value, in groups of 7 bits, the lowest first: one byte up to 127 changes.

use crate::{DataType, Digest, Element, Hash, IntBuf, Limits, value::Expiring};

/// Fields, each with a value and the number of its changes.
#[derive(Clone, Default)]
pub struct ExHash {
    hash: Hash,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExField {
    /// The version, then the value.
    bytes: Vec<u8>,
    value_at: usize,
    /// Number of changes, unless a client has set another.
    pub version: u64,
    /// Time at which the field expires, as Unix time in milliseconds.
    pub expire_at_ms: Option<i64>,
}

impl ExField {
    fn of(bytes: Vec<u8>, expire_at_ms: Option<i64>) -> ExField {
        let (mut version, mut value_at) = (0, 0);
        for byte in &bytes {
            version |= u64::from(byte & 0x7f) << (7 * value_at);
            value_at += 1;
            if *byte < 0x80 || value_at == VERSION_BYTES_MAX {
                break;
            }
        }
        ExField {
            bytes,
            value_at,
            version,
            expire_at_ms,
        }
    }

    /// Returns the value.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.value_at..]
    }
}

const VERSION_BYTES_MAX: usize = 10;

/// Returns a version with the value behind it.
fn joined(version: u64, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(VERSION_BYTES_MAX + value.len());
    let mut rest = version;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes.extend_from_slice(value);
    bytes
}

impl ExHash {
    /// Returns a field, whether it has expired or not.
    pub fn get(&self, field: &[u8]) -> Option<ExField> {
        let (value, expire_at_ms) = self.hash.get_timed(field)?;
        Some(ExField::of(value.to_vec(), expire_at_ms))
    }

    /// Returns a field that has not expired at this Unix time in milliseconds.
    pub fn live(&self, field: &[u8], now_ms: i64) -> Option<ExField> {
        self.get(field).filter(|field| is_live(field, now_ms))
    }

    /// Sets all that a field holds; returns true if it is new. `expire_at_ms`: above 0.
    pub fn set(
        &mut self,
        field: &[u8],
        value: &[u8],
        version: u64,
        expire_at_ms: Option<i64>,
        limits: &Limits,
    ) -> bool {
        let is_new = self.hash.set(field, &joined(version, value), limits);
        if expire_at_ms.is_some() {
            self.hash.set_expire_at_ms(field, expire_at_ms);
        }
        is_new
    }

    /// Removes a field; returns true if it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.hash.remove(field)
    }

    /// Returns all fields, those that have expired included.
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, ExField)> {
        let fields = self.hash.iter_timed();
        fields.map(|(field, value, time)| (field, ExField::of(value.to_vec(), time)))
    }

    /// Visits fields that have not expired from a cursor on, about `count`; returns the next cursor, 0 at the end.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        now_ms: i64,
        mut visit: impl FnMut(Element<'_>, &ExField),
    ) -> u64 {
        self.hash.scan_timed(cursor, count, |field, value, time| {
            let held = ExField::of(value.to_vec(), time);
            if is_live(&held, now_ms) {
                visit(field, &held);
            }
        })
    }
}

/// Returns true if a field has not expired at this Unix time in milliseconds.
pub fn is_live(field: &ExField, now_ms: i64) -> bool {
    field.expire_at_ms.is_none_or(|at| at >= now_ms)
}

impl DataType for ExHash {
    const NAME: &'static str = "tairhash-";
    const EXPIRING: Option<Expiring> = Some(Expiring {
        removal: "EXHDEL",
        event: "exhexpired",
    });

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.hash.len()
    }

    fn heap_bytes(&self) -> usize {
        self.hash.heap_bytes()
    }

    fn free_effort(&self) -> usize {
        self.hash.free_effort()
    }

    fn compact(&mut self) {
        self.hash.compact();
    }

    fn look_ahead<'a>(&self, elements: impl Iterator<Item = &'a [u8]>) {
        self.hash.look_ahead(elements);
    }

    fn earliest_expiry_ms(&self) -> Option<i64> {
        self.hash.earliest_expiry_ms()
    }

    fn remove_due(&mut self, now_ms: i64, max: usize, gone: &mut dyn FnMut(&[u8])) -> usize {
        self.hash.remove_due(now_ms, max, gone)
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        for (field, held) in self.iter() {
            let mut part = D::default();
            part.mix_element(field);
            part.mix(held.value());
            part.mix(&held.version.to_le_bytes());
            part.mix(IntBuf::new().format(held.expire_at_ms.unwrap_or(0)));
            digest.combine_part(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn versions_of_any_size_come_back() {
        for version in [0, 1, 127, 128, 300, 1 << 56, u64::MAX] {
            for value in [&b""[..], b"value", b"12"] {
                let field = ExField::of(joined(version, value), None);
                assert_eq!((field.version, field.value()), (version, value));
            }
        }
    }

    #[test]
    fn it_does_what_a_map_does() {
        let limits = Limits {
            hash_max_listpack_entries: 20,
            ..Limits::default()
        };
        let mut random = fastrand::Rng::with_seed(7);
        let (mut hash, mut model) = (ExHash::default(), BTreeMap::new());
        for _ in 0..5_000 {
            let field = random.u8(b'a'..=b'z').to_string().into_bytes();
            if random.u8(..4) == 0 {
                assert_eq!(hash.remove(&field), model.remove(&field).is_some());
            } else {
                let value = random.u32(..1000).to_string().into_bytes();
                let version = random.u64(..) >> random.u32(..64);
                let at = random.bool().then(|| random.i64(1..1 << 40));
                let is_new = hash.set(&field, &value, version, at, &limits);
                let old = model.insert(field.clone(), (value, version, at));
                assert_eq!(is_new, old.is_none());
            }
            let got = hash.get(&field);
            let got = got.map(|held| (held.value().to_vec(), held.version, held.expire_at_ms));
            assert_eq!(got, model.get(&field).cloned());
            assert_eq!(hash.len(), model.len());
        }
        let fields = hash.iter().map(|(field, held)| {
            let told = (held.value().to_vec(), held.version, held.expire_at_ms);
            (field.to_vec(), told)
        });
        assert_eq!(fields.collect::<BTreeMap<_, _>>(), model);
    }
}
