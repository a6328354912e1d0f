//! Client states that need a connection of their own: a blocking call, a transaction. Must not know how requests are routed.
//!
//! Such a connection comes out of a pool ([`Lease`]) and goes back when nothing of its client is left on it: behind the
//! reply of a blocking call, of EXEC, DISCARD or UNWATCH. A client that leaves before takes it along: it is closed.

use redline_resp::{Args, encode_request};
use redline_spec::{CommandId, refusal};

use crate::class::{Class, Command};
use crate::client::Pause;
use crate::errors;
use crate::large::Passing;
use crate::local::heeds_nobody;
use crate::redirect::{MOVED_ON, is_redirect};
use crate::route::NodeId;
use crate::seeing::tell_of_query_buffer;
use crate::serve::{Flow, is_about_commands, may_block, waits_ms};
use crate::slab::Ref;
use crate::upstream::{Kind, Upstream, Waiting};
use crate::worker::Worker;

/// The state of a client that lasts over several requests.
#[derive(Debug)]
pub enum Session {
    /// Nothing: its requests go over shared connections.
    Shared,
    /// A call on a connection of its own; behind its reply the connection goes back.
    Leaving(Lease),
    /// WATCH or MULTI came.
    Transaction(Box<Transaction>),
    /// A large request goes through in pieces.
    Passing(Box<Passing>),
}

/// The right to use a private connection. There is one for each, so that none is given back twice.
#[derive(Debug)]
pub struct Lease {
    upstream: Ref,
    /// How long its call asks to wait: milliseconds; none: for ever, or it is no such call.
    waits_ms: Option<u64>,
}

impl Lease {
    /// Where the connection is, if it still is.
    pub(crate) fn place(&self) -> Ref {
        self.upstream
    }

    pub(crate) fn waits_ms(&self) -> Option<u64> {
        self.waits_ms
    }
}

/// A transaction, or what WATCH has prepared for one.
#[derive(Debug, Default)]
pub struct Transaction {
    /// MULTI came.
    multi: bool,
    /// The connection, from the first key on, and the server that it leads to.
    bound: Option<(Lease, NodeId)>,
    /// Progress of MULTI at the server.
    begun: Begun,
    /// The call that follows MULTI when the server has answered it; nothing more is taken from the client meanwhile.
    deferred: Option<Deferred>,
    /// The server's error reply to MULTI: then it is sent nothing more.
    refused: Option<String>,
    /// Calls without keys that came before the server was known, which were answered QUEUED.
    queued: Vec<Queued>,
    queued_bytes: usize,
    /// EXEC will fail, and why.
    aborted: Option<&'static str>,
    /// The client's number for the WATCH that chose the server, if one did.
    first_watch: Option<u32>,
    /// Behind WATCH, the last call may wait.
    may_wait: bool,
}

/// Calls as they came, no more than one entry of a connection's queue has room for, and how many they are.
#[derive(Debug, Default)]
struct Queued {
    calls: Vec<u8>,
    count: u16,
}

impl Transaction {
    /// Keeps a call without keys.
    fn queue(&mut self, raw: &[u8]) {
        self.queued_bytes += raw.len();
        if self.queued.last().is_none_or(|last| last.count == u16::MAX) {
            self.queued.push(Queued::default());
        }
        if let Some(last) = self.queued.last_mut() {
            last.calls.extend_from_slice(raw);
            last.count += 1;
        }
    }

    fn take_queued(&mut self) -> Vec<Queued> {
        self.queued_bytes = 0;
        std::mem::take(&mut self.queued)
    }

    /// Returns true if it is in a call that may wait.
    pub(crate) fn waits(&self) -> bool {
        self.may_wait && !self.multi
    }

    /// How long that asks to wait, as [`Lease::waits_ms`] says it.
    pub(crate) fn waits_ms(&self) -> Option<u64> {
        self.bound.as_ref().and_then(|(lease, _)| lease.waits_ms)
    }
}

/// How far a transaction's server is with MULTI. One that refuses it would make what follows at once, call by call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begun {
    /// It was not told.
    #[default]
    No,
    /// It was told, and has not answered.
    Asked,
    /// It has begun the transaction, or has never refused that on this connection.
    Yes,
}

