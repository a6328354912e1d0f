//! Commands that the reference server has and this one does not have yet, by name alone: ACL rules are written for
//! both, and must be accepted before all commands in them can be called.
//!
//! A name here is no command: it has no row, no number and no handler, COMMAND and ACL CAT do not list it, and a call
//! of it is a call of an unknown command. A name leaves this list when its row enters the table: a test here checks
//! this, and one of `cargo xtask compat spec` that no name is missing.
//!
//! Must not know: the effect of such a command.

/// Returns the full name (`container|subcommand` of a subcommand, in lower case) of a command that is not built, for
/// any case of `name`. `None`: there is a row of that name, or the reference server has none either.
pub fn unbuilt(name: &[u8]) -> Option<&'static str> {
    let mut names = UNBUILT.iter();
    names
        .find(|known| known.as_bytes().eq_ignore_ascii_case(name))
        .copied()
}

/// Full names of these commands, in order.
pub const UNBUILT: &[&str] = &["module|load", "module|loadex", "module|unload"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_row_is_not_unbuilt() {
        for row in crate::table::all() {
            assert_eq!(unbuilt(row.full_name.as_bytes()), None);
        }
    }

    #[test]
    fn a_name_is_found_in_any_case() {
        assert_eq!(unbuilt(b"MODULE|Load"), Some("module|load"));
        assert_eq!(unbuilt(b"Module|LOADEX"), Some("module|loadex"));
        assert_eq!(unbuilt(b"module|"), None);
        assert_eq!(unbuilt(b"info"), None);
    }

    #[test]
    fn no_container_is_unbuilt() {
        for (container, _) in UNBUILT.iter().filter_map(|name| name.split_once('|')) {
            assert_eq!(unbuilt(container.as_bytes()), None);
        }
    }
}
