//! The payload that FUNCTION DUMP returns and FUNCTION RESTORE takes: the texts of libraries. Must not know their
//! contents.

use std::borrow::Cow;

use crate::{
    VERSION, crc64,
    primitive::{Reader, Writer, write_string},
};

/// Byte before a library, in a payload and in a file.
pub const OPCODE: u8 = 245;

/// Reason why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is too short, of a newer version, or its checksum does not match.
    VersionOrChecksum,
    /// A part of it is no library.
    Type,
    /// A library in it is damaged.
    Damaged,
}

/// Returns the payload of libraries. `compresses`: see [`Writer::new`].
pub fn dump<'a>(codes: impl IntoIterator<Item = &'a [u8]>, compresses: bool) -> Vec<u8> {
    let mut out = Writer::new(compresses);
    for code in codes {
        out.push(OPCODE);
        write_string(&mut out, code);
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64::update(0, &out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.into_bytes()
}

/// Returns the libraries of a payload.
pub fn restore(payload: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, Refused> {
    let (signed, checksum) = payload
        .split_last_chunk::<8>()
        .ok_or(Refused::VersionOrChecksum)?;
    let (body, version) = signed
        .split_last_chunk::<2>()
        .ok_or(Refused::VersionOrChecksum)?;
    if u16::from_le_bytes(*version) > VERSION
        || u64::from_le_bytes(*checksum) != crc64::update(0, signed)
    {
        return Err(Refused::VersionOrChecksum);
    }
    let mut reader = Reader::new(body);
    let mut codes = Vec::new();
    while !reader.is_empty() {
        match reader.byte() {
            Ok(OPCODE) => codes.push(reader.string().map_err(|_| Refused::Damaged)?),
            _ => return Err(Refused::Type),
        }
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = b"#!lua name=x\nredis.register_function('f',function() end)";

    #[test]
    fn payloads_come_back() {
        for codes in [&[][..], &[ONE], &[ONE, b"#!lua name=y\n", ONE]] {
            let payload = dump(codes.iter().copied(), true);
            assert_eq!(restore(&payload).expect("ours"), codes);
            for i in 0..payload.len() {
                let mut damaged = payload.clone();
                damaged[i] ^= 1;
                assert_eq!(restore(&damaged), Err(Refused::VersionOrChecksum));
                assert_eq!(restore(&payload[..i]), Err(Refused::VersionOrChecksum));
            }
        }
    }

    /// Compares with the reply of Redis 8.2.3 to FUNCTION DUMP without libraries.
    #[test]
    fn the_empty_payload_is_that_of_redis() {
        assert_eq!(dump([], true), b"\x0c\x00\x96\xedh\x80\xf5U<\x93");
    }

    #[test]
    fn what_is_no_library_is_refused() {
        let signed = |body: &[u8]| {
            let mut payload = body.to_vec();
            payload.extend_from_slice(&VERSION.to_le_bytes());
            let checksum = crc64::update(0, &payload);
            payload.extend_from_slice(&checksum.to_le_bytes());
            payload
        };
        assert_eq!(restore(&signed(&[246])), Err(Refused::Type));
        assert_eq!(restore(&signed(&[0, 1, b'a'])), Err(Refused::Type));
        assert_eq!(restore(&signed(&[245])), Err(Refused::Damaged));
        assert_eq!(restore(&signed(&[245, 5, b'a'])), Err(Refused::Damaged));
        let endless = [245, 0x81, 255, 255, 255, 255, 255, 255, 255, 255, b'a'];
        assert_eq!(restore(&signed(&endless)), Err(Refused::Damaged));
    }
}
