//! Client states that need a dedicated connection: a blocking call, a transaction. Must not know how requests are routed.
//!
//! Such a connection is leased from a pool ([`Lease`]) and goes back when no state of its client is left on it: after
//! the reply to a blocking call, to EXEC, DISCARD or UNWATCH. If the client disconnects before, it is closed.

use redline_resp::{Args, encode_request};
use redline_spec::{CommandId, refusal};

use crate::class::{Class, Command};
use crate::client::Pause;
use crate::clients::Clients;
use crate::connections::Connections;
use crate::context::Context;
use crate::local_commands::{self, heeds_nobody};
use crate::observability::tell_of_query_buffer;
use crate::redirect::{MOVED_ON, is_redirect};
use crate::requests::{Flow, is_about_commands, may_block, waits_ms};
use crate::route::NodeId;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::streaming::Passing;
use crate::upstream::{Kind, Upstream, Waiting};
use crate::{errors, split};

/// The state of a client that lasts over several requests.
#[derive(Debug)]
pub enum Session {
    /// None: its requests use shared connections.
    Shared,
    /// A call on a dedicated connection, which goes back after the reply.
    Leaving(Lease),
    /// WATCH or MULTI came.
    Transaction(Box<Transaction>),
    /// A large request is passed through in pieces.
    Passing(Box<Passing>),
}

/// The right to use a private connection. There is one for each, so that none is given back twice.
#[derive(Debug)]
pub struct Lease {
    upstream: Ref,
    /// Time-out of its blocking call: milliseconds; none: no time-out, or no such call.
    waits_ms: Option<u64>,
}

impl Lease {
    /// Returns the connection's place, which may be free by now.
    pub fn place(&self) -> Ref {
        self.upstream
    }

    pub(crate) fn waits_ms(&self) -> Option<u64> {
        self.waits_ms
    }
}

/// A transaction, or the WATCH before one.
#[derive(Debug, Default)]
pub struct Transaction {
    /// MULTI came.
    multi: bool,
    /// The connection, from the first key on, and its server.
    bound: Option<(Lease, NodeId)>,
    /// Progress of MULTI at the server.
    begun: Begun,
    /// The call that waits for the reply to MULTI; nothing more is taken from the client meanwhile.
    deferred: Option<Deferred>,
    /// The server's error reply to MULTI: nothing more is sent to it.
    refused: Option<String>,
    /// Calls without keys, answered QUEUED before the server was known.
    queued: Vec<Queued>,
    queued_bytes: usize,
    /// The reason why EXEC will fail.
    aborted: Option<&'static str>,
    /// The client's number for the WATCH that chose the server, if one did.
    first_watch: Option<u32>,
    /// After WATCH, the last call may block.
    may_wait: bool,
}

/// Calls as they arrived, at most one entry of a connection's queue, and their number.
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

    /// Returns true if MULTI came and its end did not.
    pub(crate) fn is_in_multi(&self) -> bool {
        self.multi
    }

    /// Notes an error inside MULTI: EXEC will fail.
    pub fn abort(&mut self) {
        if self.multi {
            self.aborted.get_or_insert(PREVIOUS_ERRORS);
        }
    }

    fn take_queued(&mut self) -> Vec<Queued> {
        self.queued_bytes = 0;
        std::mem::take(&mut self.queued)
    }

    /// Returns true if it is in a call that may block.
    pub(crate) fn waits(&self) -> bool {
        self.may_wait && !self.multi
    }

    /// Returns the time-out of that call, as [`Lease::waits_ms`].
    pub(crate) fn waits_ms(&self) -> Option<u64> {
        self.bound.as_ref().and_then(|(lease, _)| lease.waits_ms)
    }
}

/// Progress of MULTI at the server. A server that refuses it would execute the following calls at once, one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begun {
    /// It was not sent.
    #[default]
    No,
    /// It was sent, and is not answered.
    Asked,
    /// The server has begun the transaction, or has never refused one on this connection.
    Yes,
}

