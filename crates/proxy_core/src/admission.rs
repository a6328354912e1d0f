//! Checks that a call passes before it is routed, for clients to which any of them applies: the user's rate limit, injected
//! faults, copies for another pool. Other clients never come here.

use std::sync::Arc;

use redline_proxy_config::{Config, Excess, Mirrored, ids_of};
use redline_resp::{Args, encode_request};
use redline_spec::{self as spec, CommandId};

use crate::class::{Class, Command, Words};
use crate::client::Client;
use crate::context::Context;
use crate::leases::Session;
use crate::rate_limit::Turn;
use crate::requests::Flow;
use crate::route::NO_NODE;
use crate::shared::Shared;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};

const TOO_OFTEN: &str = "ERR this user asks for more than it may: try again later";
/// Longest wait of a client that has closed its side for unused capacity of its user's rate: milliseconds.
const WAITS_BEHIND_OTHERS_MS_MAX: u64 = 10_000;

/// Injected faults and mirrors that apply to calls.
#[derive(Debug, Default)]
pub struct Traffic {
    faults: Vec<Fault>,
    mirrors: Vec<Mirror>,
}

#[derive(Debug)]
struct Fault {
    /// The affected commands; empty: all.
    commands: Vec<CommandId>,
    key_prefix: Vec<u8>,
    /// Probability, in units of 2^-32.
    chance: u64,
    delay_ms: u64,
    error: Option<String>,
    cut: bool,
}

#[derive(Debug)]
struct Mirror {
    pool: u16,
    from: Option<u16>,
    calls: Mirrored,
    key_prefix: Vec<u8>,
    /// Probability, in units of 2^-32.
    chance: u64,
}

impl Traffic {
    /// Returns the traffic rules of a checked configuration.
    pub fn of(config: &Config) -> Traffic {
        let chance = |percent: f64| (percent / 100.0 * 2f64.powi(32)) as u64;
        let faults = config.faults.iter().map(|fault| Fault {
            commands: fault
                .commands
                .iter()
                .flat_map(|name| ids_of(name))
                .collect(),
            key_prefix: fault.key_prefix.clone().into_bytes(),
            chance: chance(fault.percent),
            delay_ms: fault.delay.0.as_millis() as u64,
            error: fault.error.clone(),
            cut: fault.cut,
        });
        let number = |name: &str| {
            let mut pools = config.pools.iter();
            pools.position(|pool| pool.name == name).unwrap_or(0) as u16
        };
        let mirrors = config.mirrors.iter().map(|mirror| Mirror {
            pool: number(&mirror.pool),
            from: mirror.from.as_deref().map(number),
            calls: mirror.calls,
            key_prefix: mirror.key_prefix.clone().into_bytes(),
            chance: chance(mirror.percent),
        });
        Traffic {
            faults: faults.collect(),
            mirrors: mirrors.collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.mirrors.is_empty()
    }
}

impl Fault {
    fn concerns(&self, id: Option<CommandId>, args: Args<'_>) -> bool {
        let is_named = self.commands.is_empty() || id.is_some_and(|id| self.commands.contains(&id));
        is_named && (self.key_prefix.is_empty() || id.is_some_and(|id| self.has_key(id, args)))
    }