/// A call, or EXEC, that waits for the answer to MULTI.
#[derive(Debug)]
struct Deferred {
    /// The client's number for it.
    seq: u32,
    kind: Kind,
    request: Vec<u8>,
    /// It is EXEC.
    ends: bool,
}

/// A client that will send no more, or is to go, may wait so long for what is there already: milliseconds.
const FORSAKEN_MS: u32 = 1_000;
/// Bytes of a script that goes with each call of it in a transaction; of a longer one the name does.
const SCRIPT_BYTES_MAX: usize = 64 * 1024;
const PREVIOUS_ERRORS: &str = "EXECABORT Transaction discarded because of previous errors.";
const LOST: &str = "ERR the connection to the server was lost";
const CONNECTION_LOST: &str =
    "EXECABORT Transaction discarded because of: the connection to the server was lost";

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";

impl Worker {
    /// A call that may wait: alone on a connection of its own, and nothing of this client goes on until it is answered.
    pub(crate) fn blocking(
        &mut self,
        me: Ref,
        node: NodeId,
        raw: &[u8],
        waits_ms: Option<u64>,
    ) -> Flow {
        if self.must_wait(me) {
            return Flow::Again;
        }
        match self.take_lease(me, node) {
            Ok(mut lease) => {
                lease.waits_ms = waits_ms;
                self.send_leased(me, &lease, Kind::Client, 1, raw);
                self.leave(me, lease);
                Flow::Done
            }
            Err(line) => self.refuse(me, &line),
        }
    }

    /// Closes clients that wait for what may never come: those that had closed their side before they began to, and all of them
    /// when the end was asked for.
    pub(crate) fn check_forsaken(&mut self) {
        let (now_ms, drains) = (self.now_ms as u32, self.drains());
        for at in self.upstreams.taken().collect::<Vec<_>>() {
            let Some(upstream) = self.upstreams.get(at) else {
                continue;
            };
            let (Some(me), Some(front)) = (upstream.owner, upstream.waiting.front()) else {
                continue;
            };
            let waited_ms = now_ms.wrapping_sub(front.since_ms);
            if !(FORSAKEN_MS..u32::MAX / 2).contains(&waited_ms) {
                continue;
            }
            let Some(client) = self.clients.find(me).filter(|it| it.waits_in_vain()) else {
                continue;
            };
            let received = client.look_for_end();
            let is_forsaken = drains || client.peer_closed || client.eof;
            self.counters.received_bytes += received as u64;
            if is_forsaken {
                self.close_client(me.at);
            }
        }
    }

    /// A blocking call goes to another server.
    pub(crate) fn move_lease(
        &mut self,
        again: Waiting,
        target: NodeId,
        asking: bool,
        request: &[u8],
    ) -> bool {
        let Ok(mut lease) = self.take_lease(again.to, target) else {
            return false;
        };
        let waited_ms = (self.now_ms as u32).wrapping_sub(again.since_ms);
        if let Some(upstream) = self.upstreams.find(lease.upstream) {
            if asking {
                upstream.push_asking(again.since_ms.into());
            }
            upstream.push(again, request, &mut self.cache);
        }
        self.mark_upstream(lease.upstream.at);
        let Some(client) = self.clients.find(again.to) else {
            return false;
        };
        // It begins to wait anew.
        lease.waits_ms = client
            .waits_ms()
            .map(|waits_ms| waits_ms.saturating_add(waited_ms.into()));
        let before = std::mem::replace(&mut client.session, Session::Leaving(lease));
        if let Session::Leaving(old) = before
            && let Some(upstream) = self.upstreams.find(old.upstream)
        {
            // Its last reply, the redirect, is being taken at this moment: then it is dropped.
            upstream.owner = None;
            self.withdraw(old.upstream.at);
        }
        true
    }

    /// Returns true if earlier requests must be answered first; the client then goes on by itself.
    pub(crate) fn must_wait(&mut self, me: Ref) -> bool {
        let Some(client) = self.clients.find(me) else {
            return false;
        };
        let waits = client.pending() > 0;
        if waits {
            client.pause = Pause::Order;
        }
        waits
    }

