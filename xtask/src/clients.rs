//! clients

use crate::compat::Setting;
use crate::run::Failure;

/// To come.
pub fn run(_setting: &Setting) -> Result<String, Failure> {
    Err("not written".to_owned())
}
