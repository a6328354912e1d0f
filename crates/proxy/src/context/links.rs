//! Connections to servers: making them, finding the shared one, taking them out of use. Must not know what requests ask for.

use std::sync::Arc;

use redline_net::{
    Interest, NetError, Stream, connect_endpoint, error_text, is_out_of_descriptors,
};
use redline_resp::{Proto, encode_request};

use crate::cache::tracking;
use crate::context::Context;
use crate::errors;
use crate::links::of;
use crate::links::{NONE, lane};
use crate::observability::log;
use crate::report::Report;
use crate::route::{Endpoint, NO_NODE, NodeId};
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, State, Upstream, Waiting};
use crate::worker::FIRST_CONNECTION;

/// Connections to one server that long replies, and calls that wait for nobody, may have for themselves; beyond that others
/// wait behind them.
const DETACHED_MAX: usize = 64;
/// How long a server is left alone after the first failed attempt, and at most: milliseconds.
const BACKOFF_MS: (u64, u64) = (50, 5_000);
/// Requests that wait for one server and are not answered.
pub(crate) const WAITING_MAX: usize = 256 * 1024;

impl Context {
    /// Replies came on a connection that nobody looked at.
    #[inline]
    pub(crate) fn settle_marks(&mut self, at: u32) {
        if !self.cache.is_on {
            return;
        }
        if let Some(upstream) = self.links.get(at)
            && let Some(marks) = &mut upstream.marks
        {
            self.cache.settle(marks);
        }
    }

    /// A server will tell from now on what changes.
    fn cache_opens(&mut self, node: NodeId) {
        let server = &self.routes.nodes[usize::from(node)];
        self.cache.opened(node, server.pool);
        self.seeing.node(node, server).caches.set(1);
    }

    /// A server no longer tells what changes, or has refused to.
    pub(crate) fn cache_closes(&mut self, node: NodeId, has_refused: bool, reason: &str) {
        let routes = Arc::clone(&self.routes);
        let server = &routes.nodes[usize::from(node)];
        let is_news = self.cache.closed(node, server.pool, has_refused);
        self.seeing.node(node, server).caches.set(0);
        if is_news && !reason.is_empty() {
            let name = &server.name;
            log::warning(&format!(
                "nothing of {name} is cached until it tells again what changes: {reason}"
            ));
        }
    }

    /// The shared connection to a server, made if there is none. The error is the line that the client gets.
    pub(crate) fn link(&mut self, node: NodeId, db: u16, proto: Proto) -> Result<u32, String> {
        if let Some(at) = self.links.shared(node, db, proto) {
            return Ok(at);
        }
        let place = self.unused_link(node, db, proto)?;
        let shared = &mut self.links.of(node).shared;
        let lane = lane(db, proto);
        if lane >= shared.len() {
            shared.resize(lane + 1, NONE);
        }
        shared[lane] = place.at;
        Ok(place.at)
    }

    /// A connection on which nothing is under way and that nobody else is given, now or later: for one call, with which it
    /// goes to [`detach`](Self::detach). Where too many have such a one, the shared connection. A server that is busy refuses
    /// most of what connections begin with, so a new one only says who we are.
    pub(crate) fn lone_link(&mut self, node: NodeId, proto: Proto) -> Result<u32, String> {
        // The call is about the server: any database will do, and the first is there without being asked for.
        const DB: u16 = 0;
        if self.links.of(node).detached >= DETACHED_MAX {
            return self.link(node, DB, proto);
        }
        let place = match self.links.unused_idle_link(node, DB, proto) {
            Some(place) => place,
            None => self.connect_for(node, DB, proto, Purpose::Shared, false)?,
        };
        if let Some(upstream) = self.links.find(place) {
            upstream.is_lone = true;
        }
        Ok(place.at)
    }

