//! Integration tests of the codec, in one binary.

mod incremental;
mod pieces;
mod redis;
