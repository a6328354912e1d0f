//! The core of `redline proxy`: a state machine. Its inputs are bytes of clients and servers, routing tables and times
//! ([`core`]); its output is in their buffers, which the shell writes out. This crate must not know sockets, threads,
//! files or clocks: what it needs of the process is [`shell::Shell`], which a worker implements, and so do tests.
//!
//! The parts are layers, and each knows only those below: `clients`, `links` and `gathers` own their state; a
//! [`context::Context`] has them, the cache and the routing table; [`connections::Connections`] have a context, subscriptions
//! and retries, and know how connections end. A command is a function that takes as much of that as it may change.
//!
//! | | file | holds |
//! |---|---|---|
//! | around | `core`, `shell` | events; requests to the process |
//! | | `settings`, `shared` | limits and time-outs; what all workers share |
//! | | `report` | reports to the control side |
//! | routing | `route` | the routing table: which server has a key; `hash`, `prefix`: which shard, and which pool |
//! | parts | `client`, `clients`, `client_info` | a client, all of them, and the part of one that all workers see |
//! | | `ahead` | requests of a client that sends without reading replies |
//! | | `upstream`, `links` | a connection to a server, and all of them; `slab`: numbered places |
//! | | `gather`, `gathers`, `merge` | replies made of parts of several servers |
//! | | `context` | those parts, the making of connections, and the routing of requests |
//! | | `connections` | the end of connections |
//! | | `retry` | requests that are sent again |
//! | | `subscriptions` | one upstream connection for the subscriptions of all clients |
//! | | `cache` | replies to GET of hot keys |
//! | requests | `requests` | decodes requests and routes each; `request`: those that were forwarded |
//! | | `class` | the route of a command; `command_names`: commands that the table does not have, or not by that name |
//! | | `access`, `foreign`, `routing_checks` | rights of users; calls of commands that the table does not have |
//! | | `admission`, `rate_limit` | rates of users, injected faults, copies for another pool |
//! | | `replica_reads` | the server for a call that only reads |
//! | | `split` | requests that concern several servers |
//! | | `leases` | dedicated connections of a client: blocking calls, transactions |
//! | | `streaming` | long values in pieces |
//! | | `scripts`, `script_calls` | scripts that are loaded into servers that lack them |
//! | replies | `replies` | the client of each reply; `errors`: errors of the proxy itself |
//! | | `redirect` | MOVED, ASK and temporary errors |
//! | answered here | `local_commands` | commands about the connection |
//! | | `cluster_commands`, `cluster_view` | CLUSTER, and the cluster that clients are shown |
//! | | `command_table`, `command_docs` | COMMAND, and the commands that clients are shown |
//! | | `cached_reads` | GET from the cache |
//! | | `observability` | counters, latencies, MONITOR |

#![forbid(unsafe_code)]

pub mod access;
pub mod admission;
pub mod ahead;
pub mod cache;
pub mod cached_reads;
pub mod class;
pub mod client;
pub mod client_info;
pub mod clients;
pub mod cluster_commands;
pub mod cluster_view;
pub mod command_docs;
pub mod command_names;
pub mod command_table;
pub mod connections;
pub mod context;
pub mod core;
pub mod errors;
pub mod foreign;
pub mod gather;
pub mod gathers;
pub mod hash;
pub mod leases;
pub mod links;
pub mod local_commands;
pub mod merge;
pub mod observability;
pub mod prefix;
pub mod rate_limit;
pub mod redirect;
pub mod replica_reads;
pub mod replies;
pub mod report;
pub mod request;
pub mod requests;
pub mod retry;
pub mod route;
pub mod routing_checks;
pub mod script_calls;
pub mod scripts;
pub mod settings;
pub mod shared;
pub mod shell;
pub mod slab;
pub mod split;
pub mod streaming;
pub mod subscriptions;
#[cfg(test)]
mod testing;
pub mod upstream;
