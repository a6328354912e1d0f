//! A worker's connections to servers: making them, finding the shared one, writing to them, ending them. Must not know what
//! requests ask for.

mod lost;

use std::io;
use std::sync::Arc;

use redline_net::tls::ClientTls;
use redline_net::{Endpoint, NetError, connect_endpoint, error_text, is_out_of_descriptors};
use redline_resp::{Proto, encode_request};

use crate::cache::tracking;
use crate::client::Pause;
use crate::errors;
use crate::private::Session;
use crate::report::Report;
use crate::route::{self, NO_NODE, Node, NodeId, Routes};
use crate::seeing::log;
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, State, Upstream, Waiting};
use crate::worker::Worker;
pub(crate) use lost::Loss;

/// Connections to one server that long replies, and calls that wait for nobody, may have for themselves; beyond that others
/// wait behind them.
const DETACHED_MAX: usize = 64;
/// A large request goes on when no more than this waits to be sent.
const PASSING_BYTES: usize = 64 * 1024;
/// No place.
const NONE: u32 = u32::MAX;
/// How long a server is left alone after the first failed attempt, and at most: milliseconds.
const BACKOFF_MS: (u64, u64) = (50, 5_000);
/// Requests that wait for one server and are not answered.
const WAITING_MAX: usize = 256 * 1024;

/// A worker's connections, by server.
#[derive(Default)]
pub struct Links {
    nodes: Vec<NodeLinks>,
}

#[derive(Default)]
struct NodeLinks {
    /// The shared connections: two for each database, one for each protocol.
    shared: Vec<u32>,
    /// Connections that nobody uses: what comes next takes one, be it a client alone or the requests of all.
    idle: Vec<Ref>,
    /// Private connections, and those that nobody uses.
    private: usize,
    /// Connections that get nothing new and are not closed yet.
    detached: usize,
    /// Attempts that failed since the last that did not.
    failures: u32,
    /// No attempt before this time.
    retry_at_ms: u64,
    /// How the last attempt failed.
    reason: String,
}

/// Which of a server's shared connections serves this database and protocol.
#[inline]
fn lane(db: u16, proto: Proto) -> usize {
    usize::from(db) * 2 + usize::from(proto == Proto::Resp3)
}

impl Links {
    /// The shared connection, if there is one.
    #[inline]
    pub fn shared(&self, node: NodeId, db: u16, proto: Proto) -> Option<u32> {
        let at = *self
            .nodes
            .get(usize::from(node))?
            .shared
            .get(lane(db, proto))?;
        (at != NONE).then_some(at)
    }

    fn of(&mut self, node: NodeId) -> &mut NodeLinks {
        let at = usize::from(node);
        if at >= self.nodes.len() {
            self.nodes.resize_with(at + 1, NodeLinks::default);
        }
        &mut self.nodes[at]
    }

    /// Forgets the results of earlier attempts where they do not hold any more.
    fn adopt(&mut self, before: &[Node], now: &[Node]) {
        let links = self.nodes.iter_mut();
        for (links, (before, now)) in links.zip(before.iter().zip(now)) {
            if now.is_another(before) {
                links.forget_failures();
            } else if before.ejected && !now.ejected {
                // A probe was answered: nobody has to wait for the pause after the last attempt. What it was refused for was
                // said, and is said again only if it is something else.
                (links.failures, links.retry_at_ms) = (0, 0);
            }
        }
    }
}

impl NodeLinks {
    fn forget_failures(&mut self) {
        (self.failures, self.retry_at_ms) = (0, 0);
        self.reason.clear();
    }
}

