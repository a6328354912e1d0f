//! Replication as data and state machines: who a stream belongs to, which of its bytes are kept, and both sides of PSYNC.
//!
//! Start with [`identity`] (ids, offsets, and what happens to them when the role changes), then [`blocks`] (the bytes of
//! the stream that are kept) and [`log`] (both together, with the records that offsets stand for). [`link`] is the replica's side.
//!
//! Nothing here has a socket or a clock: callers say what time it is, feed bytes, and carry out what they are told.
//!
//! Must not know: commands' handlers, sessions, sockets, files, where settings come from.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod identity;
pub mod link;
pub mod log;
pub mod primary;

pub use identity::{Identity, Replid, Role};
pub use log::Log;
pub use primary::Primary;
