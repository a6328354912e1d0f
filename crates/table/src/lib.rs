//! Memory arenas and the hash table that the keyspace and large collections share. Must not know keys, types or
//! clients.
//!
//! - [`hash`](mod@hash): the one hash function of the program, and the meaning of its bits.
//! - [`Heap`]: exact size classes for keyspace entries, and the compaction that gives memory back.
//! - [`Index`]: one slot's hash table: pointers to entries that it never reads.
//! - [`Dict`], [`BytesDict`]: safe maps from bytes for large collections.
//! - [`frozen`]: collections that are given out in pieces as they were, while they change.

mod arena;
pub mod dict;
pub mod frozen;
pub mod hash;
pub mod heap;
pub mod index;
mod magazine;
mod prefetch;

pub use dict::{BytesDict, Dict};
pub use hash::hash;
pub use heap::Heap;
pub use index::{Index, Sight};
pub use prefetch::prefetch;
