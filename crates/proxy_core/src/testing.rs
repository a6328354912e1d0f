//! Support for unit tests: a shell without sockets, with a simulated clock.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use redline_cluster::SLOTS;
use redline_proxy_config::Config;
use redline_resp::{Args, Decoded, RequestDecoder, encode_request};
use redline_spec::CommandId;

use crate::admission::Traffic;
use crate::client::Client;
use crate::client_info::{ClientInfo, PeerAddr};
use crate::command_names::Names;
use crate::connections::{Connections, Loss};
use crate::core::Core;
use crate::observability::Observations;
use crate::report::Report;
use crate::request::forwarded;
use crate::requests::Flow;
use crate::route::{Node, NodeId, Placement, Pool, Routes, Shard};
use crate::scripts::Scripts;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::shell::{ConnectError, Level, Shell};
use crate::slab::Ref;

/// A shell that records the requests to it.
#[derive(Default)]
pub(crate) struct TestShell {
    /// The time of both clocks: microseconds.
    pub(crate) now_us: Cell<u64>,
    /// Servers that cannot be reached, by name.
    pub(crate) unreachable: Vec<String>,
    /// Places of the connections that were begun.
    pub(crate) connected: Vec<u32>,
    /// Number of clients that were closed.
    pub(crate) closed_clients: usize,
    /// Reports to the control side.
    pub(crate) reports: RefCell<Vec<Report>>,
    /// Lines of the log.
    pub(crate) lines: RefCell<Vec<String>>,
}

impl Shell for TestShell {
    type ClientSocket = ();
    type ServerSocket = ();

    fn connect(&mut self, at: u32, node: &Node, _: &Pool) -> Result<(), ConnectError> {
        if self.unreachable.contains(&node.name) {
            return Err(ConnectError {
                reason: "Connection refused".to_owned(),
                is_own: false,
            });
        }
        self.connected.push(at);
        Ok(())
    }

    fn close_client(&mut self, (): (), _: &ClientInfo) {
        self.closed_clients += 1;
    }

    fn close_server(&mut self, (): ()) {}

    fn report(&self, report: Report) {
        self.reports.borrow_mut().push(report);
    }

    fn has_control(&self) -> bool {
        true
    }

    fn log(&self, _: Level, line: impl FnOnce() -> String) {
        self.lines.borrow_mut().push(line());
    }

    fn monotonic_us(&self) -> u64 {
        self.now_us.get()
    }

    fn wall_us(&self) -> u64 {
        self.now_us.get()
    }

    fn command(conns: &mut Connections<Self>, me: Ref, id: CommandId, _: Args<'_>) -> Flow {
        let name = redline_spec::row(id).full_name;
        conns.ctx.clients.status(me, name)
    }

    fn proxy(conns: &mut Connections<Self>, me: Ref, _: Args<'_>) -> Flow {
        conns.ctx.clients.status(me, "proxy")
    }

    fn config_reload(conns: &mut Connections<Self>, me: Ref, _: Args<'_>) -> Flow {
        conns.ctx.clients.status(me, "config reload")
    }
}

