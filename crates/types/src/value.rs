//! Types of values besides strings: one list of them, [`data_types!`](crate::data_types), from which everything else is
//! derived, here and in the crates above. A new type is a file that implements [`DataType`], a line in the list, and
//! the line that makes the file a module. Must not know keys, expiry or how a type is written to a file.

use std::sync::Arc;

use redline_table::frozen::FreezeId;

use crate::Digest;
use crate::packed::{PackedForm, PackedRef};
use crate::series::Label;

/// Elements above which a value is given out in pieces.
const WHOLE_LEN_MAX: usize = 1_024;
/// Bytes above which a value is given out in pieces.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// The list of types. `data_types!(table)` calls the macro `table` with its rows, each of which is a type's
/// documentation, its name and a comma: a table that is made of them has every type.
#[macro_export]
macro_rules! data_types {
    ($table:ident) => {
        $table! {
            /// A sequence of byte strings, quick at both ends.
            List,
            /// Fields, each with a value.
            Hash,
            /// Members without order.
            Set,
            /// Members ordered by score, then by bytes.
            Zset,
            /// An append-only log of entries under growing ids.
            Stream,
            /// Members with vectors, found by nearness.
            VectorSet,
            /// A string with a version and flags.
            ExString,
            /// Fields, each with a value and a version.
            ExHash,
            /// Members ordered by scores of several parts, then by bytes.
            ExZset,
            /// A compressed bitmap.
            Roaring,
            /// A Bloom filter: items that may be found though they are not there.
            Bloom,
            /// A cuckoo filter: the same, from which items can be deleted.
            Cuckoo,
            /// A count-min sketch: counts that may be too high.
            CountMin,
            /// The most frequent items.
            TopK,
            /// A t-digest: quantiles of numbers.
            TDigest,
            /// Samples in the order of their times.
            Series,
            /// A JSON document.
            Json,
            /// Geometries under names, found by where they are.
            Area,
            /// Time series under names.
            Timelines,
        }
    };
}

/// The report of elements that have expired, by a type of which some do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// Command that removes elements: its key and they follow.
    pub removal: &'static str,
    /// Name of the keyspace event.
    pub event: &'static str,
}

/// The properties and operations that every type of value provides.
pub trait DataType: Clone + Default {
    /// The name that `TYPE` answers.
    const NAME: &'static str;

    /// The number that Redis has for the type in memory; types of its modules have one in common.
    const OBJECT_TYPE: u32 = 5;

    /// A key may hold an empty value; otherwise it goes with the last element.
    const STAYS_EMPTY: bool = false;

    /// Report of elements that have expired; `None` for a type whose elements do not.
    const EXPIRING: Option<Expiring> = None;

    /// COPY copies it.
    const CAN_COPY: bool = true;

    /// The form of the bytes of an empty value; `None` for a type that is never packed.
    const EMPTY_FORM: Option<PackedForm> = None;

    /// Returns the name that `OBJECT ENCODING` answers.
    fn encoding(&self) -> &'static str;

    /// Returns the number of elements, pairs, members or entries.
    fn len(&self) -> usize;

    /// Returns true if nothing is left.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if a key cannot hold the value, since nothing is left in it.
    #[inline]
    fn leaves_no_key(&self) -> bool {
        !Self::STAYS_EMPTY && self.is_empty()
    }

    /// Returns the number of bytes on the heap, the structure itself included. Takes constant time.
    fn heap_bytes(&self) -> usize;

    /// Returns the approximate number of allocations that dropping it gives back: above some number the caller lets
    /// another thread do it.
    fn free_effort(&self) -> usize;

    /// Moves its tables out of memory that a running compaction gives back.
    fn compact(&mut self) {}