    pub(crate) fn take_lease(&mut self, me: Ref, node: NodeId) -> Result<Lease, String> {
        let Some(client) = self.clients.find(me) else {
            return Err(String::new());
        };
        let (db, proto) = (client.db, client.proto);
        let upstream = self.private_link(node, db, proto, me)?;
        Ok(Lease {
            upstream,
            waits_ms: None,
        })
    }

    /// Sends `count` requests over a private connection. With [`Kind::Client`] the next numbers of the client are theirs.
    pub(crate) fn send_leased(
        &mut self,
        me: Ref,
        lease: &Lease,
        kind: Kind,
        count: u16,
        raw: &[u8],
    ) {
        let seq = match (kind, self.clients.find(me)) {
            (Kind::Client, Some(client)) => client.number(),
            _ => 0,
        };
        let kind = self.silenced(me, kind);
        self.send_numbered(me, lease, (seq, kind, count), raw);
    }

    /// The same for requests that have numbers, from `seq` on, if they are to have any.
    fn send_numbered(
        &mut self,
        me: Ref,
        lease: &Lease,
        (seq, kind, count): (u32, Kind, u16),
        raw: &[u8],
    ) {
        let stripped = self.stripped(raw);
        let raw = stripped.as_deref().unwrap_or(raw);
        let waiting = Waiting {
            count,
            ..Waiting::one(me, seq, kind, raw, self.now_ms)
                .of(self.command_called(me), self.seeing.now_us)
        };
        match self.upstreams.find(lease.upstream) {
            Some(upstream) => {
                upstream.push(waiting, raw, &mut self.cache);
                self.mark_upstream(lease.upstream.at);
            }
            None => return self.fail(waiting, CONNECTION_LOST),
        }
        if self.is_full(lease.upstream.at, me)
            && let Some(client) = self.clients.find(me)
            && client.pause == Pause::No
        {
            client.pause = Pause::Upstream;
        }
    }

    /// The connection goes back once everything is answered, and the client's next request waits for that.
    pub(crate) fn leave(&mut self, me: Ref, lease: Lease) {
        if let Some(client) = self.clients.find(me) {
            client.session = Session::Leaving(lease);
            client.pause = Pause::Order;
            self.mark_client(me.at);
        }
    }

    /// Everything that the client asked is answered: what it no longer needs goes back.
    pub(crate) fn calm(&mut self, at: u32) {
        let Some(client) = self.clients.get(at) else {
            return;
        };
        if matches!(client.session, Session::Leaving(_))
            && client.pending() == 0
            && let Session::Leaving(lease) = std::mem::replace(&mut client.session, Session::Shared)
        {
            self.give_back(lease.upstream, true);
        }
    }

    /// The client is gone, or begins anew: nobody can say what state its connection is in.
    pub(crate) fn abandon(&mut self, session: Session) {
        match session {
            Session::Shared => {}
            Session::Leaving(lease) => self.give_back(lease.upstream, false),
            Session::Passing(passing) => self.give_back(passing.lease.upstream, false),
            Session::Transaction(transaction) => {
                if let Some((lease, _)) = transaction.bound {
                    self.give_back(lease.upstream, false);
                }
            }
        }
    }

    /// A client's private connection broke; its requests were answered.
    pub(crate) fn lost_private(&mut self, owner: Ref) {
        let Some(client) = self.clients.find(owner) else {
            return;
        };
        match &mut client.session {
            Session::Transaction(transaction) => {
                let node = transaction.bound.take().map(|(_, node)| node);
                transaction.begun = Begun::No;
                transaction.take_queued();
                transaction.aborted = Some(CONNECTION_LOST);
                return self.let_deferred_go(owner, node, LOST);
            }
            Session::Leaving(_) => client.session = Session::Shared,
            // What is still to come of the request has to be taken from the client.
            Session::Shared | Session::Passing(_) => {}
        }
        self.mark_client(owner.at);
    }

