//! The packed forms that are read but no longer written, ziplist and zipmap, and the intset. Each is split into its
//! elements. Must not know the collection.

use redline_types::Element;

use crate::{Corrupt, ensure};

/// Returns the elements of a ziplist.
///
/// `wrong` is the error. It is a header (its bytes, the offset of its last entry, the number of entries), the entries, and 0xff. An entry is
/// the length of the one before, a byte or five, then its own kind and length, then the element.
pub fn ziplist(bytes: &[u8], wrong: Corrupt) -> Result<Vec<Element<'_>>, Corrupt> {
    const HEAD: usize = 10;
    let (&total, rest) = bytes.split_first_chunk::<4>().ok_or(wrong)?;
    let (&tail, rest) = rest.split_first_chunk::<4>().ok_or(wrong)?;
    let (&count, rest) = rest.split_first_chunk::<2>().ok_or(wrong)?;
    let mut rest = rest.strip_suffix(&[0xff]).ok_or(wrong)?;
    ensure(u32::from_le_bytes(total) as usize == bytes.len(), wrong.0)?;
    let mut elements = Vec::new();
    let (mut at, mut last, mut len_before) = (HEAD, HEAD, 0);
    while !rest.is_empty() {
        let (before, skip) = match rest[0] {
            254 => {
                let len = rest.get(1..5).and_then(|len| len.first_chunk());
                (u32::from_le_bytes(*len.ok_or(wrong)?) as usize, 5)
            }
            255 => return Err(wrong),
            len => (usize::from(len), 1),
        };
        ensure(before == len_before, wrong.0)?;
        let (element, len) = ziplist_element(&rest[skip..]).ok_or(wrong)?;
        elements.push(element);
        last = at;
        len_before = skip + len;
        at += len_before;
        rest = &rest[len_before..];
    }
    let count = u16::from_le_bytes(count);
    ensure(u32::from_le_bytes(tail) as usize == last, wrong.0)?;
    ensure(
        count == u16::MAX || usize::from(count) == elements.len(),
        wrong.0,
    )?;
    Ok(elements)
}

/// Returns the element that an entry holds after its first length, and the number of bytes of both.
fn ziplist_element(entry: &[u8]) -> Option<(Element<'_>, usize)> {
    let kind = *entry.first()?;
    let (head, len) = match kind >> 6 {
        0 => (1, usize::from(kind & 0x3f)),
        1 => (
            2,
            usize::from(kind & 0x3f) << 8 | usize::from(*entry.get(1)?),
        ),
        2 if kind == 0x80 => (
            5,
            u32::from_be_bytes(*entry.get(1..5)?.first_chunk()?) as usize,
        ),
        2 => return None,
        _ => return ziplist_integer(kind, &entry[1..]),
    };
    let end = head + len;
    Some((Element::Bytes(entry.get(head..end)?), end))
}

fn ziplist_integer(kind: u8, body: &[u8]) -> Option<(Element<'static>, usize)> {
    let (value, len) = match kind {
        0xc0 => (i64::from(i16::from_le_bytes(*body.first_chunk()?)), 2),
        0xd0 => (i64::from(i32::from_le_bytes(*body.first_chunk()?)), 4),
        0xe0 => (i64::from_le_bytes(*body.first_chunk()?), 8),
        0xf0 => {
            let [a, b, c] = *body.first_chunk()?;
            (i64::from(i32::from_le_bytes([0, a, b, c]) >> 8), 3)
        }
        0xfe => (i64::from(i8::from_le_bytes(*body.first_chunk()?)), 1),
        0xf1..=0xfd => (i64::from(kind & 15) - 1, 0),
        _ => return None,
    };
    Some((Element::Int(value), 1 + len))
}

/// Returns the keys and values, by turns, of a zipmap: the form of small hashes in servers before 2.6.
pub fn zipmap(bytes: &[u8]) -> Result<Vec<Element<'_>>, Corrupt> {
    const WRONG: Corrupt = Corrupt("Zipmap integrity check failed");
    fn len(rest: &[u8]) -> Option<(usize, &[u8])> {
        match *rest.first()? {
            254 => {
                let (len, rest) = rest[1..].split_first_chunk()?;
                Some((u32::from_le_bytes(*len) as usize, rest))
            }
            255 => None,
            len => Some((usize::from(len), &rest[1..])),
        }
    }
    let (&pairs, rest) = bytes.split_first().ok_or(WRONG)?;
    let mut rest = rest.strip_suffix(&[0xff]).ok_or(WRONG)?;
    let mut elements = Vec::new();
    while !rest.is_empty() {
        let (key_len, after) = len(rest).ok_or(WRONG)?;
        let (key, after) = after.split_at_checked(key_len).ok_or(WRONG)?;
        let (value_len, after) = len(after).ok_or(WRONG)?;
        let (&free, after) = after.split_first().ok_or(WRONG)?;
        let (value, after) = after.split_at_checked(value_len).ok_or(WRONG)?;
        rest = after.get(usize::from(free)..).ok_or(WRONG)?;
        elements.extend([Element::of(key), Element::of(value)]);
    }
    // From 254 pairs on the number is not kept.
    ensure(
        pairs >= 254 || usize::from(pairs) * 2 == elements.len(),
        WRONG.0,
    )?;
    Ok(elements)
}

