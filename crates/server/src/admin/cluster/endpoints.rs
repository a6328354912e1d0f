//! Addresses of nodes, as a client is told them, and where a slot is served that this node does not serve.
//!
//! Each connection is told the port of its own kind: with TLS, or without.
//!
//! Must not know: the store.

use std::{net::SocketAddr, sync::atomic::Ordering};

use redline_cluster::{control::Calls, records::NodeRecord};
use redline_engine::{
    Caller,
    caller::{flag, state},
    executor::slots::Unserved,
};
use redline_resp::Reply;

use crate::{
    cluster::{Cluster, View, moves::Met},
    settings::{EndpointType, Settings},
    shared::{Shared, TcpPort},
};

/// Addresses of a node, in words for one client.
pub(super) struct Endpoint {
    pub ip: String,
    pub port: u16,
    /// Both ports; 0: there is none.
    pub plain_port: u16,
    pub tls_port: u16,
    pub hostname: String,
    pub preferred: EndpointType,
}

/// Returns true if a client is connected by TLS.
fn is_tls(shared: &Shared, caller: &Caller) -> bool {
    let own = caller.info.laddr.parse::<SocketAddr>().ok();
    let tls_bound = shared.bound_port(TcpPort::Tls);
    tls_bound != 0 && own.is_some_and(|own| own.port() == tls_bound)
}

impl Endpoint {
    /// Returns that of this node.
    pub(super) fn of(shared: &Shared, settings: &Settings, caller: &Caller) -> Endpoint {
        let own = caller.info.laddr.parse::<SocketAddr>().ok();
        let announced = |port: Option<u16>, which| port.unwrap_or(shared.bound_port(which));
        let ip = match settings.cluster_announce_ip.as_str() {
            "" => own.map_or_else(String::new, |own| own.ip().to_canonical().to_string()),
            announced => announced.to_owned(),
        };
        Endpoint {
            ip,
            hostname: settings.cluster_announce_hostname.clone(),
            preferred: settings.cluster_preferred_endpoint_type,
            port: 0,
            plain_port: announced(settings.cluster_announce_port, TcpPort::Plain),
            tls_port: announced(settings.cluster_announce_tls_port, TcpPort::Tls),
        }
        .for_kind(is_tls(shared, caller))
    }

    /// Returns that of any node: this one's as the client has reached it, another's by its record.
    pub(super) fn of_node(
        shared: &Shared,
        settings: &Settings,
        caller: &Caller,
        cluster: &Cluster,
        view: &View,
        id: &str,
    ) -> Endpoint {
        match view.picture.nodes.get(id) {
            Some(record) if id != cluster.node => {
                Endpoint::of_record(record, settings, is_tls(shared, caller))
            }
            _ => Endpoint::of(shared, settings, caller),
        }
    }

    fn of_record(record: &NodeRecord, settings: &Settings, is_tls: bool) -> Endpoint {
        Endpoint {
            ip: record.ip.clone(),
            hostname: record.hostname.clone(),
            preferred: settings.cluster_preferred_endpoint_type,
            port: 0,
            plain_port: record.port,
            tls_port: record.tls_port,
        }
        .for_kind(is_tls)
    }

    fn for_kind(mut self, is_tls: bool) -> Endpoint {
        self.port = match is_tls && self.tls_port != 0 || self.plain_port == 0 {
            true => self.tls_port,
            false => self.plain_port,
        };
        self
    }

    /// Returns the host that clients are to use; `None`: the one that they have used.
    pub(super) fn host(&self) -> Option<&str> {
        match self.preferred {
            EndpointType::Ip => Some(&self.ip),
            EndpointType::Hostname if self.hostname.is_empty() => Some("?"),
            EndpointType::Hostname => Some(&self.hostname),
            EndpointType::UnknownEndpoint => None,
        }
    }

    pub(super) fn write_host(&self, reply: &mut Reply<'_>) {
        match self.host() {
            Some(host) => reply.bulk(host.as_bytes()),
            None => reply.null(),
        }
    }

    /// Returns the names and values of those ways to reach the node that are not the preferred one.
    pub(super) fn others(&self) -> Vec<(&'static str, &str)> {
        let ip = (self.preferred != EndpointType::Ip).then_some(("ip", self.ip.as_str()));
        let has_other_name = self.preferred != EndpointType::Hostname && !self.hostname.is_empty();
        let hostname = has_other_name.then_some(("hostname", self.hostname.as_str()));
        ip.into_iter().chain(hostname).collect()
    }

    /// Returns the address in a redirect.
    fn redirect(&self) -> String {
        format!("{}:{}", self.host().unwrap_or_default(), self.port)
    }
}

