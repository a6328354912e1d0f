//! LZF, the compression of strings in payloads and files. Must not know the meaning of the strings.
//!
//! A run of literals is a byte below 32 (their number less one) and the literals. A repetition is a byte with the
//! length less two in its upper three bits (7: the next byte is added) and the upper five bits of the distance less
//! one, and then the lower eight.
//!
//! Of the many forms of a text this is Redis's, to the byte, so that two servers' payloads can be compared. So the
//! hash, the places that are remembered, the lengths near the end and the reserved room are as in Redis.

use std::cell::RefCell;

const LITERALS_MAX: usize = 32;
const DISTANCE_MAX: usize = 1 << 13;
const REPEAT_MIN: usize = 3;
const REPEAT_MAX: usize = 264;
/// Number of bytes at the end that a repetition does not cover, unless the bytes compared without a check reach into
/// them.
const TAIL: usize = 2;
/// Number of bytes after the first three that are compared without a check for the end, where there are more than so
/// many.
const UNASKED: usize = 16;
/// Room that must be left for a repetition, and for the literals at the end.
const REPEAT_ROOM: usize = 4;
const END_ROOM: usize = 3;
const PLACES_BITS: u32 = 16;

/// Places where three bytes of a hash were last seen, over all texts that a thread compresses, one after the other: a
/// place before the beginning of the present text belongs to an earlier one. So nothing is cleared for a short text,
/// but once in 4 GiB of texts, where the numbers end.
struct Places {
    by_hash: Box<[u32; 1 << PLACES_BITS]>,
    end: u32,
}

thread_local! {
    static PLACES: RefCell<Places> = RefCell::new(Places {
        by_hash: vec![0; 1 << PLACES_BITS].try_into().expect("so many"),
        end: 0,
    });
}

/// Returns the compressed form, if it takes at most `bytes_max`.
pub fn compress(text: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    compress_to(&mut out, text, bytes_max)?;
    Some(out)
}

/// Puts the compressed form in the place of what the buffer holds, if it takes at most `bytes_max`; if not, what the
/// buffer holds is without meaning.
pub fn compress_to(out: &mut Vec<u8>, text: &[u8], bytes_max: usize) -> Option<()> {
    let len = u32::try_from(text.len()).ok()?;
    out.clear();
    PLACES.with_borrow_mut(|places| {
        let start = match places.end.checked_add(len) {
            Some(_) => places.end,
            None => {
                places.by_hash.fill(0);
                0
            }
        };
        places.end = start + len;
        compress_from(out, text, bytes_max, &mut places.by_hash, start)
    })
}

fn compress_from(
    out: &mut Vec<u8>,
    text: &[u8],
    bytes_max: usize,
    places: &mut [u32; 1 << PLACES_BITS],
    start: u32,
) -> Option<()> {
    let (mut at, mut literals_from) = (0, 0);
    let mut literals_end = literals_fitting(bytes_max, out.len());
    let mut next = three(text, at);
    while let Some(here) = next {
        let place = &mut places[hash(here)];
        // A place at the very beginning does not count.
        let before = (*place).saturating_sub(start) as usize;
        *place = start + at as u32;
        let literals = at - literals_from;
        let is_found =
            before > 0 && at - before <= DISTANCE_MAX && three(text, before) == Some(here);
        if !is_found {
            if literals >= literals_end {
                return None;
            }
            at += 1;
            let byte = text.get(at + REPEAT_MIN - 1);
            next = byte.map(|byte| here << 8 & 0xff_ff00 | u32::from(*byte));
            continue;
        }
        // Bytes written, and the control byte of the open run.
        let written = out.len() + literals + literals / LITERALS_MAX + 1;
        let unused = usize::from(literals.is_multiple_of(LITERALS_MAX));
        if written - unused + REPEAT_ROOM >= bytes_max {
            return None;
        }
        let len = repeated(text, before, at);
        push_literals(out, &text[literals_from..at]);
        push_repeat(out, at - before - 1, len - 2);
        at += len;
        literals_from = at;
        literals_end = literals_fitting(bytes_max, out.len());
        if at + REPEAT_MIN <= text.len() {
            for inside in [at - 2, at - 1] {
                if let Some(there) = three(text, inside) {
                    places[hash(there)] = start + inside as u32;
                }
            }
        }
        next = three(text, at);
    }
    let looked_at = at - literals_from;
    let written = out.len() + looked_at + looked_at / LITERALS_MAX + 1;
    if written + END_ROOM > bytes_max {
        return None;
    }
    push_literals(out, &text[literals_from..]);
    Some(())
}

