//! Errors by which a server redirects a request or asks for a later attempt: the request is sent elsewhere, or again a
//! little later. Must not know the meaning of requests.
//!
//! MOVED changes the worker's own routing table at once and is reported, so that the control side fetches the whole map;
//! ASK concerns one request, which is sent after ASKING. Where the target is not known yet, and for temporary errors,
//! the request waits a little and is routed anew; meanwhile nothing more is taken from its client, whose later requests
//! must not overtake it.
//!
//! A script, or a module's command, may answer with any error that its caller likes. Such a redirect changes no routing
//! table and leads to no server that is not known already: else one client could have the keys of all, and the servers'
//! password, sent anywhere. It only causes the map to be fetched. And since a script that sent it has run, the same
//! server is not asked again for it: a redirect to the sending server is the script's text, and goes to the client (no
//! node redirects to itself), and if the target is unknown, the call waits until it is known. The target may truly
//! redirect back to the first one, so a call that may write follows one such redirect, and no second one.

use std::sync::Arc;

use redline_cluster::Redirect;
use redline_spec::{self as spec, Flags, Group};

use crate::connections::Connections;
use crate::context::Context;
use crate::leases::{self, Session};
use crate::report::Report;
use crate::request::{request_len, request_name};
use crate::retry::Why;
use crate::route::{Endpoint, NodeId, Placement, Shard};
use crate::script_calls;
use crate::shell::Shell;
use crate::upstream::{Kind, Purpose, Waiting};

/// Largest number of redirects and retries of one request.
pub(crate) const TRIES_MAX: u8 = 8;
/// The new server of the keys is not shown: a client that speaks to clusters would connect there.
pub(crate) const MOVED_ON: &str = "TRYAGAIN the keys have moved to another server; ask again";

/// The action for an error.
#[derive(Debug, PartialEq, Eq)]
enum Advice {
    Moved(Redirect),
    Ask(Redirect),
    /// It is temporary.
    Wait,
    /// The server lacks the script.
    Script,
}

/// Checks an error for the request `one`, the first that the server has not answered. Returns `true` if the request was
/// or will be sent elsewhere, and the error is dropped.
pub(crate) fn redirected<S: Shell>(
    conns: &mut Connections<S>,
    at: u32,
    one: Waiting,
    reply: &[u8],
) -> bool {
    let Some(advice) = advice(reply) else {
        return false;
    };
    let Some(upstream) = conns.ctx.links.get(at) else {
        return false;
    };
    let (node, db, proto, purpose) = (upstream.node, upstream.db, upstream.proto, upstream.purpose);
    // A connection that is to end may lead to where the server was before.
    let is_retired = upstream.retired;
    if upstream.passes {
        if let Advice::Moved(redirect) = &advice {
            moved(&mut conns.ctx, node, redirect);
        }
        // The bytes are gone: only the client has them.
        conns.ctx.recorder.lost(&one, node, &[]);
        conns.ctx.fail(
            one,
            "TRYAGAIN the server has changed while a large request was on its way",
        );
        return true;
    }
    let rest = upstream.front_unanswered();
    let request = rest.and_then(|rest| rest.get(..request_len(rest)?));
    let Some(request) = request.map(<[u8]>::to_vec) else {
        return false;
    };
    if advice == Advice::Wait && is_script(&request) {
        // It may be the script's own text, and the script may have written.
        return false;
    }
    if advice == Advice::Script {
        return lacks_script(conns, at, one, request, reply);
    }
    let is_hearsay = may_say_anything(&request);
    let (target, asking) = match &advice {
        Advice::Wait | Advice::Script => (None, false),
        Advice::Moved(redirect) if is_hearsay => (known(&conns.ctx, node, redirect), false),
        Advice::Ask(redirect) if is_hearsay => (known(&conns.ctx, node, redirect), true),
        Advice::Moved(redirect) => (moved(&mut conns.ctx, node, redirect), false),
        Advice::Ask(redirect) => (find(&conns.ctx, node, redirect), true),
    };
    if is_hearsay && !is_retired && target.is_some_and(|target| is_same(&conns.ctx, target, node)) {
        return false;
    }
    if matches!(advice, Advice::Wait) || is_hearsay {
        conns.ctx.tell(Report::Lost {
            pool: conns.ctx.routes.nodes[usize::from(node)].pool,
        });
    }
    let has_moved = matches!(advice, Advice::Moved(_) | Advice::Ask(_));
    // It may have run, here and before.
    let is_last = has_moved && is_hearsay && !only_reads(&request);
    let tries = one.tries.and(1);
    let again = Waiting {
        count: 1,
        answered: 0,
        bytes: request.len() as u32,
        tries: if is_last { tries.led() } else { tries },
        ..one
    };
    let may_go_on = one.tries.count() < TRIES_MAX && !(is_last && one.tries.was_led());
    if !may_go_on || purpose == Purpose::Private {
        let is_sent =
            may_go_on && redirect_private(&mut conns.ctx, again, target, asking, &request);
        if !is_sent && has_moved {
            conns.ctx.recorder.lost(&one, node, &request);
            conns.ctx.fail(one, MOVED_ON);
        }
        return is_sent || has_moved;
    }
    // Requests that wait for a retry must not be overtaken by others after a redirect.
    let others_wait = conns
        .ctx
        .client_of(&again)
        .and_then(|(client, _)| conns.ctx.clients.find(client))
        .is_some_and(|client| client.put_off > 0);
    let linked = target
        .filter(|_| !others_wait)
        .and_then(|target| conns.ctx.link(target, db, proto).ok());
    // Its next request must not precede one that is still to be sent on.
    if let Some(client) = conns.ctx.clients.find(again.to)
        && again.kind != Kind::Part
    {
        client.settle();
    }
    let Some(to) = linked else {
        let why = match advice {
            Advice::Wait | Advice::Script => Why::Passes,
            Advice::Moved(_) | Advice::Ask(_) if is_hearsay => Why::Hearsay,
            Advice::Moved(_) | Advice::Ask(_) => Why::Moved,
        };
        return conns
            .retries
            .put_off(&mut conns.ctx, at, again, request, why, reply);
    };
    if let Some(to) = conns.ctx.links.get(to) {
        if asking {
            to.push_asking(again.since_ms.into());
        }
        to.push(again, &request, &mut conns.ctx.cache);
    }
    conns.ctx.links.mark(to);
    true
}