/// A call, or EXEC, that waits for the reply to MULTI.
#[derive(Debug)]
struct Deferred {
    /// The client's number for it.
    seq: u32,
    kind: Kind,
    request: Vec<u8>,
    /// It is EXEC.
    ends: bool,
}

/// Largest script that is sent with each call in a transaction: bytes; longer ones are called by name.
const SCRIPT_BYTES_MAX: usize = 64 * 1024;
const PREVIOUS_ERRORS: &str = "EXECABORT Transaction discarded because of previous errors.";
const LOST: &str = "ERR the connection to the server was lost";
const CONNECTION_LOST: &str =
    "EXECABORT Transaction discarded because of: the connection to the server was lost";

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";

/// Makes a call that may block: on a dedicated connection, and the client's next requests wait until it is answered.
pub(crate) fn blocking<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    node: NodeId,
    raw: &[u8],
    waits_ms: Option<u64>,
) -> Flow {
    if ctx.clients.must_wait(me) {
        return Flow::Again;
    }
    match take_lease(ctx, me, node) {
        Ok(mut lease) => {
            lease.waits_ms = waits_ms;
            send_leased(ctx, me, &lease, Kind::Client, 1, raw);
            ctx.clients.leave(me, lease);
            Flow::Done
        }
        Err(line) => ctx.clients.refuse(me, &line),
    }
}

/// Moves a blocking call to another server; returns true if it could.
pub(crate) fn move_lease<S: Shell>(
    ctx: &mut Context<S>,
    again: Waiting,
    target: NodeId,
    asking: bool,
    request: &[u8],
) -> bool {
    let Ok(mut lease) = take_lease(ctx, again.to, target) else {
        return false;
    };
    let waited_ms = (ctx.now_ms as u32).wrapping_sub(again.since_ms);
    if let Some(upstream) = ctx.links.find(lease.upstream) {
        if asking {
            upstream.push_asking(again.since_ms.into());
        }
        upstream.push(again, request, &mut ctx.cache);
    }
    ctx.links.mark(lease.upstream.at);
    let Some(client) = ctx.clients.find(again.to) else {
        return false;
    };
    // Its time-out starts anew.
    lease.waits_ms = client
        .waits_ms()
        .map(|waits_ms| waits_ms.saturating_add(waited_ms.into()));
    let before = std::mem::replace(&mut client.session, Session::Leaving(lease));
    if let Session::Leaving(old) = before
        && let Some(upstream) = ctx.links.find(old.upstream)
    {
        // Its last reply, the redirect, is being handled at this moment: then it is dropped.
        upstream.owner = None;
        ctx.withdraw(old.upstream.at);
    }
    true
}

pub(crate) fn take_lease<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    node: NodeId,
) -> Result<Lease, String> {
    let Some(client) = ctx.clients.find(me) else {
        return Err(String::new());
    };
    let (db, proto) = (client.db, client.proto);
    let upstream = ctx.private_link(node, db, proto, me)?;
    Ok(Lease {
        upstream,
        waits_ms: None,
    })
}

/// Sends `count` requests over a private connection. With [`Kind::Client`] they get the client's next numbers.
pub(crate) fn send_leased<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    lease: &Lease,
    kind: Kind,
    count: u16,
    raw: &[u8],
) {
    let seq = match (kind, ctx.clients.find(me)) {
        (Kind::Client, Some(client)) => client.number(),
        _ => 0,
    };
    let kind = ctx.clients.silenced(me, kind);
    send_numbered(ctx, me, lease, (seq, kind, count), raw);
}

