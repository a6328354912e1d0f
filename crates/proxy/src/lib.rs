//! `redline proxy`: one address in front of many Redis servers.
//!
//! [`route`] is what the control side makes and the data path reads: which server has a key.
//!
//! This room must not know keys' values, handlers, the keyspace or the server.

#![forbid(unsafe_code)]

pub mod config;
pub mod hash;
pub mod route;
