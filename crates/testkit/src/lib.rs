//! Test support: starts servers, sends them requests, and compares two of them reply by reply.
//!
//! Start in [`compare`]. Knows servers only from outside: by their process and their socket.

#![forbid(unsafe_code)]

pub mod access;
pub mod certificates;
pub mod client;
pub mod compare;
pub mod configuration;
pub mod differences;
pub mod files;
pub mod generate;
mod pair;
pub mod payloads;
pub mod pools;
pub mod port;
pub mod process;
pub mod relay;
pub mod rules;
pub mod stream;
pub mod symbols;
pub mod through;
pub mod valkey;
mod vectors;
