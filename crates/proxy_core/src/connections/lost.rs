//! The requests of a lost connection. Must not know their meaning, beyond whether they write.
//!
//! Unsent requests are sent again, and so are reads; clients of writes that were sent get an error: the outcome is
//! unknown. Where replicas are read from, reads go to another server.

use crate::connections::{Connections, Loss};
use crate::errors;
use crate::leases::{self, Session};
use crate::observability::MIXED;
use crate::replica_reads::{self, READ_TRIES_MAX};
use crate::report::Report;
use crate::request::Requests;
use crate::retry::Why;
use crate::shell::{Level, Shell};
use crate::upstream::{Kind, Purpose, State, Upstream, Waiting};

/// Largest number of attempts of a request whose connection broke.
const TRIES_MAX: u8 = 2;

/// Data that all requests of a lost connection share.
struct Lost<'a, S: Shell> {
    upstream: &'a Upstream<S>,
    loss: Loss,
    /// The error for a request that was not executed, or that changes nothing.
    unavailable: String,
    /// The error for a request that may have been executed.
    outcome_unknown: String,
}

/// One of those requests.
struct Unanswered<'a> {
    waiting: Waiting,
    bytes: &'a [u8],
    writes: bool,
    was_sent: bool,
}

impl<S: Shell> Connections<S> {
    /// Ends a lost connection, for this reason: each waiting request is answered by another server, or with an error.
    pub fn lose(&mut self, at: u32, reason: &str, loss: Loss) {
        let Some(mut upstream) = self.ctx.links.take(at) else {
            return;
        };
        self.forget(at, &mut upstream, reason);
        self.report_loss(&upstream, reason);
        let name = self.ctx.routes.nodes[usize::from(upstream.node)]
            .name
            .clone();
        self.ctx.shell.log(Level::Debug, || {
            format!("a connection to {name} is lost: {reason}")
        });
        let out = std::mem::take(&mut upstream.out);
        let runs = std::mem::take(&mut upstream.waiting);
        let held_back = std::mem::take(&mut upstream.held_back);
        let lost = Lost {
            upstream: &upstream,
            loss,
            unavailable: errors::unavailable(&name, reason),
            outcome_unknown: errors::outcome_unknown(&name, reason),
        };
        let mut commands_of_mixed = upstream
            .mix
            .iter()
            .flat_map(|(command, many)| std::iter::repeat_n(*command, (*many).into()));
        let mut start = upstream.acked;
        for run in runs {
            // Its first reply is passed on in parts, and some were sent.
            let is_half_out = upstream.streaming && start == upstream.acked;
            if upstream.passes && run.kind == Kind::Client {
                self.lose_passing(&lost, run, is_half_out);
                continue;
            }
            let end = start + run.bytes as usize;
            let mut requests = Requests::of(&out[start..end]);
            // Requests at its front may have been answered.
            requests.by_ref().take(run.answered.into()).for_each(drop);
            let mut commands = commands_of_mixed.by_ref().take(match run.command {
                MIXED => run.count.into(),
                _ => 0,
            });
            for (number, (range, writes)) in requests.enumerate() {
                let waiting = Waiting {
                    seq: run.seq.wrapping_add(number as u32),
                    count: 1,
                    answered: 0,
                    tries: run.tries.and(1),
                    since_ms: self.ctx.now_ms as u32,
                    bytes: range.len() as u32,
                    command: commands.next().unwrap_or(run.command),
                    ..run
                };
                if is_half_out && number == 0 {
                    self.lose_half_out(waiting, &lost.unavailable);
                    continue;
                }
                let request = Unanswered {
                    waiting,
                    bytes: &out[start + range.start..start + range.end],
                    writes,
                    was_sent: start + range.start < upstream.sent,
                };
                self.lose_request(&lost, request);
            }
            start = end;
        }
        if let Some(owner) = upstream.owner {
            leases::lost_private(self, owner);
        }
        self.ctx.clients.let_go(held_back);
    }

