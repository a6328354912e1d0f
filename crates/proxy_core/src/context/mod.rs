//! The state that all parts of the data path work on: clients, connections to servers, the routing table, the time of
//! the turn. Must not know how connections end, nor the meaning of commands.

mod links;
mod routing;

use std::sync::Arc;

use redline_resp::RequestLimits;

use crate::cache::Cache;
use crate::class::{Command, Merge};
use crate::client::{Pause, ReplyMode};
use crate::clients::Clients;
use crate::gathers::Gathers;
use crate::links::Links;
use crate::observability::{Counters, Recorder};
use crate::report::Report;
use crate::route::{NodeId, Routes};
use crate::shared::Shared;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};
use crate::{command_docs, merge};

pub(crate) use links::WAITING_MAX;

/// State that all parts of the data path work on.
pub struct Context<S: Shell> {
    /// The worker's number.
    pub number: usize,
    /// State that all workers share.
    pub shared: Arc<Shared>,
    /// The routing table.
    pub routes: Arc<Routes>,
    /// The process.
    pub shell: S,
    /// Clients.
    pub clients: Clients<S>,
    /// Connections to servers.
    pub links: Links<S>,
    /// Replies that are made of parts of several servers.
    pub gathers: Gathers,
    /// The cache of hot keys.
    pub cache: Cache,
    /// All commands, by their numbers.
    pub(crate) commands: Box<[Command]>,
    pub(crate) limits: RequestLimits,
    /// The current request may be postponed: an inline one may not.
    pub(crate) may_put_off: bool,
    /// Selects one of several servers for reads: changes with every client that is served.
    pub(crate) reads_turn: u32,
    /// The time of this turn: milliseconds of the monotonic clock.
    pub now_ms: u64,
    /// Everything that had arrived by this time has been processed. Time-outs of servers are measured by it, so that a
    /// stall of this process or its machine does not count.
    pub(crate) heard_to_ms: u64,
    /// Number of ticks: one in 100 ms.
    pub ticks: u32,
    /// Counters of the worker.
    pub counters: Counters,
    /// Records observations of requests and replies.
    pub recorder: Recorder,
    /// Clients that called MONITOR.
    pub(crate) monitoring: Vec<Ref>,
    /// Set if the process is draining: the time until which clients still get their replies.
    pub drains_until_ms: Option<u64>,
}

impl<S: Shell> Context<S> {
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

    /// Returns the number of requests that a server has answered, for all workers.
    pub(crate) fn answers_of(&self, node: NodeId) -> u64 {
        let server = &self.routes.nodes[usize::from(node)];
        self.shared.observations.answers_of(node, server)
    }

    pub(crate) fn tell(&self, report: Report) {
        self.shell.report(report);
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

    /// Returns the client of a reply, or of a part of one, if it is still there.
    pub(crate) fn reader_of(&mut self, waiting: &Waiting) -> Option<Ref> {
        let (me, _) = self.client_of(waiting)?;
        self.clients.find(me).map(|_| me)
    }

    /// Returns true if a client's pause is over, by its unsent output and its unanswered requests.
    pub fn is_over(&self, pause: Pause, owed: usize, pending: u32) -> bool {
        let settings = &self.shared.settings;
        match pause {
            Pause::No | Pause::Upstream | Pause::Multi | Pause::Time => false,
            Pause::Order => pending == 0,
            Pause::Output => {
                owed < settings.client_output_bytes_high && pending < settings.pipeline_max
            }
        }
    }

    /// Takes the reply to a part.
    pub(crate) fn part_done(&mut self, gather: Ref, part: u32, reply: &[u8]) {
        let Some(found) = self.gathers.find(gather) else {
            return;
        };
        // A closed client needs no bytes, and one with too many is closed before the turn ends.
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

    /// Counts one missing part less, and makes the reply after the last.
    pub(crate) fn one_less(&mut self, place: Ref) {
        let Some(gather) = self.gathers.one_less(place) else {
            return;
        };
        let us = (self.recorder.now_us as u32).wrapping_sub(gather.since_us);
        self.recorder.record_call(gather.command, us);
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
            self.recorder.failed(gather.command);
        }
        self.clients.deliver(gather.client, gather.seq, 1, &merged);
        self.gathers.give_back(*gather, merged);
    }

    /// Publishes the counters, for readers within this turn.
    pub fn publish_counters(&mut self) {
        self.counters.cache = self.cache.counts();
        self.counters.responses = self.clients.responses;
        self.recorder.end_turn(&self.counters);
    }

    /// Returns true if the process is draining.
    pub fn drains(&self) -> bool {
        self.drains_until_ms.is_some()
    }
}