/// Sends requests that have numbers already, from `seq` on, if they are to have any.
fn send_numbered<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    lease: &Lease,
    (seq, kind, count): (u32, Kind, u16),
    raw: &[u8],
) {
    let stripped = ctx.stripped(raw);
    let raw = stripped.as_deref().unwrap_or(raw);
    let waiting = Waiting {
        count,
        ..Waiting::one(me, seq, kind, raw, ctx.now_ms)
            .of(ctx.clients.command_called(me), ctx.recorder.now_us)
    };
    match ctx.links.find(lease.upstream) {
        Some(upstream) => {
            upstream.push(waiting, raw, &mut ctx.cache);
            ctx.links.mark(lease.upstream.at);
        }
        None => return ctx.fail(waiting, CONNECTION_LOST),
    }
    if ctx.is_full(lease.upstream.at, me)
        && let Some(client) = ctx.clients.find(me)
        && client.pause == Pause::No
    {
        client.pause = Pause::Upstream;
    }
}

pub(crate) fn watch<S: Shell>(ctx: &mut Context<S>, me: Ref, raw: &[u8], args: Args<'_>) -> Flow {
    let node = match ctx.node_of_keys(me, CommandId::Watch, args) {
        Ok(Some(node)) => node,
        Ok(None) => return ctx.clients.refuse(me, errors::INVALID_KEYS),
        Err(line) => {
            let flow = ctx.clients.refuse(me, line);
            forget_unbound(&mut ctx.clients, me);
            return flow;
        }
    };
    let next = ctx.clients.find(me).map(|client| client.next);
    if let Some(transaction) = ctx.clients.transaction_of(me)
        && transaction.bound.is_none()
    {
        transaction.first_watch = next;
    }
    match bind(ctx, me, node) {
        Ok(()) => send_bound(ctx, me, Kind::Client, 1, raw),
        Err(line) => {
            let flow = ctx.clients.refuse(me, &line);
            forget_unbound(&mut ctx.clients, me);
            flow
        }
    }
}

/// Binds the transaction to a connection to this server, and no other.
pub(crate) fn bind<S: Shell>(ctx: &mut Context<S>, me: Ref, node: NodeId) -> Result<(), String> {
    let lease = match ctx.clients.transaction_of(me) {
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
        let lease = take_lease(ctx, me, node)?;
        if let Some(transaction) = ctx.clients.transaction_of(me) {
            transaction.bound = Some((lease, node));
        }
    }
    begin_bound(ctx, me);
    Ok(())
}

/// Sends the server what the client was answered already: MULTI, and calls without keys.
fn begin_bound<S: Shell>(ctx: &mut Context<S>, me: Ref) {
    let Some(transaction) = ctx.clients.transaction_of(me) else {
        return;
    };
    if !transaction.multi || transaction.begun != Begun::No {
        return;
    }
    let Some((lease, _)) = &transaction.bound else {
        return;
    };
    let place = lease.upstream;
    let takes_multi = |upstream: &mut Upstream<S>| upstream.takes_multi;
    let is_certain = ctx.links.find(place).is_some_and(takes_multi);
    let Some(transaction) = ctx.clients.transaction_of(me) else {
        return;
    };
    transaction.begun = match is_certain {
        true => Begun::Yes,
        false => Begun::Asked,
    };
    send_bound(ctx, me, Kind::Multi, 1, MULTI);
    if is_certain {
        send_queued(ctx, me);
    }
}

/// Sends the server the calls without keys.
fn send_queued<S: Shell>(ctx: &mut Context<S>, me: Ref) {
    let Some(transaction) = ctx.clients.transaction_of(me) else {
        return;
    };
    for Queued { calls, count } in transaction.take_queued() {
        send_bound(ctx, me, Kind::Unwanted, count, &calls);
    }
}

fn with_lease<S: Shell>(ctx: &mut Context<S>, me: Ref, then: impl FnOnce(&mut Context<S>, &Lease)) {
    let transaction = ctx.clients.transaction_of(me);
    let Some((lease, node)) = transaction.and_then(|it| it.bound.take()) else {
        return;
    };
    then(ctx, &lease);
    if let Some(transaction) = ctx.clients.transaction_of(me) {
        transaction.bound = Some((lease, node));
    }
}

