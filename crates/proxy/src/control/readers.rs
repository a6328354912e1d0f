//! Choice of the servers for reads of each shard: by the pool's policy for primaries and replicas, by data centres, and
//! by the servers' state. Pure: makes that part of a routing table.
//!
//! The data centres with the highest priority among those with servers share the reads by their weights; in each, the
//! servers with the highest priority of their role share equally. All others that may answer come after them with weight
//! zero. If there are none, since the primary is gone, replicas answer that have only lost it, unless a lag is bounded.
//! They come after the primary already while it is in doubt: it may be gone long before it counts as gone.

use redline_net::{Address, Endpoint};
use redline_proxy_config::{Config, PlacePolicy, Pool, PoolKind, ReadPolicy};

use super::nodes::{Nodes, is_at};
use super::replication::Replication;
use crate::route::{NO_NODE, NodeId, Reader, Routes, Shard};

/// The share of a data centre's readers for each unit of its weight: divisible by most numbers of servers.
const SHARE: u32 = 5_040;

/// Sets the readers in a routing table of these pools and nodes.
pub fn appoint(routes: &mut Routes, config: &Config, nodes: &Nodes) {
    for (number, node) in routes.nodes.iter_mut().enumerate() {
        if let Some(known) = nodes.get(number as NodeId) {
            let center = center(config, &known.address, known.endpoint.as_ref());
            node.data_center = center.unwrap_or_default().to_owned();
        }
    }
    for (pool, policy) in routes.pools.iter_mut().zip(&config.pools) {
        if !spreads(policy) {
            continue;
        }
        for shard in &mut pool.shards {
            shard.readers = readers(config, policy, shard, nodes);
            for &node in shard.replicas.iter().filter(|&&node| node != shard.primary) {
                let known = nodes.get(node);
                if let Some(node) = routes.nodes.get_mut(usize::from(node)) {
                    node.is_silent = known.is_some_and(|known| known.replication.is_silent());
                }
            }
            pool.spreads_reads |= !shard.readers.is_empty();
            if policy.kind == PoolKind::Cluster {
                for &node in std::iter::once(&shard.primary).chain(&shard.replicas) {
                    if let Some(node) = routes.nodes.get_mut(usize::from(node)) {
                        node.is_readonly = true;
                    }
                }
            }
        }
    }
}

/// Returns true if replicas may be read from at all.
pub fn spreads(pool: &Pool) -> bool {
    pool.reads.static_replica_priority > 0 || pool.reads.dynamic_replica_priority > 0
}

/// A server that may answer: its data centre, and its priority.
struct Candidate {
    node: NodeId,
    /// Its data centre's priority, and the number of the policy for its share; none: no policy has it.
    place: (u32, Option<usize>),
    role: u32,
}

fn readers(config: &Config, pool: &Pool, shard: &Shard, nodes: &Nodes) -> Vec<Reader> {
    let mut candidates = candidates(config, pool, shard, nodes, Replication::is_fit);
    let primary = nodes.get(shard.primary);
    let is_lost = primary.is_none_or(|known| known.health.is_ejected());
    let is_in_doubt = primary.is_some_and(|known| known.health.is_in_doubt());
    let mut orphans = Vec::new();
    if candidates.iter().all(|one| one.node == shard.primary)
        && (is_lost || is_in_doubt)
        && pool.reads.lag_max.on().is_none()
    {
        // Replicas that have lost their primary: old data is better than none.
        orphans = self::candidates(config, pool, shard, nodes, Replication::is_orphan);
        orphans.retain(|one| one.node != shard.primary);
    }
    if is_lost {
        candidates.append(&mut orphans);
    }
    // The best first, in a stable order.
    for some in [&mut candidates, &mut orphans] {
        some.sort_by_key(|one| std::cmp::Reverse((one.place.0, one.role)));
    }
    let best = candidates.first().map_or(0, |one| one.place.0);
    let weights: Vec<u32> = candidates
        .iter()
        .map(|one| {
            let mates = candidates.iter().filter(|mate| mate.place == one.place);
            let highest = mates.clone().map(|mate| mate.role).max();
            if one.place.0 < best || Some(one.role) < highest {
                return 0;
            }
            let sharing = mates.filter(|mate| mate.role == one.role).count() as u32;
            let weight = match one.place.1 {
                Some(policy) => local_reads(config)[policy].weight,
                None => 1,
            };
            (SHARE * weight / sharing).max(1)
        })
        .collect();
    let mut readers: Vec<Reader> = candidates
        .iter()
        .zip(weights)
        .map(|(one, weight)| Reader {
            node: one.node,
            weight,
        })
        .collect();
    readers.sort_by_key(|reader| reader.weight == 0);
    readers.extend(orphans.iter().map(|one| Reader {
        node: one.node,
        weight: 0,
    }));
    readers
}

