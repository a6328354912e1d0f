//! Errors by which a server says that it is not the one, or not yet: the request goes elsewhere, or again a little later.
//! Must not know what requests ask for.
//!
//! MOVED changes the worker's own picture at once and is reported, so that the control side asks for the whole map; ASK concerns
//! one request, which goes behind ASKING. Where the target is not known yet, and for errors that pass by themselves, the
//! request waits a little and is routed anew; meanwhile nothing more is taken from its client, whose later requests must not
//! overtake it.

use std::sync::Arc;

use redline_cluster::Redirect;
use redline_net::Endpoint;
use redline_resp::{Args, Decoded, RequestDecoder, encode_request};
use redline_spec as spec;

use crate::client::Pause;
use crate::errors;
use crate::link::{Requests, forwarded};
use crate::private::Session;
use crate::report::Report;
use crate::route::{NOBODY, NodeId, Placement, Shard};
use crate::upstream::{Kind, Purpose, Waiting};
use crate::worker::Worker;

/// How often one request is sent on, or again.
const TRIES_MAX: u8 = 8;
/// How long it waits before the first time it is sent again; twice as long each time: milliseconds.
const PAUSE_MS: u64 = 8;

/// A request that will be sent again.
pub struct Later {
    due_ms: u64,
    waiting: Waiting,
    request: Vec<u8>,
    /// Who was asked: it is asked again if there is no key to go by.
    node: NodeId,
    db: u16,
    resp3: bool,
}

/// What an error asks for.
#[derive(Debug, PartialEq, Eq)]
enum Advice {
    Moved(Redirect),
    Ask(Redirect),
    /// It will pass.
    Wait,
    /// The server lacks the script.
    Script,
}

fn advice(reply: &[u8]) -> Option<Advice> {
    // The commonest errors are none of these.
    if !matches!(
        reply.get(1)?,
        b'M' | b'A' | b'T' | b'C' | b'L' | b'R' | b'N'
    ) {
        return None;
    }
    let text = std::str::from_utf8(reply)
        .ok()?
        .trim_end()
        .strip_prefix('-')?;
    let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
    match code {
        "MOVED" => Redirect::parse(rest).map(Advice::Moved),
        "ASK" => Redirect::parse(rest).map(Advice::Ask),
        "NOSCRIPT" => Some(Advice::Script),
        "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "READONLY" | "MASTERDOWN" => Some(Advice::Wait),
        _ => None,
    }
}

impl Worker {
    /// Looks at an error for the request `one`, the first that the server has not answered. `true`: the request has gone
    /// elsewhere, or will, and the error is nobody's business.
    pub(crate) fn redirected(&mut self, at: u32, one: Waiting, reply: &[u8]) -> bool {
        let Some(advice) = advice(reply) else {
            return false;
        };
        let Some(upstream) = self.upstreams.get(at) else {
            return false;
        };
        let (node, db, proto, purpose) =
            (upstream.node, upstream.db, upstream.proto, upstream.purpose);
        if upstream.passes {
            if let Advice::Moved(redirect) = &advice {
                self.moved(node, redirect);
            }
            // It is gone: only the client has it.
            self.fail(
                one,
                "TRYAGAIN the server has changed while a large request was on its way",
            );
            return true;
        }
        let run = &upstream.out[upstream.acked..upstream.acked + one.bytes as usize];
        let mut requests = Requests::of(run);
        let Some((range, _)) = requests.nth(one.answered.into()) else {
            return false;
        };
        let request = run[range].to_vec();
        if advice == Advice::Wait && is_script(&request) {
            // It may be the script's own word, and the script may have written.
            return false;
        }
        if advice == Advice::Script {
            return self.give_script(at, one, &request);
        }
        let (target, asking) = match &advice {
            Advice::Wait | Advice::Script => (None, false),
            Advice::Moved(redirect) => (self.moved(node, redirect), false),
            Advice::Ask(redirect) => (self.find(node, redirect), true),
        };
        if matches!(advice, Advice::Wait) {
            self.tell(Report::Lost {
                pool: self.routes.nodes[usize::from(node)].pool,
            });
        }
        if one.tries >= TRIES_MAX {
            return false;
        }
        let again = Waiting {
            count: 1,
            answered: 0,
            bytes: request.len() as u32,
            tries: one.tries + 1,
            ..one
        };
        if purpose == Purpose::Private {
            return self.redirect_private(again, target, asking, &request);
        }
        let linked = target.and_then(|target| self.link(target, db, proto).ok());
        // What it asks next must not come in front of what is still to be sent on.
        if let Some(client) = self.clients.find(again.to)
            && again.kind != Kind::Part
            && client.pause == Pause::No
        {
            client.pause = Pause::Order;
        }
        let Some(to) = linked else {
            self.later.push(Later {
                due_ms: self.now_ms + (PAUSE_MS << one.tries.min(6)),
                waiting: again,
                request,
                node,
                db,
                resp3: proto == redline_resp::Proto::Resp3,
            });
            return true;
        };
        if let Some(to) = self.upstreams.get(to) {
            if asking {
                to.push_asking(again.since_ms.into());
            }
            to.push(again, &request);
        }
        self.mark_upstream(to);
        true
    }