    /// MULTI, EXEC, DISCARD, WATCH and UNWATCH.
    pub(crate) fn transaction(
        &mut self,
        me: Ref,
        id: CommandId,
        raw: &[u8],
        args: Args<'_>,
    ) -> Flow {
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let Session::Transaction(transaction) = &mut client.session else {
            return self.begin(me, id, raw, args);
        };
        match id {
            CommandId::Multi if transaction.multi => {
                self.refuse(me, "ERR MULTI calls can not be nested")
            }
            CommandId::Multi => {
                transaction.multi = true;
                self.begin_bound(me);
                self.status(me, "OK")
            }
            CommandId::Watch if transaction.multi => {
                self.refuse(me, "ERR WATCH inside MULTI is not allowed")
            }
            CommandId::Watch => self.watch(me, raw, args),
            CommandId::Unwatch if transaction.multi => self.queue_anywhere(me, raw),
            CommandId::Exec if !transaction.multi => self.refuse(me, "ERR EXEC without MULTI"),
            CommandId::Discard if !transaction.multi => {
                self.refuse(me, "ERR DISCARD without MULTI")
            }
            _ => self.end(me, id, raw),
        }
    }

    fn begin(&mut self, me: Ref, id: CommandId, raw: &[u8], args: Args<'_>) -> Flow {
        match id {
            CommandId::Exec => return self.refuse(me, "ERR EXEC without MULTI"),
            CommandId::Discard => return self.refuse(me, "ERR DISCARD without MULTI"),
            CommandId::Unwatch => return self.status(me, "OK"),
            _ => {}
        }
        if self.must_wait(me) {
            return Flow::Again;
        }
        let multi = id == CommandId::Multi;
        let transaction = Box::new(Transaction {
            multi,
            ..Transaction::default()
        });
        if let Some(client) = self.clients.find(me) {
            client.session = Session::Transaction(transaction);
        }
        match multi {
            true => self.status(me, "OK"),
            false => self.watch(me, raw, args),
        }
    }

    fn watch(&mut self, me: Ref, raw: &[u8], args: Args<'_>) -> Flow {
        let node = match self.node_of_keys(me, CommandId::Watch, args) {
            Ok(Some(node)) => node,
            Ok(None) => return self.refuse(me, errors::INVALID_KEYS),
            Err(line) => {
                let flow = self.refuse(me, line);
                self.forget_unbound(me);
                return flow;
            }
        };
        let next = self.clients.find(me).map(|client| client.next);
        if let Some(transaction) = self.transaction_of(me)
            && transaction.bound.is_none()
        {
            transaction.first_watch = next;
        }
        match self.bind(me, node) {
            Ok(()) => self.send_bound(me, Kind::Client, 1, raw),
            Err(line) => {
                let flow = self.refuse(me, &line);
                self.forget_unbound(me);
                flow
            }
        }
    }

    /// The server has refused this call. If it is the WATCH that chose the server, and nothing came behind it, the client may
    /// watch elsewhere.
    pub(crate) fn watch_refused(&mut self, at: u32, refused: Waiting) {
        let me = refused.to;
        let Some(client) = self.clients.find(me) else {
            return;
        };
        if client.pending() > 0 {
            return;
        }
        let Session::Transaction(transaction) = &mut client.session else {
            return;
        };
        let is_its = |(lease, _): &(Lease, NodeId)| lease.upstream.at == at;
        if transaction.multi
            || transaction.first_watch != Some(refused.seq)
            || !transaction.bound.as_ref().is_some_and(is_its)
        {
            return;
        }
        if let Some((lease, _)) = transaction.bound.take() {
            self.give_back(lease.upstream, true);
        }
        self.forget_unbound(me);
    }

    /// A WATCH that failed leaves nothing behind, unless it has to be known that an earlier one was lost.
    fn forget_unbound(&mut self, me: Ref) {
        if let Some(client) = self.clients.find(me)
            && let Session::Transaction(transaction) = &client.session
            && transaction.bound.is_none()
            && transaction.aborted.is_none()
            && !transaction.multi
        {
            client.session = Session::Shared;
        }
    }

    /// Makes sure that the transaction has a connection to this server, and no other.
    fn bind(&mut self, me: Ref, node: NodeId) -> Result<(), String> {
        let lease = match self.transaction_of(me) {
            None => return Err(String::new()),
            Some(transaction) => match &transaction.bound {
                _ if transaction.aborted == Some(CONNECTION_LOST) => return Err(LOST.to_owned()),
                _ if let Some(line) = &transaction.refused => return Err(line.clone()),
                Some((_, bound)) if *bound == node => None,
                Some(_) => return Err(errors::CROSS_SLOT.to_owned()),
                None => Some(()),
            },
        };
        if lease.is_some() {
            let lease = self.take_lease(me, node)?;
            if let Some(transaction) = self.transaction_of(me) {
                transaction.bound = Some((lease, node));
            }
        }
        self.begin_bound(me);
        Ok(())
    }

