//! Requests that concern several servers: cut by server, sent, and their replies gathered. What becomes of the replies is
//! the business of [`merge`].
//!
//! A call of many keys becomes one call for each server that has some of them (in a cluster one for each slot, since it
//! refuses more, but all to one server leave in one write). Keys are copied with the headers that they came with.

use redline_resp::{Args, push_header};
use redline_spec::CommandId;

use crate::class::{Merge, NO_COMMAND};
use crate::client::ReplyMode;
use crate::command_docs;
use crate::errors;
use crate::gather::{Gather, sort_by_group};
use crate::merge;
use crate::route::{NO_NODE, NodeId, Placement};
use crate::serve::Flow;
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};
use crate::worker::Worker;

/// Empty gatherings that are kept for the next ones.
const SPARE_MAX: usize = 64;
/// Bytes of replies that an empty gathering keeps room for.
const SPARE_BYTES_MAX: usize = 256 * 1024;

/// Keys of a call for which room is kept.
const KEYS_KEPT_MAX: usize = 16 * 1024;

/// By which of a server's connections a part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The one of all clients.
    Shared,
    /// One that it has for itself.
    Alone,
}

impl Worker {
    /// A call whose keys may be on several servers.
    pub(crate) fn split(
        &mut self,
        me: Ref,
        id: CommandId,
        merge: Merge,
        raw: &[u8],
        args: Args<'_>,
    ) -> Flow {
        let step = if id == CommandId::Mset { 2 } else { 1 };
        if !(args.len() - 1).is_multiple_of(step) {
            return self.refuse(me, &errors::wrong_arity(id));
        }
        let home = self.home_of(me);
        let mut groups = std::mem::take(&mut self.groups);
        let keys = (1..args.len()).step_by(step).map(|at| &args[at]);
        self.routes.groups_of(home, keys, &mut groups);
        let first = groups[0];
        if groups.iter().all(|group| *group == first) {
            self.groups = groups;
            let node = self.node_of_part(me, id, first);
            return match node {
                NO_NODE => self.refuse(me, self.unserved(home)),
                node => self.forward(me, node, raw),
            };
        }
        let Some(gather) = self.gather(me, merge) else {
            self.groups = groups;
            return Flow::Done;
        };
        let mut sorted = std::mem::take(&mut self.sorted);
        sort_by_group(&groups, &mut sorted);
        let mut order = self.gather_order(gather);
        order.resize(groups.len(), 0);
        // Where an argument ends in `raw`, line end included: the next one's header begins there.
        let end_of = |at: usize| args.end_of(at) + 2;
        let name = &raw[end_of(0) - args[0].len() - 2..end_of(0)];
        let mut rest = sorted.as_slice();
        let mut part = 0;
        while let Some(&first) = rest.first() {
            let group = groups[first as usize];
            let count = rest.partition_point(|&number| groups[number as usize] == group);
            let (mine, others) = rest.split_at(count);
            let node = self.node_of_part(me, id, group);
            let mut request = std::mem::take(&mut self.request);
            request.clear();
            push_header(&mut request, b'*', (count * step + 1) as i64);
            push_header(&mut request, b'$', args[0].len() as i64);
            request.extend_from_slice(name);
            for &number in mine {
                order[number as usize] = part;
                let before = number as usize * step;
                request.extend_from_slice(&raw[end_of(before)..end_of(before + step)]);
            }
            self.send_part(me, gather, part, (node, Way::Shared), &request);
            self.request = request;
            part += 1;
            rest = others;
        }
        for list in [&mut groups, &mut sorted] {
            list.clear();
            list.shrink_to(KEYS_KEPT_MAX);
        }
        (self.groups, self.sorted) = (groups, sorted);
        self.set_order(gather, order);
        self.all_sent(gather);
        Flow::Done
    }

    /// The server of a part whose keys are of this group.
    fn node_of_part(&mut self, me: Ref, id: CommandId, group: u32) -> NodeId {
        let reads = self.commands[id as usize].reads;
        match self.routes.pool_of(group).spreads_reads && reads {
            false => self.routes.node_of_group(group),
            true => self.node_for(me, reads, group),
        }
    }

    /// One call to a server of each shard.
    pub(crate) fn send_to_all(&mut self, me: Ref, merge: Merge, raw: &[u8]) -> Flow {
        if self.has_one_shard(me) {
            let node = self.home(me).shards[0].primary;
            return self.forward(me, node, raw);
        }
        self.send_to_each(me, merge, Way::Shared, raw)
    }

    /// The same over connections of its own, since what is under way on others may be what it is to end. What the client asked
    /// before is answered first, and what it asks next waits.
    pub(crate) fn send_past_all(&mut self, me: Ref, merge: Merge, raw: &[u8]) -> Flow {
        match self.must_wait(me) {
            true => Flow::Again,
            false => self.send_to_each(me, merge, Way::Alone, raw),
        }
    }

    fn send_to_each(&mut self, me: Ref, merge: Merge, way: Way, raw: &[u8]) -> Flow {
        let Some(gather) = self.gather(me, merge) else {
            return Flow::Done;
        };
        let nodes: Vec<NodeId> = self
            .home(me)
            .shards
            .iter()
            .map(|shard| shard.primary)
            .collect();
        for (part, node) in nodes.into_iter().enumerate() {
            self.send_part(me, gather, part as u32, (node, way), raw);
        }
        self.all_sent(gather);
        Flow::Done
    }

    /// Returns true if a client's SCAN has the cursors of the one server that there is. In a cluster it has not, however few
    /// nodes there are: others may come while it goes on.
    pub(crate) fn scans_one_server(&self, me: Ref) -> bool {
        let pool = self.home(me);
        pool.shards.len() == 1 && !matches!(pool.placement, Placement::Slots(_))
    }

