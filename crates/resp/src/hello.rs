//! The map that answers HELLO. Must not know who is greeted, or what was asked.

use crate::reply::{Proto, Reply};

/// The properties that a server or proxy reports in its reply to HELLO.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// Its name, as clients are to take it.
    pub server: &'a str,
    /// The version of that.
    pub version: &'a str,
    /// The protocol version that the connection uses from now on.
    pub proto: Proto,
    /// The client's number.
    pub id: u64,
    /// `standalone` or `cluster`.
    pub mode: &'a str,
    /// Where it runs; empty: not told.
    pub availability_zone: &'a str,
}

impl Hello<'_> {
    /// Writes the map as far as to the array of modules, which the caller writes, and behind it [`Hello::write_rest`].
    pub fn write(&self, reply: &mut Reply<'_>) {
        reply.map(if self.availability_zone.is_empty() {
            7
        } else {
            8
        });
        for (name, text) in [("server", self.server), ("version", self.version)] {
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

    /// Writes what comes behind the modules.
    pub fn write_rest(&self, reply: &mut Reply<'_>) {
        if !self.availability_zone.is_empty() {
            reply.bulk(b"availability_zone");
            reply.bulk(self.availability_zone.as_bytes());
        }
    }
}
