//! Connections to servers: making them, finding the shared one, retiring them. Must not know the meaning of requests.

use std::sync::Arc;

use redline_resp::{Proto, encode_request};

use crate::cache::tracking;
use crate::context::Context;
use crate::errors;
use crate::links::{NONE, lane, of};
use crate::report::Report;
use crate::route::{NO_NODE, NodeId};
use crate::shell::{ConnectError, Level, Shell};
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, State, Upstream, Waiting};

/// Largest number of connections to one server that are dedicated to long replies and to calls that must not wait;
/// beyond that others wait behind them.
const DETACHED_MAX: usize = 64;
/// Pause after the first failed attempt, and the longest one: milliseconds.
const BACKOFF_MS: (u64, u64) = (50, 5_000);
/// Largest number of unanswered requests for one server.
pub const WAITING_MAX: usize = 256 * 1024;

impl<S: Shell> Context<S> {
    /// Takes note of replies on a connection that need no further handling.
    #[inline]
    pub fn settle_marks(&mut self, at: u32) {
        if !self.cache.is_on {
            return;
        }
        if let Some(upstream) = self.links.get(at)
            && let Some(marks) = &mut upstream.marks
        {
            self.cache.settle(marks);
        }
    }

    /// Notes that a server reports changes from now on.
    fn cache_opens(&mut self, node: NodeId) {
        let server = &self.routes.nodes[usize::from(node)];
        self.cache.opened(node, server.pool);
        self.recorder.node(node, server).caches.set(1);
    }

    /// Notes that a server no longer reports changes, or has refused to.
    pub(crate) fn cache_closes(&mut self, node: NodeId, has_refused: bool, reason: &str) {
        let routes = Arc::clone(&self.routes);
        let server = &routes.nodes[usize::from(node)];
        let is_news = self.cache.closed(node, server.pool, has_refused);
        self.recorder.node(node, server).caches.set(0);
        if is_news && !reason.is_empty() {
            let name = &server.name;
            self.shell.log(Level::Warning, || {
                format!("nothing of {name} is cached until it tells again what changes: {reason}")
            });
        }
    }

    /// Returns the shared connection to a server, made if there is none. The error is the client's error line.
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

    /// Returns a connection with nothing in flight and without other users, now or later: for one call, after which it
    /// goes to [`detach`](Self::detach). The shared connection, if there are too many of these. A busy server refuses
    /// most of a greeting, so a new one only authenticates.
    pub(crate) fn lone_link(&mut self, node: NodeId, proto: Proto) -> Result<u32, String> {
        // The call concerns the server: any database will do, and the first needs no SELECT.
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

    /// Returns an unused connection for shared traffic.
    fn unused_link(&mut self, node: NodeId, db: u16, proto: Proto) -> Result<Ref, String> {
        match self.links.unused_idle_link(node, db, proto) {
            Some(place) => Ok(place),
            None => self.connect(node, db, proto, Purpose::Shared),
        }
    }

    /// Returns a dedicated connection for a client.
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

    /// Returns a new connection; `reads`: read-only calls may use it, if the server takes them.
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
            // A client's number is of its own pool; this is another one, or the pool has fewer now.
            return Err(errors::DB_OUT_OF_RANGE.to_owned());
        }
        let links = self.links.of(node);
        if self.now_ms < links.retry_at_ms {
            return Err(unavailable(&links.reason));
        }
        let place = self.links.next_place();
        let socket = match self.shell.connect(place.at, target, pool) {
            Ok(socket) => socket,
            Err(ConnectError { reason, is_own }) => {
                if !is_own {
                    self.failed(node, &reason);
                }
                return Err(unavailable(&reason));
            }
        };
        let stats = self.recorder.node(node, target);
        let mut upstream = Upstream::new(socket, node, db, proto, purpose, self.now_ms, stats);
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
        upstream.wants_room = true;
        upstream.stats.connects.add(1);
        self.links.put(upstream);
        Ok(place)
    }

    /// Handles the end of a successful greeting.
    pub fn welcomed(&mut self, at: u32) {
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
        self.shell.log(Level::Debug, || {
            format!(
                "a connection to {} stands",
                self.routes.nodes[usize::from(node)].name
            )
        });
        self.tell(Report::Well { node });
    }

    /// Handles a server's error to the greeting: it is logged once, until a greeting succeeds or an attempt fails otherwise.
    pub(crate) fn turned_away(&mut self, node: NodeId, said: &str) {
        if self.links.of(node).reason != said {
            let name = &self.routes.nodes[usize::from(node)].name;
            self.shell.log(Level::Warning, || {
                format!("{name} does not let the proxy in: {said}")
            });
        }
    }

    /// Notes a failed attempt: no other one for a while, longer each time, and not by all workers at once.
    pub fn failed(&mut self, node: NodeId, reason: &str) {
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

    /// Lets requests wait while events are coalesced: see [`Upstream::may_linger`].
    pub fn let_linger(&mut self, is_gathering: bool) {
        let links = &mut self.links;
        links.dirty.append(&mut links.lingering);
        if !is_gathering {
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

    /// Returns true if so much is queued for this server that the client must wait; it then goes on by itself.
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

    /// Dedicates the connection to a long reply, or to a call that may wait behind no other, if it is not one client's
    /// already. Returns `false` if too many are dedicated.
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

    /// Retires a connection: new requests use another one, and it ends once all is answered. Clients with unanswered
    /// requests on a shared one send nothing more until they are answered, so that requests keep their order. The owner
    /// of a private one keeps it until its use has ended.
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

    /// Makes the clients with unanswered requests at these servers settle: their requests may be redirected, and their
    /// next ones certainly are.
    pub(crate) fn settle_all(&mut self, nodes: &[NodeId]) {
        for at in self.links.taken().collect::<Vec<_>>() {
            let upstream = self.links.look(at);
            if upstream.is_some_and(|it| it.purpose == Purpose::Shared && nodes.contains(&it.node))
            {
                self.settle(at);
            }
        }
    }

    /// Makes clients with unanswered requests on this connection send nothing more until everything is answered.
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
}

/// Queues the greeting of every connection: authentication, protocol, database.
fn introduce<S: Shell>(upstream: &mut Upstream<S>, user: Option<&str>, password: Option<&str>) {
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

fn say<S: Shell>(upstream: &mut Upstream<S>, words: &[&str]) {
    let mut bytes = Vec::new();
    encode_request(words, &mut bytes);
    let waiting = Waiting::one(Ref::NONE, 0, Kind::Setup, &bytes, upstream.since_ms);
    upstream.push_own(waiting, &bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestShell;

    #[test]
    fn a_connection_begins_with_user_protocol_and_database() {
        let greeting = |db, proto, user, password| {
            let stats = Arc::default();
            let mut upstream =
                Upstream::<TestShell>::new((), 0, db, proto, Purpose::Shared, 0, stats);
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
