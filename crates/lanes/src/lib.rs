//! Long loops over bytes in wide vector registers, where the CPU has them. Knows no types of data: what the bytes mean is
//! up to the caller.
//!
//! Programs for x86-64 may count on SSE2 only, so each loop stands here twice: for AVX2, which is looked for when the
//! program runs (the standard library remembers the answer), and in plain Rust for all other CPUs. Tests compare the two.
//! The unsafe code of this room is calling the first kind, and loads and stores of vectors.

mod ones;
mod sixes;

pub use ones::ones;
pub use sixes::{SIXES_PER_BLOCK, pack_sixes, raise_by_sixes};
