//! The routing table, published by the control side and received by workers. Must not know its contents.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redline_net::tls::ClientTls;

use crate::route::Routes;

/// The current routing table, written by the control side and read by workers.
#[derive(Debug)]
pub struct Published {
    epoch: AtomicU64,
    latest: Mutex<(Arc<Routes>, PoolsTls)>,
}

/// TLS to the servers of each pool, for new connections.
pub type PoolsTls = Arc<[Option<ClientTls>]>;

impl Published {
    /// Returns a publisher with this table.
    pub fn new(routes: Routes, tls: PoolsTls) -> Published {
        Published {
            epoch: AtomicU64::new(1),
            latest: Mutex::new((Arc::new(routes), tls)),
        }
    }

    /// Replaces the table; workers adopt it in their next turn.
    pub fn publish(&self, routes: Routes, tls: PoolsTls) {
        *self.lock() = (Arc::new(routes), tls);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that changes with every publication: one load per turn.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the current table.
    pub fn current(&self) -> Arc<Routes> {
        Arc::clone(&self.lock().0)
    }

    /// Returns the table, and the TLS that goes with it.
    pub fn latest(&self) -> (Arc<Routes>, PoolsTls) {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Arc<Routes>, PoolsTls)> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Placement, Pool};

    #[test]
    fn a_publication_is_seen_by_its_epoch() {
        let routes = |pools| Routes {
            nodes: Vec::new(),
            pools,
            prefixes: Arc::default(),
        };
        let published = Published::new(routes(Vec::new()), Arc::default());
        let before = published.epoch();
        assert!(published.current().pools.is_empty());
        published.publish(
            routes(vec![Pool {
                name: "a".to_owned(),
                shards: Vec::new(),
                placement: Placement::One,
                databases: 16,
                spreads_reads: false,
                learned: None,
                keepalive_s: 0,
                caching: None,
                has_tls: false,
            }]),
            Arc::default(),
        );
        assert_ne!(published.epoch(), before);
        assert_eq!(published.current().pools.len(), 1);
    }
}
