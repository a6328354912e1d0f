//! Upkeep of the connections for subscriptions: PINGs, new connections, unused ones. Must not know names.

use super::{Expected, Server, moving};
use crate::connections::{Connections, Loss};
use crate::route::NodeId;
use crate::shell::Shell;
use crate::slab::Ref;

/// Silence after which a server gets a PING: milliseconds.
const SILENCE_MS: u64 = 5_000;
/// Number of ticks (of 100 ms) after which a connection with an owed reply is closed, even if other bytes arrive.
const TICKS_OWED_MAX: u32 = 100;
/// Number of ticks (of 100 ms) between attempts of refused subscriptions.
const TICKS_REFUSED: u32 = 10;

/// Closes connections to servers that are not in use any more, once their due messages have arrived.
fn leave_unused<S: Shell>(conns: &mut Connections<S>) {
    let nodes = &conns.ctx.routes.nodes;
    let servers = conns.subscriptions.servers.iter();
    let unused: Vec<(NodeId, Ref)> = servers
        .filter(|server| !nodes[usize::from(server.node)].is_used)
        .filter_map(|server| Some((server.node, server.upstream?)))
        .collect();
    for (node, place) in unused {
        let is_wanted = conns.subscriptions.topics.concern(node);
        if !is_wanted && conns.ctx.links.find(place).is_some() {
            conns.drop_upstream(place.at);
        }
    }
}

/// Sends PING to silent servers, and closes the connections of those that do not reply: a connection whose loss was not
/// reported would be silent for ever.
pub fn check<S: Shell>(conns: &mut Connections<S>) {
    let now_ms = conns.ctx.now_ms;
    let (mut ask, mut gone) = (Vec::new(), Vec::new());
    for server in &mut conns.subscriptions.servers {
        let Some(place) = server.upstream else {
            continue;
        };
        // A server that sends messages but no due replies.
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

/// Restores broken connections with subscribers, and repeats refused subscriptions.
pub fn mend<S: Shell>(conns: &mut Connections<S>) {
    moving::tend_handovers(&mut conns.subscriptions, &mut conns.ctx);
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
        if !conns.subscriptions.topics.lacks_something(node) {
            // A later subscription creates it again.
            let is_over = |it: &Server| it.node == node && it.upstream.is_none();
            conns.subscriptions.servers.retain(|it| !is_over(it));
            continue;
        }
        // If the server is unreachable now, and no call waits for an error, nothing is copied for it.
        let pool = conns.ctx.routes.nodes[usize::from(node)].pool;
        if conns
            .subscriptions
            .link(&mut conns.ctx, node, pool)
            .is_err()
            && conns.subscriptions.calls.is_empty()
        {
            continue;
        }
        for (space, name) in conns.subscriptions.topics.unasked_of(node) {
            conns
                .subscriptions
                .ask_over_link(&mut conns.ctx, node, space, &name);
        }
    }
}
