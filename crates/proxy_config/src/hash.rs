//! Hash functions of keys and distributions over shards, by their names in a configuration. Must not know their
//! computation.

use serde::{Deserialize, Serialize};

/// The hash function of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashKind {
    /// The number at the beginning of the key, as predixy reads it: 0 if there is none.
    Atol,
    /// CRC-16 as Redis Cluster and predixy use it.
    Crc16,
    /// CRC-16 as twemproxy uses it: bits that are shifted out of the 16 are kept.
    Crc16Twemproxy,
    /// 15 bits of CRC-32, as twemproxy's `crc32` and libmemcached's.
    Crc32,
    /// CRC-32.
    Crc32a,
    /// FNV-1 of 64 bits, the lower half.
    #[serde(rename = "fnv1-64")]
    Fnv164,
    /// FNV-1a with the lower halves of the constants for 64 bits, as twemproxy's `fnv1a_64`.
    #[serde(rename = "fnv1a-64")]
    Fnv1a64,
    /// FNV-1 of 32 bits.
    #[serde(rename = "fnv1-32")]
    Fnv132,
    /// FNV-1a of 32 bits.
    #[serde(rename = "fnv1a-32")]
    Fnv1a32,
    /// Hsieh's.
    Hsieh,
    /// Jenkins's lookup3.
    Jenkins,
    /// The first four bytes of MD5.
    Md5,
    /// MurmurHash2.
    Murmur,
    /// Jenkins's one at a time.
    OneAtATime,
}

impl HashKind {
    /// Returns the number of bits that can be set.
    pub fn bits(self) -> u32 {
        match self {
            HashKind::Crc16 => 16,
            HashKind::Crc32 => 15,
            _ => 32,
        }
    }
}

/// The distribution of hashes over shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DistributionKind {
    /// Points on a circle, as twemproxy and libketama set them: few keys move when a shard is added or removed.
    Ketama,
    /// The remainder: most keys move.
    Modula,
    /// The shard with the highest score for the key: few keys move, and there are no points to keep.
    Rendezvous,
    /// A random shard: a key has no fixed one.
    Random,
}
