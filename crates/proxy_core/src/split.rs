//! Requests that concern several servers: split by server, sent, and their replies gathered. [`merge`] makes one reply
//! of them.
//!
//! A call of many keys becomes one call for each server that has some of them (in a cluster one for each slot, since it
//! refuses more, but all to one server leave in one write). Keys are copied with their headers.

use redline_resp::{Args, push_header};
use redline_spec::CommandId;

use crate::class::{Merge, NO_COMMAND, Words};
use crate::context::Context;
use crate::gather::sort_by_group;
use crate::gathers::KEYS_KEPT_MAX;
use crate::requests::Flow;
use crate::route::{NO_NODE, NodeId, Placement};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};
use crate::{errors, merge, replica_reads};

/// Error for series of several servers that are to be reduced to one: no server has all of them.
const GROUPED: &str =
    "ERR GROUPBY is not possible over several servers: send the call to each of them";

/// Memory for splitting calls of many keys; empty between calls.
#[derive(Default)]
pub(crate) struct Splitter {
    request: Vec<u8>,
    groups: Vec<u32>,
    sorted: Vec<u32>,
}

/// The connection for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The shared one.
    Shared,
    /// A dedicated one.
    Alone,
}

impl Splitter {
    /// Splits a call whose keys may be on several servers.
    pub(crate) fn split<S: Shell>(
        &mut self,
        ctx: &mut Context<S>,
        me: Ref,
        id: CommandId,
        merge: Merge,
        raw: &[u8],
        args: Args<'_>,
    ) -> Flow {
        let Some(words) = Words::of(id, args.len()) else {
            return ctx.clients.refuse(me, &errors::wrong_arity(id));
        };
        let home = ctx.clients.home_of(me);
        let mut groups = std::mem::take(&mut self.groups);
        let keys = words.keys().map(|at| &args[at]);
        ctx.routes.groups_of(home, keys, &mut groups);
        let first = groups[0];
        if groups.iter().all(|group| *group == first) {
            self.groups = groups;
            let node = node_of_part(ctx, me, id, first);
            return match node {
                NO_NODE => ctx.clients.refuse(me, ctx.unserved(home)),
                node => ctx.forward(me, node, raw),
            };
        }
        let Some(gather) = begin(ctx, me, merge) else {
            self.groups = groups;
            return Flow::Done;
        };
        let mut sorted = std::mem::take(&mut self.sorted);
        sort_by_group(&groups, &mut sorted);
        let mut order = ctx.gathers.take_order(gather);
        order.resize(groups.len(), 0);
        // End of an argument in `raw`, line end included: the next header begins there.
        let end_of = |at: usize| args.end_of(at) + 2;
        let name = &raw[end_of(0) - args[0].len() - 2..end_of(0)];
        let behind = args.len() - words.end;
        let mut rest = sorted.as_slice();
        let mut part = 0;
        while let Some(&first) = rest.first() {
            let group = groups[first as usize];
            let count = rest.partition_point(|&number| groups[number as usize] == group);
            let (mine, others) = rest.split_at(count);
            let node = node_of_part(ctx, me, id, group);
            let mut request = std::mem::take(&mut self.request);
            request.clear();
            let argc = 1 + count * words.step + behind;
            push_header(&mut request, b'*', argc as i64);
            push_header(&mut request, b'$', args[0].len() as i64);
            request.extend_from_slice(name);
            for &number in mine {
                order[number as usize] = part;
                let before = number as usize * words.step;
                request.extend_from_slice(&raw[end_of(before)..end_of(before + words.step)]);
            }
            request.extend_from_slice(&raw[end_of(words.end - 1)..end_of(args.len() - 1)]);
            send_part(ctx, me, gather, part, (node, Way::Shared), &request);
            self.request = request;
            part += 1;
            rest = others;
        }
        for list in [&mut groups, &mut sorted] {
            list.clear();
            list.shrink_to(KEYS_KEPT_MAX);
        }
        (self.groups, self.sorted) = (groups, sorted);
        ctx.gathers.set_order(gather, order);
        all_sent(ctx, gather);
        Flow::Done
    }
}

/// Returns the server of a part whose keys are of this group.
fn node_of_part<S: Shell>(ctx: &mut Context<S>, me: Ref, id: CommandId, group: u32) -> NodeId {
    let reads = ctx.commands[id as usize].reads;
    match ctx.routes.pool_of(group).spreads_reads && reads {
        false => ctx.routes.node_of_group(group),
        true => replica_reads::node_for(ctx, me, reads, group),
    }
}

