//! What a configuration may say and the running proxy does not do yet. Nothing of it is passed over in silence: what decides
//! over access or over where data goes keeps the proxy from starting, the rest is a warning.

use super::*;

impl Config {
    /// What of it would not be followed.
    pub fn unbuilt(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut add = |is_fatal, is_there: bool, place: &str| {
            if is_there {
                let text = if is_fatal {
                    "this is not built yet; leave it out"
                } else {
                    "this has no effect yet"
                };
                found.push(Problem {
                    place: place.to_owned(),
                    text: text.to_owned(),
                    is_fatal,
                });
            }
        };
        let pools = &self.pools;
        add(
            false,
            pools.iter().any(|pool| pool.keepalive.on().is_some()),
            "pool.keepalive",
        );
        found
    }
}
