//! Resolution of servers' names: on separate threads, and again from time to time. Knows no connection.
//!
//! A name with several addresses is one server: one address is used for as long as the name has it. If it is
//! unreachable, the next one is used.

use redline_net::{Address, Endpoint, clock};

use super::Control;
use super::nodes::literal;
use crate::start::spawn;

/// Smallest interval between resolutions of a name; a name that works is resolved every `NAMES_MS`.
const LOOK_UP_MS: u64 = 1_000;
const NAMES_MS: u64 = 30_000;
/// Largest number of names that are resolved at once, each on its own thread; others wait.
const UNDER_WAY_MAX: usize = 512;
/// Largest number of names that are kept; beyond that unused ones are dropped: servers may send any names.
const NAMES_MAX: usize = 4_096;

/// Resolved names.
pub(super) struct Found {
    address: Address,
    endpoints: Vec<Endpoint>,
}

/// State of a name.
#[derive(Clone, Default)]
pub(super) struct Name {
    /// Time of the last resolution; 0: never.
    looked_ms: u64,
    is_under_way: bool,
    /// Its addresses, IPv4 first.
    endpoints: Vec<Endpoint>,
    /// The address in use.
    endpoint: Option<Endpoint>,
    /// The address has been reachable.
    has_answered: bool,
}

impl Name {
    /// Takes the result of a resolution. After a failure the old result stays.
    fn take(&mut self, mut endpoints: Vec<Endpoint>) {
        let Some(first) = endpoints.first().cloned() else {
            return;
        };
        // As long as the name still has it, the same one: names with many addresses rotate them.
        let stays = |known: &Endpoint| endpoints.contains(known);
        if !self.endpoint.as_ref().is_some_and(stays) {
            (self.endpoint, self.has_answered) = (Some(first), false);
        }
        endpoints.sort_by_key(|endpoint| match endpoint {
            Endpoint::Tcp(address) => (address.is_ipv6(), Some(*address)),
            Endpoint::Unix(_) => (false, None),
        });
        self.endpoints = endpoints;
    }

    /// Switches to its next address; returns true if it has several.
    fn go_on(&mut self) -> bool {
        let known = |endpoint: &Endpoint| self.endpoint.as_ref() == Some(endpoint);
        let Some(at) = self.endpoints.iter().position(known) else {
            return false;
        };
        let next = self.endpoints[(at + 1) % self.endpoints.len()].clone();
        (self.endpoint, self.has_answered) = (Some(next), false);
        self.endpoints.len() > 1
    }
}

impl Control {
    /// Resolves all names before anything else happens.
    pub(super) fn look_up_all_now(&mut self) {
        let now_ms = clock::monotonic_ms();
        self.mark_used(now_ms);
        let addresses: Vec<Address> = self
            .nodes
            .iter()
            .map(|(_, known)| known.address.clone())
            .collect();
        for address in addresses {
            self.endpoint_of(&address, now_ms);
        }
    }

    /// Returns the endpoint of an address, if it is known; names are resolved in the background.
    pub(super) fn endpoint_of(&mut self, address: &Address, now_ms: u64) -> Option<Endpoint> {
        if let Some(endpoint) = literal(address) {
            return Some(endpoint);
        }
        let Name {
            looked_ms,
            endpoint: known,
            ..
        } = self.names.get(address).cloned().unwrap_or_default();
        let age_max_ms = if known.is_some() {
            NAMES_MS
        } else {
            LOOK_UP_MS
        };
        if looked_ms == 0 || now_ms >= looked_ms + age_max_ms {
            self.look_up(address, now_ms);
        }
        known
    }

    /// Begins to resolve a name, if it is one, and that is not in progress.
    pub(super) fn look_up(&mut self, address: &Address, now_ms: u64) {
        if literal(address).is_some() {
            return;
        }
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(address) {
            let is_old = |name: &Name| now_ms >= name.looked_ms + 2 * NAMES_MS;
            self.names
                .retain(|_, name| name.is_under_way || !is_old(name));
            if self.names.len() >= NAMES_MAX {
                return;
            }
        }
        let under_way = self.names.values().filter(|name| name.is_under_way);
        if under_way.count() >= UNDER_WAY_MAX {
            return;
        }
        let entry = self.names.entry(address.clone()).or_default();
        let is_early = entry.looked_ms != 0 && now_ms < entry.looked_ms + LOOK_UP_MS;
        if is_early || entry.is_under_way {
            return;
        }
        entry.looked_ms = now_ms.max(1);
        let (sender, address) = (self.found.sender(), address.clone());
        let look = move || {
            let endpoints = address.resolve().unwrap_or_default();
            sender.send(Found { address, endpoints });
        };
        let started = spawn("proxy-names", look);
        // Without a thread the name is resolved later.
        entry.is_under_way = started.is_ok();
    }

