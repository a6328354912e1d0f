//! Requests that a server has refused for a while, and that will be sent again: after all requests in flight of their
//! client, in the order in which it sent them. Must not know which errors are temporary.
//!
//! Of requests in flight together some may be refused and later ones be answered: loading had ended, or a script was
//! known. A request is not sent again if a later request of the same client has used the same key, since it would come
//! too late: its client gets the error.

use std::collections::{HashMap, HashSet};

use redline_resp::{Args, Decoded, Proto, RequestDecoder};
use redline_spec as spec;

use crate::context::Context;
use crate::redirect::{self, MOVED_ON, TRIES_MAX};
use crate::request::{forwarded, request_len};
use crate::route::{NO_NODE, NodeId};
use crate::script_calls;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};

/// Delay before the first retry; doubled each time: milliseconds.
const PAUSE_MS: u64 = 8;
/// Interval between checks of waiting requests on an idle worker: milliseconds.
pub const LOOK_MS: u64 = 4;
/// Largest number of waiting requests that are checked in every turn; more are checked after that pause, which is a
/// millisecond longer for each thousand.
const FEW: usize = 64;

/// A request that will be sent again.
struct Retry {
    due_ms: u64,
    waiting: Waiting,
    request: Vec<u8>,
    /// The server that was asked: the retry goes there if there is no key to route by.
    node: NodeId,
    db: u16,
    proto: Proto,
    why: Why,
    /// The connection that it came back from.
    from: Ref,
    /// The server's error, without the type and the line's end.
    error: String,
    /// Its keys; none: it may concern all.
    keys: HashSet<Vec<u8>>,
    /// The client, and its number of the request.
    owner: (Ref, u32),
}

/// Requests that will be sent again.
#[derive(Default)]
pub struct Retries {
    waiting: Vec<Retry>,
    /// Time of the next check, if there are many: milliseconds.
    look_ms: u64,
}

/// The reason of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server's state is temporary.
    Passes,
    /// The server lacks the script.
    Script,
    /// The server that has the slot now is not known yet. Later requests of the same slot wait as well, so nothing is
    /// overtaken.
    Moved,
    /// The same, from a script that may have made it up: the same server is not asked again.
    Hearsay,
}