    /// Returns true if MULTI came and its end did not.
    pub(crate) fn is_in_multi(&mut self, me: Ref) -> bool {
        self.transaction_of(me).is_some_and(|it| it.multi)
    }

    fn transaction_of(&mut self, me: Ref) -> Option<&mut Transaction> {
        match &mut self.clients.find(me)?.session {
            Session::Transaction(transaction) => Some(transaction),
            _ => None,
        }
    }

    /// Tells the server what the client was answered already: MULTI, and calls without keys.
    fn begin_bound(&mut self, me: Ref) {
        let Some(transaction) = self.transaction_of(me) else {
            return;
        };
        if !transaction.multi || transaction.begun != Begun::No {
            return;
        }
        let Some((lease, _)) = &transaction.bound else {
            return;
        };
        let place = lease.upstream;
        let takes_multi = |upstream: &mut Upstream| upstream.takes_multi;
        let is_certain = self.upstreams.find(place).is_some_and(takes_multi);
        let Some(transaction) = self.transaction_of(me) else {
            return;
        };
        transaction.begun = match is_certain {
            true => Begun::Yes,
            false => Begun::Asked,
        };
        self.send_bound(me, Kind::Multi, 1, MULTI);
        if is_certain {
            self.send_queued(me);
        }
    }

    /// Tells the server the calls without keys.
    fn send_queued(&mut self, me: Ref) {
        let Some(transaction) = self.transaction_of(me) else {
            return;
        };
        for Queued { calls, count } in transaction.take_queued() {
            self.send_bound(me, Kind::Unwanted, count, &calls);
        }
    }

    /// The server has answered the MULTI of a client's transaction.
    pub(crate) fn multi_answered(&mut self, at: u32, me: Ref, reply: &[u8]) {
        let error = reply.strip_prefix(b"-");
        match self.upstreams.get(at) {
            Some(upstream) if error.is_none() => upstream.takes_multi = true,
            // Nobody can say what state it is in for whoever comes next.
            _ => self.withdraw(at),
        }
        let Some(transaction) = self.transaction_of(me) else {
            return;
        };
        let is_its = |(lease, _): &(Lease, NodeId)| lease.upstream.at == at;
        if !transaction.bound.as_ref().is_some_and(is_its) || transaction.begun == Begun::No {
            return;
        }
        if let Some(error) = error {
            let line = match is_redirect(reply) {
                true => MOVED_ON.to_owned(),
                false => String::from_utf8_lossy(error).trim_end().to_owned(),
            };
            transaction.begun = Begun::No;
            transaction.take_queued();
            transaction.aborted.get_or_insert(PREVIOUS_ERRORS);
            transaction.refused = Some(line.clone());
            let bound = transaction.bound.take();
            let node = bound.as_ref().map(|(_, node)| *node);
            if let Some((lease, _)) = bound {
                self.give_back(lease.upstream, false);
            }
            return self.let_deferred_go(me, node, &line);
        }
        transaction.begun = Begun::Yes;
        self.send_queued(me);
        let Some(transaction) = self.transaction_of(me) else {
            return;
        };
        let deferred = transaction.deferred.take();
        self.resume(me);
        let Some(Deferred {
            seq,
            kind,
            request,
            ends,
        }) = deferred
        else {
            return;
        };
        self.with_lease(me, |worker, lease| {
            worker.send_numbered(me, lease, (seq, kind, 1), &request);
        });
        if ends {
            self.leave_bound(me);
        }
    }

    /// Answers the call that waits for the answer to MULTI with an error, since it is not to be made any more.
    fn let_deferred_go(&mut self, me: Ref, node: Option<NodeId>, line: &str) {
        let deferred = self.transaction_of(me).and_then(|it| it.deferred.take());
        self.resume(me);
        self.mark_client(me.at);
        let Some(deferred) = deferred else { return };
        let waiting = Waiting::one(me, deferred.seq, deferred.kind, b"", self.now_ms)
            .of(self.command_called(me), self.seeing.now_us);
        if let Some(node) = node {
            self.seeing.lost(&waiting, node, &deferred.request);
        }
        match deferred.ends {
            true => {
                self.drop_transaction(me);
                self.fail(waiting, &refusal::exec_aborted(line.as_bytes()));
            }
            false => self.fail(waiting, line),
        }
    }

