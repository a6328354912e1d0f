//! Tests that need their process to themselves, since they measure or limit all of it: resident memory, descriptors, the CPU time
//! of its threads. They run one after the other.

#[path = "../it/client/mod.rs"]
mod client;
mod descriptors;
mod greedy;
mod idle;
mod memory;
mod security;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each test holds this while it runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // One that failed is no reason for the others to.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
