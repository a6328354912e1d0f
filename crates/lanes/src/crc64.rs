//! CRC-64 with the Jones polynomial, reflected, from zero and without a final change.
//!
//! The wide kind takes the bytes as polynomials of 128 bits, and multiplies by carry-less multiplication: what was
//! read so far, moved on by the width of the next bytes, is brought back to 128 bits by two products with constants
//! (Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009). Four such sums run
//! side by side, since a product takes several cycles. The last 128 bits go through the tables, as they are congruent
//! to all bytes before.

/// Polynomial, its bits in reverse.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
/// Number of bytes that the plain kind takes at a time.
const SLICE: usize = 8;

/// Table of `TABLES[n][byte]`: the effect of a byte on the checksum when `n` more bytes follow it.
static TABLES: [[u64; 256]; SLICE] = {
    let mut tables = [[0; 256]; SLICE];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = times_x(crc);
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut n = 1;
    while n < SLICE {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[n - 1][byte];
            tables[n][byte] = crc >> 8 ^ tables[0][(crc & 255) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
};

/// Returns the polynomial times x, modulo that of the checksum.
const fn times_x(polynomial: u64) -> u64 {
    polynomial >> 1 ^ (POLYNOMIAL & (polynomial & 1).wrapping_neg())
}

/// Returns the checksum of data with the checksum `crc` (empty data has 0), followed by these bytes.
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= wide::BYTES_MIN && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the CPU has it, as was just checked.
        return unsafe { wide::crc64(crc, bytes) };
    }
    crc64_plain(crc, bytes)
}

fn crc64_plain(mut crc: u64, bytes: &[u8]) -> u64 {
    let (slices, rest) = bytes.as_chunks::<SLICE>();
    for slice in slices {
        crc ^= u64::from_le_bytes(*slice);
        let mixed = crc.to_le_bytes();
        crc = 0;
        for (at, byte) in mixed.iter().enumerate() {
            crc ^= TABLES[SLICE - 1 - at][usize::from(*byte)];
        }
    }
    for byte in rest {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{crc64_plain, times_x};

    /// Number of bytes from which on the wide kind is the faster one.
    pub const BYTES_MIN: usize = 64;
    const LANES: usize = 4;
    const LANE_BYTES: usize = 16;

    /// Returns x to this power, modulo the polynomial.
    const fn power(exponent: usize) -> u64 {
        let (mut polynomial, mut n) = (1 << 63, 0);
        while n < exponent {
            polynomial = times_x(polynomial);
            n += 1;
        }
        polynomial
    }

    /// Returns the constants that move 128 bits on by a number of bytes: for the half that was read first, and for the
    /// other. A product of two reflected polynomials of 64 bits is one place off, so the powers are one lower.
    const fn constants(bytes: usize) -> [u64; 2] {
        [power(8 * bytes + 63), power(8 * bytes - 1)]
    }

    const BY_ONE: [u64; 2] = constants(LANE_BYTES);
    const BY_ALL: [u64; 2] = constants(LANES * LANE_BYTES);

    #[target_feature(enable = "pclmulqdq")]
    fn pair([first, second]: [u64; 2]) -> __m128i {
        _mm_set_epi64x(second as i64, first as i64)
    }

    fn load(bytes: &[u8; LANE_BYTES]) -> __m128i {
        // SAFETY: the array has the 16 bytes that are read, and any address will do.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// Returns what was read so far, moved on, and the next bytes.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn fold(sum: __m128i, constants: __m128i, next: __m128i) -> __m128i {
        let first = _mm_clmulepi64_si128::<0x00>(sum, constants);
        let second = _mm_clmulepi64_si128::<0x11>(sum, constants);
        _mm_xor_si128(_mm_xor_si128(first, second), next)
    }

    /// Returns the same as [`crc64_plain`].
    #[target_feature(enable = "pclmulqdq")]
    pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
        let (lanes, tail) = bytes.as_chunks::<LANE_BYTES>();
        let (blocks, lanes) = lanes.as_chunks::<LANES>();
        let Some((first, blocks)) = blocks.split_first() else {
            return crc64_plain(crc, bytes);
        };
        let mut sums = first.each_ref().map(load);
        sums[0] = _mm_xor_si128(sums[0], pair([crc, 0]));
        let by_all = pair(BY_ALL);
        for block in blocks {
            for (sum, lane) in sums.iter_mut().zip(block) {
                *sum = fold(*sum, by_all, load(lane));
            }
        }
        let by_one = pair(BY_ONE);
        let mut sum = sums[0];
        for next in &sums[1..] {
            sum = fold(sum, by_one, *next);
        }
        for lane in lanes {
            sum = fold(sum, by_one, load(lane));
        }
        let mut last = [0; LANE_BYTES];
        // SAFETY: the array has the 16 bytes that are written, and any address will do.
        unsafe { _mm_storeu_si128(last.as_mut_ptr().cast(), sum) };
        crc64_plain(crc64_plain(0, &last), tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64(0, b""), 0);
    }

    #[test]
    fn both_sum_alike() {
        let mut rng = fastrand::Rng::with_seed(1);
        for len in (0..400).chain([4096, 65_537]) {
            let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
            let crc = rng.u64(..);
            assert_eq!(crc64(crc, &bytes), crc64_plain(crc, &bytes), "{len}");
        }
    }

    #[test]
    fn any_cut_gives_the_same() {
        let mut rng = fastrand::Rng::with_seed(2);
        let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(300).collect();
        let whole = crc64(0, &bytes);
        for cut in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), whole);
        }
    }
}