fn candidates(
    config: &Config,
    pool: &Pool,
    shard: &Shard,
    nodes: &Nodes,
    may_answer: impl Fn(&Replication) -> bool,
) -> Vec<Candidate> {
    let ReadPolicy {
        primary_priority,
        static_replica_priority,
        dynamic_replica_priority,
        ..
    } = pool.reads;
    let mut candidates = Vec::new();
    for &node in std::iter::once(&shard.primary).chain(&shard.replicas) {
        let Some(known) = nodes.get(node).filter(|_| node != NO_NODE) else {
            continue;
        };
        let is_primary = node == shard.primary;
        let role = match is_primary {
            true => primary_priority,
            false if is_static(pool, &known.address) => static_replica_priority,
            false => dynamic_replica_priority,
        };
        let is_up = !known.health.is_ejected() && known.endpoint.is_some();
        let may_read = is_primary || may_answer(&known.replication);
        if role == 0 || !is_up || !may_read {
            continue;
        }
        if let Some(place) = place(config, &known.address, known.endpoint.as_ref()) {
            candidates.push(Candidate { node, place, role });
        }
    }
    candidates
}

/// Returns true if the file names this server.
fn is_static(pool: &Pool, address: &Address) -> bool {
    let servers = pool.shards.iter().flat_map(|shard| &shard.servers);
    let mut servers = servers.chain(&pool.seeds);
    servers.any(|server| is_at(&server.address, address))
}

/// Returns the read policies of this proxy's data centre.
fn local_reads(config: &Config) -> &[PlacePolicy] {
    let centers = config.data_centers.iter();
    let mut local = centers.filter(|center| center.name == config.local_data_center);
    local.next().map_or(&[], |center| &center.reads)
}

/// Returns the priority of a server's data centre, and the policy's number; none: it is never read from. A server
/// outside of the policy is read from when no other can be.
fn place(
    config: &Config,
    address: &Address,
    endpoint: Option<&Endpoint>,
) -> Option<(u32, Option<usize>)> {
    let reads = local_reads(config);
    let policy = center(config, address, endpoint).and_then(|name| {
        let mut policies = reads.iter();
        policies.position(|policy| policy.data_center == name)
    });
    match policy {
        Some(policy) if reads[policy].priority == 0 => None,
        Some(policy) => Some((reads[policy].priority, Some(policy))),
        None => Some((0, None)),
    }
}

