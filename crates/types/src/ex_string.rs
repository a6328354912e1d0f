//! A string with a version, which tells one writer that another was there, and with flags: Tair's exString. Must not
//! know keys, their expiry, nor who compares versions.

use crate::{
    DataType, Digest, IntBuf,
    packed::{PackedForm, PackedRef},
};

/// Largest version that an exString, or a field of an exHash, has: commands read versions as signed integers.
pub const VERSION_MAX: u64 = i64::MAX as u64;

const VERSION_BYTES: usize = size_of::<u64>();
/// Bytes before the string: the version, then the flags.
const HEAD_BYTES: usize = VERSION_BYTES + size_of::<u32>();
/// Bytes above which a value is not given out as bytes: who edits it would copy it once more.
const PACKED_BYTES_MAX: usize = 1_024;

/// A string, the number of its changes, and flags that only clients understand.
#[derive(Clone, Debug, Default)]
pub struct ExString {
    /// The version, the flags, the string; empty in a value that was never set.
    bytes: Vec<u8>,
}

impl ExString {
    /// Returns the string; empty if it was never set.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.bytes.get(HEAD_BYTES..).unwrap_or_default()
    }

    /// Returns the version; 0 before the first change.
    #[inline]
    pub fn version(&self) -> u64 {
        self.bytes
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns the flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        let behind = self.bytes.get(VERSION_BYTES..).unwrap_or_default();
        behind
            .first_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Makes it a value that was set.
    fn make_head(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEAD_BYTES, 0);
        }
    }

    /// Sets the string. The version stays.
    pub fn set(&mut self, value: &[u8]) {
        let len = HEAD_BYTES + value.len();
        self.make_head();
        // Room is kept only for what comes close to it.
        match self.bytes.capacity() / 2 <= len && len <= self.bytes.capacity() {
            true => self.bytes.truncate(HEAD_BYTES),
            false => {
                let mut bytes = Vec::with_capacity(len);
                bytes.extend_from_slice(&self.bytes[..HEAD_BYTES]);
                self.bytes = bytes;
            }
        }
        self.bytes.extend_from_slice(value);
    }

    /// Appends bytes at the end. The version stays.
    pub fn append(&mut self, tail: &[u8]) {
        self.make_head();
        self.bytes.extend_from_slice(tail);
    }

    /// Puts bytes before the first one. The version stays.
    pub fn prepend(&mut self, head: &[u8]) {
        self.make_head();
        let at = HEAD_BYTES..HEAD_BYTES;
        self.bytes.splice(at, head.iter().copied());
    }

    /// Sets the version of a string that was set.
    pub fn set_version(&mut self, version: u64) {
        self.make_head();
        self.bytes[..VERSION_BYTES].copy_from_slice(&version.to_le_bytes());
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: u32) {
        self.make_head();
        self.bytes[VERSION_BYTES..HEAD_BYTES].copy_from_slice(&flags.to_le_bytes());
    }
}

impl DataType for ExString {
    const NAME: &'static str = "exstrtype";
    const EMPTY_FORM: Option<PackedForm> = Some(PackedForm::ExString);

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        usize::from(!self.bytes.is_empty())
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    fn free_effort(&self) -> usize {
        1
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(self.value());
        digest.mix(&self.version().to_le_bytes());
        digest.mix(IntBuf::new().format(self.flags().into()));
    }

    #[inline]
    fn packed(&self) -> Option<PackedRef<'_>> {
        (self.bytes.len() <= PACKED_BYTES_MAX).then_some(PackedRef {
            form: PackedForm::ExString,
            count: self.bytes.len(),
            bytes: &self.bytes,
        })
    }

    #[inline]
    fn load_packed(&mut self, packed: PackedRef<'_>) {
        assert_eq!(packed.form, PackedForm::ExString);
        self.bytes.clear();
        self.bytes.extend_from_slice(packed.bytes);
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
        assert!(string.heap_bytes() < size_of::<ExString>() + HEAD_BYTES + 16);
        string.set_version(7);
        string.set_flags(8);
        string.prepend(b"w");
        assert_eq!(
            (string.version(), string.flags(), string.value()),
            (7, 8, &b"wx"[..])
        );
    }
}
