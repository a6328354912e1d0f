//! Integration tests of the bench, in one binary. What has to be alone in its process is in `tests/alone`.

mod behaviour;
mod compare;
mod fake_server;
mod following;
mod golden;
mod in_vain;
mod invocation;
mod losses;
mod memtier;
mod run;
mod suites;