/// Sends a call to one server of each shard.
pub(crate) fn send_to_all<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    merge: Merge,
    raw: &[u8],
    args: Args<'_>,
) -> Flow {
    if ctx.has_one_shard(me) {
        let node = ctx.home(me).shards[0].primary;
        return ctx.forward(me, node, raw);
    }
    let last = ctx.clients.find(me).and_then(|client| client.last);
    if matches!(last, Some(CommandId::TsMrange | CommandId::TsMrevrange))
        && args
            .iter()
            .any(|word| word.eq_ignore_ascii_case(b"GROUPBY"))
    {
        return ctx.clients.refuse(me, GROUPED);
    }
    send_to_each(ctx, me, merge, Way::Shared, raw)
}

/// Sends a call to one server of each shard over dedicated connections, since it may have to end a script that runs on
/// others. The client's earlier requests are answered first, and its next ones wait.
pub(crate) fn send_past_all<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    merge: Merge,
    raw: &[u8],
) -> Flow {
    match ctx.clients.must_wait(me) {
        true => Flow::Again,
        false => send_to_each(ctx, me, merge, Way::Alone, raw),
    }
}

fn send_to_each<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    merge: Merge,
    way: Way,
    raw: &[u8],
) -> Flow {
    let Some(gather) = begin(ctx, me, merge) else {
        return Flow::Done;
    };
    let nodes: Vec<NodeId> = ctx
        .home(me)
        .shards
        .iter()
        .map(|shard| shard.primary)
        .collect();
    for (part, node) in nodes.into_iter().enumerate() {
        send_part(ctx, me, gather, part as u32, (node, way), raw);
    }
    all_sent(ctx, gather);
    Flow::Done
}

/// Returns true if a client's SCAN has the cursors of the single server. In a cluster it has not, however few nodes
/// there are: others may be added during the scan.
pub(crate) fn scans_one_server<S: Shell>(ctx: &Context<S>, me: Ref) -> bool {
    let pool = ctx.home(me);
    pool.shards.len() == 1 && !matches!(pool.placement, Placement::Slots(_))
}

/// Runs SCAN: one shard after the other. The shard is the remainder of the cursor, the shard's own cursor the quotient,
/// so no state is kept between calls. A removed shard has no elements.
pub(crate) fn scan<S: Shell>(ctx: &mut Context<S>, me: Ref, raw: &[u8], args: Args<'_>) -> Flow {
    if scans_one_server(ctx, me) {
        let node = ctx.home(me).shards[0].primary;
        return ctx.forward(me, node, raw);
    }
    let shards = ctx.home(me).shards.len();
    let step = merge::scan_step(shards as u32);
    let cursor = std::str::from_utf8(&args[1])
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let Some(cursor) = cursor else {
        return ctx.clients.refuse(me, "ERR invalid cursor");
    };
    let shard = (cursor % step) as usize;
    let own = (cursor / step).to_string();
    if shard >= shards {
        return ctx.clients.answer(me, |reply| {
            reply.array(2);
            reply.bulk(b"0");
            reply.array(0);
        });
    }
    let mut words: Vec<&[u8]> = args.iter().collect();
    words[1] = own.as_bytes();
    let mut request = Vec::new();
    redline_resp::encode_request(words, &mut request);
    let Some(gather) = begin(ctx, me, Merge::Scan) else {
        return Flow::Done;
    };
    if let Some(found) = ctx.gathers.find(gather) {
        found.scanned = (shard as u32, shards as u32);
    }
    let node = ctx.home(me).shards[shard].primary;
    send_part(ctx, me, gather, 0, (node, Way::Shared), &request);
    all_sent(ctx, gather);
    Flow::Done
}

/// Sends a call to one server, whose reply is gathered.
pub(crate) fn ask_one<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    merge: Merge,
    node: NodeId,
    request: &[u8],
) -> Flow {
    if let Some(gather) = begin(ctx, me, merge) {
        send_part(ctx, me, gather, 0, (node, Way::Shared), request);
        all_sent(ctx, gather);
    }
    Flow::Done
}

/// Begins to gather the replies for the client's next request.
pub(crate) fn begin<S: Shell>(ctx: &mut Context<S>, me: Ref, merge: Merge) -> Option<Ref> {
    let client = ctx.clients.find(me)?;
    let mut gather = ctx.gathers.spare(me);
    gather.client = me;
    gather.seq = client.number();
    gather.proto = client.proto;
    gather.reply_mode = client.reply_mode;
    gather.merge = merge;
    gather.command = client.last.map_or(NO_COMMAND, |id| id as u16);
    gather.since_us = ctx.recorder.now_us as u32;
    // One more than there are parts, until all are sent: an error may be set at once.
    gather.missing = 1;
    Some(ctx.gathers.put(gather))
}

