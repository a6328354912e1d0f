//! Redis's digest of values and of whole databases: equal contents have equal digests on every server, whatever their
//! encodings and the order in which their tables are walked.
//!
//! Ordered parts are mixed in, one after the other; unordered ones are combined by exclusive or. Must not know: commands.

use std::fmt;

use redline_keyspace::{Trace, ValueRef, View};
use redline_types::Digest as _;
use sha1_smol::Sha1;

/// Number of the string type in Redis's memory.
const STRING_TYPE: u32 = 0;

/// Digest of twenty bytes, shown as forty digits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest([u8; 20]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl redline_types::Digest for Digest {
    fn combine(&mut self, bytes: &[u8]) {
        let hash = Sha1::from(bytes).digest().bytes();
        self.0.iter_mut().zip(hash).for_each(|(a, b)| *a ^= b);
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.combine(bytes);
        self.0 = Sha1::from(self.0).digest().bytes();
    }

    fn mix_f64(&mut self, number: f64) {
        let mut text = Vec::new();
        redline_resp::format_digits(number, &mut text);
        self.mix(&text);
    }

    fn combine_part(&mut self, part: &Digest) {
        self.combine(&part.0);
    }
}

/// Returns the digest of all databases (DEBUG DIGEST).
pub fn of_everything(view: &mut View<'_>) -> Digest {
    let mut digest = Digest::default();
    for db in 0..view.space().databases() {
        view.in_db(db, |view| {
            if view.database().key_count() == 0 {
                return;
            }
            digest.mix(&db.to_be_bytes());
            view.database().for_each(|key, found| {
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

/// Returns the digest of one key's value and of whether it expires; zero without the key (DEBUG DIGEST-VALUE).
pub fn of_value(view: &View<'_>, key: &[u8]) -> Digest {
    let mut digest = Digest::default();
    if let Some(found) = view.find(key, Trace::Quiet) {
        add_value(&mut digest, found.value(), found.expire_at_ms().is_some());
    }
    digest
}

fn add_value(digest: &mut Digest, value: ValueRef<'_>, expires: bool) {
    let type_number = match value {
        ValueRef::String(_) => STRING_TYPE,
        ValueRef::Object(value) => value.kind().object_type(),
    };
    digest.mix(&type_number.to_be_bytes());
    match value {
        ValueRef::String(string) => digest.mix(string.as_bytes()),
        ValueRef::Object(value) => value.digest(digest),
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
