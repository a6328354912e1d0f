//! Austin Appleby's MurmurHash2 in the two widths that serialised forms depend on: HyperLogLogs, Bloom and cuckoo
//! filters, sketches. Must not know what is hashed.

const MULTIPLIER_64: u64 = 0xc6a4_a793_5bd1_e995;
const MULTIPLIER_32: u32 = 0x5bd1_e995;

/// Returns MurmurHash64A.
#[inline]
pub fn hash_64(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = MULTIPLIER_64;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> 47;
        hash = (hash ^ word.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        hash = (hash ^ low_bytes(bytes, rest)).wrapping_mul(M);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 47
}

/// Returns the bytes behind the last whole word as the low ones of a word: without a copy if there is such a word.
#[inline]
fn low_bytes(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        None => rest
            .iter()
            .rfold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Returns MurmurHash2 of 32 bits.
#[inline]
pub fn hash_32(bytes: &[u8], seed: u32) -> u32 {
    const M: u32 = MULTIPLIER_32;
    let mut hash = seed ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut word = [0; 4];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(word)).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_the_last_word_are_its_low_ones() {
        for len in 1..24usize {
            let bytes: Vec<u8> = (0..len as u8).map(|n| n.wrapping_mul(37) ^ 0x95).collect();
            let (_, rest) = bytes.as_chunks::<8>();
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            if !rest.is_empty() {
                assert_eq!(low_bytes(&bytes, rest), u64::from_le_bytes(word), "{len}");
            }
        }
    }

    /// Ensures that every number of bytes behind the last word enters the hash.
    #[test]
    fn each_byte_and_the_seed_matter() {
        for len in 0..20usize {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let (long, short) = (hash_64(&bytes, 1), hash_32(&bytes, 1));
            assert!(long != hash_64(&bytes, 2) && short != hash_32(&bytes, 2));
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                assert!(long != hash_64(&other, 1) && short != hash_32(&other, 1));
            }
        }
    }
}
