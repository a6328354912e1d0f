//! Subscriptions: one connection to a server for all subscribers of a worker, with fan-out of its messages. Must not
//! know how other requests are routed.
//!
//! A channel is subscribed at a server when its first subscriber comes, and a client's SUBSCRIBE is answered when the
//! servers have confirmed all its names, so no later message is missed. Confirmations, messages, and replies to
//! UNSUBSCRIBE have one form for RESP2 and RESP3 but for their first byte.
//!
//! If keys are distributed by a hash, so are channels, and a pattern is subscribed everywhere. In a cluster any node
//! sends all messages, except for keyspace notifications, which are subscribed everywhere, too. The subscribers of each
//! name are in `topics.rs`, the servers' side in `servers.rs`, and handovers between nodes in `moving.rs` and
//! `handover.rs`.

pub mod handover;
pub(crate) mod moving;
mod servers;
mod topics;
pub mod upkeep;

pub(crate) use servers::{is_ejected, servers_of, unasked};
use topics::{Step, Topic, Topics};

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use redline_resp::{Args, Proto, encode_request};
use redline_spec::CommandId;

use crate::context::Context;
use crate::requests::Flow;
use crate::route::NodeId;
use crate::shell::Shell;
use crate::slab::Ref;

/// The kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Names {
    Channels,
    Patterns,
    Shards,
}

/// The namespace of names: the same name is another channel in another pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Space {
    pub(crate) names: Names,
    pub(crate) pool: u16,
}

impl Space {
    fn letter(self) -> &'static str {
        match self.names {
            Names::Channels => "",
            Names::Patterns => "p",
            Names::Shards => "s",
        }
    }

    fn of(id: CommandId, pool: u16) -> (Space, bool) {
        let (names, subscribes) = match id {
            CommandId::Subscribe => (Names::Channels, true),
            CommandId::Unsubscribe => (Names::Channels, false),
            CommandId::Psubscribe => (Names::Patterns, true),
            CommandId::Punsubscribe => (Names::Patterns, false),
            CommandId::Ssubscribe => (Names::Shards, true),
            _ => (Names::Shards, false),
        };
        (Space { names, pool }, subscribes)
    }
}

/// The subscriptions of a client.
#[derive(Debug, Default)]
pub struct Subscribed {
    /// Its pool.
    pool: u16,
    pub(crate) names: [BTreeSet<Vec<u8>>; 3],
}

impl Subscribed {
    /// Returns the number in confirmations: channels and patterns together, shard channels by themselves.
    fn count(&self, space: Space) -> usize {
        match space.names {
            Names::Shards => self.names[2].len(),
            _ => self.names[0].len() + self.names[1].len(),
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }
}

/// All subscriptions of a worker's clients.
#[derive(Default)]
pub(crate) struct Subscriptions {
    topics: Topics,
    servers: Vec<Server>,
    /// Calls of SUBSCRIBE that are not answered.
    calls: HashMap<u64, Call>,
    /// Calls of UNSUBSCRIBE that are not answered.
    leaving: HashMap<u64, Leaving>,
    /// Names in a handover between two nodes.
    handovers: HashSet<(Space, Vec<u8>)>,
    next_call: u64,
    next_ask: u64,
}

impl Subscriptions {
    /// Changes the servers of a name, or their progress; and with it the number of names for which the waiting calls
    /// still wait, so that the names of a call need no scan at each confirmation. Returns the calls that wait for
    /// nothing any more.
    fn change(&mut self, space: Space, name: &[u8], change: impl FnOnce(&mut Topic)) -> Vec<u64> {
        let mut ready = Vec::new();
        let Some(topic) = self.topics.find(space, name) else {
            return ready;
        };
        let before = topic.is_confirmed();
        change(topic);
        let is_confirmed = topic.is_confirmed();
        if before == is_confirmed {
            return ready;
        }
        for number in &topic.calls {
            let Some(call) = self.calls.get_mut(number) else {
                continue;
            };
            match is_confirmed {
                true => call.unconfirmed -= 1,
                false => call.unconfirmed += 1,
            }
            if call.unconfirmed == 0 {
                ready.push(*number);
            }
        }
        ready
    }
}

/// The connection for subscriptions to a server.
pub(crate) struct Server {
    node: NodeId,
    upstream: Option<Ref>,
    /// The replies that are due from it, in order: an error does not name its request.
    expected: VecDeque<Expected>,
    /// It has refused a name that some client is subscribed to, or is to be.
    has_refused: bool,
    /// It has redirected a name to a server that is not known yet.
    has_redirected: bool,
    /// Time of the last bytes: milliseconds; and whether a PING was sent since.
    heard_ms: u64,
    is_asked: bool,
    /// Number of ticks for which it has owed a reply.
    owed_ticks: u32,
}

impl Server {
    fn expect(&mut self, answer: Expected) {
        if self.expected.is_empty() {
            self.owed_ticks = 0;
        }
        self.expected.push_back(answer);
    }
}

/// A request that was sent to a server and is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A subscription; the request's number is the last.
    Ask(Space, Vec<u8>, u64),
    Leave(Space, Vec<u8>),
    /// A PING, and the number of the call that waits for it.
    Ping(Option<u64>),
    /// The greeting of a connection to a node of a cluster.
    Readonly,
}

