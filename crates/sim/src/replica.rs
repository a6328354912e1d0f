//! A second engine that gets the records of the first one's journal, and must reach the same data.
//!
//! Must not know: the requests to the first one.

use std::{cell::RefCell, rc::Rc};

use redline_engine::{Executor, caller::Token};
use redline_keyspace::{
    Local, Unit, ValueRef,
    journal::{Command, Record},
    lock::StripeSet,
};
use redline_resp::ArgsBuf;
use redline_types::Digest as _;

use crate::{
    actors::Actor,
    ledger::Ledger,
    surroundings::{Bare, Client, Queue, Time},
    world::Stage,
};

/// See the head of the module.
pub struct Replica<'e> {
    executor: Executor<'e, Bare>,
    client: Client,
    applied: u64,
}

impl<'e> Replica<'e> {
    /// Creates an empty replica, whose clock stands still: keys expire only by a record.
    pub fn new(stage: &'e Stage) -> Replica<'e> {
        let ledger = Rc::new(RefCell::new(Ledger::default()));
        let outlet = Bare::new(0, 0, Time::default(), Queue::default(), ledger);
        let executor = Executor::new(&stage.engine, 0, 0, outlet);
        let now_ms = executor.now_ms as u64;
        let client = Client::new(&stage.engine, Token::new(0, 0, 0), now_ms, Actor::silent());
        Replica {
            executor,
            client,
            applied: 0,
        }
    }

    /// Applies records; returns an error if they are wrong.
    pub fn apply(&mut self, records: &[Record]) -> Result<(), String> {
        for record in records {
            self.applied += 1;
            if record.number != self.applied {
                return Err(format!(
                    "record {} comes as the {}th",
                    record.number, self.applied
                ));
            }
            for Command { db, words } in &record.commands {
                let args: ArgsBuf = words.iter().map(Vec::as_slice).collect();
                let caller = &mut self.client.caller;
                caller.db = *db;
                self.executor.run_request(caller, args.as_args(), None);
                self.executor.sweep();
                let reply = caller.out.chunks().next().unwrap_or_default();
                let words = || {
                    let words = words.iter().map(|word| word.escape_ascii().to_string());
                    words.collect::<Vec<_>>().join(" ")
                };
                if caller.suspended.is_some() || reply.is_empty() {
                    return Err(format!("a record of a command that waits: {}", words()));
                }
                if reply.starts_with(b"-") {
                    let reply = reply.escape_ascii();
                    return Err(format!("a record that is refused: {}: {reply}", words()));
                }
                caller.out.clear();
            }
        }
        Ok(())
    }

    /// Returns the digest of all its data.
    pub fn digest(&mut self) -> Digest {
        digest(&self.executor.engine.keyspace, &mut self.executor.local)
            .expect("nobody else is here")
    }
}

/// A number that is equal for equal contents: FNV-1a of elements, those without an order combined by exclusive or.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

fn hashed(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl redline_types::Digest for Digest {
    fn mix(&mut self, bytes: &[u8]) {
        self.combine(bytes);
        self.0 = hashed(&self.0.to_le_bytes());
    }

    fn combine(&mut self, bytes: &[u8]) {
        self.0 ^= hashed(bytes);
    }

    fn mix_f64(&mut self, number: f64) {
        self.mix(&number.to_bits().to_le_bytes());
    }

    fn combine_part(&mut self, part: &Digest) {
        self.combine(&part.0.to_le_bytes());
    }
}

/// Returns the digest of a whole keyspace: keys, values, expiry times; `None`: a stripe is in use.
pub fn digest(space: &redline_keyspace::Keyspace, local: &mut Local) -> Option<Digest> {
    let mut unit = Unit::try_set(space, &StripeSet::all(), false).ok()?;
    let mut view = unit.view(local, 0, 0);
    let mut digest = Digest::default();
    for db in 0..space.databases() {
        view.in_db(db, |view| {
            view.database().for_each(|key, found| {
                let mut own = Digest::default();
                own.mix(&db.to_le_bytes());
                own.mix(key);
                own.mix(&found.expire_at_ms().unwrap_or(-1).to_le_bytes());
                found.with(|value| match value {
                    ValueRef::String(string) => own.mix(string.as_bytes()),
                    ValueRef::Object(value) => value.digest(&mut own),
                });
                digest.combine_part(&own);
            });
        });
    }
    view.finish();
    Some(digest)
}
