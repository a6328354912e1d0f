//! Elements of collections that expire by themselves (fields of a hash): the keys that have some, and their removal.
//!
//! Must not know: commands.

use redline_types::{Collection, DataType, Hash, Kind, Value};

use super::View;
use crate::{
    entry::{Content, Entry},
    notify::Classes,
    space::stripe_of,
};

/// The number of all types that Redis has in modules.
const MODULES_OBJECT_TYPE: u32 = 5;

impl View<'_> {
    /// Removes those of the named fields of a hash that have expired, reports that, and removes the key with its last
    /// field. For commands that name fields: where nothing is due this costs next to nothing. Fields that no command
    /// names are removed by active expiry.
    pub fn expire_fields<'f>(&mut self, key: &[u8], fields: impl Iterator<Item = &'f [u8]>) {
        if !self.has_timed_neighbours(key) {
            return;
        }
        let now_ms = self.entries.now_ms;
        let Some(entry) = self.entries.find_entry(key) else {
            return;
        };
        let Content::Object(Value::Hash(hash)) = self.entries.content(entry) else {
            return;
        };
        let is_due = |field: &&[u8]| {
            let time = hash.get_timed(field).and_then(|(_, time)| time);
            time.is_some_and(|time| time < now_ms)
        };
        let due: Vec<&[u8]> = fields.filter(is_due).collect();
        if !due.is_empty() {
            self.remove_elements::<Hash>(key, |hash, gone| {
                let fields = due.iter().filter(|field| hash.remove(field));
                fields.inspect(|field| gone(field)).count()
            });
        }
    }

    /// Reports fields that have expired and that the caller has removed itself, since it goes on with the hash that
    /// they were in.
    pub fn fields_expired(&mut self, key: &[u8], fields: &[&[u8]]) {
        self.entries.local.expired_elements += fields.len() as u64;
        let gone: Vec<Box<[u8]>> = fields.iter().map(|field| Box::from(*field)).collect();
        self.report_elements_gone::<Hash>(key, &gone);
    }

    /// Removes up to `max` due elements from an entry's collection (active expiry), and returns their number.
    pub(crate) fn expire_elements(&mut self, entry: Entry, max: usize) -> usize {
        let now_ms = self.entries.now_ms;
        // SAFETY: the stripe is held; the key is copied, since the entry may be freed.
        let key = Box::<[u8]>::from(unsafe { entry.key() });
        let Content::Object(value) = self.entries.content(entry) else {
            return 0;
        };
        let kind = value.kind();
        macro_rules! of_its_type {
            ($($(#[$doc:meta])* $name:ident,)*) => {
                match kind {
                    $(Kind::$name => match <redline_types::$name as DataType>::EXPIRING {
                        Some(_) => self.remove_elements::<redline_types::$name>(
                            &key,
                            |value, gone| DataType::remove_due(value, now_ms, max, gone),
                        ),
                        None => 0,
                    },)*
                }
            };
        }
        redline_types::data_types!(of_its_type)
    }

    /// Removes them; `remove` gets each element that is removed, and their number.
    fn remove_elements<T: Collection>(
        &mut self,
        key: &[u8],
        remove: impl FnOnce(&mut T, &mut dyn FnMut(&[u8])) -> usize,
    ) -> usize {
        // No client uses the key: its clock stays.
        let frozen = std::mem::replace(&mut self.entries.local.clock.frozen, true);
        let journaled = self.is_journaled();
        let mut gone: Vec<Box<[u8]>> = Vec::new();
        let removed = self.write::<T, _>(key, |value, _| {
            remove(value, &mut |element| {
                if journaled {
                    gone.push(element.into());
                }
            })
        });
        self.entries.local.clock.frozen = frozen;
        let removed = removed.ok().flatten().unwrap_or(0);
        if removed == 0 {
            return 0;
        }
        self.entries.local.expired_elements += removed as u64;
        self.touch_watchers(key);
        self.report_elements_gone::<T>(key, &gone);
        if self.swap_emptied(false) {
            self.notify(Classes::GENERIC, "del", key);
        }
        removed
    }

    /// Reports elements that were removed, but not by a command, in the journal and as an event.
    fn report_elements_gone<T: Collection>(&self, key: &[u8], gone: &[Box<[u8]>]) {
        let expiring = T::EXPIRING.expect("elements of the type expire");
        self.propagate_elements_gone(expiring.removal, key, gone);
        let class = match T::OBJECT_TYPE == MODULES_OBJECT_TYPE {
            true => Classes::MODULE,
            false => Classes::HASH,
        };
        self.notify(class, expiring.event, key);
    }

    /// Returns true if a key of this key's stripe has elements that expire.
    fn has_timed_neighbours(&self, key: &[u8]) -> bool {
        let stripe = usize::from(stripe_of(self.entries.hash(key)));
        let db = self.entries.space.db(self.entries.db);
        db.is_some_and(|db| !db.stripes[stripe].timed.is_empty())
    }

    /// Updates the index after an edit in place: an entry has come to have elements that expire, or has none any more,
    /// or they expire at other times. Returns the bytes by which the index has grown.
    pub(super) fn note_timed(
        &self,
        hash: u64,
        entry: Entry,
        was_timed: bool,
        earliest_ms: Option<i64>,
    ) -> i64 {
        let db = self.entries.space.db_or_create(self.entries.db);
        match (was_timed, earliest_ms) {
            (true, Some(at)) => {
                db.note_element_expiry(hash, at);
                0
            }
            (_, to) => {
                let from = was_timed.then_some(entry);
                db.move_timed(hash, from, to.map(|at| (entry, at)))
            }
        }
    }
}
