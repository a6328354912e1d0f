//! A string with a version, which tells one writer that another was there, and with flags: Tair's exString. Must not
//! know keys, their expiry, nor who compares versions.

use crate::{DataType, Digest, IntBuf};

/// A string, the number of its changes, and flags that only clients understand.
#[derive(Clone, Debug, Default)]
pub struct ExString {
    /// `None` in a value that was never set.
    value: Option<Vec<u8>>,
    version: u64,
    flags: u32,
}

impl ExString {
    /// Returns the string; empty if it was never set.
    pub fn value(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    /// Returns the version; 0 before the first change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the flags.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Sets the string. The version stays.
    pub fn set(&mut self, value: &[u8]) {
        match &mut self.value {
            // Room is kept only for what comes close to it.
            Some(old) if old.capacity() / 2 <= value.len() && value.len() <= old.capacity() => {
                old.clear();
                old.extend_from_slice(value);
            }
            old => *old = Some(value.to_vec()),
        }
    }

    /// Appends bytes at the end. The version stays.
    pub fn append(&mut self, tail: &[u8]) {
        self.value.get_or_insert_default().extend_from_slice(tail);
    }

    /// Puts bytes before the first one. The version stays.
    pub fn prepend(&mut self, head: &[u8]) {
        let value = self.value.get_or_insert_default();
        value.splice(..0, head.iter().copied());
    }

    /// Sets the version.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: u32) {
        self.flags = flags;
    }
}

impl DataType for ExString {
    const NAME: &'static str = "exstrtype";

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        usize::from(self.value.is_some())
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.value.as_ref().map_or(0, Vec::capacity)
    }

    fn free_effort(&self) -> usize {
        1
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(self.value());
        digest.mix(&self.version.to_le_bytes());
        digest.mix(IntBuf::new().format(self.flags.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_at_both_ends_and_is_there_when_empty() {
        let mut string = ExString::default();
        assert!(string.leaves_no_key());
        string.append(b"");
        assert!(!string.leaves_no_key(), "an empty string is a value");
        string.append(b"cd");
        string.prepend(b"ab");
        assert_eq!(string.value(), b"abcd");
        string.set(b"a much longer string than before");
        string.set(b"x");
        assert_eq!(string.value(), b"x");
        assert!(string.heap_bytes() < size_of::<ExString>() + 16);
    }
}
