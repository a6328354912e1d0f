//! The data types as pure data structures: list, hash, set, sorted set, stream and vector set, and those of Redis's and Tair's
//! modules (JSON, filters and sketches, time series, exString, exHash and exZset, compressed bitmaps, areas of geometries), their compact
//! encodings and the conversions between them. Must not know keys, expiry, clients, a clock or a source of randomness:
//! limits and random words are handed in by the caller.
//!
//! Start with [`Value`] (what a key can hold besides a string), then [`pack`] (the packed sequence
//! that every small collection is made of), then one file per type.
#![forbid(unsafe_code)]

pub mod bitmap;
pub mod bloom;
pub mod count_min;
pub mod cuckoo;
pub mod digest;
pub mod ex_hash;
pub mod ex_string;
pub mod geo;
pub mod gis;
pub mod glob;
pub mod hash;
pub mod hll;
pub mod json;
pub mod lcs;
pub mod limits;
pub mod list;
pub mod murmur;
pub mod number;
pub mod pack;
pub mod packed;
pub mod partial_sort;
pub mod roaring_bitmap;
pub mod sample;
pub mod series;
pub mod set;
pub mod stream;
pub mod t_digest;
pub mod timelines;
pub mod top_k;
pub mod value;
pub mod vector;
pub mod zset;

pub use bloom::Bloom;
pub use count_min::CountMin;
pub use cuckoo::Cuckoo;
pub use digest::Digest;
pub use ex_hash::ExHash;
pub use ex_string::ExString;
pub use gis::Area;
pub use hash::{Hash, Live};
pub use json::Json;
pub use limits::Limits;
pub use list::List;
pub use number::IntBuf;
pub use pack::{Element, Pack};
pub use packed::{PackedForm, PackedRef};
pub use roaring_bitmap::Roaring;
pub use series::Series;
pub use set::Set;
pub use stream::Stream;
pub use t_digest::TDigest;
pub use timelines::Timelines;
pub use top_k::TopK;
pub use value::{Collection, DataType, Kind, Value};
pub use vector::VectorSet;
pub use zset::{ExZset, Zset};