    /// Prefetches the memory that a search for these elements will need. A hint: changes nothing.
    fn look_ahead<'a>(&self, _elements: impl Iterator<Item = &'a [u8]>) {}

    /// Returns a time before which no element expires, as Unix time in milliseconds; `None` if none ever does. Takes
    /// constant time.
    fn earliest_expiry_ms(&self) -> Option<i64> {
        None
    }

    /// Removes up to `max` elements that expired before this Unix time in milliseconds, calls `gone` with each, and
    /// returns how many there were.
    fn remove_due(&mut self, _now_ms: i64, _max: usize, _gone: &mut dyn FnMut(&[u8])) -> usize {
        0
    }

    /// Forgets what the value has of other keys: it is a copy, which nobody else knows.
    fn forget_others(&mut self) {}

    /// Returns the labels by which the key is found besides its name; `None` for a type that has none.
    fn labels(&self) -> Option<&Arc<[Label]>> {
        None
    }

    /// Adds the contents to a digest, behind the number of the type.
    fn digest<D: Digest>(&self, digest: &mut D);

    /// Returns true if the present form is one that can be frozen.
    fn can_freeze(&self) -> bool {
        false
    }

    /// Freezes the value: from now on its pieces, which each type gives in a way of its own, are what it is now. It stays
    /// in this form until the last one was given.
    ///
    /// # Panics
    ///
    /// If the present form [cannot be frozen](DataType::can_freeze).
    fn freeze(&mut self, _id: FreezeId) {
        panic!("a {} of this form is not frozen", Self::NAME);
    }

    /// Returns the name of the freeze, if the value is frozen.
    fn freeze_id(&self) -> Option<FreezeId> {
        None
    }

    /// Ends the freeze, whatever was given.
    fn thaw(&mut self) {}

    /// Returns the whole value as a run of bytes, if its present form is one. Takes constant time.
    fn packed(&self) -> Option<PackedRef<'_>> {
        None
    }

    /// Becomes the value that [`DataType::packed`] returned; the old one is gone, but its memory is used again.
    ///
    /// # Panics
    ///
    /// If that was a value of another type.
    fn load_packed(&mut self, packed: PackedRef<'_>) {
        panic!("a {} is not {:?}", Self::NAME, packed.form);
    }
}

/// One of the types, as the list knows it.
pub trait Collection: DataType + Into<Value> {
    /// Its type.
    const KIND: Kind;

    /// Returns the collection in a value, if it is of this type.
    fn of(value: &Value) -> Option<&Self>;

    /// Returns the collection in a value, to be changed, if it is of this type.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! value {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The types, without a value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        /// A value of one of the types. Two words; `clone` is a deep copy.
        #[derive(Clone)]
        pub enum Value { $($(#[$doc])* $name(Box<crate::$name>),)* }

        impl Kind {
            /// Every type, in the order of the list.
            pub const ALL: &[Kind] = &[$(Kind::$name,)*];

            /// Returns the name that `TYPE` answers.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$name => <crate::$name as DataType>::NAME,)* }
            }

            /// Returns the number that Redis has for the type in memory.
            pub const fn object_type(self) -> u32 {
                match self { $(Kind::$name => <crate::$name as DataType>::OBJECT_TYPE,)* }
            }

            /// Returns true if COPY copies values of the type.
            pub const fn can_copy(self) -> bool {
                match self { $(Kind::$name => <crate::$name as DataType>::CAN_COPY,)* }
            }

            /// Returns the form of the bytes of an empty value; `None` for a type that is never packed.
            #[inline]
            pub const fn empty_form(self) -> Option<PackedForm> {
                match self { $(Kind::$name => <crate::$name as DataType>::EMPTY_FORM,)* }
            }
        }

        impl Value {
            /// Returns the type of this value.
            pub const fn kind(&self) -> Kind {
                match self { $(Value::$name(_) => Kind::$name,)* }
            }

            /// Returns the name that `OBJECT ENCODING` answers.
            pub fn encoding(&self) -> &'static str {
                match self { $(Value::$name(value) => value.encoding(),)* }
            }

            /// Returns the number of elements, pairs, members or entries.
            pub fn len(&self) -> usize {
                match self { $(Value::$name(value) => value.len(),)* }
            }

            /// Returns true if nothing is left in the value.
            pub fn is_empty(&self) -> bool {
                match self { $(Value::$name(value) => value.is_empty(),)* }
            }

            /// Returns true if a key cannot hold the value, since nothing is left in it.
            pub fn leaves_no_key(&self) -> bool {
                match self { $(Value::$name(value) => value.leaves_no_key(),)* }
            }

            /// Returns the number of bytes on the heap. Takes constant time.
            pub fn heap_bytes(&self) -> usize {
                match self { $(Value::$name(value) => value.heap_bytes(),)* }
            }

            /// Returns the approximate number of allocations that dropping it gives back.
            pub fn free_effort(&self) -> usize {
                match self { $(Value::$name(value) => value.free_effort(),)* }
            }

            /// Moves its tables out of memory that a running compaction gives back.
            pub fn compact(&mut self) {
                match self { $(Value::$name(value) => value.compact(),)* }
            }

            /// Prefetches the memory that a search for these elements will need. A hint: changes nothing.
            pub fn look_ahead<'a>(&self, elements: impl Iterator<Item = &'a [u8]>) {
                match self { $(Value::$name(value) => value.look_ahead(elements),)* }
            }

