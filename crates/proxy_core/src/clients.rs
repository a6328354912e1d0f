//! A worker's clients: finding them, answering them, and the order in which they are served. Must not know upstreams or routes.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use redline_resp::{Proto, Reply, ReplyBuffer};

use crate::class::NO_COMMAND;
use crate::client::{Client, OUT_BYTES_KEPT_MAX, Pause, ReplyMode};
use crate::leases::{Lease, Session, Transaction};
use crate::requests::Flow;
use crate::shell::Shell;
use crate::slab::{Ref, Slab};
use crate::upstream::Kind;

/// Largest number of output buffers that are kept for other clients.
const OUTS_MAX: usize = 256;

/// A worker's clients.
pub struct Clients<S: Shell> {
    slab: Slab<Client<S>>,
    /// Clients to serve, in this turn or the next.
    pub ready: VecDeque<u32>,
    /// Clients that have new output or changed state.
    pub dirty: Vec<u32>,
    /// Output buffers for other clients.
    outs: Vec<Vec<u8>>,
    /// Buffer for the proxy's own replies; empty between them.
    reply: ReplyBuffer,
    /// Clients that wait for a time.
    delayed: Vec<Delayed>,
    /// Number of requests that were answered.
    pub(crate) responses: u64,
}

/// A client that waits for a time.
struct Delayed {
    until_ms: u64,
    client: Ref,
}

/// Finding a client is finding it in the slab: every function of that is one of the clients.
impl<S: Shell> Deref for Clients<S> {
    type Target = Slab<Client<S>>;

    #[inline]
    fn deref(&self) -> &Slab<Client<S>> {
        &self.slab
    }
}

impl<S: Shell> DerefMut for Clients<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Slab<Client<S>> {
        &mut self.slab
    }
}

impl<S: Shell> Clients<S> {
    /// Returns no clients.
    pub(crate) fn new() -> Clients<S> {
        Clients {
            slab: Slab::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            outs: Vec::new(),
            reply: ReplyBuffer::new(),
            delayed: Vec::new(),
            responses: 0,
        }
    }

    /// Returns true if clients wait for a time.
    pub fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Removes a client from those that wait for a time.
    pub(crate) fn forget_delay(&mut self, me: Ref) {
        self.delayed.retain(|delayed| delayed.client != me);
    }

    /// Keeps the memory of an empty output for the next client.
    pub fn keep_output(&mut self, mut memory: Vec<u8>) {
        if self.outs.len() < OUTS_MAX {
            memory.shrink_to(OUT_BYTES_KEPT_MAX);
            self.outs.push(memory);
        }
    }

    /// Takes nothing more from a client until this time; then it goes on by itself.
    pub(crate) fn delay(&mut self, me: Ref, until_ms: u64) {
        if let Some(client) = self.slab.find(me) {
            client.pause = Pause::Time;
            self.delayed.push(Delayed {
                until_ms,
                client: me,
            });
        }
    }

    /// Resumes the clients whose time has come.
    pub fn release_delayed(&mut self, now_ms: u64) {
        for delayed in self
            .delayed
            .extract_if(.., |delayed| delayed.until_ms <= now_ms)
            .collect::<Vec<_>>()
        {
            if let Some(client) = self.slab.find(delayed.client)
                && client.pause == Pause::Time
                && client.go_on()
            {
                self.enqueue(delayed.client.at);
            }
        }
    }

    /// Resumes clients that waited for a server.
    pub fn let_go(&mut self, clients: Vec<Ref>) {
        for client in clients {
            if let Some(found) = self.slab.find(client)
                && found.pause == Pause::Upstream
                && found.go_on()
            {
                self.enqueue(client.at);
            }
        }
    }

    /// Changes a client's state, and publishes it to other workers.
    pub fn set_about(&mut self, me: Ref, change: impl FnOnce(&mut Client<S>)) {
        let Some(client) = self.slab.find(me) else {
            return;
        };
        change(client);
        let about = client.about.as_deref();
        let mut told = client.info.told();
        told.name = about.map(|about| about.name.clone()).unwrap_or_default();
        told.lib_name = about
            .map(|about| about.lib_name.clone())
            .unwrap_or_default();
        told.lib_ver = about.map(|about| about.lib_ver.clone()).unwrap_or_default();
        told.db = client.db;
        told.resp3 = client.proto == Proto::Resp3;
    }

