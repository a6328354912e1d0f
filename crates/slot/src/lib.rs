//! The slot of a key in a cluster: the CRC16 of its hash tag.
//!
//! Start in [`slot_of`]. Must not know: who owns a slot, what a key holds.

#![forbid(unsafe_code)]

/// Number of slots of a cluster.
pub const SLOTS: usize = 16_384;

/// Returns the slot of a key: of the text in its first braces, if there is any. Source: the Redis Cluster specification.
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tagged(key, b'{', b'}')) % SLOTS as u16
}

/// Returns the part of a key that decides its place: the text between the first `open` and the next `close` after it,
/// or the whole key if there is none.
#[inline]
pub fn tagged(key: &[u8], open: u8, close: u8) -> &[u8] {
    if !has(key, open) {
        return key;
    }
    let part = memchr::memchr(open, key).and_then(|open| {
        let rest = &key[open + 1..];
        let close = memchr::memchr(close, rest)?;
        (close > 0).then(|| &rest[..close])
    });
    part.unwrap_or(key)
}

/// Longest key that is searched in pieces of a fixed size: preparing a search takes longer.
const SHORT_BYTES_MAX: usize = 64;

/// Returns true if the key has the byte; most keys have no tag and are short.
#[inline]
fn has(key: &[u8], byte: u8) -> bool {
    if key.len() > SHORT_BYTES_MAX {
        return memchr::memchr(byte, key).is_some();
    }
    if let Some(last) = key.last_chunk::<16>() {
        let mut pieces = key.as_chunks::<16>().0.iter();
        return is_in(last, byte) || pieces.any(|piece| is_in(piece, byte));
    }
    match (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        (Some(first), Some(last)) => is_in(first, byte) || is_in(last, byte),
        _ => key.contains(&byte),
    }
}

/// Compares without a branch: the compiler takes all bytes at once.
#[inline]
fn is_in<const N: usize>(piece: &[u8; N], byte: u8) -> bool {
    piece
        .iter()
        .fold(false, |found, other| found | (*other == byte))
}

/// Returns the slot of all keys that a pattern can match, if its text before the first wildcard says so; `None`: they may
/// be in several. Escaped patterns are not searched.
pub fn slot_of_pattern(pattern: &[u8]) -> Option<u16> {
    let mut open = None;
    let mut is_searched = true;
    for (at, byte) in pattern.iter().enumerate() {
        match (byte, open) {
            (b'*' | b'?' | b'[' | b'\\', _) => return None,
            (b'{', None) if is_searched => open = Some(at),
            // An empty tag is none, and no other one is looked for.
            (b'}', Some(first)) if at == first + 1 => (open, is_searched) = (None, false),
            (b'}', Some(first)) => return Some(crc16(&pattern[first + 1..at]) % SLOTS as u16),
            _ => {}
        }
    }
    Some(crc16(pattern) % SLOTS as u16)
}

/// Returns the CRC-16/XMODEM: polynomial 0x1021, from 0.
///
/// Bytes are taken by sixteen and by four: byte by byte each step waits for the table access of the one before, which for
/// a key of 16 bytes is most of what a cluster's node does more than a single server. The sum over a slice is that of each
/// of its bytes with zeros behind it, since the code is linear, and these accesses do not wait for each other. (Slicing is
/// Kounavis and Berry's, of 2005.)
#[inline]
pub fn crc16(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<16>();
    let crc = blocks.iter().fold(0, crc16_slice);
    let (words, rest) = rest.as_chunks::<4>();
    let crc = words.iter().fold(crc, crc16_slice);
    rest.iter().fold(crc, |crc, &byte| crc16_next(crc, byte))
}

/// Returns the [`crc16`] of the bytes that `crc` stands for, and one more.
#[inline]
pub fn crc16_next(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ TABLES[0][usize::from((crc >> 8) as u8 ^ byte)]
}

/// Does the same for a slice of 2 to [`SLICE_MAX`] bytes.
#[inline]
fn crc16_slice<const N: usize>(crc: u16, slice: &[u8; N]) -> u16 {
    let [high, low] = crc.to_be_bytes();
    let mut sum = 0;
    for (at, &byte) in slice.iter().enumerate() {
        let byte = match at {
            0 => byte ^ high,
            1 => byte ^ low,
            _ => byte,
        };
        sum ^= TABLES[N - 1 - at][usize::from(byte)];
    }
    sum
}

/// Longest slice: its tables take 8 KiB.
const SLICE_MAX: usize = 16;

/// The code of each byte with so many zero bytes behind it.
static TABLES: [[u16; 256]; SLICE_MAX] = {
    let mut tables = [[0; 256]; SLICE_MAX];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut zeros = 0;
        while zeros < SLICE_MAX {
            let mut bit = 0;
            while bit < 8 {
                crc = (crc << 1) ^ (if crc & 0x8000 == 0 { 0 } else { 0x1021 });
                bit += 1;
            }
            tables[zeros][byte] = crc;
            zeros += 1;
        }
        byte += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // Values of CLUSTER KEYSLOT of Redis 8.2.3.
        for (key, slot) in [
            ("", 0),
            ("foo", 12182),
            ("bar", 5061),
            ("123456789", 12739),
            ("{foo}bar", 12182),
            ("x{foo}{bar}", 12182),
            ("foo{}", 5542),
            ("{", 4092),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn slices_give_what_bytes_give() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * 151 + 7) as u8).collect();
        for from in 0..4 {
            for to in from..bytes.len() {
                let one_by_one = bytes[from..to].iter();
                let one_by_one = one_by_one.fold(0, |crc, &byte| crc16_next(crc, byte));
                assert_eq!(crc16(&bytes[from..to]), one_by_one, "{from}..{to}");
            }
        }
    }

    #[test]
    fn patterns_of_one_slot_are_known() {
        // Which patterns SORT of Redis 8.2.3 takes for a key in the slot of `a` and of `b`.
        let slot = |tag: &str| Some(slot_of(tag.as_bytes()));
        for (pattern, expected) in [
            ("a", slot("a")),
            ("{a}w_*", slot("a")),
            ("x{a}*{b}", slot("a")),
            ("w_*", None),
            ("{a*", None),
            ("{}w_*", None),
            ("\\{a}w_*", None),
            ("[a]", None),
            ("a?", None),
            ("{}a", slot("{}a")),
            ("{}{a}", slot("{}{a}")),
            ("", slot("")),
        ] {
            assert_eq!(slot_of_pattern(pattern.as_bytes()), expected, "{pattern}");
        }
    }

    #[test]
    fn a_tag_is_found_wherever_it_is() {
        for len in 3..100 {
            for open in 0..len - 2 {
                for filling in [b'|', b'z', 0, 0xff] {
                    let mut key = vec![filling; len];
                    assert_eq!(tagged(&key, b'{', b'}'), key);
                    (key[open], key[len - 1]) = (b'{', b'}');
                    assert_eq!(tagged(&key, b'{', b'}'), &key[open + 1..len - 1]);
                }
            }
        }
    }

    #[test]
    fn any_two_characters_make_a_tag() {
        for (key, open, close, part) in [
            ("a{b}c", b'{', b'}', "b"),
            ("a$b$c", b'$', b'$', "b"),
            ("a$b", b'$', b'$', "a$b"),
            ("<<a>>", b'<', b'>', "<a"),
            ("<>a<b>", b'<', b'>', "<>a<b>"),
            ("}a{b}", b'{', b'}', "b"),
        ] {
            assert_eq!(
                tagged(key.as_bytes(), open, close),
                part.as_bytes(),
                "{key}"
            );
        }
    }
}
