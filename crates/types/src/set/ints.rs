//! A sorted array of integers, as narrow as the widest of them asks for. Must not know texts.

/// Room to leave for growing: an eighth, and at least so many.
const ROOM_MIN: usize = 4;

/// The integers, each once, in ascending order. An array gets wider when it must, and stays so.
#[derive(Clone)]
pub(super) enum Ints {
    W16(Vec<i16>),
    W32(Vec<i32>),
    W64(Vec<i64>),
}

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

    pub(super) fn contains(&self, value: i64) -> bool {
        on_array!(self, array => position(array, value).is_ok())
    }

    /// The integer at a place in the order.
    pub(super) fn get(&self, index: usize) -> Option<i64> {
        on_array!(self, array => array.get(index).copied().map(wide))
    }

    /// Adds an integer, and says whether it is new.
    pub(super) fn add(&mut self, value: i64) -> bool {
        self.widen_for(value);
        match self {
            Ints::W16(array) => add(array, value),
            Ints::W32(array) => add(array, value),
            Ints::W64(array) => add(array, value),
        }
    }

    /// Takes an integer out, and says whether it was there.
    pub(super) fn remove(&mut self, value: i64) -> bool {
        on_array!(self, array => match position(array, value) {
            Ok(index) => {
                array.remove(index);
                if array.len() < array.capacity() / 4 {
                    array.shrink_to(array.len() + ROOM_MIN);
                }
                true
            }
            Err(_) => false,
        })
    }

    /// Keeps those that `is_kept` says.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(i64) -> bool) {
        on_array!(self, array => {
            array.retain(|&value| is_kept(wide(value)));
            array.shrink_to_fit();
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The decimal digits, and sign, of the longest.
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

fn wide<T: Into<i64>>(value: T) -> i64 {
    value.into()
}

fn widened<T: Copy, U: From<T>>(array: &[T]) -> Vec<U> {
    let mut wide = Vec::with_capacity(array.len() + ROOM_MIN);
    wide.extend(array.iter().map(|&value| U::from(value)));
    wide
}

/// Where a value is, or where it would be.
fn position<T: Copy + Into<i64>>(array: &[T], value: i64) -> Result<usize, usize> {
    // Rising sequences are common, and the most that intsets are made from.
    match array.last() {
        Some(&last) if last.into() < value => Err(array.len()),
        _ => array.binary_search_by_key(&value, |&other| other.into()),
    }
}

fn add<T: Copy + Into<i64> + TryFrom<i64>>(array: &mut Vec<T>, value: i64) -> bool {
    let (Err(index), Ok(narrow)) = (position(array, value), T::try_from(value)) else {
        return false;
    };
    if array.len() == array.capacity() {
        array.reserve_exact((array.len() / 8).max(ROOM_MIN));
    }
    array.insert(index, narrow);
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
