//! Upkeep of the connections for subscriptions: signs of life, new ones, those that nobody needs. Must not know names.

use super::{Expected, Server};
use std::collections::HashMap;

use crate::connections::{Connections, Loss};
use crate::route::NodeId;
use crate::slab::Ref;

/// A server that has said nothing for so long is asked for a sign of life: milliseconds.
const SILENCE_MS: u64 = 5_000;
/// One that owes an answer for so many ticks (of 100 ms) is given up, whatever it says meanwhile.
const TICKS_OWED_MAX: u32 = 100;
/// Once in so many ticks (of 100 ms) a server is asked again for what it has refused.
const TICKS_REFUSED: u32 = 10;

/// Closes connections to servers that are none of ours any more, once they have told all that is wanted of them.
fn leave_unused(conns: &mut Connections) {
    let nodes = &conns.ctx.routes.nodes;
    let servers = conns.subscriptions.servers.iter();
    let unused: Vec<(NodeId, Ref)> = servers
        .filter(|server| !nodes[usize::from(server.node)].is_used)
        .filter_map(|server| Some((server.node, server.upstream?)))
        .collect();
    for (node, place) in unused {
        let mut topics = conns
            .subscriptions
            .topics
            .values()
            .flat_map(HashMap::values);
        if !topics.any(|topic| topic.concerns(node)) && conns.ctx.links.find(place).is_some() {
            conns.drop_upstream(place.at);
        }
    }
}

/// Asks servers that have been silent whether they are still there, and gives up those that do not say so: a connection of
/// which nobody told that it broke would be silent for ever.
pub(crate) fn check(conns: &mut Connections) {
    let now_ms = conns.ctx.now_ms;
    let (mut ask, mut gone) = (Vec::new(), Vec::new());
    for server in &mut conns.subscriptions.servers {
        let Some(place) = server.upstream else {
            continue;
        };
        // One that says this and that, but nothing to what it was told.
        server.owed_ticks += u32::from(!server.expected.is_empty());
        if server.owed_ticks > TICKS_OWED_MAX {
            gone.push(place);
            continue;
        }
        if now_ms.saturating_sub(server.heard_ms) <= SILENCE_MS {
            continue;
        }
        match server.is_asked {
            true => gone.push(place),
            false => {
                server.expect(Expected::Ping(None));
                ask.push(place);
            }
        }
        (server.heard_ms, server.is_asked) = (now_ms, true);
    }
    for place in ask {
        conns.subscriptions.ping(&mut conns.ctx, place);
    }
    for place in gone {
        if conns.ctx.links.find(place).is_some() {
            conns.lose(place.at, "it does not answer", Loss::Silent);
        }
    }
}

/// Makes connections anew that broke, if anybody is subscribed, and asks again for what was refused.
pub(crate) fn mend(conns: &mut Connections) {
    conns.subscriptions.tend_handovers(&mut conns.ctx);
    leave_unused(conns);
    let asks_again = conns.ctx.ticks.is_multiple_of(TICKS_REFUSED);
    let mut wanting = Vec::new();
    for server in &mut conns.subscriptions.servers {
        let is_refused = asks_again && std::mem::take(&mut server.has_refused);
        let is_redirected = std::mem::take(&mut server.has_redirected);
        if server.upstream.is_none() || is_refused || is_redirected {
            wanting.push(server.node);
        }
    }
    for node in wanting {
        if !conns.subscriptions.lacks_something(node) {
            // Whoever wants something of it makes it known again.
            let is_over = |it: &Server| it.node == node && it.upstream.is_none();
            conns.subscriptions.servers.retain(|it| !is_over(it));
            continue;
        }
        // Where there is no way to the server now, and nobody waits to be told, nothing is copied for it.
        let pool = conns.ctx.routes.nodes[usize::from(node)].pool;
        if conns
            .subscriptions
            .link(&mut conns.ctx, node, pool)
            .is_err()
            && conns.subscriptions.calls.is_empty()
        {
            continue;
        }
        for (space, name) in conns.subscriptions.unasked_of(node) {
            conns
                .subscriptions
                .ask_over_link(&mut conns.ctx, node, space, &name);
        }
    }
}
