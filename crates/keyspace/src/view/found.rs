//! Look-ups: a key is found, with the trace that the caller names, and its handle gives access to the stored value.
//!
//! A [`Found`] borrows from its view, so no writer runs while it lives. A small collection is copied out of its entry by
//! [`Found::value`] and [`Found::collection`], and that copy stays open until the unit ends; the other methods open
//! nothing that stays.
//!
//! Must not know: commands.

use redline_types::{Collection, DataType, Kind};

use super::{View, WrongType, entries::is_expired};
use crate::{
    entry::{Content, Entry, Owned, StringRef, ValueRef},
    space::Local,
};

/// The statistics, events and access marks that a look-up leaves behind.
///
/// Every look-up but a [`Trace::Prefetch`] that meets an expired key reports that the key has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// An access, and a hit or a miss with its `keymiss` event.
    Read,
    /// An access, but as in Redis neither a hit nor a miss: the handler is about to change the value. A following
    /// [`View::write`] counts no second access.
    Write,
    /// A hit or a miss with its `keymiss` event, but no access (EXISTS, TTL, TYPE).
    Probe,
    /// A hit or a miss without an event, and no access (OBJECT).
    Glance,
    /// None.
    Quiet,
    /// None, and an expired key is not reported either: for a prefetch, which ends no unit.
    Prefetch,
}

/// A handle on a key that exists and has not expired.
#[derive(Clone, Copy)]
pub struct Found<'v> {
    /// Alive and unchanged for `'v`: see [`Found::new`].
    entry: Entry,
    local: &'v Local,
}

impl<'v> Found<'v> {
    /// Creates a handle.
    ///
    /// # Safety
    /// The stripe of the entry is held, and the entry is not changed or removed, during `'v`.
    #[inline]
    pub(super) unsafe fn new(entry: Entry, local: &'v Local) -> Found<'v> {
        Found { entry, local }
    }

    #[inline]
    fn content(self) -> Content<'v> {
        // SAFETY: by the contract of `new`.
        unsafe { self.entry.content() }
    }

