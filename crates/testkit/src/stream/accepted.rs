//! Differences between the streams that stay, each with its reason in `docs/differences.md`. The comparison accepts these
//! and nothing else: each entry is narrow, so that another effect of the same command is still a difference.

use crate::stream::told::{Hunk, Told, alike};

/// Largest number of entries, so that the list stays a list of exceptions.
pub const DELIBERATE_MAX: usize = 15;

/// A difference between two streams, with what may explain it.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The commands that differ; the whole part of the streams if `grouping` is true.
    pub hunk: &'a Hunk,
    /// True if the commands are equal, and what is in one transaction differs.
    pub grouping: bool,
    /// True if clients waited when the call came.
    pub waiters: bool,
}

/// A deliberate difference.
#[derive(Clone, Copy, Debug)]
pub struct Deliberate {
    /// The name, which its row in `docs/differences.md` has as well.
    pub name: &'static str,
    /// Returns true if it explains the difference.
    pub explains: fn(case: Case<'_>) -> bool,
}

/// The list.
pub const DELIBERATE: &[Deliberate] = &[
    Deliberate {
        name: "waiters in the transaction that served them",
        explains: |case| {
            let group = case.hunk.ours.first().and_then(|told| told.group);
            let one = |told: &Told| told.group.is_some() && told.group == group;
            case.grouping && case.waiters && case.hunk.ours.iter().all(one)
        },
    },
    Deliberate {
        name: "words that have had their effect",
        explains: |case| {
            pair(case).is_some_and(|(ours, theirs)| {
                let mut told = ours.words[1..].iter().peekable();
                let mut left_out = theirs.words[1..].to_vec();
                left_out.retain(|word| told.next_if(|our| alike(our, word)).is_none());
                let needless = |word: &Vec<u8>| {
                    let mut again = ours.words[1..].iter();
                    is_condition(word) || again.any(|our| our.eq_ignore_ascii_case(word))
                };
                told.next().is_none() && !left_out.is_empty() && left_out.iter().all(needless)
            })
        },
    },
    Deliberate {
        name: "trims by the length that is left",
        explains: |case| {
            pair(case).is_some_and(|(ours, theirs)| {
                let lengths = [length(ours), length(theirs)];
                let same_length = match lengths {
                    [Some(our), Some(their)] => our == their,
                    _ => true,
                };
                let trims = ours.is("XTRIM") || ours.is("XADD") && added(ours, theirs);
                trims && same_length && ours.words[1] == theirs.words[1]
            })
        },
    },
    Deliberate {
        name: "HINCRBYFLOAT as HSET",
        explains: |case| match &case.hunk {
            Hunk { ours, theirs } if ours.len() == 1 && theirs.len() == 1 => {
                let (ours, theirs) = (&ours[0], &theirs[0]);
                ours.is("HSET")
                    && theirs.is("HSETEX")
                    && ours.words.len() == 4
                    && theirs.words.len() == 7
                    && theirs.words[2] == b"KEEPTTL"
                    && ours.words[1] == theirs.words[1]
                    && ours.words[2..] == theirs.words[5..]
            }
            _ => false,
        },
    },
    Deliberate {
        name: "SPOP of the last member",
        explains: |case| match (&case.hunk.ours[..], &case.hunk.theirs[..]) {
            ([ours], [theirs]) => {
                ours.is("DEL")
                    && theirs.is("SREM")
                    && ours.words.len() == 2
                    && ours.words[1] == theirs.words[1]
            }
            _ => false,
        },
    },
    Deliberate {
        name: "a consumer that reads nothing",
        explains: |case| match (&case.hunk.ours[..], &case.hunk.theirs[..]) {
            ([ours], []) => {
                ours.is("XGROUP") && ours.words[1].eq_ignore_ascii_case(b"CREATECONSUMER")
            }
            _ => false,
        },
    },
    Deliberate {
        name: "VADD of an element that is there",
        explains: |case| match (&case.hunk.ours[..], &case.hunk.theirs[..]) {
            ([ours], []) => ours.is("VADD"),
            _ => false,
        },
    },
    Deliberate {
        name: "BITFIELD that makes a string longer and sets nothing",
        explains: |case| match (&case.hunk.ours[..], &case.hunk.theirs[..]) {
            ([ours], []) => ours.is("BITFIELD"),
            _ => false,
        },
    },
    Deliberate {
        name: "entries delivered at once in one XCLAIM",
        explains: |case| {
            let Hunk { ours, theirs } = case.hunk;
            let last = |told: &[Told]| told.last().and_then(|told| told.words.last().cloned());
            let all = || ours.iter().chain(theirs);
            all().all(|told| told.is("XCLAIM") && told.words.len() > 5)
                && ours.len() <= theirs.len()
                && all().all(|told| told.words[1..5] == ours[0].words[1..5])
                && ids(ours) == ids(theirs)
                && last(ours) == last(theirs)
        },
    },
    Deliberate {
        name: "fields deleted at once in one HDEL",
        explains: |case| match &case.hunk.ours[..] {
            [ours] => {
                let theirs = &case.hunk.theirs;
                let fields: Vec<&Vec<u8>> = theirs
                    .iter()
                    .flat_map(|told| told.words.iter().skip(2))
                    .collect();
                ours.is("HDEL")
                    && theirs.iter().all(|told| told.is("HDEL"))
                    && theirs.iter().all(|told| told.words[1] == ours.words[1])
                    && fields == ours.words[2..].iter().collect::<Vec<_>>()
            }
            _ => false,
        },
    },
    Deliberate {
        name: "XACK of pending entries that are gone",
        explains: |case| {
            let Hunk { ours, theirs } = case.hunk;
            let about = |told: &Told| told.is("XACK") || told.is("XCLAIM") || told.is("XGROUP");
            let sorted = |told: &[Told]| {
                let mut ids = ids(told);
                ids.sort_unstable();
                ids
            };
            ours.iter().any(|told| told.is("XACK"))
                && ours.iter().all(about)
                && theirs.iter().all(|told| told.is("XCLAIM"))
                && sorted(ours) == sorted(theirs)
        },
    },
];

/// Returns the two commands of a hunk that has one of each side, with one name.
fn pair<'a>(case: Case<'a>) -> Option<(&'a Told, &'a Told)> {
    match (&case.hunk.ours[..], &case.hunk.theirs[..]) {
        ([ours], [theirs]) if ours.name() == theirs.name() && ours.db == theirs.db => {
            Some((ours, theirs))
        }
        _ => None,
    }
}

