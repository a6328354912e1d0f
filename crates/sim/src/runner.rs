//! Calls of one client, one after the other: an engine as a function from requests to replies.
//!
//! Must not know: what commands do.

use std::{cell::RefCell, rc::Rc};

use redline_engine::Executor;
use redline_resp::{ArgsBuf, ReplyDecoder, Value};
use redline_table::heap::Heap;

use crate::{
    actors::Actor,
    ledger::Ledger,
    surroundings::{Bare, Time, close, deliver, open},
    world::Stage,
};

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Replies, and messages that came with them.
    Replies(Vec<Value>),
    /// The call waits. The runner continues with another client.
    Suspended,
}

/// See the head of the module.
pub struct Runner<'e> {
    stage: &'e Stage,
    executor: Executor<'e, Bare>,
    heap: Heap,
}

impl<'e> Runner<'e> {
    /// Creates a runner on the first executor of the stage.
    pub fn new(stage: &'e Stage, seed: u64) -> Runner<'e> {
        let ledger = Rc::new(RefCell::new(Ledger::default()));
        let outlet = Bare::new(0, seed, Time::default(), stage.queue(0), ledger);
        let mut executor = Executor::new(&stage.engine, 0, seed, outlet);
        open(&mut executor, Actor::silent());
        Runner {
            stage,
            executor,
            heap: Heap::new(),
        }
    }

    /// Runs a call.
    ///
    /// # Panics
    ///
    /// If the output is no reply.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: impl IntoIterator<Item = W>) -> Outcome {
        let mut args = ArgsBuf::new();
        words.into_iter().for_each(|word| args.push(word.as_ref()));
        let executor = &mut self.executor;
        let mut client = executor.outlet.places[0].client.take().expect("it is kept");
        executor.read_clock();
        executor.run_request(&mut client.caller, args.as_args(), None);
        executor.sweep();
        let is_suspended = client.caller.suspended.is_some();
        let is_over = client.caller.closing;
        let bytes: Vec<u8> = client.caller.out.chunks().flatten().copied().collect();
        client.caller.out.clear();
        executor.outlet.places[0].client = Some(client);
        deliver(executor, usize::MAX);
        self.stage.do_chores(&mut self.heap);
        if is_suspended || is_over {
            self.renew();
        }
        if is_suspended {
            return Outcome::Suspended;
        }
        let (mut decoder, mut at, mut replies) = (ReplyDecoder::new(), 0, Vec::new());
        while at < bytes.len() {
            let decoded = decoder.decode(&bytes[at..]);
            let decoded =
                decoded.unwrap_or_else(|error| panic!("{error}: {}", bytes.escape_ascii()));
            at += decoded.consumed;
            match decoded.value {
                Some(value) => replies.push(value),
                None => panic!("a reply that does not end: {}", bytes.escape_ascii()),
            }
        }
        Outcome::Replies(replies)
    }

    /// Closes the client and opens another one in its place.
    pub fn renew(&mut self) {
        close(&mut self.executor, 0);
        open(&mut self.executor, Actor::silent());
    }
}

#[cfg(test)]
mod tests;
