//! The oldest glibc that the program starts with.

use std::path::Path;

use redline_testkit::symbols;

use crate::running::REDLINE;

/// That of RHEL 9 and Amazon Linux 2023. The C library that the program is linked with decides for the calls of threads,
/// so that a lower one needs a builder with an older library.
const GLIBC_MAX: (u32, u32) = (2, 34);

#[test]
fn a_symbol_of_glibc_2_35_kept_it_from_starting_elsewhere() {
    let needed = symbols::needed(Path::new(REDLINE)).unwrap();
    assert!(!needed.is_empty());
    let newer: Vec<_> = needed
        .iter()
        .filter(|one| one.glibc().is_some_and(|version| version > GLIBC_MAX))
        .collect();
    assert!(newer.is_empty(), "{newer:?}");
}
