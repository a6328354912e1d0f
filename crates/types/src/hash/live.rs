//! A hash as commands see it: without the fields that have expired and are still there. Must not know a clock: the
//! caller gives the time.

use super::{Hash, Repr, pairs};
use crate::pack::Element;
use crate::sample;
use crate::value::DataType;

/// A hash without the fields that have expired. See [`Hash::live`].
#[derive(Clone, Copy)]
pub struct Live<'a> {
    hash: &'a Hash,
    now_ms: i64,
    /// No field can have expired: none needs to be left out.
    clean: bool,
}

impl<'a> Live<'a> {
    pub(super) fn new(hash: &'a Hash, now_ms: i64) -> Live<'a> {
        Live {
            hash,
            now_ms,
            clean: hash
                .earliest_expiry_ms()
                .is_none_or(|earliest| earliest >= now_ms),
        }
    }

    fn is_live(self, time: Option<i64>) -> bool {
        time.is_none_or(|time| time >= self.now_ms)
    }

    /// Returns the value of a field.
    #[inline]
    pub fn get(self, field: &[u8]) -> Option<Element<'a>> {
        if self.clean {
            return self.hash.get(field);
        }
        self.get_timed(field).map(|(value, _)| value)
    }

    /// Returns the value of a field, and when it expires: Unix time in milliseconds.
    pub fn get_timed(self, field: &[u8]) -> Option<(Element<'a>, Option<i64>)> {
        let found = self.hash.get_timed(field);
        found.filter(|(_, time)| self.is_live(*time))
    }

    /// Returns how many fields there are. Takes time if some may have expired.
    pub fn count(self) -> usize {
        if self.clean {
            self.hash.len()
        } else {
            self.iter().count()
        }
    }

    /// Returns all fields with their values.
    pub fn iter(self) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
        let (all, some) = if self.clean {
            (Some(self.hash), None)
        } else {
            (None, Some(self.hash))
        };
        let some = some.into_iter().flat_map(Hash::iter_timed);
        all.into_iter().flat_map(Hash::iter).chain(
            some.filter(move |(_, _, time)| self.is_live(*time))
                .map(|(field, value, _)| (field, value)),
        )
    }

    /// Visits all of them; quicker than [`Live::iter`] for few.
    #[inline]
    pub fn for_each(self, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        match &self.hash.repr {
            Repr::Packed(pack) => pairs(pack).for_each(|(field, value)| visit(field, value)),
            _ => self.iter().for_each(|(field, value)| visit(field, value)),
        }
    }

    /// Does the same as [`Hash::scan`].
    pub fn scan(
        self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) -> u64 {
        self.hash.scan_timed(cursor, count, |field, value, time| {
            if self.is_live(time) {
                visit(field, value);
            }
        })
    }

    /// Does the same as [`Hash::random_entry`].
    pub fn random_entry(
        self,
        random: &mut impl FnMut() -> u64,
    ) -> Option<(Element<'a>, Element<'a>)> {
        if self.clean {
            return self.hash.random_entry(random);
        }
        let count = self.count();
        if count == 0 {
            return None;
        }
        self.iter().nth(sample::below(count, random))
    }

    /// Does the same as [`Hash::random_entries`].
    pub fn random_entries(
        self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        if self.clean {
            return self.hash.random_entries(count, random, visit);
        }
        let entries: Vec<_> = self.iter().collect();
        for _ in 0..if entries.is_empty() { 0 } else { count } {
            let (field, value) = entries[sample::below(entries.len(), random)];
            visit(field, value);
        }
    }

    /// Does the same as [`Hash::random_distinct_entries`].
    pub fn random_distinct_entries(
        self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        if self.clean {
            return self.hash.random_distinct_entries(count, random, visit);
        }
        let all = self.count();
        sample::visit_selected(self.iter(), all, count, random, |(field, value)| {
            visit(field, value);
        });
    }
}
