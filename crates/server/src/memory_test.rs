//! `--test-memory`: writes patterns to memory and reads them back, as redis-server's option of that name does.
//!
//! It finds bits that do not keep their value, and address lines without effect. It tests the given amount, of the
//! memory that the system happens to give. Must not know the server.

use std::hint::black_box;

/// Number of times that all patterns are tried: each is written to every word and read back.
const PASSES: u64 = 50;

/// Number of words that did not keep the value written to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub u64);

/// Tests `mib` MiB, and calls `progress` for each pass with its number, from 1 on. `None`: there is not enough memory.
pub fn run(mib: usize, mut progress: impl FnMut(u64, u64)) -> Option<Faults> {
    let words = mib.checked_mul(1 << 20)? / size_of::<u64>();
    let mut memory = Vec::new();
    memory.try_reserve_exact(words).ok()?;
    memory.resize(words, 0);
    let mut faults = Faults::default();
    for pass in 1..=PASSES {
        for pattern in PATTERNS {
            write(&mut memory, pass, *pattern);
            // The compiler must not infer the values just written.
            faults.0 += wrong(black_box(&memory), pass, *pattern);
        }
        progress(pass, PASSES);
    }
    Some(faults)
}

/// Function that returns the content of a word by its number and the pass.
type Pattern = fn(u64, u64) -> u64;

const PATTERNS: &[Pattern] = &[
    |word, _| word,
    |word, _| !word,
    |word, pass| [0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa][((word ^ pass) & 1) as usize],
    |word, pass| if (word ^ pass) & 1 == 0 { 0 } else { u64::MAX },
    // Neighbours have nothing in common: a multiplicative hash, another for each pass.
    |word, pass| (word ^ pass << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15),
];

fn write(memory: &mut [u64], pass: u64, pattern: Pattern) {
    for (number, word) in memory.iter_mut().enumerate() {
        *word = pattern(number as u64, pass);
    }
}

fn wrong(memory: &[u64], pass: u64, pattern: Pattern) -> u64 {
    let numbered = memory.iter().enumerate();
    numbered
        .filter(|(number, word)| **word != pattern(*number as u64, pass))
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_memory_passes_and_each_pattern_finds_a_bit_that_is_stuck() {
        let mut passes = 0;
        assert_eq!(run(1, |_, _| passes += 1), Some(Faults(0)));
        assert_eq!(passes, PASSES);
        for pattern in PATTERNS {
            let mut memory = vec![0; 1000];
            write(&mut memory, 3, *pattern);
            memory[700] ^= 1 << 40;
            assert_eq!(wrong(&memory, 3, *pattern), 1);
        }
        assert_eq!(run(usize::MAX, |_, _| {}), None);
    }
}
