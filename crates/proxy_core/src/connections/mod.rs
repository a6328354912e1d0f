//! The end of connections, of clients and to servers, and its effects. Must not know the meaning of requests.

mod lost;
#[cfg(test)]
mod tests;

use crate::context::WAITING_MAX;
use crate::shell::{Level, Shell};
use std::sync::Arc;

use crate::client::{Client, Pause};
use crate::context::Context;
use crate::leases;
use crate::leases::Session;
use crate::links;
use crate::links::{NONE, lane};
use crate::observability::monitor;
use crate::report::Report;
use crate::retry::Retries;
use crate::route;
use crate::route::{NodeId, Routes};
use crate::slab::Ref;
use crate::streaming;
use crate::subscriptions::{Subscriptions, moving};
use crate::upstream::{Purpose, State, Upstream};

/// Largest number of unsent bytes with which a large request goes on.
const PASSING_BYTES: usize = 64 * 1024;

/// How a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It broke, or was closed: requests may be sent to the same server again.
    Broken,
    /// The server is silent: it gets no request again.
    Silent,
}

/// All connections of a worker.
pub struct Connections<S: Shell> {
    /// The state that all parts work on.
    pub ctx: Context<S>,
    /// Subscriptions of clients.
    pub(crate) subscriptions: Subscriptions,
    /// Requests that will be sent again.
    pub retries: Retries,
}

impl<S: Shell> Connections<S> {
    /// Gives a private connection back to the pool. One with unanswered requests is closed, and so is one too many.
    pub(crate) fn give_back(&mut self, place: Ref, is_clean: bool) {
        let idle_max = self.ctx.shared.settings.private_idle_max;
        let Some(upstream) = self.ctx.links.find(place) else {
            return;
        };
        upstream.owner = None;
        upstream.passes = false;
        let is_idle = upstream.waiting.is_empty()
            && upstream.out.is_empty()
            && upstream.state == State::Open
            && !upstream.closed;
        let (node, is_retired) = (upstream.node, upstream.retired);
        if is_clean && is_idle && !is_retired && self.ctx.links.of(node).idle.len() < idle_max {
            self.ctx.links.of(node).idle.push(place);
        } else {
            self.drop_upstream(place.at);
        }
    }

    /// Closes a connection without waiting requests.
    pub(crate) fn drop_upstream(&mut self, at: u32) {
        let Some(mut upstream) = self.ctx.links.take(at) else {
            return;
        };
        self.forget(at, &mut upstream, "");
        let Upstream {
            held_back, socket, ..
        } = *upstream;
        self.ctx.shell.close_server(socket);
        self.ctx.clients.let_go(held_back);
    }

