//! Subscriptions: one connection to a server for all subscribers of a worker, what it says fanned out to them. Must not know
//! how other requests are routed.
//!
//! A channel is asked for when its first subscriber comes, and a client's SUBSCRIBE is answered when the servers have
//! confirmed all that it names, so nothing that is published behind the answer is missed. Confirmations, messages, and what
//! UNSUBSCRIBE answers have one form for RESP2 and RESP3 but for their first byte.
//!
//! Where keys are spread by a hash, so are channels, and a pattern is asked for everywhere. In a cluster any node hears
//! what is published, except for notifications of keys, which are asked for everywhere, too.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::Ordering;

use redline_cluster::Redirect;
use redline_resp::{Args, Proto, ReplyDecoder, Value, encode_request};
use redline_spec::CommandId;

use crate::errors;
use crate::route::{NOBODY, NodeId, Placement, Pool};
use crate::serve::Flow;
use crate::slab::Ref;
use crate::upstream::{Purpose, State};
use crate::worker::Worker;

/// What names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Names {
    Channels,
    Patterns,
    Shards,
}

/// What names belong to: the same one is another channel in another pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Space {
    names: Names,
    pool: u16,
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

/// What a client is subscribed to.
#[derive(Debug, Default)]
pub struct Subscribed {
    /// Of which pool.
    pool: u16,
    names: [BTreeSet<Vec<u8>>; 3],
}

impl Subscribed {
    /// What confirmations count: channels and patterns together, channels of shards by themselves.
    fn count(&self, space: Space) -> usize {
        match space.names {
            Names::Shards => self.names[2].len(),
            _ => self.names[0].len() + self.names[1].len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }
}

/// Everything that the clients of a worker are subscribed to.
#[derive(Default)]
pub struct PubSub {
    topics: HashMap<Space, HashMap<Vec<u8>, Topic>>,
    servers: Vec<Server>,
    /// Calls of SUBSCRIBE that are not answered.
    calls: HashMap<u64, Call>,
    /// Calls of UNSUBSCRIBE that are not answered.
    leaving: HashMap<u64, Leaving>,
    next_call: u64,
    next_ask: u64,
}

impl PubSub {
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
struct Topic {
    clients: Vec<Ref>,
    /// Calls that wait for it; one that names it twice is here twice.
    calls: Vec<u64>,
    /// Who has to be asked for it, and how far that is.
    nodes: Vec<(NodeId, Step)>,
}

/// How far a server is with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
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

    /// Whether the servers that have its name in this pool are the ones that are asked.
    fn is_asked_of(&self, names: Names, name: &[u8], pool: &Pool) -> bool {
        let asked = self.nodes.iter().map(|(node, _)| *node);
        asked.eq(servers_of(names, name, pool))
    }

    fn is_unasked(&self, node: NodeId) -> bool {
        self.nodes.contains(&(node, Step::Unasked))
    }
}

/// The connection for subscriptions to a server.
struct Server {
    node: NodeId,
    upstream: Option<Ref>,
    /// What it has to answer, in its order: an error does not say what it answers.
    expected: VecDeque<Expected>,
    /// It has refused a name that somebody hears, or is to hear, all the same.
    has_refused: bool,
    /// When it was last heard: milliseconds; and whether it was asked for a sign of life since.
    heard_ms: u64,
    is_asked: bool,
}

/// What a server has been told and has not answered.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// The request's number is the last.
    Ask(Space, Vec<u8>, u64),
    Leave(Space, Vec<u8>),
    /// A sign of life, and for whom: the number of the call that waits for it.
    Ping(Option<u64>),
}

/// A server that has said nothing for so long is asked for a sign of life: milliseconds.
const SILENCE_MS: u64 = 5_000;
/// Once in so many ticks (of 100 ms) a server is asked again for what it has refused.
const TICKS_REFUSED: u32 = 10;

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

impl Worker {
    /// SUBSCRIBE, UNSUBSCRIBE and their kin.
    pub(crate) fn subscription(&mut self, me: Ref, id: CommandId, args: Args<'_>) -> Flow {
        let names: Vec<Vec<u8>> = args.iter().skip(1).map(<[u8]>::to_vec).collect();
        match Space::of(id, self.home_of(me)) {
            (space, true) => self.subscribe(me, space, names),
            (space, false) => self.unsubscribe(me, space, names),
        }
    }

