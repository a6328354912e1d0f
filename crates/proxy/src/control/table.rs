//! The routing table: made of the pools and their servers, and published after a change together with the log lines
//! about it. Knows no connection.

use std::mem;
use std::sync::Arc;

use redline_net::tls::ClientTls;
use redline_proxy_config::Config;

use super::nodes::Nodes;
use super::{Pool, readers, say};
use crate::prefix::Prefixes;
use crate::published::Published;
use crate::route::Routes;

/// The routing table: the published one, and what the next one has to show.
#[derive(Default)]
pub struct Table {
    published: Option<Arc<Published>>,
    prefixes: Arc<Prefixes>,
    is_changed: bool,
    /// Log lines about the next routing table, written when it is published, so that readers can rely on them.
    news: Vec<String>,
}

impl Table {
    /// Sets the prefixes of keys that lead to pools, and notes a change.
    pub fn set_prefixes(&mut self, config: &Config) {
        self.prefixes = Arc::new(prefixes(config));
        self.is_changed = true;
    }

    /// Notes that something the table shows is different now, if it is.
    pub fn note(&mut self, is_changed: bool) {
        self.is_changed |= is_changed;
    }

    /// Notes a change, and the log line about it.
    pub fn note_news(&mut self, line: String) {
        self.news.push(line);
        self.is_changed = true;
    }

    /// Returns true if a change was noted since the last call.
    pub fn take_change(&mut self) -> bool {
        mem::take(&mut self.is_changed)
    }

    /// Publishes the first table.
    pub fn publish_first(
        &mut self,
        config: &Config,
        pools: &[Pool],
        nodes: &Nodes,
    ) -> Arc<Published> {
        let routes = self.routes(config, pools, nodes);
        let published = Arc::new(Published::new(routes, tls(pools).collect()));
        self.published = Some(Arc::clone(&published));
        published
    }

    /// Publishes another table, unless there is no first one yet, and writes the log lines about it.
    pub fn publish(&mut self, config: &Config, pools: &[Pool], nodes: &Nodes) {
        if let Some(published) = &self.published {
            let routes = self.routes(config, pools, nodes);
            published.publish(routes, tls(pools).collect());
        }
        for line in self.news.drain(..) {
            say(&line);
        }
    }

    /// Returns the routing table of all pools.
    fn routes(&self, config: &Config, pools: &[Pool], nodes: &Nodes) -> Routes {
        let routed = pools.iter().map(|pool| {
            let mut routed = pool.known.routed();
            routed.learned = pool.learning.found.clone();
            routed
        });
        let mut routes = Routes {
            nodes: nodes.routed(),
            pools: routed.collect(),
            prefixes: Arc::clone(&self.prefixes),
        };
        readers::appoint(&mut routes, config, nodes);
        routes
    }
}

/// Returns the TLS of each pool.
fn tls(pools: &[Pool]) -> impl Iterator<Item = Option<ClientTls>> {
    pools.iter().map(|pool| pool.known.tls.clone())
}

/// Returns the prefixes of a checked configuration: the pools in its routes exist.
fn prefixes(config: &Config) -> Prefixes {
    let pools = &config.pools;
    let of_routes = config.routes.iter().filter_map(|route| {
        let pool = pools.iter().position(|pool| pool.name == route.pool)?;
        Some((route.prefix.as_str(), pool as u16, route.strip))
    });
    Prefixes::new(of_routes)
}