            /// Returns a time before which no element expires, as Unix time in milliseconds; `None` if none ever does.
            pub fn earliest_expiry_ms(&self) -> Option<i64> {
                match self { $(Value::$name(value) => value.earliest_expiry_ms(),)* }
            }

            /// Forgets what the value has of other keys: it is a copy, which nobody else knows.
            pub fn forget_others(&mut self) {
                match self { $(Value::$name(value) => value.forget_others(),)* }
            }

            /// Returns the labels by which the key is found besides its name; `None` for a type that has none.
            pub fn labels(&self) -> Option<&Arc<[Label]>> {
                match self { $(Value::$name(value) => value.labels(),)* }
            }

            /// Adds the contents to a digest, behind the number of the type.
            pub fn digest<D: Digest>(&self, digest: &mut D) {
                match self { $(Value::$name(value) => value.digest(digest),)* }
            }

            /// Returns true if the value is too large to be given out at one go, and can be frozen.
            pub fn is_for_pieces(&self) -> bool {
                let can_freeze = match self { $(Value::$name(value) => value.can_freeze(),)* };
                can_freeze && (self.len() > WHOLE_LEN_MAX || self.heap_bytes() > WHOLE_BYTES_MAX)
            }

            /// Freezes the value: see [`DataType::freeze`].
            pub fn freeze(&mut self, id: FreezeId) {
                match self { $(Value::$name(value) => value.freeze(id),)* }
            }

            /// Returns the name of the freeze, if the value is frozen.
            pub fn freeze_id(&self) -> Option<FreezeId> {
                match self { $(Value::$name(value) => value.freeze_id(),)* }
            }

            /// Ends the freeze, whatever was given.
            pub fn thaw(&mut self) {
                match self { $(Value::$name(value) => value.thaw(),)* }
            }

            /// Returns the whole value as a run of bytes, if its present form is one. Takes constant time.
            #[inline]
            pub fn packed(&self) -> Option<PackedRef<'_>> {
                match self { $(Value::$name(value) => value.packed(),)* }
            }

            /// Becomes another value of its type: see [`DataType::load_packed`].
            #[inline]
            pub fn load_packed(&mut self, packed: PackedRef<'_>) {
                match self { $(Value::$name(value) => value.load_packed(packed),)* }
            }

            /// Makes a value of the bytes that [`Value::packed`] returned.
            pub fn of_packed(packed: PackedRef<'_>) -> Value {
                let mut value = match packed.form.kind() {
                    $(Kind::$name => Value::$name(Box::default()),)*
                };
                value.load_packed(packed);
                value
            }
        }

        $(impl From<crate::$name> for Value {
            fn from(value: crate::$name) -> Value { Value::$name(Box::new(value)) }
        }

        impl Collection for crate::$name {
            const KIND: Kind = Kind::$name;

            #[inline]
            fn of(value: &Value) -> Option<&Self> {
                match value { Value::$name(found) => Some(found), _ => None }
            }

            #[inline]
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value { Value::$name(found) => Some(found), _ => None }
            }
        })*
    };
}

data_types!(value);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    macro_rules! empty {
        ($($(#[$doc:meta])* $name:ident,)*) => {
            const EMPTY: &[fn() -> Value] = &[$(|| crate::$name::default().into(),)*];
        };
    }
    data_types!(empty);

    #[test]
    fn names_are_those_of_the_type_command() {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let known = ["list", "hash", "set", "zset", "stream", "vectorset"];
        assert!(names.starts_with(&known), "{names:?}");
        let others: HashSet<_> = names.iter().filter(|name| **name != "string").collect();
        assert_eq!(others.len(), names.len(), "each has a name of its own");
    }

    #[test]
    fn types_have_numbers_of_their_own_but_for_those_of_modules() {
        let numbers = Kind::ALL.iter().map(|kind| kind.object_type());
        let mut numbers: Vec<u32> = numbers.filter(|number| *number != 5).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 6]);
    }

    #[test]
    fn of_the_types_that_are_no_modules_only_an_empty_stream_stays() {
        let values = EMPTY.iter().map(|make| make());
        let stays = values.filter(|value| !value.leaves_no_key());
        let stays: Vec<_> = stays.map(|value| value.kind()).collect();
        let of_core = stays.iter().filter(|kind| kind.object_type() != 5);
        assert!(of_core.eq(&[Kind::Stream]), "{stays:?}");
    }

    #[test]
    fn a_value_takes_two_words() {
        assert_eq!(size_of::<Value>(), 16);
    }
}
