//! Requests that a server has refused for a while, and that will be sent again: behind everything that their client has under way,
//! in the order in which it sent them. Must not know which errors pass.
//!
//! Of requests that were under way together some may be refused and later ones be answered: the server had done loading, or a
//! script was known. One of which a later request of the same client has used the same key is not sent again, since it would come
//! too late: its client gets the error.

use std::collections::{HashMap, HashSet};

use redline_resp::{Args, Decoded, Proto, RequestDecoder};
use redline_spec::{self as spec};

use crate::context::Context;
use crate::redirect;
use crate::redirect::{MOVED_ON, TRIES_MAX};
use crate::request::{forwarded, request_len};
use crate::route::{NO_NODE, NodeId};
use crate::script_calls;
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};

/// How long a request waits before the first time it is sent again; twice as long each time: milliseconds.
const PAUSE_MS: u64 = 8;
/// How often requests that wait are looked at where nothing else happens: milliseconds.
pub(crate) const LOOK_MS: u64 = 4;
/// Where more of them than this wait, they are not looked at in every turn, but after that pause, which is a millisecond longer
/// for each thousand: others have something to do meanwhile.
const FEW: usize = 64;

/// A request that will be sent again.
struct Later {
    due_ms: u64,
    waiting: Waiting,
    request: Vec<u8>,
    /// The server that was asked: it is asked again if there is no key to go by.
    node: NodeId,
    db: u16,
    proto: Proto,
    why: Why,
    /// The connection that it came back from.
    from: Ref,
    /// The error that the server sent, without the type's sign and the line's end.
    error: String,
    /// Its keys; none: it may concern all.
    keys: HashSet<Vec<u8>>,
    /// The client that sent the request, and the request's number.
    owner: (Ref, u32),
}

/// Requests that will be sent again.
#[derive(Default)]
pub(crate) struct Retries {
    later: Vec<Later>,
    /// When they are looked at next, if they are many: milliseconds.
    look_ms: u64,
}

/// Why a request is put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server's state will pass.
    Passes,
    /// The server lacks the script.
    Script,
    /// The server that has the slot now is not known yet. What follows in the same slot fares no better, so nothing is
    /// overtaken.
    Moved,
    /// The same, as a script says that may have made it up: who was asked is not asked again.
    Hearsay,
}

/// The keys of a request that was forwarded.
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

/// Returns true if requests with these keys may concern the same ones.
fn meet(one: &HashSet<Vec<u8>>, other: &HashSet<Vec<u8>>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}

