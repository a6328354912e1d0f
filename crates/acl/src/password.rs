//! Passwords: kept and compared as the hexadecimal digits of their SHA-256, never as they were given.
//! Knows no users.

use sha2::{Digest, Sha256};

/// Digits of a hash.
pub const PASSWORD_HASH_BYTES: usize = 64;

/// The hash of a password, as lower-case hexadecimal digits.
#[derive(Clone, Debug)]
pub struct PasswordHash([u8; PASSWORD_HASH_BYTES]);

impl PasswordHash {
    /// Hashes a password.
    pub fn of(password: &[u8]) -> PasswordHash {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; PASSWORD_HASH_BYTES];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(Sha256::digest(password)) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        PasswordHash(hex)
    }

    /// Accepts a hash that was made elsewhere; `None` if it is not 64 lower-case hexadecimal digits.
    pub fn parse(hex: &[u8]) -> Option<PasswordHash> {
        let digits: [u8; PASSWORD_HASH_BYTES] = hex.try_into().ok()?;
        let right = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.iter().all(right).then_some(PasswordHash(digits))
    }

    /// Returns its digits.
    pub fn digits(&self) -> &[u8; PASSWORD_HASH_BYTES] {
        &self.0
    }
}

/// Compares in constant time: the time it takes does not tell where the first difference is.
impl PartialEq for PasswordHash {
    fn eq(&self, other: &PasswordHash) -> bool {
        // Eight digits at a time, since a user may have thousands of passwords.
        let [ours, theirs] = [self, other].map(|hash| hash.0.as_chunks::<8>().0.iter());
        let words = |digits: &[u8; 8]| u64::from_ne_bytes(*digits);
        let pairs = ours.map(words).zip(theirs.map(words));
        let difference = pairs.fold(0, |seen, (a, b)| std::hint::black_box(seen | (a ^ b)));
        std::hint::black_box(difference) == 0
    }
}

impl Eq for PasswordHash {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_becomes_its_sha256() {
        let digits = *PasswordHash::of(b"foo").digits();
        assert_eq!(
            std::str::from_utf8(&digits).unwrap(),
            "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
        );
        assert_eq!(
            PasswordHash::parse(&digits).unwrap(),
            PasswordHash::of(b"foo")
        );
        assert_ne!(PasswordHash::of(b"foo"), PasswordHash::of(b"fop"));
    }

    #[test]
    fn only_64_lower_case_digits_are_a_hash() {
        let digits = *PasswordHash::of(b"").digits();
        for wrong in [
            digits[..63].to_vec(),
            [&digits[..], b"0"].concat(),
            digits.to_ascii_uppercase(),
            [&digits[..63], b"g"].concat(),
            Vec::new(),
        ] {
            assert!(PasswordHash::parse(&wrong).is_none());
        }
    }
}