/// Returns why this node does not serve a slot to this client.
pub(crate) fn unserved(
    shared: &Shared,
    settings: &Settings,
    caller: &Caller,
    slot: u16,
) -> Unserved {
    let Some(cluster) = &shared.cluster else {
        return Unserved::Nobody;
    };
    // Before the look at the view: a fence is taken away when that is the new one.
    let fence = cluster.etcd.as_ref().and_then(|etcd| {
        let who = caller.info.token();
        etcd.moves.fence.meets(slot, who)
    });
    match fence {
        Some(Met::Waits) => return Unserved::Fenced,
        Some(Met::Gives) => return Unserved::Unknown,
        None => {}
    }
    let view = cluster.view();
    let at =
        |node: &str| Endpoint::of_node(shared, settings, caller, cluster, &view, node).redirect();
    if view.serves(slot) {
        let to = view
            .leaving(slot)
            .and_then(|to| view.picture.shards.get(to));
        if let Some(etcd) = &cluster.etcd {
            let has_right = etcd.right.term_now().is_some();
            if !(has_right && (to.is_some() || shared.keyspace.serves_slot(slot))) {
                return match etcd.right.calls() {
                    Calls::Down => Unserved::Unable,
                    Calls::Run | Calls::Wait | Calls::Moved => Unserved::Undecided,
                };
            }
        }
        if let Some(to) = to {
            return Unserved::Leaving(at(&to.primary.node));
        }
        return Unserved::Down {
            serves_reads: settings.cluster_allow_reads_when_down,
            serves_channels: settings.cluster_allow_pubsubshard_when_down,
        };
    }
    let owner = view
        .picture
        .owners()
        .of_slot(slot)
        .filter(|_| view.is_member);
    let Some(shard) = owner.and_then(|owner| view.picture.shards.get(owner)) else {
        return Unserved::Nobody;
    };
    // This node by its records, and not by its run: another process is to be it.
    if shard.primary.node == cluster.node {
        return Unserved::Nobody;
    }
    let node = at(&shard.primary.node);
    let may_read = caller.info.flags.load(Ordering::Relaxed) & flag::READONLY != 0;
    if view.has(slot) {
        return match may_read {
            true => Unserved::Copied(node),
            false => Unserved::Mirrored(node),
        };
    }
    let takes = view.picture.arriving(&view.shard, slot).is_some()
        || caller.is(state::NODE) && view.picture.is_staged(&view.shard, slot);
    match view.is_primary && takes {
        true => Unserved::Arriving(node),
        false => Unserved::Elsewhere(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_ways_to_a_node_are_those_that_are_not_preferred() {
        let endpoint = |hostname: &str, preferred| Endpoint {
            ip: "1.2.3.4".into(),
            port: 1,
            plain_port: 1,
            tls_port: 0,
            hostname: hostname.into(),
            preferred,
        };
        for (hostname, preferred, host, others) in [
            ("", EndpointType::Ip, Some("1.2.3.4"), &[][..]),
            ("h", EndpointType::Ip, Some("1.2.3.4"), &["hostname"]),
            ("h", EndpointType::Hostname, Some("h"), &["ip"]),
            ("", EndpointType::Hostname, Some("?"), &["ip"]),
            (
                "h",
                EndpointType::UnknownEndpoint,
                None,
                &["ip", "hostname"],
            ),
            ("", EndpointType::UnknownEndpoint, None, &["ip"]),
        ] {
            let endpoint = endpoint(hostname, preferred);
            assert_eq!(endpoint.host(), host);
            let names: Vec<&str> = endpoint.others().iter().map(|(name, _)| *name).collect();
            assert_eq!(names, others);
        }
    }

    #[test]
    fn a_connection_is_told_the_port_of_its_kind() {
        let record = NodeRecord {
            ip: "1.2.3.4".into(),
            port: 1,
            tls_port: 2,
            ..NodeRecord::default()
        };
        let settings = Settings::default();
        let of =
            |record: &NodeRecord, is_tls| Endpoint::of_record(record, &settings, is_tls).redirect();
        assert_eq!(
            [of(&record, false), of(&record, true)],
            ["1.2.3.4:1", "1.2.3.4:2"]
        );
        let only_tls = NodeRecord {
            port: 0,
            ..record.clone()
        };
        assert_eq!(of(&only_tls, false), "1.2.3.4:2");
        let only_plain = NodeRecord {
            tls_port: 0,
            ..record
        };
        assert_eq!(of(&only_plain, true), "1.2.3.4:1");
    }
}
