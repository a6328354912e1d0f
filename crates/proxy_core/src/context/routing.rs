//! Finding the server of a request, and sending it there. Must not know how replies are handled.

use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

use crate::client::Pause;
use crate::context::Context;
use crate::errors;
use crate::requests::Flow;
use crate::route::{NO_NODE, NodeId, Placement, Pool, Shard};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::subscriptions::{Names, Space, is_ejected, servers_of};
use crate::upstream::{Kind, Waiting};

impl<S: Shell> Context<S> {
    /// Returns true if all keys of the client are on one server.
    pub(crate) fn has_one_shard(&self, me: Ref) -> bool {
        self.home(me).shards.len() == 1 && self.routes.prefixes.is_empty()
    }

    pub(crate) fn nodes_of(&self, space: Space, name: &[u8]) -> Vec<NodeId> {
        let pool = &self.routes.pools[usize::from(space.pool)];
        servers_of(space.names, name, pool, is_ejected(&self.routes.nodes)).collect()
    }

    /// Returns the server for a channel. In a cluster any node accepts a PUBLISH, but only this one handles it before a
    /// later SUBSCRIBE, which must not receive it.
    pub(crate) fn node_of_channel(&self, pool: u16, name: &[u8]) -> Option<NodeId> {
        let names = Names::Channels;
        let nodes = self.nodes_of(Space { names, pool }, name);
        nodes.first().copied().filter(|node| *node != NO_NODE)
    }

    /// Forwards a call that names no key, or whose keys cannot be found: any server has the answer, or the error. Always
    /// to the same one, since a script may use undeclared keys.
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

    /// Returns a client's pool.
    pub fn home(&self, me: Ref) -> &Pool {
        &self.routes.pools[usize::from(self.clients.home_of(me))]
    }

    /// Returns the one server of all keys of a call; `None` if it has no keys. The error is a reply.
    pub(crate) fn node_of_keys(
        &self,
        me: Ref,
        id: CommandId,
        args: Args<'_>,
    ) -> Result<Option<NodeId>, &'static str> {
        let home = self.clients.home_of(me);
        self.node_of_keys_in(home, id, args, |key| self.routes.group_of(home, key))
    }

    /// Returns the same for a call whose keys are in groups of this kind; channels are in the pool `home`.
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

    /// Returns any server, each in turn; one that is marked down only if all are.
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

    /// Sends one request to a server unchanged: no prefix is removed from its keys.
    pub(crate) fn forward_as_is(&mut self, me: Ref, node: NodeId, raw: &[u8]) -> Flow {
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let (db, proto) = (client.db, client.proto);
        let upstream = match self.link(node, db, proto) {
            Ok(upstream) => upstream,
            Err(line) => {
                let command = self.clients.command_called(me);
                self.recorder.refused(command);
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
            .of(command, self.recorder.now_us);
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

    /// Returns a request without key prefixes, if it has any.
    pub(crate) fn stripped(&self, raw: &[u8]) -> Option<Vec<u8>> {
        let prefixes = &self.routes.prefixes;
        prefixes.strips().then(|| prefixes.stripped(raw)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Proxy, pool, routes};

    #[test]
    fn a_call_goes_to_the_node_that_has_its_key() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["GET b", "SET a 1"]);
        let (first, second) = (proxy.link(0), proxy.link(1));
        assert_eq!(proxy.sent(first), "*2 GET b");
        assert_eq!(proxy.sent(second), "*3 SET a 1");
        proxy.reply(first, "$1 x ");
        proxy.reply(second, "+OK ");
        assert_eq!(proxy.got(me), "x +OK");
    }

    #[test]
    fn calls_in_a_row_to_one_server_wait_as_one_run() {
        let mut proxy = Proxy::of_one();
        let me = proxy.client();
        proxy.send(me, &["GET a", "GET b", "SET c 1"]);
        let link = proxy.link(0);
        let waiting = &proxy.core.conns.ctx.links.look(link).unwrap().waiting;
        assert_eq!((waiting.len(), waiting[0].count), (1, 3));
        assert_eq!(proxy.sent(link), "*2 GET a *2 GET b *3 SET c 1");
    }

    #[test]
    fn a_call_of_keys_of_several_slots_is_refused_unless_it_can_be_cut() {
        let mut proxy = Proxy::of_cluster();
        let me = proxy.client();
        proxy.send(me, &["RENAME a b"]);
        let got = proxy.got(me);
        assert!(got.starts_with("-CROSSSLOT"), "{got}");
    }

    #[test]
    fn a_call_for_a_slot_that_nobody_has_is_answered_here() {
        let slots = Placement::Slots(Box::new([crate::route::NO_SHARD; redline_cluster::SLOTS]));
        let mut proxy = Proxy::new(routes(pool(slots, 1)));
        let me = proxy.client();
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.got(me), "-CLUSTERDOWN_Hash_slot_not_served");
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_left_alone_for_a_while() {
        let mut proxy = Proxy::of_one();
        let me = proxy.client();
        proxy.core.conns.ctx.shell.unreachable = vec!["s0:1".to_owned()];
        proxy.send(me, &["GET a"]);
        let refused = "-ERR_upstream_s0:1_is_not_available:_Connection_refused";
        assert_eq!(proxy.got(me), refused);
        proxy.core.conns.ctx.shell.unreachable.clear();
        proxy.send(me, &["GET a"]);
        assert_eq!(proxy.got(me), refused);
        proxy.pass_ms(100);
        proxy.send(me, &["GET a"]);
        let link = proxy.link(0);
        assert_eq!(proxy.sent(link), "*2 GET a");
    }
}
