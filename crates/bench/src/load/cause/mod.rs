//! The cause of a result: the resources of each party during the measurement, and the bottleneck.
//!
//! Knows no workload. `parties` measures, `verdict` judges: neither does the other's work. `preflight` checks for
//! disturbing conditions before a run.

pub mod parties;
pub mod preflight;
pub mod verdict;
