//! The servers' side of subscriptions: the servers of a name, their connections, and the handling of their replies and
//! messages. Must not know how clients subscribe.

use std::collections::VecDeque;

use redline_cluster::Redirect;
use redline_resp::{Proto, ReplyDecoder, Value, encode_request};

use super::{Expected, Names, Server, Space, Step, Topic, moving};
use crate::access;
use crate::context::Context;
use crate::redirect::{self, MOVED_ON, TRIES_MAX};
use crate::route::{NO_NODE, Node, NodeId, Placement, Pool};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::subscriptions::Subscriptions;
use crate::upstream::{Purpose, State};

/// The common prefix of notifications: `__keyspace@`, `__keyevent@`.
const NOTIFICATIONS: &[u8] = b"__key";

impl Subscriptions {
    /// Returns the connection for subscriptions to a server, made if there is none: then all wanted names are subscribed there.
    pub(crate) fn link<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        pool: u16,
    ) -> Result<Ref, String> {
        if node == NO_NODE {
            // Without a server no state is kept: a later routing table adds the subscription.
            return Err(ctx.unserved(pool).to_owned());
        }
        let known = self.servers.iter().position(|it| it.node == node);
        let at = known.unwrap_or_else(|| {
            self.servers.push(Server {
                node,
                upstream: None,
                expected: VecDeque::new(),
                has_refused: false,
                has_redirected: false,
                heard_ms: 0,
                is_asked: false,
                owed_ticks: 0,
            });
            self.servers.len() - 1
        });
        if let Some(upstream) = self.servers[at].upstream {
            return Ok(upstream);
        }
        let upstream = ctx.connect(node, 0, Proto::Resp2, Purpose::Subscriptions)?;
        let server = &mut self.servers[at];
        server.upstream = Some(upstream);
        (server.heard_ms, server.is_asked) = (ctx.now_ms, false);
        server.owed_ticks = 0;
        let placement = &ctx.routes.pools[usize::from(pool)].placement;
        if matches!(placement, Placement::Slots(_))
            && let Some(upstream) = ctx.links.find(upstream)
        {
            // A node that has become a replica accepts SUNSUBSCRIBE only so: otherwise it redirects.
            server.expect(Expected::Readonly);
            encode_request([&b"READONLY"[..]], &mut upstream.out);
        }
        for (space, name) in self.topics.unasked_of(node) {
            self.ask(ctx, node, space, &name);
        }
        Ok(upstream)
    }

    /// Subscribes a name at a server, if there is a connection and no subscription yet.
    pub(crate) fn ask<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: &[u8],
    ) {
        let topic = self.topics.find(space, name);
        if !topic.is_some_and(|topic| topic.is_unasked(node)) {
            return;
        }
        let number = self.next_ask;
        self.next_ask += 1;
        let expected = Expected::Ask(space, name.to_vec(), number);
        if self.say_to_server(
            ctx,
            node,
            &format!("{}SUBSCRIBE", space.letter()),
            name,
            expected,
        ) {
            self.change_steps(ctx, space, name, node, |_| Step::Asked(number));
        }
    }

    /// Subscribes a name, over a new connection if there is none. If the server is unreachable, callers get an error.
    pub(crate) fn ask_over_link<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: &[u8],
    ) {
        match self.link(ctx, node, space.pool) {
            Ok(_) => self.ask(ctx, node, space, name),
            Err(line) => self.fail_calls(ctx, space, name, format!("-{line}\r\n").as_bytes()),
        }
    }

    pub(crate) fn ask_no_more<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: &[u8],
    ) {
        let expected = Expected::Leave(space, name.to_vec());
        self.say_to_server(
            ctx,
            node,
            &format!("{}UNSUBSCRIBE", space.letter()),
            name,
            expected,
        );
    }

    /// Changes the progress of a name at a server.
    fn change_steps<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        space: Space,
        name: &[u8],
        node: NodeId,
        next: impl Fn(Step) -> Step,
    ) {
        self.change_topic(ctx, space, name, |topic| {
            for (_, step) in topic.nodes.iter_mut().filter(|(of, _)| *of == node) {
                *step = next(*step);
            }
        });
    }

    /// Answers the calls that waited only for this change.
    pub(super) fn change_topic<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        space: Space,
        name: &[u8],
        change: impl FnOnce(&mut Topic),
    ) {
        for number in self.change(space, name, change) {
            self.answer_call(ctx, number);
        }
    }

    /// Sends a command to a server; returns true if there is a connection that takes it.
    fn say_to_server<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        command: &str,
        name: &[u8],
        expected: Expected,
    ) -> bool {
        let Some(server) = self.servers.iter_mut().find(|it| it.node == node) else {
            return false;
        };
        let Some(place) = server.upstream else {
            return false;
        };
        let Some(upstream) = ctx.links.find(place) else {
            return false;
        };
        server.expect(expected);
        encode_request([command.as_bytes(), name], &mut upstream.out);
        ctx.links.mark(place.at);
        true
    }

    /// Handles bytes on a connection for subscriptions. An error is the reason why it has to end: clients that wait for
    /// the reply to a malformed one would wait for ever.
    pub(crate) fn published<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        at: u32,
        node: NodeId,
        frame: &[u8],
    ) -> Result<(), String> {
        if let Some(upstream) = ctx.links.get(at)
            && upstream.sent == upstream.out.len()
            && upstream.state == State::Open
        {
            // No reply here needs the request's bytes, so sent ones are dropped.
            upstream.out.clear();
            (upstream.sent, upstream.acked) = (0, 0);
        }
        if let Some(server) = self.servers.iter_mut().find(|it| it.node == node) {
            (server.heard_ms, server.is_asked) = (ctx.now_ms, false);
        }
        if frame[0] == b'-' {
            self.refused_by_server(ctx, node, frame);
            return Ok(());
        }
        let nonsense = || "it answers subscriptions with nonsense".to_owned();
        let decoded = ReplyDecoder::new().decode(frame);
        let words = match decoded.map_err(|_| nonsense())?.value {
            Some(Value::Array(words)) => words,
            // A server replies in this form while it has no subscriber.
            Some(Value::Simple(_)) if self.answered_early(ctx, node) => return Ok(()),
            _ => return Err(nonsense()),
        };
        let word = |at: usize| words.get(at).and_then(Value::as_bytes).unwrap_or_default();
        let name = word(1).to_vec();
        let pool = ctx.routes.nodes[usize::from(node)].pool;
        let space = |names| Space { names, pool };
        match word(0) {
            b"message" => {
                let key = notified_key(word(1), word(2));
                self.fan_out(ctx, node, space(Names::Channels), &name, frame, key);
            }
            b"pmessage" => {
                let key = notified_key(word(2), word(3));
                self.fan_out(ctx, node, space(Names::Patterns), &name, frame, key);
            }
            b"smessage" => self.fan_out(ctx, node, space(Names::Shards), &name, frame, None),
            b"subscribe" if self.confirmed(ctx, node, space(Names::Channels), &name) => {}
            b"psubscribe" if self.confirmed(ctx, node, space(Names::Patterns), &name) => {}
            b"ssubscribe" if self.confirmed(ctx, node, space(Names::Shards), &name) => {}
            b"unsubscribe" => self.answered_leave(ctx, node, space(Names::Channels), name),
            b"punsubscribe" => self.answered_leave(ctx, node, space(Names::Patterns), name),
            b"sunsubscribe" => self.left_or_moved(ctx, node, space(Names::Shards), name),
            b"pong" if self.answered_ping(ctx, node) => {}
            _ => return Err(nonsense()),
        }
        Ok(())
    }

    /// Takes the oldest expected reply of this kind. Earlier requests count as unanswered.
    pub(crate) fn answered<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        is_it: impl Fn(&Expected) -> bool,
    ) -> Option<Expected> {
        let server = self.servers.iter_mut().find(|it| it.node == node)?;
        let at = server.expected.iter().position(is_it)?;
        server.owed_ticks = 0;
        let mut answered: Vec<Expected> = server.expected.drain(..=at).collect();
        let last = answered.pop();
        for skipped in answered {
            match skipped {
                Expected::Ping(ping) => self.alive(ctx, ping),
                Expected::Ask(space, name, number) => {
                    let error = b"-ERR the server has not answered SUBSCRIBE\r\n";
                    self.is_refused(ctx, node, space, &name, number, error);
                }
                Expected::Leave(..) | Expected::Readonly => {}
            }
        }
        last
    }

    /// Takes a one-word reply, which a server sends while it has no subscriber; returns true if it was expected.
    fn answered_early<S: Shell>(&mut self, ctx: &mut Context<S>, node: NodeId) -> bool {
        let server = self.servers.iter_mut().find(|it| it.node == node);
        let is_first = |server: &&mut Server| server.expected.front() == Some(&Expected::Readonly);
        match server.filter(is_first) {
            Some(server) => server.expected.pop_front().is_some(),
            None => self.answered_ping(ctx, node),
        }
    }

    /// Takes the reply to a PING; returns true if one was expected.
    fn answered_ping<S: Shell>(&mut self, ctx: &mut Context<S>, node: NodeId) -> bool {
        match self.answered(ctx, node, |expected| matches!(expected, Expected::Ping(_))) {
            Some(Expected::Ping(ping)) => {
                self.alive(ctx, ping);
                true
            }
            _ => false,
        }
    }

    fn answered_leave<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: Vec<u8>,
    ) {
        let leave = Expected::Leave(space, name);
        self.answered(ctx, node, |expected| *expected == leave);
        let Expected::Leave(_, name) = leave else {
            return;
        };
        self.left(ctx, node, space, &name);
    }

    /// Handles a node's confirmation of UNSUBSCRIBE.
    pub(crate) fn left<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: &[u8],
    ) {
        let topic = self.topics.find(space, name);
        let handover = topic.and_then(|it| it.handover.as_ref());
        if handover.is_some_and(|it| it.heard() == Some(node) && it.kept().is_none()) {
            moving::end_handover(self, ctx, space, name);
        }
    }

    /// Handles an unsubscription of a shard channel, which a server sends as a reply or by itself.
    fn left_or_moved<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: Vec<u8>,
    ) {
        let server = self.servers.iter().find(|it| it.node == node);
        let front = server.and_then(|server| server.expected.front());
        match front {
            Some(Expected::Leave(of, left)) if *of == space && *left == name => {
                self.answered_leave(ctx, node, space, name);
            }
            _ => {
                let topic = self.topics.find(space, &name);
                let last = topic.and_then(|topic| topic.handover.as_ref()?.heard());
                if last == Some(node) {
                    // It sends nothing more, and has confirmed.
                    return moving::end_handover(self, ctx, space, &name);
                }
                moving::moved_away(self, ctx, node, space, &name);
            }
        }
    }

    /// Passes a message to all subscribers. One that is about a key goes only to those that may access the key.
    fn fan_out<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        from: NodeId,
        space: Space,
        name: &[u8],
        frame: &[u8],
        key: Option<&[u8]>,
    ) {
        let ticks = ctx.ticks;
        let pool = &ctx.routes.pools[usize::from(space.pool)];
        let same = |asked| say_the_same(space.names, name, pool, from, asked);
        let Some(topic) = self.topics.find(space, name) else {
            return;
        };
        if !topic.hears(from, frame, ticks, same) {
            return;
        }
        let clients = std::mem::take(&mut topic.clients);
        for me in &clients {
            if key.is_none_or(|key| access::may_hear_of(&mut ctx.clients, *me, key)) {
                ctx.clients.push_to(*me, frame);
            }
        }
        if let Some(topic) = self.topics.find(space, name) {
            topic.clients = clients;
        }
    }

    /// Takes the confirmation of a name; returns true if it was expected.
    pub(crate) fn confirmed<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: &[u8],
    ) -> bool {
        let is_it = |expected: &Expected| matches!(expected, Expected::Ask(of, asked, _) if *of == space && asked == name);
        let Some(Expected::Ask(_, _, number)) = self.answered(ctx, node, is_it) else {
            return false;
        };
        if let Some(topic) = self.topics.find(space, name) {
            topic.redirects = 0;
        }
        if !self.is_wanted_of(node, space, name) {
            self.ask_no_more(ctx, node, space, name);
        }
        // If it was left since, and is subscribed again: until the server has done both, no message may arrive.
        self.change_steps(ctx, space, name, node, |step| match step {
            Step::Asked(latest) if number == latest => Step::Confirmed,
            other => other,
        });
        let ticks = ctx.ticks;
        let topic = self.topics.find(space, name);
        if let Some(topic) = topic.filter(|topic| topic.is_confirmed())
            && let Some(handover) = &mut topic.handover
        {
            handover.confirmed(ticks);
        }
        true
    }

    /// Returns true if a server is to report on a name that it has confirmed, or has been asked to leave the name. It
    /// may have redirected the name by itself while a SUBSCRIBE was unanswered.
    fn is_wanted_of(&mut self, node: NodeId, space: Space, name: &[u8]) -> bool {
        let topic = self.topics.find(space, name);
        if topic.is_some_and(|topic| topic.concerns(node)) {
            return true;
        }
        let is_left = |expected: &Expected| matches!(expected, Expected::Leave(of, left) if *of == space && left == name);
        let mut servers = self.servers.iter();
        servers.any(|it| it.node == node && it.expected.iter().any(is_left))
    }

    /// Handles the server's refusal of the oldest request: its callers get an error. An error answers a PING, too.
    fn refused_by_server<S: Shell>(&mut self, ctx: &mut Context<S>, node: NodeId, error: &[u8]) {
        let server = self.servers.iter_mut().find(|it| it.node == node);
        let answered = server.and_then(|server| {
            server.owed_ticks = 0;
            server.expected.pop_front()
        });
        let (space, name, number) = match answered {
            Some(Expected::Ask(space, name, number)) => (space, name, number),
            Some(Expected::Ping(ping)) => return self.alive(ctx, ping),
            // Another attempt is useless. A replica that redirects keeps sending messages without subscribers.
            Some(Expected::Leave(space, name)) => return self.left(ctx, node, space, &name),
            Some(Expected::Readonly) | None => return,
        };
        let moved = std::str::from_utf8(error)
            .ok()
            .and_then(|text| Redirect::parse(text.strip_prefix("-MOVED ")?));
        let Some(redirect) = moved else {
            return self.is_refused(ctx, node, space, &name, number, error);
        };
        redirect::moved(ctx, node, &redirect);
        let Some(topic) = self.topics.find(space, &name) else {
            return;
        };
        topic.redirects += 1;
        if topic.redirects > TRIES_MAX {
            // Servers that redirect to each other, or to an unknown one.
            topic.redirects = 0;
            let error = format!("-{MOVED_ON}\r\n");
            return self.is_refused(ctx, node, space, &name, number, error.as_bytes());
        }
        if ctx.nodes_of(space, &name).iter().all(|to| *to != node) {
            return moving::ask_anew(self, ctx, space, &name);
        }
        // The other one is not known yet; the cluster is being asked.
        self.change_steps(ctx, space, &name, node, |step| match step {
            Step::Asked(latest) if number == latest => Step::Unasked,
            other => other,
        });
        if let Some(server) = self.servers.iter_mut().find(|it| it.node == node) {
            server.has_redirected = true;
        }
    }

    /// Handles a server's refusal of the request of this number: its callers get an error.
    pub(crate) fn is_refused<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        node: NodeId,
        space: Space,
        name: &[u8],
        number: u64,
        error: &[u8],
    ) {
        let asked = (node, Step::Asked(number));
        let topic = self.topics.find(space, name);
        if topic.is_none_or(|topic| !topic.nodes.contains(&asked)) {
            // No call waits for this one any more.
            return;
        }
        self.change_steps(ctx, space, name, node, |_| Step::Unasked);
        self.fail_calls(ctx, space, name, error);
        let is_wanted = self.topics.find(space, name).is_some();
        if let Some(server) = self.servers.iter_mut().find(|it| it.node == node) {
            server.has_refused |= is_wanted;
        }
    }

    /// Answers the calls that wait for this name with an error.
    fn fail_calls<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        space: Space,
        name: &[u8],
        error: &[u8],
    ) {
        let topic = self.topics.find(space, name);
        for number in topic.map_or(Vec::new(), |topic| topic.calls.clone()) {
            self.fail_call(ctx, number, error);
        }
    }

    /// Answers a call with an error.
    fn fail_call<S: Shell>(&mut self, ctx: &mut Context<S>, number: u64, error: &[u8]) {
        let Some(call) = self.calls.remove(&number) else {
            return;
        };
        ctx.clients.deliver(call.client, call.seq, 1, error);
        for name in &call.names {
            if let Some(topic) = self.topics.find(call.space, name) {
                topic.calls.retain(|waiting| *waiting != number);
            }
            self.leave_unless_subscribed(ctx, call.client, call.space, name);
        }
        ctx.clients.restrict(call.client);
    }

    fn leave_unless_subscribed<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        me: Ref,
        space: Space,
        name: &[u8],
    ) {
        let is_subscribed = ctx.clients.find(me).is_some_and(|client| {
            client
                .subscribed
                .as_ref()
                .is_some_and(|subscribed| subscribed.names[space.names as usize].contains(name))
        });
        if !is_subscribed {
            self.leave_topic(ctx, me, space, name);
        }
    }

    /// Handles a lost connection for subscriptions, or one that was closed (not `is_broken`) since it leads elsewhere
    /// now: everything is subscribed again as soon as there is a new one.
    pub(crate) fn lost<S: Shell>(&mut self, ctx: &mut Context<S>, node: NodeId, is_broken: bool) {
        let mut expected = VecDeque::new();
        for server in self.servers.iter_mut().filter(|it| it.node == node) {
            server.upstream = None;
            (server.has_refused, server.has_redirected) = (false, false);
            expected.append(&mut server.expected);
        }
        let left = self.topics.connection_lost(node);
        for (space, name) in left {
            moving::end_handover(self, ctx, space, &name);
        }
        // The time of the server's return is not known.
        let calls: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| {
                if !is_broken {
                    return false;
                }
                let mut names = call.names.iter();
                names.any(|name| self.topics.is_asked_of(call.space, name, node))
            })
            .map(|(number, _)| *number)
            .collect();
        for number in calls {
            self.fail_call(
                ctx,
                number,
                b"-ERR the connection to the server was lost\r\n",
            );
        }
        for expected in expected {
            if let Expected::Ping(ping) = expected {
                self.alive(ctx, ping);
            }
        }
    }
}

