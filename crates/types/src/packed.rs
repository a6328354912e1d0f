//! Small collections as runs of bytes, so that a store of values can keep the bytes alone. Must not know the store, nor
//! how many bytes are few.
//!
//! A collection in its compact form is nothing but a sequence: a [`Pack`]'s entries, or elements of one
//! width: integers, or the bytes of an exString. [`DataType::packed`](crate::DataType::packed) returns it, and
//! [`DataType::load_packed`](crate::DataType::load_packed) makes a value of it again, by a copy into the memory that
//! the value has already. The bytes are for this process only: they are used as they were given, without a check, and
//! integers are in the machine's order.

use crate::{Kind, Pack};

/// The form of the bytes of a packed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PackedForm {
    /// The elements of a list.
    List,
    /// Fields and values of a hash by turns; none of them expires.
    Hash,
    /// The members of a set.
    Set,
    /// Members and scores of a sorted set by turns.
    Zset,
    /// The members of a set of integers, ascending, of two bytes each.
    Ints16,
    /// The members of a set of integers, ascending, of four bytes each.
    Ints32,
    /// The members of a set of integers, ascending, of eight bytes each.
    Ints64,
    /// The version, the flags and the bytes of an exString.
    ExString,
}

impl PackedForm {
    /// Every form, in the order of their numbers (`form as u8`).
    pub const ALL: [PackedForm; 8] = [
        PackedForm::List,
        PackedForm::Hash,
        PackedForm::Set,
        PackedForm::Zset,
        PackedForm::Ints16,
        PackedForm::Ints32,
        PackedForm::Ints64,
        PackedForm::ExString,
    ];

    /// Returns the type of such a value.
    #[inline]
    pub const fn kind(self) -> Kind {
        match self {
            PackedForm::List => Kind::List,
            PackedForm::Hash => Kind::Hash,
            PackedForm::Zset => Kind::Zset,
            PackedForm::Set | PackedForm::Ints16 | PackedForm::Ints32 | PackedForm::Ints64 => {
                Kind::Set
            }
            PackedForm::ExString => Kind::ExString,
        }
    }

    /// Returns the encoding of such a value, as OBJECT ENCODING replies it.
    pub const fn encoding(self) -> &'static str {
        match self {
            PackedForm::Ints16 | PackedForm::Ints32 | PackedForm::Ints64 => "intset",
            PackedForm::List | PackedForm::Hash | PackedForm::Set | PackedForm::Zset => "listpack",
            PackedForm::ExString => "raw",
        }
    }

    /// Returns the bytes of an element, where all have the same: their count need not be kept then.
    #[inline]
    pub const fn element_bytes(self) -> Option<usize> {
        match self {
            PackedForm::Ints16 => Some(2),
            PackedForm::Ints32 => Some(4),
            PackedForm::Ints64 => Some(8),
            PackedForm::ExString => Some(1),
            PackedForm::List | PackedForm::Hash | PackedForm::Set | PackedForm::Zset => None,
        }
    }
}

/// A packed value: its bytes, and their form.
#[derive(Clone, Copy, Debug)]
pub struct PackedRef<'a> {
    /// The form of the bytes.
    pub form: PackedForm,
    /// Elements in the bytes; a pair is two.
    pub count: usize,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl PackedRef<'static> {
    /// Returns an empty value of a type; `None` for a type that is never packed.
    #[inline]
    pub const fn empty(kind: Kind) -> Option<PackedRef<'static>> {
        match kind.empty_form() {
            Some(form) => Some(PackedRef {
                form,
                count: 0,
                bytes: &[],
            }),
            None => None,
        }
    }
}

