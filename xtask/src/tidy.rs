//! `cargo xtask tidy`
use crate::run::Failure;
/// To come.
pub fn run() -> Result<(), Failure> {
    Ok(())
}
