//! Redis's digest of values and of whole databases: equal contents have equal digests on every server, whatever their
//! encodings and the order in which their tables are walked.
//!
//! What has an order is mixed in, one after the other; what has none is combined by exclusive or. Must not know: commands.

use std::fmt;

use redline_keyspace::{Trace, ValueRef, View};
use redline_types::{DataType, Element, IntBuf, Value, stream::StreamId};
use sha1_smol::Sha1;

/// Twenty bytes, shown as forty digits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest([u8; 20]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Digest {
    /// In any order.
    fn combine(&mut self, bytes: &[u8]) {
        let hash = Sha1::from(bytes).digest().bytes();
        self.0.iter_mut().zip(hash).for_each(|(a, b)| *a ^= b);
    }

    /// In this order.
    fn mix(&mut self, bytes: &[u8]) {
        self.combine(bytes);
        self.0 = Sha1::from(self.0).digest().bytes();
    }

    fn mix_element(&mut self, element: Element<'_>) {
        self.mix(element.bytes(&mut IntBuf::new()));
    }

    /// Mixes these by turns into a digest of their own, which is combined.
    fn combine_mixed(&mut self, parts: &[&[u8]]) {
        let mut own = Digest::default();
        parts.iter().for_each(|part| own.mix(part));
        self.combine(&own.0);
    }
}

/// DEBUG DIGEST: of all databases.
pub fn of_everything(view: &mut View<'_>) -> Digest {
    let mut digest = Digest::default();
    for db in 0..view.space().databases() {
        view.in_db(db, |view| {
            if view.key_count() == 0 {
                return;
            }
            digest.mix(&db.to_be_bytes());
            view.for_each(|key, found| {
                let mut own = Digest::default();
                own.mix(key);
                let expires = found.expire_at_ms().is_some();
                found.with(|value| add_value(&mut own, value, expires));
                digest.combine(&own.0);
            });
        });
    }
    digest
}

/// DEBUG DIGEST-VALUE: of one key's value and whether it expires; zero without the key.
pub fn of_value(view: &View<'_>, key: &[u8]) -> Digest {
    let mut digest = Digest::default();
    if let Some(found) = view.find(key, Trace::Quiet) {
        add_value(&mut digest, found.value(), found.expire_at_ms().is_some());
    }
    digest
}

fn add_value(digest: &mut Digest, value: ValueRef<'_>, expires: bool) {
    let type_number: u32 = match value {
        ValueRef::String(_) => 0,
        ValueRef::Object(Value::List(_)) => 1,
        ValueRef::Object(Value::Set(_)) => 2,
        ValueRef::Object(Value::Zset(_)) => 3,
        ValueRef::Object(Value::Hash(_)) => 4,
        ValueRef::Object(Value::VectorSet(_)) => 5,
        ValueRef::Object(Value::Stream(_)) => 6,
    };
    digest.mix(&type_number.to_be_bytes());
    let (mut a, mut b, mut text) = (IntBuf::new(), IntBuf::new(), Vec::new());
    match value {
        ValueRef::String(string) => digest.mix(string.as_bytes()),
        ValueRef::Object(Value::List(list)) => list.iter().for_each(|e| digest.mix_element(e)),
        ValueRef::Object(Value::Set(set)) => set
            .iter()
            .for_each(|member| digest.combine(member.bytes(&mut a))),
        ValueRef::Object(Value::Zset(zset)) => zset.iter().for_each(|(member, score)| {
            text.clear();
            redline_resp::format_digits(score, &mut text);
            digest.combine_mixed(&[member.bytes(&mut a), &text]);
        }),
        ValueRef::Object(Value::Hash(hash)) => {
            hash.iter_timed().for_each(|(field, value, time)| {
                let mut own = Digest::default();
                own.mix(field.bytes(&mut a));
                own.mix(value.bytes(&mut b));
                if time.is_some() {
                    own.combine(b"!!hexpire!!");
                }
                digest.combine(&own.0);
            })
        }
        ValueRef::Object(Value::VectorSet(set)) => {
            let mut all = Digest::default();
            let mut own = Digest::default();
            own.mix(set.len().to_string().as_bytes());
            own.mix(set.shape().dimensions.to_string().as_bytes());
            all.combine(&own.0);
            for element in set.iter() {
                let mut own = Digest::default();
                text.clear();
                element.stored().write_bytes(&mut text);
                own.mix(&text);
                own.mix(element.name());
                element
                    .attributes()
                    .inspect(|attributes| own.mix(attributes));
                all.combine(&own.0);
            }
            digest.combine(&all.0);
        }
        ValueRef::Object(Value::Stream(stream)) => {
            for entry in stream.range(StreamId::MIN, StreamId::MAX) {
                digest.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                for (name, value) in entry.fields() {
                    digest.mix(name);
                    digest.mix(value);
                }
            }
        }
    }
    if expires {
        digest.combine(b"!!expire!!");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_where_it_is_mixed_and_not_where_it_is_combined() {
        let mixed = |parts: [&[u8]; 2]| {
            let mut digest = Digest::default();
            parts.iter().for_each(|part| digest.mix(part));
            digest.to_string()
        };
        assert_ne!(mixed([b"x", b"y"]), mixed([b"y", b"x"]));
        let combined = |parts: [&[u8]; 2]| {
            let mut digest = Digest::default();
            parts.iter().for_each(|part| digest.combine(part));
            digest.to_string()
        };
        assert_eq!(combined([b"x", b"y"]), combined([b"y", b"x"]));
    }
}
