//! The parts of elements beside their keys: a value, or the length of one behind the key. Must not know maps.

use std::mem::size_of;

/// The part between an element's header and its key, which may say that bytes follow the key.
pub(super) trait Payload {
    fn bytes_behind_key(&self) -> usize;

    /// Returns the number by which a copy of an element tells its bytes apart.
    fn number(&self) -> u32;
}

/// A value without bytes behind the key.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Alone<V>(pub(super) V);

/// Length of a value behind the key, and whether a stamp follows the value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct ValueLen(pub(super) u32);

impl ValueLen {
    const STAMPED: u32 = 1 << 31;
    const STAMP_BYTES: usize = size_of::<u64>();

    pub(super) fn new(value: &[u8], stamped: bool) -> ValueLen {
        let len = u32::try_from(value.len())
            .ok()
            .filter(|len| *len < ValueLen::STAMPED)
            .expect("a value is below 2 GiB");
        ValueLen(if stamped {
            len | ValueLen::STAMPED
        } else {
            len
        })
    }

    #[inline]
    pub(super) fn value_bytes(self) -> usize {
        (self.0 & !ValueLen::STAMPED) as usize
    }

    #[inline]
    fn is_stamped(self) -> bool {
        self.0 & ValueLen::STAMPED != 0
    }
}

impl<V> Payload for Alone<V> {
    #[inline]
    fn bytes_behind_key(&self) -> usize {
        0
    }

    fn number(&self) -> u32 {
        0
    }
}

impl Payload for ValueLen {
    #[inline]
    fn bytes_behind_key(&self) -> usize {
        let stamp = if self.is_stamped() {
            ValueLen::STAMP_BYTES
        } else {
            0
        };
        self.value_bytes() + stamp
    }

    fn number(&self) -> u32 {
        self.0
    }
}