    /// Gives the server the script that it lacks, and the call again.
    fn give_script(&mut self, at: u32, one: Waiting, request: &[u8]) -> bool {
        let (mut bytes, mut spans) = (request.to_vec(), Vec::new());
        let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
        if one.tries >= TRIES_MAX || !matches!(decoded, Ok(Decoded::Request { .. })) {
            return false;
        }
        let args = Args::new(&bytes, &spans);
        let is_call = ["EVALSHA", "EVALSHA_RO"]
            .iter()
            .any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
        let body = args
            .get(1)
            .filter(|_| is_call)
            .and_then(|name| self.shared.scripts.find(name));
        let (Some(body), Some(upstream)) = (body, self.upstreams.get(at)) else {
            return false;
        };
        if upstream.purpose != Purpose::Shared {
            return false;
        }
        let mut load = Vec::new();
        encode_request([b"SCRIPT", &b"LOAD"[..], &body], &mut load);
        let again = Waiting {
            count: 1,
            answered: 0,
            bytes: request.len() as u32,
            tries: one.tries + TRIES_MAX / 2,
            ..one
        };
        let loading = Waiting {
            kind: Kind::Nobody,
            bytes: load.len() as u32,
            ..again
        };
        upstream.push(loading, &load);
        upstream.push(again, request);
        self.mark_upstream(at);
        true
    }

    /// Of private connections only a blocking call that stands alone can go elsewhere; a transaction has to begin anew.
    fn redirect_private(
        &mut self,
        again: Waiting,
        target: Option<NodeId>,
        asking: bool,
        request: &[u8],
    ) -> bool {
        let alone = self
            .clients
            .find(again.to)
            .is_some_and(|client| client.pending() == 1);
        let is_exec = request.ends_with(b"\r\nEXEC\r\n") || request.ends_with(b"\r\nexec\r\n");
        let Some(target) = target.filter(|_| alone && !is_exec) else {
            return false;
        };
        let Some(client) = self.clients.find(again.to) else {
            return false;
        };
        if !matches!(client.session, Session::Leaving(_)) {
            return false;
        }
        self.move_lease(again, target, asking, request)
    }

    /// Takes up what MOVED says, and finds the node.
    pub(crate) fn moved(&mut self, from: NodeId, redirect: &Redirect) -> Option<NodeId> {
        let of_pool = self.routes.nodes[usize::from(from)].pool;
        self.tell(Report::Moved {
            pool: of_pool,
            slot: redirect.slot,
            node: from,
            host: redirect.host.clone().unwrap_or_default(),
            port: redirect.port,
        });
        let target = self.find(from, redirect)?;
        let routes = Arc::make_mut(&mut self.routes);
        let pool = &mut routes.pools[usize::from(of_pool)];
        let Placement::Slots(slots) = &mut pool.placement else {
            return Some(target);
        };
        let shard = pool
            .shards
            .iter()
            .position(|shard| shard.primary == target || shard.replicas.contains(&target))
            .unwrap_or_else(|| {
                pool.shards.push(Shard {
                    primary: target,
                    replicas: Vec::new(),
                    readers: Vec::new(),
                });
                pool.shards.len() - 1
            });
        // A replica that takes writes now: its shard is still one.
        let promoted = &mut pool.shards[shard];
        if promoted.primary != target {
            promoted.replicas.retain(|replica| *replica != target);
            promoted.primary = target;
        }
        slots[usize::from(redirect.slot)] = shard as u16;
        Some(target)
    }

