//! The contents of a value, as a digest is told them: equal contents are told alike, whatever their encoding and the order
//! in which a table is walked. Must not know how a digest is computed.

use crate::{Element, IntBuf};

/// A digest that is told contents: see [`DataType::digest`](crate::DataType::digest). A fresh one has been told nothing.
pub trait Digest: Default {
    /// Takes the next bytes of what has an order.
    fn mix(&mut self, bytes: &[u8]);

    /// Takes bytes of what has no order.
    fn combine(&mut self, bytes: &[u8]);

    /// Takes the next number, whose text is the digest's affair.
    fn mix_f64(&mut self, number: f64);

    /// Takes a part of what has no order, of which there is a digest.
    fn combine_part(&mut self, part: &Self);

    /// The same as [`Digest::mix`] of an element's bytes.
    fn mix_element(&mut self, element: Element<'_>) {
        self.mix(element.bytes(&mut IntBuf::new()));
    }

    /// The same as [`Digest::combine`] of an element's bytes.
    fn combine_element(&mut self, element: Element<'_>) {
        self.combine(element.bytes(&mut IntBuf::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, Hash, Limits, List, Set, Value, Zset};

    /// The parts that were told: those in order, and those without an order, sorted.
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

    /// Each collection of these elements.
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