    /// The answer to MULTI is here, or never will be: the client goes on.
    fn resume(&mut self, me: Ref) {
        if let Some(client) = self.clients.find(me)
            && client.pause == Pause::Multi
            && client.go_on()
        {
            self.enqueue(me.at);
        }
    }

    fn with_lease(&mut self, me: Ref, then: impl FnOnce(&mut Worker, &Lease)) {
        let transaction = self.transaction_of(me);
        let Some((lease, node)) = transaction.and_then(|it| it.bound.take()) else {
            return;
        };
        then(self, &lease);
        if let Some(transaction) = self.transaction_of(me) {
            transaction.bound = Some((lease, node));
        }
    }

    fn send_bound(&mut self, me: Ref, kind: Kind, count: u16, raw: &[u8]) -> Flow {
        match self.transaction_of(me) {
            Some(transaction) if kind == Kind::Client && transaction.begun == Begun::Asked => {
                self.hold_back(me, raw);
            }
            _ => self.with_lease(me, |worker, lease| {
                worker.send_leased(me, lease, kind, count, raw);
            }),
        }
        Flow::Done
    }

    /// Sends a call over the connection of WATCH. `waits`: it may wait, and for how long; nothing of this client goes on until
    /// it is answered.
    fn send_behind_watch(&mut self, me: Ref, raw: &[u8], waits: Option<Option<u64>>) -> Flow {
        if waits.is_some() && self.must_wait(me) {
            return Flow::Again;
        }
        if let Some(transaction) = self.transaction_of(me) {
            transaction.may_wait = waits.is_some();
            if let Some((lease, _)) = &mut transaction.bound {
                lease.waits_ms = waits.flatten();
            }
        }
        let flow = self.send_bound(me, Kind::Client, 1, raw);
        if waits.is_some() {
            self.must_wait(me);
        }
        flow
    }

    /// Keeps a call until MULTI is answered, and takes nothing more from the client.
    fn hold_back(&mut self, me: Ref, raw: &[u8]) {
        let kind = self.silenced(me, Kind::Client);
        let Some(client) = self.clients.find(me) else {
            return;
        };
        let seq = client.number();
        client.pause = Pause::Multi;
        if let Some(transaction) = self.transaction_of(me) {
            transaction.deferred = Some(Deferred {
                seq,
                kind,
                request: raw.to_vec(),
                ends: false,
            });
        }
    }