    /// A connection for what is everybody's, of which nobody knows yet.
    fn unused_link(&mut self, node: NodeId, db: u16, proto: Proto) -> Result<Ref, String> {
        match self.links.unused_idle_link(node, db, proto) {
            Some(place) => Ok(place),
            None => self.connect(node, db, proto, Purpose::Shared),
        }
    }

    /// A connection of its own for a client.
    pub(crate) fn private_link(
        &mut self,
        node: NodeId,
        db: u16,
        proto: Proto,
        owner: Ref,
    ) -> Result<Ref, String> {
        if node == NO_NODE {
            return Err(self.unserved(self.clients.home_of(owner)).to_owned());
        }
        let place = match self.links.idle_link(node, db, proto) {
            Some(place) => place,
            None => {
                if self.links.of(node).private >= self.shared.settings.private_max {
                    let name = &self.routes.nodes[usize::from(node)].name;
                    return Err(errors::unavailable(
                        name,
                        "more calls wait, or are in transactions, than limits.private-connections allows",
                    ));
                }
                let place = self.connect(node, db, proto, Purpose::Private)?;
                self.links.of(node).private += 1;
                place
            }
        };
        if let Some(upstream) = self.links.find(place) {
            upstream.owner = Some(owner);
        }
        Ok(place)
    }

    pub(crate) fn connect(
        &mut self,
        node: NodeId,
        db: u16,
        proto: Proto,
        purpose: Purpose,
    ) -> Result<Ref, String> {
        self.connect_for(node, db, proto, purpose, true)
    }

    /// The same; `reads`: calls that only read may go there, if they may to this server.
    fn connect_for(
        &mut self,
        node: NodeId,
        db: u16,
        proto: Proto,
        purpose: Purpose,
        reads: bool,
    ) -> Result<Ref, String> {
        let routes = Arc::clone(&self.routes);
        let Some(target) = routes.nodes.get(usize::from(node)) else {
            return Err(self.unserved(0).to_owned());
        };
        let unavailable = |reason: &str| errors::unavailable(&target.name, reason);
        if target.ejected {
            return Err(unavailable("it does not answer"));
        }
        let pool = &routes.pools[usize::from(target.pool)];
        if u32::from(db) >= pool.databases {
            // A client's number is of its own pool's; this is another one, or the pool has fewer now.
            return Err(errors::DB_OUT_OF_RANGE.to_owned());
        }
        let links = self.links.of(node);
        if self.now_ms < links.retry_at_ms {
            return Err(unavailable(&links.reason));
        }
        let attempt = connect_endpoint(&net_endpoint(&target.endpoint)).and_then(|stream| {
            let failed = |error| NetError::new(&target.name, error);
            stream.set_nodelay(true).map_err(failed)?;
            if pool.keepalive_s > 0 {
                stream.set_keepalive(pool.keepalive_s).map_err(failed)?;
            }
            Ok(stream)
        });
        let stream = match attempt {
            Ok(stream) => stream,
            Err(error) => {
                let line = unavailable(&error_text(&error.error));
                // For want of descriptors of our own the server is not to blame.
                if !is_out_of_descriptors(&error.error) {
                    self.failed(node, &error_text(&error.error));
                }
                return Err(line);
            }
        };
        let stats = self.seeing.node(node, target);
        let mut upstream = Upstream::new(stream, node, db, proto, purpose, self.now_ms, stats);
        if matches!(purpose, Purpose::Shared | Purpose::Private) {
            upstream.marks = self.cache.marks(target.pool);
        }
        introduce(
            &mut upstream,
            target.user.as_deref(),
            target.password.as_deref(),
        );
        if target.is_readonly && reads {
            say(&mut upstream, &["READONLY"]);
        }
        if purpose == Purpose::Tracking
            && let Some(caching) = &routes.pools[usize::from(target.pool)].caching
        {
            say(&mut upstream, &tracking(caching));
        }
        upstream.greeting = upstream.out.len();
        let place = self.links.next_place();
        if let Err(error) = self.watch_upstream(place.at, &upstream.stream) {
            return Err(unavailable(&error_text(&error)));
        }
        upstream.wants_room = true;
        upstream.stats.connects.add(1);
        self.links.put(upstream);
        Ok(place)
    }