/// Returns the number of literals after `written` bytes that is the first to fill `bytes_max` bytes, with a control
/// byte for each run of them and one for the open run; 0 if there is room for none.
fn literals_fitting(bytes_max: usize, written: usize) -> usize {
    let room = bytes_max.saturating_sub(written + 1);
    // The first number n with n + n / LITERALS_MAX >= room.
    let runs = room / (LITERALS_MAX + 1);
    let rest = room % (LITERALS_MAX + 1);
    runs * LITERALS_MAX + rest.min(LITERALS_MAX)
}

/// Returns the three bytes at a place; `None` if fewer are left.
#[inline(always)]
fn three(text: &[u8], at: usize) -> Option<u32> {
    let three = text.get(at..)?.first_chunk::<REPEAT_MIN>()?;
    Some(u32::from_be_bytes([0, three[0], three[1], three[2]]))
}

#[inline(always)]
fn hash(three: u32) -> usize {
    let mixed = (three >> (24 - PLACES_BITS)).wrapping_sub(three.wrapping_mul(5));
    mixed as usize & ((1 << PLACES_BITS) - 1)
}

/// Returns the number of bytes from `at` that equal those from `before`; the first three are known to be equal.
fn repeated(text: &[u8], before: usize, at: usize) -> usize {
    let limit = REPEAT_MAX.min(text.len() - at - TAIL);
    let limit = if limit > UNASKED {
        limit.max(REPEAT_MIN + UNASKED)
    } else {
        limit.max(REPEAT_MIN)
    };
    let (earlier, here) = (&text[before..before + limit], &text[at..at + limit]);
    let (earlier_words, _) = earlier[REPEAT_MIN..].as_chunks::<8>();
    let (words, rest) = here[REPEAT_MIN..].as_chunks::<8>();
    for (i, (word, earlier)) in words.iter().zip(earlier_words).enumerate() {
        let differing = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*earlier);
        if differing != 0 {
            return REPEAT_MIN + 8 * i + differing.trailing_zeros() as usize / 8;
        }
    }
    let from = limit - rest.len();
    (from..limit)
        .find(|&n| earlier[n] != here[n])
        .unwrap_or(limit)
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

/// The most bytes of text that one byte of a compressed form can stand for: a repetition of the longest kind has three.
const RATIO_MAX: usize = REPEAT_MAX / 3;
/// Bytes beyond the present place that may be written: those of the longest repetition, in whole steps.
const AHEAD: usize = REPEAT_MAX.next_multiple_of(STEP);
/// Bytes of a repetition that are copied at once, where it begins so far back.
const STEP: usize = 16;
/// Bytes of text for which there is memory at first.
const FIRST_BYTES: usize = 1 << 10;

/// Returns the text of a compressed form, as [`decompress_to`] appends it.
pub fn decompress(from: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    decompress_to(&mut out, from, len)?;
    Some(out)
}

/// Appends the text of a compressed form, which must have `len` bytes; `None` if it is damaged, what was appended is
/// without meaning then. Memory is allocated as the text is produced, not by the claim of `len`.
pub fn decompress_to(out: &mut Vec<u8>, from: &[u8], len: usize) -> Option<()> {
    if len > from.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let begin = out.len();
    let result = expand(out, from, begin, begin + len);
    out.truncate(begin + len);
    result
}

