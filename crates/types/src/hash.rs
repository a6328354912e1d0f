//! The hash: fields, each with a value, and perhaps a time at which it expires. Must not know keys, a clock, or the
//! arithmetic of HINCRBY.
//!
//! A small hash is a [`Pack`] of alternating fields and values ("listpack"), searched from the front;
//! one with too many pairs or too long a text is a table ("hashtable"), and stays one. With the first field that expires
//! either becomes its timed form (`hash/timed.rs`); a hash without such fields pays nothing for them.
//!
//! A field that has expired is still there until it is removed, and counted. [`Hash::live`] is the hash without such
//! fields, which commands read.

mod live;
mod timed;

pub use live::Live;

use self::timed::{Time, TimedPack, TimedTable};
use crate::Limits;
use crate::digest::Digest;
use crate::number::IntBuf;
use crate::pack::{self, Element, Pack};
use crate::packed::{PackedForm, PackedRef};
use crate::sample;
use crate::value::{DataType, Expiring};
use redline_table::{BytesDict, frozen::FreezeId};

/// Fields, each with a value. See the head of this file.
#[derive(Clone)]
pub struct Hash {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    Packed(Pack),
    Table(BytesDict),
    TimedPacked(TimedPack),
    TimedTable(Box<TimedTable>),
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::new()
    }
}

impl DataType for Hash {
    const EXPIRING: Option<Expiring> = Some(Expiring {
        removal: "HDEL",
        event: "hexpired",
    });
    const NAME: &'static str = "hash";
    const OBJECT_TYPE: u32 = 4;
    const EMPTY_FORM: Option<PackedForm> = Some(PackedForm::Hash);

    fn encoding(&self) -> &'static str {
        match self.repr {
            Repr::Packed(_) => "listpack",
            Repr::TimedPacked(_) => "listpackex",
            Repr::Table(_) | Repr::TimedTable(_) => "hashtable",
        }
    }

    fn len(&self) -> usize {
        match &self.repr {
            Repr::Packed(pack) => pack.len() / 2,
            Repr::Table(table) => table.len(),
            Repr::TimedPacked(pack) => pack.len(),
            Repr::TimedTable(table) => table.table().len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.repr {
                Repr::Packed(pack) => pack.heap_bytes(),
                Repr::Table(table) => table.heap_bytes(),
                Repr::TimedPacked(pack) => pack.pack().heap_bytes(),
                Repr::TimedTable(table) => table.heap_bytes(),
            }
    }

    fn free_effort(&self) -> usize {
        match &self.repr {
            Repr::Packed(_) | Repr::TimedPacked(_) => 1,
            Repr::Table(table) => table.len(),
            Repr::TimedTable(table) => table.table().len(),
        }
    }

    fn compact(&mut self) {
        match &mut self.repr {
            Repr::Table(table) => table.compact(),
            Repr::TimedTable(table) => table.compact(),
            Repr::Packed(_) | Repr::TimedPacked(_) => {}
        }
    }

    fn look_ahead<'a>(&self, elements: impl Iterator<Item = &'a [u8]>) {
        match &self.repr {
            Repr::Table(table) => table.look_ahead(elements),
            Repr::TimedTable(table) => table.table().look_ahead(elements),
            Repr::Packed(_) | Repr::TimedPacked(_) => {}
        }
    }

    /// Returns the earliest time of a field, to the millisecond in a packed hash, to a quarter of a second in a table.
    fn earliest_expiry_ms(&self) -> Option<i64> {
        match &self.repr {
            Repr::Packed(_) | Repr::Table(_) => None,
            Repr::TimedPacked(pack) => pack.earliest(),
            Repr::TimedTable(table) => table.earliest(),
        }
    }

    fn remove_due(&mut self, now_ms: i64, max: usize, gone: &mut dyn FnMut(&[u8])) -> usize {
        Hash::remove_due(self, now_ms, max, gone)
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        for (field, value, time) in self.iter_timed() {
            let mut part = D::default();
            part.mix_element(field);
            part.mix_element(value);
            if time.is_some() {
                part.combine(b"!!hexpire!!");
            }
            digest.combine_part(&part);
        }
    }

    fn can_freeze(&self) -> bool {
        self.table().is_some()
    }

    fn freeze(&mut self, id: FreezeId) {
        let table = self.table_mut();
        table.expect("only tables are frozen").freeze(id);
    }

    fn freeze_id(&self) -> Option<FreezeId> {
        self.table()?.freeze_id()
    }

    fn thaw(&mut self) {
        if let Some(table) = self.table_mut() {
            table.thaw();
        }
    }

    #[inline]
    fn packed(&self) -> Option<PackedRef<'_>> {
        match &self.repr {
            Repr::Packed(pack) => Some(pack.packed(PackedForm::Hash)),
            Repr::Table(_) | Repr::TimedPacked(_) | Repr::TimedTable(_) => None,
        }
    }

    #[inline]
    fn load_packed(&mut self, packed: PackedRef<'_>) {
        assert_eq!(packed.form, PackedForm::Hash);
        match &mut self.repr {
            Repr::Packed(pack) => pack.load(packed),
            other => *other = Repr::Packed(Pack::of_packed(packed)),
        }
    }
}

