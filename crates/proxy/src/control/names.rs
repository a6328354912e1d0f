//! Resolution of servers' names: on separate threads, and again from time to time. Knows no connection.
//!
//! A name with several addresses is one server: one address is used for as long as the name has it. If it is
//! unreachable, the next one is used.

use std::collections::HashMap;

use redline_net::{Address, Endpoint, Mailbox, Waker};

use super::nodes::{Nodes, literal};
use super::table::Table;
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

/// Names of servers and their addresses.
pub(super) struct Names {
    known: HashMap<Address, Name>,
    found: Mailbox<Found>,
}

impl Names {
    /// Returns no names. `waker` ends the wait of the thread that takes the results.
    pub(super) fn new(waker: Waker) -> Names {
        Names {
            known: HashMap::new(),
            found: Mailbox::new(waker),
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
        } = self.known.get(address).cloned().unwrap_or_default();
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
        if self.known.len() >= NAMES_MAX && !self.known.contains_key(address) {
            let is_old = |name: &Name| now_ms >= name.looked_ms + 2 * NAMES_MS;
            self.known
                .retain(|_, name| name.is_under_way || !is_old(name));
            if self.known.len() >= NAMES_MAX {
                return;
            }
        }
        let under_way = self.known.values().filter(|name| name.is_under_way);
        if under_way.count() >= UNDER_WAY_MAX {
            return;
        }
        let entry = self.known.entry(address.clone()).or_default();
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

    /// Takes the results that have arrived.
    pub(super) fn take(&mut self) {
        let mut found = Vec::new();
        self.found.drain(&mut found);
        for Found { address, endpoints } in found {
            if let Some(name) = self.known.get_mut(&address) {
                name.is_under_way = false;
                name.take(endpoints);
            }
        }
    }

    /// Called right before the thread waits. Returns false if results are there.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        self.found.prepare_to_sleep()
    }

    /// Notes that this address was reachable.
    pub(super) fn answers(&mut self, address: &Address) {
        if let Some(name) = self.known.get_mut(address) {
            name.has_answered = true;
        }
    }

    /// Notes an unreachable endpoint of an address. If its name has several, the next one is used, if this one was never
    /// reachable, or is given up. Returns true if the next one is used.
    pub(super) fn fails(
        &mut self,
        address: &Address,
        endpoint: &Endpoint,
        is_given_up: bool,
        now_ms: u64,
    ) -> bool {
        self.look_up(address, now_ms);
        let Some(name) = self.known.get_mut(address) else {
            return false;
        };
        name.endpoint.as_ref() == Some(endpoint)
            && (is_given_up || !name.has_answered)
            && name.go_on()
    }

    /// Sets the resolved endpoints of servers with names.
    pub(super) fn apply(&self, nodes: &mut Nodes, table: &mut Table) {
        for (node, address) in nodes.named() {
            let endpoint = self
                .known
                .get(&address)
                .and_then(|name| name.endpoint.clone());
            if let (Some(known), Some(now)) = (nodes.get_mut(node), endpoint)
                && known.endpoint.as_ref() != Some(&now)
            {
                match &known.endpoint {
                    Some(_) => table.note_news(format!("{address} is at {now} now")),
                    None => table.note(true),
                }
                known.endpoint = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::nodes::Who;

    const NOW_MS: u64 = 1_000_000;

    /// A server at a name, and the state of its resolution.
    struct Given {
        names: Names,
        nodes: Nodes,
        table: Table,
        address: Address,
    }

    impl Given {
        fn new() -> Given {
            let address = Address::tcp("several.invalid", 7);
            let mut nodes = Nodes::default();
            nodes.number(&address, 0, Who::default(), NOW_MS);
            Given {
                names: Names {
                    known: HashMap::new(),
                    found: Mailbox::with_wake(|| {}),
                },
                nodes,
                table: Table::default(),
                address,
            }
        }

        /// Sets the result of the name's resolution.
        fn found(&mut self, hosts: &[&str]) {
            let address = self.address.clone();
            let endpoint = |host: &&str| Endpoint::Tcp(format!("{host}:7").parse().unwrap());
            let endpoints = hosts.iter().map(endpoint).collect();
            self.names.known.entry(address.clone()).or_default();
            self.names.found.sender().send(Found { address, endpoints });
            self.names.take();
            self.names.apply(&mut self.nodes, &mut self.table);
        }

        fn endpoint(&self) -> Option<Endpoint> {
            self.nodes.get(0).unwrap().endpoint.clone()
        }

        fn place(&self) -> String {
            self.endpoint().unwrap().to_string()
        }

        /// Fails there, with two questions of one connection.
        fn fail(&mut self, is_given_up: bool) {
            let endpoint = self.endpoint().unwrap();
            for _ in 0..2 {
                let names = &mut self.names;
                if names.fails(&self.address, &endpoint, is_given_up, NOW_MS) {
                    names.apply(&mut self.nodes, &mut self.table);
                }
            }
        }
    }

    #[test]
    fn where_nobody_answers_at_an_address_of_a_name_the_next_one_is_tried() {
        let mut given = Given::new();
        let all = ["10.0.0.2", "10.0.0.3", "[::1]", "10.0.0.1"];
        given.found(&all);
        let mut places = Vec::new();
        for _ in 0..5 {
            places.push(given.place());
            given.fail(false);
            given.found(&all);
        }
        let wanted = ["10.0.0.2:7", "10.0.0.3:7", "[::1]:7", "10.0.0.1:7"];
        assert_eq!(places[..4], wanted);
        assert_eq!(places[4], wanted[0]);
    }

    #[test]
    fn an_address_of_a_name_that_answers_is_kept_until_it_is_given_up() {
        let mut given = Given::new();
        assert!(given.endpoint().is_none() && !given.table.take_change());
        given.found(&["10.0.0.1", "10.0.0.2"]);
        assert!(given.table.take_change());
        given.names.answers(&given.address);
        // It is resolved again, and its addresses are rotated; and it fails once.
        given.found(&["10.0.0.2", "10.0.0.1"]);
        given.fail(false);
        assert_eq!(given.place(), "10.0.0.1:7");
        assert!(!given.table.take_change());
        given.fail(true);
        assert_eq!(given.place(), "10.0.0.2:7");
        assert!(given.table.take_change());
        // The name has neither of them any more.
        given.found(&["10.0.0.9"]);
        assert_eq!(given.place(), "10.0.0.9:7");
        // The resolution failed.
        given.found(&[]);
        assert_eq!(given.place(), "10.0.0.9:7");
    }
}