struct Call {
    client: Ref,
    seq: u32,
    space: Space,
    names: Vec<Vec<u8>>,
    /// Number of unconfirmed names, each as often as it is named.
    unconfirmed: usize,
}

/// A client that unsubscribes from some names, or from all if there are none.
struct Leaving {
    client: Ref,
    seq: u32,
    space: Space,
    names: Vec<Vec<u8>>,
    /// Number of servers whose reply to PING it waits for.
    waits: usize,
}

/// Writes the confirmation of one name.
fn confirm(
    out: &mut Vec<u8>,
    proto: Proto,
    space: Space,
    subscribes: bool,
    name: Option<&[u8]>,
    count: usize,
) {
    let word = match subscribes {
        true => format!("{}subscribe", space.letter()),
        false => format!("{}unsubscribe", space.letter()),
    };
    let first = if proto == Proto::Resp3 { '>' } else { '*' };
    out.extend_from_slice(format!("{first}3\r\n${}\r\n{word}\r\n", word.len()).as_bytes());
    match name {
        Some(name) => {
            out.extend_from_slice(format!("${}\r\n", name.len()).as_bytes());
            out.extend_from_slice(name);
            out.extend_from_slice(b"\r\n");
        }
        None if proto == Proto::Resp3 => out.extend_from_slice(b"_\r\n"),
        None => out.extend_from_slice(b"$-1\r\n"),
    }
    out.extend_from_slice(format!(":{count}\r\n").as_bytes());
}