fn send_bound<S: Shell>(ctx: &mut Context<S>, me: Ref, kind: Kind, count: u16, raw: &[u8]) -> Flow {
    match ctx.clients.transaction_of(me) {
        Some(transaction) if kind == Kind::Client && transaction.begun == Begun::Asked => {
            hold_back(&mut ctx.clients, me, raw);
        }
        _ => with_lease(ctx, me, |ctx, lease| {
            send_leased(ctx, me, lease, kind, count, raw);
        }),
    }
    Flow::Done
}

/// Sends a call over the connection of WATCH. `waits`: it may block, and its time-out; the client's next requests wait
/// until it is answered.
fn send_behind_watch<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    raw: &[u8],
    waits: Option<Option<u64>>,
) -> Flow {
    if waits.is_some() && ctx.clients.must_wait(me) {
        return Flow::Again;
    }
    if let Some(transaction) = ctx.clients.transaction_of(me) {
        transaction.may_wait = waits.is_some();
        if let Some((lease, _)) = &mut transaction.bound {
            lease.waits_ms = waits.flatten();
        }
    }
    let flow = send_bound(ctx, me, Kind::Client, 1, raw);
    if waits.is_some() {
        ctx.clients.must_wait(me);
    }
    flow
}

/// Handles any other call of a client in a transaction: `None` if it does not concern the transaction.
pub(crate) fn in_transaction<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    command: Command,
    raw: &[u8],
    args: Args<'_>,
) -> Option<Flow> {
    ctx.clients.transaction_of(me)?;
    let in_full = script_in_full(ctx, command.id, args);
    let raw = in_full.as_deref().unwrap_or(raw);
    let transaction = ctx.clients.transaction_of(me)?;
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
        // Calls about the watched server use the connection of WATCH, after it.
        let asks_servers =
            keys || matches!(command.class, Class::Any | Class::All(_) | Class::Scan);
        if !asks_servers {
            return None;
        }
        let found = match keys {
            true => ctx.node_of_keys(me, command.id, args),
            false => Ok(None),
        };
        return match found {
            Ok(Some(node)) if Some(node) == watched => {
                let blocks = command.class == Class::Blocks && may_block(command.id, args);
                Some(send_behind_watch(
                    ctx,
                    me,
                    raw,
                    blocks.then(|| waits_ms(command.id, args)),
                ))
            }
            // It uses another connection than requests in flight.
            _ if ctx.clients.must_wait(me) => Some(Flow::Again),
            Ok(Some(_)) if command.class == Class::Blocks => Some(ctx.clients.refuse(
                me,
                "ERR behind WATCH, a call that may wait needs keys of the same server",
            )),
            _ => None,
        };
    }
    if is_about_commands(command.id) && ctx.shared.names.hide_something() {
        // The server's own table has commands that clients are not shown.
        return local_commands::must_stand_alone(
            &mut ctx.clients,
            me,
            redline_spec::row(command.id).full_name,
        );
    }
    Some(match command.class {
        _ if keys => match ctx.node_of_keys(me, command.id, args) {
            Ok(Some(node)) => match bind(ctx, me, node) {
                Ok(()) => send_bound(ctx, me, Kind::Client, 1, raw),
                Err(line) => ctx.clients.abort(me, &line),
            },
            Ok(None) => queue_anywhere(ctx, me, raw),
            Err(line) => ctx.clients.abort(me, line),
        },
        Class::Any | Class::All(_) if ctx.has_one_shard(me) => queue_anywhere(ctx, me, raw),
        // The cursor in the reply to EXEC is the server's.
        Class::Scan if ctx.has_one_shard(me) && split::scans_one_server(ctx, me) => {
            queue_anywhere(ctx, me, raw)
        }
        Class::Any => queue_anywhere(ctx, me, raw),
        Class::Local
            if matches!(
                command.id,
                CommandId::Ping | CommandId::Echo | CommandId::Time
            ) =>
        {
            queue_anywhere(ctx, me, raw)
        }
        // The server finds its errors at EXEC.
        Class::Local
            if matches!(command.id, CommandId::Wait | CommandId::Waitaof)
                && heeds_nobody(command.id, args) != Ok(false) =>
        {
            queue_anywhere(ctx, me, raw)
        }
        _ => {
            let line = format!(
                "ERR '{}' is not available inside MULTI through the proxy",
                redline_spec::row(command.id).full_name.replace('|', " ")
            );
            ctx.clients.abort(me, &line)
        }
    })
}

