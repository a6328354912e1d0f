//! Integration tests of the command table, in one binary.

mod redis;
mod table;