    pub(crate) fn forget(&mut self, at: u32, upstream: &mut Upstream<S>, reason: &str) {
        upstream.stats.closed.add(1);
        if let Some(marks) = &mut upstream.marks {
            self.ctx.cache.gone(marks);
        }
        let links = self.ctx.links.of(upstream.node);
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
                self.ctx.cache_closes(upstream.node, has_refused, reason);
            }
            Purpose::Subscriptions => {
                self.subscriptions
                    .lost(&mut self.ctx, upstream.node, !reason.is_empty())
            }
        }
    }

    /// Adopts a new routing table: connections that lead elsewhere now are retired, those to servers that hang closed.
    pub fn adopt(&mut self, fresh: Arc<Routes>) {
        let old = std::mem::replace(&mut self.ctx.routes, fresh);
        self.ctx.links.adopt(&old.nodes, &self.ctx.routes.nodes);
        let pools = old.pools.iter().zip(&self.ctx.routes.pools);
        let has_moved: Vec<bool> = pools.map(|(old, new)| !new.has_keys_as(old)).collect();
        for at in self.ctx.links.taken().collect::<Vec<_>>() {
            let Some(upstream) = self.ctx.links.get(at) else {
                continue;
            };
            let number = usize::from(upstream.node);
            let (node, is_shared) = (upstream.node, upstream.purpose == Purpose::Shared);
            // Any server publishes the messages: it is left when another one has confirmed (see `subscriptions`).
            let hears = upstream.purpose == Purpose::Subscriptions;
            let now = &self.ctx.routes.nodes[number];
            let before = &old.nodes[number];
            let is_another =
                before.is_used && !now.is_used || before.is_readonly != now.is_readonly;
            if now.ejected && !before.ejected {
                self.lose(at, "it does not answer", Loss::Silent);
            } else if now.is_silent && !before.is_silent && is_shared {
                // Other servers can answer its requests.
                self.lose(at, "it does not answer", Loss::Silent);
            } else if now.endpoint != before.endpoint
                || now.pool != before.pool
                || has_tls(&self.ctx.routes, now) != has_tls(&old, before)
                || (&now.user, &now.password) != (&before.user, &before.password)
                || is_another && !hears
            {
                self.retire(at, node);
            } else if is_shared && has_moved.get(usize::from(now.pool)) == Some(&true) {
                self.ctx.settle(at);
            }
        }
        moving::adopt(&mut self.subscriptions, &mut self.ctx);
        self.ctx.cache.adopt(Some(&old), &self.ctx.routes);
    }

    /// Ends a retired connection: if no request waits for a reply there, it is pooled or closed. Returns true if it has
    /// ended.
    pub fn end_retired(&mut self, at: u32) -> bool {
        let settings = &self.ctx.shared.settings;
        let (idle_max, private_max) = (settings.private_idle_max, settings.private_max);
        let links = &mut self.ctx.links;
        let Some(upstream) = links.slab.get(at) else {
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
        let links = links::of(&mut links.nodes, node);
        if !is_as_new || links.idle.len() >= idle_max || links.private >= private_max {
            self.drop_upstream(at);
            return true;
        }
        (upstream.retired, upstream.may_return) = (false, false);
        upstream.purpose = Purpose::Private;
        let held_back = std::mem::take(&mut upstream.held_back);
        links.detached -= 1;
        links.private += 1;
        if let Some(place) = self.ctx.links.place(at) {
            self.ctx.links.of(node).idle.push(place);
        }
        self.ctx.clients.let_go(held_back);
        true
    }

    fn retire(&mut self, at: u32, node: NodeId) {
        self.ctx.withdraw(at);
        if let Some(upstream) = self.ctx.links.get(at) {
            upstream.may_return = false;
        }
        let links = self.ctx.links.of(node);
        let is_idle = links.idle.iter().any(|place| place.at == at);
        let Some(upstream) = self.ctx.links.get(at) else {
            return;
        };
        let unused = upstream.owner.is_none() && upstream.waiting.is_empty()
            || upstream.purpose == Purpose::Tracking;
        if is_idle || unused {
            self.drop_upstream(at);
        }
    }

    /// Closes connections whose attempts or requests have timed out.
    pub fn check_upstreams(&mut self) {
        let settings = &self.ctx.shared.settings;
        let (connect_ms, request_ms) = (settings.connect_timeout_ms, settings.request_timeout_ms);
        let now_ms = self.ctx.heard_to_ms;
        let mut late = Vec::new();
        for at in self.ctx.links.taken().collect::<Vec<_>>() {
            let Some(upstream) = self.ctx.links.get(at) else {
                continue;
            };
            let node = upstream.node;
            let owner = upstream
                .owner
                .and_then(|owner| self.ctx.clients.look(owner.at));
            // A call may wait for its own time-out, and a large request for its client, but not for the server.
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
                self.ctx.failed(node, "connection timed out");
            }
            let answers = self.ctx.answers_of(node);
            self.ctx.tell(Report::TimedOut { node, answers });
            self.lose(at, "it did not answer in time", Loss::Silent);
        }
    }

    /// Closes a client that has exceeded a limit, and logs it.
    pub(crate) fn close_for(&mut self, at: u32, why: &str) {
        if let Some(client) = self.ctx.clients.look(at) {
            self.ctx.shell.log(Level::Warning, || {
                format!("client {} is closed: {why}", client.info.addr)
            });
        }
        self.close_client(at);
    }

    /// Closes a client that has exceeded a limit of unread or undelivered output.
    pub fn close_for_output(&mut self, at: u32, name: &str, limit: usize) {
        self.close_for(
            at,
            &format!("more is held for it than limits.{name} ({limit}) allows"),
        );
    }

    /// Ends a client's connection.
    pub fn close_client(&mut self, at: u32) {
        let Some(me) = self.ctx.clients.place(at) else {
            return;
        };
        let Some(mut client) = self.ctx.clients.take(at) else {
            return;
        };
        self.subscriptions
            .leave_all(&mut self.ctx, me, client.subscribed.take());
        if client.monitors {
            monitor::monitor_no_more(&mut self.ctx, me);
        }
        if let Some(place) = client.feeds.take() {
            streaming::go_on_feeding(&mut self.ctx, place);
        }
        if client.pause == Pause::Time {
            self.ctx.clients.forget_delay(me);
        }
        let session = std::mem::replace(&mut client.session, Session::Shared);
        let Client { socket, info, .. } = *client;
        self.ctx.shell.close_client(socket, &info);
        leases::abandon(self, session);
    }

    /// Handles a write to a client: it is complete, or the socket is full (`is_full`), or the connection is lost.
    /// Returns true if the client is still there.
    #[inline(always)] // of each reply, and called in one place
    pub fn client_written(&mut self, at: u32, is_full: bool, is_lost: bool) -> bool {
        let settings = &self.ctx.shared.settings;
        let Some(client) = self.ctx.clients.get(at) else {
            return false;
        };
        let (limit, output_max) = match client.subscribed.is_some() || client.monitors {
            true => (
                "subscriber-output-buffer",
                settings.subscriber_output_bytes_max,
            ),
            false => ("output-buffer", settings.client_output_bytes_max),
        };
        let owed = client.owed();
        if owed > output_max && !is_lost {
            self.close_for_output(at, limit, output_max);
            return false;
        }
        let done = client.out.is_empty()
            && !is_full
            && (client.closing && client.pending() == 0 || client.eof && client.is_forsaken());
        if is_lost || done {
            self.close_client(at);
            return false;
        }
        let is_spare = client.out.is_empty() && client.out.capacity() > 0;
        let spare = is_spare.then(|| std::mem::take(&mut client.out));
        let feeds = match client.unsent() < settings.client_output_bytes_high / 2 {
            true => client.feeds.take(),
            false => None,
        };
        let (pause, pending) = (client.pause, client.pending());
        if let Some(memory) = spare {
            self.ctx.clients.keep_output(memory);
        }
        if self.ctx.is_over(pause, owed, pending)
            && let Some(client) = self.ctx.clients.get(at)
            && client.go_on()
        {
            leases::calm(self, at);
            self.ctx.clients.enqueue(at);
        }
        if let Some(place) = feeds {
            streaming::go_on_feeding(&mut self.ctx, place);
        }
        true
    }

    /// Handles a write to a server, as far as its socket takes data.
    pub fn server_written(&mut self, at: u32) {
        let queue_max = self.ctx.shared.settings.upstream_queue_bytes_max;
        let Some(upstream) = self.ctx.links.get(at) else {
            return;
        };
        upstream.forget_sent();
        let enough = match upstream.passes {
            true => PASSING_BYTES,
            false => queue_max / 2,
        };
        if !upstream.held_back.is_empty()
            && upstream.unanswered() <= enough
            && upstream.waiting.len() <= WAITING_MAX / 2
        {
            let held_back = std::mem::take(&mut upstream.held_back);
            self.ctx.clients.let_go(held_back);
        }
    }

    /// Handles an established connection to a server: the greeting may be sent.
    pub fn server_connected(&mut self, at: u32) {
        let Some(upstream) = self.ctx.links.get(at) else {
            return;
        };
        upstream.state = State::Greeting;
        let is_greeted = upstream.greeting == 0;
        self.ctx.links.mark(at);
        self.ctx.links.enqueue(at);
        if is_greeted {
            self.ctx.welcomed(at);
        }
    }
}

fn has_tls(routes: &Routes, node: &route::Node) -> bool {
    let pool = routes.pools.get(usize::from(node.pool));
    pool.is_some_and(|pool| pool.has_tls)
}