    /// Returns the value. A small collection stays open until the unit ends.
    #[inline(always)] // a call less for each reader of a collection
    pub fn value(self) -> ValueRef<'v> {
        match self.content() {
            Content::String(string) => ValueRef::String(string),
            Content::Object(value) => ValueRef::Object(value),
            Content::Packed(packed) => ValueRef::Object(self.local.opened.open(packed)),
        }
    }

    /// Calls `read` with the value, which stays open for that call only.
    pub fn with<R>(self, read: impl FnOnce(ValueRef<'_>) -> R) -> R {
        match self.content() {
            Content::String(string) => read(ValueRef::String(string)),
            Content::Object(value) => read(ValueRef::Object(value)),
            Content::Packed(packed) => {
                let value = self.local.opened.take(packed);
                let result = read(ValueRef::Object(&value));
                self.local.opened.give_back(value);
                result
            }
        }
    }

    /// Returns the value of a string.
    #[inline]
    pub fn string(self) -> Result<StringRef<'v>, WrongType> {
        match self.content() {
            Content::String(string) => Ok(string),
            Content::Object(_) | Content::Packed(_) => Err(WrongType),
        }
    }

    /// Returns the value as a collection of type `T`. A small one stays open until the unit ends.
    pub fn collection<T: Collection>(self) -> Result<&'v T, WrongType> {
        match self.value() {
            ValueRef::Object(value) => T::of(value).ok_or(WrongType),
            ValueRef::String(_) => Err(WrongType),
        }
    }

    /// Returns the number of elements of a collection of type `T`.
    #[expect(clippy::len_without_is_empty, reason = "only a stream is stored empty")]
    pub fn len<T: Collection>(self) -> Result<usize, WrongType> {
        match self.content() {
            Content::Packed(packed) if packed.form.kind() == T::KIND => Ok(packed.len()),
            Content::Object(value) => T::of(value).map(DataType::len).ok_or(WrongType),
            Content::String(_) | Content::Packed(_) => Err(WrongType),
        }
    }

    /// Returns the name of the type, as TYPE replies it.
    pub fn type_name(self) -> &'static str {
        self.content().type_name()
    }

    /// Returns the type of a collection; `None` for a string.
    pub fn kind(self) -> Option<Kind> {
        self.content().kind()
    }

    /// Returns the name of the encoding, as OBJECT ENCODING replies it.
    pub fn encoding(self) -> &'static str {
        match self.content() {
            Content::String(string) => {
                // SAFETY: by the contract of `new`.
                let key = unsafe { self.entry.key() };
                string.encoding(key.len(), self.expire_at_ms().is_some())
            }
            Content::Object(object) => object.encoding(),
            Content::Packed(packed) => packed.form.encoding(),
        }
    }

    /// Returns the expiry, as Unix time in milliseconds.
    pub fn expire_at_ms(self) -> Option<i64> {
        // SAFETY: by the contract of `new`.
        unsafe { self.entry.expire_at_ms() }
    }

    /// Returns the seconds since the last access (OBJECT IDLETIME); meaningful without an LFU policy.
    pub fn idle_s(self) -> u32 {
        self.local.clock.idle_s(self.access_word())
    }

    /// Returns the clock word that records the accesses: see [`Clock`](crate::Clock).
    pub fn access_word(self) -> u32 {
        // SAFETY: by the contract of `new`.
        unsafe { self.entry.clock() }
    }

    /// Returns the access counter (OBJECT FREQ); meaningful under an LFU policy.
    pub fn frequency(self) -> u32 {
        self.local.clock.frequency(self.access_word())
    }

    /// Sets the record of accesses: the seconds since the last one, or under an LFU policy the counter (RESTORE). The
    /// other one has no effect.
    pub fn set_access(self, idle_s: Option<u64>, frequency: Option<u8>) {
        let clock = self.local.clock;
        let word = match (clock.lfu, idle_s, frequency) {
            (true, _, Some(frequency)) => clock.frequency_word(frequency),
            (false, Some(idle_s), _) => clock.idle_word(idle_s),
            _ => return,
        };
        // SAFETY: by the contract of `new`; the header is only ever accessed by value.
        unsafe { self.entry.set_clock(word) };
    }

    /// Returns the number of bytes that the key takes, with its share of the table of a database that is not nearly
    /// empty (MEMORY USAGE).
    pub fn memory_bytes(self) -> usize {
        /// Measured over a million keys: 10.4 bytes.
        const TABLE_BYTES_PER_KEY: usize = 10;
        /// Of the index of keys that expire: measured over 200,000 keys, 11 bytes.
        const EXPIRY_BYTES_PER_KEY: usize = 11;
        // SAFETY: by the contract of `new`.
        let own = unsafe { self.entry.heap_bytes() + self.entry.value_bytes() };
        let indexed = usize::from(self.expire_at_ms().is_some()) * EXPIRY_BYTES_PER_KEY;
        own + TABLE_BYTES_PER_KEY + indexed
    }

    /// Returns a deep copy of the value, and the expiry (COPY).
    pub fn copy(self) -> (Owned, Option<i64>) {
        let owned = match self.content() {
            Content::String(StringRef::Inline { bytes, raw }) => Owned::Bytes {
                bytes: bytes.to_vec(),
                raw,
            },
            Content::String(StringRef::Blob(blob)) => Owned::Blob(blob.clone()),
            Content::Object(object) => {
                let mut copy = object.clone();
                copy.forget_others();
                Owned::Object(copy)
            }
            Content::Packed(packed) => Owned::of_packed(packed),
        };
        (owned, self.expire_at_ms())
    }

    /// Prefetches the memory that a search for these elements of a collection will need.
    pub fn look_ahead<'k>(self, elements: impl Iterator<Item = &'k [u8]>) {
        if let Content::Object(value) = self.content() {
            value.look_ahead(elements);
        }
    }
}

