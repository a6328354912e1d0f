//! The server for a call that only reads: one of the readers of its keys' shard in the routing table, by weight. Must
//! not know how readers are chosen.
//!
//! A choice holds for all requests that one client has sent in one piece, so consecutive calls still go to one server in
//! one piece. While a write of a client is not answered, its reads go to the primary, which answers in order: a pipeline
//! reads its own writes. After the reply to a write, a replica may not have it yet.

use redline_resp::{Args, Decoded, RequestDecoder};
use redline_spec::{self as spec, CommandId};

use crate::context::Context;
use crate::request::forwarded;
use crate::route::{NO_NODE, NodeId, Reader, Shard};
use crate::shell::Shell;
use crate::slab::Ref;

/// Largest number of attempts of a read whose connections broke.
pub(crate) const READ_TRIES_MAX: u8 = 3;

/// Returns the server for the keys of a group, in a pool that spreads reads. [`NO_NODE`] if none is known.
pub(crate) fn node_for<S: Shell>(ctx: &mut Context<S>, me: Ref, reads: bool, group: u32) -> NodeId {
    let Some(client) = ctx.clients.find(me) else {
        return NO_NODE;
    };
    let (db, proto) = (client.db, client.proto);
    if !reads {
        client.wrote = client.next;
        return ctx.routes.node_of_group(group);
    }
    let must_see = client.has_unanswered_write();
    let Some(shard) = ctx.routes.shard_of_group(group) else {
        return NO_NODE;
    };
    if must_see {
        return shard.primary;
    }
    // Some readers have no weight, for when no other answers.
    let first = pick(&shard.readers, ctx.reads_turn).unwrap_or(shard.primary);
    if first == shard.primary && shard.readers.is_empty() {
        return first;
    }
    if ctx.links.shared(first, db, proto).is_some() {
        return first;
    }
    // An unreachable server that the routing table does not know of yet is skipped.
    let shard = shard.clone();
    let rest = shard.readers.iter().map(|reader| reader.node);
    let mut candidates = std::iter::once(first).chain(rest.filter(|&node| node != first));
    candidates
        .find(|&node| ctx.link(node, db, proto).is_ok())
        .unwrap_or(shard.primary)
}

/// Returns the server for a call whose keys are on the server `primary`.
pub(crate) fn reader<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    id: CommandId,
    args: Args<'_>,
    primary: NodeId,
) -> NodeId {
    let home = ctx.clients.home_of(me);
    if !ctx.routes.spreads_reads(home) || !ctx.commands[id as usize].reads {
        return primary;
    }
    let first = spec::reachable_keys(id, args.len(), |at| &args[at]).next();
    match first.and_then(|key| args.get(key.position)) {
        Some(key) => {
            let group = ctx.routes.group_of(home, key);
            match ctx.routes.pool_of(group).spreads_reads {
                true => node_for(ctx, me, true, group),
                false => primary,
            }
        }
        None => primary,
    }
}

/// Notes a client's call that may write, so that it reads from the primary until that is answered.
#[inline]
pub(crate) fn note_write<S: Shell>(ctx: &mut Context<S>, me: Ref, id: CommandId) {
    if ctx.routes.spreads_reads(ctx.clients.home_of(me))
        && !ctx.commands[id as usize].reads
        && let Some(client) = ctx.clients.find(me)
    {
        client.wrote = client.next;
    }
}

/// Returns a connection to another server for a read that the server `lost` did not answer, nor `tries` servers before
/// it: the first that can be reached.
pub(crate) fn other_reader<S: Shell>(
    ctx: &mut Context<S>,
    request: &[u8],
    lost: NodeId,
    tries: u8,
    (db, proto): (u16, redline_resp::Proto),
) -> Option<u32> {
    let pool = ctx.routes.nodes[usize::from(lost)].pool;
    if !ctx.routes.pools[usize::from(pool)].spreads_reads {
        return None;
    }
    let (mut bytes, mut spans) = (request.to_vec(), Vec::new());
    let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
    if !matches!(decoded, Ok(Decoded::Request { .. })) {
        return None;
    }
    let args = Args::new(&bytes, &spans);
    let id = spec::resolve(&args[0], args.get(1)).ok()?;
    let first = spec::reachable_keys(id, args.len(), |at| &args[at]).next()?;
    let key = args.get(first.position)?;
    let routes = std::sync::Arc::clone(&ctx.routes);
    let shard = routes.shard_of_group(routes.group_in(pool, key))?;
    others(shard, lost, tries).find_map(|node| ctx.link(node, db, proto).ok())
}

/// Returns the other servers of a shard. The primary comes last, unless it is a reader; but after several failures, first.
fn others(shard: &Shard, but: NodeId, tries: u8) -> impl Iterator<Item = NodeId> {
    let readers = shard.readers.iter().map(|reader| reader.node);
    let first = (tries > 0).then_some(shard.primary);
    let nodes = first.into_iter().chain(readers).chain([shard.primary]);
    nodes.filter(move |&node| node != but && node != NO_NODE)
}

/// Returns a reader by weight: over the turns each gets its share, and neighbouring turns get different ones.
fn pick(readers: &[Reader], turn: u32) -> Option<NodeId> {
    /// The golden ratio's part of 2^32: its multiples fill the circle evenly.
    const STEP: u32 = 0x9e37_79b9;
    let total: u64 = readers.iter().map(|reader| u64::from(reader.weight)).sum();
    let mut place = (u64::from(turn.wrapping_mul(STEP)) * total) >> 32;
    readers
        .iter()
        .filter(|reader| reader.weight > 0)
        .find_map(|reader| match place.checked_sub(reader.weight.into()) {
            Some(rest) => {
                place = rest;
                None
            }
            None => Some(reader.node),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(node: NodeId, weight: u32) -> Reader {
        Reader { node, weight }
    }

    #[test]
    fn each_gets_its_share_and_none_waits_long() {
        for (weights, shares) in [
            (&[1, 1][..], &[500, 500][..]),
            (&[5, 2, 0], &[714, 286, 0]),
            (&[1, 1, 1], &[333, 333, 333]),
            (&[7, 0], &[1000, 0]),
        ] {
            let readers: Vec<Reader> = (0..).zip(weights).map(|(n, &w)| reader(n, w)).collect();
            let mut counts = vec![0i32; weights.len()];
            for turn in 0..1000 {
                counts[usize::from(pick(&readers, turn).unwrap())] += 1;
            }
            for (count, share) in counts.iter().zip(shares) {
                assert!((count - share).abs() <= 3, "{weights:?}: {counts:?}");
            }
        }
        assert_eq!(pick(&[], 1), None);
        assert_eq!(pick(&[reader(1, 0)], 1), None);
    }

    #[test]
    fn the_primary_is_the_last_resort() {
        let mut shard = Shard {
            primary: 0,
            replicas: vec![1, 2],
            readers: vec![reader(2, 1), reader(1, 0)],
        };
        assert_eq!(others(&shard, 2, 0).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(others(&shard, 2, 1).next(), Some(0));
        shard.readers.clear();
        assert_eq!(others(&shard, 2, 0).collect::<Vec<_>>(), [0]);
        assert_eq!(others(&shard, 0, 0).count(), 0);
    }
}
