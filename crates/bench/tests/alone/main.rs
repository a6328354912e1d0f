//! The test that needs its process to itself, since the bench tells a server in its own process from itself by the threads.

#[path = "../it/fake_server/mod.rs"]
mod fake_server;
#[path = "../it/invocation/mod.rs"]
mod invocation;
mod parties;
