//! The append-only file: how it is written ([`writer`]) and read ([`scan`]).
//!
//! Must not know: what commands do.

pub mod commands;
pub mod scan;
pub mod writer;