    fn has_key(&self, id: CommandId, args: Args<'_>) -> bool {
        let mut keys = spec::reachable_keys(id, args.len(), |at| &args[at]);
        keys.any(|key| {
            args.get(key.position)
                .is_some_and(|key| key.starts_with(&self.key_prefix))
        })
    }
}

impl Shared {
    /// Sets whether a client's calls are checked one by one.
    pub(crate) fn watch<S: Shell>(&self, client: &mut Client<S>) {
        client.is_watched = client.has_limits || client.rates.is_some() || !self.traffic.is_empty();
    }
}

/// Checks a call before it is made; none: it is made now. A call that is answered here was not made.
pub(crate) fn admit<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    id: Option<CommandId>,
    args: Args<'_>,
    bytes: usize,
) -> Option<Flow> {
    let client = ctx.clients.find(me).filter(|client| client.is_watched)?;
    // A call that has waited for a fault was charged already.
    let waited = client.waited_for.take();
    if waited.is_none()
        && let Some(flow) = ration(ctx, me, bytes)
    {
        return Some(flow);
    }
    let shared = Arc::clone(&ctx.shared);
    for (number, fault) in shared.traffic.faults.iter().enumerate() {
        let has_waited = match waited {
            Some(waited) if number < usize::from(waited) => continue,
            Some(waited) => number == usize::from(waited),
            None => false,
        };
        let is_hit = has_waited || fault.concerns(id, args) && is_drawn(fault.chance);
        if !is_hit {
            continue;
        }
        if !has_waited && fault.delay_ms > 0 && ctx.may_put_off {
            if let Some(client) = ctx.clients.find(me) {
                client.waited_for = Some(number as u16);
            }
            ctx.clients.delay(me, ctx.now_ms + fault.delay_ms);
            return Some(Flow::Again);
        }
        if fault.cut {
            return Some(Flow::Close);
        }
        if let Some(error) = &fault.error {
            return Some(ctx.clients.abort(me, error));
        }
    }
    None
}

/// Charges a call to the rate limits of its client's user; none: it may be made now.
fn ration<S: Shell>(ctx: &mut Context<S>, me: Ref, bytes: usize) -> Option<Flow> {
    let now_ms = ctx.now_ms;
    let may_put_off = ctx.may_put_off;
    let client = ctx.clients.find(me)?;
    let waits_since_ms = client.waits_since_ms.take().unwrap_or(now_ms);
    if let Some(booking) = client.booking.take() {
        booking.redeem();
        return None;
    }
    let rates = client.rates.clone()?;
    let now_us = ctx.shell.monotonic_us();
    if rates.excess == Excess::Refuse || !may_put_off {
        let may_pass = rates.take(bytes, now_us);
        return (!may_pass).then(|| ctx.clients.abort(me, TOO_OFTEN));
    }
    // A peer that has closed its side is most likely gone. Others do not wait behind it: it takes unused capacity.
    let wait_us = if client.peer_closed {
        if rates.take(bytes, now_us) {
            return None;
        }
        if now_ms.saturating_sub(waits_since_ms) > WAITS_BEHIND_OTHERS_MS_MAX {
            return Some(ctx.clients.abort(me, TOO_OFTEN));
        }
        client.waits_since_ms = Some(waits_since_ms);
        rates.empty_for_us(now_us)
    } else {
        match rates.book(bytes, now_us) {
            Turn::Now => return None,
            Turn::Never => return Some(ctx.clients.abort(me, TOO_OFTEN)),
            Turn::Later(booking, wait_us) => {
                client.booking = Some(booking);
                wait_us
            }
        }
    };
    ctx.clients
        .delay(me, now_ms + wait_us.div_ceil(1000).max(1));
    Some(Flow::Again)
}

/// Makes a call on the servers of other pools as well, once for each pool, unless the call goes there anyway. The
/// replies are dropped.
pub(crate) fn mirror<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    command: Command,
    raw: &[u8],
    args: Args<'_>,
) {
    if ctx.shared.traffic.mirrors.is_empty()
        || !matches!(command.class, Class::Key | Class::Keys | Class::Split(_))
    {
        return;
    }
    let is_split = matches!(command.class, Class::Split(_));
    // Its own server, if it is made at all; each key of one that is split has its own.
    let own = match ctx.node_of_keys(me, command.id, args) {
        _ if is_split => None,
        Ok(Some(node)) => Some(ctx.routes.nodes[usize::from(node)].pool),
        _ => return,
    };
    let shared = Arc::clone(&ctx.shared);
    let mut done: Vec<u16> = Vec::new();
    for mirror in &shared.traffic.mirrors {
        let Some(client) = ctx.clients.find(me) else {
            return;
        };
        let is_wanted = match mirror.calls {
            Mirrored::Writes => !command.reads,
            Mirrored::Reads => command.reads,
            Mirrored::All => true,
        };
        let is_from = mirror.from.is_none_or(|from| from == client.pool);
        // Whether a transaction is executed is known at its end.
        let is_plain = matches!(client.session, Session::Shared);
        let is_there = own == Some(mirror.pool) || done.contains(&mirror.pool);
        if !is_wanted || !is_from || !is_plain || is_there || client.pool == mirror.pool {
            continue;
        }
        let first = spec::reachable_keys(command.id, args.len(), |at| &args[at]).next();
        let Some(first) = first.and_then(|key| args.get(key.position)) else {
            continue;
        };
        if first.starts_with(&mirror.key_prefix) && is_drawn(mirror.chance) {
            done.push(mirror.pool);
            copy_to(ctx, me, mirror.pool, command, raw, args);
        }
    }
}

