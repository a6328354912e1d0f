//! Requests of `redline bench run`: command templates with distributions of keys and of values.
//!
//! Knows no socket, no clock and no reply.

pub mod keys;
pub mod template;
pub mod values;
