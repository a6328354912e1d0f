//! The checksum of payloads and files: CRC-64 with the Jones polynomial, reflected, from zero. Must not know the data
//! that it covers.

/// Returns the checksum of data with the checksum `crc` (empty data has 0), followed by these bytes.
pub fn update(crc: u64, bytes: &[u8]) -> u64 {
    redline_lanes::crc64(crc, bytes)
}