impl View<'_> {
    /// Looks a key up, with this trace.
    #[inline(always)] // the trace is a constant at each call, and only its branch stays
    pub fn find(&self, key: &[u8], trace: Trace) -> Option<Found<'_>> {
        let entry = match trace {
            Trace::Read => self.visit_entry(key),
            Trace::Write => self.visit_to_write(key),
            Trace::Probe => self.probe_entry(key),
            Trace::Glance => self.glance_entry(key),
            Trace::Quiet => self.entries.find_entry(key),
            Trace::Prefetch => self.prefetched_entry(key),
        };
        entry.map(|entry| self.found(entry))
    }

    /// Returns a collection, with the trace of [`Trace::Read`]: `view.read::<List>(key)?`.
    pub fn read<T: Collection>(&self, key: &[u8]) -> Result<Option<&T>, WrongType> {
        let found = self.find(key, Trace::Read);
        found.map(Found::collection).transpose()
    }

    /// Returns a string, with the trace of [`Trace::Read`].
    #[inline]
    pub fn string(&self, key: &[u8]) -> Result<Option<StringRef<'_>>, WrongType> {
        match self
            .visit_entry(key)
            .map(|entry| self.entries.content(entry))
        {
            None => Ok(None),
            Some(Content::String(string)) => Ok(Some(string)),
            Some(Content::Object(_) | Content::Packed(_)) => Err(WrongType),
        }
    }

    /// Returns the handle on an entry of this unit.
    #[inline]
    fn found(&self, entry: Entry) -> Found<'_> {
        // SAFETY: the stripe is held, and writers need `&mut self`.
        unsafe { Found::new(entry, self.entries.local) }
    }

    /// Looks an entry up with [`Trace::Read`].
    #[inline(always)] // a call less of the five that a GET makes
    fn visit_entry(&self, key: &[u8]) -> Option<Entry> {
        let Some(entry) = self.entries.find_entry(key) else {
            self.entries.missed(key);
            return None;
        };
        self.entries
            .local
            .hits
            .set(self.entries.local.hits.get() + 1);
        self.entries.access(entry);
        Some(entry)
    }

    /// Looks an entry up with [`Trace::Write`].
    #[inline]
    fn visit_to_write(&self, key: &[u8]) -> Option<Entry> {
        let entry = self.entries.find_entry(key)?;
        self.entries.access_ahead(entry);
        Some(entry)
    }

    /// Looks an entry up with [`Trace::Probe`].
    fn probe_entry(&self, key: &[u8]) -> Option<Entry> {
        let found = self.entries.find_entry(key);
        match found {
            Some(_) => self
                .entries
                .local
                .hits
                .set(self.entries.local.hits.get() + 1),
            None => self.entries.missed(key),
        }
        found
    }

    /// Looks an entry up with [`Trace::Glance`].
    fn glance_entry(&self, key: &[u8]) -> Option<Entry> {
        let found = self.entries.find_entry(key);
        let counter = match found {
            Some(_) => &self.entries.local.hits,
            None => &self.entries.local.misses,
        };
        counter.set(counter.get() + 1);
        found
    }

    /// Looks an entry up with [`Trace::Prefetch`].
    fn prefetched_entry(&self, key: &[u8]) -> Option<Entry> {
        let entry = self.entries.look(key).1?;
        // SAFETY: the stripe is held.
        (!unsafe { is_expired(entry, self.entries.now_ms) }).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use redline_types::{Hash, Limits, List, Set, Value};

    use super::*;
    use crate::{Classes, Expiry, Keyspace, Unit, lock::NobodyWaits};

    const TRACES: [Trace; 6] = [
        Trace::Read,
        Trace::Write,
        Trace::Probe,
        Trace::Glance,
        Trace::Quiet,
        Trace::Prefetch,
    ];

    /// Makes a worker that is alone with a keyspace and wants every event.
    fn alone() -> (Keyspace, Local) {
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        local.notify = Classes(u32::MAX);
        (Keyspace::new(1, Box::new(NobodyWaits)), local)
    }

    fn unit<R>(
        (space, local): &mut (Keyspace, Local),
        now_ms: i64,
        run: impl FnOnce(&mut View<'_>) -> R,
    ) -> R {
        let mut unit = Unit::exclusive(space);
        let mut view = unit.view(local, 0, now_ms);
        let result = run(&mut view);
        view.finish_unreported();
        result
    }

    fn push(view: &mut View<'_>, key: &[u8], count: usize) {
        view.write_or_new(key, |list: &mut List, limits| {
            (0..count).for_each(|_| list.push_back(b"an element", limits));
        })
        .expect("no other type");
    }

    /// Returns hits, misses and the names of events since the last call.
    fn traces((_, local): &mut (Keyspace, Local)) -> (u64, u64, Vec<&'static str>) {
        let events = local.events.drain(..).map(|event| event.name);
        (local.hits.take(), local.misses.take(), events.collect())
    }

    #[test]
    fn each_trace_is_what_its_name_says() {
        let hit_and_miss: [(Trace, bool, u64, &[&str]); 6] = [
            (Trace::Read, true, 1, &["keymiss"]),
            (Trace::Write, true, 0, &[]),
            (Trace::Probe, false, 1, &["keymiss"]),
            (Trace::Glance, false, 1, &[]),
            (Trace::Quiet, false, 0, &[]),
            (Trace::Prefetch, false, 0, &[]),
        ];
        let mut alone = alone();
        for (trace, is_access, counted, news) in hit_and_miss {
            alone.1.clock.now_s = 1000;
            unit(&mut alone, 0, |view| {
                view.set_string(b"key", b"value", Expiry::Clear);
            });
            traces(&mut alone);
            alone.1.clock.now_s = 1050;
            unit(&mut alone, 0, |view| {
                assert!(view.find(b"key", trace).is_some());
                let idle_s = view.find(b"key", Trace::Quiet).unwrap().idle_s();
                assert_eq!(idle_s, if is_access { 0 } else { 50 }, "{trace:?}");
            });
            assert_eq!(traces(&mut alone), (counted, 0, vec![]), "{trace:?}");
            unit(&mut alone, 0, |view| {
                assert!(view.find(b"none", trace).is_none());
            });
            assert_eq!(traces(&mut alone), (0, counted, news.to_vec()), "{trace:?}");
        }
    }

    #[test]
    fn the_short_forms_read_and_contains_leave_the_traces_that_they_name() {
        let mut alone = alone();
        unit(&mut alone, 0, |view| {
            view.set_string(b"string", b"value", Expiry::Clear);
            push(view, b"list", 3);
        });
        traces(&mut alone);
        unit(&mut alone, 0, |view| {
            let string = view.string(b"string").unwrap().unwrap();
            assert_eq!(string.as_bytes(), b"value");
            assert_eq!(view.read::<List>(b"list").unwrap().unwrap().len(), 3);
            assert!(view.string(b"list").is_err() && view.read::<Set>(b"list").is_err());
            assert!(view.read::<List>(b"string").is_err());
        });
        assert_eq!(traces(&mut alone), (5, 0, vec![]));
        unit(&mut alone, 0, |view| {
            assert!(view.string(b"none").unwrap().is_none());
            assert!(view.read::<Hash>(b"none").unwrap().is_none());
        });
        assert_eq!(traces(&mut alone), (0, 2, vec!["keymiss"; 2]));
        unit(&mut alone, 0, |view| {
            assert!(
                view.find(b"list", Trace::Quiet).is_some()
                    && view.find(b"none", Trace::Quiet).is_none()
            );
        });
        assert_eq!(traces(&mut alone), (0, 0, vec![]));
    }

    #[test]
    fn a_look_up_before_a_change_is_one_use_together_with_it() {
        // From a counter of 0 the first accesses count for certain.
        let mut alone = alone();
        alone.1.clock.lfu = true;
        for (trace, uses) in [(Trace::Write, 1), (Trace::Read, 2), (Trace::Quiet, 1)] {
            unit(&mut alone, 0, |view| {
                push(view, b"list", 1);
                let found = view.find(b"list", Trace::Quiet).unwrap();
                found.set_access(None, Some(0));
            });
            unit(&mut alone, 0, |view| {
                view.find(b"list", trace);
                push(view, b"list", 1);
                let found = view.find(b"list", Trace::Quiet).unwrap();
                assert_eq!(found.frequency(), uses, "{trace:?}");
                assert_eq!(found.access_word() & 0xff, uses, "{trace:?}");
            });
        }
    }

    #[test]
    fn an_expired_key_is_not_found_and_only_a_prefetch_says_nothing_of_it() {
        for trace in TRACES {
            let mut alone = alone();
            unit(&mut alone, 0, |view| {
                view.set_string(b"key", b"value", Expiry::AtMs(10));
            });
            traces(&mut alone);
            unit(&mut alone, 10, |view| {
                let found = view
                    .find(b"key", Trace::Quiet)
                    .expect("its last millisecond");
                assert_eq!(found.expire_at_ms(), Some(10));
            });
            unit(&mut alone, 11, |view| {
                assert!(view.find(b"key", trace).is_none());
            });
            let (_, _, events) = traces(&mut alone);
            let is_reported = events.first() == Some(&"expired");
            assert_eq!(is_reported, trace != Trace::Prefetch, "{trace:?}");
            assert_eq!(alone.0.key_count(0), u64::from(!is_reported));
        }
    }

    #[test]
    fn a_handle_tells_what_is_stored() {
        let mut alone = alone();
        alone.1.clock.now_s = 7;
        unit(&mut alone, 0, |view| {
            view.set_string(b"inline", b"12", Expiry::AtMs(50));
            view.set_string(b"blob", &[b'x'; 20_000], Expiry::Clear);
            push(view, b"small", 3);
            push(view, b"large", 3000);
        });
        unit(&mut alone, 0, |view| {
            let find = |key: &[u8]| view.find(key, Trace::Quiet).expect("the key exists");
            let (inline, blob) = (find(b"inline"), find(b"blob"));
            assert_eq!((inline.type_name(), inline.kind()), ("string", None));
            assert_eq!((inline.encoding(), blob.encoding()), ("int", "raw"));
            assert_eq!(inline.expire_at_ms(), Some(50));
            assert_eq!((blob.expire_at_ms(), blob.access_word()), (None, 7));
            assert!(matches!(
                inline.string(),
                Ok(StringRef::Inline { bytes: b"12", .. })
            ));
            assert!(matches!(blob.string(), Ok(StringRef::Blob(blob)) if blob.len() == 20_000));
            assert_eq!(inline.len::<List>(), Err(WrongType));
            assert!(inline.collection::<List>().is_err());
            assert!(inline.memory_bytes() < 64 && blob.memory_bytes() > 20_000);

            for (key, len, encoding) in [(b"small", 3, "listpack"), (b"large", 3000, "quicklist")] {
                let found = find(key);
                assert_eq!((found.type_name(), found.encoding()), ("list", encoding));
                assert_eq!(found.kind(), Some(Kind::List));
                assert_eq!(found.len::<List>(), Ok(len));
                assert_eq!(found.collection::<List>().unwrap().len(), len);
                let seen = found.with(|value| match value {
                    ValueRef::Object(Value::List(list)) => list.iter().count(),
                    _ => panic!("a list"),
                });
                assert_eq!(seen, len);
                assert!(found.string().is_err() && found.collection::<Set>().is_err());
                assert_eq!(found.len::<Hash>(), Err(WrongType));
                found.look_ahead([&b"an element"[..]].into_iter());
            }
        });
    }

    #[test]
    fn a_copy_is_a_value_of_its_own() {
        let mut alone = alone();
        let keys = [&b"inline"[..], b"blob", b"small", b"large"];
        unit(&mut alone, 0, |view| {
            view.set_string(b"inline", b"12", Expiry::AtMs(50));
            view.set_string(b"blob", &[b'x'; 20_000], Expiry::Clear);
            push(view, b"small", 3);
            push(view, b"large", 3000);
            for key in keys {
                let (value, expire_at_ms) = view.find(key, Trace::Quiet).unwrap().copy();
                view.put_owned(&[key, b"'"].concat(), value, expire_at_ms);
            }
            let what = |key: &[u8]| {
                let found = view.find(key, Trace::Quiet).unwrap();
                let len = match found.value() {
                    ValueRef::String(string) => string.as_bytes().len(),
                    ValueRef::Object(value) => value.len(),
                };
                (found.encoding(), found.expire_at_ms(), len)
            };
            for key in keys {
                assert_eq!(what(key), what(&[key, b"'"].concat()));
                assert!(view.find(key, Trace::Quiet).is_some());
            }
            assert!(view.remove(b"large") && view.remove(b"blob"));
        });
        unit(&mut alone, 0, |view| {
            assert_eq!(view.read::<List>(b"large'").unwrap().unwrap().len(), 3000);
            let blob = view.string(b"blob'").unwrap().unwrap();
            assert_eq!(blob.as_bytes(), [b'x'; 20_000]);
        });
    }
}