    /// SCAN: one shard after the other. Which one is the remainder of the cursor, the shard's own cursor the quotient, so
    /// nothing is kept between two calls. A shard that is gone has nothing more.
    pub(crate) fn scan(&mut self, me: Ref, raw: &[u8], args: Args<'_>) -> Flow {
        if self.scans_one_server(me) {
            let node = self.home(me).shards[0].primary;
            return self.forward(me, node, raw);
        }
        let shards = self.home(me).shards.len();
        let step = merge::scan_step(shards as u32);
        let cursor = std::str::from_utf8(&args[1])
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let Some(cursor) = cursor else {
            return self.refuse(me, "ERR invalid cursor");
        };
        let shard = (cursor % step) as usize;
        let own = (cursor / step).to_string();
        if shard >= shards {
            return self.answer(me, |reply| {
                reply.array(2);
                reply.bulk(b"0");
                reply.array(0);
            });
        }
        let mut words: Vec<&[u8]> = args.iter().collect();
        words[1] = own.as_bytes();
        let mut request = Vec::new();
        redline_resp::encode_request(words, &mut request);
        let Some(gather) = self.gather(me, Merge::Scan) else {
            return Flow::Done;
        };
        if let Some(found) = self.gathers.find(gather) {
            found.scanned = (shard as u32, shards as u32);
        }
        let node = self.home(me).shards[shard].primary;
        self.send_part(me, gather, 0, (node, Way::Shared), &request);
        self.all_sent(gather);
        Flow::Done
    }

    /// A call to one server, whose reply is not passed on as it comes.
    pub(crate) fn ask_one(&mut self, me: Ref, merge: Merge, node: NodeId, request: &[u8]) -> Flow {
        if let Some(gather) = self.gather(me, merge) {
            self.send_part(me, gather, 0, (node, Way::Shared), request);
            self.all_sent(gather);
        }
        Flow::Done
    }

    /// Begins to gather the replies for the client's next request.
    fn gather(&mut self, me: Ref, merge: Merge) -> Option<Ref> {
        let client = self.clients.find(me)?;
        let fresh = Gather::new(me);
        let mut gather = self.spare_gathers.pop().unwrap_or(fresh);
        gather.client = me;
        gather.seq = client.number();
        gather.proto = client.proto;
        gather.reply_mode = client.reply_mode;
        gather.merge = merge;
        gather.command = client.last.map_or(NO_COMMAND, |id| id as u16);
        gather.since_us = self.seeing.now_us as u32;
        // One more than there are parts, until all are sent: an error may come at once.
        gather.missing = 1;
        let place = self.gathers.next_place();
        self.gathers.put(gather);
        Some(place)
    }

    fn gather_order(&mut self, gather: Ref) -> Vec<u32> {
        match self.gathers.find(gather) {
            Some(gather) => std::mem::take(&mut gather.order),
            None => Vec::new(),
        }
    }

    fn set_order(&mut self, gather: Ref, order: Vec<u32>) {
        if let Some(gather) = self.gathers.find(gather) {
            gather.order = order;
        }
    }

    fn send_part(
        &mut self,
        me: Ref,
        gather: Ref,
        part: u32,
        (node, way): (NodeId, Way),
        request: &[u8],
    ) {
        let Some(found) = self.gathers.find(gather) else {
            return;
        };
        found.missing += 1;
        found.parts.push((0, 0));
        let (proto, command) = (found.proto, found.command);
        let stripped = self.stripped(request);
        let request = stripped.as_deref().unwrap_or(request);
        let db = self.clients.find(me).map_or(0, |client| client.db);
        let waiting = Waiting::one(gather, part, Kind::Part, request, self.now_ms)
            .of(command, self.seeing.now_us);
        let linked = match (node, way) {
            (NO_NODE, _) => Err(self.unserved(self.home_of(me)).to_owned()),
            (node, Way::Shared) => self.link(node, db, proto),
            (node, Way::Alone) => self.lone_link(node, proto),
        };
        match linked {
            Ok(upstream) => {
                if let Some(found) = self.upstreams.get(upstream) {
                    found.push(waiting, request, &mut self.cache);
                }
                self.mark_upstream(upstream);
                if way == Way::Alone {
                    self.detach(upstream);
                } else if self.is_full(upstream, me)
                    && let Some(client) = self.clients.find(me)
                {
                    client.pause = crate::client::Pause::Upstream;
                }
            }
            Err(line) => self.fail(waiting, &line),
        }
    }

    fn all_sent(&mut self, gather: Ref) {
        self.one_less(gather);
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
            self.mark_client(at);
        }
        self.one_less(gather);
    }

    fn one_less(&mut self, place: Ref) {
        let Some(gather) = self.gathers.find(place) else {
            return;
        };
        gather.missing -= 1;
        if gather.missing > 0 {
            return;
        }
        let Some(mut gather) = self.gathers.take(place.at) else {
            return;
        };
        let us = (self.seeing.now_us as u32).wrapping_sub(gather.since_us);
        self.seeing.record_call(gather.command, us);
        let mut merged = std::mem::take(&mut self.merged);
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
        self.deliver(gather.client, gather.seq, 1, &merged);
        merged.clear();
        merged.shrink_to(SPARE_BYTES_MAX);
        self.merged = merged;
        if self.spare_gathers.len() < SPARE_MAX {
            gather.bytes.clear();
            gather.bytes.shrink_to(SPARE_BYTES_MAX);
            gather.parts.clear();
            gather.parts.shrink_to(KEYS_KEPT_MAX);
            gather.order.clear();
            gather.order.shrink_to(KEYS_KEPT_MAX);
            self.spare_gathers.push(*gather);
        }
    }
}
