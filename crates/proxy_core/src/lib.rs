//! The core of `redline proxy`: which server has a key, how requests are cut and replies joined, what may be cached. Everything comes
//! in as bytes, routing tables and times. This room must not know sockets, threads, files or clocks.
//!
//! | | file | holds |
//! |---|---|---|
//! | configuration | `settings` | limits and time-outs |
//! | routing | `route` | the routing table: which server has a key; `hash`, `prefix`: which shard, and which pool |
//! | | `report` | what the control side is told |
//! | requests | `request` | requests in bytes that were forwarded |
//! | | `class` | which way a command goes; `command_names`: commands that the table does not have, or not by that name |
//! | | `rate_limit` | how much a user may ask for |
//! | | `scripts` | scripts that servers are given when they lack them |
//! | replies | `gather`, `merge` | parts of replies, and one reply of several |
//! | | `errors` | error replies of the proxy itself |
//! | | `cluster_view`, `command_docs` | the cluster and the commands that clients are shown |
//! | connections | `slab` | numbered places; `client_state`: states of a client |
//! | | `cache` | what GET answers of hot keys |
//! | | `subscriptions` | a name's way from one node to another |

#![forbid(unsafe_code)]

pub mod cache;
pub mod class;
pub mod client_state;
pub mod cluster_view;
pub mod command_docs;
pub mod command_names;
pub mod errors;
pub mod gather;
pub mod hash;
pub mod merge;
pub mod prefix;
pub mod rate_limit;
pub mod report;
pub mod request;
pub mod route;
pub mod scripts;
pub mod settings;
pub mod slab;
pub mod subscriptions;