/// Has a call repeated after loading its script, which the server lacks; returns true if that is possible.
fn lacks_script<S: Shell>(
    conns: &mut Connections<S>,
    at: u32,
    one: Waiting,
    request: Vec<u8>,
    reply: &[u8],
) -> bool {
    let is_shared = conns
        .ctx
        .links
        .get(at)
        .is_some_and(|upstream| upstream.purpose == Purpose::Shared);
    if one.tries.count() >= TRIES_MAX
        || !is_shared
        || script_calls::script_of(&conns.ctx, &request).is_none()
    {
        return false;
    }
    let again = Waiting {
        count: 1,
        answered: 0,
        bytes: request.len() as u32,
        tries: one.tries.and(TRIES_MAX / 2),
        ..one
    };
    conns
        .retries
        .put_off(&mut conns.ctx, at, again, request, Why::Script, reply)
}

/// Redirects a call on a private connection; true if it could. Only a single blocking call can move, no transaction.
fn redirect_private<S: Shell>(
    ctx: &mut Context<S>,
    again: Waiting,
    target: Option<NodeId>,
    asking: bool,
    request: &[u8],
) -> bool {
    let alone = ctx
        .clients
        .find(again.to)
        .is_some_and(|client| client.pending() == 1);
    let is_exec = request_name(request).eq_ignore_ascii_case(b"EXEC");
    let Some(target) = target.filter(|_| alone && !is_exec) else {
        return false;
    };
    let Some(client) = ctx.clients.find(again.to) else {
        return false;
    };
    if !matches!(client.session, Session::Leaving(_)) {
        return false;
    }
    leases::move_lease(ctx, again, target, asking, request)
}

