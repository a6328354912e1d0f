//! Databases, entries, expiry, eviction, stripe locks, watched keys, keyspace events. Knows no commands, sockets or files.