/// Returns a server's data centre.
fn center<'a>(
    config: &'a Config,
    address: &Address,
    endpoint: Option<&Endpoint>,
) -> Option<&'a str> {
    let ip = match endpoint {
        Some(Endpoint::Tcp(address)) => address.ip().to_string(),
        _ => String::new(),
    };
    let written = address.to_string();
    let prefixes = config.data_centers.iter().flat_map(|center| {
        let prefixes = center.address_prefixes.iter();
        prefixes.map(move |prefix| (prefix.as_str(), center.name.as_str()))
    });
    // The longest match is the most specific.
    let fitting =
        prefixes.filter(|(prefix, _)| written.starts_with(prefix) || ip.starts_with(prefix));
    let longest = fitting.max_by_key(|(prefix, _)| prefix.len());
    longest.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::nodes::Who;
    use crate::control::replication::Said;

    /// A pool of one shard whose servers have these addresses, the first the primary, and its readers with their weights.
    struct Given {
        config: Config,
        nodes: Nodes,
        shard: Shard,
    }

    impl Given {
        fn new(reads: &str, more: &str, hosts: &[&str]) -> Given {
            let text = format!(
                "local-data-center = '{}'\n{more}\n[[pool]]\nreads = {{ {reads} }}\nshard = [{{ server = [{{ address = '{}:1' }}, {{ address = '{}:1' }}] }}]",
                if more.is_empty() { "" } else { "here" },
                hosts[0],
                hosts[1],
            );
            let config = Config::from_toml(&text).unwrap();
            let mut nodes = Nodes::default();
            let numbers: Vec<NodeId> = hosts
                .iter()
                .map(|host| nodes.number(&Address::tcp(*host, 1), 0, Who::default(), 0))
                .collect();
            for &number in &numbers {
                let known = &mut nodes.get_mut(number).unwrap().replication;
                known.heard(Said::Nothing, 1);
                known.judge(None, None, 1);
            }
            let shard = Shard {
                primary: 0,
                replicas: numbers[1..].to_vec(),
                readers: Vec::new(),
            };
            Given {
                config,
                nodes,
                shard,
            }
        }

        fn readers(&self) -> Vec<(NodeId, u32)> {
            let found = readers(
                &self.config,
                &self.config.pools[0],
                &self.shard,
                &self.nodes,
            );
            found
                .iter()
                .map(|reader| (reader.node, reader.weight * 100 / SHARE))
                .collect()
        }

        fn lose(&mut self, node: NodeId) {
            assert!(self.fail(node, 1));
        }

        fn doubt(&mut self, node: NodeId) {
            assert!(!self.fail(node, 9));
        }

        /// Reports a failure with this limit; returns true if it ejects the server.
        fn fail(&mut self, node: NodeId, limit: u32) -> bool {
            let policy = redline_proxy_config::FailurePolicy {
                limit,
                ..Default::default()
            };
            let health = &mut self.nodes.get_mut(node).unwrap().health;
            health.failed(0, &policy, 0.5)
        }
    }

    const PRIORITIES: &str =
        "primary-priority = 50, static-replica-priority = 50, dynamic-replica-priority = 20";

    #[test]
    fn the_highest_priority_answers_and_others_stand_behind() {
        let mut given = Given::new(PRIORITIES, "", &["1.0.0.1", "1.0.0.2", "1.0.0.3"]);
        assert_eq!(given.readers(), [(0, 50), (1, 50), (2, 0)]);
        given.lose(0);
        assert_eq!(given.readers(), [(1, 100), (2, 0)]);
        given.lose(1);
        assert_eq!(given.readers(), [(2, 100)]);
        given.lose(2);
        assert_eq!(given.readers(), []);
        let never =
            "primary-priority = 0, static-replica-priority = 0, dynamic-replica-priority = 1";
        let given = Given::new(never, "", &["1.0.0.1", "1.0.0.2", "1.0.0.3"]);
        assert_eq!(given.readers(), [(2, 100)]);
    }

    #[test]
    fn a_replica_that_is_not_fit_is_left_out() {
        let mut given = Given::new(PRIORITIES, "", &["1.0.0.1", "1.0.0.2"]);
        given.nodes.get_mut(1).unwrap().replication.forget();
        assert_eq!(given.readers(), [(0, 100)]);
    }

    #[test]
    fn replicas_that_have_lost_their_primary_answer_when_it_is_gone_and_no_lag_is_bounded() {
        let bounded = format!("{PRIORITIES}, lag-max = '1s'");
        for (reads, last) in [(PRIORITIES, &[(1, 100)][..]), (&bounded, &[])] {
            let mut given = Given::new(reads, "", &["1.0.0.1", "1.0.0.2", "1.0.0.3"]);
            for node in [1, 2] {
                let known = &mut given.nodes.get_mut(node).unwrap().replication;
                for is_linked in [true, false] {
                    // The last of them has never had any data.
                    let is_linked = is_linked && node == 1;
                    known.heard(
                        Said::Replica {
                            is_linked,
                            offset: 9,
                        },
                        2,
                    );
                    known.judge(None, None, 2);
                }
            }
            assert_eq!(given.readers(), [(0, 100)]);
            // It is not known yet whether it is gone.
            given.doubt(0);
            let behind = last.iter().map(|&(node, _)| (node, 0));
            let expected: Vec<_> = std::iter::once((0, 100)).chain(behind).collect();
            assert_eq!(given.readers(), expected);
            given.lose(0);
            assert_eq!(given.readers(), last);
        }
    }

    const CENTERS: &str = "
        [[data-center]]
        name = 'here'
        address-prefixes = ['10.1']
        read = [{ data-center = 'here', priority = 50, weight = 5 }, { data-center = 'near', priority = 50, weight = 2 }, { data-center = 'far', priority = 10 }, { data-center = 'never', priority = 0 }]
        [[data-center]]
        name = 'near'
        address-prefixes = ['10.2']
        [[data-center]]
        name = 'far'
        address-prefixes = ['10.3', '10.2.9']
        [[data-center]]
        name = 'never'
        address-prefixes = ['10.4']
    ";
    const ALIKE: &str =
        "primary-priority = 50, static-replica-priority = 50, dynamic-replica-priority = 50";

    #[test]
    fn data_centres_share_by_their_weights() {
        let hosts = ["10.3.0.1", "10.1.0.1", "10.2.0.1", "10.2.0.2", "10.4.0.1"];
        let mut given = Given::new(ALIKE, CENTERS, &hosts);
        // 5 to 2, whose 2 are shared; the remote one only without others; the last never.
        assert_eq!(given.readers(), [(1, 500), (2, 100), (3, 100), (0, 0)]);
        given.lose(1);
        assert_eq!(given.readers(), [(2, 100), (3, 100), (0, 0)]);
        given.lose(2);
        given.lose(3);
        assert_eq!(given.readers(), [(0, 100)]);
        given.lose(0);
        assert_eq!(given.readers(), []);
    }

    #[test]
    fn equal_weights_share_equally() {
        let centers = CENTERS
            .replace("weight = 5", "weight = 1")
            .replace("weight = 2", "weight = 1");
        let given = Given::new(ALIKE, &centers, &["10.1.0.1", "10.2.0.1"]);
        assert_eq!(given.readers(), [(0, 100), (1, 100)]);
    }

    #[test]
    fn a_server_in_no_data_centre_is_read_from_in_need_and_the_longest_prefix_says_where_one_is() {
        let mut given = Given::new(ALIKE, CENTERS, &["10.2.9.1", "192.168.0.1", "10.1.0.1"]);
        assert_eq!(given.readers(), [(2, 500), (0, 0), (1, 0)]);
        given.lose(2);
        assert_eq!(given.readers(), [(0, 100), (1, 0)]);
        given.lose(0);
        assert_eq!(given.readers(), [(1, 100)]);
    }

    #[test]
    fn roles_count_within_a_data_centre() {
        let roles =
            "primary-priority = 60, static-replica-priority = 50, dynamic-replica-priority = 50";
        let given = Given::new(roles, CENTERS, &["10.1.0.1", "10.1.0.2", "10.2.0.1"]);
        assert_eq!(given.readers(), [(0, 500), (2, 200), (1, 0)]);
    }
}
