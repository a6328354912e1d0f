//! Forwarding loops: an upstream that is one of the proxy's own listeners, from which it is reached again. Addresses are
//! compared as they are written; no name is resolved, and the addresses of this machine are not read.
//!
//! An upstream that is an own listener is no fault by itself: that listener may have another pool. So calls of listeners
//! are followed, and only a closed circle is an error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;

/// Calls of a listener arrive at another one.
struct Way {
    from: usize,
    to: usize,
    /// The pool between them.
    pool: usize,
    /// The address of the upstream.
    address: String,
}

impl Check {
    pub(super) fn loops(&mut self, config: &Config) {
        let mut said: Vec<(usize, String)> = Vec::new();
        let ways = ways(config);
        for way in &ways {
            let error = (way.pool, way.address.clone());
            if leads_to(&ways, way.to, way.from) && !said.contains(&error) {
                let (pool, bind) = (&config.pools[way.pool], &config.listeners[way.to].bind);
                let place = format!("pool \"{}\"", pool.name);
                let listener = match way.address == bind.to_string() {
                    true => String::new(),
                    false => format!(" ({bind})"),
                };
                self.error(&place, format!(
                    "{} is a listener of this proxy{listener}, whose calls come here again: they would go round for ever; name the server that has the keys",
                    way.address
                ));
                said.push(error);
            }
        }
    }
}

/// Returns the listeners at which the calls of each listener arrive.
fn ways(config: &Config) -> Vec<Way> {
    let number = |name: &String| config.pools.iter().position(|pool| pool.name == *name);
    let mut ways = Vec::new();
    for (from, listener) in config.listeners.iter().enumerate() {
        let own = listener.pool.as_ref().map_or(Some(0), number);
        let copies = config.mirrors.iter().filter(|mirror| match &mirror.from {
            Some(name) => number(name) == own,
            None => true,
        });
        // A prefix that a route strips is gone the next time; so that ends, or continues as keys without a route.
        let routes = config.routes.iter().filter(|route| !route.strip);
        let others = copies.map(|mirror| &mirror.pool);
        let others = others.chain(routes.map(|route| &route.pool));
        let mut pools: Vec<usize> = own.into_iter().chain(others.filter_map(number)).collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools {
            ways.extend(ways_over(config, from, pool));
        }
    }
    ways
}

/// Returns the ways of a listener's calls over one pool.
fn ways_over(config: &Config, from: usize, pool: usize) -> impl Iterator<Item = Way> {
    let servers = config.pools.get(pool).map(Pool::servers);
    servers.into_iter().flatten().flat_map(move |server| {
        let listeners = config.listeners.iter().enumerate();
        let own = listeners.filter(|(_, listener)| is_same(&listener.bind, &server.address));
        own.map(move |(to, _)| Way {
            from,
            to,
            pool,
            address: server.address.to_string(),
        })
    })
}

/// Returns true if requests of the listener `from` get to the listener `to`, or if both are the same.
fn leads_to(ways: &[Way], from: usize, to: usize) -> bool {
    let mut seen = vec![from];
    let mut next = 0;
    while let Some(&at) = seen.get(next) {
        if at == to {
            return true;
        }
        for way in ways.iter().filter(|way| way.from == at) {
            if !seen.contains(&way.to) {
                seen.push(way.to);
            }
        }
        next += 1;
    }
    false
}

/// Returns true if a connection to `server` arrives at the listener `bind`, as far as known.
fn is_same(bind: &Place, server: &Place) -> bool {
    match (bind, server) {
        (Place::Unix(bind), Place::Unix(server)) => bind == server,
        (
            Place::Tcp { host: bind, port },
            Place::Tcp {
                host: server,
                port: at,
            },
        ) => *port != 0 && port == at && is_same_host(bind, server),
        _ => false,
    }
}

fn is_same_host(bind: &str, server: &str) -> bool {
    let bind_ip = match bind {
        "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => literal(bind),
    };
    let (Some(bind), Some(server)) = (bind_ip, literal(server)) else {
        return bind.eq_ignore_ascii_case(server);
    };
    // Connecting to the unspecified address is connecting to this machine.
    let server = match server {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    // Each family has listeners of its own.
    bind == server
        || bind.is_unspecified() && server.is_loopback() && bind.is_ipv4() == server.is_ipv4()
}

/// Returns the address of an IP address literal, or of `localhost`, the one name that means the same everywhere.
fn literal(host: &str) -> Option<IpAddr> {
    if host.eq_ignore_ascii_case("localhost") {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    host.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}
