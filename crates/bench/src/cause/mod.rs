//! Why a number is what it is: what each party used while it was measured, and what follows from that.
//!
//! Knows no workload. `parties` measures, `verdict` judges: the one does not judge, the other does not measure.
//! `preflight` looks for what spoils figures before a run begins.

pub mod parties;
pub mod preflight;
pub mod verdict;