    /// Any other call of a client that is in a transaction: `None` if it is none of the transaction's business.
    pub(crate) fn in_transaction(
        &mut self,
        me: Ref,
        command: Command,
        raw: &[u8],
        args: Args<'_>,
    ) -> Option<Flow> {
        self.transaction_of(me)?;
        let in_full = self.script_in_full(command.id, args);
        let raw = in_full.as_deref().unwrap_or(raw);
        let transaction = self.transaction_of(me)?;
        let multi = transaction.multi;
        let watched = transaction.bound.as_ref().map(|(_, node)| *node);
        if matches!(command.id, CommandId::Quit | CommandId::Reset) {
            return None;
        }
        let keys = matches!(
            command.class,
            Class::Key | Class::Keys | Class::Split(_) | Class::Blocks
        );
        if !multi {
            // Calls about the watched server go the way of WATCH, behind it.
            let asks_servers =
                keys || matches!(command.class, Class::Any | Class::All(_) | Class::Scan);
            if !asks_servers {
                return None;
            }
            let found = match keys {
                true => self.node_of_keys(me, command.id, args),
                false => Ok(None),
            };
            return match found {
                Ok(Some(node)) if Some(node) == watched => {
                    let blocks = command.class == Class::Blocks && may_block(command.id, args);
                    Some(self.send_behind_watch(
                        me,
                        raw,
                        blocks.then(|| waits_ms(command.id, args)),
                    ))
                }
                // It goes over another connection than what is on its way.
                _ if self.must_wait(me) => Some(Flow::Again),
                Ok(Some(_)) if command.class == Class::Blocks => Some(self.refuse(
                    me,
                    "ERR behind WATCH, a call that may wait needs keys of the same server",
                )),
                _ => None,
            };
        }
        if is_about_commands(command.id) && self.shared.names.hide_something() {
            // The server's own table has what clients are not shown.
            return self.must_stand_alone(me, redline_spec::row(command.id).full_name);
        }
        Some(match command.class {
            _ if keys => match self.node_of_keys(me, command.id, args) {
                Ok(Some(node)) => match self.bind(me, node) {
                    Ok(()) => self.send_bound(me, Kind::Client, 1, raw),
                    Err(line) => self.abort(me, &line),
                },
                Ok(None) => self.queue_anywhere(me, raw),
                Err(line) => self.abort(me, line),
            },
            Class::Any | Class::All(_) if self.has_one_shard(me) => self.queue_anywhere(me, raw),
            // The cursor in the reply to EXEC is the server's.
            Class::Scan if self.has_one_shard(me) && self.scans_one_server(me) => {
                self.queue_anywhere(me, raw)
            }
            Class::Any => self.queue_anywhere(me, raw),
            Class::Local
                if matches!(
                    command.id,
                    CommandId::Ping | CommandId::Echo | CommandId::Time
                ) =>
            {
                self.queue_anywhere(me, raw)
            }
            // The server knows at EXEC what is wrong with it.
            Class::Local
                if matches!(command.id, CommandId::Wait | CommandId::Waitaof)
                    && heeds_nobody(command.id, args) != Ok(false) =>
            {
                self.queue_anywhere(me, raw)
            }
            _ => {
                let line = format!(
                    "ERR '{}' is not available inside MULTI through the proxy",
                    redline_spec::row(command.id).full_name.replace('|', " ")
                );
                self.abort(me, &line)
            }
        })
    }

    /// EVAL in place of EVALSHA, if the script went through the proxy: inside MULTI a server that lacks it can no longer be
    /// given it.
    fn script_in_full(&self, id: CommandId, args: Args<'_>) -> Option<Vec<u8>> {
        let name: &[u8] = match id {
            CommandId::Evalsha => b"EVAL",
            CommandId::EvalshaRo => b"EVAL_RO",
            _ => return None,
        };
        let body = self.shared.scripts.find(&args[1])?;
        if body.len() > SCRIPT_BYTES_MAX {
            return None;
        }
        let words = [name, &body].into_iter().chain(args.iter().skip(2));
        let words: Vec<&[u8]> = words.collect();
        let mut request = Vec::new();
        encode_request(words, &mut request);
        Some(request)
    }

    /// A call that the table does not have, with keys on the server `node`, of a client that is in a transaction; `None` if it
    /// is none of the transaction's business.
    pub(crate) fn foreign_in_transaction(
        &mut self,
        me: Ref,
        node: NodeId,
        raw: &[u8],
    ) -> Option<Flow> {
        let transaction = self.transaction_of(me)?;
        let watched = transaction.bound.as_ref().map(|(_, node)| *node);
        match transaction.multi {
            true => Some(match self.bind(me, node) {
                Ok(()) => self.send_bound(me, Kind::Client, 1, raw),
                Err(line) => self.abort(me, &line),
            }),
            false if watched == Some(node) => Some(self.send_bound(me, Kind::Client, 1, raw)),
            false => None,
        }
    }

    /// A call inside MULTI that any server can answer: the transaction's, or the one that it will have.
    pub(crate) fn queue_anywhere(&mut self, me: Ref, raw: &[u8]) -> Flow {
        let query_bytes_max = self.shared.settings.query_bytes_max;
        let Some(transaction) = self.transaction_of(me) else {
            return Flow::Done;
        };
        if transaction.begun != Begun::No {
            return self.send_bound(me, Kind::Client, 1, raw);
        }
        // They count as what a client has sent and nobody has executed, as Redis counts them.
        if transaction.queued_bytes + raw.len() > query_bytes_max {
            if let Some(client) = self.clients.find(me) {
                tell_of_query_buffer(&client.card.addr, query_bytes_max);
            }
            return Flow::Close;
        }
        transaction.queue(raw);
        self.status(me, "QUEUED")
    }

