//! Reports from workers to the control side. Must not know what it makes of it.

use crate::route::NodeId;

/// Something that the control side may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A server says that another one has the slot. An empty host is that of the server that said so.
    Moved {
        /// The pool's number.
        pool: u16,
        /// The slot.
        slot: u16,
        /// The server that sent the redirect.
        node: NodeId,
        /// Where the slot is.
        host: String,
        /// Its port there.
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
        /// Which server.
        node: NodeId,
        /// How many requests of clients it has answered so far, those of all workers.
        answers: u64,
    },
    /// A server kept a request, or a connection attempt, waiting for too long.
    TimedOut {
        /// Which server.
        node: NodeId,
        /// How many requests of clients it has answered so far, those of all workers.
        answers: u64,
    },
    /// A connection was made, and the server accepts who we are.
    Well {
        /// Which server.
        node: NodeId,
    },
    /// A client has called a command that nobody here knows.
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
