//! Calls of commands that the table does not have, or that clients call by another name. Must not know connections.

use redline_acl::{KeyUse, NO_AUTH};
use redline_proxy_config::Mode;
use redline_resp::{Args, encode_request};
use redline_spec::{CommandId, refusal};

use crate::access;
use crate::clients::Clients;
use crate::command_names::Foreign;
use crate::connections::Connections;
use crate::errors;
use crate::leases;
use crate::observability::OUT_OF_MEMORY;
use crate::observability::memory;
use crate::observability::monitor;
use crate::replica_reads;
use crate::requests::Flow;
use crate::route::NO_NODE;
use crate::slab::Ref;

pub(crate) fn foreign_call(
    conns: &mut Connections,
    me: Ref,
    foreign: &Foreign,
    full_name: &[u8],
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    let name = String::from_utf8_lossy(full_name).into_owned();
    if access::is_nobody(&mut conns.ctx.clients, me) {
        return conns.ctx.clients.abort(me, NO_AUTH);
    }
    if conns
        .ctx
        .clients
        .find(me)
        .is_some_and(|client| client.restricted)
    {
        return conns.ctx.clients.refuse(me, &refusal::subscribed(&name));
    }
    if !foreign.allows(args.len()) {
        return conns.ctx.clients.abort(me, &refusal::wrong_arity(&name));
    }
    if let Some(line) = foreign_refusal(&mut conns.ctx.clients, me, foreign, &name, args) {
        return conns.ctx.clients.abort(me, &line);
    }
    if let Some(client) = conns.ctx.clients.find(me) {
        client.last = None;
    }
    let is_shown = conns.ctx.seeing.looks_at_all;
    if is_shown && !memory::has_memory(&mut conns.ctx) {
        return conns.ctx.clients.abort(me, OUT_OF_MEMORY);
    }
    let flow = make_foreign(conns, me, foreign, &name, raw, args);
    // What has to wait comes again, and is shown then.
    if is_shown && flow != Flow::Again {
        monitor::show(&mut conns.ctx, me, None, args, None);
    }
    flow
}

/// A call that nothing speaks against.
fn make_foreign(
    conns: &mut Connections,
    me: Ref,
    foreign: &Foreign,
    name: &str,
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    let home = conns.ctx.clients.home_of(me);
    let mut words: Vec<&[u8]> = args.iter().collect();
    let (mut group, mut is_changed) = (None, false);
    for at in foreign.keys(args.len()) {
        let key = &args[at];
        let found = conns.ctx.routes.group_of(home, key);
        if group.is_some_and(|group| group != found) {
            return conns.ctx.clients.abort(me, errors::CROSS_SLOT);
        }
        group = Some(found);
        words[at] = conns.ctx.routes.prefixes.find(home, key).1;
        is_changed |= words[at].len() != key.len();
    }
    let mut changed = Vec::new();
    if is_changed {
        encode_request(words, &mut changed);
    }
    let raw = if is_changed { &changed } else { raw };
    let reads = foreign.mode == Mode::Read;
    let Some(group) = group else {
        if foreign.has_more_keys && !conns.ctx.has_one_shard(me) {
            return conns.ctx.clients.abort(me, &errors::keys_untold(name));
        }
        if !reads && let Some(client) = conns.ctx.clients.find(me) {
            client.wrote = client.next;
        }
        if conns.ctx.clients.is_in_multi(me) {
            return leases::queue_anywhere(&mut conns.ctx, me, raw);
        }
        if conns.ctx.clients.is_in_transaction(me) && conns.ctx.clients.must_wait(me) {
            return Flow::Again;
        }
        let flow = conns.ctx.forward_anywhere(me, raw);
        return behind_watch(conns, me, flow);
    };
    let primary = conns.ctx.routes.node_of_group(group);
    if primary == NO_NODE {
        return conns
            .ctx
            .clients
            .abort(me, conns.ctx.unserved(conns.ctx.clients.home_of(me)));
    }
    if let Some(flow) = leases::foreign_in_transaction(&mut conns.ctx, me, primary, raw) {
        return flow;
    }
    if conns.ctx.clients.is_in_transaction(me) && conns.ctx.clients.must_wait(me) {
        return Flow::Again;
    }
    let node = match conns.ctx.routes.pool_of(group).spreads_reads {
        true => replica_reads::node_for(&mut conns.ctx, me, reads, group),
        false => primary,
    };
    let flow = conns.ctx.forward_as_is(me, node, raw);
    behind_watch(conns, me, flow)
}

/// Makes the client wait, if it is in a transaction, so that a call that has gone another way than its WATCH is not
/// overtaken by the next one.
fn behind_watch(conns: &mut Connections, me: Ref, flow: Flow) -> Flow {
    if conns.ctx.clients.is_in_transaction(me) {
        conns.ctx.clients.must_wait(me);
    }
    flow
}

/// Why a client may not make such a call: as it might not one of the table that does the same to the same keys.
fn foreign_refusal(
    clients: &mut Clients,
    me: Ref,
    foreign: &Foreign,
    name: &str,
    args: Args<'_>,
) -> Option<String> {
    let client = clients.find(me).filter(|client| client.has_limits)?;
    let user = client.user.clone()?;
    let no_command = || {
        let reason = redline_acl::Reason::Command;
        format!("NOPERM {}", user.refusal(reason, name, b"", false))
    };
    let both = KeyUse {
        read: true,
        write: true,
    };
    let (id, words, needed): (_, &[&[u8]], _) = match foreign.mode {
        Mode::Read => (CommandId::Get, &[b"get", b""], KeyUse::READ),
        Mode::Write => (CommandId::Append, &[b"append", b"", b""], both),
        Mode::Admin => (CommandId::ConfigSet, &[b"config", b"set", b"", b""], both),
    };
    let keys: Vec<&[u8]> = foreign.keys(args.len()).map(|at| &args[at]).collect();
    if keys.is_empty() || foreign.has_more_keys || foreign.mode == Mode::Admin {
        // Nobody sees which keys it uses.
        let may = user.check_every_key(id, words.len(), |at| words[at], needed);
        return (!may).then(no_command);
    }
    for key in keys {
        for id in [id, CommandId::Get] {
            let word = |at: usize| if at == 1 { key } else { words[at] };
            let argc = if id == CommandId::Get { 2 } else { words.len() };
            if let Err(denied) = user.check(id, argc, word) {
                let text = user.refusal(denied.reason, name, key, false);
                return Some(format!("NOPERM {text}"));
            }
        }
    }
    None
}
