//! Loads that follow their data: requests go to the node that owns their key, and come again when it was another.
//!
//! Apart from the worker of one server (`worker`), whose straight path knows nothing of it. redis-benchmark's `--cluster`
//! follows nothing: it is on that path, with keys that belong where they are sent.
//!
//! | file | holds |
//! |---|---|
//! | `source` | who says where the data is |
//! | `map` | who owns which slot: Redis Cluster's map, or the one primary that Sentinel names |
//! | `masters` | what redis-benchmark's `--cluster` sends to which master |
//! | `requests` | where a rendered request belongs |
//! | `follow` | one thread: its clients, redirects, and requests that come again; `follow/links` its connections to every node |

pub mod follow;
pub mod map;
pub mod masters;
mod requests;
pub mod source;
