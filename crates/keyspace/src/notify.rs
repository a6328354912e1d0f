//! Keyspace events as data: classes and events. Who hears of them is the server's business.

/// A set of event classes, as `notify-keyspace-events` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(pub u32);

impl Classes {
    /// Nothing is wanted.
    pub const NONE: Classes = Classes(0);
    /// `K`: publish to `__keyspace@<db>__:<key>`.
    pub const KEYSPACE: Classes = Classes(1);
    /// `E`: publish to `__keyevent@<db>__:<event>`.
    pub const KEYEVENT: Classes = Classes(1 << 1);
    /// `g`: commands of no type.
    pub const GENERIC: Classes = Classes(1 << 2);
    /// `$`: strings.
    pub const STRING: Classes = Classes(1 << 3);
    /// `l`: lists.
    pub const LIST: Classes = Classes(1 << 4);
    /// `s`: sets.
    pub const SET: Classes = Classes(1 << 5);
    /// `h`: hashes.
    pub const HASH: Classes = Classes(1 << 6);
    /// `z`: sorted sets.
    pub const ZSET: Classes = Classes(1 << 7);
    /// `x`: expired keys.
    pub const EXPIRED: Classes = Classes(1 << 8);
    /// `e`: evicted keys.
    pub const EVICTED: Classes = Classes(1 << 9);
    /// `t`: streams.
    pub const STREAM: Classes = Classes(1 << 10);
    /// `m`: keys that were looked up in vain.
    pub const KEY_MISS: Classes = Classes(1 << 11);
    /// `n`: new keys.
    pub const NEW: Classes = Classes(1 << 14);
    /// `A`: everything but `m` and `n`.
    pub const ALL: Classes = Classes(0b111_1111_1100);

    /// Do the two share a class?
    #[inline]
    pub fn intersects(self, other: Classes) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    pub fn union(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }

    /// From the letters of `notify-keyspace-events`; `None` if one is unknown.
    pub fn parse(letters: &str) -> Option<Classes> {
        letters.chars().try_fold(Classes::NONE, |classes, letter| {
            let class = if letter == 'A' {
                Classes::ALL
            } else {
                LETTERS.iter().find(|(known, _)| *known == letter)?.1
            };
            Some(classes.union(class))
        })
    }

    /// As CONFIG GET shows it.
    pub fn letters(self) -> String {
        let mut out = String::new();
        let all = self.0 & Classes::ALL.0 == Classes::ALL.0;
        if all {
            out.push('A');
        }
        for (letter, class) in LETTERS {
            if self.intersects(*class) && !(all && Classes::ALL.intersects(*class)) {
                out.push(*letter);
            }
        }
        out
    }
}

/// In the order in which CONFIG GET shows them.
const LETTERS: &[(char, Classes)] = &[
    ('g', Classes::GENERIC),
    ('$', Classes::STRING),
    ('l', Classes::LIST),
    ('s', Classes::SET),
    ('h', Classes::HASH),
    ('z', Classes::ZSET),
    ('x', Classes::EXPIRED),
    ('e', Classes::EVICTED),
    ('t', Classes::STREAM),
    ('n', Classes::NEW),
    ('K', Classes::KEYSPACE),
    ('E', Classes::KEYEVENT),
    ('m', Classes::KEY_MISS),
];

/// Something happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The class that decides whether it is wanted.
    pub class: Classes,
    /// Its name, as subscribers see it (`set`, `expired`, …).
    pub name: &'static str,
    /// The database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_both_ways() {
        for text in ["", "KEA", "gxE", "g$lshzxetnKEm"] {
            let classes = Classes::parse(text).unwrap();
            assert_eq!(Classes::parse(&classes.letters()), Some(classes), "{text}");
        }
        assert_eq!(Classes::parse("AKE").unwrap().letters(), "AKE");
        assert_eq!(Classes::parse("q"), None);
    }
}