    /// An error inside MULTI: EXEC will fail.
    pub(crate) fn abort(&mut self, me: Ref, line: &(impl AsRef<[u8]> + ?Sized)) -> Flow {
        if let Some(transaction) = self.transaction_of(me)
            && transaction.multi
        {
            transaction.aborted.get_or_insert(PREVIOUS_ERRORS);
        }
        self.refuse(me, line)
    }

    /// A call that is refused whatever else it says. Inside MULTI, EXEC will fail; EXEC itself ends the transaction.
    pub(crate) fn reject(
        &mut self,
        me: Ref,
        id: CommandId,
        line: &(impl AsRef<[u8]> + ?Sized),
    ) -> Flow {
        self.seeing.refused(id as u16);
        if id != CommandId::Exec {
            return self.abort(me, line);
        }
        match self.transaction_of(me) {
            Some(transaction) if transaction.bound.is_some() => {
                let end = match transaction.begun {
                    Begun::No => UNWATCH,
                    _ => DISCARD,
                };
                self.send_bound(me, Kind::Unwanted, 1, end);
                self.leave_bound(me);
            }
            Some(_) => self.drop_transaction(me),
            None => {}
        }
        self.refuse(me, &refusal::exec_aborted(line.as_ref()))
    }

    /// EXEC or DISCARD.
    fn end(&mut self, me: Ref, id: CommandId, raw: &[u8]) -> Flow {
        let Some(transaction) = self.transaction_of(me) else {
            return Flow::Done;
        };
        let aborted = transaction.aborted;
        let has_calls = !transaction.queued.is_empty();
        if id == CommandId::Exec
            && aborted.is_none()
            && has_calls
            && let Some(node) = self.any_node(me)
            && let Err(line) = self.bind(me, node)
        {
            self.drop_transaction(me);
            return self.refuse(me, &refusal::exec_aborted(line.as_bytes()));
        }
        let begun = self.transaction_of(me).map_or(Begun::No, |it| it.begun);
        let unwatches = id == CommandId::Unwatch
            && self.transaction_of(me).is_some_and(|it| it.bound.is_some());
        if begun != Begun::No || unwatches {
            // Replies may be due from before, so the connection stays until they are here, and the server is told the end.
            let failed = aborted.filter(|_| id == CommandId::Exec);
            if begun == Begun::Asked && failed.is_none() {
                return self.end_early(me, id, raw);
            }
            match failed {
                None => self.send_bound(me, Kind::Client, 1, raw),
                Some(_) => self.send_bound(me, Kind::Unwanted, 1, DISCARD),
            };
            self.leave_bound(me);
            return match failed {
                None => Flow::Done,
                Some(line) => self.refuse(me, line),
            };
        }
        self.drop_transaction(me);
        match (id, aborted) {
            (CommandId::Exec, Some(line)) => self.refuse(me, line),
            (CommandId::Exec, None) => self.answer(me, |reply| reply.array(0)),
            _ => self.status(me, "OK"),
        }
    }

    /// EXEC or DISCARD, before MULTI is answered.
    fn end_early(&mut self, me: Ref, id: CommandId, raw: &[u8]) -> Flow {
        if id == CommandId::Exec {
            self.hold_back(me, raw);
            if let Some(deferred) = self.transaction_of(me).and_then(|it| it.deferred.as_mut()) {
                deferred.ends = true;
            }
            return Flow::Done;
        }
        self.send_bound(me, Kind::Unwanted, 1, DISCARD);
        self.leave_bound(me);
        self.status(me, "OK")
    }

    fn leave_bound(&mut self, me: Ref) {
        if let Some(client) = self.clients.find(me)
            && let Session::Transaction(transaction) =
                std::mem::replace(&mut client.session, Session::Shared)
            && let Some((lease, _)) = transaction.bound
        {
            self.leave(me, lease);
        }
    }

    fn drop_transaction(&mut self, me: Ref) {
        if let Some(client) = self.clients.find(me) {
            let session = std::mem::replace(&mut client.session, Session::Shared);
            self.abandon(session);
        }
    }

    /// Returns true if everything that the client may ask for is on one server.
    pub(crate) fn has_one_shard(&self, me: Ref) -> bool {
        self.home(me).shards.len() == 1 && self.routes.prefixes.is_empty()
    }
}
