//! Counting bits.

/// Returns the number of bits that are set.
pub fn ones(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the CPU has both, as was just checked.
        return unsafe { ones_wide(bytes) };
    }
    ones_plain(bytes)
}

#[inline(always)]
fn ones_plain(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let whole: u64 = words.map(|word| u64::from(word.count_ones())).sum();
    whole + rest.iter().map(|b| u64::from(b.count_ones())).sum::<u64>()
}

/// Runs the same loop, compiled for the CPU's features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn ones_wide(bytes: &[u8]) -> u64 {
    ones_plain(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_count_alike() {
        let mut rng = fastrand::Rng::with_seed(1);
        for len in (0..200).chain([4096, 65_537]) {
            let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
            assert_eq!(ones(&bytes), ones_plain(&bytes), "{len}");
        }
    }
}
