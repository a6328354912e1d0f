//! The map that answers HELLO. Must not know the client or its request.

use crate::reply::{Proto, Reply};

/// Properties that a server or proxy reports in its reply to HELLO.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// Name of the server for clients.
    pub server: &'a str,
    /// Version of the server.
    pub version: &'a str,
    /// Protocol version that the connection uses from now on.
    pub proto: Proto,
    /// Number of the client.
    pub id: u64,
    /// `standalone` or `cluster`.
    pub mode: &'a str,
    /// Availability zone of the server; empty: omitted.
    pub availability_zone: &'a str,
}

impl Hello<'_> {
    /// Writes the map up to the array of modules, which the caller writes, followed by [`Hello::write_rest`].
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

    /// Writes the fields after the modules.
    pub fn write_rest(&self, reply: &mut Reply<'_>) {
        if !self.availability_zone.is_empty() {
            reply.bulk(b"availability_zone");
            reply.bulk(self.availability_zone.as_bytes());
        }
    }
}