    fn subscribe(&mut self, me: Ref, space: Space, names: Vec<Vec<u8>>) -> Flow {
        // Messages must not come in front of what was asked before.
        if self.must_wait(me) {
            return Flow::Again;
        }
        let wanted: Vec<(Vec<u8>, Vec<NodeId>)> = names
            .iter()
            .map(|name| (name.clone(), self.nodes_of(space, name)))
            .collect();
        for node in wanted.iter().flat_map(|(_, nodes)| nodes) {
            if let Err(line) = self.subscription_link(*node) {
                return self.refuse(me, &line);
            }
        }
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let seq = client.number();
        client.subscribed.get_or_insert_default().pool = space.pool;
        let number = self.pubsub.next_call;
        self.pubsub.next_call += 1;
        let call = Call {
            client: me,
            seq,
            space,
            unconfirmed: names.len(),
            names,
        };
        self.pubsub.calls.insert(number, call);
        for (name, nodes) in wanted {
            let topics = self.pubsub.topics.entry(space).or_default();
            let is_new = !topics.contains_key(&name);
            let topic = topics.entry(name.clone()).or_default();
            topic.calls.push(number);
            if is_new {
                topic.nodes = unasked(&nodes);
            }
            // A name that others hear may have been refused when its server was asked again.
            for (node, _) in topic.nodes.clone() {
                self.ask(node, space, &name);
            }
            let is_confirmed = |topic: &mut Topic| topic.is_confirmed();
            if self.pubsub.topic(space, &name).is_some_and(is_confirmed)
                && let Some(call) = self.pubsub.calls.get_mut(&number)
            {
                call.unconfirmed -= 1;
            }
        }
        let call = self.pubsub.calls.get(&number);
        if call.is_some_and(|call| call.unconfirmed == 0) {
            self.answer_call(number);
        }
        // What comes behind it may be refused to a subscriber, or be what it wants to hear.
        self.must_wait(me);
        Flow::Done
    }

