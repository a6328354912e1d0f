//! The slot of a key. Knows nothing of its owner.

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

/// Returns the CRC-16/XMODEM: polynomial 0x1021, from 0.
#[inline]
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc16_next(crc, byte))
}

/// Returns the [`crc16`] of the bytes that `crc` stands for, and one more.
#[inline]
pub fn crc16_next(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
}

static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ (if crc & 0x8000 == 0 { 0 } else { 0x1021 });
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
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
