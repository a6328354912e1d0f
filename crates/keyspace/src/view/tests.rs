//! A view of keys against a model: what handlers see, change and count.

use std::collections::{BTreeSet, HashMap};

use redline_types::{DataType, Hash, List, Set, Value, Zset, pack::End};

use super::*;
use crate::WatchFlag;
use crate::{StringRef, ValueRef, lock::NobodyWaits, lock::STRIPES, notify::Classes, space::SLOTS};

/// A keyspace, and a worker that is alone with it.
struct Alone {
    space: Keyspace,
    local: Local,
    now_ms: i64,
}

impl Alone {
    fn new() -> Alone {
        let mut local = Local::new(fastrand::Rng::with_seed(7), Limits::default());
        local.notify = Classes(u32::MAX);
        Alone {
            space: Keyspace::new(4, Box::new(NobodyWaits)),
            local,
            now_ms: 1_000_000,
        }
    }

    /// Runs a unit that holds everything.
    fn unit<R>(&mut self, run: impl FnOnce(&mut View<'_>) -> R) -> R {
        self.unit_in(0, run)
    }

    fn unit_in<R>(&mut self, db: u32, run: impl FnOnce(&mut View<'_>) -> R) -> R {
        let mut unit = Unit::exclusive(&mut self.space);
        let mut view = unit.view(&mut self.local, db, self.now_ms);
        let result = run(&mut view);
        view.finish_unreported();
        result
    }

    fn watch(&mut self, key: &[u8], flag: &Arc<WatchFlag>) -> bool {
        let mut unit = Unit::exclusive(&mut self.space);
        unit.watch(0, key, flag, self.now_ms).is_some()
    }

    fn unwatch(&mut self, key: &[u8], flag: &Arc<WatchFlag>) {
        Unit::exclusive(&mut self.space).unwatch(0, key, flag);
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.unit(|view| {
            let value = view.string(key.as_bytes()).expect("a string");
            value.map(|value| value.as_bytes().to_vec())
        })
    }

    fn set(&mut self, key: &str, value: &[u8], expiry: Expiry) {
        self.unit(|view| view.set_string(key.as_bytes(), value, expiry));
    }

    fn events(&mut self) -> Vec<String> {
        let events = self.local.events.drain(..);
        events
            .map(|event| format!("{} {}", event.name, event.key.escape_ascii()))
            .collect()
    }

    /// Returns the number of bytes of keys and values in the memory account, the worker's share included.
    fn used_bytes(&mut self) -> u64 {
        self.local.flush_account(&self.space);
        self.space.used_bytes() - self.space.fixed_bytes()
    }

    /// Returns the number of keys in the TTL indexes.
    fn expiring(&self) -> u64 {
        self.space.expiring_key_count(0)
    }
}

/// Returns a key that exists.
fn find<'v>(view: &'v View<'_>, key: &[u8]) -> Found<'v> {
    view.find(key, Trace::Quiet).expect("the key exists")
}

fn expiry_of(view: &View<'_>, key: &[u8]) -> Option<Option<i64>> {
    view.find(key, Trace::Quiet).map(Found::expire_at_ms)
}

fn push(view: &mut View<'_>, key: &str, count: usize) {
    view.write_or_new(key.as_bytes(), |list: &mut List, limits| {
        (0..count).for_each(|_| list.push_back(b"some element", limits));
    })
    .expect("no other type");
}

#[test]
fn a_string_of_the_same_class_stays_where_it_is() {
    let mut alone = Alone::new();
    let address = |alone: &mut Alone| {
        alone.unit(|view| {
            view.find_entry(b"key")
                .map(|entry| entry.pointer())
                .expect("it is there")
        })
    };
    alone.set("key", b"0123456789abc", Expiry::Clear);
    let place = address(&mut alone);
    alone.set("key", b"0123456789def", Expiry::Clear);
    assert_eq!(address(&mut alone), place);
    let counted = alone.unit(|view| {
        view.map_string(b"key", |old| {
            Ok::<_, WrongType>((*b"1234567890", old.unwrap().len()))
        })
    });
    assert_eq!(counted, Ok(13));
    assert_eq!(address(&mut alone), place);
    assert_eq!(alone.get("key").unwrap(), b"1234567890");

    alone.set("key", b"1", Expiry::AtMs(2_000_000));
    let place = address(&mut alone);
    alone.set("key", b"2", Expiry::AtMs(3_000_000));
    assert_eq!(
        address(&mut alone),
        place,
        "SET … EX again and again moves nothing"
    );
    assert_eq!(
        alone.unit(|view| expiry_of(view, b"key")),
        Some(Some(3_000_000))
    );
}

#[test]
fn a_refused_map_changes_nothing() {
    let mut alone = Alone::new();
    alone.set("key", b"text", Expiry::Clear);
    let refused =
        alone.unit(|view| view.map_string(b"key", |_| Err::<([u8; 1], ()), _>(WrongType)));
    assert_eq!(refused, Err(WrongType));
    assert_eq!(alone.get("key").unwrap(), b"text");
    let refused =
        alone.unit(|view| view.map_string(b"none", |_| Err::<([u8; 1], ()), _>(WrongType)));
    assert_eq!(refused, Err(WrongType));
    assert!(!alone.unit(|view| view.find(b"none", Trace::Quiet).is_some()));
}

#[test]
fn an_edited_string_grows_across_the_border_to_a_blob() {
    let mut alone = Alone::new();
    let mut expected = Vec::new();
    for at in 0..3_000u32 {
        let piece = at.to_le_bytes().repeat(2);
        let result = alone.unit(|view| {
            view.edit_string(b"key", piece.len(), |value| {
                value.extend_from_slice(&piece);
                Ok::<_, WrongType>(value.len())
            })
        });
        expected.extend_from_slice(&piece);
        assert_eq!(result, Ok(expected.len()));
        if at % 100 == 0 || (2040..2060).contains(&at) {
            assert_eq!(alone.get("key").unwrap(), expected);
        }
    }
    let is_blob = alone.unit(|view| matches!(view.string(b"key"), Ok(Some(StringRef::Blob(_)))));
    assert!(is_blob, "24,000 bytes are above the border");
    assert_eq!(alone.unit(|view| find(view, b"key").encoding()), "raw");
    alone.unit(|view| view.remove(b"key"));
    assert_eq!(alone.used_bytes(), 0);
}

#[test]
fn an_edit_keeps_the_expiry_and_a_failed_edit_keeps_the_value() {
    let mut alone = Alone::new();
    for value in [&b"small"[..], &[b'x'; 20_000]] {
        alone.set("key", value, Expiry::AtMs(5_000_000));
        let refused = alone.unit(|view| view.edit_string(b"key", 0, |_| Err::<(), _>(WrongType)));
        assert_eq!(refused, Err(WrongType));
        assert_eq!(alone.get("key").unwrap(), value);
        alone
            .unit(|view| {
                view.edit_string(b"key", 100, |value| {
                    value.resize(value.len() + 100, b'y');
                    Ok::<_, WrongType>(())
                })
            })
            .unwrap();
        assert_eq!(alone.get("key").unwrap().len(), value.len() + 100);
        assert_eq!(
            alone.unit(|view| expiry_of(view, b"key")),
            Some(Some(5_000_000))
        );
        assert_eq!(alone.expiring(), 1);
    }
    alone.unit(|view| push(view, "list", 1));
    let wrong = alone.unit(|view| view.edit_string(b"list", 0, |_| Ok::<_, WrongType>(())));
    assert_eq!(wrong, Err(WrongType));
}

#[test]
fn a_reply_keeps_the_blob_that_an_edit_changes() {
    let mut alone = Alone::new();
    alone.set("key", &[b'a'; 20_000], Expiry::Clear);
    let reply = alone.unit(|view| match view.string(b"key") {
        Ok(Some(StringRef::Blob(blob))) => blob.clone(),
        _ => panic!("a blob"),
    });
    let edit = |value: &mut Vec<u8>| {
        value[0] = b'b';
        Ok::<_, WrongType>(())
    };
    alone
        .unit(|view| view.edit_string(b"key", 0, edit))
        .unwrap();
    assert_eq!(reply[0], b'a');
    assert_eq!(alone.get("key").unwrap()[0], b'b');
}

#[test]
fn the_ttl_index_follows_every_way_an_expiry_comes_and_goes() {
    let mut alone = Alone::new();
    let at = Expiry::AtMs(2_000_000);
    type Step = (&'static str, fn(&mut View<'_>), u64);
    let steps: [Step; 12] = [
        (
            "set with",
            |view| view.set_string(b"key", b"v", Expiry::AtMs(2_000_000)),
            1,
        ),
        (
            "set keeping",
            |view| view.set_string(b"key", b"longer value", Expiry::Keep),
            1,
        ),
        (
            "large keeping",
            |view| view.set_string(b"key", &[1; 20_000], Expiry::Keep),
            1,
        ),
        (
            "set without",
            |view| view.set_string(b"key", b"v", Expiry::Clear),
            0,
        ),
        (
            "expire",
            |view| assert!(view.set_expiry(b"key", Some(2_000_000))),
            1,
        ),
        (
            "expire again",
            |view| assert!(view.set_expiry(b"key", Some(3_000_000))),
            1,
        ),
        ("persist", |view| assert!(view.set_expiry(b"key", None)), 0),
        (
            "persist again",
            |view| assert!(view.set_expiry(b"key", None)),
            0,
        ),
        (
            "become a list",
            |view| {
                let mut list = List::default();
                list.push_back(b"1", &Limits::default());
                view.insert(b"key", list, Expiry::AtMs(2_000_000));
            },
            1,
        ),
        (
            "move",
            |view| {
                let (value, expire_at_ms) = view.take(b"key").unwrap();
                view.put_owned(b"other", value, expire_at_ms);
            },
            1,
        ),
        (
            "copy",
            |view| {
                let (value, expire_at_ms) = find(view, b"other").copy();
                view.put_owned(b"key", value, expire_at_ms);
            },
            2,
        ),
        (
            "delete",
            |view| assert!(view.remove(b"key") && view.remove(b"other")),
            0,
        ),
    ];
    for (name, step, expiring) in steps {
        alone.unit(step);
        assert_eq!(alone.expiring(), expiring, "after: {name}");
    }
    assert_eq!(alone.used_bytes(), 0);

    alone.set("key", b"v", at);
    alone.now_ms = 2_000_000;
    assert!(
        alone.get("key").is_some(),
        "a key lives to the end of its last millisecond"
    );
    alone.now_ms += 1;
    assert_eq!(alone.get("key"), None);
    assert_eq!(
        (
            alone.expiring(),
            alone.space.key_count(0),
            alone.used_bytes()
        ),
        (0, 0, 0)
    );
}

#[test]
fn an_expired_key_is_reported_once_whoever_meets_it() {
    let mut alone = Alone::new();
    let expire = |alone: &mut Alone| {
        alone.set("key", b"v", Expiry::AtMs(alone.now_ms + 10));
        alone.now_ms += 11;
        alone.events();
    };
    expire(&mut alone);
    alone.unit(|view| {
        assert!(view.find(b"key", Trace::Read).is_none());
        assert!(view.find(b"key", Trace::Probe).is_none());
    });
    assert_eq!(
        alone.events(),
        ["expired key", "keymiss key", "keymiss key"]
    );
    assert_eq!(alone.space.key_count(0), 0, "gone at the end of the unit");

    expire(&mut alone);
    alone.unit(|view| {
        assert!(view.find(b"key", Trace::Quiet).is_none());
        view.set_string(b"key", b"w", Expiry::Clear);
    });
    assert_eq!(alone.events(), ["expired key", "new key"]);
    assert_eq!(alone.get("key").unwrap(), b"w", "written after it expired");

    expire(&mut alone);
    assert!(!alone.unit(|view| view.remove(b"key")));
    assert_eq!(alone.events(), ["expired key"]);
    assert_eq!(alone.local.expired.get(), 3);
}

#[test]
fn a_replaced_value_has_its_events_and_an_edited_one_none() {
    let mut alone = Alone::new();
    alone.set("key", b"v", Expiry::Clear);
    alone.set("key", b"w", Expiry::Clear);
    let _ = alone.unit(|view| view.map_string(b"key", |_| Ok::<_, WrongType>((b"1", ()))));
    alone.unit(|view| {
        let mut list = List::default();
        list.push_back(b"1", &Limits::default());
        view.insert(b"key", list, Expiry::Clear);
    });
    alone.unit(|view| view.insert(b"key", Arc::new(vec![1; 20_000]), Expiry::Clear));
    assert_eq!(
        alone.events(),
        [
            "new key",
            "overwritten key",
            "overwritten key",
            "type_changed key",
            "overwritten key",
            "type_changed key"
        ]
    );
}

#[test]
fn an_emptied_collection_goes_with_its_key() {
    let mut alone = Alone::new();
    alone.unit(|view| push(view, "list", 1000));
    assert!(alone.used_bytes() > 8_000);
    alone.unit(|view| {
        let popped = view.write(b"list", |list: &mut List, limits| {
            list.pop(End::Front, usize::MAX, limits, |_| ())
        });
        assert_eq!(popped, Ok(Some(1000)));
        view.changed(Classes::LIST, "lpop", b"list");
    });
    assert_eq!(alone.events(), ["new list", "lpop list", "del list"]);
    assert_eq!((alone.space.key_count(0), alone.used_bytes()), (0, 0));
    let none = alone.unit(|view| view.write(b"list", |_: &mut List, _| ()));
    assert_eq!(none, Ok(None));
    let unused = alone.unit(|view| view.write_or_new(b"list", |_: &mut List, _| ()));
    assert_eq!(unused, Ok(()));
    assert!(
        !alone.unit(|view| view.find(b"list", Trace::Quiet).is_some()),
        "nothing was put into it"
    );
}

#[test]
fn the_account_returns_to_zero() {
    let mut alone = Alone::new();
    let keys = if cfg!(miri) { 200 } else { 20_000 };
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..3 {
        for number in 0..keys {
            let key = format!("key:{number}");
            let expiry = if rng.bool() {
                Expiry::AtMs(9_000_000)
            } else {
                Expiry::Clear
            };
            match rng.u8(..8) {
                0 => alone.unit(|view| push_or_replace(view, &key)),
                1 => alone.set(&key, &vec![1; rng.usize(16_000..40_000)], expiry),
                2 => alone.unit(|view| {
                    view.set_expiry(key.as_bytes(), None);
                }),
                _ => alone.set(&key, &vec![1; rng.usize(..200)], expiry),
            }
        }
        assert!(alone.used_bytes() > keys as u64 * 50, "round {round}");
    }
    assert!(alone.expiring() > 0);
    for number in 0..keys {
        alone.unit(|view| view.remove(format!("key:{number}").as_bytes()));
    }
    assert_eq!(alone.used_bytes(), 0);
    assert_eq!((alone.space.key_count(0), alone.expiring()), (0, 0));

    fn push_or_replace(view: &mut View<'_>, key: &str) {
        let found = view.find(key.as_bytes(), Trace::Quiet);
        if found.and_then(Found::kind).is_none() {
            view.remove(key.as_bytes());
        }
        push(view, key, 20);
    }
}

#[test]
fn a_flushed_database_is_empty_at_once_and_freed_later() {
    let mut alone = Alone::new();
    for number in 0..500 {
        alone.set(&number.to_string(), &[7; 20_000], Expiry::AtMs(9_000_000));
    }
    alone.unit_in(1, |view| view.set_string(b"other", b"v", Expiry::Clear));
    let other = alone.unit_in(1, |view| find(view, b"other").memory_bytes()) as u64;
    assert_eq!(alone.unit(|view| view.database().flush()), 500);
    assert_eq!(
        alone.unit(|view| view.in_db(2, |view| view.database().flush())),
        0,
        "it never held anything"
    );
    assert_eq!(alone.space.key_count(0), 0);
    assert_eq!(alone.get("7"), None);
    alone.set("7", b"new", Expiry::Clear);
    assert!(alone.used_bytes() > 500 * 20_000, "not freed yet");
    for flushed in std::mem::take(&mut alone.local.flushed) {
        flushed.free(&alone.space, &mut alone.local.heap);
    }
    assert_eq!(alone.get("7").unwrap(), b"new");
    alone.unit(|view| view.remove(b"7"));
    let left = alone.used_bytes();
    assert!(
        left > other && left < other + 1000,
        "one key and its table are left: {left}"
    );
    assert_eq!(alone.unit_in(1, |view| view.database().key_count()), 1);
}

#[test]
fn swapped_databases_trade_their_keys() {
    let mut alone = Alone::new();
    alone.set("a", b"0", Expiry::AtMs(2_000_000));
    alone.unit_in(2, |view| view.set_string(b"b", b"2", Expiry::Clear));
    alone.unit(|view| view.database().swap(2));
    assert_eq!(
        (alone.get("a"), alone.get("b").unwrap()),
        (None, b"2".to_vec())
    );
    assert_eq!(alone.space.expiring_key_count(2), 1);
    alone.unit(|view| view.database().swap(3));
    assert_eq!(alone.space.key_count(0), 0, "3 never held anything");
    assert_eq!(alone.space.key_count(3), 1);
}

#[test]
fn watchers_hear_of_changes_only() {
    let mut alone = Alone::new();
    let raised = |alone: &mut Alone, change: fn(&mut View<'_>)| {
        let flag = Arc::new(WatchFlag::default());
        alone.watch(b"key", &flag);
        alone.unit(change);
        alone.unwatch(b"key", &flag);
        flag.is_raised()
    };
    assert!(!raised(&mut alone, |view| assert!(
        view.find(b"key", Trace::Read).is_none()
    )));
    assert!(raised(&mut alone, |view| view.changed(
        Classes::STRING,
        "set",
        b"key"
    )));
    assert!(!raised(&mut alone, |view| view.changed(
        Classes::STRING,
        "set",
        b"other"
    )));
    let other_db: fn(&mut View<'_>) =
        |view| view.in_db(1, |view| view.changed(Classes::STRING, "set", b"key"));
    assert!(!raised(&mut alone, other_db));
    let flush: fn(&mut View<'_>) = |view| {
        view.database().flush();
    };
    assert!(
        !raised(&mut alone, flush),
        "a flush does not concern a key that is missing"
    );
    alone.set("key", b"v", Expiry::Clear);
    assert!(raised(&mut alone, flush));
    alone.unit_in(1, |view| view.set_string(b"key", b"v", Expiry::Clear));
    assert!(raised(&mut alone, |view| view.database().swap(1)));

    alone.set("key", b"v", Expiry::AtMs(alone.now_ms + 10));
    alone.now_ms += 11;
    let look: fn(&mut View<'_>) = |view| assert!(view.find(b"key", Trace::Quiet).is_none());
    assert!(
        !raised(&mut alone, look),
        "it had expired before the watch began"
    );
}

#[test]
fn a_watched_key_that_had_expired_already_stays_and_may_go() {
    let mut alone = Alone::new();
    let raised = |alone: &mut Alone, change: fn(&mut View<'_>)| {
        alone.set("key", b"v", Expiry::AtMs(alone.now_ms + 10));
        alone.now_ms += 11;
        alone.events();
        let flag = Arc::new(WatchFlag::default());
        alone.watch(b"key", &flag);
        assert_eq!(alone.space.key_count(0), 1);
        assert!(alone.events().is_empty(), "who watches takes nothing out");
        alone.unit(change);
        alone.unwatch(b"key", &flag);
        flag.is_raised()
    };
    let goes: [fn(&mut View<'_>); 5] = [
        |view| assert!(view.find(b"key", Trace::Quiet).is_none()),
        |view| assert!(!view.remove(b"key")),
        |view| {
            view.remove_for_nothing(b"key");
            view.changed(Classes::GENERIC, "del", b"key");
        },
        |view| {
            view.database().flush();
        },
        |view| view.database().swap(1),
    ];
    for (at, goes) in goes.into_iter().enumerate() {
        assert!(!raised(&mut alone, goes), "{at}");
    }
    let made_anew: [fn(&mut View<'_>); 2] = [
        |view| {
            view.set_string(b"key", b"w", Expiry::Clear);
            view.changed(Classes::STRING, "set", b"key");
        },
        |view| {
            view.in_db(1, |view| view.set_string(b"key", b"w", Expiry::Clear));
            view.database().swap(1);
        },
    ];
    for (at, made_anew) in made_anew.into_iter().enumerate() {
        assert!(raised(&mut alone, made_anew), "{at}");
    }
}

#[test]
fn swapping_in_a_key_that_has_expired_changes_nothing_for_watchers_of_a_missing_one() {
    let mut alone = Alone::new();
    let stale = Expiry::AtMs(alone.now_ms + 10);
    alone.unit_in(1, |view| view.set_string(b"key", b"v", stale));
    alone.now_ms += 11;
    let flag = Arc::new(WatchFlag::default());
    alone.watch(b"key", &flag);
    alone.unit(|view| view.database().swap(1));
    assert!(!flag.is_raised());
    alone.unit_in(1, |view| view.set_string(b"key", b"v", Expiry::Clear));
    alone.unit(|view| view.database().swap(1));
    assert!(flag.is_raised());
}

/// Scans to the end, with some change between the steps; returns how often each key was met.
fn scan_all(
    alone: &mut Alone,
    count: u64,
    mut between: impl FnMut(&mut Alone),
) -> HashMap<Vec<u8>, usize> {
    let mut met = HashMap::new();
    let mut cursor = 0;
    loop {
        let mut here = 0;
        cursor = alone
            .unit(|view| {
                view.database().scan(cursor, count, |key, _| {
                    *met.entry(key.to_vec()).or_insert(0) += 1;
                    here += 1;
                })
            })
            .expect("nobody else holds a stripe");
        assert!(
            cursor < 1 << 53,
            "clients in JavaScript keep cursors in doubles"
        );
        assert!(
            here >= count || cursor == 0,
            "at least as many as asked for, or the end"
        );
        if cursor == 0 {
            return met;
        }
        between(alone);
    }
}

#[test]
fn a_scan_meets_every_key_once() {
    let mut alone = Alone::new();
    for keys in [0, 1, 3, 300, if cfg!(miri) { 300 } else { 50_000 }] {
        for number in 0..keys {
            alone.set(&number.to_string(), b"v", Expiry::Clear);
        }
        for count in [1, 10, 1_000_000] {
            let met = scan_all(&mut alone, count, |_| ());
            assert_eq!(met.len(), keys);
            assert!(
                met.values().all(|times| *times == 1),
                "nothing changed meanwhile"
            );
        }
        let mut all = BTreeSet::new();
        alone.unit(|view| {
            view.database()
                .for_each(|key, _| assert!(all.insert(key.to_vec())))
        });
        assert_eq!(all.len(), keys);
    }
    let past_the_end = (SLOTS as u64) << 16;
    for cursor in [past_the_end, u64::MAX] {
        assert_eq!(
            alone.unit(|view| view.database().scan(cursor, 10, |_, _| ())),
            Ok(0)
        );
    }
}

#[test]
fn a_scan_meets_every_key_that_stays_while_tables_grow_and_shrink() {
    let mut alone = Alone::new();
    let stay = if cfg!(miri) { 50 } else { 5_000 };
    for number in 0..stay {
        alone.set(&format!("stay:{number}"), b"v", Expiry::Clear);
    }
    for (begin, step) in [(0, 1), (20_000, -1)] {
        let mut others: i64 = begin;
        for number in 0..others {
            alone.set(&format!("other:{number}"), b"v", Expiry::Clear);
        }
        let met = scan_all(&mut alone, 50, |alone| {
            for _ in 0..200 {
                if step > 0 {
                    alone.set(&format!("other:{others}"), b"v", Expiry::Clear);
                } else if others > 0 {
                    alone.unit(|view| view.remove(format!("other:{}", others - 1).as_bytes()));
                }
                others += step;
            }
        });
        for number in 0..stay {
            let times = met.get(format!("stay:{number}").as_bytes());
            assert_eq!(times, Some(&1), "stay:{number}");
        }
        alone.unit(|view| {
            let mut left = Vec::new();
            view.database()
                .for_each(|key, _| left.extend(key.starts_with(b"other").then(|| key.to_vec())));
            left.iter().for_each(|key| assert!(view.remove(key)));
        });
    }
}

#[test]
fn a_scan_without_locks_of_its_own_yields_to_others() {
    let mut alone = Alone::new();
    for number in 0..2_000 {
        alone.set(&number.to_string(), b"v", Expiry::Clear);
    }
    let stripe = alone.space.place(b"7").stripe();
    let held = Unit::try_one(&alone.space, stripe).expect("nobody else is here");
    let mut scanning = Unit::none(&alone.space);
    let mut view = scanning.view(&mut alone.local, 0, 0);
    let (mut cursor, mut met) = (0, 0);
    let busy = loop {
        match view.database().scan(cursor, 5, |_, _| met += 1) {
            Ok(next) => cursor = next,
            Err(busy) => break busy,
        }
    };
    assert_eq!(busy, Busy(stripe));
    drop(held);
    let mut view = scanning.view(&mut alone.local, 0, 0);
    while let Ok(next) = view.database().scan(cursor, 5, |_, _| met += 1)
        && next != 0
    {
        cursor = next;
    }
    assert_eq!(met, 2_000);
    let all = Unit::try_set(&alone.space, &StripeSet::all(), false);
    assert!(all.is_ok(), "let go of");
}

#[test]
fn random_keys_are_drawn_from_all() {
    let mut alone = Alone::new();
    assert_eq!(alone.unit(|view| view.database().random_key()), Ok(None));
    for number in 0..50 {
        alone.set(&number.to_string(), b"v", Expiry::Clear);
    }
    let drawn: BTreeSet<_> = (0..2_000)
        .map(|_| {
            alone
                .unit(|view| view.database().random_key())
                .unwrap()
                .unwrap()
        })
        .collect();
    assert_eq!(drawn.len(), 50);
}

#[test]
fn a_drawn_key_that_has_expired_is_taken_out_or_told_of() {
    let mut alone = Alone::new();
    for number in 0..50 {
        let at = alone.now_ms + 10;
        alone.set(&format!("stale{number}"), b"v", Expiry::AtMs(at));
    }
    alone.set("key", b"v", Expiry::Clear);
    alone.now_ms += 11;
    alone.events();
    let mut unit = Unit::none(&alone.space);
    let mut draw = || {
        unit.view(&mut alone.local, 0, alone.now_ms)
            .database()
            .random_key()
    };
    let told = (0..100).find_map(|_| match draw() {
        Err(NoDraw::Expired(key)) => Some(key),
        _ => None,
    });
    drop(unit);
    assert!(told.is_some_and(|key| key.starts_with(b"stale")));
    assert_eq!(alone.space.key_count(0), 51, "nothing was held");
    while alone.space.key_count(0) > 1 {
        let key = alone.unit(|view| view.database().random_key());
        assert_eq!(key, Ok(Some(Box::from(&b"key"[..]))));
    }
    let events = alone.events();
    assert_eq!(events.len(), 50);
    assert!(
        events
            .iter()
            .all(|event| event.starts_with("expired stale"))
    );
}

#[test]
fn hints_save_hashing_and_are_never_taken_for_other_keys() {
    let mut alone = Alone::new();
    let keys: Vec<String> = (0..100).map(|number| format!("key:{number}")).collect();
    let hints: Vec<Hint> = keys
        .iter()
        .map(|key| Hint::new(key.as_bytes(), alone.space.place(key.as_bytes())))
        .collect();
    let mut unit = Unit::exclusive(&mut alone.space);
    let mut view = unit.view(&mut alone.local, 0, 0);
    view.hints(&hints);
    keys.iter()
        .for_each(|key| view.set_string(key.as_bytes(), key.as_bytes(), Expiry::Clear));
    // Backwards, twice, by a part of a hinted key, and by copies elsewhere in memory.
    for key in keys.iter().rev().chain(&keys) {
        assert_eq!(
            view.string(key.as_bytes()).unwrap().unwrap().as_bytes(),
            key.as_bytes()
        );
        assert_eq!(
            view.string(&key.as_bytes()[1..])
                .unwrap()
                .map(StringRef::as_bytes),
            None
        );
        let copy = key.clone();
        assert!(view.find(copy.as_bytes(), Trace::Quiet).is_some());
    }
    assert_eq!(view.database().key_count(), 100);
}

#[test]
#[should_panic(expected = "does not hold")]
fn a_unit_touches_only_what_it_holds() {
    let mut alone = Alone::new();
    let elsewhere = (alone.space.place(b"key").stripe() + 1) % STRIPES as u16;
    let mut unit = Unit::try_one(&alone.space, elsewhere).expect("nobody else is here");
    let view = unit.view(&mut alone.local, 0, 0);
    view.find(b"key", Trace::Quiet);
}

mod packed;
