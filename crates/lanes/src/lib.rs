//! Long loops over bytes in wide vector registers, where the CPU has them. Knows no data types: the caller knows the
//! meaning of the bytes.
//!
//! Programs for x86-64 may rely on SSE2 only, so each loop exists twice: for AVX2 or another feature, which is
//! detected when the program runs (the standard library remembers the result), and in plain Rust for all other CPUs.
//! Tests compare the two. The unsafe code of this crate is calls of the first kind, and loads and stores of vectors.

mod crc64;
mod ones;
mod sixes;

pub use crc64::crc64;
pub use ones::ones;
pub use sixes::{SIXES_PER_BLOCK, pack_sixes, raise_by_sixes};
