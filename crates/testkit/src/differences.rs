//! Replies of the server that deliberately differ from Redis 8.2.3. The comparison accepts these and nothing else.
//!
//! Each entry is narrow: no command is excused as a whole. At most [`DIFFERENCES_MAX`] of them.

use redline_resp::reply_decoder::Value;

use crate::generate::EQUAL_SCORES_KEY;

/// Largest number of entries, so that the list stays a list of exceptions.
pub const DIFFERENCES_MAX: usize = 40;

/// An accepted difference.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The name of the difference in reports.
    pub name: &'static str,
    /// The reason for it.
    pub reason: &'static str,
    /// True if the two servers hold different data after it, so that nothing more can be compared in its round.
    pub parts_ways: bool,
    /// Returns true if the difference explains these replies to this call, ours and that of Redis.
    pub explains: fn(call: &[Vec<u8>], ours: &Value, theirs: &Value) -> bool,
}

/// Accepted for the proxy, too, which has its own names.
pub(crate) const NAME_WITH_ZERO_BYTE: Difference = Difference {
    name: "a client's name or library with a zero byte",
    reason: "Redis checks the text up to its first zero byte and stores all of it, line ends included; here all of it is checked.",
    parts_ways: true,
    explains: |call, ours, theirs| {
        is(call, 0, "client")
            && (is(call, 1, "setname") || is(call, 1, "setinfo"))
            && call.last().is_some_and(|word| word.contains(&0))
            && is_text(theirs, "OK")
            && contains(
                ours,
                "cannot contain spaces, newlines or special characters.",
            )
    },
};

