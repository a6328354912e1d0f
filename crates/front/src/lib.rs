//! The client side of a port, up to the first request: connections are accepted in shares, admitted or refused, and
//! given the options of their port; those with TLS have a deadline for their handshake.
//!
//! | file | holds |
//! |---|---|
//! | `acceptor` | listeners of one worker, and which of them to accept from, and when |
//! | `admission` | the limit on clients, protected mode, refusals; options of an accepted connection |
//! | `certificates` | the TLS of new connections, which can be replaced |
//! | `handshakes` | deadlines of connections that have not become clients yet |
//!
//! It must not know requests, commands, keys, servers behind a proxy, the worker that serves a connection, or where
//! settings come from.

#![forbid(unsafe_code)]

mod acceptor;
mod admission;
mod certificates;
mod handshakes;

pub use acceptor::{Accepted, Acceptor, Share};
pub use admission::{Admission, prepare, refuse};
pub use certificates::Certificates;
pub use handshakes::Handshakes;
