//! Subscriptions. Must not know connections.

pub mod handover;
