//! Hashes some of whose fields expire: a packed form and a table. Must not know a clock: the caller gives the time.
//!
//! The packed form is a [`Pack`] of triples `field value time`, where the time is Unix time in milliseconds, or 0 for a
//! field that stays. Triples stand in the order of their times, those that stay last, so what is due is in front. This
//! is Redis's "listpackex", element for element.
//!
//! The table keeps a field's time as a stamp beside its value (8 bytes), and finds what is due by an ordered set of
//! *marks*. A mark is one word: the time in units of [`UNIT_MS`] above 32 bits of the field's hash. So it names a field
//! in 8 bytes without a copy of it or a pointer to it, and the table can be asked for the fields whose hash begins so.
//! Two fields of the same unit and the same 32 bits share a mark; the few that do are counted in a map beside the set.

use std::collections::{BTreeMap, BTreeSet};

use redline_table::BytesDict;

use crate::number::IntBuf;
use crate::pack::{At, Element, Pack};

/// The time that stands for none in a triple.
const NEVER: i64 = 0;
/// Milliseconds in one unit of a mark's time.
const UNIT_MS: i64 = 256;
/// Unix time in milliseconds at which units begin: the start of 2020. Together with 32 bits they last until 2054. Times
/// before or after are put into the first or the last unit.
const UNITS_FROM_MS: i64 = 1_577_836_800_000;
/// Approximate number of bytes that a mark takes in the set: 8 bytes in nodes that are two thirds full.
const MARK_BYTES: usize = 14;

/// The change to a field's time when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// It stays as it is; a new field has none.
    Keep,
    /// It is this one, or none.
    Set(Option<i64>),
}

/// A small hash with times.
#[derive(Clone)]
pub(super) struct TimedPack(Pack);

impl TimedPack {
    /// Makes a packed form of alternating fields and values, none of which expires.
    pub(super) fn from_pairs(pairs: &Pack) -> TimedPack {
        let mut pack = Pack::new();
        let mut elements = pairs.iter();
        while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
            pack.push_back(field);
            pack.push_back(value);
            pack.push_back(Element::Int(NEVER));
        }
        TimedPack(pack)
    }

    pub(super) fn pack(&self) -> &Pack {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len() / 3
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>, Option<i64>)> {
        let mut elements = self.0.iter();
        std::iter::from_fn(move || {
            Some((elements.next()?, elements.next()?, time(elements.next()?)))
        })
    }

    pub(super) fn at(&self, index: usize) -> Option<(Element<'_>, Element<'_>)> {
        let mut elements = self.0.iter_from(self.0.seek(3 * index)?);
        Some((elements.next()?, elements.next()?))
    }

    fn find(&self, field: &[u8]) -> Option<At> {
        self.0.find(self.0.begin(), Element::of(field), 2)
    }

    pub(super) fn contains(&self, field: &[u8]) -> bool {
        self.find(field).is_some()
    }

    /// Returns a field's value and time.
    pub(super) fn get(&self, field: &[u8]) -> Option<(Element<'_>, Option<i64>)> {
        let value = self.0.next(self.find(field)?)?;
        let mut elements = self.0.iter_from(value);
        Some((elements.next()?, time(elements.next()?)))
    }

    /// Returns the earliest time of all.
    pub(super) fn earliest(&self) -> Option<i64> {
        self.iter().next()?.2
    }

    /// Sets a field; returns true if it is new.
    pub(super) fn put(&mut self, field: &[u8], value: &[u8], new: Time) -> bool {
        let Some(at) = self.find(field) else {
            let time = match new {
                Time::Keep => None,
                Time::Set(time) => time,
            };
            self.add(field, value, time);
            return true;
        };
        let old = self.get(field).and_then(|(_, time)| time);
        match new {
            Time::Set(time) if time != old => {
                self.0.remove_many(at, 3);
                self.add(field, value, time);
            }
            _ => {
                if let Some(at) = self.0.next(at) {
                    self.0.replace(at, Element::of(value));
                }
            }
        }
        false
    }

    /// Sets or clears the time of a field that is there, which moves to its place in the order, behind its equals.
    pub(super) fn set_time(&mut self, field: &[u8], time: Option<i64>) {
        if let Some((value, old)) = self.get(field)
            && old != time
        {
            let value = value.to_vec();
            self.put(field, &value, Time::Set(time));
        }
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        match self.find(field) {
            Some(at) => self.0.remove_many(at, 3) > 0,
            None => false,
        }
    }

    /// Removes up to `max` fields whose time is before `now_ms`, and returns how many.
    pub(super) fn remove_due(
        &mut self,
        now_ms: i64,
        max: usize,
        gone: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let due = self
            .iter()
            .take(max)
            .take_while(|(_, _, time)| time.is_some_and(|time| time < now_ms))
            .inspect(|(field, _, _)| gone(field.bytes(&mut IntBuf::new())))
            .count();
        if due > 0 {
            self.0.remove_many(self.0.begin(), 3 * due);
        }
        due
    }

    fn add(&mut self, field: &[u8], value: &[u8], time: Option<i64>) {
        let (field, value) = (Element::of(field), Element::of(value));
        let at = time.map_or(self.0.end(), |time| self.place(time));
        let time = Element::Int(time.unwrap_or(NEVER));
        if at == self.0.end() {
            for element in [field, value, time] {
                self.0.push_back(element);
            }
        } else {
            for element in [time, value, field] {
                self.0.insert(at, element);
            }
        }
    }

    /// Returns the place of a triple with this time.
    fn place(&self, new: i64) -> At {
        let mut at = self.0.begin();
        while let Some(value) = self.0.next(at)
            && let Some(stamp) = self.0.next(value)
            && let Some(found) = self.0.get(stamp)
            && time(found).is_some_and(|found| found <= new)
            && let Some(next) = self.0.next(stamp)
        {
            at = next;
        }
        at
    }
}

