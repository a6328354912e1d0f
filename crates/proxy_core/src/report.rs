//! Reports from workers to the control side. Must not know their effects.

use crate::route::NodeId;

/// An event for the control side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A server redirects a slot to another one. An empty host is that of the sender.
    Moved {
        /// The pool's number.
        pool: u16,
        /// The slot.
        slot: u16,
        /// The server that sent the redirect.
        node: NodeId,
        /// The host that has the slot.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A redirect names a server that is in no routing table.
    Unknown {
        /// The pool's number.
        pool: u16,
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A connection could not be made, or it broke.
    Failed {
        /// The server.
        node: NodeId,
        /// Number of clients' requests that it has answered so far, for all workers.
        answers: u64,
    },
    /// A request or a connection attempt at a server timed out.
    TimedOut {
        /// The server.
        node: NodeId,
        /// Number of clients' requests that it has answered so far, for all workers.
        answers: u64,
    },
    /// A connection was established, and the server accepts the greeting.
    Well {
        /// The server.
        node: NodeId,
    },
    /// A client has called an unknown command.
    Foreign {
        /// The number of its pool.
        pool: u16,
    },
    /// No server is known for a slot, or the cluster is down.
    Lost {
        /// The pool's number.
        pool: u16,
    },
}
