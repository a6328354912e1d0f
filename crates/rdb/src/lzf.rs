//! LZF, the compression of strings in payloads and files. Must not know what the strings are.
//!
//! A run of literals is a byte below 32 (their number less one) and the literals. A repetition is a byte with the length
//! less two in its upper three bits (7: the next byte is added) and the upper five bits of the distance less one, and
//! then the lower eight.

const LITERALS_MAX: usize = 32;
const DISTANCE_MAX: usize = 1 << 13;
const REPEAT_MIN: usize = 3;
const REPEAT_MAX: usize = 264;
/// Places remembered while compressing.
const PLACES_BITS: u32 = 13;

/// The compressed form, if it takes at most `bytes_max`.
pub fn compress(text: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    // Where three bytes of that hash were last seen; places are below 2^32, longer texts are cut off from sharing.
    let mut places = vec![0u32; 1 << PLACES_BITS];
    let mut out = Vec::new();
    let (mut at, mut literals_from) = (0, 0);
    while at + REPEAT_MIN <= text.len() {
        let three = [text[at], text[at + 1], text[at + 2]];
        let hash = u32::from_le_bytes([three[0], three[1], three[2], 0]).wrapping_mul(0x9e37_79b1);
        let place = &mut places[(hash >> (32 - PLACES_BITS)) as usize];
        // Kept one higher, so that zero says "nowhere".
        let before = (*place as usize).checked_sub(1);
        *place = u32::try_from(at + 1).unwrap_or(0);
        let found = before
            .filter(|before| at - before <= DISTANCE_MAX && text[*before..].starts_with(&three));
        let Some(before) = found else {
            at += 1;
            continue;
        };
        let limit = REPEAT_MAX.min(text.len() - at);
        let len = (REPEAT_MIN..limit)
            .find(|n| text[before + n] != text[at + n])
            .unwrap_or(limit);
        push_literals(&mut out, &text[literals_from..at]);
        push_repeat(&mut out, at - before - 1, len - 2);
        at += len;
        literals_from = at;
        if out.len() > bytes_max {
            return None;
        }
    }
    push_literals(&mut out, &text[literals_from..]);
    (out.len() <= bytes_max).then_some(out)
}

fn push_literals(out: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(LITERALS_MAX) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

fn push_repeat(out: &mut Vec<u8>, distance: usize, len: usize) {
    let high = (distance >> 8) as u8;
    if len < 7 {
        out.push((len as u8) << 5 | high);
    } else {
        out.push(7 << 5 | high);
        out.push((len - 7) as u8);
    }
    out.push(distance as u8);
}

/// The text of a compressed form, which must have `len` bytes; none if it is damaged. Memory is taken as the text comes
/// out, not by what `len` claims.
pub fn decompress(mut from: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Some((&control, rest)) = from.split_first() {
        from = rest;
        let control = usize::from(control);
        if control < LITERALS_MAX {
            let (run, rest) = from.split_at_checked(control + 1)?;
            from = rest;
            if run.len() > len - out.len() {
                return None;
            }
            out.extend_from_slice(run);
            continue;
        }
        let mut take = || {
            let (&byte, rest) = from.split_first()?;
            from = rest;
            Some(usize::from(byte))
        };
        let mut run = control >> 5;
        if run == 7 {
            run += take()?;
        }
        let distance = ((control & 31) << 8 | take()?) + 1;
        let (run, start) = (run + 2, out.len().checked_sub(distance)?);
        if run > len - out.len() {
            return None;
        }
        if distance >= run {
            out.extend_from_within(start..start + run);
        } else {
            // It repeats what it is just writing.
            (start..start + run).for_each(|at| out.push(out[at]));
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_comes_back() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..2000 {
            let letters = 1 + round % 7;
            let len = random.usize(..2000);
            let text: Vec<u8> = (0..len).map(|_| random.u8(..=letters as u8)).collect();
            let Some(small) = compress(&text, usize::MAX) else {
                panic!("no limit");
            };
            assert_eq!(decompress(&small, len), Some(text));
        }
        let zeros = vec![0; 100_000];
        let small = compress(&zeros, 2000).expect("a few hundred repetitions");
        assert_eq!(decompress(&small, zeros.len()), Some(zeros));
    }

    #[test]
    fn far_and_long_repetitions_are_within_the_format() {
        let mut text: Vec<u8> = (0..=255).cycle().take(9000).collect();
        text.extend_from_slice(&vec![7; 1000]);
        text.extend((0..=255).rev());
        let small = compress(&text, usize::MAX).unwrap();
        assert!(small.len() < text.len() / 4);
        assert_eq!(decompress(&small, text.len()), Some(text));
    }

    #[test]
    fn a_limit_is_kept() {
        let mut random = fastrand::Rng::with_seed(5);
        let noise: Vec<u8> = (0..1000).map(|_| random.u8(..)).collect();
        assert_eq!(compress(&noise, 996), None);
    }

    #[test]
    fn damage_is_refused() {
        for (bytes, len) in [
            (&b"\x05abc"[..], 6),      // literals cut off
            (b"\x20\x00", 3),          // a repetition of nothing
            (b"\x00a\x20\x01", 4),     // from before the beginning
            (b"\x00a\xe0", 10),        // cut off
            (b"\x00a\xe0\xff\x00", 4), // longer than it says
            (b"\x00a", 2),             // shorter than it says
        ] {
            assert_eq!(decompress(bytes, len), None, "{bytes:?}");
        }
        assert_eq!(decompress(b"", 1 << 40), None);
    }
}