    /// Reports the loss of the server to the control side.
    fn report_loss(&mut self, upstream: &Upstream<S>, reason: &str) {
        let hears = upstream.purpose == Purpose::Subscriptions;
        match upstream.state {
            // A server may close idle connections.
            State::Open if upstream.waiting.is_empty() && !hears => self.ctx.tell(Report::Lost {
                pool: self.ctx.routes.nodes[usize::from(upstream.node)].pool,
            }),
            State::Open => self.ctx.tell(Report::Failed {
                node: upstream.node,
                answers: self.ctx.answers_of(upstream.node),
            }),
            // It lacks this database, or this protocol: that concerns this connection alone.
            State::Greeting if reason.starts_with("ERR") || reason.starts_with("NOPROTO") => {}
            // Or tracking is not permitted.
            State::Greeting if upstream.purpose == Purpose::Tracking => {}
            // It refuses us: equivalent to being down.
            State::Greeting => self.ctx.failed(upstream.node, reason),
            State::Connecting => {}
        }
    }

    /// Handles the loss of a large request in flight, whose bytes are not kept, or of its reply.
    fn lose_passing(&mut self, lost: &Lost<'_, S>, run: Waiting, is_half_out: bool) {
        if is_half_out {
            if self.ctx.clients.find(run.to).is_some() {
                self.close_client(run.to.at);
            }
            return;
        }
        // An incomplete call was not executed.
        let client = self.ctx.clients.find(run.to);
        let lacks_end = client.is_some_and(|client| matches!(client.session, Session::Passing(_)));
        let line = match lacks_end || lost.upstream.state != State::Open {
            true => &lost.unavailable,
            false => &lost.outcome_unknown,
        };
        self.give_up(lost, run, &[], line);
    }

    /// Handles a reply of which a part was sent: only closing the client can end it. Or the reply was to be dropped.
    fn lose_half_out(&mut self, waiting: Waiting, line: &str) {
        match waiting.kind {
            Kind::Client if self.ctx.clients.find(waiting.to).is_some() => {
                self.close_client(waiting.to.at);
            }
            Kind::Client => {}
            _ => self.ctx.fail(waiting, line),
        }
    }

    /// Sends a request again if that is safe; otherwise its client gets an error.
    fn lose_request(&mut self, lost: &Lost<'_, S>, request: Unanswered<'_>) {
        let Unanswered {
            waiting,
            bytes,
            writes,
            was_sent,
        } = request;
        let &Upstream {
            node, db, proto, ..
        } = lost.upstream;
        let may_move = lost.upstream.purpose == Purpose::Shared && waiting.kind.is_wanted();
        if !writes
            && waiting.tries.count() < READ_TRIES_MAX
            && may_move
            && let Some(other) = replica_reads::other_reader(
                &mut self.ctx,
                bytes,
                node,
                waiting.tries.count() - 1,
                (db, proto),
            )
        {
            return self.queue_again(lost, other, waiting, bytes);
        }
        let may_be_made = was_sent && writes;
        if lost.loss == Loss::Silent
            || waiting.tries.count() >= TRIES_MAX
            || may_be_made
            || !may_move
        {
            let line = match may_be_made {
                true => &lost.outcome_unknown,
                false => &lost.unavailable,
            };
            return self.give_up(lost, waiting, bytes, line);
        }
        let is_lone = lost.upstream.is_lone;
        let linked = match is_lone {
            // The script to end may be running on the shared one.
            true => self.ctx.lone_link(node, proto),
            false => self.ctx.link(node, db, proto),
        };
        match linked {
            Ok(fresh) => {
                self.queue_again(lost, fresh, waiting, bytes);
                if is_lone {
                    self.ctx.detach(fresh);
                }
            }
            Err(line) => self.give_up(lost, waiting, bytes, &line),
        }
    }

    fn queue_again(&mut self, lost: &Lost<'_, S>, at: u32, waiting: Waiting, bytes: &[u8]) {
        let owner = self.ctx.client_of(&waiting).map(|(me, _)| me);
        let client = owner.and_then(|me| self.ctx.clients.find(me));
        if client.is_some_and(|client| client.put_off > 0) {
            // It would overtake requests that wait for a retry.
            let (request, error) = (bytes.to_vec(), lost.unavailable.as_bytes());
            self.retries
                .put_off(&mut self.ctx, at, waiting, request, Why::Passes, error);
            return;
        }
        if let Some(upstream) = self.ctx.links.get(at) {
            upstream.push(waiting, bytes, &mut self.ctx.cache);
        }
        self.ctx.links.mark(at);
    }

    fn give_up(&mut self, lost: &Lost<'_, S>, waiting: Waiting, bytes: &[u8], line: &str) {
        self.ctx.recorder.lost(&waiting, lost.upstream.node, bytes);
        self.ctx.fail(waiting, line);
    }
}
