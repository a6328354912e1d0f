//! GET that is answered from the cache, and the connections over which servers report changed keys. Must not know when a
//! value may be cached.

use redline_resp::Proto;
use redline_spec::CommandId;

use crate::cache::{Cache, Due};
use crate::client::ReplyMode;
use crate::connections::{Connections, Loss};
use crate::context::Context;
use crate::leases::Session;
use crate::route::NodeId;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, State, Waiting};

/// Returns true if the value of this key of a client of the pool `home` may be cached.
#[inline]
pub(crate) fn is_cached<S: Shell>(ctx: &Context<S>, home: u16, key: &[u8]) -> bool {
    let prefixes = &ctx.routes.prefixes;
    let (number, key) = match prefixes.is_empty() {
        true => (home, key),
        false => prefixes.find(home, key),
    };
    ctx.cache.covers(number, key)
}

/// Answers GET from the cache; returns true if it did.
#[inline]
pub(crate) fn answer_from_cache<S: Shell>(ctx: &mut Context<S>, me: Ref, key: &[u8]) -> bool {
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
    ctx.recorder.hit(me, CommandId::Get, key, lent.node);
    let reply = match (lent.is_null, proto) {
        (false, _) => lent.reply(),
        (true, Proto::Resp2) => b"$-1\r\n",
        (true, Proto::Resp3) => b"_\r\n",
    };
    ctx.clients.deliver(me, request, 1, reply);
    ctx.cache.take_back(lent);
    true
}

/// Handles a server's report of changed keys.
pub(crate) fn invalidated<S: Shell>(ctx: &mut Context<S>, node: NodeId, frame: &[u8]) {
    let pool = ctx.routes.nodes[usize::from(node)].pool;
    ctx.cache.invalidated(pool, frame);
}

/// Keeps a tracking connection to each primary of pools with a cache, and to no other server.
pub fn tend_cache<S: Shell>(conns: &mut Connections<S>) {
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

fn tend_link<S: Shell>(conns: &mut Connections<S>, node: NodeId) {
    match conns.ctx.cache.due(node) {
        Due::Nothing => {}
        // After a failure `connect` itself makes a pause.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::Caching;
    use crate::route::Placement;
    use crate::testing::{Proxy, pool, routes};

    /// Returns a proxy that caches, and the connection over which its server reports changed keys.
    fn caching() -> (Proxy, u32) {
        let mut pool = pool(Placement::One, 1);
        pool.caching = Some(Arc::new(Caching {
            prefixes: vec![String::new()],
            memory_bytes_max: 1 << 20,
            max_age_ms: 1_000,
        }));
        let mut proxy = Proxy::new(routes(pool));
        tend_cache(&mut proxy.core.conns);
        let link = proxy.core.conns.ctx.shell.connected[0];
        proxy.up(link);
        assert_eq!(proxy.sent(link), "*2 HELLO 3 *4 CLIENT TRACKING ON BCAST");
        proxy.reply(link, "%0 +OK ");
        (proxy, link)
    }

    /// Reads a key twice, so that it is cached.
    fn ask_twice(proxy: &mut Proxy, me: Ref) -> u32 {
        let mut link = 0;
        for _ in 0..2 {
            proxy.send(me, &["GET a"]);
            link = proxy.link(0);
            proxy.sent(link);
            proxy.reply(link, "$1 x ");
            proxy.got(me);
        }
        link
    }

    #[test]
    fn what_get_answers_is_kept_until_the_server_says_that_it_has_changed() {
        let (mut proxy, tracking) = caching();
        let (me, other) = (proxy.client(), proxy.client());
        let link = ask_twice(&mut proxy, me);
        proxy.send(other, &["GET a"]);
        assert_eq!(
            (proxy.sent(link), proxy.got(other)),
            ("".into(), "x".into())
        );
        proxy.reply(tracking, ">2 $10 invalidate *1 $1 a ");
        proxy.send(other, &["GET a"]);
        assert_eq!(proxy.sent(link), "*2 GET a");
    }

    #[test]
    fn nothing_is_kept_longer_than_it_may_be_nor_while_nobody_says_what_changes() {
        let (mut proxy, tracking) = caching();
        let me = proxy.client();
        let link = ask_twice(&mut proxy, me);
        proxy.pass_ms(1_001);
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.sent(link), "*2 GET a");
        proxy.reply(link, "$1 x ");
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.sent(link), "");
        proxy.lose(tracking);
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.sent(link), "*2 GET a");
    }
}