/// Writes the text from `begin` on, which must reach to `end`. Beyond it, bytes without meaning are left.
///
/// Literals and repetitions are copied in steps of a fixed size, which are one or two moves each, and may write more
/// bytes than they are: those are written again. So there are always [`AHEAD`] bytes beyond the present place.
fn expand(out: &mut Vec<u8>, mut from: &[u8], begin: usize, end: usize) -> Option<()> {
    let mut at = begin;
    while let Some((&control, rest)) = from.split_first() {
        from = rest;
        if out.len() - at < AHEAD {
            let room = (2 * (at - begin)).max(FIRST_BYTES).min(end - begin);
            out.resize(begin + room + AHEAD, 0);
        }
        let control = usize::from(control);
        if control < LITERALS_MAX {
            let run = control + 1;
            if run > end - at {
                return None;
            }
            match from.first_chunk::<LITERALS_MAX>() {
                Some(chunk) => out[at..][..LITERALS_MAX].copy_from_slice(chunk),
                None => out[at..at + run].copy_from_slice(from.get(..run)?),
            }
            from = &from[run..];
            at += run;
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
        let run = run + 2;
        if run > end - at || distance > at - begin {
            return None;
        }
        repeat(&mut out[at - distance..at + AHEAD], distance, run);
        at += run;
    }
    (at == end).then_some(())
}

/// Continues the first `distance` bytes by `run` of their repetition.
#[inline]
fn repeat(bytes: &mut [u8], distance: usize, run: usize) {
    if distance >= STEP {
        for done in (0..run).step_by(STEP) {
            let step: [u8; STEP] = *bytes[done..].first_chunk().expect("a step");
            bytes[distance + done..][..STEP].copy_from_slice(&step);
        }
    } else if distance == 1 {
        let byte = bytes[0];
        bytes[1..=run].fill(byte);
    } else {
        for at in distance..distance + run {
            bytes[at] = bytes[at - distance];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_fit_until_they_fill_what_there_is() {
        for room in 0..400 {
            let literals = literals_fitting(room + 1, 0);
            let bytes = |literals: usize| literals + literals / LITERALS_MAX;
            assert!(bytes(literals) >= room, "{room}");
            assert!(literals == 0 || bytes(literals - 1) < room, "{room}");
        }
    }

    /// Payloads of Redis 8.2.3.
    #[test]
    fn a_payload_differed_from_redis_s_by_another_choice_of_repetitions() {
        let recorded: [(&[u8], Option<&[u8]>); 9] = [
            (&[b'z'; 21], Some(b"\x01zz\xe0\n\x00")),
            (&[b'z'; 22], Some(b"\x01zz\xe0\n\x00\x00z")),
            (&[b'x'; 64], Some(b"\x01xx\xe03\x00\x01xx")),
            (&[b'z'; 300], Some(b"\x01zz\xe0\xff\x00\xe0\x17\x00\x01zz")),
            (
                b"abcabcabcabcabcabcabcabc",
                Some(b"\x03abca\xe0\n\x02\x00c"),
            ),
            (
                b"abcdabcdabcdabcdabcdab",
                Some(b"\x04abcda\xe0\x06\x03\x01ab"),
            ),
            (
                b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80O7\x80U\x0e\x80[\xb6",
                None,
            ),
            (
                b"0123456789abcdef0123456789abcdef0123456789",
                Some(b"\x100123456789abcdef0\xe0\x0e\x0f\x0189"),
            ),
            (
                b"aaaaaaaaaaaaaaaabcdefghijklmnopaaaaaaa",
                Some(b"\x01aa\xe0\x05\x00\x0ebcdefghijklmnop`\x1c\x01aa"),
            ),
        ];
        for (text, small) in recorded {
            assert_eq!(compress(text, text.len() - 4).as_deref(), small, "{text:?}");
        }
    }

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
    fn a_text_is_at_most_as_much_longer_as_repetitions_can_make_it() {
        // A literal, and repetitions of it that are as long as there are.
        let mut small = vec![0, b'a'];
        for _ in 0..10_000 {
            small.extend_from_slice(b"\xe0\xff\x00");
        }
        let len = 1 + 10_000 * REPEAT_MAX;
        assert_eq!(decompress(&small, len), Some(vec![b'a'; len]));
        assert_eq!(decompress(&small, len - 1), None);
        // What is claimed beyond that is refused before a byte is produced.
        let mut out = Vec::new();
        for len in [1 << 60, usize::MAX, small.len() * RATIO_MAX + 1] {
            assert_eq!(decompress_to(&mut out, &small, len), None);
            assert_eq!(out.capacity(), 0);
        }
    }

    #[test]
    fn a_repetition_does_not_reach_texts_before_its_own() {
        let mut out = b"before".to_vec();
        assert_eq!(decompress_to(&mut out, b"\x00a\x20\x00", 4), Some(()));
        assert_eq!(out, b"beforeaaaa");
        assert_eq!(decompress_to(&mut out, b"\x00a\x20\x01", 4), None);
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