impl Worker {
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
        let place = match self.unused_idle_link(node, DB, proto) {
            Some(place) => place,
            None => self.connect_for(node, DB, proto, Purpose::Shared, false)?,
        };
        if let Some(upstream) = self.upstreams.find(place) {
            upstream.is_lone = true;
        }
        Ok(place.at)
    }

    /// A connection for what is everybody's, of which nobody knows yet.
    fn unused_link(&mut self, node: NodeId, db: u16, proto: Proto) -> Result<Ref, String> {
        match self.unused_idle_link(node, db, proto) {
            Some(place) => Ok(place),
            None => self.connect(node, db, proto, Purpose::Shared),
        }
    }

    /// The same, if there is one that stands.
    fn unused_idle_link(&mut self, node: NodeId, db: u16, proto: Proto) -> Option<Ref> {
        let place = self.idle_link(node, db, proto)?;
        self.links.of(node).private -= 1;
        if let Some(upstream) = self.upstreams.find(place) {
            upstream.purpose = Purpose::Shared;
        }
        Some(place)
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
            return Err(self.unserved(self.home_of(owner)).to_owned());
        }
        let place = match self.idle_link(node, db, proto) {
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
        if let Some(upstream) = self.upstreams.find(place) {
            upstream.owner = Some(owner);
        }
        Ok(place)
    }

    /// A connection that nobody uses, if there is one; nobody else gets it.
    fn idle_link(&mut self, node: NodeId, db: u16, proto: Proto) -> Option<Ref> {
        let links = self.links.nodes.get_mut(usize::from(node))?;
        if links.idle.is_empty() {
            return None;
        }
        let mut idle = std::mem::take(&mut links.idle);
        let found = idle.iter().position(|place| {
            self.upstreams.find(*place).is_some_and(|upstream| {
                upstream.db == db && upstream.proto == proto && !upstream.closed
            })
        });
        let place = found.map(|found| idle.swap_remove(found));
        self.links.of(node).idle = idle;
        place
    }

    /// A private connection is no longer used. One on which something is still due is closed, and so is one too many.
    pub(crate) fn give_back(&mut self, place: Ref, is_clean: bool) {
        let idle_max = self.shared.settings.private_idle_max;
        let Some(upstream) = self.upstreams.find(place) else {
            return;
        };
        upstream.owner = None;
        upstream.passes = false;
        let is_idle = upstream.waiting.is_empty()
            && upstream.out.is_empty()
            && upstream.state == State::Open
            && !upstream.closed;
        let (node, is_retired) = (upstream.node, upstream.retired);
        if is_clean && is_idle && !is_retired && self.links.of(node).idle.len() < idle_max {
            self.links.of(node).idle.push(place);
        } else {
            self.drop_upstream(place.at);
        }
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
        let place = self.upstreams.next_place();
        if let Err(error) = self.watch_upstream(place.at, &upstream.stream) {
            return Err(unavailable(&error_text(&error)));
        }
        upstream.wants_room = true;
        upstream.stats.connects.add(1);
        self.upstreams.put(upstream);
        Ok(place)
    }

    /// An attempt has ended, or its TLS goes on.
    pub(crate) fn connected(&mut self, at: u32) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        let node = upstream.node;
        let routes = &self.routes;
        let pool = usize::from(routes.nodes[usize::from(node)].pool);
        let tls = self.tls.get(pool).and_then(Option::as_ref);
        let stands = match upstream.stream.take_error() {
            Ok(None) => secured(upstream, tls),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match stands {
            Ok(false) => {}
            Ok(true) => {
                upstream.state = State::Greeting;
                let greeted = upstream.greeting == 0;
                self.mark_upstream(at);
                self.want_room(at, false);
                self.enqueue_upstream(at);
                if greeted {
                    self.welcomed(at);
                }
            }
            Err(error) => {
                let reason = error_text(&error);
                self.failed(node, &reason);
                self.lose(at, &reason, Loss::Broken);
            }
        }
    }

    /// The server takes us.
    pub(crate) fn welcomed(&mut self, at: u32) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        upstream.state = State::Open;
        let node = upstream.node;
        if upstream.purpose == Purpose::Tracking {
            self.cache_opens(node);
        }
        self.links.of(node).forget_failures();
        self.mark_upstream(at);
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
    fn failed(&mut self, node: NodeId, reason: &str) {
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

    /// How many requests of clients a server has answered, those of all workers.
    fn answers_of(&self, node: NodeId) -> u64 {
        let server = &self.routes.nodes[usize::from(node)];
        self.shared.seen.answers_of(node, server)
    }

    pub(crate) fn tell(&self, report: Report) {
        if let Some(reports) = &self.shared.reports {
            reports.send(report);
        }
    }

    /// While events gather, so do requests: see [`Upstream::may_linger`].
    pub(crate) fn let_linger(&mut self) {
        self.dirty_upstreams.append(&mut self.lingering);
        if !self.poller.is_gathering() {
            return;
        }
        let (upstreams, lingering) = (&mut self.upstreams, &mut self.lingering);
        self.dirty_upstreams.retain(|at| {
            let lingers = upstreams.get(*at).is_some_and(Upstream::may_linger);
            if lingers {
                lingering.push(*at);
            }
            !lingers
        });
    }

    /// Marks the lingering connections whose replies have all arrived, so that their queued requests are written.
    pub(crate) fn end_lingering(&mut self) {
        let (upstreams, dirty) = (&mut self.upstreams, &mut self.dirty_upstreams);
        self.lingering.retain(|at| {
            let waits = upstreams.get(*at).is_some_and(|it| it.is_under_way());
            if !waits {
                dirty.push(*at);
            }
            waits
        });
    }

    /// Writes to all servers for which something was queued.
    pub(crate) fn write_upstreams(&mut self) {
        while let Some(at) = self.dirty_upstreams.pop() {
            self.write_upstream(at);
        }
    }

    fn write_upstream(&mut self, at: u32) {
        let queue_max = self.shared.settings.upstream_queue_bytes_max;
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        upstream.dirty = false;
        if upstream.state == State::Connecting {
            return;
        }
        let mut full = false;
        if upstream.stream.has_unsent()
            && let Err(error) = upstream.stream.write(&[])
        {
            return self.lose(at, &error_text(&error), Loss::Broken);
        }
        let end = upstream.may_send();
        while upstream.sent < end && !full {
            match upstream.stream.write(&upstream.out[upstream.sent..end]) {
                Ok(Some(written)) => {
                    upstream.stats.sent_bytes.add(written as u64);
                    upstream.sent += written;
                    if upstream.passes {
                        upstream.goes_on(self.now_ms);
                    }
                    full = upstream.sent < end;
                }
                Ok(None) => full = true,
                Err(error) => return self.lose(at, &error_text(&error), Loss::Broken),
            }
        }
        // What is encrypted and not taken by the socket.
        full |= upstream.stream.has_unsent();
        upstream.forget_sent();
        let enough = if upstream.passes {
            PASSING_BYTES
        } else {
            queue_max / 2
        };
        if !upstream.held_back.is_empty()
            && upstream.unanswered() <= enough
            && upstream.waiting.len() <= WAITING_MAX / 2
        {
            let held_back = std::mem::take(&mut upstream.held_back);
            self.let_go(held_back);
        }
        self.want_room(at, full);
    }

    /// Clients may go on that waited for a server.
    fn let_go(&mut self, clients: Vec<Ref>) {
        for client in clients {
            if let Some(found) = self.clients.find(client)
                && found.pause == Pause::Upstream
                && found.go_on()
            {
                self.enqueue(client.at);
            }
        }
    }

    /// Returns true if so much waits for this server that the client must wait, too; it then goes on by itself.
    pub(crate) fn is_full(&mut self, at: u32, client: Ref) -> bool {
        let queue_max = self.shared.settings.upstream_queue_bytes_max;
        let Some(upstream) = self.upstreams.get(at) else {
            return false;
        };
        let full = upstream.unanswered() > queue_max || upstream.waiting.len() > WAITING_MAX;
        if full {
            upstream.held_back.push(client);
        }
        full
    }

    /// Closes a connection on which nobody waits for anything.
    pub(crate) fn drop_upstream(&mut self, at: u32) {
        let Some(mut upstream) = self.upstreams.take(at) else {
            return;
        };
        upstream.stream.close_notify();
        self.forget(at, &mut upstream, "");
        self.let_go(upstream.held_back);
    }

    fn forget(&mut self, at: u32, upstream: &mut Upstream, reason: &str) {
        upstream.stats.closed.add(1);
        if let Some(marks) = &mut upstream.marks {
            self.cache.gone(marks);
        }
        let links = self.links.of(upstream.node);
        links.detached -= usize::from(upstream.retired);
        match upstream.purpose {
            Purpose::Shared => {
                let lane = lane(upstream.db, upstream.proto);
                if links.shared.get(lane) == Some(&at) {
                    links.shared[lane] = NONE;
                }
            }
            Purpose::Private => {
                links.private -= 1;
                links.idle.retain(|place| place.at != at);
            }
            Purpose::Tracking => {
                let has_refused = upstream.state == State::Greeting && !reason.is_empty();
                self.cache_closes(upstream.node, has_refused, reason);
            }
            Purpose::Subscriptions => self.lost_subscriptions(upstream.node, !reason.is_empty()),
        }
    }

    /// There is a new picture: connections that lead elsewhere now get nothing new, those to servers that hang are cut.
    pub(crate) fn adopt(&mut self, fresh: Arc<Routes>) {
        let old = std::mem::replace(&mut self.routes, fresh);
        self.links.adopt(&old.nodes, &self.routes.nodes);
        let pools = old.pools.iter().zip(&self.routes.pools);
        let has_moved: Vec<bool> = pools.map(|(old, new)| !new.has_keys_as(old)).collect();
        for at in self.upstreams.taken().collect::<Vec<_>>() {
            let Some(upstream) = self.upstreams.get(at) else {
                continue;
            };
            let number = usize::from(upstream.node);
            let (node, is_shared) = (upstream.node, upstream.purpose == Purpose::Shared);
            // What is published comes from whoever is there: it is left when another one says it (see `pubsub`).
            let hears = upstream.purpose == Purpose::Subscriptions;
            let now = &self.routes.nodes[number];
            let before = &old.nodes[number];
            let is_another =
                before.is_used && !now.is_used || before.is_readonly != now.is_readonly;
            if now.ejected && !before.ejected {
                self.lose(at, "it does not answer", Loss::Silent);
            } else if now.is_silent && !before.is_silent && is_shared {
                // Others can answer what waits for it.
                self.lose(at, "it does not answer", Loss::Silent);
            } else if now.endpoint != before.endpoint
                || now.pool != before.pool
                || has_tls(&self.routes, now) != has_tls(&old, before)
                || (&now.user, &now.password) != (&before.user, &before.password)
                || is_another && !hears
            {
                self.retire(at, node);
            } else if is_shared && has_moved.get(usize::from(now.pool)) == Some(&true) {
                self.settle(at);
            }
        }
        self.adopt_subscriptions();
        self.cache.adopt(Some(&old), &self.routes);
    }

    /// A long reply comes, or a call that may wait behind no other was queued: it gets the connection for itself, if that is not
    /// one client's alone already. `false`: too many have one.
    pub(crate) fn detach(&mut self, at: u32) -> bool {
        let Some(upstream) = self.upstreams.get(at) else {
            return false;
        };
        if upstream.retired || upstream.purpose == Purpose::Private {
            return true;
        }
        if self.links.of(upstream.node).detached >= DETACHED_MAX {
            return false;
        }
        upstream.may_return = upstream.purpose == Purpose::Shared && !upstream.is_lone;
        self.withdraw(at);
        true
    }

    /// Ends a retired connection: if no request waits for a reply there, it is put by for the next use, or closed. Returns
    /// true if it has ended.
    pub(crate) fn end_retired(&mut self, at: u32) -> bool {
        let settings = &self.shared.settings;
        let (idle_max, private_max) = (settings.private_idle_max, settings.private_max);
        let Some(upstream) = self.upstreams.get(at) else {
            return true;
        };
        if !upstream.retired || upstream.owner.is_some() || !upstream.waiting.is_empty() {
            return false;
        }
        let is_as_new = upstream.may_return
            && upstream.out.is_empty()
            && upstream.partial.is_empty()
            && upstream.state == State::Open
            && !upstream.closed;
        let node = upstream.node;
        let links = self.links.of(node);
        if !is_as_new || links.idle.len() >= idle_max || links.private >= private_max {
            self.drop_upstream(at);
            return true;
        }
        (upstream.retired, upstream.may_return) = (false, false);
        upstream.purpose = Purpose::Private;
        let held_back = std::mem::take(&mut upstream.held_back);
        links.detached -= 1;
        links.private += 1;
        if let Some(place) = self.upstreams.place(at) {
            self.links.of(node).idle.push(place);
        }
        self.let_go(held_back);
        true
    }

    /// New requests go over another connection; this one has an end once it has answered. Who waits for a reply on a shared one
    /// sends nothing more until that has come, so that nobody's requests overtake each other. Who has a private one keeps it
    /// until what it does there has ended.
    pub(crate) fn withdraw(&mut self, at: u32) {
        let Some(upstream) = self.upstreams.get(at).filter(|it| !it.retired) else {
            return;
        };
        let links = self.links.of(upstream.node);
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
        for at in self.upstreams.taken().collect::<Vec<_>>() {
            let upstream = self.upstreams.look(at);
            if upstream.is_some_and(|it| it.purpose == Purpose::Shared && nodes.contains(&it.node))
            {
                self.settle(at);
            }
        }
    }

    /// Whoever waits for a reply on this connection sends nothing more until everything is answered.
    fn settle(&mut self, at: u32) {
        let Some(upstream) = self.upstreams.look(at) else {
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

    fn retire(&mut self, at: u32, node: NodeId) {
        self.withdraw(at);
        if let Some(upstream) = self.upstreams.get(at) {
            upstream.may_return = false;
        }
        let links = self.links.of(node);
        let is_idle = links.idle.iter().any(|place| place.at == at);
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        let unused = upstream.owner.is_none() && upstream.waiting.is_empty()
            || upstream.purpose == Purpose::Tracking;
        if is_idle || unused {
            self.drop_upstream(at);
        }
    }

    /// Looks for attempts and requests that have taken too long.
    pub(crate) fn check_upstreams(&mut self) {
        let settings = &self.shared.settings;
        let (connect_ms, request_ms) = (settings.connect_timeout_ms, settings.request_timeout_ms);
        let now_ms = self.heard_to_ms;
        let mut late = Vec::new();
        for at in self.upstreams.taken().collect::<Vec<_>>() {
            let Some(upstream) = self.upstreams.get(at) else {
                continue;
            };
            let node = upstream.node;
            let owner = upstream.owner.and_then(|owner| self.clients.look(owner.at));
            // A call may wait for as long as it says, and a large request for its client (see `large`), but not for the server.
            let may_wait_ms = match upstream.purpose {
                Purpose::Shared => Some(0),
                Purpose::Private => owner.and_then(|owner| match owner.session {
                    Session::Passing(_) => (owner.pause == Pause::Upstream).then_some(0),
                    _ if owner.waits_in_vain() => owner.waits_ms(),
                    _ => Some(0),
                }),
                Purpose::Subscriptions | Purpose::Tracking => None,
            };
            let limit_ms = may_wait_ms.map(|waits_ms| request_ms.saturating_add(waits_ms));
            let over = match upstream.state {
                State::Connecting | State::Greeting => {
                    now_ms.saturating_sub(upstream.since_ms) > connect_ms
                }
                State::Open => {
                    request_ms > 0
                        && !upstream.rests
                        && upstream.waiting.front().is_some_and(|front| {
                            let waited = (now_ms as u32).wrapping_sub(front.since_ms);
                            limit_ms.is_some_and(|limit_ms| u64::from(waited) > limit_ms)
                                && waited < u32::MAX / 2
                        })
                }
            };
            if over {
                upstream.stats.timed_out.add(1);
                late.push((at, node, upstream.state));
            }
        }
        for (at, node, state) in late {
            if state == State::Connecting {
                self.failed(node, "connection timed out");
            }
            let answers = self.answers_of(node);
            self.tell(Report::TimedOut { node, answers });
            self.lose(at, "it did not answer in time", Loss::Silent);
        }
    }
}

/// Carries the TLS of a connection that stands on, if it is to have any: whether that is done.
fn secured(upstream: &mut Upstream, tls: Option<&ClientTls>) -> io::Result<bool> {
    if let Some(tls) = tls
        && !upstream.stream.is_tls()
    {
        upstream.stream.connect_tls(tls)?;
    }
    let done = upstream.stream.handshake();
    done.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "it closed the connection instead of TLS")
        }
        _ => error,
    })
}