/// Returns true for words that decide whether a call has an effect, or what it answers: a command that is told has its
/// effect.
fn is_condition(word: &[u8]) -> bool {
    let conditions = ["NX", "XX", "GT", "LT", "GET", "CH", "FNX", "FXX", "CAS"];
    let mut conditions = conditions.iter();
    conditions.any(|condition| word.eq_ignore_ascii_case(condition.as_bytes()))
}

/// Returns the length to which a command trims a stream.
fn length(told: &Told) -> Option<&[u8]> {
    let mut words = told.words.iter();
    words.find(|word| word.eq_ignore_ascii_case(b"MAXLEN"))?;
    let number = words.find(|word| word[..] != b"="[..] && word[..] != b"~"[..]);
    number.map(|number| &number[..])
}

/// Returns true if two XADD add the same entry.
fn added(ours: &Told, theirs: &Told) -> bool {
    // From us: XADD key [MAXLEN = length [DELREF]] id field value …
    let mut entry = &ours.words[2..];
    if entry[0] == b"MAXLEN" {
        entry = &entry[3..];
    }
    if entry[0] == b"DELREF" {
        entry = &entry[1..];
    }
    let start = theirs.words.len().saturating_sub(entry.len());
    let other = &theirs.words[start..];
    entry.len() == other.len() && entry.iter().zip(other).all(|(a, b)| alike(a, b))
}

