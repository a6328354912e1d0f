//! The state that all parts of the data path work on: clients, connections to servers, the routing table, the time of the turn. Must not
//! know how connections end, nor what a command does.

mod links;
mod routing;

use std::sync::Arc;

use redline_net::{Pipe, Poller};
use redline_resp::RequestLimits;

use crate::cache::Cache;
use crate::class::{Command, Merge};
use crate::client::{Pause, ReplyMode};
use crate::clients::Clients;
use crate::command_docs;
use crate::gathers::Gathers;
use crate::links::Links;
use crate::merge;
use crate::observability::{Counters, Seeing};
use crate::published::PoolsTls;
use crate::report::Report;
use crate::route::{NodeId, Routes};
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};
use crate::worker::Shared;

pub(crate) use links::WAITING_MAX;

/// See the module's text.
pub(crate) struct Context {
    /// The worker's number.
    pub(crate) number: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) routes: Arc<Routes>,
    /// TLS to the servers of each pool.
    pub(crate) tls: PoolsTls,
    pub(crate) poller: Poller,
    pub(crate) clients: Clients,
    pub(crate) links: Links,
    pub(crate) gathers: Gathers,
    pub(crate) cache: Cache,
    /// All commands, by their numbers.
    pub(crate) commands: Box<[Command]>,
    pub(crate) limits: RequestLimits,
    /// The request that is looked at may be looked at again: an inline one may not.
    pub(crate) may_put_off: bool,
    /// Which of several servers reads go to: changes with every client that is served.
    pub(crate) reads_turn: u32,
    /// The time of this turn: milliseconds of the monotonic clock.
    pub(crate) now_ms: u64,
    /// Everything that had arrived by this time has been processed. Servers are late by this time only: one whose answer came
    /// while this process, or its machine, stood still is not.
    pub(crate) heard_to_ms: u64,
    /// How often it has looked after what takes time: once in 100 ms.
    pub(crate) ticks: u32,
    /// Empty pipes, for the next long bulks.
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) counters: Counters,
    pub(crate) seeing: Seeing,
    /// Clients that called MONITOR.
    pub(crate) monitoring: Vec<Ref>,
    /// The end was asked for: clients get what they have asked for until then.
    pub(crate) drains_until_ms: Option<u64>,
}

impl Context {
    /// Returns the client that a request belongs to, and the request's number.
    pub(crate) fn client_of(&mut self, waiting: &Waiting) -> Option<(Ref, u32)> {
        match waiting.kind {
            Kind::Client | Kind::Silent => Some((waiting.to, waiting.seq)),
            Kind::Part => {
                let gather = self.gathers.find(waiting.to)?;
                Some((gather.client, gather.seq))
            }
            Kind::Setup | Kind::Multi | Kind::Unwanted => None,
        }
    }

    /// How many requests of clients a server has answered, those of all workers.
    pub(crate) fn answers_of(&self, node: NodeId) -> u64 {
        let server = &self.routes.nodes[usize::from(node)];
        self.shared.seen.answers_of(node, server)
    }

    pub(crate) fn tell(&self, report: Report) {
        if let Some(reports) = &self.shared.reports {
            reports.send(report);
        }
    }

    /// Answers one request with an error.
    pub(crate) fn fail(&mut self, waiting: Waiting, line: &(impl AsRef<[u8]> + ?Sized)) {
        let reply = [b"-", line.as_ref(), b"\r\n"].concat();
        match waiting.kind {
            Kind::Client => self.clients.deliver(waiting.to, waiting.seq, 1, &reply),
            Kind::Silent => self.clients.deliver(waiting.to, waiting.seq, 1, b""),
            Kind::Part => self.part_done(waiting.to, waiting.seq, &reply),
            Kind::Setup | Kind::Multi | Kind::Unwanted => {}
        }
    }

    /// The client, if it still is there, for which a reply or a part of one comes.
    pub(crate) fn reader_of(&mut self, waiting: &Waiting) -> Option<Ref> {
        let (me, _) = self.client_of(waiting)?;
        self.clients.find(me).map(|_| me)
    }

    /// Returns true if a client's pause is over, by the output it is owed and its unanswered requests.
    pub(crate) fn is_over(&self, pause: Pause, owed: usize, pending: u32) -> bool {
        let settings = &self.shared.settings;
        match pause {
            Pause::No | Pause::Upstream | Pause::Multi | Pause::Time => false,
            Pause::Order => pending == 0,
            Pause::Output => {
                owed < settings.client_output_bytes_high && pending < settings.pipeline_max
            }
        }
    }

    /// A part's reply has come.
    pub(crate) fn part_done(&mut self, gather: Ref, part: u32, reply: &[u8]) {
        let Some(found) = self.gathers.find(gather) else {
            return;
        };
        // Whose client is gone needs no bytes any more, and one for whom there are too many is closed before the turn ends.
        if let Some(client) = self.clients.find(found.client) {
            client.gathered += reply.len();
            let start = found.bytes.len();
            found.bytes.extend_from_slice(reply);
            found.parts[part as usize] = (start, found.bytes.len());
            let at = found.client.at;
            self.clients.mark(at);
        }
        self.one_less(gather);
    }

    /// A part less is missing: if it was the last, the reply is made.
    pub(crate) fn one_less(&mut self, place: Ref) {
        let Some(gather) = self.gathers.one_less(place) else {
            return;
        };
        let us = (self.seeing.now_us as u32).wrapping_sub(gather.since_us);
        self.seeing.record_call(gather.command, us);
        let mut merged = self.gathers.borrow_merged();
        if let Some(client) = self.clients.find(gather.client) {
            client.gathered -= gather.bytes.len();
            if gather.reply_mode == ReplyMode::On {
                merge::merge(&gather, &mut merged);
            }
            if let Merge::Commands(listing) = gather.merge
                && !matches!(merged.first(), None | Some(b'-' | b'!'))
            {
                let names = &self.shared.names;
                let shown = command_docs::rewritten(names, listing, gather.proto, &merged);
                merged = shown.unwrap_or_else(|| merge::MALFORMED.to_vec());
            }
        }
        if merged.first() == Some(&b'-') {
            self.seeing.failed(gather.command);
        }
        self.clients.deliver(gather.client, gather.seq, 1, &merged);
        self.gathers.give_back(*gather, merged);
    }

    /// Hands over what was counted, for whoever asks within this turn.
    pub(crate) fn publish_counters(&mut self) {
        self.counters.cache = self.cache.counts();
        self.counters.responses = self.clients.responses;
        self.seeing.end_turn(&self.counters);
    }

    /// Returns true if the end was asked for.
    pub(crate) fn drains(&self) -> bool {
        self.drains_until_ms.is_some()
    }
}