impl Retries {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues a request for a retry that came back from a connection with this error. Returns `true`: it is handled.
    pub(crate) fn put_off<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        at: u32,
        waiting: Waiting,
        request: Vec<u8>,
        why: Why,
        error: &[u8],
    ) -> bool {
        let (Some(from), Some(owner)) = (ctx.links.place(at), ctx.client_of(&waiting)) else {
            return true;
        };
        let mut is_first = true;
        if let Some(client) = ctx.clients.find(owner.0) {
            is_first = client.put_off == 0;
            client.put_off += 1;
            client.settle();
        }
        let Some(upstream) = ctx.links.get(at) else {
            return true;
        };
        upstream.retries += 1;
        let pause_ms = match why {
            Why::Script => 0,
            _ => PAUSE_MS << (waiting.tries.count() - 1).min(6),
        };
        let error = String::from_utf8_lossy(error);
        let retry = Retry {
            due_ms: ctx.now_ms + pause_ms,
            waiting,
            keys: keys_of(&request),
            request,
            node: upstream.node,
            db: upstream.db,
            proto: upstream.proto,
            why,
            from,
            error: error.trim_start_matches('-').trim_end().to_owned(),
            owner,
        };
        // A repeated retry still precedes what its client sent later.
        let is_behind = |other: &Retry| {
            let distance = other.owner.1.wrapping_sub(owner.1);
            other.owner.0 == owner.0 && distance < u32::MAX / 2
        };
        let next = match is_first {
            true => None,
            false => self.waiting.iter().position(is_behind),
        };
        self.waiting
            .insert(next.unwrap_or(self.waiting.len()), retry);
        true
    }

    /// Drops requests that have become too late: the server has answered the next `count` requests of the run `front`,
    /// and those that it had refused before have the same keys.
    pub(crate) fn overtaken<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        at: u32,
        front: Waiting,
        count: u16,
    ) {
        let (Some(from), Some((me, seq))) = (ctx.links.place(at), ctx.client_of(&front)) else {
            return;
        };
        if ctx.clients.find(me).is_none_or(|it| it.put_off == 0) {
            return;
        }
        let Some(upstream) = ctx.links.get(at) else {
            return;
        };
        let mut rest = upstream.front_unanswered().unwrap_or_default();
        let mut answered: Vec<HashSet<Vec<u8>>> = Vec::new();
        for _ in 0..count {
            let Some((request, behind)) =
                request_len(rest).and_then(|len| rest.split_at_checked(len))
            else {
                break;
            };
            answered.push(keys_of(request));
            rest = behind;
        }
        let last = seq.wrapping_add(u32::from(count) - 1);
        let mut late = Vec::new();
        for retry in std::mem::take(&mut self.waiting) {
            let owner = ctx.client_of(&retry.waiting);
            let is_late = retry.from == from
                && !matches!(retry.why, Why::Moved | Why::Hearsay)
                && owner.is_some_and(|(client, number)| {
                    // Of those answered, the later ones.
                    let behind = last.wrapping_sub(number);
                    let skipped = (number.wrapping_sub(seq) as i32).saturating_add(1).max(0);
                    client == me
                        && behind > 0
                        && behind < u32::MAX / 2
                        && answered
                            .iter()
                            .skip(skipped as usize)
                            .any(|keys| meet(keys, &retry.keys))
                });
            match is_late {
                true => late.push(retry),
                false => self.waiting.push(retry),
            }
        }
        for retry in late {
            self.taken_back(ctx, &retry);
            ctx.recorder
                .lost(&retry.waiting, retry.node, &retry.request);
            ctx.fail(retry.waiting, &retry.error);
        }
    }

    /// Sends what has waited long enough, each client's in order, once nothing else of that client is in flight.
    pub fn send_due<S: Shell>(&mut self, ctx: &mut Context<S>) {
        if self.waiting.len() > FEW && ctx.now_ms < self.look_ms {
            return;
        }
        self.look_ms = ctx.now_ms + LOOK_MS + self.waiting.len() as u64 / 1_000;
        let mut put_off: HashMap<Ref, HashSet<u32>> = HashMap::new();
        let all = std::mem::take(&mut self.waiting);
        for retry in &all {
            if let Some((me, seq)) = ctx.client_of(&retry.waiting) {
                put_off.entry(me).or_default().insert(seq);
            }
        }
        let mut blocked: HashSet<Ref> = HashSet::new();
        for (&me, numbers) in &put_off {
            let client = ctx.clients.find(me);
            if client.is_some_and(|client| client.under_way() > numbers.len() as u32) {
                blocked.insert(me);
            }
        }
        let mut rest = Vec::with_capacity(all.len());
        for retry in all {
            let me = ctx.client_of(&retry.waiting).map(|(me, _)| me);
            let must_wait = me.is_some_and(|me| blocked.contains(&me));
            if retry.due_ms > ctx.now_ms || must_wait {
                blocked.extend(me);
                rest.push(retry);
            } else if let Some(retry) = self.send_again(ctx, retry) {
                blocked.extend(me);
                rest.push(retry);
            }
        }
        rest.append(&mut self.waiting);
        self.waiting = rest;
    }

    /// Sends a request again; returns it if it has to wait once more.
    fn send_again<S: Shell>(&mut self, ctx: &mut Context<S>, retry: Retry) -> Option<Retry> {
        let by_keys = node_of_request(ctx, &retry.request, retry.node);
        let (node, asking) = match retry.why {
            Why::Hearsay if by_keys == retry.node => {
                let led_to = redirect::led_to(ctx, retry.node, &retry.error);
                led_to.unwrap_or((NO_NODE, false))
            }
            Why::Hearsay => (by_keys, false),
            // The server that was asked before may have run it.
            _ if retry.waiting.tries.was_led() => (retry.node, false),
            _ => (by_keys, false),
        };
        let linked = match node {
            NO_NODE if retry.why == Why::Hearsay => Err(MOVED_ON.to_owned()),
            NO_NODE => {
                let pool = ctx.routes.nodes[usize::from(retry.node)].pool;
                Err(ctx.unserved(pool).to_owned())
            }
            node => ctx.link(node, retry.db, retry.proto),
        };
        let waiting = Waiting {
            since_ms: ctx.now_ms as u32,
            ..retry.waiting
        };
        match linked {
            Ok(to) => {
                self.taken_back(ctx, &retry);
                let script = match retry.why {
                    Why::Script => script_calls::script_of(ctx, &retry.request),
                    _ => None,
                };
                if let Some(to) = ctx.links.get(to) {
                    if let Some(load) = script {
                        to.push_own(
                            Waiting::one(Ref::NONE, 0, Kind::Unwanted, &load, ctx.now_ms),
                            &load,
                        );
                    }
                    if asking {
                        to.push_asking(ctx.now_ms);
                    }
                    to.push(waiting, &retry.request, &mut ctx.cache);
                }
                ctx.links.mark(to);
                None
            }
            Err(_) if waiting.tries.count() < TRIES_MAX => Some(Retry {
                due_ms: ctx.now_ms + (PAUSE_MS << waiting.tries.count().min(6)),
                waiting: Waiting {
                    tries: waiting.tries.and(1),
                    ..waiting
                },
                ..retry
            }),
            Err(line) => {
                self.taken_back(ctx, &retry);
                ctx.recorder.lost(&waiting, retry.node, &retry.request);
                ctx.fail(waiting, &line);
                None
            }
        }
    }

    /// Removes it from the count of its client and connection.
    fn taken_back<S: Shell>(&mut self, ctx: &mut Context<S>, retry: &Retry) {
        if let Some((me, _)) = ctx.client_of(&retry.waiting)
            && let Some(client) = ctx.clients.find(me)
        {
            client.put_off -= 1;
        }
        if let Some(upstream) = ctx.links.find(retry.from) {
            upstream.retries -= 1;
        }
    }
}