/// The list.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "MODULE LIST with the modules whose types are built in",
        reason: "Clients look there for the types that they can use; the reference has loaded its module of vector sets alone.",
        parts_ways: false,
        explains: |call, ours, theirs| {
            let (Value::Array(ours), Value::Array(theirs)) = (ours, theirs) else {
                return false;
            };
            is(call, 0, "module")
                && is(call, 1, "list")
                && theirs.iter().all(|one| ours.contains(one))
        },
    },
    Difference {
        name: "LSET beyond 32 bits",
        reason: "Redis cuts the index to 32 bits and so overwrites an element that was not named; here it is out of range.",
        parts_ways: true,
        explains: |call, ours, theirs| {
            is(call, 0, "lset")
                && wide(call, 2)
                && begins(ours, "ERR index out of range")
                && is_text(theirs, "OK")
        },
    },
    Difference {
        name: "SORT of numbers after a call with a number out of range",
        reason: "Redis takes errno for what reading the number said, and an earlier call may have left it there.",
        parts_ways: false,
        explains: |call, ours, theirs| {
            let is_number = |element: &Value| match element {
                Value::Bulk(text) => std::str::from_utf8(text)
                    .is_ok_and(|text| text.parse().is_ok_and(f64::is_finite)),
                _ => false,
            };
            let elsewhere = |word: &Vec<u8>| {
                ["by", "get", "store"]
                    .iter()
                    .any(|option| word.eq_ignore_ascii_case(option.as_bytes()))
            };
            (is(call, 0, "sort") || is(call, 0, "sort_ro"))
                && !call.iter().skip(2).any(elsewhere)
                && matches!(ours, Value::Array(elements) if elements.iter().all(is_number))
                && is_text(
                    theirs,
                    "ERR One or more scores can't be converted into double",
                )
        },
    },
    Difference {
        name: "OBJECT ENCODING of a whole number that INCRBYFLOAT left",
        reason: "Redis keeps it as text until it is written again; here the encoding follows from the value.",
        parts_ways: false,
        explains: |call, ours, theirs| {
            is(call, 0, "object")
                && is(call, 1, "encoding")
                && is_text(ours, "int")
                && is_text(theirs, "embstr")
        },
    },
    NAME_WITH_ZERO_BYTE,
    Difference {
        name: "COMMAND GETKEYS with a key count that the command itself refuses",
        reason: "Redis reads `01`, `+1` or `1 ` as a count there, though the command does not; here both read alike.",
        parts_ways: false,
        explains: |call, ours, theirs| {
            let odd = |word: &Vec<u8>| {
                let text = String::from_utf8_lossy(word);
                text.parse::<i64>()
                    .map_or(true, |number| number.to_string() != text)
                    && text.contains(|c: char| c.is_ascii_digit())
            };
            is(call, 0, "command")
                && call.iter().skip(3).any(odd)
                && is_text(ours, "ERR Invalid arguments specified for command")
                && matches!(theirs, Value::Array(_))
        },
    },
    Difference {
        name: "GEORADIUS with STORE or STOREDIST more than once",
        reason: "Redis stores at the last key; key specs find the first, so here it is a syntax error.",
        parts_ways: true,
        explains: |call, ours, _| {
            let stores = call.iter().skip(5).filter(|word| {
                word.eq_ignore_ascii_case(b"store") || word.eq_ignore_ascii_case(b"storedist")
            });
            (is(call, 0, "georadius") || is(call, 0, "georadiusbymember"))
                && stores.count() > 1
                && begins(ours, "ERR syntax error")
        },
    },
    Difference {
        name: "ranges by member over members of different scores",
        reason: "Undefined in Redis: what is found depends on where its search happens to pass. Defined where scores are equal, and equal there.",
        parts_ways: true,
        explains: |call, ours, theirs| {
            let by_member = call
                .first()
                .is_some_and(|name| name.to_ascii_lowercase().ends_with(b"bylex"))
                || is(call, 0, "zlexcount")
                || call.iter().any(|word| word.eq_ignore_ascii_case(b"bylex"));
            let same_kind = std::mem::discriminant(ours) == std::mem::discriminant(theirs);
            by_member
                && same_kind
                && !ours.is_error()
                && !call.iter().any(|word| word == EQUAL_SCORES_KEY.as_bytes())
        },
    },
    Difference {
        name: "CLIENT LIST with several filters",
        reason: "Redis takes one; here they may be combined, as in Valkey.",
        parts_ways: false,
        explains: |call, _, theirs| {
            let refused =
                begins(theirs, "ERR syntax error") || begins(theirs, "ERR Invalid client ID");
            is(call, 0, "client") && is(call, 1, "list") && call.len() > 5 && refused
        },
    },
    Difference {
        name: "ACKED after the group that had read least is gone",
        reason: "Redis goes on protecting what that group had not read, for good; here only groups that are there count.",
        parts_ways: true,
        explains: |call, ours, theirs| {
            let respects = call.iter().any(|word| word.eq_ignore_ascii_case(b"acked"));
            let needed = Value::Integer(2);
            let in_list = |ours: &[Value], theirs: &[Value]| {
                ours.len() == theirs.len()
                    && ours
                        .iter()
                        .zip(theirs)
                        .all(|(our, their)| our == their || *their == needed)
            };
            respects
                && match (ours, theirs) {
                    (Value::Array(ours), Value::Array(theirs)) => in_list(ours, theirs),
                    (Value::Integer(ours), Value::Integer(theirs)) => {
                        is(call, 0, "xtrim") && ours > theirs
                    }
                    _ => false,
                }
        },
    },
];

pub(crate) fn contains(value: &Value, part: &str) -> bool {
    value.as_bytes().is_some_and(|text| {
        text.windows(part.len())
            .any(|window| window == part.as_bytes())
    })
}

/// Returns true if the argument is an integer of more than 32 bits.
fn wide(call: &[Vec<u8>], at: usize) -> bool {
    let number = call
        .get(at)
        .and_then(|word| std::str::from_utf8(word).ok()?.parse::<i64>().ok());
    number.is_some_and(|number| i32::try_from(number).is_err())
}

pub(crate) fn is(call: &[Vec<u8>], at: usize, word: &str) -> bool {
    call.get(at)
        .is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()))
}

pub(crate) fn begins(value: &Value, text: &str) -> bool {
    value
        .as_bytes()
        .is_some_and(|value| value.starts_with(text.as_bytes()))
}

pub(crate) fn is_text(value: &Value, text: &str) -> bool {
    value.as_bytes() == Some(text.as_bytes())
}

/// Returns the difference of this list that explains a disagreement.
pub fn explain(
    accepted: &'static [Difference],
    call: &[Vec<u8>],
    ours: &Value,
    theirs: &Value,
) -> Option<&'static Difference> {
    accepted
        .iter()
        .find(|difference| (difference.explains)(call, ours, theirs))
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