    pub(crate) fn is_in_transaction(&mut self, me: Ref) -> bool {
        self.find(me)
            .is_some_and(|client| matches!(client.session, Session::Transaction(_)))
    }

    /// Returns true if earlier requests must be answered first; the client then goes on by itself.
    pub fn must_wait(&mut self, me: Ref) -> bool {
        let Some(client) = self.slab.find(me) else {
            return false;
        };
        let waits = client.pending() > 0;
        if waits {
            client.pause = Pause::Order;
        }
        waits
    }

    /// Gives the connection back once everything is answered; the client's next request waits for that.
    pub(crate) fn leave(&mut self, me: Ref, lease: Lease) {
        if let Some(client) = self.slab.find(me) {
            client.session = Session::Leaving(lease);
            client.pause = Pause::Order;
            self.mark(me.at);
        }
    }

    /// Returns true if MULTI came and its end did not.
    pub(crate) fn is_in_multi(&mut self, me: Ref) -> bool {
        self.transaction_of(me).is_some_and(|it| it.is_in_multi())
    }

    pub(crate) fn transaction_of(&mut self, me: Ref) -> Option<&mut Transaction> {
        match &mut self.slab.find(me)?.session {
            Session::Transaction(transaction) => Some(transaction),
            _ => None,
        }
    }

    /// Resumes the client after the reply to MULTI, or its loss.
    pub(crate) fn resume(&mut self, me: Ref) {
        if let Some(client) = self.slab.find(me)
            && client.pause == Pause::Multi
            && client.go_on()
        {
            self.enqueue(me.at);
        }
    }

    /// Answers with an error inside MULTI: EXEC will fail.
    pub fn abort(&mut self, me: Ref, line: &(impl AsRef<[u8]> + ?Sized)) -> Flow {
        if let Some(transaction) = self.transaction_of(me) {
            transaction.abort();
        }
        self.refuse(me, line)
    }

    /// Restricts a client that is subscribed and speaks RESP2 to few commands.
    pub(crate) fn restrict(&mut self, me: Ref) {
        let Some(client) = self.slab.find(me) else {
            return;
        };
        let empty = client
            .subscribed
            .as_ref()
            .is_none_or(|subscribed| subscribed.is_empty());
        client.restricted = !empty && client.proto == Proto::Resp2;
        for (names, shown) in client.info.subscriptions.iter().enumerate() {
            let mine = client.subscribed.as_ref();
            let count = mine.map_or(0, |mine| mine.names[names].len());
            shown.store(count as u32, Ordering::Relaxed);
        }
        if empty {
            client.subscribed = None;
        }
    }

    pub(crate) fn push_to(&mut self, me: Ref, frame: &[u8]) {
        let Some(client) = self.slab.find(me) else {
            return;
        };
        client.push(frame);
        self.mark(me.at);
    }

    pub(crate) fn pass_on(&mut self, to: Ref, bytes: &[u8]) {
        if let Some(client) = self.slab.find(to) {
            client.deliver_part(bytes);
            self.mark(to.at);
        }
    }

    /// Returns the number of a client's pool.
    pub(crate) fn home_of(&self, me: Ref) -> u16 {
        self.slab.look(me.at).map_or(0, |client| client.pool)
    }

    /// Returns the command that a client has called last.
    pub(crate) fn command_called(&mut self, me: Ref) -> u16 {
        let last = self.slab.find(me).and_then(|client| client.last);
        last.map_or(NO_COMMAND, |id| id as u16)
    }

    /// Returns the kind of a reply: silent, if the client wants no replies.
    pub(crate) fn silenced(&mut self, me: Ref, kind: Kind) -> Kind {
        let silent = self
            .find(me)
            .is_some_and(|client| client.reply_mode != ReplyMode::On);
        match kind {
            Kind::Client if silent => Kind::Silent,
            kind => kind,
        }
    }

