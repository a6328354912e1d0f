//! Numbers of six bits, packed low bits first, and the same numbers in one byte each.
//!
//! Four numbers are three bytes. A vector holds eight times four: a shuffle spreads each three bytes over four, and
//! shifts bring every number into its byte. In reverse, two multiplications with additions join four numbers in 24
//! bits, and a shuffle closes the gaps.

/// Numbers in a block: slices of numbers are whole blocks.
pub const SIXES_PER_BLOCK: usize = 32;
const BLOCK_BYTES: usize = SIXES_PER_BLOCK * 6 / 8;
/// Bytes that the vectors of a block touch beyond its end.
#[cfg(target_arch = "x86_64")]
const BEYOND_BYTES: usize = 4;

/// Raises each number to the packed one in the same place, if that is larger.
///
/// # Panics
///
/// If the slices do not hold equally many numbers, or no whole blocks.
pub fn raise_by_sixes(numbers: &mut [u8], packed: &[u8]) {
    check(numbers, packed);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, as was just checked.
        return unsafe { wide::raise(numbers, packed) };
    }
    raise_plain(numbers, packed);
}

/// Packs numbers below 64.
///
/// # Panics
///
/// If the slices do not hold equally many numbers, or no whole blocks.
pub fn pack_sixes(numbers: &[u8], packed: &mut [u8]) {
    check(numbers, packed);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, as was just checked.
        return unsafe { wide::pack(numbers, packed) };
    }
    pack_plain(numbers, packed);
}

fn check(numbers: &[u8], packed: &[u8]) {
    assert!(numbers.len().is_multiple_of(SIXES_PER_BLOCK));
    assert_eq!(packed.len(), numbers.len() / SIXES_PER_BLOCK * BLOCK_BYTES);
}

fn raise_plain(numbers: &mut [u8], packed: &[u8]) {
    let (fours, _) = numbers.as_chunks_mut::<4>();
    let (threes, _) = packed.as_chunks::<3>();
    for (four, three) in fours.iter_mut().zip(threes) {
        let word = u32::from_le_bytes([three[0], three[1], three[2], 0]);
        for (number, shift) in four.iter_mut().zip([0, 6, 12, 18]) {
            *number = (*number).max((word >> shift & 63) as u8);
        }
    }
}

fn pack_plain(numbers: &[u8], packed: &mut [u8]) {
    let (fours, _) = numbers.as_chunks::<4>();
    let (threes, _) = packed.as_chunks_mut::<3>();
    for (four, three) in fours.iter().zip(threes) {
        let rev = four.iter().rev();
        let word = rev.fold(0u32, |word, number| word << 6 | u32::from(*number));
        three.copy_from_slice(&word.to_le_bytes()[..3]);
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{BEYOND_BYTES, BLOCK_BYTES, SIXES_PER_BLOCK, pack_plain, raise_plain};

    /// Returns the number of blocks that are far enough from the end that a vector may touch bytes beyond them.
    fn blocks(packed: &[u8]) -> usize {
        packed.len().saturating_sub(BEYOND_BYTES) / BLOCK_BYTES
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn raise(numbers: &mut [u8], packed: &[u8]) {
        let spread = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
        ));
        let mask = |byte: i32| _mm256_set1_epi32(0x3f << (8 * byte));
        let blocks = blocks(packed);
        for block in 0..blocks {
            let (at, from) = (block * SIXES_PER_BLOCK, block * BLOCK_BYTES);
            let half = &packed[from..from + BLOCK_BYTES + BEYOND_BYTES];
            let place = numbers[at..at + SIXES_PER_BLOCK]
                .as_mut_ptr()
                .cast::<__m256i>();
            // SAFETY: 16 bytes at 0 and at 12 are inside a slice of 28, 32 bytes are what `place` points to, and neither
            // needs to be aligned.
            let (low, high, old) = unsafe {
                (
                    _mm_loadu_si128(half.as_ptr().cast()),
                    _mm_loadu_si128(half[BLOCK_BYTES / 2..].as_ptr().cast()),
                    _mm256_loadu_si256(place),
                )
            };
            let words = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), spread);
            let first = _mm256_and_si256(words, mask(0));
            let second = _mm256_and_si256(_mm256_slli_epi32::<2>(words), mask(1));
            let third = _mm256_and_si256(_mm256_slli_epi32::<4>(words), mask(2));
            let fourth = _mm256_and_si256(_mm256_slli_epi32::<6>(words), mask(3));
            let all = _mm256_or_si256(
                _mm256_or_si256(first, second),
                _mm256_or_si256(third, fourth),
            );
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(place, _mm256_max_epu8(all, old)) };
        }
        raise_plain(
            &mut numbers[blocks * SIXES_PER_BLOCK..],
            &packed[blocks * BLOCK_BYTES..],
        );
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn pack(numbers: &[u8], packed: &mut [u8]) {
        let close = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
        ));
        let by_64 = _mm256_set1_epi16(0x4001);
        let by_4096 = _mm256_set1_epi32(0x1000_0001);
        let blocks = blocks(packed);
        for block in 0..blocks {
            let (at, to) = (block * SIXES_PER_BLOCK, block * BLOCK_BYTES);
            let four = &numbers[at..at + SIXES_PER_BLOCK];
            let place = &mut packed[to..to + BLOCK_BYTES + BEYOND_BYTES];
            // SAFETY: the slice has the 32 bytes of the vector, which needs no alignment.
            let numbers = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
            let pairs = _mm256_maddubs_epi16(numbers, by_64);
            let words = _mm256_madd_epi16(pairs, by_4096);
            let threes = _mm256_shuffle_epi8(words, close);
            // SAFETY: 16 bytes at 0 and then at 12 are inside a slice of 28. Each store leaves four zeros behind its
            // packed bytes, which the next one, or the plain loop at the end, overwrites.
            unsafe {
                _mm_storeu_si128(place.as_mut_ptr().cast(), _mm256_castsi256_si128(threes));
                let rest = place[BLOCK_BYTES / 2..].as_mut_ptr();
                _mm_storeu_si128(rest.cast(), _mm256_extracti128_si256::<1>(threes));
            }
        }
        pack_plain(
            &numbers[blocks * SIXES_PER_BLOCK..],
            &mut packed[blocks * BLOCK_BYTES..],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_plain_do_the_same() {
        let mut rng = fastrand::Rng::with_seed(2);
        for blocks in (0..20).chain([512]) {
            let numbers: Vec<u8> = std::iter::repeat_with(|| rng.u8(..64))
                .take(blocks * SIXES_PER_BLOCK)
                .collect();
            let (mut packed, mut plain) =
                (vec![7; blocks * BLOCK_BYTES], vec![9; blocks * BLOCK_BYTES]);
            pack_sixes(&numbers, &mut packed);
            pack_plain(&numbers, &mut plain);
            assert_eq!(packed, plain);

            let mut unpacked = vec![0; numbers.len()];
            raise_by_sixes(&mut unpacked, &packed);
            assert_eq!(unpacked, numbers);
            rng.fill(&mut packed);
            let mut raised = numbers.clone();
            raise_by_sixes(&mut unpacked, &packed);
            raise_plain(&mut raised, &packed);
            assert_eq!(unpacked, raised);
        }
    }
}
