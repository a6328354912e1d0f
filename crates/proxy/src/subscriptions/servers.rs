//! The servers' side of subscriptions: who is asked for a name, over which connection, and what becomes of what they say. Must
//! not know how clients subscribe.

use crate::redirect::MOVED_ON;
use std::collections::{HashMap, VecDeque};

use redline_cluster::Redirect;
use redline_proxy_core::subscriptions::handover::Due;
use redline_resp::{Proto, ReplyDecoder, Value, encode_request};

use super::{Expected, Names, Server, Space, Step, Topic};

use crate::access;
use crate::context::Context;
use crate::redirect;
use crate::redirect::TRIES_MAX;
use crate::route::{NO_NODE, Node, NodeId, Placement, Pool};
use crate::slab::Ref;
use crate::subscriptions::Subscriptions;
use crate::upstream::{Purpose, State};

/// How the names of notifications begin: `__keyspace@`, `__keyevent@`.
const NOTIFICATIONS: &[u8] = b"__key";

/// Returns true if every node of this pool sends the messages published under a name: in a cluster, but for the channels of
/// shards, and for notifications, which are about a node's own keys.
fn is_heard_anywhere(names: Names, name: &[u8], pool: &Pool) -> bool {
    matches!(pool.placement, Placement::Slots(_))
        && names != Names::Shards
        && !name.starts_with(NOTIFICATIONS)
}

/// Returns true if each of two nodes sends the same messages as the other for a name that both are asked for.
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

/// Returns true if one of them replicates the other, in a cluster: then both receive the messages published under the names of
/// their shard.
fn are_of_one_shard(pool: &Pool, last: NodeId, next: NodeId) -> bool {
    let mut shards = pool.shards.iter();
    matches!(pool.placement, Placement::Slots(_))
        && shards.any(|shard| shard.has(last) && shard.has(next))
}

pub(crate) fn is_ejected(nodes: &[Node]) -> impl Fn(NodeId) -> bool {
    |node| nodes.get(usize::from(node)).is_some_and(|it| it.ejected)
}

/// Returns the servers that have to be asked for a name in this pool. Where any node will do, it is one that answers, if there
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

/// The key that a message is about, if a server tells by it of changes: the end of the channel's name
/// (`__keyspace@0__:key`), or the message itself (`__keyevent@0__:del`).
fn notified_key<'a>(channel: &'a [u8], message: &'a [u8]) -> Option<&'a [u8]> {
    if channel.starts_with(b"__keyevent@") {
        return Some(message);
    }
    let rest = channel.strip_prefix(b"__keyspace@")?;
    let end = rest.windows(3).position(|bytes| bytes == b"__:")?;
    Some(&rest[end + 3..])
}

impl Subscriptions {
    /// The connection for subscriptions to a server, made if there is none: then it is asked for all that is wanted there.
    pub(crate) fn link(
        &mut self,
        ctx: &mut Context,
        node: NodeId,
        pool: u16,
    ) -> Result<Ref, String> {
        if node == NO_NODE {
            // Nothing is kept of nobody: whoever has the name later is asked by the table that says so.
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
            // A node that has become a replica does not let a shard's channel be left otherwise: it redirects.
            server.expect(Expected::Readonly);
            encode_request([&b"READONLY"[..]], &mut upstream.out);
        }
        for (space, name) in self.unasked_of(node) {
            self.ask(ctx, node, space, &name);
        }
        Ok(upstream)
    }

    /// Returns true if there is a name that is wanted of a server and that it is not asked for.
    pub(crate) fn lacks_something(&self, node: NodeId) -> bool {
        let mut topics = self.topics.values().flat_map(HashMap::values);
        topics.any(|topic| topic.is_unasked(node))
    }

    /// Returns the names that are wanted of a server and that it is not asked for.
    pub(crate) fn unasked_of(&self, node: NodeId) -> Vec<(Space, Vec<u8>)> {
        let mut wanted = Vec::new();
        for (space, topics) in &self.topics {
            let unasked = topics.iter().filter(|(_, topic)| topic.is_unasked(node));
            wanted.extend(unasked.map(|(name, _)| (*space, name.clone())));
        }
        wanted
    }