    /// Answers a request with an error.
    pub fn refuse(&mut self, me: Ref, line: &(impl AsRef<[u8]> + ?Sized)) -> Flow {
        self.answer(me, |reply| reply.error_bytes(line.as_ref()))
    }

    /// Answers a request with a status.
    pub fn status(&mut self, me: Ref, text: &str) -> Flow {
        self.answer(me, |reply| reply.simple(text))
    }

    /// Answers a request.
    pub fn answer(&mut self, me: Ref, write: impl FnOnce(&mut Reply<'_>)) -> Flow {
        let Some(client) = self.slab.find(me) else {
            return Flow::Done;
        };
        let (number, proto, reply_mode) = (client.number(), client.proto, client.reply_mode);
        self.answer_as(me, number, proto, reply_mode, write)
    }

    /// Answers a request that was numbered before.
    pub fn answer_as(
        &mut self,
        me: Ref,
        number: u32,
        proto: Proto,
        reply_mode: ReplyMode,
        write: impl FnOnce(&mut Reply<'_>),
    ) -> Flow {
        let mut buffer = std::mem::take(&mut self.reply);
        write(&mut Reply::new(&mut buffer, proto));
        match reply_mode {
            ReplyMode::On => self.deliver(me, number, 1, buffer.bytes()),
            _ => self.deliver(me, number, 1, b""),
        }
        buffer.clear();
        buffer.shrink(64 * 1024);
        self.reply = buffer;
        Flow::Done
    }

    /// Queues the client to be served in this turn, or in the next if this one has served it already.
    pub fn enqueue(&mut self, at: u32) {
        if let Some(client) = self.slab.get(at)
            && !client.queued
        {
            client.queued = true;
            self.ready.push_back(at);
        }
    }

    /// Marks the client, which has new output or changed state, to be checked before the turn ends.
    #[inline]
    pub fn mark(&mut self, at: u32) {
        if let Some(client) = self.slab.get(at)
            && !client.dirty
        {
            client.dirty = true;
            self.dirty.push(at);
        }
    }

    /// Gives a client an output buffer, if it has none.
    #[inline]
    fn lend_output(outs: &mut Vec<Vec<u8>>, client: &mut Client<S>) {
        if client.out.capacity() == 0
            && let Some(memory) = outs.pop()
        {
            client.out = memory;
        }
    }

    /// Delivers replies to a client, if it is still there.
    #[inline]
    pub(crate) fn deliver(&mut self, to: Ref, first: u32, count: u32, bytes: &[u8]) {
        let Some(client) = self.slab.find(to) else {
            return;
        };
        Self::lend_output(&mut self.outs, client);
        client.deliver(first, count, bytes);
        self.responses += u64::from(count);
        if !client.dirty {
            client.dirty = true;
            self.dirty.push(to.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestShell, client};

    fn clients() -> (Clients<TestShell>, Ref) {
        let mut clients = Clients::new();
        let me = clients.next_place();
        clients.put(client());
        (clients, me)
    }

    #[test]
    fn a_client_that_is_answered_is_written_to_once() {
        let (mut clients, me) = clients();
        clients.status(me, "OK");
        clients.refuse(me, "ERR no");
        assert_eq!(clients.dirty, [me.at]);
        assert_eq!(clients.find(me).unwrap().out, b"+OK\r\n-ERR no\r\n");
        assert_eq!(clients.responses, 2);
    }

    #[test]
    fn a_client_that_waits_for_a_moment_goes_on_when_it_is_over() {
        let (mut clients, me) = clients();
        clients.delay(me, 50);
        clients.release_delayed(49);
        assert!(clients.ready.is_empty() && clients.has_delayed());
        clients.release_delayed(50);
        assert_eq!(clients.ready, [me.at]);
        assert!(!clients.has_delayed() && clients.find(me).unwrap().pause == Pause::No);
    }

    #[test]
    fn whoever_comes_to_the_place_of_another_gets_none_of_its_replies() {
        let (mut clients, me) = clients();
        clients.take(me.at);
        clients.end_turn();
        let next = clients.next_place();
        clients.put(client());
        assert_eq!(next.at, me.at);
        clients.status(me, "OK");
        assert!(clients.dirty.is_empty() && clients.find(next).unwrap().out.is_empty());
    }
}