    pub(super) fn take_names(&mut self) {
        let mut found = Vec::new();
        self.found.drain(&mut found);
        for Found { address, endpoints } in found {
            let Some(name) = self.names.get_mut(&address) else {
                continue;
            };
            name.is_under_way = false;
            name.take(endpoints);
        }
        self.apply_names();
    }

    /// Notes that this address was reachable.
    pub(super) fn name_answers(&mut self, address: &Address) {
        if let Some(name) = self.names.get_mut(address) {
            name.has_answered = true;
        }
    }

    /// Handles an unreachable endpoint of an address. If its name has several, the next one is used, if this one was
    /// never reachable, or is given up.
    pub(super) fn name_fails(
        &mut self,
        address: &Address,
        place: &Endpoint,
        is_given_up: bool,
        now_ms: u64,
    ) {
        self.look_up(address, now_ms);
        if let Some(name) = self.names.get_mut(address)
            && name.endpoint.as_ref() == Some(place)
            && (is_given_up || !name.has_answered)
            && name.go_on()
        {
            self.apply_names();
        }
    }

    /// Applies the resolved endpoints of servers with names.
    fn apply_names(&mut self) {
        for (node, address) in self.nodes.named() {
            let endpoint = self
                .names
                .get(&address)
                .and_then(|name| name.endpoint.clone());
            if let (Some(known), Some(_)) = (self.nodes.get_mut(node), &endpoint)
                && known.endpoint != endpoint
            {
                if let (Some(_), Some(now)) = (&known.endpoint, &endpoint) {
                    self.news.push(format!("{address} is at {now} now"));
                }
                known.endpoint = endpoint;
                self.is_changed = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::Config;

    use super::*;
    use crate::control::{Peer, Question};

    const NOW_MS: u64 = 1_000_000;

    fn control() -> Control {
        let text = "[[pool]]\n[[pool.shard]]\nserver = [{ address = 'several.invalid:7' }]\n";
        let config = Config::from_toml(text).unwrap();
        let mut control = Control::new(&config, vec![None]).unwrap();
        control.mark_used(NOW_MS);
        control
    }

    /// Sets the result of the name's resolution.
    fn found(control: &mut Control, hosts: &[&str]) {
        let address = Address::tcp("several.invalid", 7);
        let endpoint = |host: &&str| Endpoint::Tcp(format!("{host}:7").parse().unwrap());
        let endpoints = hosts.iter().map(endpoint).collect();
        control.names.entry(address.clone()).or_default();
        control.found.sender().send(Found { address, endpoints });
        control.take_names();
    }

    fn place(control: &Control) -> String {
        let known = control.nodes.get(0).unwrap();
        known.endpoint.as_ref().unwrap().to_string()
    }

    /// Fails a probe there.
    fn fail(control: &mut Control) {
        let peer = Peer::Node(0);
        let place = control.nodes.get(0).unwrap().endpoint.clone().unwrap();
        control.lost(peer, &[Question::Probe], "refused", NOW_MS);
        control.leave_place(peer, &place, NOW_MS);
        // Another question had been sent there, too.
        control.leave_place(peer, &place, NOW_MS);
    }

    #[test]
    fn where_nobody_answers_at_an_address_of_a_name_the_next_one_is_tried() {
        let mut control = control();
        let all = ["10.0.0.2", "10.0.0.3", "[::1]", "10.0.0.1"];
        found(&mut control, &all);
        let mut places = Vec::new();
        for _ in 0..5 {
            places.push(place(&control));
            fail(&mut control);
            found(&mut control, &all);
        }
        let wanted = ["10.0.0.2:7", "10.0.0.3:7", "[::1]:7", "10.0.0.1:7"];
        assert_eq!(places[..4], wanted);
        assert_eq!(places[4], wanted[0]);
    }

    #[test]
    fn an_address_of_a_name_that_answers_is_kept_until_it_is_given_up() {
        let mut control = control();
        found(&mut control, &["10.0.0.1", "10.0.0.2"]);
        control.well(0, NOW_MS);
        // It is resolved again, and its addresses are rotated; and it fails once.
        found(&mut control, &["10.0.0.2", "10.0.0.1"]);
        fail(&mut control);
        assert_eq!(place(&control), "10.0.0.1:7");
        let limit = control.config.pools[0].failure.limit;
        (1..limit).for_each(|_| fail(&mut control));
        assert_eq!(place(&control), "10.0.0.2:7");
        // The name has neither of them any more.
        found(&mut control, &["10.0.0.9"]);
        assert_eq!(place(&control), "10.0.0.9:7");
        // The resolution failed.
        found(&mut control, &[]);
        assert_eq!(place(&control), "10.0.0.9:7");
    }
}