fn send_part<S: Shell>(
    ctx: &mut Context<S>,
    me: Ref,
    gather: Ref,
    part: u32,
    (node, way): (NodeId, Way),
    request: &[u8],
) {
    let Some(found) = ctx.gathers.find(gather) else {
        return;
    };
    found.missing += 1;
    found.parts.push((0, 0));
    let (proto, command) = (found.proto, found.command);
    let stripped = ctx.stripped(request);
    let request = stripped.as_deref().unwrap_or(request);
    let db = ctx.clients.find(me).map_or(0, |client| client.db);
    let waiting = Waiting::one(gather, part, Kind::Part, request, ctx.now_ms)
        .of(command, ctx.recorder.now_us);
    let linked = match (node, way) {
        (NO_NODE, _) => Err(ctx.unserved(ctx.clients.home_of(me)).to_owned()),
        (node, Way::Shared) => ctx.link(node, db, proto),
        (node, Way::Alone) => ctx.lone_link(node, proto),
    };
    match linked {
        Ok(upstream) => {
            if let Some(found) = ctx.links.get(upstream) {
                found.push(waiting, request, &mut ctx.cache);
            }
            ctx.links.mark(upstream);
            if way == Way::Alone {
                ctx.detach(upstream);
            } else if ctx.is_full(upstream, me)
                && let Some(client) = ctx.clients.find(me)
            {
                client.pause = crate::client::Pause::Upstream;
            }
        }
        Err(line) => ctx.fail(waiting, &line),
    }
}

fn all_sent<S: Shell>(ctx: &mut Context<S>, gather: Ref) {
    ctx.one_less(gather);
}

#[cfg(test)]
mod tests {
    use crate::testing::Proxy;

    #[test]
    fn a_call_of_many_keys_is_cut_by_slot_and_its_replies_are_joined() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["MGET a b a"]);
        let (first, second) = (proxy.link(0), proxy.link(1));
        assert_eq!(proxy.sent(first), "*2 MGET b");
        assert_eq!(proxy.sent(second), "*3 MGET a a");
        proxy.reply(second, "*2 $1 x $-1 ");
        assert_eq!(proxy.got(me), "");
        proxy.reply(first, "*1 $1 y ");
        assert_eq!(proxy.got(me), "*3 x y $-1");
    }

    #[test]
    fn calls_on_documents_are_cut_with_all_words_of_a_key_and_those_behind_the_keys() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["JSON.MGET a b a .x"]);
        let (first, second) = (proxy.link(0), proxy.link(1));
        assert_eq!(proxy.sent(first), "*3 JSON.MGET b .x");
        assert_eq!(proxy.sent(second), "*4 JSON.MGET a a .x");
        proxy.reply(second, "*2 $3 [1] $-1 ");
        proxy.reply(first, "*1 $3 [2] ");
        assert_eq!(proxy.got(me), "*3 [1] [2] $-1");
        proxy.send(me, &["JSON.MSET a . 1 b . 2 a .x 3"]);
        assert_eq!(proxy.sent(first), "*4 JSON.MSET b . 2");
        assert_eq!(proxy.sent(second), "*7 JSON.MSET a . 1 a .x 3");
        proxy.reply(first, "+OK ");
        proxy.reply(second, "+OK ");
        assert_eq!(proxy.got(me), "+OK");
        proxy.send(me, &["JSON.MSET a . 1 b .", "JSON.MGET a ."]);
        assert_eq!(proxy.sent(second), "*3 JSON.MGET a .");
        proxy.reply(second, "*1 $1 1 ");
        assert_eq!(
            proxy.got(me),
            "-ERR_wrong_number_of_arguments_for_'json.mset'_command *1 1"
        );
    }

    #[test]
    fn series_are_asked_for_on_all_shards_unless_they_are_to_be_grouped() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["TS.QUERYINDEX l=1"]);
        let (first, second) = (proxy.link(0), proxy.link(1));
        assert_eq!(proxy.sent(first), "*2 TS.QUERYINDEX l=1");
        proxy.reply(first, "~1 $1 a ");
        proxy.reply(second, "~1 $1 b ");
        assert_eq!(proxy.got(me), "~2 a b");
        proxy.send(me, &["TS.MRANGE - + FILTER l=1 GROUPBY l REDUCE sum"]);
        let refused = proxy.got(me);
        assert!(refused.starts_with("-ERR_GROUPBY"), "{refused}");
    }

    #[test]
    fn an_error_of_one_part_is_the_reply_to_the_whole() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["DEL a b", "GET b"]);
        let (first, second) = (proxy.link(0), proxy.link(1));
        proxy.reply(first, ":1 $1 v ");
        proxy.reply(second, "-ERR_no ");
        assert_eq!(proxy.got(me), "-ERR_no v");
    }

    #[test]
    fn a_call_to_all_shards_is_made_on_each() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["DBSIZE"]);
        let (first, second) = (proxy.link(0), proxy.link(1));
        assert_eq!(proxy.sent(first), "*1 DBSIZE");
        proxy.reply(first, ":40 ");
        proxy.reply(second, ":2 ");
        assert_eq!(proxy.got(me), ":42");
    }
}