fn time(element: Element<'_>) -> Option<i64> {
    element.to_i64().filter(|time| *time != NEVER)
}

/// A large hash with times.
#[derive(Clone, Default)]
pub(super) struct TimedTable {
    table: BytesDict,
    marks: BTreeSet<u64>,
    /// Number of further occurrences of a mark beside the one in the set.
    more: BTreeMap<u64, u32>,
}

impl TimedTable {
    /// Makes a timed table of a table none of whose fields expires.
    pub(super) fn from_table(table: BytesDict) -> TimedTable {
        TimedTable {
            table,
            ..TimedTable::default()
        }
    }

    /// Makes a timed table of the packed form.
    pub(super) fn from_pack(pack: &TimedPack) -> TimedTable {
        let mut timed = TimedTable::default();
        let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
        for (field, value, time) in pack.iter() {
            timed.put(
                field.bytes(&mut field_buf),
                value.bytes(&mut value_buf),
                Time::Set(time),
            );
        }
        timed
    }

    /// Returns the table alone, if no field expires any more.
    pub(super) fn into_untimed(self) -> Result<BytesDict, TimedTable> {
        if self.marks.is_empty() {
            Ok(self.table)
        } else {
            Err(self)
        }
    }

    pub(super) fn table(&self) -> &BytesDict {
        &self.table
    }

    /// Returns the table, of which no field or time may be changed.
    pub(super) fn table_mut(&mut self) -> &mut BytesDict {
        &mut self.table
    }

    pub(super) fn compact(&mut self) {
        self.table.compact();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<TimedTable>() + self.table.heap_bytes() + self.marks.len() * MARK_BYTES
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>, Option<i64>)> {
        self.table.iter_stamped().map(|(field, value, stamp)| {
            let time = stamp.map(|stamp| stamp as i64);
            (Element::Bytes(field), Element::Bytes(value), time)
        })
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<(Element<'_>, Option<i64>)> {
        let (value, stamp) = self.table.get_stamped(field)?;
        Some((Element::Bytes(value), stamp.map(|stamp| stamp as i64)))
    }

    /// Returns a time before which no field's time is.
    pub(super) fn earliest(&self) -> Option<i64> {
        let mark = self.marks.first()?;
        let unit = (mark >> 32) as i64;
        // Fields in the first unit may be from any time before.
        Some(if unit == 0 {
            i64::MIN
        } else {
            UNITS_FROM_MS + unit * UNIT_MS
        })
    }

    /// Sets a field; returns true if it is new.
    pub(super) fn put(&mut self, field: &[u8], value: &[u8], new: Time) -> bool {
        let old = self.time(field);
        let time = match new {
            Time::Keep => old,
            Time::Set(time) => time,
        };
        self.move_mark(field, old, time);
        match time {
            None => self.table.insert(field, value),
            Some(time) => self.table.insert_stamped(field, value, time as u64),
        }
    }

    /// Sets or clears the time of a field that is there.
    pub(super) fn set_time(&mut self, field: &[u8], time: Option<i64>) {
        if let Some((value, old)) = self.table.get_stamped(field)
            && old != time.map(|time| time as u64)
        {
            let value = value.to_vec();
            self.put(field, &value, Time::Set(time));
        }
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let time = self.time(field);
        self.move_mark(field, time, None);
        self.table.remove(field)
    }

    /// Removes up to `max` fields whose time is before `now_ms`, and returns how many. Those of a unit are removed when
    /// the unit is over.
    pub(super) fn remove_due(
        &mut self,
        now_ms: i64,
        max: usize,
        gone: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let over = u64::from(unit(now_ms)) << 32;
        let mut removed = 0;
        while removed < max
            && let Some(&mark) = self.marks.first().filter(|mark| **mark < over)
        {
            let mut due = Vec::new();
            self.table
                .for_each_with_prefix(mark as u32, |field, _, stamp| {
                    if stamp.is_some_and(|stamp| unit(stamp as i64) == (mark >> 32) as u32) {
                        due.push(Box::<[u8]>::from(field));
                    }
                });
            assert!(!due.is_empty(), "every mark stands for a field");
            removed += due.len();
            due.iter().for_each(|field| {
                gone(field);
                self.remove(field);
            });
        }
        removed
    }

    fn time(&self, field: &[u8]) -> Option<i64> {
        let (_, stamp) = self.table.get_stamped(field)?;
        stamp.map(|stamp| stamp as i64)
    }

    fn move_mark(&mut self, field: &[u8], from: Option<i64>, to: Option<i64>) {
        if from == to {
            return;
        }
        if let Some(time) = from {
            let mark = mark(field, time);
            match self.more.get_mut(&mark) {
                None => {
                    self.marks.remove(&mark);
                }
                Some(1) => {
                    self.more.remove(&mark);
                }
                Some(times) => *times -= 1,
            }
        }
        if let Some(time) = to {
            let mark = mark(field, time);
            if !self.marks.insert(mark) {
                *self.more.entry(mark).or_default() += 1;
            }
        }
    }
}

fn mark(field: &[u8], time: i64) -> u64 {
    u64::from(unit(time)) << 32 | u64::from(BytesDict::hash_prefix(field))
}

fn unit(time_ms: i64) -> u32 {
    let units = time_ms.saturating_sub(UNITS_FROM_MS).max(0) / UNIT_MS;
    u32::try_from(units).unwrap_or(u32::MAX)
}
