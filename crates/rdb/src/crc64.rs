//! The checksum of payloads and files: CRC-64 with the Jones polynomial, reflected, from zero. Must not know the data
//! that it covers.

/// Polynomial, its bits in reverse.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
/// Number of bytes that are taken at a time.
const SLICE: usize = 8;

/// Table of `TABLES[n][byte]`: the effect of a byte on the checksum when `n` more bytes follow it.
static TABLES: [[u64; 256]; SLICE] = {
    let mut tables = [[0; 256]; SLICE];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
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

/// Returns the checksum of data with the checksum `crc` (empty data has 0), followed by these bytes.
pub fn update(mut crc: u64, bytes: &[u8]) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::update;

    #[test]
    fn the_check_value() {
        assert_eq!(update(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(update(0, b""), 0);
    }

    #[test]
    fn any_cut_gives_the_same() {
        let text: Vec<u8> = (0..100).collect();
        let whole = update(0, &text);
        for cut in 0..text.len() {
            assert_eq!(update(update(0, &text[..cut]), &text[cut..]), whole);
        }
    }
}