    /// The server takes us.
    pub(crate) fn welcomed(&mut self, at: u32) {
        let Some(upstream) = self.links.get(at) else {
            return;
        };
        upstream.state = State::Open;
        let node = upstream.node;
        if upstream.purpose == Purpose::Tracking {
            self.cache_opens(node);
        }
        self.links.of(node).forget_failures();
        self.links.mark(at);
        log::debug(|| {
            format!(
                "a connection to {} stands",
                self.routes.nodes[usize::from(node)].name
            )
        });
        self.tell(Report::Well { node });
    }

    /// A server answers who we are with an error: it is named once, until it lets us in or an attempt fails otherwise.
    pub(crate) fn turned_away(&mut self, node: NodeId, said: &str) {
        if self.links.of(node).reason != said {
            let name = &self.routes.nodes[usize::from(node)].name;
            log::warning(&format!("{name} does not let the proxy in: {said}"));
        }
    }

    /// An attempt has failed: no other one for a while, longer each time, and not all workers at once.
    pub(crate) fn failed(&mut self, node: NodeId, reason: &str) {
        let (first, most) = BACKOFF_MS;
        let salt = self.now_ms ^ (self.number as u64).wrapping_mul(0x9e37_79b9);
        let links = self.links.of(node);
        let span = (first << links.failures.min(16)).min(most);
        links.failures += 1;
        links.retry_at_ms = self.now_ms + span / 2 + salt % (span / 2 + 1);
        links.reason = reason.to_owned();
        let answers = self.answers_of(node);
        self.tell(Report::Failed { node, answers });
    }

    /// While events gather, so do requests: see [`Upstream::may_linger`].
    pub(crate) fn let_linger(&mut self) {
        let links = &mut self.links;
        links.dirty.append(&mut links.lingering);
        if !self.poller.is_gathering() {
            return;
        }
        let (upstreams, lingering) = (&mut links.slab, &mut links.lingering);
        links.dirty.retain(|at| {
            let lingers = upstreams.get(*at).is_some_and(Upstream::may_linger);
            if lingers {
                lingering.push(*at);
            }
            !lingers
        });
    }

    /// Returns true if so much waits for this server that the client must wait, too; it then goes on by itself.
    pub(crate) fn is_full(&mut self, at: u32, client: Ref) -> bool {
        let queue_max = self.shared.settings.upstream_queue_bytes_max;
        let Some(upstream) = self.links.get(at) else {
            return false;
        };
        let full = upstream.unanswered() > queue_max || upstream.waiting.len() > WAITING_MAX;
        if full {
            upstream.held_back.push(client);
        }
        full
    }

    /// A long reply comes, or a call that may wait behind no other was queued: it gets the connection for itself, if that is not
    /// one client's alone already. `false`: too many have one.
    pub(crate) fn detach(&mut self, at: u32) -> bool {
        let links = &mut self.links;
        let Some(upstream) = links.slab.get(at) else {
            return false;
        };
        if upstream.retired || upstream.purpose == Purpose::Private {
            return true;
        }
        if of(&mut links.nodes, upstream.node).detached >= DETACHED_MAX {
            return false;
        }
        upstream.may_return = upstream.purpose == Purpose::Shared && !upstream.is_lone;
        self.withdraw(at);
        true
    }

    /// New requests go over another connection; this one has an end once it has answered. Who waits for a reply on a shared one
    /// sends nothing more until that has come, so that nobody's requests overtake each other. Who has a private one keeps it
    /// until what it does there has ended.
    pub(crate) fn withdraw(&mut self, at: u32) {
        let links = &mut self.links;
        let Some(upstream) = links.slab.get(at).filter(|it| !it.retired) else {
            return;
        };
        let links = of(&mut links.nodes, upstream.node);
        links.detached += 1;
        upstream.retired = true;
        if upstream.purpose != Purpose::Shared {
            return;
        }
        if let Some(lane) = links.shared.iter_mut().find(|lane| **lane == at) {
            *lane = NONE;
        }
        self.settle(at);
    }

