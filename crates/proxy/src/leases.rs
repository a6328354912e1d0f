//! Client states that need a connection of their own: a blocking call, a transaction. Must not know how requests are routed.
//!
//! Such a connection comes out of a pool ([`Lease`]) and goes back when nothing of its client is left on it: behind the
//! reply of a blocking call, of EXEC, DISCARD or UNWATCH. A client that leaves before takes it along: it is closed.

use redline_resp::{Args, encode_request};
use redline_spec::{CommandId, refusal};

use crate::class::{Class, Command};
use crate::client::Pause;
use crate::clients::Clients;
use crate::connections::Connections;
use crate::context::Context;
use crate::errors;
use crate::local_commands;
use crate::local_commands::heeds_nobody;
use crate::observability::tell_of_query_buffer;
use crate::redirect::{MOVED_ON, is_redirect};
use crate::requests::{Flow, is_about_commands, may_block, waits_ms};
use crate::route::NodeId;
use crate::slab::Ref;
use crate::split;
use crate::streaming::Passing;
use crate::upstream::{Kind, Upstream, Waiting};

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

    /// Returns true if MULTI came and its end did not.
    pub(crate) fn is_in_multi(&self) -> bool {
        self.multi
    }

    /// An error inside MULTI: EXEC will fail.
    pub(crate) fn abort(&mut self) {
        if self.multi {
            self.aborted.get_or_insert(PREVIOUS_ERRORS);
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

/// Bytes of a script that goes with each call of it in a transaction; of a longer one the name does.
const SCRIPT_BYTES_MAX: usize = 64 * 1024;
const PREVIOUS_ERRORS: &str = "EXECABORT Transaction discarded because of previous errors.";
const LOST: &str = "ERR the connection to the server was lost";
const CONNECTION_LOST: &str =
    "EXECABORT Transaction discarded because of: the connection to the server was lost";

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";

/// A call that may wait: alone on a connection of its own, and nothing of this client goes on until it is answered.
pub(crate) fn blocking(
    ctx: &mut Context,
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

/// A blocking call goes to another server.
pub(crate) fn move_lease(
    ctx: &mut Context,
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
    // It begins to wait anew.
    lease.waits_ms = client
        .waits_ms()
        .map(|waits_ms| waits_ms.saturating_add(waited_ms.into()));
    let before = std::mem::replace(&mut client.session, Session::Leaving(lease));
    if let Session::Leaving(old) = before
        && let Some(upstream) = ctx.links.find(old.upstream)
    {
        // Its last reply, the redirect, is being taken at this moment: then it is dropped.
        upstream.owner = None;
        ctx.withdraw(old.upstream.at);
    }
    true
}

pub(crate) fn take_lease(ctx: &mut Context, me: Ref, node: NodeId) -> Result<Lease, String> {
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

/// Sends `count` requests over a private connection. With [`Kind::Client`] the next numbers of the client are theirs.
pub(crate) fn send_leased(
    ctx: &mut Context,
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

/// The same for requests that have numbers, from `seq` on, if they are to have any.
fn send_numbered(
    ctx: &mut Context,
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
            .of(ctx.clients.command_called(me), ctx.seeing.now_us)
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

pub(crate) fn watch(ctx: &mut Context, me: Ref, raw: &[u8], args: Args<'_>) -> Flow {
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

/// Makes sure that the transaction has a connection to this server, and no other.
pub(crate) fn bind(ctx: &mut Context, me: Ref, node: NodeId) -> Result<(), String> {
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

/// Tells the server what the client was answered already: MULTI, and calls without keys.
fn begin_bound(ctx: &mut Context, me: Ref) {
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
    let takes_multi = |upstream: &mut Upstream| upstream.takes_multi;
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

/// Tells the server the calls without keys.
fn send_queued(ctx: &mut Context, me: Ref) {
    let Some(transaction) = ctx.clients.transaction_of(me) else {
        return;
    };
    for Queued { calls, count } in transaction.take_queued() {
        send_bound(ctx, me, Kind::Unwanted, count, &calls);
    }
}

fn with_lease(ctx: &mut Context, me: Ref, then: impl FnOnce(&mut Context, &Lease)) {
    let transaction = ctx.clients.transaction_of(me);
    let Some((lease, node)) = transaction.and_then(|it| it.bound.take()) else {
        return;
    };
    then(ctx, &lease);
    if let Some(transaction) = ctx.clients.transaction_of(me) {
        transaction.bound = Some((lease, node));
    }
}

fn send_bound(ctx: &mut Context, me: Ref, kind: Kind, count: u16, raw: &[u8]) -> Flow {
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

/// Sends a call over the connection of WATCH. `waits`: it may wait, and for how long; nothing of this client goes on until
/// it is answered.
fn send_behind_watch(ctx: &mut Context, me: Ref, raw: &[u8], waits: Option<Option<u64>>) -> Flow {
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

/// Any other call of a client that is in a transaction: `None` if it is none of the transaction's business.
pub(crate) fn in_transaction(
    ctx: &mut Context,
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
        // Calls about the watched server go the way of WATCH, behind it.
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
            // It goes over another connection than what is on its way.
            _ if ctx.clients.must_wait(me) => Some(Flow::Again),
            Ok(Some(_)) if command.class == Class::Blocks => Some(ctx.clients.refuse(
                me,
                "ERR behind WATCH, a call that may wait needs keys of the same server",
            )),
            _ => None,
        };
    }
    if is_about_commands(command.id) && ctx.shared.names.hide_something() {
        // The server's own table has what clients are not shown.
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
        // The server knows at EXEC what is wrong with it.
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

/// EVAL in place of EVALSHA, if the script went through the proxy: inside MULTI a server that lacks it can no longer be
/// given it.
fn script_in_full(ctx: &Context, id: CommandId, args: Args<'_>) -> Option<Vec<u8>> {
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

/// A call that the table does not have, with keys on the server `node`, of a client that is in a transaction; `None` if it
/// is none of the transaction's business.
pub(crate) fn foreign_in_transaction(
    ctx: &mut Context,
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

/// A call inside MULTI that any server can answer: the transaction's, or the one that it will have.
pub(crate) fn queue_anywhere(ctx: &mut Context, me: Ref, raw: &[u8]) -> Flow {
    let query_bytes_max = ctx.shared.settings.query_bytes_max;
    let Some(transaction) = ctx.clients.transaction_of(me) else {
        return Flow::Done;
    };
    if transaction.begun != Begun::No {
        return send_bound(ctx, me, Kind::Client, 1, raw);
    }
    // They count as what a client has sent and nobody has executed, as Redis counts them.
    if transaction.queued_bytes + raw.len() > query_bytes_max {
        if let Some(client) = ctx.clients.find(me) {
            tell_of_query_buffer(&client.card.addr, query_bytes_max);
        }
        return Flow::Close;
    }
    transaction.queue(raw);
    ctx.clients.status(me, "QUEUED")
}

/// EXEC or DISCARD, before MULTI is answered.
fn end_early(ctx: &mut Context, me: Ref, id: CommandId, raw: &[u8]) -> Flow {
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

/// Everything that the client asked is answered: what it no longer needs goes back.
pub(crate) fn calm(conns: &mut Connections, at: u32) {
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

/// The client is gone, or begins anew: nobody can say what state its connection is in.
pub(crate) fn abandon(conns: &mut Connections, session: Session) {
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

/// A client's private connection broke; its requests were answered.
pub(crate) fn lost_private(conns: &mut Connections, owner: Ref) {
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
        // What is still to come of the request has to be taken from the client.
        Session::Shared | Session::Passing(_) => {}
    }
    conns.ctx.clients.mark(owner.at);
}

/// MULTI, EXEC, DISCARD, WATCH and UNWATCH.
pub(crate) fn transaction(
    conns: &mut Connections,
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

pub(crate) fn begin(
    conns: &mut Connections,
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

/// The server has refused this call. If it is the WATCH that chose the server, and nothing came behind it, the client may
/// watch elsewhere.
pub(crate) fn watch_refused(conns: &mut Connections, at: u32, refused: Waiting) {
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

/// The server has answered the MULTI of a client's transaction.
pub(crate) fn multi_answered(conns: &mut Connections, at: u32, me: Ref, reply: &[u8]) {
    let error = reply.strip_prefix(b"-");
    match conns.ctx.links.get(at) {
        Some(upstream) if error.is_none() => upstream.takes_multi = true,
        // Nobody can say what state it is in for whoever comes next.
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

/// Answers the call that waits for the answer to MULTI with an error, since it is not to be made any more.
fn let_deferred_go(conns: &mut Connections, me: Ref, node: Option<NodeId>, line: &str) {
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
        conns.ctx.seeing.now_us,
    );
    if let Some(node) = node {
        conns.ctx.seeing.lost(&waiting, node, &deferred.request);
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

/// A call that is refused whatever else it says. Inside MULTI, EXEC will fail; EXEC itself ends the transaction.
pub(crate) fn reject(
    conns: &mut Connections,
    me: Ref,
    id: CommandId,
    line: &(impl AsRef<[u8]> + ?Sized),
) -> Flow {
    conns.ctx.seeing.refused(id as u16);
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

/// EXEC or DISCARD.
pub(crate) fn end(conns: &mut Connections, me: Ref, id: CommandId, raw: &[u8]) -> Flow {
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
        // Replies may be due from before, so the connection stays until they are here, and the server is told the end.
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

fn drop_transaction(conns: &mut Connections, me: Ref) {
    if let Some(client) = conns.ctx.clients.find(me) {
        let session = std::mem::replace(&mut client.session, Session::Shared);
        abandon(conns, session);
    }
}

/// A WATCH that failed leaves nothing behind, unless it has to be known that an earlier one was lost.
fn forget_unbound(clients: &mut Clients, me: Ref) {
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
fn hold_back(clients: &mut Clients, me: Ref, raw: &[u8]) {
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

fn leave_bound(clients: &mut Clients, me: Ref) {
    if let Some(client) = clients.find(me)
        && let Session::Transaction(transaction) =
            std::mem::replace(&mut client.session, Session::Shared)
        && let Some((lease, _)) = transaction.bound
    {
        clients.leave(me, lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_wait_for_their_server_are_kept_in_entries_that_a_queue_has_room_for() {
        let mut transaction = Transaction::default();
        let count = usize::from(u16::MAX) + 2;
        (0..count).for_each(|_| transaction.queue(b"x"));
        assert_eq!(transaction.queued_bytes, count);
        let counts: Vec<u16> = transaction
            .take_queued()
            .iter()
            .map(|it| it.count)
            .collect();
        assert_eq!(counts, [u16::MAX, 2]);
        assert!(transaction.queued.is_empty() && transaction.queued_bytes == 0);
    }

    #[test]
    fn an_error_aborts_a_transaction_only_behind_multi() {
        let mut transaction = Transaction::default();
        transaction.abort();
        assert_eq!(transaction.aborted, None);
        transaction.multi = true;
        transaction.abort();
        assert_eq!(transaction.aborted, Some(PREVIOUS_ERRORS));
    }
}
