//! Where the server answers otherwise than Redis 8.2.3, on purpose. The comparison accepts these and nothing else.
//!
//! Each entry is narrow: what a command does is never excused as a whole. At most [`DIFFERENCES_MAX`] of them.

use redline_resp::reply_decoder::Value;

/// More than this, and the list is no longer a list of exceptions.
pub const DIFFERENCES_MAX: usize = 40;

/// One difference that stays.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// What it is called in reports.
    pub name: &'static str,
    /// Why it stays.
    pub reason: &'static str,
    /// Whether it explains why this call was answered like this by us and like that by Redis.
    pub explains: fn(call: &[Vec<u8>], ours: &Value, theirs: &Value) -> bool,
}

/// The list.
pub const DIFFERENCES: &[Difference] = &[Difference {
    name: "a container's unknown subcommand suggests HELP in our words only where Redis has more subcommands",
    reason: "A subcommand that Redis has and this server does not have yet is unknown here, and said to be.",
    explains: |_, ours, _| starts(ours, b"ERR unknown subcommand") && false,
}];

/// The difference that explains a disagreement.
pub fn explain(call: &[Vec<u8>], ours: &Value, theirs: &Value) -> Option<&'static Difference> {
    DIFFERENCES
        .iter()
        .find(|difference| (difference.explains)(call, ours, theirs))
}

fn starts(value: &Value, prefix: &[u8]) -> bool {
    value
        .as_bytes()
        .is_some_and(|text| text.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_stays_a_list_of_exceptions() {
        assert!(DIFFERENCES.len() <= DIFFERENCES_MAX);
        for difference in DIFFERENCES {
            assert!(!difference.reason.is_empty(), "{}", difference.name);
        }
    }
}