/// Calls a function with these words as the arguments of a request.
pub(crate) fn with_args(words: &[&str], then: impl FnOnce(Args<'_>)) {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    encode_request(words.iter().map(|word| word.as_bytes()), &mut bytes);
    let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
    assert!(matches!(decoded, Ok(Decoded::Request { .. })));
    then(Args::new(&bytes, &spans));
}

/// Returns a new client.
pub(crate) fn client() -> Client<TestShell> {
    let addr = PeerAddr::Unix("/".into());
    let info = ClientInfo::new(1, (addr, None), 0, (0, 0));
    Client::new((), 1, Arc::new(info))
}

/// A core whose servers and clients are the test: their bytes are inputs of calls, and its outputs are taken.
pub(crate) struct Proxy {
    pub(crate) core: Core<TestShell>,
    now_us: u64,
    /// Requests of clients that were not taken yet.
    unread: HashMap<u32, Vec<u8>>,
    next_id: u64,
}

/// Returns a pool of so many servers, whose numbers begin at 0.
pub(crate) fn pool(placement: Placement, servers: u16) -> Pool {
    let shard = |primary: NodeId| Shard {
        primary,
        replicas: Vec::new(),
        readers: Vec::new(),
    };
    Pool {
        name: "a".to_owned(),
        shards: (0..servers).map(shard).collect(),
        placement,
        databases: 16,
        spreads_reads: false,
        learned: None,
        keepalive_s: 0,
        caching: None,
        has_tls: false,
    }
}

/// Returns the routing table of a pool, whose servers are `s0:1`, `s1:1` and so on.
pub(crate) fn routes(pool: Pool) -> Routes {
    let servers = 0..pool.shards.len() as u16;
    Routes {
        nodes: servers
            .map(|number| Node::here(&format!("s{number}:1"), 7000 + number))
            .collect(),
        pools: vec![pool],
        prefixes: Arc::default(),
    }
}

/// Returns the slots of a cluster of two nodes: the second has those from the middle on.
pub(crate) fn halves() -> Placement {
    Placement::Slots(Box::new(std::array::from_fn(|slot| {
        u16::from(slot >= SLOTS / 2)
    })))
}

impl Proxy {
    /// Returns a proxy of one server.
    pub(crate) fn of_one() -> Proxy {
        Proxy::new(routes(pool(Placement::One, 1)))
    }

    /// Returns a proxy of a cluster of two nodes.
    pub(crate) fn of_cluster() -> Proxy {
        Proxy::new(routes(pool(halves(), 2)))
    }

    pub(crate) fn new(routes: Routes) -> Proxy {
        let config = Config::default();
        let shared = Shared {
            settings: Settings::of(&config),
            identities: None,
            traffic: Traffic::of(&config),
            names: Names::of(&config.commands),
            cluster_view: None,
            scripts: Scripts::default(),
            port: 7617,
            workers: 1,
            observations: Observations::new(&config, 1),
        };
        let now_us = 1_000_000;
        let shell = TestShell::default();
        let mut core = Core::new(shell, Arc::new(shared), 0, Arc::new(routes), now_us);
        core.begin_turn(now_us);
        Proxy {
            core,
            now_us,
            unread: HashMap::new(),
            next_id: 1,
        }
    }

    /// Advances time: a turn ends, and another one begins.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.core.end_turn();
        self.now_us += ms * 1000;
        self.core.conns.ctx.shell.now_us.set(self.now_us);
        self.core.begin_turn(self.now_us);
        let conns = &mut self.core.conns;
        conns.ctx.clients.release_delayed(conns.ctx.now_ms);
        conns.retries.send_due(&mut conns.ctx);
        self.settle();
    }

    /// Adds a client.
    pub(crate) fn client(&mut self) -> Ref {
        let addr = PeerAddr::Unix("/".into());
        let info = ClientInfo::new(self.next_id, (addr, None), 0, (0, 0));
        self.next_id += 1;
        self.core.client_opened((), Arc::new(info), 0)
    }

    /// Sends these requests of a client in one piece, each of words with spaces between them.
    pub(crate) fn send(&mut self, me: Ref, lines: &[&str]) {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            encode_request(words, &mut bytes);
        }
        self.send_bytes(me, &bytes);
    }

    /// Sends these bytes of a client.
    pub(crate) fn send_bytes(&mut self, me: Ref, bytes: &[u8]) {
        self.unread.entry(me.at).or_default().extend(bytes);
        self.core.conns.ctx.clients.enqueue(me.at);
        self.settle();
    }

    /// Takes the bytes that clients have sent, as long as any of them goes on.
    fn settle(&mut self) {
        for _ in 0..100 {
            while let Some(at) = self.core.conns.ctx.clients.ready.pop_front() {
                let Some(client) = self.core.conns.ctx.clients.get(at) else {
                    continue;
                };
                client.queued = false;
                let mut query = self.unread.remove(&at).unwrap_or_default();
                let taken = self.core.client_bytes(at, &mut query);
                query.drain(..taken);
                self.unread.insert(at, query);
            }
            // Nothing is lost: written bytes stay in `out` until they are taken.
            let dirty = std::mem::take(&mut self.core.conns.ctx.clients.dirty);
            for at in dirty {
                if let Some(client) = self.core.conns.ctx.clients.get(at) {
                    client.dirty = false;
                    let unsent = client.unsent() > 0;
                    self.core.conns.client_written(at, unsent, false);
                }
            }
            if self.core.conns.ctx.clients.ready.is_empty() {
                return;
            }
        }
        panic!("a client is served again and again");
    }

    /// Takes a client's received bytes.
    pub(crate) fn got(&mut self, me: Ref) -> String {
        let conns = &mut self.core.conns;
        let Some(client) = conns.ctx.clients.find(me) else {
            return "(closed)".to_owned();
        };
        let unsent = client.out[client.sent..].to_vec();
        client.advance(unsent.len());
        conns.client_written(me.at, false, false);
        self.settle();
        shown(&unsent)
    }

    /// Returns the shared connection to a server, after establishing it.
    pub(crate) fn link(&mut self, server: NodeId) -> u32 {
        let links = &self.core.conns.ctx.links;
        let at = links.shared(server, 0, redline_resp::Proto::Resp2);
        let at = at.expect("there is a connection");
        self.up(at);
        at
    }

    /// Establishes a connection, if it is not.
    pub(crate) fn up(&mut self, at: u32) {
        let state = self.core.conns.ctx.links.look(at).map(|link| link.state);
        if state == Some(crate::upstream::State::Connecting) {
            self.core.conns.server_connected(at);
        }
    }

    /// Takes the bytes that a server has received over a connection.
    pub(crate) fn sent(&mut self, at: u32) -> String {
        let conns = &mut self.core.conns;
        let link = conns.ctx.links.get(at).expect("there is a connection");
        let end = link.may_send();
        let bytes = link.out[link.sent..end].to_vec();
        link.sent = end;
        conns.server_written(at);
        self.settle();
        shown(&bytes)
    }

    /// Sends these bytes of a server over a connection.
    pub(crate) fn reply(&mut self, at: u32, bytes: &str) {
        let bytes = bytes.replace(' ', "\r\n").replace('_', " ");
        match self.core.server_bytes(at, bytes.as_bytes()) {
            Ok(taken) => assert_eq!(taken, bytes.len(), "{bytes:?}"),
            Err(reason) => self.core.server_lost(at, &reason, Loss::Broken),
        }
        let conns = &mut self.core.conns;
        conns.ctx.settle_marks(at);
        conns.end_retired(at);
        self.settle();
    }

    /// Breaks a connection to a server.
    pub(crate) fn lose(&mut self, at: u32) {
        self.core
            .server_lost(at, "it closed the connection", Loss::Broken);
        self.settle();
    }
}

/// Formats requests and replies in one line: their line ends become spaces, and lengths are left out.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace(' ', "_");
    let lines = text.split("\r\n").filter(|line| !line.is_empty());
    let shown = lines.filter(|line| !line.starts_with('$') || *line == "$-1");
    shown.collect::<Vec<_>>().join(" ")
}
