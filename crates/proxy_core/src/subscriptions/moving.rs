//! Names whose server has changed: their handover from the old one. Must not know how clients subscribe.

use super::handover::Due;
use super::servers::say_the_same;
use super::{Space, Step, Subscriptions, unasked};
use crate::context::Context;
use crate::route::{NO_NODE, NodeId};
use crate::shell::Shell;

/// Moves a shard channel to another server, with its slot.
pub(super) fn moved_away<S: Shell>(
    subscriptions: &mut Subscriptions,
    ctx: &mut Context<S>,
    node: NodeId,
    space: Space,
    name: &[u8],
) {
    let to = ctx.nodes_of(space, name);
    let Some(topic) = subscriptions.topics.find(space, name) else {
        return;
    };
    if topic.nodes.iter().all(|(asked, _)| *asked != node) {
        return;
    }
    subscriptions.change_topic(ctx, space, name, |topic| topic.nodes = unasked(&to));
    for node in to {
        subscriptions.ask_over_link(ctx, node, space, name);
    }
}

/// Adopts a new routing table, under which names may have other servers. While slots move there are many tables, each
/// with one slot elsewhere, so an unchanged name costs one check.
pub fn adopt<S: Shell>(subscriptions: &mut Subscriptions, ctx: &mut Context<S>) {
    for (space, name) in subscriptions.topics.elsewhere(&ctx.routes) {
        ask_anew(subscriptions, ctx, space, &name);
    }
}

/// Subscribes a name at its present server, and leaves others; if any node will do, not before the next has confirmed.
pub(super) fn ask_anew<S: Shell>(
    subscriptions: &mut Subscriptions,
    ctx: &mut Context<S>,
    space: Space,
    name: &[u8],
) {
    let nodes = ctx.nodes_of(space, name);
    if nodes.contains(&NO_NODE) {
        return;
    }
    let pool = &ctx.routes.pools[usize::from(space.pool)];
    let topic = subscriptions.topics.find(space, name);
    let last = topic.and_then(|topic| Some(topic.nodes.first()?.0));
    if let ([next], Some(last)) = (&nodes[..], last)
        && say_the_same(space.names, name, pool, last, *next)
    {
        return begin_handover(subscriptions, ctx, *next, space, name);
    }
    let Some(topic) = subscriptions.topics.find(space, name) else {
        return;
    };
    let before = topic.nodes.clone();
    let step_of = |node: &NodeId| {
        let known = before.iter().find(|(asked, _)| asked == node);
        (*node, known.map_or(Step::Unasked, |(_, step)| *step))
    };
    let now = nodes.iter().map(step_of).collect();
    subscriptions.change_topic(ctx, space, name, |topic| topic.nodes = now);
    let is_old = |node: &NodeId| before.iter().any(|(asked, _)| asked == node);
    for node in nodes.iter().filter(|node| !is_old(node)) {
        subscriptions.ask_over_link(ctx, *node, space, name);
    }
    for (node, _) in before.iter().filter(|(node, _)| !nodes.contains(node)) {
        subscriptions.ask_no_more(ctx, *node, space, name);
    }
}

/// Subscribes a name at its present node; the last one is left after the confirmation.
pub(super) fn begin_handover<S: Shell>(
    subscriptions: &mut Subscriptions,
    ctx: &mut Context<S>,
    next: NodeId,
    space: Space,
    name: &[u8],
) {
    let topic = subscriptions.topics.find(space, name);
    let handover = topic.and_then(|topic| topic.handover.as_ref());
    if handover.is_some_and(|it| it.kept().is_none()) {
        end_handover(subscriptions, ctx, space, name);
    }
    let mut to_leave = Vec::new();
    subscriptions.change_topic(ctx, space, name, |topic| to_leave = topic.hand_over(next));
    subscriptions.handovers.insert((space, name.to_vec()));
    subscriptions.ask_over_link(ctx, next, space, name);
    for node in to_leave {
        subscriptions.ask_no_more(ctx, node, space, name);
    }
}

/// Ends a handover: messages that only the next node has sent are passed on now.
pub(super) fn end_handover<S: Shell>(
    subscriptions: &mut Subscriptions,
    ctx: &mut Context<S>,
    space: Space,
    name: &[u8],
) {
    let ticks = ctx.ticks;
    let Some(topic) = subscriptions.topics.find(space, name) else {
        return;
    };
    let frames = match &mut topic.handover {
        Some(handover) if handover.heard().is_some() => handover.left(ticks),
        _ => return,
    };
    let clients = topic.clients.clone();
    for frame in frames {
        clients
            .iter()
            .for_each(|me| ctx.clients.push_to(*me, &frame));
    }
}

