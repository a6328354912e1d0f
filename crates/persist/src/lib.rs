//! Files that keep the data: snapshots, the append-only file, their check, and how they are loaded.
//!
//! Start with [`disk`] (all that is asked of the operating system, and the double that tests put in its place), then
//! [`snapshot`] (what workers encode, and the file of it), [`load`] (a snapshot into a keyspace), [`manifest`] (which
//! append-only files there are), [`aof`] (how they are written and read) and [`check`] (the tools' reports).
//!
//! Nothing here has a clock or a socket: callers say what time it is, and run the jobs that take long. Threads are used
//! by [`load`] alone, and end with its call.
//!
//! Must not know: commands, sessions, sockets, where settings come from.
#![forbid(unsafe_code)]

pub mod aof;
pub mod check;
pub mod disk;
pub mod load;
pub mod manifest;
pub mod snapshot;

pub use disk::{Disk, File, RealDisk};
pub use manifest::{Manifest, Paths};