/// Returns EVAL in place of EVALSHA, if the script is known to the proxy: inside MULTI it can no longer be loaded into a
/// server that lacks it.
fn script_in_full<S: Shell>(ctx: &Context<S>, id: CommandId, args: Args<'_>) -> Option<Vec<u8>> {
    let name: &[u8] = match id {
        CommandId::Evalsha => b"EVAL",
        CommandId::EvalshaRo => b"EVAL_RO",
        _ => return None,
    };
    let body = ctx.shared.scripts.find(&args[1])?;
    if body.len() > SCRIPT_BYTES_MAX {
        return None;
    }
    let words = [name, &body].into_iter().chain(args.iter().skip(2));
    let words: Vec<&[u8]> = words.collect();
    let mut request = Vec::new();
    encode_request(words, &mut request);
    Some(request)
}

/// Handles a call that the table does not have, with keys on the server `node`, of a client in a transaction; `None` if
/// it does not concern the transaction.
pub(crate) fn foreign_in_transaction<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    node: NodeId,
    raw: &[u8],
) -> Option<Flow> {
    let transaction = ctx.clients.transaction_of(me)?;
    let watched = transaction.bound.as_ref().map(|(_, node)| *node);
    match transaction.multi {
        true => Some(match bind(ctx, me, node) {
            Ok(()) => send_bound(ctx, me, Kind::Client, 1, raw),
            Err(line) => ctx.clients.abort(me, &line),
        }),
        false if watched == Some(node) => Some(send_bound(ctx, me, Kind::Client, 1, raw)),
        false => None,
    }
}

/// Queues a call inside MULTI that any server can answer: the transaction's server, or the one that it will have.
pub(crate) fn queue_anywhere<S: Shell>(ctx: &mut Context<S>, me: Ref, raw: &[u8]) -> Flow {
    let query_bytes_max = ctx.shared.settings.query_bytes_max;
    let Some(transaction) = ctx.clients.transaction_of(me) else {
        return Flow::Done;
    };
    if transaction.begun != Begun::No {
        return send_bound(ctx, me, Kind::Client, 1, raw);
    }
    // They count as bytes sent and not executed, as in Redis.
    if transaction.queued_bytes + raw.len() > query_bytes_max {
        if let Some(client) = ctx.clients.find(me) {
            tell_of_query_buffer(&ctx.shell, &client.info.addr, query_bytes_max);
        }
        return Flow::Close;
    }
    transaction.queue(raw);
    ctx.clients.status(me, "QUEUED")
}

/// Handles EXEC or DISCARD before MULTI is answered.
fn end_early<S: Shell>(ctx: &mut Context<S>, me: Ref, id: CommandId, raw: &[u8]) -> Flow {
    if id == CommandId::Exec {
        hold_back(&mut ctx.clients, me, raw);
        if let Some(deferred) = ctx
            .clients
            .transaction_of(me)
            .and_then(|it| it.deferred.as_mut())
        {
            deferred.ends = true;
        }
        return Flow::Done;
    }
    send_bound(ctx, me, Kind::Unwanted, 1, DISCARD);
    leave_bound(&mut ctx.clients, me);
    ctx.clients.status(me, "OK")
}