/// Returns the server of a request: within the pool of the one that was asked, whose servers know its keys by these names.
fn node_of_request<S: Shell>(ctx: &Context<S>, request: &[u8], asked: NodeId) -> NodeId {
    let (mut bytes, mut spans) = (request.to_vec(), Vec::new());
    let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
    if !matches!(decoded, Ok(Decoded::Request { .. })) {
        return asked;
    }
    let args = Args::new(&bytes, &spans);
    let pool = ctx.routes.nodes[usize::from(asked)].pool;
    let group_of = |key: &[u8]| ctx.routes.group_in(pool, key);
    match spec::resolve(&args[0], args.get(1)) {
        Ok(id) => match ctx.node_of_keys_in(pool, id, args, group_of) {
            Ok(node) => node.unwrap_or(asked),
            Err(_) => NO_NODE,
        },
        Err(_) => asked,
    }
}

/// Returns the keys of a request that was forwarded.
fn keys_of(request: &[u8]) -> HashSet<Vec<u8>> {
    let (mut bytes, mut spans) = (request.to_vec(), Vec::new());
    let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
    if !matches!(decoded, Ok(Decoded::Request { .. })) {
        return HashSet::new();
    }
    let args = Args::new(&bytes, &spans);
    let Ok(id) = spec::resolve(&args[0], args.get(1)) else {
        return HashSet::new();
    };
    spec::reachable_keys(id, args.len(), |at| &args[at])
        .filter_map(|key| args.get(key.position))
        .map(<[u8]>::to_vec)
        .collect()
}

/// Returns true if requests with these keys may concern a common key.
fn meet(one: &HashSet<Vec<u8>>, other: &HashSet<Vec<u8>>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}

#[cfg(test)]
mod tests {
    use redline_resp::encode_request;

    use super::*;

    #[test]
    fn requests_meet_if_they_may_concern_the_same_key() {
        let keys = |words: &[&str]| {
            let mut bytes = Vec::new();
            encode_request(words.iter().map(|word| word.as_bytes()), &mut bytes);
            keys_of(&bytes)
        };
        let (one, both, other) = (
            keys(&["GET", "a"]),
            keys(&["MGET", "b", "a"]),
            keys(&["SET", "c", "a"]),
        );
        assert!(meet(&one, &both) && !meet(&one, &other) && !meet(&both, &other));
        // A request without keys may concern all.
        assert!(meet(&one, &keys(&["DBSIZE"])));
    }
}
