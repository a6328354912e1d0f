//! The contents of a value, as they enter a digest: equal contents enter alike, whatever their encoding and the order
//! in which a table is walked. Must not know how a digest is computed.

use crate::{Element, IntBuf};

/// A digest of contents: see [`DataType::digest`](crate::DataType::digest). A fresh one is that of nothing.
pub trait Digest: Default {
    /// Adds the next bytes of ordered contents.
    fn mix(&mut self, bytes: &[u8]);

    /// Adds bytes of unordered contents.
    fn combine(&mut self, bytes: &[u8]);

    /// Adds the next number, as a text whose form the digest decides.
    fn mix_f64(&mut self, number: f64);

    /// Adds a part of unordered contents, of which there is a digest.
    fn combine_part(&mut self, part: &Self);

    /// Adds the bytes of an element as [`Digest::mix`] does.
    fn mix_element(&mut self, element: Element<'_>) {
        self.mix(element.bytes(&mut IntBuf::new()));
    }

    /// Adds the bytes of an element as [`Digest::combine`] does.
    fn combine_element(&mut self, element: Element<'_>) {
        self.combine(element.bytes(&mut IntBuf::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, Hash, Limits, List, Set, Value, Zset};

    /// The parts that were added: those in order, and those without an order, sorted.
    #[derive(Debug, Default, PartialEq)]
    struct Told(Vec<String>, Vec<String>);

    impl Digest for Told {
        fn mix(&mut self, bytes: &[u8]) {
            self.0.push(String::from_utf8_lossy(bytes).into_owned());
        }

        fn combine(&mut self, bytes: &[u8]) {
            self.1.push(String::from_utf8_lossy(bytes).into_owned());
            self.1.sort_unstable();
        }

        fn mix_f64(&mut self, number: f64) {
            self.mix(number.to_string().as_bytes());
        }

        fn combine_part(&mut self, part: &Told) {
            self.combine(format!("{part:?}").as_bytes());
        }
    }

    fn told(value: impl Into<Value>) -> Told {
        let mut told = Told::default();
        value.into().digest(&mut told);
        told
    }

    /// Returns one collection of each type with these elements.
    fn collections<'a>(
        elements: impl Iterator<Item = &'a str> + Clone,
        limits: &Limits,
    ) -> [Value; 4] {
        let (mut list, mut hash) = (List::new(), Hash::new());
        let (mut set, mut zset) = (Set::new(), Zset::new());
        for element in elements.map(str::as_bytes) {
            list.push_back(element, limits);
            hash.set(element, b"value", limits);
            set.add(element, limits);
            zset.add(element, 1.5, Default::default(), limits)
                .expect("it is a number");
        }
        [list.into(), hash.into(), set.into(), zset.into()]
    }

    #[test]
    fn equal_contents_are_told_alike_in_every_encoding() {
        let small = Limits {
            list_max_listpack_size: 1,
            hash_max_listpack_entries: 1,
            set_max_listpack_entries: 1,
            set_max_intset_entries: 1,
            zset_max_listpack_entries: 1,
            ..Limits::default()
        };
        let elements = ["b", "1", "c", "22"];
        let packed = collections(elements.into_iter(), &Limits::default());
        let large = collections(elements.into_iter(), &small);
        let turned = collections(elements.into_iter().rev(), &small);
        let other = collections(["b", "1", "c", "23"].into_iter(), &small);
        for (at, value) in packed.into_iter().enumerate() {
            let kind = value.kind();
            assert_ne!(value.encoding(), large[at].encoding());
            let all = told(value);
            assert_eq!(all, told(large[at].clone()), "{kind:?}");
            assert_eq!(all == told(turned[at].clone()), kind.name() != "list");
            assert_ne!(all, told(other[at].clone()), "{kind:?}");
        }
    }

    #[test]
    fn a_field_that_expires_is_told_from_one_that_stays() {
        let mut hash = Hash::new();
        hash.set(b"f", b"v", &Limits::default());
        let stays = told(hash.clone());
        hash.set_expire_at_ms(b"f", Some(1));
        assert_ne!(told(hash), stays);
    }

    #[test]
    fn the_score_and_its_member_belong_together() {
        let limits = Limits::default();
        let zset = |pairs: [(&str, f64); 2]| {
            let mut zset = Zset::new();
            for (member, score) in pairs {
                let added = zset.add(member.as_bytes(), score, Default::default(), &limits);
                assert!(added.is_ok());
            }
            assert_eq!(zset.len(), 2);
            told(zset)
        };
        assert_ne!(
            zset([("a", 1.0), ("b", 2.0)]),
            zset([("a", 2.0), ("b", 1.0)])
        );
    }
}
