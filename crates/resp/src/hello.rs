//! The map that answers HELLO. Must not know who is greeted, or what was asked.

use crate::reply::{Proto, Reply};

/// What whoever answers says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The version of Redis that clients are to reckon with.
    pub version: &'a str,
    /// What the connection speaks from now on.
    pub proto: Proto,
    /// The client's number.
    pub id: u64,
    /// `standalone` or `cluster`.
    pub mode: &'a str,
}

impl Hello<'_> {
    /// Writes the map but for its last value, the array of modules, which the caller writes.
    pub fn write(&self, reply: &mut Reply<'_>) {
        reply.map(7);
        for (name, text) in [("server", "redis"), ("version", self.version)] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        reply.bulk(b"proto");
        reply.integer(if self.proto == Proto::Resp3 { 3 } else { 2 });
        reply.bulk(b"id");
        reply.integer(self.id as i64);
        for (name, text) in [("mode", self.mode), ("role", "master")] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        reply.bulk(b"modules");
    }
}