/// Returns the ids of entries in XCLAIM and XACK.
fn ids(told: &[Told]) -> Vec<Vec<u8>> {
    let ids = told.iter().flat_map(|told| {
        let from = match told.name().as_str() {
            "XCLAIM" => 5,
            "XACK" => 3,
            _ => told.words.len(),
        };
        let words = told.words.iter().skip(from);
        words.take_while(|word| word[..] != b"TIME"[..])
    });
    ids.cloned().collect()
}

/// Returns the entry that explains a difference.
pub fn explain(case: Case<'_>) -> Option<&'static Deliberate> {
    DELIBERATE.iter().find(|entry| (entry.explains)(case))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::told::told;

    fn explained(ours: &[&str], theirs: &[&str]) -> Option<&'static str> {
        let hunk = Hunk {
            ours: told(ours),
            theirs: told(theirs),
        };
        let case = Case {
            hunk: &hunk,
            grouping: false,
            waiters: false,
        };
        explain(case).map(|entry| entry.name)
    }

    #[test]
    fn the_list_stays_a_list_of_exceptions() {
        assert!(DELIBERATE.len() <= DELIBERATE_MAX);
    }

    #[test]
    fn an_entry_explains_what_it_names_and_no_other_effect_of_the_same_command() {
        let conditions = Some("words that have had their effect");
        assert_eq!(
            explained(&["SET k v PXAT 4000"], &["set k v NX get PXAT 4000"]),
            conditions
        );
        assert_eq!(explained(&["SET k v"], &["SET k v PXAT 4000"]), None);
        assert_eq!(explained(&["SET k w"], &["SET k v NX"]), None);
        assert_eq!(explained(&["SET k v NX"], &["SET k v"]), None);
        assert_eq!(explained(&["SET k v"], &["SET k v KEEPTTL"]), None);
        let trims = Some("trims by the length that is left");
        assert_eq!(
            explained(&["XADD x 5-0 a b"], &["XADD x MINID = 1 5-0 a b"]),
            trims
        );
        assert_eq!(
            explained(&["XADD x 5-0 a c"], &["XADD x MINID = 1 5-0 a b"]),
            None
        );
        let ours = "XADD x MAXLEN = 2 DELREF 5-0 a b";
        assert_eq!(
            explained(&[ours], &["XADD x DELREF MINID 1 5-0 a b"]),
            trims
        );
        assert_eq!(
            explained(&[ours], &["XADD x DELREF MAXLEN = 3 5-0 a b"]),
            None
        );
        assert_eq!(
            explained(&["XACK x g 1-1"], &["XCLAIM x g c 0 1-1 TIME 7"]),
            Some("XACK of pending entries that are gone")
        );
        assert_eq!(
            explained(&["XACK x g 1-2"], &["XCLAIM x g c 0 1-1 TIME 7"]),
            None
        );
        assert_eq!(
            explained(&["HSET h f 1"], &["HSETEX h KEEPTTL FIELDS 1 f 1"]),
            Some("HINCRBYFLOAT as HSET")
        );
        assert_eq!(
            explained(&["HSET h f 2"], &["HSETEX h KEEPTTL FIELDS 1 f 1"]),
            None
        );
        assert_eq!(explained(&["DEL j"], &["SREM k a"]), None);
        let one = "XCLAIM x g c 0 1-1 2-1 TIME 7 RETRYCOUNT 1 FORCE JUSTID LASTID 2-1";
        let each = [
            "XCLAIM x g c 0 1-1 TIME 7 RETRYCOUNT 1 FORCE JUSTID LASTID 1-1",
            "XCLAIM x g c 0 2-1 TIME 7 RETRYCOUNT 1 FORCE JUSTID LASTID 2-1",
        ];
        assert_eq!(
            explained(&[one], &each),
            Some("entries delivered at once in one XCLAIM")
        );
        assert_eq!(explained(&[one], &each[..1]), None);
        assert_eq!(
            explained(&["HDEL h f g"], &["HDEL h f", "HDEL h g"]),
            Some("fields deleted at once in one HDEL")
        );
        assert_eq!(explained(&["HDEL h f g"], &["HDEL h f"]), None);
        assert_eq!(explained(&[], &["DEL k"]), None);
    }
}