/// Returns the integers of an intset: the bytes of each, their number, and the integers, in ascending order.
pub fn intset(bytes: &[u8]) -> Result<Vec<i64>, Corrupt> {
    const WRONG: Corrupt = Corrupt("Intset integrity check failed");
    let (&width, rest) = bytes.split_first_chunk::<4>().ok_or(WRONG)?;
    let (&count, rest) = rest.split_first_chunk::<4>().ok_or(WRONG)?;
    let width = u32::from_le_bytes(width) as usize;
    let count = u32::from_le_bytes(count) as usize;
    ensure(matches!(width, 2 | 4 | 8), WRONG.0)?;
    ensure(count.checked_mul(width) == Some(rest.len()), WRONG.0)?;
    let unused = 64 - 8 * width as u32;
    let integers: Vec<i64> = rest
        .chunks(width)
        .map(|bytes| {
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(bytes);
            i64::from_le_bytes(wide) << unused >> unused
        })
        .collect();
    ensure(integers.is_sorted_by(|a, b| a < b), WRONG.0)?;
    Ok(integers)
}

/// Appends the intset of integers that are in ascending order.
pub fn write_intset(out: &mut Vec<u8>, integers: &[i64]) {
    let fits = |bits: u32| {
        let unused = 64 - bits;
        integers.iter().all(|n| n << unused >> unused == *n)
    };
    let width = [2u32, 4].into_iter().find(|width| fits(8 * width));
    let width = width.unwrap_or(8);
    out.extend_from_slice(&width.to_le_bytes());
    out.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    for integer in integers {
        out.extend_from_slice(&integer.to_le_bytes()[..width as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRONG: Corrupt = Corrupt("a ziplist");

    fn texts(elements: Vec<Element<'_>>) -> Vec<String> {
        let text = |element: Element<'_>| String::from_utf8(element.to_vec()).unwrap();
        elements.into_iter().map(text).collect()
    }

    /// Returns a ziplist of entries without their first lengths.
    fn ziplist_of(entries: &[&[u8]]) -> Vec<u8> {
        let (mut body, mut last, mut before) = (Vec::new(), 10, 0);
        for entry in entries {
            last = 10 + body.len();
            let len_of_before = if before < 254 {
                vec![before as u8]
            } else {
                [&[254][..], &(before as u32).to_le_bytes()].concat()
            };
            before = len_of_before.len() + entry.len();
            body.extend(len_of_before);
            body.extend_from_slice(entry);
        }
        let mut list = (body.len() as u32 + 11).to_le_bytes().to_vec();
        list.extend((last as u32).to_le_bytes());
        list.extend((entries.len() as u16).to_le_bytes());
        list.extend(body);
        list.push(255);
        list
    }

    #[test]
    fn ziplists_of_every_kind_of_entry() {
        let long = [&[0x41, 0x2c][..], &[b'x'; 300]].concat();
        let list = ziplist_of(&[
            b"\x02ab",
            &long,
            b"\x80\x00\x00\x00\x01z",
            b"\xc0\xff\xff",
            b"\xd0\x00\x00\x01\x00",
            b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80",
            b"\xf0\x00\x00\x80",
            b"\xfe\x80",
            b"\xf1",
            b"\xfd",
        ]);
        let found = texts(ziplist(&list, WRONG).unwrap());
        let long = "x".repeat(300);
        let wanted = [
            "ab",
            &long,
            "z",
            "-1",
            "65536",
            "-9223372036854775808",
            "-8388608",
            "-128",
            "0",
            "12",
        ];
        assert_eq!(found, wanted);
        for cut in 0..list.len() {
            assert!(ziplist(&list[..cut], WRONG).is_err());
        }
        for at in 0..11 {
            let mut damaged = list.clone();
            damaged[at] ^= 1;
            assert!(ziplist(&damaged, WRONG).is_err(), "byte {at} of the head");
        }
    }

    #[test]
    fn zipmaps() {
        let map = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world!!\xff";
        assert_eq!(
            texts(zipmap(map).unwrap()),
            ["foo", "bar", "hello", "world"]
        );
        for cut in 0..map.len() {
            assert!(zipmap(&map[..cut]).is_err());
        }
        assert!(zipmap(b"\x03\x03foo\x03\x00bar\xff").is_err(), "the count");
    }

    #[test]
    fn intsets_come_back() {
        for integers in [
            &[][..],
            &[-5, 0, 7],
            &[-40_000, 1],
            &[i64::MIN, 3, i64::MAX],
        ] {
            let mut out = Vec::new();
            write_intset(&mut out, integers);
            assert_eq!(intset(&out).as_deref(), Ok(integers));
        }
        assert!(
            intset(b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0").is_err(),
            "twice"
        );
        assert!(intset(b"\x02\0\0\0\xff\xff\xff\xff\x01\0").is_err());
        assert!(intset(b"\x03\0\0\0\x01\0\0\0\x01\0\0").is_err());
        assert!(intset(b"\x00\0\0\0\x00\0\0\0").is_err());
    }
}
