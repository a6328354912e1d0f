//! Calls of commands that the table does not have, or that are renamed. Must not know connections.

use redline_acl::{KeyUse, NO_AUTH};
use redline_proxy_config::Mode;
use redline_resp::{Args, encode_request};
use redline_spec::{CommandId, refusal};

use crate::clients::Clients;
use crate::command_names::Foreign;
use crate::connections::Connections;
use crate::observability::{OUT_OF_MEMORY, memory, monitor};
use crate::requests::Flow;
use crate::route::NO_NODE;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::{access, errors, leases, replica_reads};

pub(crate) fn foreign_call<S: Shell>(
    conns: &mut Connections<S>,
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
    let is_shown = conns.ctx.recorder.looks_at_all;
    if is_shown && !memory::has_memory(&mut conns.ctx) {
        return conns.ctx.clients.abort(me, OUT_OF_MEMORY);
    }
    let flow = make_foreign(conns, me, foreign, &name, raw, args);
    // A call that has to wait is decoded again, and shown then.
    if is_shown && flow != Flow::Again {
        monitor::show(&mut conns.ctx, me, None, args, None);
    }
    flow
}

/// Makes a call that passed all checks.
fn make_foreign<S: Shell>(
    conns: &mut Connections<S>,
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

/// Makes the client wait, if it is in a transaction, so that a call on another connection than its WATCH is not
/// overtaken by the next one.
fn behind_watch<S: Shell>(conns: &mut Connections<S>, me: Ref, flow: Flow) -> Flow {
    if conns.ctx.clients.is_in_transaction(me) {
        conns.ctx.clients.must_wait(me);
    }
    flow
}

/// Returns why a client may not make such a call: by the rule for a command of the table with the same access to the same keys.
fn foreign_refusal<S: Shell>(
    clients: &mut Clients<S>,
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
        // Its keys are not known.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::command_names::ForeignByName;
    use crate::route::Routes;
    use crate::testing::{Proxy, halves, pool, routes};

    #[test]
    fn a_command_that_only_servers_know_goes_to_the_one_that_has_its_key() {
        let get = Foreign {
            mode: Mode::Read,
            least: 2,
            most: 3,
            first: 1,
            last: 1,
            step: 1,
            has_more_keys: false,
        };
        let mut pool = pool(halves(), 2);
        let learned = ForeignByName::from([(b"ft.get".to_vec(), get)]);
        pool.learned = Some(Arc::new(learned));
        let mut proxy = Proxy::new(routes(pool));
        let me = proxy.client();
        proxy.send(me, &["FT.GET a", "ft.get a b c", "FT.PUT a"]);
        let link = proxy.link(1);
        assert_eq!(proxy.sent(link), "*2 FT.GET a");
        proxy.reply(link, "$2 {} ");
        let got = proxy.got(me);
        let wrong = "-ERR_wrong_number_of_arguments_for_'ft.get'_command";
        assert!(
            got.starts_with(&format!("{{}} {wrong} -ERR_unknown_command")),
            "{got}"
        );
    }

    #[test]
    fn what_nobody_is_known_to_have_waits_until_the_servers_were_asked() {
        let mut proxy = Proxy::of_one();
        let me = proxy.client();
        proxy.send(me, &["FT.GET a"]);
        let reports = proxy.core.conns.ctx.shell.reports.take();
        assert_eq!(reports, [crate::report::Report::Foreign { pool: 0 }]);
        assert_eq!(proxy.got(me), "");
        let mut fresh = Routes::clone(&proxy.core.conns.ctx.routes);
        fresh.pools[0].learned = Some(Arc::default());
        proxy.core.conns.adopt(Arc::new(fresh));
        proxy.pass_ms(10);
        let got = proxy.got(me);
        assert!(got.starts_with("-ERR_unknown_command"), "{got}");
    }
}
