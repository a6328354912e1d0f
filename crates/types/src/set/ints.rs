//! A sorted array of integers, as narrow as the widest of them requires. Must not know texts.
//!
//! The integers are kept as their bytes, so that the whole array can be returned as one run of them.

use crate::packed::{PackedForm, PackedRef};

/// Room to leave for growing: an eighth, and at least this number.
const ROOM_MIN: usize = 4;
/// Capacity below which giving memory back is not worth a copy.
const SHRINK_BYTES_MIN: usize = 2048;

/// The integers, each once, in ascending order. An array gets wider when it must, and stays so.
#[derive(Clone)]
pub(super) enum Ints {
    W16(Vec<[u8; 2]>),
    W32(Vec<[u8; 4]>),
    W64(Vec<[u8; 8]>),
}

/// The bytes of an integer, in the machine's order.
trait Bytes: Copy {
    fn wide(self) -> i64;
    /// Returns true if the integer fits.
    fn narrow(value: i64) -> Self;
}

macro_rules! widths {
    ($($int:ty),*) => {$(
        impl Bytes for [u8; size_of::<$int>()] {
            #[inline]
            fn wide(self) -> i64 {
                i64::from(<$int>::from_ne_bytes(self))
            }
            #[inline]
            fn narrow(value: i64) -> Self {
                debug_assert!(<$int>::try_from(value).is_ok());
                (value as $int).to_ne_bytes()
            }
        }
    )*};
}
widths!(i16, i32, i64);

/// Runs the same code on whichever array there is.
macro_rules! on_array {
    ($self:expr, $array:ident => $body:expr) => {
        match $self {
            Ints::W16($array) => $body,
            Ints::W32($array) => $body,
            Ints::W64($array) => $body,
        }
    };
}

impl Ints {
    pub(super) const fn new() -> Ints {
        Ints::W16(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        on_array!(self, array => array.len())
    }

    pub(super) fn heap_bytes(&self) -> usize {
        on_array!(self, array => array.capacity() * width(array))
    }

    #[inline]
    pub(super) fn packed(&self) -> PackedRef<'_> {
        let (form, bytes) = match self {
            Ints::W16(array) => (PackedForm::Ints16, array.as_flattened()),
            Ints::W32(array) => (PackedForm::Ints32, array.as_flattened()),
            Ints::W64(array) => (PackedForm::Ints64, array.as_flattened()),
        };
        PackedRef {
            form,
            count: self.len(),
            bytes,
        }
    }

    /// Becomes the array that [`Ints::packed`] returned, in the memory that it has, if it has the same width.
    #[inline]
    pub(super) fn load(&mut self, packed: PackedRef<'_>) {
        match (&mut *self, packed.form) {
            (Ints::W16(array), PackedForm::Ints16) => load(array, packed.bytes),
            (Ints::W32(array), PackedForm::Ints32) => load(array, packed.bytes),
            (Ints::W64(array), PackedForm::Ints64) => load(array, packed.bytes),
            _ => *self = Ints::of_packed(packed),
        }
    }

    /// Makes an array of the bytes that [`Ints::packed`] returned.
    pub(super) fn of_packed(packed: PackedRef<'_>) -> Ints {
        match packed.form {
            PackedForm::Ints16 => Ints::W16(packed.bytes.as_chunks().0.to_vec()),
            PackedForm::Ints32 => Ints::W32(packed.bytes.as_chunks().0.to_vec()),
            PackedForm::Ints64 => Ints::W64(packed.bytes.as_chunks().0.to_vec()),
            form => panic!("a set is not {form:?}"),
        }
    }

    pub(super) fn contains(&self, value: i64) -> bool {
        on_array!(self, array => position(array, value).is_ok())
    }

    /// Returns the integer at a place in the order.
    pub(super) fn get(&self, index: usize) -> Option<i64> {
        on_array!(self, array => array.get(index).map(|bytes| bytes.wide()))
    }

    /// Adds an integer, and returns true if it is new.
    pub(super) fn add(&mut self, value: i64) -> bool {
        self.widen_for(value);
        on_array!(self, array => add(array, value))
    }

    /// Removes an integer, and returns true if it was there.
    pub(super) fn remove(&mut self, value: i64) -> bool {
        on_array!(self, array => match position(array, value) {
            Ok(index) => {
                array.remove(index);
                if array.len() < array.capacity() / 4 {
                    shrink(array, ROOM_MIN);
                }
                true
            }
            Err(_) => false,
        })
    }

