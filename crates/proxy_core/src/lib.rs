//! The core of `redline proxy`: a state machine. Bytes of clients and servers, routing tables and times come in ([`core`]); bytes
//! for both are put into their buffers, which the shell writes out. This room must not know sockets, threads, files or clocks:
//! what it asks of the process around is [`shell::Shell`], which a worker implements, and in tests a shell that has nothing.
//!
//! Its parts stand on one another, and each knows only those below: `clients`, `links` and `gathers` own their state; a
//! [`context::Context`] has them, the cache and the routing table; [`connections::Connections`] have a context, subscriptions and
//! retries, and know how connections end. A command is a function that takes as much of that as it may touch.
//!
//! | | file | holds |
//! |---|---|---|
//! | around | `core`, `shell` | events in; what is asked of the process |
//! | | `settings`, `shared` | limits and time-outs; what all workers share |
//! | | `report` | what the control side is told |
//! | routing | `route` | the routing table: which server has a key; `hash`, `prefix`: which shard, and which pool |
//! | parts | `client`, `clients`, `client_info` | a client, all of them, and what everybody may know of one |
//! | | `ahead` | requests of a client that sends on and does not read |
//! | | `upstream`, `links` | a connection to a server, and all of them; `slab`: numbered places |
//! | | `gather`, `gathers`, `merge` | replies that several servers give parts of, and one reply of several |
//! | | `context` | those parts, how connections are made, and how requests are routed |
//! | | `connections` | how connections end |
//! | | `retry` | requests that are sent again |
//! | | `subscriptions` | one connection for the subscriptions of all |
//! | | `cache` | what GET answers of hot keys |
//! | the way there | `requests` | decodes requests and sends each on its way; `request`: those that were forwarded |
//! | | `class` | which way a command goes; `command_names`: commands that the table does not have, or not by that name |
//! | | `access`, `foreign`, `routing_checks` | who may call what; calls of commands that the table does not have |
//! | | `admission`, `rate_limit` | users' rates, faults on purpose, copies for another pool |
//! | | `replica_reads` | which server answers a call that only reads |
//! | | `split` | requests that concern several servers |
//! | | `leases` | connections of a client's own: blocking calls, transactions |
//! | | `streaming` | long values in pieces |
//! | | `scripts`, `script_calls` | scripts that servers are given when they lack them |
//! | the way back | `replies` | whose each reply is; `errors`: those of the proxy itself |
//! | | `redirect` | MOVED, ASK and what passes |
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
