//! The load: an engine of threads and connections, and one measured run with its result.
//!
//! Knows neither the sub-commands nor how results are shown; redis-benchmark's command line uses the engine alone.
//!
//! The engine:
//!
//! | file | holds |
//! |---|---|
//! | `engine` | one test: its threads, its start and its end |
//! | `worker`, `outgoing` | one load thread: the hot path; bytes that wait for room in a socket |
//! | `cluster/` | loads that follow their data from node to node: Redis Cluster, Sentinel |
//! | `workload/` | requests: templates, distributions of keys, values |
//! | `memcached` | replies of memcached's text protocol |
//! | `probe` | the first connection, which asks the server for its configuration |
//! | `target` | the server to load, and its user |
//! | `control` | the main thread's wait: signals, finished workers, deadlines |
//! | `failure` | reasons for ending a run early, and exit codes |
//! | `null_server` | a server that does nothing, to measure the generator's own cost |
//!
//! The measurement:
//!
//! | file | holds |
//! |---|---|
//! | `arguments`, `objective` | the options of a run |
//! | `plan` | the checked plan of a run |
//! | `execute` | one run from its first connection to its result |
//! | `server` | one server that takes part |
//! | `drive`, `record` | one thread's part: sending and recording |
//! | `series` | measurements of all threads, over time |
//! | `watch`, `measured` | observations during a run, and its result |
//! | `live` | the view of a running test |
//! | `cause/` | resources of each party, and the bottleneck |
//! | `result` | the schema of the result |

pub mod arguments;
pub mod cause;
pub mod cluster;
pub mod control;
pub mod drive;
pub mod engine;
pub mod execute;
pub mod failure;
mod live;
mod measured;
mod memcached;
mod null_server;
pub mod objective;
pub mod origin;
mod outgoing;
pub mod plan;
pub mod probe;
mod progress;
pub mod record;
pub mod result;
mod series;
mod server;
pub mod target;
pub mod watch;
pub mod worker;
pub mod workload;