impl PackedRef<'_> {
    /// Returns the elements as a pack of its own; `None` if the bytes are no entries of one.
    pub fn pack(self) -> Option<Pack> {
        match self.form.element_bytes() {
            Some(_) => None,
            None => Some(Pack::of_packed(self)),
        }
    }

    /// Returns the number of elements, pairs or members of the value, as [`DataType::len`](crate::DataType::len) counts
    /// them.
    #[inline]
    pub const fn len(self) -> usize {
        match self.form {
            PackedForm::Hash | PackedForm::Zset => self.count / 2,
            PackedForm::List
            | PackedForm::Set
            | PackedForm::Ints16
            | PackedForm::Ints32
            | PackedForm::Ints64 => self.count,
            PackedForm::ExString => (self.count > 0) as usize,
        }
    }

    /// Returns true if there is no element.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, Hash, Limits, List, Set, Value, Zset};

    fn values() -> Vec<Value> {
        let limits = Limits::default();
        let mut values: Vec<Value> = Vec::new();
        for count in [1, 2, 10, 100] {
            let texts: Vec<String> = (0..count)
                .map(|n| format!("{}{n}", "x".repeat(n % 30)))
                .collect();
            let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            let (mut list, mut hash, mut zset) = (List::new(), Hash::new(), Zset::new());
            list.push(crate::pack::End::Front, texts.iter().copied(), &limits);
            for (n, text) in texts.iter().enumerate() {
                hash.set(text, format!("{n}").as_bytes(), &limits);
                zset.add(text, n as f64 / 3.0, Default::default(), &limits)
                    .unwrap();
            }
            let mut set = Set::new();
            set.add_all(texts.iter().copied(), &limits);
            let mut string = crate::ExString::default();
            string.set(texts[count - 1]);
            string.set_version(count as u64);
            values.extend([
                list.into(),
                hash.into(),
                zset.into(),
                set.into(),
                string.into(),
            ]);
            for shift in [0, 20, 40] {
                let ints: Vec<String> = (0..count)
                    .map(|n| ((n as i64 - 3) << shift).to_string())
                    .collect();
                let mut set = Set::new();
                set.add_all(ints.iter().map(String::as_bytes), &limits);
                values.push(set.into());
            }
        }
        values
    }

    fn dump(value: &Value) -> Vec<Vec<u8>> {
        match value {
            Value::List(list) => list.iter().map(|e| e.to_vec()).collect(),
            Value::Set(set) => set.iter().map(|e| e.to_vec()).collect(),
            Value::Hash(hash) => hash
                .iter()
                .flat_map(|(f, v)| [f.to_vec(), v.to_vec()])
                .collect(),
            Value::Zset(zset) => zset
                .iter()
                .flat_map(|(member, score)| {
                    [member.to_vec(), score.to_bits().to_le_bytes().to_vec()]
                })
                .collect(),
            Value::ExString(string) => vec![
                string.value().to_vec(),
                string.version().to_le_bytes().to_vec(),
            ],
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_value_made_of_its_bytes_is_the_same_value() {
        let values = values();
        for value in &values {
            let packed = value.packed().expect("all of these are small");
            assert_eq!(packed.form.kind(), value.kind());
            assert_eq!(packed.form.encoding(), value.encoding());
            assert_eq!(packed.len(), value.len());
            let copy = Value::of_packed(packed);
            assert_eq!(dump(&copy), dump(value));
            assert_eq!(copy.encoding(), value.encoding());
            let again = copy.packed().expect("it is as small as before");
            assert_eq!(
                (again.form, again.count, again.bytes),
                (packed.form, packed.count, packed.bytes)
            );
        }
    }

    #[test]
    fn what_was_in_the_memory_before_does_not_show() {
        let values = values();
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2000 {
            let (first, second) = (
                &values[random.usize(..values.len())],
                &values[random.usize(..values.len())],
            );
            let mut copy = first.clone();
            if first.kind() == second.kind() {
                copy.load_packed(second.packed().expect("small"));
                assert_eq!(dump(&copy), dump(second));
                assert_eq!(copy.encoding(), second.encoding());
            }
        }
    }

    #[test]
    fn loading_and_small_changes_take_no_other_memory() {
        let limits = Limits::default();
        let mut list = List::new();
        (0..30).for_each(|n| list.push_back(format!("element{n}").as_bytes(), &limits));
        let mut small = List::new();
        small.push_back(b"x", &limits);
        let mut scratch = list.clone();
        scratch.load_packed(list.packed().expect("small"));
        let address = |list: &List| list.packed().expect("small").bytes.as_ptr() as usize;
        let (bytes, begin) = (scratch.heap_bytes(), address(&scratch));
        for value in [&small, &list, &small] {
            scratch.load_packed(value.packed().expect("small"));
            assert_eq!(address(&scratch), begin);
            scratch.push_front(b"some element", &limits);
            scratch.pop(crate::pack::End::Back, 1, &limits, |_| ());
            scratch.load_packed(value.packed().expect("small"));
            assert_eq!((scratch.heap_bytes(), address(&scratch)), (bytes, begin));
        }
    }

    #[test]
    fn large_values_and_those_of_fields_that_expire_are_not_packed() {
        let limits = Limits::default();
        let (mut list, mut hash, mut zset, mut set) =
            (List::new(), Hash::new(), Zset::new(), Set::new());
        for n in 0..5000 {
            let text = format!("element{n}");
            list.push_back(text.as_bytes(), &limits);
            hash.set(text.as_bytes(), b"v", &limits);
            zset.add(text.as_bytes(), 1.0, Default::default(), &limits)
                .unwrap();
            set.add(text.as_bytes(), &limits);
        }
        assert!(list.packed().is_none() && hash.packed().is_none());
        assert!(zset.packed().is_none() && set.packed().is_none());
        let mut hash = Hash::new();
        hash.set(b"f", b"v", &limits);
        assert!(hash.packed().is_some());
        hash.set_expire_at_ms(b"f", Some(1));
        assert!(hash.packed().is_none());
        assert!(Value::from(crate::Stream::default()).packed().is_none());
        for kind in Kind::ALL {
            let empty = PackedRef::empty(*kind).map(Value::of_packed);
            assert!(empty.is_none_or(|value| value.is_empty() && value.kind() == *kind));
        }
    }
}
