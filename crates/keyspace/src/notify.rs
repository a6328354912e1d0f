//! Keyspace events as data: classes and events. Must not know the receivers.

use std::{cell::RefCell, ops::RangeBounds, vec::Drain};

/// The name of the event of a key that has expired.
pub const EXPIRED: &str = "expired";

/// A set of event classes, as `notify-keyspace-events` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(pub u32);

impl Classes {
    /// No event.
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
    /// `d`: events of modules; accepted, there are none.
    pub const MODULE: Classes = Classes(1 << 13);
    /// `n`: new keys.
    pub const NEW: Classes = Classes(1 << 14);
    /// `o`: keys whose value was replaced.
    pub const OVERWRITTEN: Classes = Classes(1 << 15);
    /// `c`: keys whose value was replaced by one of another type.
    pub const TYPE_CHANGED: Classes = Classes(1 << 16);
    /// A key has changed. No letter names it: it is reported while a client tracks keys, whatever is wanted besides. It
    /// has no name, unless it is [`EXPIRED`]: then no command has changed it.
    pub const CHANGED: Classes = Classes(1 << 30);
    /// A whole database was emptied; the event has no key. As `CHANGED`.
    pub const FLUSHED: Classes = Classes(1 << 31);
    /// `A`: everything but `m`, `n`, `o` and `c`.
    pub const ALL: Classes = Classes(0b10_0111_1111_1100);

    pub(crate) const REPLACED: Classes = Classes(Classes::OVERWRITTEN.0 | Classes::TYPE_CHANGED.0);

    /// Returns true if the two share a class.
    #[inline]
    pub fn intersects(self, other: Classes) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns both together.
    pub fn union(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }

    /// Parses the letters of `notify-keyspace-events`; `None` if one is unknown.
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

    /// Formats the classes as CONFIG GET shows them: Redis leaves `n`, `o` and `c` out where it writes `A`.
    pub fn letters(self) -> String {
        let all = self.0 & Classes::ALL.0 == Classes::ALL.0;
        let hidden = match all {
            true => Classes::ALL.union(Classes::NEW).union(Classes::REPLACED),
            false => Classes::NONE,
        };
        let mut out = String::from(if all { "A" } else { "" });
        let shown = |class: &Classes| self.intersects(*class) && !hidden.intersects(*class);
        out.extend(
            LETTERS
                .iter()
                .filter(|(_, class)| shown(class))
                .map(|(letter, _)| letter),
        );
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
    ('d', Classes::MODULE),
    ('n', Classes::NEW),
    ('o', Classes::OVERWRITTEN),
    ('c', Classes::TYPE_CHANGED),
    ('K', Classes::KEYSPACE),
    ('E', Classes::KEYEVENT),
    ('m', Classes::KEY_MISS),
];

/// An event of a key.
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

/// The events of the running unit, in order. Readers report too (a key that is missing, one that has
/// expired), and they share the view: hence the cell.
#[derive(Debug, Default)]
pub struct Events(RefCell<Vec<Event>>);

impl Events {
    /// Appends an event.
    pub fn push(&self, event: Event) {
        self.0.borrow_mut().push(event);
    }

    /// Returns true if an event of this class is the last one.
    pub(crate) fn ends_with(&self, class: Classes) -> bool {
        self.0
            .borrow()
            .last()
            .is_some_and(|event| event.class == class)
    }

    /// Returns true if there is no event to publish.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Removes events and returns them, in order.
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> Drain<'_, Event> {
        self.0.get_mut().drain(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_both_ways() {
        for text in ["", "KEA", "gxE", "g$lshzxetdKEm", "g$lshzxetnocKE"] {
            let classes = Classes::parse(text).unwrap();
            assert_eq!(Classes::parse(&classes.letters()), Some(classes), "{text}");
        }
        for (text, shown) in [
            ("AKE", "AKE"),
            ("KEAmnoc", "AKEm"),
            ("KEno", "noKE"),
            ("g$lshzxetdo", "A"),
        ] {
            assert_eq!(Classes::parse(text).unwrap().letters(), shown, "{text}");
        }
        assert_eq!(Classes::parse("q"), None);
    }
}
