//! GET that is answered from the cache, and the connections over which servers say which keys have changed. Must not know when a
//! value may be kept.

use std::sync::Arc;

use redline_resp::Proto;
use redline_spec::CommandId;

use crate::cache::{Cache, Due};
use crate::client::ReplyMode;
use crate::link::Loss;
use crate::private::Session;
use crate::route::NodeId;
use crate::seeing::log;
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, State, Waiting};
use crate::worker::Worker;

impl Worker {
    /// Returns true if the value of this key of a client of the pool `home` may be cached.
    #[inline]
    pub(crate) fn is_cached(&self, home: u16, key: &[u8]) -> bool {
        let prefixes = &self.routes.prefixes;
        let (number, key) = match prefixes.is_empty() {
            true => (home, key),
            false => prefixes.find(home, key),
        };
        self.cache.covers(number, key)
    }

    /// Answers GET from the cache; returns true if it did.
    #[inline]
    pub(crate) fn answer_from_cache(&mut self, me: Ref, key: &[u8]) -> bool {
        let Some(client) = self.clients.find(me) else {
            return false;
        };
        if !matches!(client.session, Session::Shared)
            || client.reply_mode != ReplyMode::On
            || client.put_off > 0
        {
            return false;
        }
        let (home, db, proto) = (client.pool, client.db, client.proto);
        let prefixes = &self.routes.prefixes;
        let (number, key) = match prefixes.is_empty() {
            true => (home, key),
            false => prefixes.find(home, key),
        };
        let unanswered = (client.head, client.next);
        let asked = &mut client.asked;
        let Some(lent) = self.cache.look_up((number, db), key, asked, unanswered) else {
            return false;
        };
        let request = client.number();
        client.last = Some(CommandId::Get);
        self.seeing.hit(me, CommandId::Get, key, lent.node);
        let reply = match (lent.is_null, proto) {
            (false, _) => lent.reply(),
            (true, Proto::Resp2) => b"$-1\r\n",
            (true, Proto::Resp3) => b"_\r\n",
        };
        self.deliver(me, request, 1, reply);
        self.cache.take_back(lent);
        true
    }

    /// Replies came on a connection that nobody looked at.
    #[inline]
    pub(crate) fn settle_marks(&mut self, at: u32) {
        if !self.cache.is_on {
            return;
        }
        if let Some(upstream) = self.upstreams.get(at)
            && let Some(marks) = &mut upstream.marks
        {
            self.cache.settle(marks);
        }
    }

    /// Sees to it that the primaries of pools with a cache tell what changes, and that nobody else does.
    pub(crate) fn tend_cache(&mut self) {
        if !self.cache.is_on {
            return;
        }
        let wanted = Cache::wanted(&self.routes);
        for place in self.cache.unwanted(&wanted) {
            if self.upstreams.find(place).is_some() {
                self.drop_upstream(place.at);
            }
        }
        wanted.into_iter().for_each(|node| self.tend_link(node));
        self.cache.sweep();
    }

    fn tend_link(&mut self, node: NodeId) {
        match self.cache.due(node) {
            Due::Nothing => {}
            // One that cannot be reached is left alone for a while by `connect` itself.
            Due::Connect => {
                if let Ok(place) = self.connect(node, 0, Proto::Resp3, Purpose::Tracking) {
                    self.cache.connects(node, place);
                }
            }
            Due::Ask(place) => {
                const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
                let upstream = self.upstreams.find(place);
                if let Some(upstream) = upstream.filter(|it| it.state == State::Open) {
                    let waiting = Waiting::one(Ref::NONE, 0, Kind::Unwanted, PING, self.now_ms);
                    upstream.push_own(waiting, PING);
                    self.mark_upstream(place.at);
                }
            }
            Due::GiveUp(place) => {
                if self.upstreams.find(place).is_some() {
                    self.lose(place.at, "it does not answer", Loss::Silent);
                }
            }
        }
    }

    /// A server will tell from now on what changes.
    pub(crate) fn cache_opens(&mut self, node: NodeId) {
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

    /// A server says which keys have changed.
    pub(crate) fn invalidated(&mut self, node: NodeId, frame: &[u8]) {
        let pool = self.routes.nodes[usize::from(node)].pool;
        self.cache.invalidated(pool, frame);
    }
}