impl Subscriptions {
    /// Handles SUBSCRIBE, UNSUBSCRIBE and the like.
    pub(crate) fn call<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        me: Ref,
        id: CommandId,
        args: Args<'_>,
    ) -> Flow {
        let names: Vec<Vec<u8>> = args.iter().skip(1).map(<[u8]>::to_vec).collect();
        match Space::of(id, ctx.clients.home_of(me)) {
            (space, true) => self.subscribe(ctx, me, space, names),
            (space, false) => self.unsubscribe(ctx, me, space, names),
        }
    }

    pub(crate) fn subscribe<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        me: Ref,
        space: Space,
        names: Vec<Vec<u8>>,
    ) -> Flow {
        // Messages must not precede replies to earlier requests.
        if ctx.clients.must_wait(me) {
            return Flow::Again;
        }
        let wanted: Vec<(Vec<u8>, Vec<NodeId>)> = names
            .iter()
            .map(|name| (name.clone(), ctx.nodes_of(space, name)))
            .collect();
        for node in wanted.iter().flat_map(|(_, nodes)| nodes) {
            if let Err(line) = self.link(ctx, *node, space.pool) {
                return ctx.clients.refuse(me, &line);
            }
        }
        let Some(client) = ctx.clients.find(me) else {
            return Flow::Done;
        };
        let seq = client.number();
        client.subscribed.get_or_insert_default().pool = space.pool;
        let number = self.next_call;
        self.next_call += 1;
        let call = Call {
            client: me,
            seq,
            space,
            unconfirmed: names.len(),
            names,
        };
        self.calls.insert(number, call);
        for (name, nodes) in wanted {
            let (topic, is_new) = self.topics.find_or_add(space, &name);
            topic.calls.push(number);
            if is_new {
                topic.nodes = unasked(&nodes);
            }
            // A name of other subscribers may have been refused when its server was asked again.
            for (node, _) in topic.nodes.clone() {
                self.ask(ctx, node, space, &name);
            }
            let is_confirmed = |topic: &mut Topic| topic.is_confirmed();
            if self.topics.find(space, &name).is_some_and(is_confirmed)
                && let Some(call) = self.calls.get_mut(&number)
            {
                call.unconfirmed -= 1;
            }
        }
        let call = self.calls.get(&number);
        if call.is_some_and(|call| call.unconfirmed == 0) {
            self.answer_call(ctx, number);
        }
        // A later request may be refused to a subscriber, or publish to the names.
        ctx.clients.must_wait(me);
        Flow::Done
    }

    /// Answers a call whose names are all confirmed.
    pub(crate) fn answer_call<S: Shell>(&mut self, ctx: &mut Context<S>, number: u64) {
        let Some(call) = self.calls.remove(&number) else {
            return;
        };
        let mut reply = Vec::new();
        let me = call.client;
        for name in &call.names {
            if let Some(topic) = self.topics.find(call.space, name) {
                topic.calls.retain(|waiting| *waiting != number);
            }
            let Some(client) = ctx.clients.find(me) else {
                self.leave_topic(ctx, me, call.space, name);
                continue;
            };
            let subscribed = client.subscribed.get_or_insert_default();
            let is_new = subscribed.names[call.space.names as usize].insert(name.clone());
            let count = subscribed.count(call.space);
            confirm(
                &mut reply,
                client.proto,
                call.space,
                true,
                Some(name),
                count,
            );
            if is_new && let Some(topic) = self.topics.find(call.space, name) {
                topic.clients.push(me);
            }
        }
        ctx.clients.restrict(me);
        ctx.clients.deliver(me, call.seq, 1, &reply);
    }

    pub(crate) fn unsubscribe<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        me: Ref,
        space: Space,
        names: Vec<Vec<u8>>,
    ) -> Flow {
        // An earlier call may not be answered: then it has no effect yet that could be undone.
        if ctx.clients.must_wait(me) {
            return Flow::Again;
        }
        let Some(client) = ctx.clients.find(me) else {
            return Flow::Done;
        };
        let all = names.is_empty();
        let subscribed = client.subscribed.as_deref();
        let mine = subscribed.map(|subscribed| &subscribed.names[space.names as usize]);
        let loses = |mine: &BTreeSet<Vec<u8>>| match all {
            true => !mine.is_empty(),
            false => names.iter().any(|name| mine.contains(name)),
        };
        let may_miss = mine.is_some_and(loses);
        let seq = client.number();
        let leaving = Leaving {
            client: me,
            seq,
            space,
            names,
            waits: 0,
        };
        match may_miss {
            true => self.begin_to_leave(ctx, leaving),
            false => self.have_left(ctx, leaving),
        }
        Flow::Done
    }

    /// Sends PING to the servers: messages before the reply were published before the client unsubscribed.
    fn begin_to_leave<S: Shell>(&mut self, ctx: &mut Context<S>, mut leaving: Leaving) {
        let (me, number) = (leaving.client, self.next_call);
        self.next_call += 1;
        let mine = ctx
            .clients
            .find(me)
            .and_then(|client| client.subscribed.as_deref());
        let names: Vec<&Vec<u8>> = match mine {
            Some(mine) if leaving.names.is_empty() => {
                mine.names[leaving.space.names as usize].iter().collect()
            }
            _ => leaving.names.iter().collect(),
        };
        let concerned = self.topics.heard_for(leaving.space, &names);
        let mut places = Vec::new();
        for server in &mut self.servers {
            if concerned.contains(&server.node)
                && let Some(place) = server.upstream
            {
                server.expect(Expected::Ping(Some(number)));
                places.push(place);
            }
        }
        if places.is_empty() {
            return self.have_left(ctx, leaving);
        }
        leaving.waits = places.len();
        self.leaving.insert(number, leaving);
        for place in places {
            self.ping(ctx, place);
        }
        ctx.clients.must_wait(me);
    }

    pub(crate) fn ping<S: Shell>(&mut self, ctx: &mut Context<S>, place: Ref) {
        if let Some(upstream) = ctx.links.find(place) {
            encode_request([&b"PING"[..]], &mut upstream.out);
            ctx.links.mark(place.at);
        }
    }

    /// Handles a server's reply to the first PING, or its loss.
    pub(crate) fn alive<S: Shell>(&mut self, ctx: &mut Context<S>, ping: Option<u64>) {
        let Some(number) = ping else { return };
        let Some(leaving) = self.leaving.get_mut(&number) else {
            return;
        };
        leaving.waits -= 1;
        if leaving.waits == 0
            && let Some(leaving) = self.leaving.remove(&number)
        {
            self.have_left(ctx, leaving);
        }
    }

    /// Executes UNSUBSCRIBE.
    fn have_left<S: Shell>(&mut self, ctx: &mut Context<S>, leaving: Leaving) {
        let Leaving {
            client: me,
            seq,
            space,
            names,
            ..
        } = leaving;
        let Some(client) = ctx.clients.find(me) else {
            return;
        };
        let proto = client.proto;
        let mine = client.subscribed.as_deref();
        let names: Vec<Vec<u8>> = match mine {
            Some(mine) if names.is_empty() => {
                mine.names[space.names as usize].iter().cloned().collect()
            }
            _ => names,
        };
        let mut reply = Vec::new();
        if names.is_empty() {
            let count = mine.map_or(0, |mine| mine.count(space));
            confirm(&mut reply, proto, space, false, None, count);
        }
        for name in &names {
            let mut count = 0;
            let mut was_there = false;
            if let Some(client) = ctx.clients.find(me)
                && let Some(mine) = &mut client.subscribed
            {
                was_there = mine.names[space.names as usize].remove(name);
                count = mine.count(space);
            }
            if was_there {
                self.leave_topic(ctx, me, space, name);
            }
            confirm(&mut reply, proto, space, false, Some(name), count);
        }
        ctx.clients.restrict(me);
        ctx.clients.deliver(me, seq, 1, &reply);
    }

    /// Removes all subscriptions of a client that is gone, or begins anew.
    pub(crate) fn leave_all<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        me: Ref,
        subscribed: Option<Box<Subscribed>>,
    ) {
        let Some(subscribed) = subscribed else { return };
        ctx.clients.restrict(me);
        let pool = subscribed.pool;
        for names in [Names::Channels, Names::Patterns, Names::Shards] {
            for name in &subscribed.names[names as usize] {
                self.leave_topic(ctx, me, Space { names, pool }, name);
            }
        }
    }

    pub(crate) fn leave_topic<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        me: Ref,
        space: Space,
        name: &[u8],
    ) {
        for node in self.topics.leave(me, space, name) {
            self.ask_no_more(ctx, node, space, name);
        }
    }
}

#[cfg(test)]
mod tests;
