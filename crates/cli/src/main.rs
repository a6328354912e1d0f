//! The `redline` binary: picks the part to run. Everything else lives in the rooms.

fn main() {}
