//! Files that keep the data: the append-only file, its manifest, and the check of files.
//!
//! Start with [`disk`] (all that is asked of the operating system, and the double that tests put in its place), then
//! [`manifest`] (which files there are), [`aof`] (how they are written and read) and [`check`] (the tools' reports).
//!
//! Nothing here has a thread, a clock or a socket: callers say what time it is, and run the jobs that take long.
//!
//! Must not know: commands, sessions, sockets, where settings come from.
#![forbid(unsafe_code)]

pub mod aof;
pub mod check;
pub mod disk;
pub mod manifest;

pub use disk::{Disk, File, RealDisk};
pub use manifest::{Manifest, Paths};
