//! SipHash-1-3 under a key that is random per process, and the meaning of the hash's bits. Must not know tables.
//!
//! Clients see hash bits (SCAN cursors and SCAN order), so the function has to be one with a security argument;
//! it costs 5 to 8 ns more than the fastest alternatives.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// Bits of the hash that choose the keyspace slot: the top ones.
pub const SLOT_BITS: u32 = 14;
/// Keyspace slots per database.
pub const SLOTS: usize = 1 << SLOT_BITS;

static SEED: OnceLock<(u64, u64)> = OnceLock::new();

/// Returns the hash of a key: SipHash-1-3, keyed per process.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    let (k0, k1) = *SEED.get_or_init(random_seed);
    sip13(k0, k1, key)
}

/// Returns the keyspace slot of a hash: its top 14 bits.
#[inline]
pub const fn slot(hash: u64) -> usize {
    (hash >> (64 - SLOT_BITS)) as usize
}

/// Returns the 16 bits below the slot's: the order of entries inside an [`crate::Index`].
#[inline]
pub const fn h16(hash: u64) -> u16 {
    (hash >> (64 - SLOT_BITS - 16)) as u16
}

/// Returns the 8 bits below [`h16`]: the tag in a bucket.
#[inline]
pub const fn tag(hash: u64) -> u8 {
    (hash >> (64 - SLOT_BITS - 24)) as u8
}

fn random_seed() -> (u64, u64) {
    // std seeds RandomState from the operating system; two hashes of it under different states are our key.
    (
        RandomState::new().hash_one(0x5eed_u64),
        RandomState::new().hash_one(0x0005_eed2_u64),
    )
}

/// Returns SipHash-1-3 of `data` under the key `(k0, k1)`.
pub fn sip13(k0: u64, k1: u64, data: &[u8]) -> u64 {
    let mut v0 = k0 ^ 0x736f_6d65_7073_6575;
    let mut v1 = k1 ^ 0x646f_7261_6e64_6f6d;
    let mut v2 = k0 ^ 0x6c79_6765_6e65_7261;
    let mut v3 = k1 ^ 0x7465_6462_7974_6573;
    macro_rules! round {
        () => {
            v0 = v0.wrapping_add(v1);
            v2 = v2.wrapping_add(v3);
            v1 = v1.rotate_left(13) ^ v0;
            v3 = v3.rotate_left(16) ^ v2;
            v0 = v0.rotate_left(32);
            v2 = v2.wrapping_add(v1);
            v0 = v0.wrapping_add(v3);
            v1 = v1.rotate_left(17) ^ v2;
            v3 = v3.rotate_left(21) ^ v0;
            v2 = v2.rotate_left(32);
        };
    }
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        let m = u64::from_le_bytes(*word);
        v3 ^= m;
        round!();
        v0 ^= m;
    }
    let last = ((data.len() as u64) << 56) | tail(data, rest);
    v3 ^= last;
    round!();
    v0 ^= last;
    v2 ^= 0xff;
    round!();
    round!();
    round!();
    v0 ^ v1 ^ v2 ^ v3
}

/// Returns the up to seven last bytes as a little-endian number, without a loop over bytes where that is possible.
#[inline]
fn tail(data: &[u8], rest: &[u8]) -> u64 {
    if rest.is_empty() {
        return 0;
    }
    if let Some(last_eight) = data.last_chunk::<8>() {
        // The last eight bytes of the data end with the rest: shift what came before out.
        return u64::from_le_bytes(*last_eight) >> (8 * (8 - rest.len()));
    }
    rest.iter().rev().fold(0, |n, &b| (n << 8) | u64::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip::SipHasher13;
    use std::hash::Hasher;

    #[test]
    fn equals_the_reference_at_every_length() {
        let data: Vec<u8> = (0..200u32).map(|i| (i * 37 + 11) as u8).collect();
        for (k0, k1) in [
            (0, 0),
            (1, 2),
            (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908),
            (u64::MAX, 7),
        ] {
            for n in 0..data.len() {
                let mut reference = SipHasher13::new_with_keys(k0, k1);
                reference.write(&data[..n]);
                assert_eq!(sip13(k0, k1, &data[..n]), reference.finish(), "length {n}");
            }
        }
    }

    #[test]
    fn bit_fields_do_not_overlap() {
        let h = (0x2aaa_u64 << 50) | (0xbeef << 34) | (0xc3 << 26);
        assert_eq!((slot(h), h16(h), tag(h)), (0x2aaa, 0xbeef, 0xc3));
    }
}
