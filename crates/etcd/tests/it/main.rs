//! Stores beside each other: the same calls have the same answers. Must not know the stores' insides.
//!
//! Those with a real etcd are run by `cargo xtask compat cluster-etcd`, which names its program in REDLINE_ETCD.

mod conformance;
mod real;
