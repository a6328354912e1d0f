//! Packed collections while they are read or changed: structures of a worker's own, used again and again.
//!
//! A small collection lives in its entry as a run of bytes. To be read as a [`Value`] it is *opened*: copied into one
//! that is kept for that. Readers may look at several side by side, so what is opened for them stays open, at a place
//! that does not move, until the next unit begins ([`Opened::close_all`]); those that are looked at one by one (writers,
//! walks) borrow one and give it back. In the long run neither allocates anything.
//!
//! Must not know: keys, entries, locks.

use std::cell::{Cell, RefCell, UnsafeCell};

use redline_types::{PackedForm, PackedRef, Value};

/// Number of values that stay open for readers and are kept from one unit to the next.
const OPEN_KEPT_MAX: usize = 64;
/// Number of values to be borrowed that are kept, of each form.
const SPARE_MAX: usize = 8;
/// A value with more memory of its own than this is not kept.
const KEPT_BYTES_MAX: usize = 8 * 1024;

/// The values of a worker: see the module's text.
#[derive(Default)]
pub(crate) struct Opened {
    /// The first `used` are lent to readers; the others are free.
    #[expect(clippy::vec_box, reason = "growing must move none of them")]
    open: UnsafeCell<Vec<Box<Value>>>,
    used: Cell<usize>,
    /// By form.
    spare: RefCell<[Vec<Value>; PackedForm::ALL.len()]>,
}

impl Opened {
    /// Opens a collection for a reader, for as long as `self` is not changed.
    pub(crate) fn open(&self, packed: PackedRef<'_>) -> &Value {
        let at = self.used.get();
        // SAFETY: `Opened` is not `Sync`, and nothing that is called while this reference lives comes back here. It is
        // to the vector, not to the contents of its boxes: of these only the one at `at` is touched, which is not lent.
        let open = unsafe { &mut *self.open.get() };
        match open.get_mut(at) {
            None => open.push(Box::new(Value::of_packed(packed))),
            Some(value) => {
                // Most calls find a value here that can take the bytes without a new allocation.
                if value.packed().is_some_and(|last| last.form == packed.form) {
                    value.load_packed(packed);
                } else {
                    let other = std::mem::replace(&mut **value, self.take(packed));
                    self.give_back(other);
                }
            }
        }
        self.used.set(at + 1);
        let value: *const Value = &raw const *open[at];
        // SAFETY: a value that is lent is neither changed, moved nor dropped before `close_all`, which no reader of
        // `&self` lives to see.
        unsafe { &*value }
    }

    /// Takes back the values that were lent to readers.
    #[inline]
    pub(crate) fn close_all(&mut self) {
        if *self.used.get_mut() > 0 {
            self.used.set(0);
            if self.open.get_mut().len() > OPEN_KEPT_MAX {
                self.open.get_mut().truncate(OPEN_KEPT_MAX);
            }
        }
    }

    /// Returns a value of the caller's own with these contents.
    #[inline]
    pub(crate) fn take(&self, packed: PackedRef<'_>) -> Value {
        let spare = self.spare.borrow_mut()[packed.form as usize].pop();
        match spare {
            None => Value::of_packed(packed),
            Some(mut value) => {
                value.load_packed(packed);
                value
            }
        }
    }

    /// Takes a value that is not needed any more, wherever it comes from.
    #[inline]
    pub(crate) fn give_back(&self, value: Value) {
        if let Some(packed) = value.packed() {
            let spare = &mut self.spare.borrow_mut()[packed.form as usize];
            if spare.len() < SPARE_MAX && value.heap_bytes() <= KEPT_BYTES_MAX {
                spare.push(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redline_types::{DataType, Hash, Limits, List, Set, Zset};

    fn values() -> Vec<Value> {
        let limits = Limits::default();
        let mut values: Vec<Value> = Vec::new();
        for n in 0..40i64 {
            let text = format!("{n}").repeat(1 + n as usize % 7);
            let (mut list, mut hash, mut zset, mut set) =
                (List::new(), Hash::new(), Zset::new(), Set::new());
            list.push_back(text.as_bytes(), &limits);
            hash.set(text.as_bytes(), b"value", &limits);
            zset.add(text.as_bytes(), n as f64, Default::default(), &limits)
                .expect("a score");
            set.add(format!("{}", n << n).as_bytes(), &limits);
            values.extend([list.into(), hash.into(), zset.into(), set.into()]);
        }
        values
    }

    fn bytes(value: &Value) -> (PackedForm, Vec<u8>) {
        let packed = value.packed().expect("it is small");
        (packed.form, packed.bytes.to_vec())
    }

    #[test]
    fn what_is_open_stays_as_it_is_until_all_is_closed() {
        let values = values();
        let mut opened = Opened::default();
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..50 {
            let count = if round % 10 == 0 { 200 } else { 5 };
            let drawn: Vec<&Value> = (0..count)
                .map(|_| &values[random.usize(..values.len())])
                .collect();
            let open: Vec<&Value> = drawn
                .iter()
                .map(|value| {
                    // Others come and go meanwhile.
                    let other = opened.take(values[random.usize(..values.len())].packed().unwrap());
                    let value = opened.open(value.packed().unwrap());
                    opened.give_back(other);
                    value
                })
                .collect();
            for (value, open) in drawn.iter().zip(&open) {
                assert_eq!(bytes(value), bytes(open));
            }
            opened.close_all();
            assert!(opened.open.get_mut().len() <= OPEN_KEPT_MAX);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let values = values();
        let opened = Opened::default();
        values
            .iter()
            .for_each(|value| opened.give_back(value.clone()));
        for spare in opened.spare.borrow().iter() {
            assert!(spare.len() <= SPARE_MAX);
        }
        let opened = Opened::default();
        let mut large = List::new();
        (0..8).for_each(|_| large.push_back(&[b'x'; 1000], &Limits::default()));
        assert!(large.heap_bytes() > 8000 && bytes(&large.clone().into()).1.len() > 8000);
        large.push_back(&[b'x'; 100], &Limits::default());
        opened.give_back(large.into());
        assert!(opened.spare.borrow().iter().all(Vec::is_empty));
    }
}