    /// The node that a redirect names.
    fn find(&self, from: NodeId, redirect: &Redirect) -> Option<NodeId> {
        let host = match &redirect.host {
            Some(host) => host.clone(),
            None => match &self.routes.nodes[usize::from(from)].endpoint {
                Endpoint::Tcp(address) => address.ip().to_string(),
                Endpoint::Unix(_) => return None,
            },
        };
        let is_target = |name: &str| {
            name.rsplit_once(':').is_some_and(|(known, port)| {
                known.trim_start_matches('[').trim_end_matches(']') == host
                    && port.parse() == Ok(redirect.port)
            })
        };
        let at_endpoint = |endpoint: &Endpoint| match endpoint {
            Endpoint::Tcp(address) => {
                address.port() == redirect.port && address.ip().to_string() == host
            }
            Endpoint::Unix(_) => false,
        };
        let pool = self.routes.nodes[usize::from(from)].pool;
        let found = self.routes.nodes.iter().position(|node| {
            node.pool == pool && (is_target(&node.name) || at_endpoint(&node.endpoint))
        });
        if found.is_none() {
            self.tell(Report::Unknown {
                pool,
                host,
                port: redirect.port,
            });
        }
        found.map(|found| found as NodeId)
    }

    /// Sends what has waited long enough.
    pub(crate) fn send_later(&mut self) {
        let (due, rest): (Vec<Later>, Vec<Later>) = std::mem::take(&mut self.later)
            .into_iter()
            .partition(|later| later.due_ms <= self.now_ms);
        self.later = rest;
        for later in due {
            let waiting = Waiting {
                since_ms: self.now_ms as u32,
                ..later.waiting
            };
            let proto = match later.resp3 {
                true => redline_resp::Proto::Resp3,
                false => redline_resp::Proto::Resp2,
            };
            let linked = match self.node_of_request(&later.request, later.node) {
                NOBODY => Err(errors::CLUSTER_DOWN.to_owned()),
                node => self.link(node, later.db, proto),
            };
            match linked {
                Ok(to) => {
                    if let Some(to) = self.upstreams.get(to) {
                        to.push(waiting, &later.request);
                    }
                    self.mark_upstream(to);
                }
                Err(_) if waiting.tries < TRIES_MAX => self.later.push(Later {
                    due_ms: self.now_ms + (PAUSE_MS << waiting.tries.min(6)),
                    waiting: Waiting {
                        tries: waiting.tries + 1,
                        ..waiting
                    },
                    ..later
                }),
                Err(line) => self.fail(waiting, &line),
            }
        }
    }

    /// Where a request goes now: within the pool of who was asked, whose servers know its keys by these names.
    fn node_of_request(&self, request: &[u8], asked: NodeId) -> NodeId {
        let (mut bytes, mut spans) = (request.to_vec(), Vec::new());
        let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
        if !matches!(decoded, Ok(Decoded::Request { .. })) {
            return asked;
        }
        let args = Args::new(&bytes, &spans);
        let pool = self.routes.nodes[usize::from(asked)].pool;
        let group_of = |key: &[u8]| self.routes.group_in(pool, key);
        match spec::resolve(&args[0], args.get(1)) {
            Ok(id) => match self.node_of_keys_in(pool, id, args, group_of) {
                Ok(node) => node.unwrap_or(asked),
                Err(_) => NOBODY,
            },
            Err(_) => asked,
        }
    }
}

/// Whether a request runs something that may write and say what it likes.
fn is_script(request: &[u8]) -> bool {
    let name = request
        .split(|byte| *byte == b'\n')
        .nth(2)
        .unwrap_or_default();
    [&b"EVAL\r"[..], b"EVALSHA\r", b"FCALL\r"]
        .iter()
        .any(|script| name.eq_ignore_ascii_case(script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_ask_for_something_are_told_from_others() {
        let redirect = || Redirect {
            slot: 7,
            host: Some("h".to_owned()),
            port: 1,
        };
        assert_eq!(advice(b"-MOVED 7 h:1\r\n"), Some(Advice::Moved(redirect())));
        assert_eq!(advice(b"-ASK 7 h:1\r\n"), Some(Advice::Ask(redirect())));
        assert_eq!(
            advice(b"-LOADING Redis is loading the dataset in memory\r\n"),
            Some(Advice::Wait)
        );
        for other in [
            &b"-ERR x\r\n"[..],
            b"-MOVED x\r\n",
            b"-LOADINGX y\r\n",
            b"-\r\n",
        ] {
            assert_eq!(advice(other), None);
        }
    }
}