    /// Answers a call of which all that it names is confirmed.
    fn answer_call(&mut self, number: u64) {
        let Some(call) = self.pubsub.calls.remove(&number) else {
            return;
        };
        let mut reply = Vec::new();
        let me = call.client;
        for name in &call.names {
            if let Some(topic) = self.pubsub.topic(call.space, name) {
                topic.calls.retain(|waiting| *waiting != number);
            }
            let Some(client) = self.clients.find(me) else {
                self.leave_topic(me, call.space, name);
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
            if is_new && let Some(topic) = self.pubsub.topic(call.space, name) {
                topic.clients.push(me);
            }
        }
        self.restrict(me);
        self.deliver(me, call.seq, 1, &reply);
    }

    fn unsubscribe(&mut self, me: Ref, space: Space, names: Vec<Vec<u8>>) -> Flow {
        // A call before this one may not be answered: then it has no effect yet that could be undone.
        if self.must_wait(me) {
            return Flow::Again;
        }
        let Some(client) = self.clients.find(me) else {
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
            true => self.begin_to_leave(leaving),
            false => self.have_left(leaving),
        }
        Flow::Done
    }

    /// Asks the servers for a sign of life: what they have sent in front of it was published before the client left.
    fn begin_to_leave(&mut self, mut leaving: Leaving) {
        let (me, number) = (leaving.client, self.pubsub.next_call);
        self.pubsub.next_call += 1;
        let nodes = &self.routes.nodes;
        let mut places = Vec::new();
        for server in &mut self.pubsub.servers {
            if nodes[usize::from(server.node)].pool == leaving.space.pool
                && let Some(place) = server.upstream
            {
                server.expected.push_back(Expected::Ping(Some(number)));
                places.push(place);
            }
        }
        if places.is_empty() {
            return self.have_left(leaving);
        }
        leaving.waits = places.len();
        self.pubsub.leaving.insert(number, leaving);
        for place in places {
            self.ping(place);
        }
        self.must_wait(me);
    }

    fn ping(&mut self, place: Ref) {
        if let Some(upstream) = self.upstreams.find(place) {
            encode_request([&b"PING"[..]], &mut upstream.out);
            self.mark_upstream(place.at);
        }
    }

    /// A server has given the sign of life that it was asked for first, or never will.
    fn alive(&mut self, ping: Option<u64>) {
        let Some(number) = ping else { return };
        let Some(leaving) = self.pubsub.leaving.get_mut(&number) else {
            return;
        };
        leaving.waits -= 1;
        if leaving.waits == 0
            && let Some(leaving) = self.pubsub.leaving.remove(&number)
        {
            self.have_left(leaving);
        }
    }

    /// Does what UNSUBSCRIBE says.
    fn have_left(&mut self, leaving: Leaving) {
        let Leaving {
            client: me,
            seq,
            space,
            names,
            ..
        } = leaving;
        let Some(client) = self.clients.find(me) else {
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
            if let Some(client) = self.clients.find(me)
                && let Some(mine) = &mut client.subscribed
            {
                was_there = mine.names[space.names as usize].remove(name);
                count = mine.count(space);
            }
            if was_there {
                self.leave_topic(me, space, name);
            }
            confirm(&mut reply, proto, space, false, Some(name), count);
        }
        self.restrict(me);
        self.deliver(me, seq, 1, &reply);
    }

    /// A client that is subscribed and speaks RESP2 may call little else.
    pub(crate) fn restrict(&mut self, me: Ref) {
        let Some(client) = self.clients.find(me) else {
            return;
        };
        let empty = client
            .subscribed
            .as_ref()
            .is_none_or(|subscribed| subscribed.is_empty());
        client.restricted = !empty && client.proto == Proto::Resp2;
        for (names, shown) in client.card.subscriptions.iter().enumerate() {
            let mine = client.subscribed.as_ref();
            let count = mine.map_or(0, |mine| mine.names[names].len());
            shown.store(count as u32, Ordering::Relaxed);
        }
        if empty {
            client.subscribed = None;
        }
    }

    /// The client is gone, or begins anew.
    pub(crate) fn leave_all(&mut self, me: Ref, subscribed: Option<Box<Subscribed>>) {
        let Some(subscribed) = subscribed else { return };
        self.restrict(me);
        let pool = subscribed.pool;
        for names in [Names::Channels, Names::Patterns, Names::Shards] {
            for name in &subscribed.names[names as usize] {
                self.leave_topic(me, Space { names, pool }, name);
            }
        }
    }

    fn leave_topic(&mut self, me: Ref, space: Space, name: &[u8]) {
        let Some(topics) = self.pubsub.topics.get_mut(&space) else {
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
        for (node, _) in topic.nodes {
            self.ask_no_more(node, space, name);
        }
    }

    fn nodes_of(&self, space: Space, name: &[u8]) -> Vec<NodeId> {
        let pool = &self.routes.pools[usize::from(space.pool)];
        servers_of(space.names, name, pool).collect()
    }

    /// The connection for subscriptions to a server, made if there is none: then it is asked for all that is wanted there.
    fn subscription_link(&mut self, node: NodeId) -> Result<Ref, String> {
        if node == NOBODY {
            // Nothing is kept of nobody: whoever has the name later is asked by the picture that says so.
            return Err(errors::CLUSTER_DOWN.to_owned());
        }
        let known = self.pubsub.servers.iter().position(|it| it.node == node);
        let at = known.unwrap_or_else(|| {
            self.pubsub.servers.push(Server {
                node,
                upstream: None,
                expected: VecDeque::new(),
                has_refused: false,
                heard_ms: 0,
                is_asked: false,
            });
            self.pubsub.servers.len() - 1
        });
        if let Some(upstream) = self.pubsub.servers[at].upstream {
            return Ok(upstream);
        }
        let upstream = self.connect(node, 0, Proto::Resp2, Purpose::Subscriptions)?;
        let server = &mut self.pubsub.servers[at];
        server.upstream = Some(upstream);
        (server.heard_ms, server.is_asked) = (self.now_ms, false);
        for (space, name) in self.unasked_of(node) {
            self.ask(node, space, &name);
        }
        Ok(upstream)
    }

    /// Whether there is anything wanted of a server that it is not asked for.
    fn lacks_something(&self, node: NodeId) -> bool {
        let mut topics = self.pubsub.topics.values().flat_map(HashMap::values);
        topics.any(|topic| topic.is_unasked(node))
    }

    /// What is wanted of a server that it is not asked for.
    fn unasked_of(&self, node: NodeId) -> Vec<(Space, Vec<u8>)> {
        let mut wanted = Vec::new();
        for (space, topics) in &self.pubsub.topics {
            let unasked = topics.iter().filter(|(_, topic)| topic.is_unasked(node));
            wanted.extend(unasked.map(|(name, _)| (*space, name.clone())));
        }
        wanted
    }

    /// Asks a server for a name, if there is a connection and it is not asked already.
    fn ask(&mut self, node: NodeId, space: Space, name: &[u8]) {
        let topic = self.pubsub.topic(space, name);
        if !topic.is_some_and(|topic| topic.is_unasked(node)) {
            return;
        }
        let number = self.pubsub.next_ask;
        self.pubsub.next_ask += 1;
        let expected = Expected::Ask(space, name.to_vec(), number);
        if self.say_to_server(
            node,
            &format!("{}SUBSCRIBE", space.letter()),
            name,
            expected,
        ) {
            self.change_steps(space, name, node, |_| Step::Asked(number));
        }
    }

    fn ask_no_more(&mut self, node: NodeId, space: Space, name: &[u8]) {
        let expected = Expected::Leave(space, name.to_vec());
        self.say_to_server(
            node,
            &format!("{}UNSUBSCRIBE", space.letter()),
            name,
            expected,
        );
    }

    /// How far a server is with a name, from how far it was.
    fn change_steps(
        &mut self,
        space: Space,
        name: &[u8],
        node: NodeId,
        next: impl Fn(Step) -> Step,
    ) {
        self.change_topic(space, name, |topic| {
            for (_, step) in topic.nodes.iter_mut().filter(|(of, _)| *of == node) {
                *step = next(*step);
            }
        });
    }

    /// Answers the calls that waited for this change alone.
    fn change_topic(&mut self, space: Space, name: &[u8], change: impl FnOnce(&mut Topic)) {
        for number in self.pubsub.change(space, name, change) {
            self.answer_call(number);
        }
    }

    /// Whether there is a connection that takes it.
    fn say_to_server(
        &mut self,
        node: NodeId,
        command: &str,
        name: &[u8],
        expected: Expected,
    ) -> bool {
        let Some(server) = self.pubsub.servers.iter_mut().find(|it| it.node == node) else {
            return false;
        };
        let Some(place) = server.upstream else {
            return false;
        };
        let Some(upstream) = self.upstreams.find(place) else {
            return false;
        };
        server.expected.push_back(expected);
        encode_request([command.as_bytes(), name], &mut upstream.out);
        self.mark_upstream(place.at);
        true
    }

    /// Something came on a connection for subscriptions.
    pub(crate) fn published(&mut self, at: u32, node: NodeId, frame: &[u8]) {
        if let Some(upstream) = self.upstreams.get(at)
            && upstream.sent == upstream.out.len()
            && upstream.state == State::Open
        {
            // Nothing here waits for a reply of its own, so what was sent is done with.
            upstream.out.clear();
            (upstream.sent, upstream.acked) = (0, 0);
        }
        if let Some(server) = self.pubsub.servers.iter_mut().find(|it| it.node == node) {
            (server.heard_ms, server.is_asked) = (self.now_ms, false);
        }
        if frame[0] == b'-' {
            return self.refused_by_server(node, frame);
        }
        let Ok(decoded) = ReplyDecoder::new().decode(frame) else {
            return;
        };
        let words = match decoded.value {
            Some(Value::Array(words)) => words,
            // So it answers while it has no subscriber.
            Some(Value::Simple(_)) => return self.answered_ping(node),
            _ => return,
        };
        let word = |at: usize| words.get(at).and_then(Value::as_bytes).unwrap_or_default();
        let name = word(1).to_vec();
        let pool = self.routes.nodes[usize::from(node)].pool;
        let space = |names| Space { names, pool };
        match word(0) {
            b"message" => {
                let key = notified_key(word(1), word(2));
                self.fan_out(space(Names::Channels), &name, frame, key);
            }
            b"pmessage" => {
                let key = notified_key(word(2), word(3));
                self.fan_out(space(Names::Patterns), &name, frame, key);
            }
            b"smessage" => self.fan_out(space(Names::Shards), &name, frame, None),
            b"subscribe" => self.confirmed(node, space(Names::Channels), &name),
            b"psubscribe" => self.confirmed(node, space(Names::Patterns), &name),
            b"ssubscribe" => self.confirmed(node, space(Names::Shards), &name),
            b"unsubscribe" => self.answered_leave(node, space(Names::Channels), name),
            b"punsubscribe" => self.answered_leave(node, space(Names::Patterns), name),
            b"sunsubscribe" => self.left_or_moved(node, space(Names::Shards), name),
            b"pong" => self.answered_ping(node),
            _ => {}
        }
    }

    /// The server has answered the first of these that it was told, which is returned, and what it was told before that.
    fn answered(&mut self, node: NodeId, is_it: impl Fn(&Expected) -> bool) -> Option<Expected> {
        let server = self.pubsub.servers.iter_mut().find(|it| it.node == node)?;
        let at = server.expected.iter().position(is_it)?;
        // More than one only if the server leaves something without an answer.
        let mut answered: Vec<Expected> = server.expected.drain(..=at).collect();
        for expected in &answered {
            if let Expected::Ping(ping) = expected {
                self.alive(*ping);
            }
        }
        answered.pop()
    }

    fn answered_ping(&mut self, node: NodeId) {
        self.answered(node, |expected| matches!(expected, Expected::Ping(_)));
    }

    fn answered_leave(&mut self, node: NodeId, space: Space, name: Vec<u8>) {
        let leave = Expected::Leave(space, name);
        self.answered(node, |expected| *expected == leave);
    }

    /// A server says so of a shard's channel when it is told to, and by itself.
    fn left_or_moved(&mut self, node: NodeId, space: Space, name: Vec<u8>) {
        let server = self.pubsub.servers.iter().find(|it| it.node == node);
        let front = server.and_then(|server| server.expected.front());
        match front {
            Some(Expected::Leave(of, left)) if *of == space && *left == name => {
                self.answered_leave(node, space, name);
            }
            _ => self.moved_away(node, space, &name),
        }
    }

    /// Hands a message to all who want to hear it. One that is about a key is only for those who may know of that.
    fn fan_out(&mut self, space: Space, name: &[u8], frame: &[u8], key: Option<&[u8]>) {
        let Some(topic) = self.pubsub.topic(space, name) else {
            return;
        };
        let clients = std::mem::take(&mut topic.clients);
        for me in &clients {
            if key.is_none_or(|key| self.may_hear_of(*me, key)) {
                self.push_to(*me, frame);
            }
        }
        if let Some(topic) = self.pubsub.topic(space, name) {
            topic.clients = clients;
        }
    }

    fn push_to(&mut self, me: Ref, frame: &[u8]) {
        let Some(client) = self.clients.find(me) else {
            return;
        };
        client.push(frame);
        self.mark_client(me.at);
    }

    fn confirmed(&mut self, node: NodeId, space: Space, name: &[u8]) {
        let is_it = |expected: &Expected| matches!(expected, Expected::Ask(of, asked, _) if *of == space && asked == name);
        let of = match self.answered(node, is_it) {
            Some(Expected::Ask(_, _, number)) => Some(number),
            // It has not kept to the order.
            _ => None,
        };
        // If it was left since, and is asked for again: until the server has done both it may hear nothing.
        self.change_steps(space, name, node, |step| match step {
            Step::Asked(latest) if of.is_none_or(|number| number == latest) => Step::Confirmed,
            other => other,
        });
    }

    /// The server refuses what it was told first: who waits for that is told. An error is a sign of life, too.
    fn refused_by_server(&mut self, node: NodeId, error: &[u8]) {
        let server = self.pubsub.servers.iter_mut().find(|it| it.node == node);
        let (space, name, number) = match server.and_then(|server| server.expected.pop_front()) {
            Some(Expected::Ask(space, name, number)) => (space, name, number),
            Some(Expected::Ping(ping)) => return self.alive(ping),
            Some(Expected::Leave(..)) | None => return,
        };
        let moved = std::str::from_utf8(error)
            .ok()
            .and_then(|text| Redirect::parse(text.strip_prefix("-MOVED ")?));
        if let Some(redirect) = moved {
            self.moved(node, &redirect);
            if self.nodes_of(space, &name).iter().all(|to| *to != node) {
                return self.ask_anew(space, &name);
            }
        }
        let asked = (node, Step::Asked(number));
        let topic = self.pubsub.topic(space, &name);
        if topic.is_none_or(|topic| !topic.nodes.contains(&asked)) {
            // Nobody waits for this one any more.
            return;
        }
        self.change_steps(space, &name, node, |_| Step::Unasked);
        let topic = self.pubsub.topic(space, &name);
        for number in topic.map_or(Vec::new(), |topic| topic.calls.clone()) {
            self.fail_call(number, error);
        }
        let is_wanted = self.pubsub.topic(space, &name).is_some();
        if let Some(server) = self.pubsub.servers.iter_mut().find(|it| it.node == node) {
            server.has_refused |= is_wanted;
        }
    }

    /// A call cannot be answered as it should.
    fn fail_call(&mut self, number: u64, error: &[u8]) {
        let Some(call) = self.pubsub.calls.remove(&number) else {
            return;
        };
        self.deliver(call.client, call.seq, 1, error);
        for name in &call.names {
            if let Some(topic) = self.pubsub.topic(call.space, name) {
                topic.calls.retain(|waiting| *waiting != number);
            }
            self.leave_unless_subscribed(call.client, call.space, name);
        }
        self.restrict(call.client);
    }

    fn leave_unless_subscribed(&mut self, me: Ref, space: Space, name: &[u8]) {
        let is_subscribed = self.clients.find(me).is_some_and(|client| {
            client
                .subscribed
                .as_ref()
                .is_some_and(|subscribed| subscribed.names[space.names as usize].contains(name))
        });
        if !is_subscribed {
            self.leave_topic(me, space, name);
        }
    }

    /// A shard's channel has gone to another server with its slot.
    fn moved_away(&mut self, node: NodeId, space: Space, name: &[u8]) {
        let to = self.nodes_of(space, name);
        let Some(topic) = self.pubsub.topic(space, name) else {
            return;
        };
        if topic.nodes.iter().all(|(asked, _)| *asked != node) {
            return;
        }
        self.change_topic(space, name, |topic| topic.nodes = unasked(&to));
        for node in to {
            if self.subscription_link(node).is_ok() {
                self.ask(node, space, name);
            }
        }
    }

    /// Names may be elsewhere now, since there is a new picture. While slots move there are many pictures, each with one of
    /// them elsewhere, so a name that is where it was is looked at and no more.
    pub(crate) fn adopt_subscriptions(&mut self) {
        let mut moved: Vec<(Space, Vec<u8>)> = Vec::new();
        for (space, topics) in &self.pubsub.topics {
            let Some(pool) = self.routes.pools.get(usize::from(space.pool)) else {
                continue;
            };
            let topics = topics.iter();
            let elsewhere =
                topics.filter(|(name, topic)| !topic.is_asked_of(space.names, name, pool));
            moved.extend(elsewhere.map(|(name, _)| (*space, name.clone())));
        }
        for (space, name) in moved {
            self.ask_anew(space, &name);
        }
    }

    /// Asks for a name where it is now, and no longer elsewhere.
    fn ask_anew(&mut self, space: Space, name: &[u8]) {
        let nodes = self.nodes_of(space, name);
        let Some(topic) = self.pubsub.topic(space, name) else {
            return;
        };
        if nodes.contains(&NOBODY) {
            return;
        }
        let before = topic.nodes.clone();
        let step_of = |node: &NodeId| {
            let known = before.iter().find(|(asked, _)| asked == node);
            (*node, known.map_or(Step::Unasked, |(_, step)| *step))
        };
        let now = nodes.iter().map(step_of).collect();
        self.change_topic(space, name, |topic| topic.nodes = now);
        let is_old = |node: &NodeId| before.iter().any(|(asked, _)| asked == node);
        for node in nodes.iter().filter(|node| !is_old(node)) {
            if self.subscription_link(*node).is_ok() {
                self.ask(*node, space, name);
            }
        }
        for (node, _) in before.iter().filter(|(node, _)| !nodes.contains(node)) {
            self.ask_no_more(*node, space, name);
        }
    }

    /// A connection for subscriptions broke: everything is asked for again as soon as there is a new one.
    pub(crate) fn lost_subscriptions(&mut self, node: NodeId) {
        let mut expected = VecDeque::new();
        for server in self.pubsub.servers.iter_mut().filter(|it| it.node == node) {
            server.upstream = None;
            server.has_refused = false;
            expected.append(&mut server.expected);
        }
        for topic in self
            .pubsub
            .topics
            .values_mut()
            .flat_map(HashMap::values_mut)
        {
            for (_, step) in topic.nodes.iter_mut().filter(|(asked, _)| *asked == node) {
                *step = Step::Unasked;
            }
        }
        // Nobody knows when the server will be back.
        let calls: Vec<u64> = self
            .pubsub
            .calls
            .iter()
            .filter(|(_, call)| {
                let topics = self.pubsub.topics.get(&call.space);
                call.names.iter().any(|name| {
                    topics
                        .and_then(|topics| topics.get(name))
                        .is_some_and(|topic| topic.nodes.iter().any(|(asked, _)| *asked == node))
                })
            })
            .map(|(number, _)| *number)
            .collect();
        for number in calls {
            self.fail_call(number, b"-ERR the connection to the server was lost\r\n");
        }
        for expected in expected {
            if let Expected::Ping(ping) = expected {
                self.alive(ping);
            }
        }
    }

    /// Asks servers that have been silent whether they are still there, and gives up those that do not say so: a connection of
    /// which nobody told that it broke would be silent for ever.
    pub(crate) fn check_subscriptions(&mut self) {
        let now_ms = self.now_ms;
        let (mut ask, mut gone) = (Vec::new(), Vec::new());
        for server in &mut self.pubsub.servers {
            let Some(place) = server.upstream else {
                continue;
            };
            if now_ms.saturating_sub(server.heard_ms) <= SILENCE_MS {
                continue;
            }
            match server.is_asked {
                true => gone.push(place),
                false => {
                    server.expected.push_back(Expected::Ping(None));
                    ask.push(place);
                }
            }
            (server.heard_ms, server.is_asked) = (now_ms, true);
        }
        for place in ask {
            self.ping(place);
        }
        for place in gone {
            if self.upstreams.find(place).is_some() {
                self.lose(place.at, "it does not answer", false);
            }
        }
    }

    /// Makes connections anew that broke, if anybody is subscribed, and asks again for what was refused.
    pub(crate) fn mend_subscriptions(&mut self) {
        let asks_again = self.ticks.is_multiple_of(TICKS_REFUSED);
        let mut wanting = Vec::new();
        for server in &mut self.pubsub.servers {
            let is_refused = asks_again && std::mem::take(&mut server.has_refused);
            if server.upstream.is_none() || is_refused {
                wanting.push(server.node);
            }
        }
        for node in wanting {
            if !self.lacks_something(node) {
                // Whoever wants something of it makes it known again.
                let is_over = |it: &Server| it.node == node && it.upstream.is_none();
                self.pubsub.servers.retain(|it| !is_over(it));
                continue;
            }
            // Where there is no way to the server now, nothing is copied for it.
            if self.subscription_link(node).is_err() {
                continue;
            }
            for (space, name) in self.unasked_of(node) {
                self.ask(node, space, &name);
            }
        }
    }
}

/// Who has to be asked for a name in this pool.
fn servers_of(names: Names, name: &[u8], pool: &Pool) -> impl Iterator<Item = NodeId> {
    let is_everywhere = match (names, &pool.placement) {
        (_, Placement::One) | (Names::Shards, _) => false,
        (Names::Patterns, Placement::Hashed(_)) => true,
        _ => name.starts_with(b"__key"),
    };
    let one = match (is_everywhere, names) {
        (true, _) => None,
        (false, Names::Patterns) => Some(pool.shards[0].primary),
        (false, _) => Some(pool.node_of(name)),
    };
    let shards = pool.shards.iter().filter(move |_| is_everywhere);
    one.into_iter().chain(shards.map(|shard| shard.primary))
}

fn unasked(nodes: &[NodeId]) -> Vec<(NodeId, Step)> {
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

#[cfg(test)]
mod tests;