/// Gives back connections that the client no longer needs, once all its requests are answered.
pub fn calm<S: Shell>(conns: &mut Connections<S>, at: u32) {
    let Some(client) = conns.ctx.clients.get(at) else {
        return;
    };
    if matches!(client.session, Session::Leaving(_))
        && client.pending() == 0
        && let Session::Leaving(lease) = std::mem::replace(&mut client.session, Session::Shared)
    {
        conns.give_back(lease.upstream, true);
    }
}

/// Ends the session of a client that is gone, or begins anew: the state of its connection is not known.
pub(crate) fn abandon<S: Shell>(conns: &mut Connections<S>, session: Session) {
    match session {
        Session::Shared => {}
        Session::Leaving(lease) => conns.give_back(lease.upstream, false),
        Session::Passing(passing) => conns.give_back(passing.lease.upstream, false),
        Session::Transaction(transaction) => {
            if let Some((lease, _)) = transaction.bound {
                conns.give_back(lease.upstream, false);
            }
        }
    }
}

/// Handles the loss of a client's private connection, whose requests were answered.
pub(crate) fn lost_private<S: Shell>(conns: &mut Connections<S>, owner: Ref) {
    let Some(client) = conns.ctx.clients.find(owner) else {
        return;
    };
    match &mut client.session {
        Session::Transaction(transaction) => {
            let node = transaction.bound.take().map(|(_, node)| node);
            transaction.begun = Begun::No;
            transaction.take_queued();
            transaction.aborted = Some(CONNECTION_LOST);
            return let_deferred_go(conns, owner, node, LOST);
        }
        Session::Leaving(_) => client.session = Session::Shared,
        // The rest of the request has to be read from the client.
        Session::Shared | Session::Passing(_) => {}
    }
    conns.ctx.clients.mark(owner.at);
}

/// Handles MULTI, EXEC, DISCARD, WATCH and UNWATCH.
pub(crate) fn transaction<S: Shell>(
    conns: &mut Connections<S>,
    me: Ref,
    id: CommandId,
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    let Some(client) = conns.ctx.clients.find(me) else {
        return Flow::Done;
    };
    let Session::Transaction(transaction) = &mut client.session else {
        return begin(conns, me, id, raw, args);
    };
    match id {
        CommandId::Multi if transaction.multi => conns
            .ctx
            .clients
            .refuse(me, "ERR MULTI calls can not be nested"),
        CommandId::Multi => {
            transaction.multi = true;
            begin_bound(&mut conns.ctx, me);
            conns.ctx.clients.status(me, "OK")
        }
        CommandId::Watch if transaction.multi => conns
            .ctx
            .clients
            .refuse(me, "ERR WATCH inside MULTI is not allowed"),
        CommandId::Watch => watch(&mut conns.ctx, me, raw, args),
        CommandId::Unwatch if transaction.multi => queue_anywhere(&mut conns.ctx, me, raw),
        CommandId::Exec if !transaction.multi => {
            conns.ctx.clients.refuse(me, "ERR EXEC without MULTI")
        }
        CommandId::Discard if !transaction.multi => {
            conns.ctx.clients.refuse(me, "ERR DISCARD without MULTI")
        }
        _ => end(conns, me, id, raw),
    }
}

pub(crate) fn begin<S: Shell>(
    conns: &mut Connections<S>,
    me: Ref,
    id: CommandId,
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    match id {
        CommandId::Exec => return conns.ctx.clients.refuse(me, "ERR EXEC without MULTI"),
        CommandId::Discard => return conns.ctx.clients.refuse(me, "ERR DISCARD without MULTI"),
        CommandId::Unwatch => return conns.ctx.clients.status(me, "OK"),
        _ => {}
    }
    if conns.ctx.clients.must_wait(me) {
        return Flow::Again;
    }
    let multi = id == CommandId::Multi;
    let transaction = Box::new(Transaction {
        multi,
        ..Transaction::default()
    });
    if let Some(client) = conns.ctx.clients.find(me) {
        client.session = Session::Transaction(transaction);
    }
    match multi {
        true => conns.ctx.clients.status(me, "OK"),
        false => watch(&mut conns.ctx, me, raw, args),
    }
}

