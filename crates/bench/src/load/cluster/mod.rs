//! Loads that follow their data: requests go to the node that owns their key, and are sent again after a redirect.
//!
//! Separate from the worker of one server (`worker`), whose hot path does not know it. redis-benchmark's `--cluster`
//! follows nothing: it uses that path, with keys that belong to their connection's node.
//!
//! | file | holds |
//! |---|---|
//! | `source` | the source of the topology |
//! | `map` | owners of slots: Redis Cluster's map, or the one primary of Sentinel |
//! | `requests` | the slot of a rendered request |
//! | `follow` | one thread: its clients, redirects, and repeated requests; `follow/links` its connections to every node |

pub mod follow;
pub mod map;
mod requests;
pub mod source;
