//! A register: bytes that are set and read as a whole. Must not know other types.

use crate::{DataType, Digest};

/// Bytes that are set and read as a whole.
#[derive(Clone, Debug, Default)]
pub struct Register {
    value: Option<Box<[u8]>>,
}

impl Register {
    /// Returns a register with this value.
    pub fn of(value: &[u8]) -> Register {
        Register {
            value: Some(value.into()),
        }
    }

    /// Returns the value; nothing in a register that was never set.
    pub fn get(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    /// Sets the value.
    pub fn set(&mut self, value: &[u8]) {
        self.value = Some(value.into());
    }
}

impl DataType for Register {
    const NAME: &'static str = "register";

    fn encoding(&self) -> &'static str {
        "bytes"
    }

    fn len(&self) -> usize {
        usize::from(self.value.is_some())
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.get().len()
    }

    fn free_effort(&self) -> usize {
        1
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(self.get());
    }
}
