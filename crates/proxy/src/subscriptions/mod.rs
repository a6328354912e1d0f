//! Subscriptions: one connection to a server for all subscribers of a worker, what it says fanned out to them. Must not know
//! how other requests are routed.
//!
//! A channel is asked for when its first subscriber comes, and a client's SUBSCRIBE is answered when the servers have
//! confirmed all that it names, so nothing that is published behind the answer is missed. Confirmations, messages, and what
//! UNSUBSCRIBE answers have one form for RESP2 and RESP3 but for their first byte.
//!
//! Where keys are spread by a hash, so are channels, and a pattern is asked for everywhere. In a cluster any node hears
//! what is published, except for notifications of keys, which are asked for everywhere, too.
//! What goes on with the servers is in `servers.rs`, and how a name goes from one node to another in `handover.rs`.

mod servers;
pub(crate) mod upkeep;

pub(crate) use servers::{is_ejected, servers_of, unasked};

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use redline_proxy_core::subscriptions::handover::Handover;
use redline_resp::{Args, Proto, encode_request};
use redline_spec::CommandId;

use crate::context::Context;
use crate::requests::Flow;
use crate::route::NodeId;
use crate::slab::Ref;

/// The kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Names {
    Channels,
    Patterns,
    Shards,
}

/// The namespace of names: the same one is another channel in another pool.
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
    /// Of which pool.
    pool: u16,
    pub(crate) names: [BTreeSet<Vec<u8>>; 3],
}

impl Subscribed {
    /// Returns the number that confirmations count: channels and patterns together, channels of shards by themselves.
    fn count(&self, space: Space) -> usize {
        match space.names {
            Names::Shards => self.names[2].len(),
            _ => self.names[0].len() + self.names[1].len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }
}

/// Everything that the clients of a worker are subscribed to.
#[derive(Default)]
pub(crate) struct Subscriptions {
    topics: HashMap<Space, HashMap<Vec<u8>, Topic>>,
    servers: Vec<Server>,
    /// Calls of SUBSCRIBE that are not answered.
    calls: HashMap<u64, Call>,
    /// Calls of UNSUBSCRIBE that are not answered.
    leaving: HashMap<u64, Leaving>,
    /// Names that go from one node to another.
    handovers: HashSet<(Space, Vec<u8>)>,
    next_call: u64,
    next_ask: u64,
}

impl Subscriptions {
    fn topic(&mut self, space: Space, name: &[u8]) -> Option<&mut Topic> {
        self.topics.get_mut(&space)?.get_mut(name)
    }

