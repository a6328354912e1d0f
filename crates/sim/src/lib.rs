//! Simulation of the engine: several executors on one thread, with a clock of its own, and a seed that decides which one runs
//! next.
//!
//! Equal plans run equally, so a violation of an invariant is repeated by its seed. Start with [`run`].
//!
//! | file | holds |
//! |---|---|
//! | `world` | the executors, the choice of the next step, the end of a run |
//! | `surroundings` | an executor's outlet: clients, messages, time |
//! | `actors` | requests of clients, and their checks of the replies |
//! | `ledger` | facts that must be true of the data: the invariants |
//! | `runner` | calls of one client, one after the other |
//! | `replica` | a second engine, which gets the journal's records |
//!
//! # Invariants
//!
//! - Counters have been raised as often as was acknowledged; of increments under WATCH none is lost.
//! - Transfers between accounts, by EXEC and by script, keep the sum, and no account is negative.
//! - An item that is pushed into a queue is taken out once, by blocked clients as well.
//! - A client that tracks keys does not have an outdated value once its messages have come.
//! - The journal's records, replayed in their order on another engine, give the same data.
//! - Every request gets its reply in the end.
//!
//! Must not know: sockets, threads.

#![forbid(unsafe_code)]

mod actors;
mod ledger;
mod replica;
mod runner;
mod surroundings;
mod world;

pub use redline_engine::executor::Fault;
pub use runner::{Outcome, Runner};
pub use surroundings::{Bare, NoFault, Plant, Surroundings};
pub use world::{Plan, Report, Stage, Violation, run, run_with};