/// Handles a refused call. If it is the WATCH that chose the server, and nothing was sent after it, the client may watch
/// elsewhere.
pub(crate) fn watch_refused<S: Shell>(conns: &mut Connections<S>, at: u32, refused: Waiting) {
    let me = refused.to;
    let Some(client) = conns.ctx.clients.find(me) else {
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
        conns.give_back(lease.upstream, true);
    }
    forget_unbound(&mut conns.ctx.clients, me);
}

/// Handles the reply to the MULTI of a client's transaction.
pub(crate) fn multi_answered<S: Shell>(conns: &mut Connections<S>, at: u32, me: Ref, reply: &[u8]) {
    let error = reply.strip_prefix(b"-");
    match conns.ctx.links.get(at) {
        Some(upstream) if error.is_none() => upstream.takes_multi = true,
        // Its state is not known to a next owner.
        _ => conns.ctx.withdraw(at),
    }
    let Some(transaction) = conns.ctx.clients.transaction_of(me) else {
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
            conns.give_back(lease.upstream, false);
        }
        return let_deferred_go(conns, me, node, &line);
    }
    transaction.begun = Begun::Yes;
    send_queued(&mut conns.ctx, me);
    let Some(transaction) = conns.ctx.clients.transaction_of(me) else {
        return;
    };
    let deferred = transaction.deferred.take();
    conns.ctx.clients.resume(me);
    let Some(Deferred {
        seq,
        kind,
        request,
        ends,
    }) = deferred
    else {
        return;
    };
    with_lease(&mut conns.ctx, me, |ctx, lease| {
        send_numbered(ctx, me, lease, (seq, kind, 1), &request);
    });
    if ends {
        leave_bound(&mut conns.ctx.clients, me);
    }
}

/// Answers the call that waits for the reply to MULTI with an error, since it will not be made.
fn let_deferred_go<S: Shell>(
    conns: &mut Connections<S>,
    me: Ref,
    node: Option<NodeId>,
    line: &str,
) {
    let deferred = conns
        .ctx
        .clients
        .transaction_of(me)
        .and_then(|it| it.deferred.take());
    conns.ctx.clients.resume(me);
    conns.ctx.clients.mark(me.at);
    let Some(deferred) = deferred else { return };
    let waiting = Waiting::one(me, deferred.seq, deferred.kind, b"", conns.ctx.now_ms).of(
        conns.ctx.clients.command_called(me),
        conns.ctx.recorder.now_us,
    );
    if let Some(node) = node {
        conns.ctx.recorder.lost(&waiting, node, &deferred.request);
    }
    match deferred.ends {
        true => {
            drop_transaction(conns, me);
            conns
                .ctx
                .fail(waiting, &refusal::exec_aborted(line.as_bytes()));
        }
        false => conns.ctx.fail(waiting, line),
    }
}

/// Refuses a call, whatever its arguments are. Inside MULTI, EXEC will fail; EXEC itself ends the transaction.
pub(crate) fn reject<S: Shell>(
    conns: &mut Connections<S>,
    me: Ref,
    id: CommandId,
    line: &(impl AsRef<[u8]> + ?Sized),
) -> Flow {
    conns.ctx.recorder.refused(id as u16);
    if id != CommandId::Exec {
        return conns.ctx.clients.abort(me, line);
    }
    match conns.ctx.clients.transaction_of(me) {
        Some(transaction) if transaction.bound.is_some() => {
            let end = match transaction.begun {
                Begun::No => UNWATCH,
                _ => DISCARD,
            };
            send_bound(&mut conns.ctx, me, Kind::Unwanted, 1, end);
            leave_bound(&mut conns.ctx.clients, me);
        }
        Some(_) => drop_transaction(conns, me),
        None => {}
    }
    conns
        .ctx
        .clients
        .refuse(me, &refusal::exec_aborted(line.as_ref()))
}

