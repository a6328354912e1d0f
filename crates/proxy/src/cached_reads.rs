//! GET that is answered from the cache, and the connections over which servers say which keys have changed. Must not know when a
//! value may be kept.

use crate::cache::Due;
use redline_resp::Proto;
use redline_spec::CommandId;

use crate::cache::Cache;
use crate::client::ReplyMode;
use crate::connections::{Connections, Loss};
use crate::context::Context;
use crate::leases::Session;
use crate::route::NodeId;
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, State, Waiting};

/// Returns true if the value of this key of a client of the pool `home` may be cached.
#[inline]
pub(crate) fn is_cached(ctx: &Context, home: u16, key: &[u8]) -> bool {
    let prefixes = &ctx.routes.prefixes;
    let (number, key) = match prefixes.is_empty() {
        true => (home, key),
        false => prefixes.find(home, key),
    };
    ctx.cache.covers(number, key)
}

/// Answers GET from the cache; returns true if it did.
#[inline]
pub(crate) fn answer_from_cache(ctx: &mut Context, me: Ref, key: &[u8]) -> bool {
    let Some(client) = ctx.clients.find(me) else {
        return false;
    };
    if !matches!(client.session, Session::Shared)
        || client.reply_mode != ReplyMode::On
        || client.put_off > 0
    {
        return false;
    }
    let (home, db, proto) = (client.pool, client.db, client.proto);
    let prefixes = &ctx.routes.prefixes;
    let (number, key) = match prefixes.is_empty() {
        true => (home, key),
        false => prefixes.find(home, key),
    };
    let unanswered = (client.head, client.next);
    let asked = &mut client.asked;
    let Some(lent) = ctx.cache.look_up((number, db), key, asked, unanswered) else {
        return false;
    };
    let request = client.number();
    client.last = Some(CommandId::Get);
    ctx.seeing.hit(me, CommandId::Get, key, lent.node);
    let reply = match (lent.is_null, proto) {
        (false, _) => lent.reply(),
        (true, Proto::Resp2) => b"$-1\r\n",
        (true, Proto::Resp3) => b"_\r\n",
    };
    ctx.clients.deliver(me, request, 1, reply);
    ctx.cache.take_back(lent);
    true
}

/// A server says which keys have changed.
pub(crate) fn invalidated(ctx: &mut Context, node: NodeId, frame: &[u8]) {
    let pool = ctx.routes.nodes[usize::from(node)].pool;
    ctx.cache.invalidated(pool, frame);
}

/// Sees to it that the primaries of pools with a cache tell what changes, and that nobody else does.
pub(crate) fn tend_cache(conns: &mut Connections) {
    if !conns.ctx.cache.is_on {
        return;
    }
    let wanted = Cache::wanted(&conns.ctx.routes);
    for place in conns.ctx.cache.unwanted(&wanted) {
        if conns.ctx.links.find(place).is_some() {
            conns.drop_upstream(place.at);
        }
    }
    wanted.into_iter().for_each(|node| tend_link(conns, node));
    conns.ctx.cache.sweep();
}

fn tend_link(conns: &mut Connections, node: NodeId) {
    match conns.ctx.cache.due(node) {
        Due::Nothing => {}
        // One that cannot be reached is left alone for a while by `connect` itself.
        Due::Connect => {
            if let Ok(place) = conns.ctx.connect(node, 0, Proto::Resp3, Purpose::Tracking) {
                conns.ctx.cache.connects(node, place);
            }
        }
        Due::Ask(place) => {
            const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
            let upstream = conns.ctx.links.find(place);
            if let Some(upstream) = upstream.filter(|it| it.state == State::Open) {
                let waiting = Waiting::one(Ref::NONE, 0, Kind::Unwanted, PING, conns.ctx.now_ms);
                upstream.push_own(waiting, PING);
                conns.ctx.links.mark(place.at);
            }
        }
        Due::GiveUp(place) => {
            if conns.ctx.links.find(place).is_some() {
                conns.lose(place.at, "it does not answer", Loss::Silent);
            }
        }
    }
}