impl Hash {
    /// Returns an empty hash.
    pub const fn new() -> Hash {
        Hash {
            repr: Repr::Packed(Pack::new()),
        }
    }

    /// Makes an empty hash for so many fields that are added one by one: more than a packed one takes make a table at
    /// once.
    pub fn for_loose(count: usize, limits: &Limits) -> Hash {
        match count > limits.hash_max_listpack_entries {
            true => Hash {
                repr: Repr::Table(BytesDict::with_room(count)),
            },
            false => Hash::new(),
        }
    }

    /// Returns the hash without the fields that have expired at this Unix time in milliseconds.
    pub fn live(&self, now_ms: i64) -> Live<'_> {
        Live::new(self, now_ms)
    }

    /// Returns the value of a field.
    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match &self.repr {
            Repr::Packed(pack) => pack.get(pack.next(find(pack, field)?)?),
            Repr::Table(table) => table.get(field).map(Element::Bytes),
            Repr::TimedPacked(_) | Repr::TimedTable(_) => {
                self.get_timed(field).map(|(value, _)| value)
            }
        }
    }

    /// Returns the value of a field, and when it expires: Unix time in milliseconds.
    pub fn get_timed(&self, field: &[u8]) -> Option<(Element<'_>, Option<i64>)> {
        match &self.repr {
            Repr::Packed(_) | Repr::Table(_) => self.get(field).map(|value| (value, None)),
            Repr::TimedPacked(pack) => pack.get(field),
            Repr::TimedTable(table) => table.get(field),
        }
    }

    /// Returns true if there is such a field.
    pub fn contains(&self, field: &[u8]) -> bool {
        match &self.repr {
            Repr::Packed(pack) => find(pack, field).is_some(),
            Repr::Table(table) => table.contains(field),
            Repr::TimedPacked(pack) => pack.contains(field),
            Repr::TimedTable(table) => table.table().contains(field),
        }
    }

    /// Sets a field's value, and returns true if the field is new. It does not expire any more.
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        self.make_room([field, value].into_iter(), limits);
        self.put(field, value, Time::Set(None), limits)
    }

    /// Sets a field's value, and returns true if the field is new. Its expiry stays as it is.
    pub fn set_keeping_expiry(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        self.make_room([field, value].into_iter(), limits);
        self.put(field, value, Time::Keep, limits)
    }

    /// Sets when a field expires (Unix time in milliseconds, above 0), or that it does not; returns true if there is
    /// such a field.
    pub fn set_expire_at_ms(&mut self, field: &[u8], at: Option<i64>) -> bool {
        if !self.contains(field) {
            return false;
        }
        if at.is_some() {
            self.make_timed();
        }
        match &mut self.repr {
            Repr::Packed(_) | Repr::Table(_) => {}
            Repr::TimedPacked(pack) => pack.set_time(field, at),
            Repr::TimedTable(table) => {
                table.set_time(field, at);
                self.make_untimed();
            }
        }
        true
    }

    /// Prepares for a command that may set an expiry: a packed hash takes its timed form now, whether the command then
    /// sets one or not, since Redis's does and OBJECT ENCODING shows it.
    pub fn prepare_expiry(&mut self) {
        if let Repr::Packed(_) = self.repr {
            self.make_timed();
        }
    }

    /// Removes up to `max` fields that expired before this Unix time in milliseconds, and returns which and how many.
    /// Those of a table are found within a quarter of a second.
    pub fn remove_due(&mut self, now_ms: i64, max: usize, gone: &mut dyn FnMut(&[u8])) -> usize {
        match &mut self.repr {
            Repr::Packed(_) | Repr::Table(_) => 0,
            Repr::TimedPacked(pack) => pack.remove_due(now_ms, max, gone),
            Repr::TimedTable(table) => {
                let removed = table.remove_due(now_ms, max, gone);
                self.make_untimed();
                removed
            }
        }
    }

    /// Sets a field's value unless it has one, and returns true if it did.
    pub fn set_if_absent(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        !self.contains(field) && self.set(field, value, limits)
    }

    /// Sets values of fields, in turn field and value, and returns how many fields are new.
    pub fn set_all<'a>(
        &mut self,
        fields_and_values: impl Iterator<Item = &'a [u8]> + Clone,
        limits: &Limits,
    ) -> usize {
        self.make_room(fields_and_values.clone(), limits);
        let mut texts = fields_and_values;
        let mut added = 0;
        while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
            added += usize::from(self.put(field, value, Time::Set(None), limits));
        }
        added
    }

    fn put(&mut self, field: &[u8], value: &[u8], time: Time, limits: &Limits) -> bool {
        let pack = match &mut self.repr {
            Repr::Table(table) => return table.insert(field, value),
            Repr::Packed(pack) => pack,
            Repr::TimedPacked(pack) => {
                let is_new = pack.put(field, value, time);
                if pack.len() > limits.hash_max_listpack_entries {
                    self.convert();
                }
                return is_new;
            }
            Repr::TimedTable(table) => {
                let is_new = table.put(field, value, time);
                self.make_untimed();
                return is_new;
            }
        };
        let found = find(pack, field);
        match found.map(|at| pack.next(at)) {
            Some(Some(at)) => pack.replace(at, Element::of(value)),
            Some(None) => {}
            None => {
                pack.push_back(Element::of(field));
                pack.push_back(Element::of(value));
            }
        }
        let is_new = found.is_none();
        // Also where nothing is new: the limit may be lower than when the others came.
        if pack.len() / 2 > limits.hash_max_listpack_entries {
            self.convert();
        }
        is_new
    }

    /// Removes a field, and returns true if it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.repr {
            Repr::Packed(pack) => match find(pack, field) {
                Some(at) => pack.remove_many(at, 2) > 0,
                None => false,
            },
            Repr::Table(table) => table.remove(field),
            Repr::TimedPacked(pack) => pack.remove(field),
            Repr::TimedTable(table) => {
                let removed = table.remove(field);
                self.make_untimed();
                removed
            }
        }
    }

    /// Returns all fields with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
        let (pack, table, timed) = match &self.repr {
            Repr::Packed(pack) => (Some(pack), None, None),
            Repr::Table(table) => (None, Some(table), None),
            Repr::TimedPacked(pack) => (None, None, Some(pack)),
            Repr::TimedTable(table) => (None, Some(table.table()), None),
        };
        let packed = pack.into_iter().flat_map(pairs);
        let timed = timed.into_iter().flat_map(TimedPack::iter);
        packed
            .chain(table.into_iter().flat_map(BytesDict::iter).map(elements))
            .chain(timed.map(|(field, value, _)| (field, value)))
    }

    /// Returns all fields with their values, and when they expire: Unix time in milliseconds.
    pub fn iter_timed(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>, Option<i64>)> {
        let (untimed, pack, table) = match &self.repr {
            Repr::Packed(_) | Repr::Table(_) => (Some(self), None, None),
            Repr::TimedPacked(pack) => (None, Some(pack), None),
            Repr::TimedTable(table) => (None, None, Some(table)),
        };
        let untimed = untimed.into_iter().flat_map(Hash::iter);
        untimed
            .map(|(field, value)| (field, value, None))
            .chain(pack.into_iter().flat_map(TimedPack::iter))
            .chain(table.into_iter().flat_map(|table| table.iter()))
    }

    /// Makes one call of an iteration that survives changes: visits about `count` fields from `cursor` on, and returns
    /// the cursor to go on with, zero at the end. A packed hash is visited whole.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) -> u64 {
        self.scan_timed(cursor, count, |field, value, _| visit(field, value))
    }

    /// Does the same as [`Hash::scan`], with the times at which fields expire.
    pub fn scan_timed(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'_>, Element<'_>, Option<i64>),
    ) -> u64 {
        let table = match &self.repr {
            Repr::Packed(_) | Repr::TimedPacked(_) => {
                self.iter_timed()
                    .for_each(|(field, value, time)| visit(field, value, time));
                return 0;
            }
            Repr::Table(table) => table,
            Repr::TimedTable(table) => table.table(),
        };
        scan_steps(cursor, count, |cursor, seen| {
            table.scan_stamped(cursor, &mut |field, value, stamp| {
                *seen += 1;
                visit(
                    Element::Bytes(field),
                    Element::Bytes(value),
                    stamp.map(|stamp| stamp as i64),
                );
            })
        })
    }

    /// Returns a field, each about equally likely, and its value.
    pub fn random_entry(
        &self,
        random: &mut impl FnMut() -> u64,
    ) -> Option<(Element<'_>, Element<'_>)> {
        match &self.repr {
            Repr::Packed(pack) => {
                let index = sample::below(pack.len() / 2, random);
                pairs_from(pack.iter_from(pack.seek(2 * index)?)).next()
            }
            Repr::Table(table) => table.random(random).map(elements),
            Repr::TimedPacked(pack) => pack.at(sample::below(pack.len(), random)),
            Repr::TimedTable(table) => table.table().random(random).map(elements),
        }
    }

    /// Visits `count` fields, chosen one by one from all of them, so that they may repeat.
    pub fn random_entries<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        let Some(table) = self.table() else {
            let entries: Vec<_> = self.iter().collect();
            for _ in 0..if entries.is_empty() { 0 } else { count } {
                let (field, value) = entries[sample::below(entries.len(), random)];
                visit(field, value);
            }
            return;
        };
        for _ in 0..count {
            let Some((field, value)) = table.random(random) else {
                return;
            };
            visit(Element::Bytes(field), Element::Bytes(value));
        }
    }

    /// Visits `count` different fields, or all if there are fewer.
    pub fn random_distinct_entries<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        match self.table() {
            Some(table) if sample::is_sparse(count, table.len()) => {
                sample::visit_drawn(
                    count,
                    || table.random(random),
                    |field, value| {
                        visit(Element::Bytes(field), Element::Bytes(value));
                    },
                );
            }
            _ => {
                sample::visit_selected(self.iter(), self.len(), count, random, |(field, value)| {
                    visit(field, value);
                })
            }
        }
    }

    /// Passes on some of the fields that a frozen hash had, with their values and times; returns true after the last
    /// one, which ends the freeze.
    pub fn give_piece(
        &mut self,
        visit: &mut dyn FnMut(Element<'_>, Element<'_>, Option<i64>),
    ) -> bool {
        self.table_mut().is_none_or(|table| {
            table.give_piece(&mut |field, value, stamp| {
                let time = stamp.map(|stamp| stamp as i64);
                visit(Element::Bytes(field), Element::Bytes(value), time);
            })
        })
    }

    // Encodings.

    fn table_mut(&mut self) -> Option<&mut BytesDict> {
        match &mut self.repr {
            Repr::Packed(_) | Repr::TimedPacked(_) => None,
            Repr::Table(table) => Some(table),
            Repr::TimedTable(table) => Some(table.table_mut()),
        }
    }

    fn table(&self) -> Option<&BytesDict> {
        match &self.repr {
            Repr::Packed(_) | Repr::TimedPacked(_) => None,
            Repr::Table(table) => Some(table),
            Repr::TimedTable(table) => Some(table.table()),
        }
    }

    /// Prepares for a field that gets a time.
    fn make_timed(&mut self) {
        self.repr = match std::mem::replace(&mut self.repr, Repr::Packed(Pack::new())) {
            Repr::Packed(pack) => {
                // A triple needs two or three bytes more than a pair.
                if pack.is_safe_to_add(pack.len() * Pack::ENTRY_OVERHEAD_MAX) {
                    Repr::TimedPacked(TimedPack::from_pairs(&pack))
                } else {
                    let pack = TimedPack::from_pairs(&pack);
                    Repr::TimedTable(Box::new(TimedTable::from_pack(&pack)))
                }
            }
            Repr::Table(table) => Repr::TimedTable(Box::new(TimedTable::from_table(table))),
            timed => timed,
        };
    }

    /// Converts back after a time was removed: a table none of whose fields expires any more is a plain one again. (A
    /// packed hash keeps its form, as in Redis, which shows it.)
    fn make_untimed(&mut self) {
        if self.earliest_expiry_ms().is_some() {
            return;
        }
        if let Repr::TimedTable(table) = &mut self.repr {
            self.repr = match std::mem::take(&mut **table).into_untimed() {
                Ok(table) => Repr::Table(table),
                Err(table) => Repr::TimedTable(Box::new(table)),
            };
        }
    }

    /// Prepares for a command that sets these, in turn field and value: a pack that must not hold them becomes a table.
    /// Each counts, also a field that is named twice.
    pub fn make_room<'a>(&mut self, texts: impl Iterator<Item = &'a [u8]>, limits: &Limits) {
        let pack = match &self.repr {
            Repr::Packed(pack) => pack,
            Repr::TimedPacked(pack) => pack.pack(),
            Repr::Table(_) | Repr::TimedTable(_) => return,
        };
        let (mut count, mut bytes, mut longest) = (0, 0usize, 0);
        for text in texts {
            count += 1;
            bytes = bytes.saturating_add(text.len() + Pack::ENTRY_OVERHEAD_MAX);
            longest = longest.max(text.len());
        }
        if count / 2 > limits.hash_max_listpack_entries
            || longest > limits.hash_max_listpack_value
            || !pack.is_safe_to_add(bytes)
        {
            self.convert();
        }
    }

    fn convert(&mut self) {
        if let Repr::TimedPacked(pack) = &self.repr {
            self.repr = Repr::TimedTable(Box::new(TimedTable::from_pack(pack)));
            self.make_untimed();
        } else if let Repr::Packed(pack) = &self.repr {
            let mut table = BytesDict::new();
            let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
            for (field, value) in pairs(pack) {
                table.insert(field.bytes(&mut field_buf), value.bytes(&mut value_buf));
            }
            self.repr = Repr::Table(table);
        }
    }
}

/// Makes steps of a table's scan until about `count` elements have been seen or too many steps found none. `step` takes
/// a cursor and the count to add to, and returns the next cursor.
pub(crate) fn scan_steps(
    mut cursor: u64,
    count: usize,
    mut step: impl FnMut(u64, &mut usize) -> u64,
) -> u64 {
    let mut seen = 0;
    for _ in 0..count.saturating_mul(10).max(1) {
        cursor = step(cursor, &mut seen);
        if cursor == 0 || seen >= count {
            break;
        }
    }
    cursor
}

fn find(pack: &Pack, field: &[u8]) -> Option<pack::At> {
    pack.find(pack.begin(), Element::of(field), 1)
}

fn pairs(pack: &Pack) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
    pairs_from(pack.iter())
}

fn pairs_from<'a>(
    mut elements: pack::Iter<'a>,
) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
    std::iter::from_fn(move || Some((elements.next()?, elements.next()?)))
}

fn elements<'a>((field, value): (&'a [u8], &'a [u8])) -> (Element<'a>, Element<'a>) {
    (Element::Bytes(field), Element::Bytes(value))
}

#[cfg(test)]
mod tests;
