//! The journal from outside: what a unit's record says, that records replayed elsewhere give the same data, and
//! replies that wait for a reader.

mod effects;
mod replay;
pub mod replica;
mod typed;
mod waiting;

use std::sync::mpsc;

use redline_keyspace::{
    Keyspace,
    journal::{Command, Record, RecordReader},
};
use redline_server::Server;

use crate::client::{Client, until};
pub use replay::random_requests;

pub const DATABASES: u32 = 4;

/// A reader of the stream and how far it has got; records as text: their commands, each after its database.
struct Log<'a> {
    space: &'a Keyspace,
    records: mpsc::Receiver<Record>,
    last: u64,
}

/// Attaches a reader of records; returns them and the number after which they begin.
pub fn attach(server: &Server) -> (mpsc::Receiver<Record>, u64) {
    let (give, records) = mpsc::channel();
    // A reader that has ended hears nothing more.
    let stream = RecordReader::new(move |record| drop(give.send(record)));
    let last = server.attach_stream(Box::new(stream));
    (records, last)
}

impl Log<'_> {
    fn attach(server: &Server) -> Log<'_> {
        let (records, last) = attach(server);
        Log {
            space: server.keyspace(),
            records,
            last,
        }
    }

    /// Everything since the last call. Whatever has been answered is in it.
    fn records(&mut self) -> Vec<Vec<String>> {
        let mut records = Vec::new();
        until("all that was numbered has come", || {
            records.extend(self.records.try_iter());
            let last = |record: &Record| record.number;
            records.last().map_or(self.last, last) >= self.space.journal().last()
        });
        let mut texts = Vec::new();
        for record in records {
            self.last += 1;
            assert_eq!(record.number, self.last, "a gap, or another order");
            let text = |Command { db, words }| {
                let words: Vec<Vec<u8>> = words;
                let words = words.iter().map(|word| String::from_utf8_lossy(word));
                format!("{db} {}", words.collect::<Vec<_>>().join(" "))
            };
            texts.push(record.commands.into_iter().map(text).collect());
        }
        texts
    }

    /// The effect of one request; an array of no, one or several commands.
    #[track_caller]
    fn effect(&mut self, client: &mut Client, line: &str) -> Vec<String> {
        client.call(line);
        let mut records = self.records();
        assert!(records.len() <= 1, "{line} made {records:?}");
        records.pop().unwrap_or_default()
    }
}