fn copy_to<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    pool: u16,
    command: Command,
    raw: &[u8],
    args: Args<'_>,
) {
    let routes = Arc::clone(&ctx.routes);
    let Class::Split(_) = command.class else {
        let group_of = |key: &[u8]| routes.group_in(pool, key);
        if let Ok(Some(node)) = ctx.node_of_keys_in(pool, command.id, args, group_of) {
            copy(ctx, me, node, raw);
        }
        return;
    };
    // Its keys may be on several servers there, and some of them in that pool anyway.
    let Some(layout) = Words::of(command.id, args.len()) else {
        return;
    };
    let words: Vec<&[u8]> = args.iter().collect();
    let (words, behind) = words.split_at(layout.end);
    let home = ctx.clients.home_of(me);
    let mut parts: Vec<(u32, Vec<&[u8]>)> = Vec::new();
    for part in words[1..].chunks(layout.step) {
        if routes.group_of(home, part[0]) >> 16 == u32::from(pool) {
            continue;
        }
        let group = routes.group_in(pool, part[0]);
        match parts.iter_mut().find(|(known, _)| *known == group) {
            Some((_, words)) => words.extend(part),
            None => parts.push((group, [&words[..1], part].concat())),
        }
    }
    for (group, words) in parts {
        let mut request = Vec::new();
        encode_request([&words[..], behind].concat(), &mut request);
        copy(ctx, me, routes.node_of_group(group), &request);
    }
}

/// Sends a copy. It is dropped if the server is not available or overloaded.
pub(crate) fn copy<S: Shell>(ctx: &mut Context<S>, me: Ref, node: u16, request: &[u8]) {
    let Some(client) = ctx.clients.find(me).filter(|_| node != NO_NODE) else {
        return;
    };
    let (db, proto) = (client.db, client.proto);
    let pool = usize::from(ctx.routes.nodes[usize::from(node)].pool);
    if u32::from(db) >= ctx.routes.pools[pool].databases {
        return;
    }
    let Ok(at) = ctx.link(node, db, proto) else {
        return;
    };
    let queue_max = ctx.shared.settings.upstream_queue_bytes_max;
    let waiting = Waiting::one(Ref::NONE, 0, Kind::Unwanted, request, ctx.now_ms);
    if let Some(upstream) = ctx.links.get(at)
        && upstream.unanswered() <= queue_max
    {
        upstream.push(waiting, request, &mut ctx.cache);
        ctx.links.mark(at);
    }
}

fn is_drawn(chance: u64) -> bool {
    u64::from(fastrand::u32(..)) < chance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_args;

    #[test]
    fn a_fault_concerns_its_commands_and_the_keys_that_begin_so() {
        let fault = |commands: &[CommandId], prefix: &str| Fault {
            commands: commands.to_vec(),
            key_prefix: prefix.as_bytes().to_vec(),
            chance: 1 << 32,
            delay_ms: 0,
            error: None,
            cut: true,
        };
        with_args(&["MGET", "b", "a:1"], |args| {
            let id = Some(CommandId::Mget);
            assert!(fault(&[], "").concerns(id, args));
            assert!(fault(&[], "").concerns(None, args));
            assert!(fault(&[CommandId::Mget], "a:").concerns(id, args));
            assert!(!fault(&[CommandId::Get], "a:").concerns(id, args));
            assert!(!fault(&[], "c:").concerns(id, args));
            // The keys of a command that the table does not have are not known.
            assert!(!fault(&[], "a:").concerns(None, args));
        });
        assert!(is_drawn(1 << 32) && !is_drawn(0));
    }
}