/// Takes the due actions of all handovers.
pub(super) fn tend_handovers<S: Shell>(subscriptions: &mut Subscriptions, ctx: &mut Context<S>) {
    let ticks = ctx.ticks;
    let handovers = subscriptions.handovers.iter();
    let due: Vec<_> = handovers
        .map(|it| {
            (
                it.clone(),
                subscriptions.topics.handover_due(it.0, &it.1, ticks),
            )
        })
        .filter(|(_, due)| *due != Due::Nothing)
        .collect();
    for ((space, name), due) in due {
        match due {
            Due::Nothing => {}
            Due::Leave => leave_last(subscriptions, ctx, space, &name),
            Due::End => end_handover(subscriptions, ctx, space, &name),
            Due::Forget => {
                if let Some(topic) = subscriptions.topics.find(space, &name) {
                    topic.handover = None;
                }
                subscriptions.handovers.remove(&(space, name));
            }
        }
    }
}

/// Sends UNSUBSCRIBE to the last node, since the next one has confirmed.
pub(super) fn leave_last<S: Shell>(
    subscriptions: &mut Subscriptions,
    ctx: &mut Context<S>,
    space: Space,
    name: &[u8],
) {
    let ticks = ctx.ticks;
    let topic = subscriptions.topics.find(space, name);
    let Some(handover) = topic.and_then(|topic| topic.handover.as_mut()) else {
        return;
    };
    let last = handover.heard();
    handover.leaving(ticks);
    if let Some(last) = last {
        subscriptions.ask_no_more(ctx, last, space, name);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redline_cluster::SLOTS;

    use super::*;
    use crate::route::{Placement, Routes};
    use crate::testing::Proxy;

    /// Returns the connection for subscriptions to a server, after establishing it.
    fn link_of(proxy: &mut Proxy, node: NodeId) -> u32 {
        let mut servers = proxy.core.conns.subscriptions.servers.iter();
        let server = servers.find(|server| server.node == node);
        let at = server.and_then(|server| server.upstream).map(|it| it.at);
        let at = at.expect("there is a connection");
        proxy.up(at);
        at
    }

    fn all_slots_to_the_first(proxy: &mut Proxy) {
        let mut fresh = Routes::clone(&proxy.core.conns.ctx.routes);
        fresh.pools[0].placement = Placement::Slots(Box::new([0; SLOTS]));
        proxy.core.conns.adopt(Arc::new(fresh));
    }

    #[test]
    fn a_shards_channel_is_asked_for_where_its_slot_is_now_and_left_where_it_was() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["SSUBSCRIBE a"]);
        let last = link_of(&mut proxy, 1);
        assert_eq!(proxy.sent(last), "*1 READONLY *2 sSUBSCRIBE a");
        proxy.reply(last, "+OK *3 $10 ssubscribe $1 a :1 ");
        assert_eq!(proxy.got(me), "*3 ssubscribe a :1");
        all_slots_to_the_first(&mut proxy);
        let next = link_of(&mut proxy, 0);
        assert_eq!(proxy.sent(next), "*1 READONLY *2 sSUBSCRIBE a");
        assert_eq!(proxy.sent(last), "*2 sUNSUBSCRIBE a");
        proxy.reply(
            next,
            "+OK *3 $10 ssubscribe $1 a :1 *3 $8 smessage $1 a $2 hi ",
        );
        assert_eq!(proxy.got(me), "*3 smessage a hi");
    }

    #[test]
    fn a_channel_of_a_cluster_is_heard_where_it_was_until_the_next_node_has_it() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["SUBSCRIBE a"]);
        let last = link_of(&mut proxy, 1);
        proxy.sent(last);
        proxy.reply(last, "+OK *3 $9 subscribe $1 a :1 ");
        proxy.got(me);
        all_slots_to_the_first(&mut proxy);
        let next = link_of(&mut proxy, 0);
        assert_eq!(proxy.sent(next), "*1 READONLY *2 SUBSCRIBE a");
        assert_eq!(proxy.sent(last), "");
        // Both send it, and it is passed on once.
        proxy.reply(next, "+OK *3 $9 subscribe $1 a :1 ");
        proxy.reply(last, "*3 $7 message $1 a $2 hi ");
        proxy.reply(next, "*3 $7 message $1 a $2 hi ");
        assert_eq!(proxy.got(me), "*3 message a hi");
        proxy.core.conns.ctx.ticks += 3;
        tend_handovers(
            &mut proxy.core.conns.subscriptions,
            &mut proxy.core.conns.ctx,
        );
        assert_eq!(proxy.sent(last), "*2 UNSUBSCRIBE a");
    }
}