    /// Keeps the integers for which `is_kept` returns true.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(i64) -> bool) {
        on_array!(self, array => {
            array.retain(|bytes| is_kept(bytes.wide()));
            shrink(array, 0);
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns the number of decimal digits, and sign, of the longest.
    pub(super) fn longest_text(&self) -> usize {
        let ends = [self.get(0), self.get(self.len().wrapping_sub(1))];
        let lengths = ends.into_iter().flatten();
        lengths
            .map(|value| crate::Element::Int(value).len())
            .max()
            .unwrap_or(0)
    }

    fn widen_for(&mut self, value: i64) {
        if i16::try_from(value).is_ok() {
            return;
        }
        if i32::try_from(value).is_err() {
            if !matches!(self, Ints::W64(_)) {
                *self = Ints::W64(on_array!(self, array => widened(array)));
            }
        } else if let Ints::W16(array) = self {
            *self = Ints::W32(widened(array));
        }
    }
}

fn width<T>(_: &[T]) -> usize {
    size_of::<T>()
}

#[inline]
fn load<const N: usize>(array: &mut Vec<[u8; N]>, bytes: &[u8]) {
    array.clear();
    array.extend_from_slice(bytes.as_chunks().0);
}

/// Gives back the room that is kept for growing, except for so many, where it is worth it.
fn shrink<T>(array: &mut Vec<T>, room: usize) {
    if array.capacity() * size_of::<T>() >= SHRINK_BYTES_MIN {
        array.shrink_to(array.len() + room);
    }
}

fn widened<T: Bytes, U: Bytes>(array: &[T]) -> Vec<U> {
    let mut wide = Vec::with_capacity(array.len() + ROOM_MIN);
    wide.extend(array.iter().map(|bytes| U::narrow(bytes.wide())));
    wide
}

/// Returns the place of a value, or where it would be.
fn position<T: Bytes>(array: &[T], value: i64) -> Result<usize, usize> {
    // Rising sequences are common, and the most that intsets are made from.
    match array.last() {
        Some(last) if last.wide() < value => Err(array.len()),
        _ => array.binary_search_by_key(&value, |bytes| bytes.wide()),
    }
}

/// Adds a value to an array that is wide enough for it; returns true if it is new.
fn add<T: Bytes>(array: &mut Vec<T>, value: i64) -> bool {
    let Err(index) = position(array, value) else {
        return false;
    };
    if array.len() == array.capacity() {
        array.reserve_exact((array.len() / 8).max(ROOM_MIN));
    }
    array.insert(index, T::narrow(value));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn random_changes_agree_with_an_ordered_set() {
        let mut random = fastrand::Rng::with_seed(4);
        for round in 0..100 {
            let mut ints = Ints::new();
            let mut model = BTreeSet::new();
            for step in 0..400 {
                let bits = [8, 15, 17, 31, 33, 63][step * (1 + round % 6) / 400];
                let value = random.i64(..) >> (63 - bits) >> random.u32(0..6);
                match random.u8(..5) {
                    0..=1 => assert_eq!(ints.add(value), model.insert(value)),
                    2 => assert_eq!(ints.remove(value), model.remove(&value)),
                    3 => {
                        let some = model.iter().nth(random.usize(..40)).copied().unwrap_or(0);
                        assert_eq!(ints.contains(some), model.contains(&some));
                        assert_eq!(ints.remove(some), model.remove(&some));
                    }
                    _ => assert_eq!(ints.contains(value), model.contains(&value)),
                }
                assert_eq!(ints.len(), model.len());
            }
            assert!(ints.iter().eq(model.iter().copied()));
            ints.retain(|value| value % 2 == 0);
            model.retain(|value| value % 2 == 0);
            assert!(ints.iter().eq(model.iter().copied()));
        }
    }

    #[test]
    fn an_array_is_as_wide_as_its_widest() {
        for (value, width) in [
            (i64::from(i16::MAX), 2),
            (i64::from(i16::MIN), 2),
            (i64::from(i16::MAX) + 1, 4),
            (i64::from(i32::MIN), 4),
            (i64::from(i32::MIN) - 1, 8),
            (i64::MAX, 8),
        ] {
            let mut ints = Ints::new();
            (0..64).for_each(|value| assert!(ints.add(value)));
            assert!(ints.add(value));
            assert!(ints.contains(value) && ints.contains(0) && ints.contains(63));
            assert!(ints.heap_bytes() >= 65 * width && ints.heap_bytes() <= 80 * width);
        }
    }

    #[test]
    fn the_longest_text_is_at_one_of_the_ends() {
        let mut ints = Ints::new();
        assert_eq!(ints.longest_text(), 0);
        ints.add(5);
        assert_eq!(ints.longest_text(), 1);
        ints.add(-5);
        assert_eq!(ints.longest_text(), 2);
        ints.add(i64::MIN);
        assert_eq!(ints.longest_text(), 20);
    }
}