/// Returns true if every node of this pool sends the messages published under a name: in a cluster, but for the channels of
/// shards, and for notifications, which are about a node's own keys.
fn is_heard_anywhere(names: Names, name: &[u8], pool: &Pool) -> bool {
    matches!(pool.placement, Placement::Slots(_))
        && names != Names::Shards
        && !name.starts_with(NOTIFICATIONS)
}

/// Returns true if each of two nodes sends the same messages as the other for a name that both have subscribed.
pub(crate) fn say_the_same(
    names: Names,
    name: &[u8],
    pool: &Pool,
    one: NodeId,
    other: NodeId,
) -> bool {
    is_heard_anywhere(names, name, pool)
        || names == Names::Shards && one != other && are_of_one_shard(pool, one, other)
}

/// Returns true if one of them replicates the other, in a cluster: then both receive the messages published under the
/// names of their shard.
fn are_of_one_shard(pool: &Pool, last: NodeId, next: NodeId) -> bool {
    let mut shards = pool.shards.iter();
    matches!(pool.placement, Placement::Slots(_))
        && shards.any(|shard| shard.has(last) && shard.has(next))
}

pub(crate) fn is_ejected(nodes: &[Node]) -> impl Fn(NodeId) -> bool {
    |node| nodes.get(usize::from(node)).is_some_and(|it| it.ejected)
}

