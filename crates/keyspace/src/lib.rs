//! Databases: the hash table of keys, entries, expiry, eviction, memory accounting, stripe locks,
//! watched keys, and keyspace events as data.
//!
//! Must not know: commands, sockets, files, threads. What a command may do to keys is [`View`];
//! who may do it at the same time is [`lock`].

pub mod lock;