fn net_endpoint(endpoint: &route::Endpoint) -> Endpoint {
    match endpoint {
        route::Endpoint::Tcp(address) => Endpoint::Tcp(*address),
        route::Endpoint::Unix(path) => Endpoint::Unix(path.clone()),
    }
}

fn has_tls(routes: &Routes, node: &Node) -> bool {
    let pool = routes.pools.get(usize::from(node.pool));
    pool.is_some_and(|pool| pool.has_tls)
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
    fn a_server_is_not_left_alone_for_what_another_of_its_number_did() {
        let before = Node::here("a:1", 1);
        let of_other_pool = Node {
            pool: 1,
            ..before.clone()
        };
        for (now, is_kept) in [
            (before.clone(), true),
            (Node::here("b:1", 1), false),
            (Node::here("a:1", 2), false),
            (of_other_pool, false),
        ] {
            let mut links = Links::default();
            let of_node = links.of(0);
            (of_node.failures, of_node.retry_at_ms) = (7, 5_000);
            of_node.reason = "refused".to_owned();
            links.adopt(std::slice::from_ref(&before), std::slice::from_ref(&now));
            let of_node = links.of(0);
            let left = (
                of_node.failures,
                of_node.retry_at_ms,
                of_node.reason.as_str(),
            );
            let expected = if is_kept {
                (7, 5_000, "refused")
            } else {
                (0, 0, "")
            };
            assert_eq!(left, expected, "{now:?}");
        }
    }

    #[test]
    fn a_server_that_is_back_is_tried_at_once_and_named_no_more_for_the_same() {
        let back = Node::here("a:1", 1);
        let ejected = Node {
            ejected: true,
            ..back.clone()
        };
        let mut links = Links::default();
        let of_node = links.of(0);
        (of_node.failures, of_node.retry_at_ms) = (7, 5_000);
        of_node.reason = "refused".to_owned();
        links.adopt(&[ejected], &[back]);
        let of_node = links.of(0);
        assert_eq!((of_node.failures, of_node.retry_at_ms), (0, 0));
        assert_eq!(of_node.reason, "refused");
    }
}
