//! Facts of a Redis Cluster: for its clients the owner of each slot and the content of a redirect, for its nodes the
//! records of who is there and who owns what.
//!
//! Start in [`slot_of`], then [`Topology`] (the replies to CLUSTER SLOTS and CLUSTER SHARDS), then [`Redirect`]; for nodes
//! in [`records`] and [`Picture`], for what a node decides in [`control`]. Input is checked: what is invalid is no topology, no redirect and no picture, and never
//! a panic.
//!
//! Must not know: sockets, stores, callers, how a reply is used.

#![forbid(unsafe_code)]

pub mod control;
pub mod moves;
mod picture;
pub mod records;
mod redirect;
mod topology;

pub use picture::{BadRecord, Owners, Picture};
pub use redirect::Redirect;
pub use redline_slot::{SLOTS, crc16, crc16_next, slot_of, tagged};
pub use topology::{Node, Role, Shard, Topology};