    /// Asks a server for a name, if there is a connection and it is not asked already.
    pub(crate) fn ask(&mut self, ctx: &mut Context, node: NodeId, space: Space, name: &[u8]) {
        let topic = self.topic(space, name);
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

    /// The same, over a new connection if there is none. Where there is no way to the server now, who has called is told.
    pub(crate) fn ask_over_link(
        &mut self,
        ctx: &mut Context,
        node: NodeId,
        space: Space,
        name: &[u8],
    ) {
        match self.link(ctx, node, space.pool) {
            Ok(_) => self.ask(ctx, node, space, name),
            Err(line) => self.fail_calls(ctx, space, name, format!("-{line}\r\n").as_bytes()),
        }
    }

    pub(crate) fn ask_no_more(
        &mut self,
        ctx: &mut Context,
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

    /// How far a server is with a name, from how far it was.
    fn change_steps(
        &mut self,
        ctx: &mut Context,
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

    /// Answers the calls that waited for this change alone.
    fn change_topic(
        &mut self,
        ctx: &mut Context,
        space: Space,
        name: &[u8],
        change: impl FnOnce(&mut Topic),
    ) {
        for number in self.change(space, name, change) {
            self.answer_call(ctx, number);
        }
    }

    /// Sends a command to a server; returns true if there is a connection that takes it.
    fn say_to_server(
        &mut self,
        ctx: &mut Context,
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

    /// Something came on a connection for subscriptions. An error says why that is of no more use: who waits for what was
    /// answered with nonsense would wait for ever.
    pub(crate) fn published(
        &mut self,
        ctx: &mut Context,
        at: u32,
        node: NodeId,
        frame: &[u8],
    ) -> Result<(), String> {
        if let Some(upstream) = ctx.links.get(at)
            && upstream.sent == upstream.out.len()
            && upstream.state == State::Open
        {
            // Nothing here waits for a reply of its own, so what was sent is done with.
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
            // So it answers while it has no subscriber.
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

    /// The server has answered the first of these that it was told, which is returned. What it was told before that it leaves
    /// without an answer.
    pub(crate) fn answered(
        &mut self,
        ctx: &mut Context,
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

    /// Takes an answer that a server gives in one word while it has no subscriber; returns true if it was asked for.
    fn answered_early(&mut self, ctx: &mut Context, node: NodeId) -> bool {
        let server = self.servers.iter_mut().find(|it| it.node == node);
        let is_first = |server: &&mut Server| server.expected.front() == Some(&Expected::Readonly);
        match server.filter(is_first) {
            Some(server) => server.expected.pop_front().is_some(),
            None => self.answered_ping(ctx, node),
        }
    }

    /// Takes the answer to a PING; returns true if one was asked for.
    fn answered_ping(&mut self, ctx: &mut Context, node: NodeId) -> bool {
        match self.answered(ctx, node, |expected| matches!(expected, Expected::Ping(_))) {
            Some(Expected::Ping(ping)) => {
                self.alive(ctx, ping);
                true
            }
            _ => false,
        }
    }

    fn answered_leave(&mut self, ctx: &mut Context, node: NodeId, space: Space, name: Vec<u8>) {
        let leave = Expected::Leave(space, name);
        self.answered(ctx, node, |expected| *expected == leave);
        let Expected::Leave(_, name) = leave else {
            return;
        };
        self.left(ctx, node, space, &name);
    }

    /// A node that was told so has left a name.
    pub(crate) fn left(&mut self, ctx: &mut Context, node: NodeId, space: Space, name: &[u8]) {
        let topic = self.topic(space, name);
        let handover = topic.and_then(|it| it.handover.as_ref());
        if handover.is_some_and(|it| it.heard() == Some(node) && it.kept().is_none()) {
            self.end_handover(ctx, space, name);
        }
    }

    /// A server says so of a shard's channel when it is told to, and by itself.
    fn left_or_moved(&mut self, ctx: &mut Context, node: NodeId, space: Space, name: Vec<u8>) {
        let server = self.servers.iter().find(|it| it.node == node);
        let front = server.and_then(|server| server.expected.front());
        match front {
            Some(Expected::Leave(of, left)) if *of == space && *left == name => {
                self.answered_leave(ctx, node, space, name);
            }
            _ => {
                let topic = self.topic(space, &name);
                let last = topic.and_then(|topic| topic.handover.as_ref()?.heard());
                if last == Some(node) {
                    // It says nothing more, and knows that it is left.
                    return self.end_handover(ctx, space, &name);
                }
                self.moved_away(ctx, node, space, &name);
            }
        }
    }

    /// Hands a message to all who want to hear it. One that is about a key is only for those who may know of that.
    fn fan_out(
        &mut self,
        ctx: &mut Context,
        from: NodeId,
        space: Space,
        name: &[u8],
        frame: &[u8],
        key: Option<&[u8]>,
    ) {
        let ticks = ctx.ticks;
        let pool = &ctx.routes.pools[usize::from(space.pool)];
        let same = |asked| say_the_same(space.names, name, pool, from, asked);
        let Some(topic) = self.topic(space, name) else {
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
        if let Some(topic) = self.topic(space, name) {
            topic.clients = clients;
        }
    }

    /// Takes the confirmation of a name; returns true if it was asked for.
    pub(crate) fn confirmed(
        &mut self,
        ctx: &mut Context,
        node: NodeId,
        space: Space,
        name: &[u8],
    ) -> bool {
        let is_it = |expected: &Expected| matches!(expected, Expected::Ask(of, asked, _) if *of == space && asked == name);
        let Some(Expected::Ask(_, _, number)) = self.answered(ctx, node, is_it) else {
            return false;
        };
        if let Some(topic) = self.topic(space, name) {
            topic.redirects = 0;
        }
        if !self.is_wanted_of(node, space, name) {
            self.ask_no_more(ctx, node, space, name);
        }
        // If it was left since, and is asked for again: until the server has done both it may hear nothing.
        self.change_steps(ctx, space, name, node, |step| match step {
            Step::Asked(latest) if number == latest => Step::Confirmed,
            other => other,
        });
        let ticks = ctx.ticks;
        let topic = self.topic(space, name);
        if let Some(topic) = topic.filter(|topic| topic.is_confirmed())
            && let Some(handover) = &mut topic.handover
        {
            handover.confirmed(ticks);
        }
        true
    }

    /// Returns true if a server is to report on a name that it has confirmed, or has been asked to leave the name. It may have
    /// said by itself that another one has the name, while it had still to answer who asked for it.
    fn is_wanted_of(&mut self, node: NodeId, space: Space, name: &[u8]) -> bool {
        let topic = self.topic(space, name);
        if topic.is_some_and(|topic| topic.concerns(node)) {
            return true;
        }
        let is_left = |expected: &Expected| matches!(expected, Expected::Leave(of, left) if *of == space && left == name);
        let mut servers = self.servers.iter();
        servers.any(|it| it.node == node && it.expected.iter().any(is_left))
    }

    /// The server refuses what it was told first: who waits for that is told. An error is a sign of life, too.
    fn refused_by_server(&mut self, ctx: &mut Context, node: NodeId, error: &[u8]) {
        let server = self.servers.iter_mut().find(|it| it.node == node);
        let answered = server.and_then(|server| {
            server.owed_ticks = 0;
            server.expected.pop_front()
        });
        let (space, name, number) = match answered {
            Some(Expected::Ask(space, name, number)) => (space, name, number),
            Some(Expected::Ping(ping)) => return self.alive(ctx, ping),
            // It is no use asking again. A replica that says so goes on to tell what nobody hears.
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
        let Some(topic) = self.topic(space, &name) else {
            return;
        };
        topic.redirects += 1;
        if topic.redirects > TRIES_MAX {
            // Servers that send to each other, or to one that nobody knows.
            topic.redirects = 0;
            let error = format!("-{MOVED_ON}\r\n");
            return self.is_refused(ctx, node, space, &name, number, error.as_bytes());
        }
        if ctx.nodes_of(space, &name).iter().all(|to| *to != node) {
            return self.ask_anew(ctx, space, &name);
        }
        // Nobody knows the other one yet; the cluster is being asked.
        self.change_steps(ctx, space, &name, node, |step| match step {
            Step::Asked(latest) if number == latest => Step::Unasked,
            other => other,
        });
        if let Some(server) = self.servers.iter_mut().find(|it| it.node == node) {
            server.has_redirected = true;
        }
    }

    /// A server does not take the request of this number: who waits for that is told.
    pub(crate) fn is_refused(
        &mut self,
        ctx: &mut Context,
        node: NodeId,
        space: Space,
        name: &[u8],
        number: u64,
        error: &[u8],
    ) {
        let asked = (node, Step::Asked(number));
        let topic = self.topic(space, name);
        if topic.is_none_or(|topic| !topic.nodes.contains(&asked)) {
            // Nobody waits for this one any more.
            return;
        }
        self.change_steps(ctx, space, name, node, |_| Step::Unasked);
        self.fail_calls(ctx, space, name, error);
        let is_wanted = self.topic(space, name).is_some();
        if let Some(server) = self.servers.iter_mut().find(|it| it.node == node) {
            server.has_refused |= is_wanted;
        }
    }

    /// The calls that wait for this name cannot be answered as they should.
    fn fail_calls(&mut self, ctx: &mut Context, space: Space, name: &[u8], error: &[u8]) {
        let topic = self.topic(space, name);
        for number in topic.map_or(Vec::new(), |topic| topic.calls.clone()) {
            self.fail_call(ctx, number, error);
        }
    }

    /// A call cannot be answered as it should.
    fn fail_call(&mut self, ctx: &mut Context, number: u64, error: &[u8]) {
        let Some(call) = self.calls.remove(&number) else {
            return;
        };
        ctx.clients.deliver(call.client, call.seq, 1, error);
        for name in &call.names {
            if let Some(topic) = self.topic(call.space, name) {
                topic.calls.retain(|waiting| *waiting != number);
            }
            self.leave_unless_subscribed(ctx, call.client, call.space, name);
        }
        ctx.clients.restrict(call.client);
    }

    fn leave_unless_subscribed(&mut self, ctx: &mut Context, me: Ref, space: Space, name: &[u8]) {
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

    /// A shard's channel has gone to another server with its slot.
    fn moved_away(&mut self, ctx: &mut Context, node: NodeId, space: Space, name: &[u8]) {
        let to = ctx.nodes_of(space, name);
        let Some(topic) = self.topic(space, name) else {
            return;
        };
        if topic.nodes.iter().all(|(asked, _)| *asked != node) {
            return;
        }
        self.change_topic(ctx, space, name, |topic| topic.nodes = unasked(&to));
        for node in to {
            self.ask_over_link(ctx, node, space, name);
        }
    }

    /// Names may be elsewhere now, since there is a new routing table. While slots move there are many tables, each with one of
    /// them elsewhere, so a name that is where it was is looked at and no more.
    pub(crate) fn adopt(&mut self, ctx: &mut Context) {
        let mut moved: Vec<(Space, Vec<u8>)> = Vec::new();
        for (space, topics) in &self.topics {
            let Some(pool) = ctx.routes.pools.get(usize::from(space.pool)) else {
                continue;
            };
            let topics = topics.iter();
            let nodes = &ctx.routes.nodes;
            let elsewhere = topics.filter(|(name, topic)| {
                !topic.is_asked_of(servers_of(space.names, name, pool, is_ejected(nodes)))
            });
            moved.extend(elsewhere.map(|(name, _)| (*space, name.clone())));
        }
        for (space, name) in moved {
            self.ask_anew(ctx, space, &name);
        }
    }

    /// Asks for a name where it is now, and no longer elsewhere; where any node will do, not before the next one has it.
    fn ask_anew(&mut self, ctx: &mut Context, space: Space, name: &[u8]) {
        let nodes = ctx.nodes_of(space, name);
        if nodes.contains(&NO_NODE) {
            return;
        }
        let pool = &ctx.routes.pools[usize::from(space.pool)];
        let topic = self.topic(space, name);
        let last = topic.and_then(|topic| Some(topic.nodes.first()?.0));
        if let ([next], Some(last)) = (&nodes[..], last)
            && say_the_same(space.names, name, pool, last, *next)
        {
            return self.begin_handover(ctx, *next, space, name);
        }
        let Some(topic) = self.topic(space, name) else {
            return;
        };
        let before = topic.nodes.clone();
        let step_of = |node: &NodeId| {
            let known = before.iter().find(|(asked, _)| asked == node);
            (*node, known.map_or(Step::Unasked, |(_, step)| *step))
        };
        let now = nodes.iter().map(step_of).collect();
        self.change_topic(ctx, space, name, |topic| topic.nodes = now);
        let is_old = |node: &NodeId| before.iter().any(|(asked, _)| asked == node);
        for node in nodes.iter().filter(|node| !is_old(node)) {
            self.ask_over_link(ctx, *node, space, name);
        }
        for (node, _) in before.iter().filter(|(node, _)| !nodes.contains(node)) {
            self.ask_no_more(ctx, *node, space, name);
        }
    }

    /// Asks the node that has a name now; the last one is left when that has confirmed.
    fn begin_handover(&mut self, ctx: &mut Context, next: NodeId, space: Space, name: &[u8]) {
        let topic = self.topic(space, name);
        let handover = topic.and_then(|topic| topic.handover.as_ref());
        if handover.is_some_and(|it| it.kept().is_none()) {
            self.end_handover(ctx, space, name);
        }
        let mut to_leave = Vec::new();
        self.change_topic(ctx, space, name, |topic| to_leave = topic.hand_over(next));
        self.handovers.insert((space, name.to_vec()));
        self.ask_over_link(ctx, next, space, name);
        for node in to_leave {
            self.ask_no_more(ctx, node, space, name);
        }
    }

    /// The last node is not heard of a name any more: what it has not said, and the next one has, is heard now.
    fn end_handover(&mut self, ctx: &mut Context, space: Space, name: &[u8]) {
        let ticks = ctx.ticks;
        let Some(topic) = self.topic(space, name) else {
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

    /// Does what is due where names go from one node to another.
    pub(crate) fn tend_handovers(&mut self, ctx: &mut Context) {
        let ticks = ctx.ticks;
        let topics = &self.topics;
        let due_of = |(space, name): &(Space, Vec<u8>)| {
            let topic = topics.get(space).and_then(|topics| topics.get(name));
            let handover = topic.and_then(|topic| topic.handover.as_ref());
            handover.map_or(Due::Forget, |handover| handover.due(ticks))
        };
        let handovers = self.handovers.iter();
        let due: Vec<_> = handovers
            .map(|it| (it.clone(), due_of(it)))
            .filter(|(_, due)| *due != Due::Nothing)
            .collect();
        for ((space, name), due) in due {
            match due {
                Due::Nothing => {}
                Due::Leave => self.leave_last(ctx, space, &name),
                Due::End => self.end_handover(ctx, space, &name),
                Due::Forget => {
                    if let Some(topic) = self.topic(space, &name) {
                        topic.handover = None;
                    }
                    self.handovers.remove(&(space, name));
                }
            }
        }
    }

    /// The next node has a name: the last one is told that it is left.
    fn leave_last(&mut self, ctx: &mut Context, space: Space, name: &[u8]) {
        let ticks = ctx.ticks;
        let topic = self.topic(space, name);
        let Some(handover) = topic.and_then(|topic| topic.handover.as_mut()) else {
            return;
        };
        let last = handover.heard();
        handover.leaving(ticks);
        if let Some(last) = last {
            self.ask_no_more(ctx, last, space, name);
        }
    }

    /// A connection for subscriptions broke, or has been closed (not `is_broken`) since it leads elsewhere now: everything is
    /// asked for again as soon as there is a new one.
    pub(crate) fn lost(&mut self, ctx: &mut Context, node: NodeId, is_broken: bool) {
        let mut expected = VecDeque::new();
        for server in self.servers.iter_mut().filter(|it| it.node == node) {
            server.upstream = None;
            (server.has_refused, server.has_redirected) = (false, false);
            expected.append(&mut server.expected);
        }
        let mut left = Vec::new();
        for (space, topics) in &mut self.topics {
            for (name, topic) in topics.iter_mut().filter(|(_, it)| it.concerns(node)) {
                let mut is_next = false;
                for (_, step) in topic.nodes.iter_mut().filter(|(asked, _)| *asked == node) {
                    (*step, is_next) = (Step::Unasked, true);
                }
                match &mut topic.handover {
                    Some(handover) if is_next && handover.kept().is_some() => handover.begin_anew(),
                    Some(_) => left.push((*space, name.clone())),
                    None => {}
                }
            }
        }
        for (space, name) in left {
            self.end_handover(ctx, space, &name);
        }
        // Nobody knows when the server will be back.
        let calls: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| {
                if !is_broken {
                    return false;
                }
                let topics = self.topics.get(&call.space);
                call.names.iter().any(|name| {
                    topics
                        .and_then(|topics| topics.get(name))
                        .is_some_and(|topic| topic.nodes.iter().any(|(asked, _)| *asked == node))
                })
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