    /// Makes the clients that wait for replies of these servers settle: their requests may go elsewhere now, and their next
    /// ones certainly do.
    pub(crate) fn settle_all(&mut self, nodes: &[NodeId]) {
        for at in self.links.taken().collect::<Vec<_>>() {
            let upstream = self.links.look(at);
            if upstream.is_some_and(|it| it.purpose == Purpose::Shared && nodes.contains(&it.node))
            {
                self.settle(at);
            }
        }
    }

    /// Whoever waits for a reply on this connection sends nothing more until everything is answered.
    pub(crate) fn settle(&mut self, at: u32) {
        let Some(upstream) = self.links.look(at) else {
            return;
        };
        for run in &upstream.waiting {
            let to = match run.kind {
                Kind::Client | Kind::Silent => Some(run.to),
                Kind::Part => self.gathers.find(run.to).map(|gather| gather.client),
                Kind::Setup | Kind::Multi | Kind::Unwanted => None,
            };
            if let Some(client) = to.and_then(|to| self.clients.find(to)) {
                client.settle();
            }
        }
    }

    /// Watches a connection to a server.
    fn watch_upstream(&mut self, at: u32, stream: &Stream) -> std::io::Result<()> {
        let token = FIRST_CONNECTION + 2 * at as usize + 1;
        self.poller.register(stream, token, Interest::ReadWrite)
    }
}

fn net_endpoint(endpoint: &Endpoint) -> redline_net::Endpoint {
    match endpoint {
        Endpoint::Tcp(address) => redline_net::Endpoint::Tcp(*address),
        Endpoint::Unix(path) => redline_net::Endpoint::Unix(path.clone()),
    }
}

/// Queues the first requests of every connection: authentication, protocol, database.
fn introduce(upstream: &mut Upstream, user: Option<&str>, password: Option<&str>) {
    match (user, password) {
        (Some(user), Some(password)) => say(upstream, &["AUTH", user, password]),
        (None, Some(password)) => say(upstream, &["AUTH", password]),
        _ => {}
    }
    if upstream.proto == Proto::Resp3 {
        say(upstream, &["HELLO", "3"]);
    }
    if upstream.db != 0 {
        let db = upstream.db.to_string();
        say(upstream, &["SELECT", &db]);
    }
}

fn say(upstream: &mut Upstream, words: &[&str]) {
    let mut bytes = Vec::new();
    encode_request(words, &mut bytes);
    let waiting = Waiting::one(Ref::NONE, 0, Kind::Setup, &bytes, upstream.since_ms);
    upstream.push_own(waiting, &bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_begins_with_user_protocol_and_database() {
        let greeting = |db, proto, user, password| {
            let (stream, _) = redline_net::Stream::pair().unwrap();
            let stats = Arc::default();
            let mut upstream = Upstream::new(stream, 0, db, proto, Purpose::Shared, 0, stats);
            introduce(&mut upstream, user, password);
            assert!(upstream.waiting.iter().all(|it| it.kind == Kind::Setup));
            String::from_utf8(upstream.out)
                .unwrap()
                .replace("\r\n", " ")
        };
        assert_eq!(greeting(0, Proto::Resp2, Some("u"), None), "");
        assert_eq!(
            greeting(0, Proto::Resp2, None, Some("p")),
            "*2 $4 AUTH $1 p "
        );
        assert_eq!(
            greeting(7, Proto::Resp3, Some("u"), Some("p")),
            "*3 $4 AUTH $1 u $1 p *2 $5 HELLO $1 3 *2 $6 SELECT $1 7 "
        );
    }
}