/// Applies MOVED to the routing table, and finds the node.
pub(crate) fn moved<S: Shell>(
    ctx: &mut Context<S>,
    from: NodeId,
    redirect: &Redirect,
) -> Option<NodeId> {
    let of_pool = ctx.routes.nodes[usize::from(from)].pool;
    ctx.tell(Report::Moved {
        pool: of_pool,
        slot: redirect.slot,
        node: from,
        host: redirect.host.clone().unwrap_or_default(),
        port: redirect.port,
    });
    ctx.cache.forget(of_pool);
    let target = find(ctx, from, redirect)?;
    let routes = Arc::make_mut(&mut ctx.routes);
    let pool = &mut routes.pools[usize::from(of_pool)];
    let had_it = pool.node_of_group(redirect.slot);
    let Placement::Slots(slots) = &mut pool.placement else {
        return Some(target);
    };
    let shard = pool
        .shards
        .iter()
        .position(|shard| shard.has(target))
        .unwrap_or_else(|| {
            pool.shards.push(Shard {
                primary: target,
                replicas: Vec::new(),
                readers: Vec::new(),
            });
            pool.shards.len() - 1
        });
    // A replica that takes writes now: the shard stays one.
    pool.shards[shard].promote(target);
    let slot = &mut slots[usize::from(redirect.slot)];
    let before = std::mem::replace(slot, shard as u16);
    if before != shard as u16 || had_it != target {
        // Others have asked there for keys of the slot, too, and will be redirected later.
        ctx.settle_all(&[from, had_it]);
    }
    Some(target)
}

/// Returns the node that a redirect names. One that is in no routing table is reported.
pub fn find<S: Shell>(ctx: &Context<S>, from: NodeId, redirect: &Redirect) -> Option<NodeId> {
    let found = known(ctx, from, redirect);
    if found.is_none()
        && let Some(host) = host_of(ctx, from, redirect)
    {
        ctx.tell(Report::Unknown {
            pool: ctx.routes.nodes[usize::from(from)].pool,
            host,
            port: redirect.port,
        });
    }
    found
}

/// Returns the host that a redirect means; none: it is that of `from`, which has no address.
fn host_of<S: Shell>(ctx: &Context<S>, from: NodeId, redirect: &Redirect) -> Option<String> {
    match (
        &redirect.host,
        &ctx.routes.nodes[usize::from(from)].endpoint,
    ) {
        (Some(host), _) => Some(host.clone()),
        (None, Endpoint::Tcp(address)) => Some(address.ip().to_string()),
        (None, Endpoint::Unix(_)) => None,
    }
}

/// Returns the current target of the error `said`, by which `from` has redirected a call: the node, and whether ASKING
/// is needed. None: the node is not known.
pub(crate) fn led_to<S: Shell>(
    ctx: &Context<S>,
    from: NodeId,
    said: &str,
) -> Option<(NodeId, bool)> {
    match advice(format!("-{said}").as_bytes())? {
        Advice::Moved(redirect) => Some((known(ctx, from, &redirect)?, false)),
        Advice::Ask(redirect) => Some((known(ctx, from, &redirect)?, true)),
        Advice::Wait | Advice::Script => None,
    }
}

/// Returns true if two numbers are of one server, which may have one by its name and one by its address.
pub(crate) fn is_same<S: Shell>(ctx: &Context<S>, one: NodeId, other: NodeId) -> bool {
    let endpoint = |node: NodeId| &ctx.routes.nodes[usize::from(node)].endpoint;
    one == other || endpoint(one) == endpoint(other)
}

/// Returns the node that a redirect names, if it is in the routing table.
pub(crate) fn known<S: Shell>(
    ctx: &Context<S>,
    from: NodeId,
    redirect: &Redirect,
) -> Option<NodeId> {
    let host = host_of(ctx, from, redirect)?;
    let is_target = |name: &str| {
        name.rsplit_once(':').is_some_and(|(known, port)| {
            known.trim_start_matches('[').trim_end_matches(']') == host
                && port.parse() == Ok(redirect.port)
        })
    };
    let at_endpoint = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => {
            address.port() == redirect.port && address.ip().to_string() == host
        }
        Endpoint::Unix(_) => false,
    };
    let pool = ctx.routes.nodes[usize::from(from)].pool;
    let found = ctx.routes.nodes.iter().position(|node| {
        node.pool == pool && (is_target(&node.name) || at_endpoint(&node.endpoint))
    });
    found.map(|found| found as NodeId)
}

