//! The data types as pure data structures. Knows no keys, expiry or clients.
