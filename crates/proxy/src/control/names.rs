//! What the names of servers mean: looked up on threads of their own, and again from time to time. Knows no connection.

use std::thread;

use redline_net::{Address, Endpoint, clock};

use super::Control;
use super::nodes::literal;

/// How often a name is looked up again, at most; a name that works is looked up every `NAMES_MS`.
const LOOK_UP_MS: u64 = 1_000;
const NAMES_MS: u64 = 30_000;
/// Names that are looked up at once, each on a thread of its own; others wait for their turn.
const UNDER_WAY_MAX: usize = 512;
/// Names that are remembered; beyond that those that nobody asks for any more are forgotten: servers say whatever they like.
const NAMES_MAX: usize = 4_096;

/// Names that were looked up.
pub(super) struct Found {
    address: Address,
    endpoints: Vec<Endpoint>,
}

/// What is known of a name.
#[derive(Clone, Default)]
pub(super) struct Name {
    /// When it was looked up last; 0: never.
    looked_ms: u64,
    is_under_way: bool,
    /// What it means.
    endpoint: Option<Endpoint>,
}

impl Control {
    /// Looks all names up before anything else happens.
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

    /// What an address means, as far as that is known; names are looked up aside.
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

    pub(super) fn look_up(&mut self, address: &Address, now_ms: u64) {
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
        let started = thread::Builder::new()
            .name("proxy-names".to_owned())
            .spawn(look);
        // Without a thread the name is looked up later.
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
            // As long as the name still has it, the same one: names with many addresses turn them round.
            let stays = name.endpoint.as_ref();
            let stays = stays.is_some_and(|known| endpoints.contains(known));
            if !stays && !endpoints.is_empty() {
                name.endpoint = endpoints.into_iter().next();
            }
        }
        for (node, address) in self.nodes.named() {
            let endpoint = self
                .names
                .get(&address)
                .and_then(|name| name.endpoint.clone());
            if let (Some(known), Some(_)) = (self.nodes.get_mut(node), &endpoint)
                && known.endpoint != endpoint
            {
                known.endpoint = endpoint;
                self.is_changed = true;
            }
        }
    }
}
