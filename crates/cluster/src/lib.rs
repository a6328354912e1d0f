//! Facts that clients of a Redis Cluster must know of it: the slot of a key, the owner of each slot, and the content of a
//! redirect.
//!
//! Start in [`slot_of`], then [`Topology`] (what CLUSTER SLOTS and CLUSTER SHARDS say), then [`Redirect`].
//! What comes from a server is checked: what cannot be is no topology and no redirect, and never a panic.
//!
//! Must not know: sockets, who asks, what is done with an answer.

#![forbid(unsafe_code)]

mod redirect;
mod slot;
mod topology;

pub use redirect::Redirect;
pub use slot::{SLOTS, crc16, crc16_next, slot_of, tagged};
pub use topology::{Node, Role, Shard, Topology};
