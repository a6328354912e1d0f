//! State that all workers of a process share. Must not know connections.

use std::sync::Arc;

use crate::access::Identities;
use crate::admission::Traffic;
use crate::cluster_view::ClusterView;
use crate::command_names::Names;
use crate::observability::Observations;
use crate::scripts::Scripts;
use crate::settings::Settings;

/// See the module's text.
pub struct Shared {
    /// Limits.
    pub settings: Settings,
    /// The users; none: every client may do everything.
    pub identities: Option<Arc<Identities>>,
    /// Faults on purpose, and copies for other pools.
    pub traffic: Traffic,
    /// Commands under other names, and such that the table does not have.
    pub names: Names,
    /// How CLUSTER is answered; none: as a server that is in no cluster does.
    pub cluster_view: Option<ClusterView>,
    /// Scripts that went through.
    pub scripts: Scripts,
    /// The port of the first listener.
    pub port: u16,
    /// Number of workers.
    pub workers: usize,
    /// Counters and logs.
    pub observations: Observations,
}
