//! The core as a whole: it takes events, and leaves what is to be sent in the buffers of clients and servers; the shell
//! writes out those in [`Links::dirty`] and [`Clients::dirty`].

use std::sync::Arc;

use redline_resp::RequestLimits;

use crate::cache::Cache;
use crate::class::Command;
use crate::client::Client;
use crate::client_info::ClientInfo;
use crate::clients::Clients;
use crate::connections::{Connections, Loss};
use crate::context::Context;
use crate::gathers::Gathers;
use crate::links::Links;
use crate::observability::{Counters, Recorder};
use crate::replies;
use crate::requests::Requests;
use crate::retry::Retries;
use crate::route::Routes;
use crate::shared::Shared;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::subscriptions::Subscriptions;

/// State of a worker's data path.
pub struct Core<S: Shell> {
    /// Clients, connections to servers, and how both end.
    pub conns: Connections<S>,
    requests: Requests,
}

impl<S: Shell> Core<S> {
    /// Returns the core of the worker with this number, which has no clients; the time is in microseconds.
    pub fn new(
        shell: S,
        shared: Arc<Shared>,
        number: usize,
        routes: Arc<Routes>,
        now_us: u64,
    ) -> Core<S> {
        let commands: Box<[Command]> = redline_spec::table::all()
            .iter()
            .map(|row| shared.names.command(row.id))
            .collect();
        let limits = RequestLimits {
            bulk_bytes_max: shared.settings.bulk_bytes_max,
            big_bulk_bytes_min: usize::MAX,
            ..RequestLimits::default()
        };
        let requests = Requests::new(&commands);
        let ctx = Context {
            number,
            shell,
            clients: Clients::new(),
            links: Links::new(),
            gathers: Gathers::default(),
            cache: Cache::new(shared.names.custom(), shared.workers, &routes),
            commands,
            limits,
            may_put_off: true,
            reads_turn: number as u32,
            now_ms: now_us / 1000,
            heard_to_ms: 0,
            ticks: 1,
            counters: Counters::default(),
            recorder: Recorder::new(&shared.observations, number, now_us),
            monitoring: Vec::new(),
            drains_until_ms: None,
            routes,
            shared,
        };
        Core {
            conns: Connections {
                ctx,
                subscriptions: Subscriptions::default(),
                retries: Retries::default(),
            },
            requests,
        }
    }

    /// Sets the time, in microseconds, that holds until the next call.
    pub fn begin_turn(&mut self, now_us: u64) {
        let ctx = &mut self.conns.ctx;
        ctx.heard_to_ms = ctx.now_ms;
        ctx.now_ms = now_us / 1000;
        ctx.cache.now_ms = ctx.now_ms;
        ctx.recorder.begin_turn(&ctx.shared.observations, now_us);
    }

    /// Ends a turn, after all events were processed: places of closed connections may be reused.
    pub fn end_turn(&mut self) {
        let ctx = &mut self.conns.ctx;
        if ctx.cache.is_on {
            ctx.counters.cache = ctx.cache.counts();
        }
        ctx.counters.responses = ctx.clients.responses;
        ctx.recorder.end_turn(&ctx.counters);
        ctx.clients.end_turn();
        ctx.links.end_turn();
        ctx.gathers.end_turn();
    }

    /// Takes a new client, of a listener whose pool has this number.
    pub fn client_opened(
        &mut self,
        socket: S::ClientSocket,
        info: Arc<ClientInfo>,
        pool: u16,
    ) -> Ref {
        let ctx = &mut self.conns.ctx;
        let place = ctx.clients.next_place();
        let mut client = Client::new(socket, info.id, info);
        client.pool = pool;
        ctx.shared.introduce(&mut client);
        ctx.clients.put(client);
        place
    }

    /// Takes the requests that a client has sent, as far as it may go on, and returns the number of bytes taken. The
    /// rest is passed again, together with later bytes.
    #[inline]
    pub fn client_bytes(&mut self, at: u32, query: &mut [u8]) -> usize {
        self.requests.serve(&mut self.conns, at, query)
    }

    /// Takes the complete replies that a server has sent, and returns the number of bytes taken. An error is the reason
    /// why the connection has to end.
    #[inline]
    pub fn server_bytes(&mut self, at: u32, bytes: &[u8]) -> Result<usize, String> {
        replies::take_replies(&mut self.conns, at, bytes)
    }

    /// Ends a connection to a server that was lost, for this reason.
    pub fn server_lost(&mut self, at: u32, reason: &str, loss: Loss) {
        self.conns.lose(at, reason, loss);
    }
}
