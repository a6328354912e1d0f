//! State that all workers of a process share. Must not know connections.

use std::sync::Arc;

use crate::access::Identities;
use crate::admission::Traffic;
use crate::cluster_view::ClusterView;
use crate::command_names::Names;
use crate::observability::Observations;
use crate::scripts::Scripts;
use crate::settings::Settings;

/// State that all workers share.
pub struct Shared {
    /// Limits.
    pub settings: Settings,
    /// The users; none: every client may call everything.
    pub identities: Option<Arc<Identities>>,
    /// Injected faults, and copies for other pools.
    pub traffic: Traffic,
    /// Renamed commands, and commands that the table does not have.
    pub names: Names,
    /// The answers to CLUSTER; none: those of a server without a cluster.
    pub cluster_view: Option<ClusterView>,
    /// Scripts that were forwarded.
    pub scripts: Scripts,
    /// The port of the first listener.
    pub port: u16,
    /// Number of workers.
    pub workers: usize,
    /// Counters and logs.
    pub observations: Observations,
}