/// Handles EXEC or DISCARD.
pub(crate) fn end<S: Shell>(
    conns: &mut Connections<S>,
    me: Ref,
    id: CommandId,
    raw: &[u8],
) -> Flow {
    let Some(transaction) = conns.ctx.clients.transaction_of(me) else {
        return Flow::Done;
    };
    let aborted = transaction.aborted;
    let has_calls = !transaction.queued.is_empty();
    if id == CommandId::Exec
        && aborted.is_none()
        && has_calls
        && let Some(node) = conns.ctx.any_node(me)
        && let Err(line) = bind(&mut conns.ctx, me, node)
    {
        drop_transaction(conns, me);
        return conns
            .ctx
            .clients
            .refuse(me, &refusal::exec_aborted(line.as_bytes()));
    }
    let begun = conns
        .ctx
        .clients
        .transaction_of(me)
        .map_or(Begun::No, |it| it.begun);
    let unwatches = id == CommandId::Unwatch
        && conns
            .ctx
            .clients
            .transaction_of(me)
            .is_some_and(|it| it.bound.is_some());
    if begun != Begun::No || unwatches {
        // Earlier replies may be due, so the connection stays until they have arrived, and the server is sent the end.
        let failed = aborted.filter(|_| id == CommandId::Exec);
        if begun == Begun::Asked && failed.is_none() {
            return end_early(&mut conns.ctx, me, id, raw);
        }
        match failed {
            None => send_bound(&mut conns.ctx, me, Kind::Client, 1, raw),
            Some(_) => send_bound(&mut conns.ctx, me, Kind::Unwanted, 1, DISCARD),
        };
        leave_bound(&mut conns.ctx.clients, me);
        return match failed {
            None => Flow::Done,
            Some(line) => conns.ctx.clients.refuse(me, line),
        };
    }
    drop_transaction(conns, me);
    match (id, aborted) {
        (CommandId::Exec, Some(line)) => conns.ctx.clients.refuse(me, line),
        (CommandId::Exec, None) => conns.ctx.clients.answer(me, |reply| reply.array(0)),
        _ => conns.ctx.clients.status(me, "OK"),
    }
}

fn drop_transaction<S: Shell>(conns: &mut Connections<S>, me: Ref) {
    if let Some(client) = conns.ctx.clients.find(me) {
        let session = std::mem::replace(&mut client.session, Session::Shared);
        abandon(conns, session);
    }
}

/// Ends the transaction of a failed WATCH, unless the loss of an earlier one has to be remembered.
fn forget_unbound<S: Shell>(clients: &mut Clients<S>, me: Ref) {
    if let Some(client) = clients.find(me)
        && let Session::Transaction(transaction) = &client.session
        && transaction.bound.is_none()
        && transaction.aborted.is_none()
        && !transaction.multi
    {
        client.session = Session::Shared;
    }
}

/// Keeps a call until MULTI is answered, and takes nothing more from the client.
fn hold_back<S: Shell>(clients: &mut Clients<S>, me: Ref, raw: &[u8]) {
    let kind = clients.silenced(me, Kind::Client);
    let Some(client) = clients.find(me) else {
        return;
    };
    let seq = client.number();
    client.pause = Pause::Multi;
    if let Some(transaction) = clients.transaction_of(me) {
        transaction.deferred = Some(Deferred {
            seq,
            kind,
            request: raw.to_vec(),
            ends: false,
        });
    }
}

fn leave_bound<S: Shell>(clients: &mut Clients<S>, me: Ref) {
    if let Some(client) = clients.find(me)
        && let Session::Transaction(transaction) =
            std::mem::replace(&mut client.session, Session::Shared)
        && let Some((lease, _)) = transaction.bound
    {
        clients.leave(me, lease);
    }
}

#[cfg(test)]
mod tests;
