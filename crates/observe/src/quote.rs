//! Words in double quotes, as configuration files and MONITOR's lines have them.

/// Writes a word in double quotes, with escapes for bytes that are not printable.
pub fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in word {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            7 => out.extend(b"\\a"),
            8 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    out.push(b'"');
}
