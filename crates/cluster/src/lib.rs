//! Facts that clients of a Redis Cluster need: the slot of a key, the owner of each slot, and the content of a
//! redirect.
//!
//! Start in [`slot_of`], then [`Topology`] (the replies to CLUSTER SLOTS and CLUSTER SHARDS), then [`Redirect`]. Input
//! from a server is checked: an invalid one is no topology and no redirect, and never a panic.
//!
//! Must not know: sockets, callers, how a reply is used.

#![forbid(unsafe_code)]

mod redirect;
mod slot;
mod topology;

pub use redirect::Redirect;
pub use slot::{SLOTS, crc16, crc16_next, slot_of, tagged};
pub use topology::{Node, Role, Shard, Topology};
