//! The sizes up to which a collection keeps its compact encoding, and what filters and time series are like that no command
//! describes. Plain values: this file must not know their origin (rows of the engine's settings set them).

use crate::series::{CHUNK_BYTES_DEFAULT, Policy};

/// Bytes of a filter or sketch, above which none is made or grows: as many as a Bloom filter needs for the largest
/// capacity (2³⁰ items) at one error in a million.
pub const SKETCH_BYTES_MAX: u64 = 1 << 32;

/// The thresholds of every type, under the names of the configuration parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes (-1 to -5: 4 KiB to 64 KiB) or elements (positive) in one node of a list.
    pub list_max_listpack_size: i32,
    /// Bytes from which an element of a list in nodes has a node of its own, whatever its pack could hold; `None`: if
    /// it is larger than a node. No parameter: DEBUG QUICKLIST-PACKED-THRESHOLD.
    pub list_plain_node_bytes: Option<usize>,
    /// A payload is accepted whatever its checksum; its contents are checked all the same. No parameter: DEBUG
    /// SET-SKIP-CHECKSUM-VALIDATION.
    pub payload_checksum_skipped: bool,
    /// Long strings in payloads that are written are compressed (`rdbcompression`).
    pub payload_compressed: bool,
    /// Field-value pairs up to which a hash stays packed.
    pub hash_max_listpack_entries: usize,
    /// Bytes of a field or value up to which a hash stays packed.
    pub hash_max_listpack_value: usize,
    /// Members up to which a set of integers stays an array of integers.
    pub set_max_intset_entries: usize,
    /// Members up to which a set stays packed.
    pub set_max_listpack_entries: usize,
    /// Bytes of a member up to which a set stays packed.
    pub set_max_listpack_value: usize,
    /// Members up to which a sorted set stays packed.
    pub zset_max_listpack_entries: usize,
    /// Bytes of a member up to which a sorted set stays packed.
    pub zset_max_listpack_value: usize,
    /// Bytes up to which a HyperLogLog stays sparse.
    pub hll_sparse_max_bytes: usize,
    /// Bytes in one node of a stream; 0 is no limit.
    pub stream_node_max_bytes: usize,
    /// Entries in one node of a stream; 0 is no limit.
    pub stream_node_max_entries: usize,
    /// Rate of errors of a Bloom filter that no command describes.
    pub bf_error_rate: Rate,
    /// Items for which such a filter has room.
    pub bf_initial_size: u64,
    /// Factor by which the layers of a Bloom filter grow, if no command says otherwise; 0: it does not grow.
    pub bf_expansion_factor: u32,
    /// Items in a bucket of a cuckoo filter, if no command says otherwise; from 1 to 255.
    pub cf_bucket_size: u32,
    /// Items for which a cuckoo filter has room that no command describes.
    pub cf_initial_size: u64,
    /// Moves of items in a cuckoo filter for one that is added, if no command says otherwise; from 1 to 65,535.
    pub cf_max_iterations: u32,
    /// Factor by which the layers of a cuckoo filter grow, if no command says otherwise; 0: it does not grow.
    pub cf_expansion_factor: u32,
    /// Layers of a cuckoo filter with which it takes no more items.
    pub cf_max_expansions: usize,
    /// Properties of a new time series whose call does not name them.
    pub series: SeriesDefaults,
}

/// A number between 0 and 1, both excluded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(f64);

impl Eq for Rate {}

impl Rate {
    /// Returns the rate of that number; `None` if it is not between 0 and 1.
    pub fn new(rate: f64) -> Option<Rate> {
        (rate > 0.0 && rate < 1.0).then_some(Rate(rate))
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// Properties of a new time series whose call does not name them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesDefaults {
    /// Age in milliseconds, counted from the last sample, above which a sample is gone; 0: none ever is.
    pub retention_ms: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Chunks are compressed.
    pub compressed: bool,
    /// Policy for a second sample for a time.
    pub policy: Policy,
    /// Distance in milliseconds up to which a sample may be ignored.
    pub ignore_ms: u64,
    /// Difference of values up to which it may.
    pub ignore_difference: f64,
}

impl Default for SeriesDefaults {
    fn default() -> SeriesDefaults {
        SeriesDefaults {
            retention_ms: 0,
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            compressed: true,
            policy: Policy::Block,
            ignore_ms: 0,
            ignore_difference: 0.0,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            list_max_listpack_size: -2,
            list_plain_node_bytes: None,
            payload_checksum_skipped: false,
            payload_compressed: true,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            hll_sparse_max_bytes: 3000,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
            bf_error_rate: Rate(0.01),
            bf_initial_size: 100,
            bf_expansion_factor: 2,
            cf_bucket_size: 2,
            cf_initial_size: 1_024,
            cf_max_iterations: 20,
            cf_expansion_factor: 1,
            cf_max_expansions: 32,
            series: SeriesDefaults::default(),
        }
    }
}
