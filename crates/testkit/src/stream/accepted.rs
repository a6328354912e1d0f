//! Differences between the streams that stay, each with its reason and its row in `docs/differences.md`. The comparison
//! accepts these and nothing else.

use crate::stream::told::Hunk;

/// Largest number of entries, so that the list stays a list of exceptions.
pub const DELIBERATE_MAX: usize = 15;

/// A deliberate difference.
#[derive(Clone, Copy, Debug)]
pub struct Deliberate {
    /// The name of the difference, which its row in `docs/differences.md` begins with.
    pub name: &'static str,
    /// Returns true if this call, of those that led to the hunk, explains it.
    pub explains: fn(call: &[Vec<u8>], hunk: &Hunk) -> bool,
}

/// The list.
pub const DELIBERATE: &[Deliberate] = &[];

/// Returns the entry that explains a hunk by one of these calls.
pub fn explain(calls: &[Vec<Vec<u8>>], hunk: &Hunk) -> Option<&'static Deliberate> {
    DELIBERATE
        .iter()
        .find(|entry| calls.iter().any(|call| (entry.explains)(call, hunk)))
}