    /// Changes who is asked for a name, or how far that is; and with it how many names the calls that wait for this one still
    /// wait for, so that nobody walks through all names of a call before its last is confirmed. Returns the calls that wait
    /// for nothing any more.
    fn change(&mut self, space: Space, name: &[u8], change: impl FnOnce(&mut Topic)) -> Vec<u64> {
        let mut ready = Vec::new();
        let topics = self.topics.get_mut(&space);
        let Some(topic) = topics.and_then(|topics| topics.get_mut(name)) else {
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

/// A name that somebody is subscribed to, or will be.
#[derive(Default)]
pub(crate) struct Topic {
    clients: Vec<Ref>,
    /// Calls that wait for it; one that names it twice is here twice.
    calls: Vec<u64>,
    /// The servers that have to be asked for it, and how far each of them is.
    nodes: Vec<(NodeId, Step)>,
    /// How often in a row servers have said that another one has it.
    redirects: u8,
    /// The node of a cluster that was asked before, as long as it matters.
    handover: Option<Box<Handover>>,
}

/// How far a server is with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is not asked, or has refused, or the connection broke since.
    Unasked,
    /// By the request of this number: what confirms an earlier one that was taken back is no answer to it.
    Asked(u64),
    Confirmed,
}

impl Topic {
    fn is_confirmed(&self) -> bool {
        self.nodes.iter().all(|(_, step)| *step == Step::Confirmed)
    }

    /// Returns true if the servers that have its name are the ones that are asked.
    fn is_asked_of(&self, servers: impl Iterator<Item = NodeId>) -> bool {
        let asked = self.nodes.iter().map(|(node, _)| *node);
        asked.eq(servers)
    }

    fn is_unasked(&self, node: NodeId) -> bool {
        self.nodes.contains(&(node, Step::Unasked))
    }

    /// Returns true if a node is asked for it, or still heard for it.
    fn concerns(&self, node: NodeId) -> bool {
        let last = self.handover.as_ref().and_then(|it| it.heard());
        last == Some(node) || self.nodes.iter().any(|(asked, _)| *asked == node)
    }

    /// Returns true if a message of a node for it is to be passed on. `same`: whether the node that is asked says the same.
    fn hears(
        &mut self,
        node: NodeId,
        frame: &[u8],
        ticks: u32,
        same: impl FnOnce(NodeId) -> bool,
    ) -> bool {
        let is_confirmed = self.nodes.contains(&(node, Step::Confirmed));
        match &mut self.handover {
            Some(handover) => {
                (is_confirmed || handover.heard() == Some(node))
                    && handover.passes(node, frame, ticks)
            }
            None => is_confirmed || !self.nodes.first().is_some_and(|(asked, _)| same(*asked)),
        }
    }

    /// Another node of a cluster is the one to ask. Returns who is not to be asked any more: the last one is, until the next
    /// one has confirmed.
    fn hand_over(&mut self, next: NodeId) -> Vec<NodeId> {
        let asked = std::mem::replace(&mut self.nodes, vec![(next, Step::Unasked)]);
        let last = self.handover.as_ref().and_then(|it| it.kept());
        match (last, &asked[..]) {
            // It comes back to the one that was never left.
            (Some(last), _) if last == next => {
                self.handover = None;
                self.nodes = vec![(last, Step::Confirmed)];
            }
            (Some(_), _) => {
                if let Some(handover) = &mut self.handover {
                    handover.begin_anew();
                }
            }
            (None, [(last, Step::Confirmed)]) => {
                self.handover = Some(Box::new(Handover::new(*last)));
                return Vec::new();
            }
            (None, _) => self.handover = None,
        }
        asked.into_iter().map(|(node, _)| node).collect()
    }
}

/// The connection for subscriptions to a server.
pub(crate) struct Server {
    node: NodeId,
    upstream: Option<Ref>,
    /// The answers that are due from it, in its order: an error does not say what it answers.
    expected: VecDeque<Expected>,
    /// It has refused a name that somebody hears, or is to hear, all the same.
    has_refused: bool,
    /// It has said of a name that another server has it, and nobody knows that one yet.
    has_redirected: bool,
    /// When it was last heard: milliseconds; and whether it was asked for a sign of life since.
    heard_ms: u64,
    is_asked: bool,
    /// For how many ticks it has owed an answer and given none.
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
    /// The request's number is the last.
    Ask(Space, Vec<u8>, u64),
    Leave(Space, Vec<u8>),
    /// A sign of life, and for whom: the number of the call that waits for it.
    Ping(Option<u64>),
    /// With what a connection to a node of a cluster begins.
    Readonly,
}

struct Call {
    client: Ref,
    seq: u32,
    space: Space,
    names: Vec<Vec<u8>>,
    /// How many of them are not confirmed, each as often as it is named.
    unconfirmed: usize,
}

/// A client that wants to hear no more of some names, or of all if there are none.
struct Leaving {
    client: Ref,
    seq: u32,
    space: Space,
    names: Vec<Vec<u8>>,
    /// Servers whose sign of life it waits for.
    waits: usize,
}

/// The answer about one name.
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
    /// SUBSCRIBE, UNSUBSCRIBE and their kin.
    pub(crate) fn call(
        &mut self,
        ctx: &mut Context,
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

    pub(crate) fn subscribe(
        &mut self,
        ctx: &mut Context,
        me: Ref,
        space: Space,
        names: Vec<Vec<u8>>,
    ) -> Flow {
        // Messages must not come in front of what was asked before.
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
            let topics = self.topics.entry(space).or_default();
            let is_new = !topics.contains_key(&name);
            let topic = topics.entry(name.clone()).or_default();
            topic.calls.push(number);
            if is_new {
                topic.nodes = unasked(&nodes);
            }
            // A name that others hear may have been refused when its server was asked again.
            for (node, _) in topic.nodes.clone() {
                self.ask(ctx, node, space, &name);
            }
            let is_confirmed = |topic: &mut Topic| topic.is_confirmed();
            if self.topic(space, &name).is_some_and(is_confirmed)
                && let Some(call) = self.calls.get_mut(&number)
            {
                call.unconfirmed -= 1;
            }
        }
        let call = self.calls.get(&number);
        if call.is_some_and(|call| call.unconfirmed == 0) {
            self.answer_call(ctx, number);
        }
        // What comes behind it may be refused to a subscriber, or be what it wants to hear.
        ctx.clients.must_wait(me);
        Flow::Done
    }

    /// Answers a call of which all that it names is confirmed.
    pub(crate) fn answer_call(&mut self, ctx: &mut Context, number: u64) {
        let Some(call) = self.calls.remove(&number) else {
            return;
        };
        let mut reply = Vec::new();
        let me = call.client;
        for name in &call.names {
            if let Some(topic) = self.topic(call.space, name) {
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
            if is_new && let Some(topic) = self.topic(call.space, name) {
                topic.clients.push(me);
            }
        }
        ctx.clients.restrict(me);
        ctx.clients.deliver(me, call.seq, 1, &reply);
    }

    pub(crate) fn unsubscribe(
        &mut self,
        ctx: &mut Context,
        me: Ref,
        space: Space,
        names: Vec<Vec<u8>>,
    ) -> Flow {
        // A call before this one may not be answered: then it has no effect yet that could be undone.
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

    /// Asks the servers for a sign of life: what they have sent in front of it was published before the client left.
    fn begin_to_leave(&mut self, ctx: &mut Context, mut leaving: Leaving) {
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
        let topics = self.topics.get(&leaving.space);
        let topics = names.iter().filter_map(|name| topics?.get(*name));
        let mut concerned: HashSet<NodeId> = HashSet::new();
        for topic in topics {
            concerned.extend(topic.nodes.iter().map(|(node, _)| *node));
            concerned.extend(topic.handover.as_ref().and_then(|it| it.heard()));
        }
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

    pub(crate) fn ping(&mut self, ctx: &mut Context, place: Ref) {
        if let Some(upstream) = ctx.links.find(place) {
            encode_request([&b"PING"[..]], &mut upstream.out);
            ctx.links.mark(place.at);
        }
    }

    /// A server has given the sign of life that it was asked for first, or never will.
    pub(crate) fn alive(&mut self, ctx: &mut Context, ping: Option<u64>) {
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

    /// Does what UNSUBSCRIBE says.
    fn have_left(&mut self, ctx: &mut Context, leaving: Leaving) {
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

    /// The client is gone, or begins anew.
    pub(crate) fn leave_all(
        &mut self,
        ctx: &mut Context,
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

    pub(crate) fn leave_topic(&mut self, ctx: &mut Context, me: Ref, space: Space, name: &[u8]) {
        let Some(topics) = self.topics.get_mut(&space) else {
            return;
        };
        let Some(topic) = topics.get_mut(name) else {
            return;
        };
        topic.clients.retain(|client| *client != me);
        if !topic.clients.is_empty() || !topic.calls.is_empty() {
            return;
        }
        let Some(topic) = topics.remove(name) else {
            return;
        };
        if topics.len() < topics.capacity() / 8 {
            topics.shrink_to(topics.len() * 2);
        }
        let last = topic.handover.and_then(|handover| handover.kept());
        for node in topic.nodes.iter().map(|(node, _)| *node).chain(last) {
            self.ask_no_more(ctx, node, space, name);
        }
    }
}

#[cfg(test)]
mod tests;
