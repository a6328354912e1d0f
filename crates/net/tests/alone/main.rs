//! Tests that need their process to themselves, since its signal handlers and its descriptors are those of all threads. They
//! run one after the other.

mod descriptors;
mod signals;
#[path = "../it/sockets/mod.rs"]
mod sockets;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test while it runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed is no reason for the others to fail.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