impl Retries {
    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.later.is_empty()
    }

    /// Puts a request off that came back from a connection with this error. `true`, for whoever asks whether it is dealt with.
    pub(crate) fn put_off(
        &mut self,
        ctx: &mut Context,
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
        let later = Later {
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
        // One that comes back once more is still in front of what its client sent behind it.
        let is_behind = |other: &Later| {
            let distance = other.owner.1.wrapping_sub(owner.1);
            other.owner.0 == owner.0 && distance < u32::MAX / 2
        };
        let next = match is_first {
            true => None,
            false => self.later.iter().position(is_behind),
        };
        self.later.insert(next.unwrap_or(self.later.len()), later);
        true
    }

    /// The server has answered the next `count` requests of the run `front`, so what it had refused before and has the same
    /// keys comes too late.
    pub(crate) fn overtaken(&mut self, ctx: &mut Context, at: u32, front: Waiting, count: u16) {
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
        for later in std::mem::take(&mut self.later) {
            let owner = ctx.client_of(&later.waiting);
            let is_late = later.from == from
                && !matches!(later.why, Why::Moved | Why::Hearsay)
                && owner.is_some_and(|(client, number)| {
                    // Of those answered, the ones behind it.
                    let behind = last.wrapping_sub(number);
                    let skipped = (number.wrapping_sub(seq) as i32).saturating_add(1).max(0);
                    client == me
                        && behind > 0
                        && behind < u32::MAX / 2
                        && answered
                            .iter()
                            .skip(skipped as usize)
                            .any(|keys| meet(keys, &later.keys))
                });
            match is_late {
                true => late.push(later),
                false => self.later.push(later),
            }
        }
        for later in late {
            self.taken_back(ctx, &later);
            ctx.seeing.lost(&later.waiting, later.node, &later.request);
            ctx.fail(later.waiting, &later.error);
        }
    }

    /// Sends what has waited long enough, each client's in its order, once nothing else of that client is under way.
    pub(crate) fn send_due(&mut self, ctx: &mut Context) {
        if self.later.len() > FEW && ctx.now_ms < self.look_ms {
            return;
        }
        self.look_ms = ctx.now_ms + LOOK_MS + self.later.len() as u64 / 1_000;
        let mut put_off: HashMap<Ref, HashSet<u32>> = HashMap::new();
        let all = std::mem::take(&mut self.later);
        for later in &all {
            if let Some((me, seq)) = ctx.client_of(&later.waiting) {
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
        for later in all {
            let me = ctx.client_of(&later.waiting).map(|(me, _)| me);
            let must_wait = me.is_some_and(|me| blocked.contains(&me));
            if later.due_ms > ctx.now_ms || must_wait {
                blocked.extend(me);
                rest.push(later);
            } else if let Some(later) = self.send_again(ctx, later) {
                blocked.extend(me);
                rest.push(later);
            }
        }
        rest.append(&mut self.later);
        self.later = rest;
    }

    /// Returns it if it has to wait once more.
    fn send_again(&mut self, ctx: &mut Context, later: Later) -> Option<Later> {
        let by_keys = node_of_request(ctx, &later.request, later.node);
        let (node, asking) = match later.why {
            Why::Hearsay if by_keys == later.node => {
                let led_to = redirect::led_to(ctx, later.node, &later.error);
                led_to.unwrap_or((NO_NODE, false))
            }
            Why::Hearsay => (by_keys, false),
            // Who was asked before may have run it.
            _ if later.waiting.tries.was_led() => (later.node, false),
            _ => (by_keys, false),
        };
        let linked = match node {
            NO_NODE if later.why == Why::Hearsay => Err(MOVED_ON.to_owned()),
            NO_NODE => {
                let pool = ctx.routes.nodes[usize::from(later.node)].pool;
                Err(ctx.unserved(pool).to_owned())
            }
            node => ctx.link(node, later.db, later.proto),
        };
        let waiting = Waiting {
            since_ms: ctx.now_ms as u32,
            ..later.waiting
        };
        match linked {
            Ok(to) => {
                self.taken_back(ctx, &later);
                let script = match later.why {
                    Why::Script => script_calls::script_of(ctx, &later.request),
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
                    to.push(waiting, &later.request, &mut ctx.cache);
                }
                ctx.links.mark(to);
                None
            }
            Err(_) if waiting.tries.count() < TRIES_MAX => Some(Later {
                due_ms: ctx.now_ms + (PAUSE_MS << waiting.tries.count().min(6)),
                waiting: Waiting {
                    tries: waiting.tries.and(1),
                    ..waiting
                },
                ..later
            }),
            Err(line) => {
                self.taken_back(ctx, &later);
                ctx.seeing.lost(&waiting, later.node, &later.request);
                ctx.fail(waiting, &line);
                None
            }
        }
    }

    /// It is no longer put off.
    fn taken_back(&mut self, ctx: &mut Context, later: &Later) {
        if let Some((me, _)) = ctx.client_of(&later.waiting)
            && let Some(client) = ctx.clients.find(me)
        {
            client.put_off -= 1;
        }
        if let Some(upstream) = ctx.links.find(later.from) {
            upstream.retries -= 1;
        }
    }
}

/// Where a request goes now: within the pool of who was asked, whose servers know its keys by these names.
fn node_of_request(ctx: &Context, request: &[u8], asked: NodeId) -> NodeId {
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
        // One without keys may concern all.
        assert!(meet(&one, &keys(&["DBSIZE"])));
    }
}
