//! Files that keep the data: snapshots and how they are loaded.
//!
//! Must not know: commands, sessions, sockets, where settings come from.
#![forbid(unsafe_code)]

pub mod disk;
pub mod load;
pub mod snapshot;

pub use disk::{Disk, File, RealDisk};