/// Returns the servers at which a name has to be subscribed in this pool. If any node will do, one that is up, if there
/// is one.
pub(crate) fn servers_of(
    names: Names,
    name: &[u8],
    pool: &Pool,
    is_ejected: impl Fn(NodeId) -> bool,
) -> impl Iterator<Item = NodeId> {
    let is_everywhere = match (names, &pool.placement) {
        (_, Placement::One) | (Names::Shards, _) => false,
        (Names::Patterns, Placement::Hashed(_)) => true,
        _ => name.starts_with(NOTIFICATIONS),
    };
    let one = match (is_everywhere, names) {
        (true, _) => None,
        (false, Names::Patterns) => Some(pool.shards[0].primary),
        (false, _) => Some(pool.node_of(name)),
    };
    let is_of_no_use = |node: &NodeId| *node == NO_NODE || is_ejected(*node);
    let one = match one.filter(is_of_no_use) {
        Some(_) if is_heard_anywhere(names, name, pool) => {
            let primaries = pool.shards.iter().map(|shard| shard.primary);
            let replicas = pool.shards.iter().flat_map(|shard| &shard.replicas);
            let mut everybody = primaries.chain(replicas.copied());
            everybody.find(|node| !is_of_no_use(node)).or(one)
        }
        _ => one,
    };
    let shards = pool.shards.iter().filter(move |_| is_everywhere);
    one.into_iter().chain(shards.map(|shard| shard.primary))
}

pub(crate) fn unasked(nodes: &[NodeId]) -> Vec<(NodeId, Step)> {
    nodes.iter().map(|node| (*node, Step::Unasked)).collect()
}

/// Returns the key of a keyspace notification: the end of the channel's name (`__keyspace@0__:key`), or the message
/// itself (`__keyevent@0__:del`).
fn notified_key<'a>(channel: &'a [u8], message: &'a [u8]) -> Option<&'a [u8]> {
    if channel.starts_with(b"__keyevent@") {
        return Some(message);
    }
    let rest = channel.strip_prefix(b"__keyspace@")?;
    let end = rest.windows(3).position(|bytes| bytes == b"__:")?;
    Some(&rest[end + 3..])
}