fn advice(reply: &[u8]) -> Option<Advice> {
    // The most common errors are none of these.
    if !matches!(
        reply.get(1)?,
        b'M' | b'A' | b'T' | b'C' | b'L' | b'R' | b'N'
    ) {
        return None;
    }
    let text = std::str::from_utf8(reply)
        .ok()?
        .trim_end()
        .strip_prefix('-')?;
    let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
    match code {
        "MOVED" => Redirect::parse(rest).map(Advice::Moved),
        "ASK" => Redirect::parse(rest).map(Advice::Ask),
        "NOSCRIPT" => Some(Advice::Script),
        "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "READONLY" | "MASTERDOWN" => Some(Advice::Wait),
        _ => None,
    }
}

/// Returns true if an error says that another server has the keys.
pub(crate) fn is_redirect(reply: &[u8]) -> bool {
    matches!(advice(reply), Some(Advice::Moved(_) | Advice::Ask(_)))
}

/// Returns true if a request runs a script, which may write and return any reply.
fn is_script(request: &[u8]) -> bool {
    [&b"EVAL"[..], b"EVALSHA", b"FCALL"]
        .iter()
        .any(|script| request_name(request).eq_ignore_ascii_case(script))
}

/// Returns true if the text of the error that answers a request may come from a script, or from a command that the table does
/// not have.
fn may_say_anything(request: &[u8]) -> bool {
    let id = spec::lookup(request_name(request));
    id.is_none_or(|id| spec::row(id).group == Group::Scripting)
}

/// Returns true if a request is read-only, whatever it runs.
fn only_reads(request: &[u8]) -> bool {
    let id = spec::lookup(request_name(request));
    id.is_some_and(|id| spec::gate(id).flags.has(Flags::READONLY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Proxy;

    #[test]
    fn errors_that_ask_for_something_are_told_from_others() {
        let redirect = || Redirect {
            slot: 7,
            host: Some("h".to_owned()),
            port: 1,
        };
        assert_eq!(advice(b"-MOVED 7 h:1\r\n"), Some(Advice::Moved(redirect())));
        assert_eq!(advice(b"-ASK 7 h:1\r\n"), Some(Advice::Ask(redirect())));
        assert_eq!(
            advice(b"-LOADING Redis is loading the dataset in memory\r\n"),
            Some(Advice::Wait)
        );
        for other in [
            &b"-ERR x\r\n"[..],
            b"-MOVED x\r\n",
            b"-LOADINGX y\r\n",
            b"-\r\n",
        ] {
            assert_eq!(advice(other), None);
        }
    }

    #[test]
    fn a_request_that_is_redirected_is_sent_where_the_slot_is_and_so_are_the_next_ones() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["GET a"]);
        let second = proxy.link(1);
        proxy.sent(second);
        proxy.reply(second, "-MOVED_15495_s0:1 ");
        let first = proxy.link(0);
        assert_eq!(proxy.sent(first), "*2 GET a");
        proxy.reply(first, "$1 x ");
        assert_eq!(proxy.got(me), "x");
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.sent(first), "*2 GET a");
        let reports = proxy.core.conns.ctx.shell.reports.borrow();
        assert!(
            reports
                .iter()
                .any(|it| matches!(it, Report::Moved { slot: 15_495, .. }))
        );
    }

    #[test]
    fn ask_leads_one_request_and_no_other() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["GET a"]);
        let second = proxy.link(1);
        proxy.sent(second);
        proxy.reply(second, "-ASK_15495_s0:1 ");
        let first = proxy.link(0);
        assert_eq!(proxy.sent(first), "*1 ASKING *2 GET a");
        proxy.reply(first, "+OK $1 x ");
        assert_eq!(proxy.got(me), "x");
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.sent(second), "*2 GET a");
    }

    #[test]
    fn what_passes_by_itself_is_sent_again_and_nothing_of_its_client_overtakes_it() {
        let mut proxy = Proxy::of_one();
        let me = proxy.client();
        proxy.send(me, &["SET a 1"]);
        let link = proxy.link(0);
        proxy.sent(link);
        proxy.reply(link, "-LOADING_Redis_is_loading ");
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.sent(link), "");
        proxy.pass_ms(10);
        assert_eq!(proxy.sent(link), "*3 SET a 1");
        proxy.reply(link, "+OK ");
        assert_eq!(proxy.got(me), "+OK");
        assert_eq!(proxy.sent(link), "*2 GET a");
    }
}
