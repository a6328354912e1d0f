//! Which server a request goes to, and sending it there. Must not know what becomes of replies.

use crate::subscriptions::{Names, Space, is_ejected, servers_of};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

use crate::client::Pause;
use crate::context::Context;
use crate::errors;
use crate::requests::Flow;
use crate::route::{NO_NODE, NodeId, Placement, Pool, Shard};
use crate::slab::Ref;
use crate::upstream::{Kind, Waiting};

impl Context {
    /// Returns true if everything that the client may ask for is on one server.
    pub(crate) fn has_one_shard(&self, me: Ref) -> bool {
        self.home(me).shards.len() == 1 && self.routes.prefixes.is_empty()
    }

    pub(crate) fn nodes_of(&self, space: Space, name: &[u8]) -> Vec<NodeId> {
        let pool = &self.routes.pools[usize::from(space.pool)];
        servers_of(space.names, name, pool, is_ejected(&self.routes.nodes)).collect()
    }

    /// Returns the server that is asked for a channel. In a cluster any node would take what is published there, but only this
    /// one has it before a SUBSCRIBE that is called behind it, which must not hear it.
    pub(crate) fn node_of_channel(&self, pool: u16, name: &[u8]) -> Option<NodeId> {
        let names = Names::Channels;
        let nodes = self.nodes_of(Space { names, pool }, name);
        nodes.first().copied().filter(|node| *node != NO_NODE)
    }

    /// A call that names no key, or whose keys cannot be told: any server has the answer, or the error. Always the same one,
    /// since a script may have keys that nobody declared.
    pub(crate) fn forward_anywhere(&mut self, me: Ref, raw: &[u8]) -> Flow {
        let node = self.home(me).shards[0].primary;
        self.forward(me, node, raw)
    }

    /// Returns the error for a client whose own pool is `home`, if no server is known that could answer it.
    pub(crate) fn unserved(&self, home: u16) -> &'static str {
        let pools = &self.routes.pools;
        let own = pools.get(usize::from(home));
        let lacking = own
            .filter(|pool| pool.lacks_somebody())
            .or_else(|| pools.iter().find(|pool| pool.lacks_somebody()));
        match lacking.or(own).map(|pool| &pool.placement) {
            Some(Placement::Slots(_)) => errors::CLUSTER_DOWN,
            _ => errors::NO_PRIMARY,
        }
    }

    /// A client's pool.
    pub(crate) fn home(&self, me: Ref) -> &Pool {
        &self.routes.pools[usize::from(self.clients.home_of(me))]
    }

    /// The one server of all keys of a call; `None` if it has none that one could name. The error is a reply.
    pub(crate) fn node_of_keys(
        &self,
        me: Ref,
        id: CommandId,
        args: Args<'_>,
    ) -> Result<Option<NodeId>, &'static str> {
        let home = self.clients.home_of(me);
        self.node_of_keys_in(home, id, args, |key| self.routes.group_of(home, key))
    }

    /// The same for a call whose keys are in groups of this kind; channels are in the pool `home`.
    pub(crate) fn node_of_keys_in(
        &self,
        home: u16,
        id: CommandId,
        args: Args<'_>,
        group_of: impl Fn(&[u8]) -> u32,
    ) -> Result<Option<NodeId>, &'static str> {
        let pool = &self.routes.pools[usize::from(home)];
        let channel_group = |name: &[u8]| self.routes.group_in(home, name);
        let mut found: Option<u32> = None;
        let in_cluster = matches!(pool.placement, Placement::Slots(_));
        let by_channel = id == CommandId::Spublish || (id == CommandId::Publish && !in_cluster);
        let channels = spec::row(id).channels.filter(|_| by_channel);
        let of_channels = channels.map(|channels| channels.positions(args.len()));
        let keys = spec::reachable_keys(id, args.len(), |at| &args[at]);
        let groups_of_keys = keys.filter_map(|key| args.get(key.position).map(&group_of));
        let of_channels = of_channels.into_iter().flatten();
        let groups_of_channels = of_channels.filter_map(|at| args.get(at).map(channel_group));
        for group in groups_of_keys.chain(groups_of_channels) {
            match found {
                None => found = Some(group),
                Some(first) if first != group => return Err(errors::CROSS_SLOT),
                Some(_) => {}
            }
        }
        match found.map(|group| self.routes.node_of_group(group)) {
            None => Ok(None),
            Some(NO_NODE) => Err(self.unserved(home)),
            Some(node) => Ok(Some(node)),
        }
    }

    /// Any server, each in turn; one that is left alone only where all are.
    pub(crate) fn any_node(&self, me: Ref) -> Option<NodeId> {
        let shards = &self.home(me).shards;
        let turn = self.counters.requests as usize % shards.len().max(1);
        let mut primaries = shards[turn..].iter().chain(&shards[..turn]);
        let is_there = |shard: &&Shard| {
            let node = self.routes.nodes.get(usize::from(shard.primary));
            node.is_some_and(|node| !node.ejected)
        };
        let first = shards.get(turn);
        let found = primaries.find(is_there).or(first);
        found.map(|shard| shard.primary)
    }

    /// Sends one request to a server, on the shared connection.
    pub(crate) fn forward(&mut self, me: Ref, node: NodeId, raw: &[u8]) -> Flow {
        let stripped = self.stripped(raw);
        self.forward_as_is(me, node, stripped.as_deref().unwrap_or(raw))
    }

    /// Sends one request to a server as it stands: no prefix is taken off its keys.
    pub(crate) fn forward_as_is(&mut self, me: Ref, node: NodeId, raw: &[u8]) -> Flow {
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let (db, proto) = (client.db, client.proto);
        let upstream = match self.link(node, db, proto) {
            Ok(upstream) => upstream,
            Err(line) => {
                let command = self.clients.command_called(me);
                self.seeing.refused(command);
                return match node {
                    NO_NODE => self
                        .clients
                        .refuse(me, self.unserved(self.clients.home_of(me))),
                    _ => self.clients.refuse(me, &line),
                };
            }
        };
        let kind = self.clients.silenced(me, Kind::Client);
        let command = self.clients.command_called(me);
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let waiting = Waiting::one(me, client.number(), kind, raw, self.now_ms)
            .of(command, self.seeing.now_us);
        if self.is_full(upstream, me)
            && let Some(client) = self.clients.find(me)
        {
            client.pause = Pause::Upstream;
        }
        if let Some(found) = self.links.get(upstream) {
            found.push(waiting, raw, &mut self.cache);
        }
        self.links.mark(upstream);
        Flow::Done
    }

    /// A request as servers are to get it, if that is not as it came.
    pub(crate) fn stripped(&self, raw: &[u8]) -> Option<Vec<u8>> {
        let prefixes = &self.routes.prefixes;
        prefixes.strips().then(|| prefixes.stripped(raw)).flatten()
    }
}
