//! Small collections inside their entries: the same as outside, whatever is done to them and in whatever order.

use std::sync::atomic::Ordering;

use redline_table::heap::Compaction;
use redline_types::zset::AddFlags;

use super::*;
use crate::PACKED_BYTES_MAX;

/// Everything that can be seen of a collection, how it is stored included.
type Seen = (Kind, &'static str, usize, Vec<Vec<u8>>);

fn seen(value: &Value) -> Seen {
    let elements = match value {
        Value::List(list) => list.iter().map(|e| e.to_vec()).collect(),
        Value::Set(set) => {
            let mut members: Vec<Vec<u8>> = set.iter().map(|e| e.to_vec()).collect();
            if set.encoding() == "hashtable" {
                members.sort_unstable();
            }
            members
        }
        Value::Hash(hash) => {
            let pairs = hash.iter_timed();
            let mut pairs: Vec<_> = pairs
                .map(|(field, value, time)| (field.to_vec(), value.to_vec(), time))
                .collect();
            if hash.encoding() == "hashtable" {
                pairs.sort_unstable();
            }
            let parts = pairs
                .into_iter()
                .flat_map(|(field, value, time)| [field, value, format!("{time:?}").into_bytes()]);
            parts.collect()
        }
        Value::Zset(zset) => {
            let pairs = zset.iter();
            pairs
                .flat_map(|(member, score)| [member.to_vec(), score.to_string().into_bytes()])
                .collect()
        }
        _ => Vec::new(),
    };
    (value.kind(), value.encoding(), value.len(), elements)
}

/// Makes one change, to a collection in a keyspace or to one outside.
fn change(value: &mut Value, rng: &mut fastrand::Rng, limits: &Limits) {
    let text = |rng: &mut fastrand::Rng| match rng.u8(..4) {
        0 => rng.i64(-50..50).to_string().into_bytes(),
        1 => rng.i64(..).to_string().into_bytes(),
        2 => vec![b'a' + rng.u8(..20); rng.usize(..70)],
        _ => format!("some element {}", rng.u32(..60)).into_bytes(),
    };
    let texts: Vec<Vec<u8>> = (0..[1, 1, 1, 3, 40][rng.usize(..5)])
        .map(|_| text(rng))
        .collect();
    let end = if rng.bool() { End::Front } else { End::Back };
    let shrinks = rng.u8(..8);
    match value {
        Value::List(list) => match shrinks {
            0 => list.trim(0..rng.usize(..20), limits),
            1 => drop(list.remove(0, &texts[0], limits)),
            2 | 3 => drop(list.pop(end, rng.usize(1..10), limits, |_| ())),
            4 => list.rotate(end, End::Front, limits, |_| ()),
            5 => drop(list.set(0, &texts[0], limits)),
            _ => list.push(end, texts.iter().map(Vec::as_slice), limits),
        },
        Value::Set(set) => match shrinks {
            0 | 1 => {
                let count = rng.usize(1..30);
                if set.encoding() == "hashtable" && count < set.len() {
                    // Which ones it draws depends on the table's past.
                    let mut members: Vec<Vec<u8>> = set.iter().map(|e| e.to_vec()).collect();
                    members.sort_unstable();
                    let gone = members.iter().take(count);
                    gone.for_each(|member| assert!(set.remove(member)));
                } else {
                    set.pop(count, limits, &mut || rng.u64(..), |_| ());
                }
            }
            2 => drop(set.remove(&texts[0])),
            _ => {
                // Some sets are of integers only, for a while.
                let small = rng.u8(..3) > 0;
                let texts = texts.iter().map(Vec::as_slice);
                let ints = texts.clone().filter(|text| number_of(text));
                match small {
                    true => set.add_all(ints, limits),
                    false => set.add_all(texts, limits),
                };
            }
        },
        Value::Hash(hash) => match shrinks {
            0 | 1 => {
                let fields = hash.iter().map(|(field, _)| field.to_vec());
                let mut fields: Vec<Vec<u8>> = fields.collect();
                fields.sort_unstable();
                let gone = fields.iter().filter(|_| rng.bool());
                gone.for_each(|field| assert!(hash.remove(field)));
            }
            2 => {
                let first = hash.iter().map(|(field, _)| field.to_vec()).min();
                if rng.u8(..4) == 0 {
                    first.inspect(|field| {
                        assert!(hash.set_expire_at_ms(field, Some(9_000_000_000)));
                    });
                }
            }
            _ => {
                let value = text(rng);
                let pairs = texts.iter().flat_map(|text| [&text[..], &value[..]]);
                let pairs: Vec<&[u8]> = pairs.collect();
                hash.set_all(pairs.iter().copied(), limits);
            }
        },
        Value::Zset(zset) => match shrinks {
            0 | 1 => drop(zset.remove_range(0..rng.usize(1..20))),
            2 => drop(zset.remove(&texts[0])),
            3 if rng.u8(..20) == 0 => zset.leave_packed().expect("there is memory"),
            _ => {
                for text in &texts {
                    let score = f64::from(rng.i32(-5..5)) / 2.0;
                    zset.add(text, score, AddFlags::default(), limits)
                        .expect("it is a number");
                }
            }
        },
        _ => unreachable!("not in this test"),
    }
}

fn number_of(text: &[u8]) -> bool {
    redline_types::number::parse_i64(text).is_some()
}

/// Makes the same change to the key and to the model.
fn change_both<T: Collection>(
    view: &mut View<'_>,
    key: &[u8],
    model: &mut Option<Value>,
    seed: u64,
) {
    let limits = view.local.limits.clone();
    let run = |collection: &mut T| {
        let mut value: Value = std::mem::take(collection).into();
        change(&mut value, &mut fastrand::Rng::with_seed(seed), &limits);
        std::mem::swap(T::of_mut(&mut value).expect("its type"), collection);
    };
    view.write_or_new(key, |collection: &mut T, _| run(collection))
        .expect("its type");
    let mut own = model.take().unwrap_or_else(|| T::default().into());
    run(T::of_mut(&mut own).expect("its type"));
    *model = Some(own).filter(|value| !value.is_empty());
    assert!(!view.swap_emptied(false) || model.is_none());
}

/// Returns true if the key's collection is inside its entry.
fn is_inside(view: &View<'_>, key: &[u8]) -> bool {
    let entry = view.find_entry(key).expect("the key exists");
    matches!(view.content(entry), Content::Packed(_))
}

#[test]
fn collections_are_the_same_inside_and_outside_their_entries() {
    let steps = if cfg!(miri) { 300 } else { 30_000 };
    let mut alone = Alone::new();
    let mut rng = fastrand::Rng::with_seed(11);
    let keys: Vec<String> = (0..12).map(|n| format!("key:{n}")).collect();
    let mut models: HashMap<(u32, String), (Option<Value>, Option<i64>)> = HashMap::new();
    let (mut inside, mut moves) = (HashMap::new(), 0);
    for step in 0..steps {
        let (db, n) = (rng.u32(..2), rng.usize(..keys.len()));
        let key = &keys[n];
        let id = (db, key.clone());
        let (mut model, mut expiry) = models.remove(&id).unwrap_or((None, None));
        let (seed, target) = (rng.u64(..), keys[n % 4 + 4 * rng.usize(..3)].clone());
        match rng.u8(..40) {
            0 => {
                let at_ms = rng.bool().then_some(2_000_000 + step);
                alone.unit_in(db, |view| view.set_expiry(key.as_bytes(), at_ms));
                expiry = at_ms.filter(|_| model.is_some());
            }
            1 => {
                let there = alone.unit_in(db, |view| view.remove(key.as_bytes()));
                assert_eq!(there, model.is_some());
                (model, expiry) = (None, None);
            }
            2 | 3 if model.is_some() => {
                // RENAME and COPY, also to the other database; never to a key of another type.
                let to = (rng.u32(..2), target);
                let taken = alone.unit_in(db, |view| match seed % 2 {
                    0 => view.take(key.as_bytes()),
                    _ => view.find(key.as_bytes(), Trace::Quiet).map(Found::copy),
                });
                let (value, expire_at_ms) = taken.expect("the key exists");
                alone.unit_in(to.0, |view| {
                    view.put_owned(to.1.as_bytes(), value, expire_at_ms);
                });
                if to != id {
                    models.insert(to, (model.clone(), expiry));
                    if seed % 2 == 0 {
                        (model, expiry) = (None, None);
                    }
                } else if seed % 2 == 0 {
                    assert_eq!(expire_at_ms, expiry);
                }
            }
            4 => {
                // RESTORE, SINTERSTORE and the like: a value that comes from elsewhere.
                if let Some(value) = &model {
                    alone.unit_in(db, |view| {
                        assert!(view.insert(key.as_bytes(), value.clone(), Expiry::Keep));
                    });
                }
            }
            _ => {
                alone.unit_in(db, |view| {
                    let key = key.as_bytes();
                    match n % 4 {
                        0 => change_both::<List>(view, key, &mut model, seed),
                        1 => change_both::<Set>(view, key, &mut model, seed),
                        2 => change_both::<Hash>(view, key, &mut model, seed),
                        _ => change_both::<Zset>(view, key, &mut model, seed),
                    }
                });
                if model.is_none() {
                    expiry = None;
                }
            }
        }
        alone.unit_in(db, |view| {
            let key = key.as_bytes();
            let Some(model) = &model else {
                assert!(view.find(key, Trace::Quiet).is_none());
                return;
            };
            // Without opening, then opened, twice, with what is outside beside it.
            let found = find(view, key);
            assert_eq!(found.kind(), Some(model.kind()));
            assert_eq!(found.encoding(), model.encoding());
            assert_eq!(found.expire_at_ms(), expiry);
            let ValueRef::Object(first) = found.value() else {
                panic!("a collection");
            };
            let Some(ValueRef::Object(second)) = view.find(key, Trace::Read).map(Found::value)
            else {
                panic!("a collection");
            };
            assert!(seen(first) == seen(model), "{id:?} in step {step}");
            assert!(seen(second) == seen(model), "{id:?} in step {step}");
            let bytes = model.packed().map(|packed| packed.bytes.len());
            let is_inside = is_inside(view, key);
            match bytes {
                Some(bytes) if bytes <= PACKED_AGAIN_BYTES_MAX => assert!(is_inside),
                Some(bytes) if bytes <= PACKED_BYTES_MAX => {}
                _ => assert!(!is_inside),
            }
            let before = inside.insert(id.clone(), is_inside);
            moves += usize::from(before.is_some_and(|before| before != is_inside));
        });
        models.insert(id, (model, expiry));
    }
    assert!(cfg!(miri) || moves > 300, "{moves} moves across the border");
    let timed = alone.space.timed_key_count(0) + alone.space.timed_key_count(1);
    let is_timed = |(model, _): &&(Option<Value>, Option<i64>)| {
        let earliest = model.as_ref().and_then(Value::earliest_expiry_ms);
        earliest.is_some()
    };
    assert_eq!(timed as usize, models.values().filter(is_timed).count());
    let expiring = models.values().filter(|(_, expiry)| expiry.is_some());
    let counted = alone.space.expiring_key_count(0) + alone.space.expiring_key_count(1);
    assert_eq!(counted as usize, expiring.count());
    for (db, key) in models.keys() {
        alone.unit_in(*db, |view| view.remove(key.as_bytes()));
    }
    assert_eq!(alone.used_bytes(), 0);
    assert!(alone.local.garbage.is_empty() || !cfg!(miri));
}

#[test]
fn readers_of_one_unit_see_several_collections_side_by_side() {
    let mut alone = Alone::new();
    let limits = Limits::default();
    let key = |n: usize| format!("set:{n}").into_bytes();
    let add = |view: &mut View<'_>, n: usize, member: &str| {
        view.write_or_new(&key(n), |set: &mut Set, limits| {
            set.add(member.as_bytes(), limits)
        })
    };
    alone.unit(|view| {
        for n in 0..300 {
            // Integers of every width, texts, and some that are too large to be inside.
            let _ = add(view, n, &(1i64 << (n % 60)).to_string());
            for more in 0..n % 3 * 40 {
                let _ = add(view, n, &format!("member {more}"));
            }
        }
    });
    alone.unit(|view| {
        let open = |view: &View<'_>| -> Vec<Seen> {
            let sets: Vec<&Set> = (0..300)
                .map(|n| view.read::<Set>(&key(n)).unwrap().unwrap())
                .collect();
            let again: Vec<&Set> = (0..300)
                .rev()
                .map(|n| find(view, &key(n)).collection::<Set>().unwrap())
                .collect();
            let values = sets.iter().map(|set| seen(&(*set).clone().into()));
            let again = again.iter().rev().map(|set| seen(&(*set).clone().into()));
            let (values, again): (Vec<_>, Vec<_>) = (values.collect(), again.collect());
            assert_eq!(values, again);
            values
        };
        let before = open(view);
        for n in (0..300).step_by(7) {
            add(view, n, "one more").unwrap();
        }
        for (n, (before, after)) in before.iter().zip(open(view)).enumerate() {
            let mut set = Set::new();
            set.add_all(before.3.iter().map(Vec::as_slice), &limits);
            if n % 7 == 0 {
                set.add(b"one more", &limits);
            }
            let expected: BTreeSet<Vec<u8>> = set.iter().map(|member| member.to_vec()).collect();
            assert_eq!(BTreeSet::from_iter(after.3), expected, "{n}");
        }
    });
}

#[test]
fn a_collection_at_the_border_does_not_move_at_every_step() {
    let mut alone = Alone::new();
    let mut steps = |count: usize, end: End, pushes: bool| {
        let mut moves = 0;
        let mut before = None;
        for _ in 0..count {
            alone.unit(|view| {
                view.write_or_new(b"list", |list: &mut List, limits| match pushes {
                    true => list.push(end, std::iter::once(&b"element"[..]), limits),
                    false => drop(list.pop(end, 1, limits, |_| ())),
                })
                .expect("a list");
                let now = is_inside(view, b"list");
                moves += usize::from(before.replace(now).is_some_and(|before| before != now));
            });
        }
        (moves, before)
    };
    let bytes = b"element".len() + 2;
    let most = PACKED_BYTES_MAX / bytes;
    assert_eq!(steps(most, End::Back, true), (0, Some(true)));
    assert_eq!(steps(1, End::Back, true), (0, Some(false)));
    for _ in 0..20 {
        assert_eq!(steps(2, End::Front, false), (0, Some(false)));
        assert_eq!(steps(2, End::Back, true), (0, Some(false)));
    }
    assert_eq!(steps(most / 2 + 2, End::Front, false), (1, Some(true)));
    assert_eq!(steps(most / 2, End::Front, true), (0, Some(true)));
}

#[test]
fn a_small_collection_is_one_object_to_free_and_to_account_for() {
    let mut alone = Alone::new();
    alone.unit(|view| {
        view.write_or_new(b"key", |hash: &mut Hash, limits| {
            (0..100).for_each(|n| {
                hash.set(&[n], b"v", limits);
            });
        })
        .expect("a hash");
        let entry = view.find_entry(b"key").expect("it is there");
        // SAFETY: the unit holds everything.
        let (own, value) = unsafe { (entry.heap_bytes(), entry.value_bytes()) };
        let packed = view.read::<Hash>(b"key").unwrap().unwrap().packed();
        let bytes = packed.expect("it is small").bytes.len();
        assert_eq!((own, value), ((8 + 3 + 2 + bytes).next_multiple_of(8), 0));
        assert!(find(view, b"key").memory_bytes() < own + 20);
        assert!(view.remove(b"key"));
    });
    assert!(alone.local.garbage.is_empty());
    assert_eq!(alone.used_bytes(), 0);
}

fn len<T: Collection>(
    view: &View<'_>,
    key: &[u8],
    trace: Trace,
) -> Result<Option<usize>, WrongType> {
    view.find(key, trace).map(Found::len::<T>).transpose()
}

#[test]
fn a_wrong_type_is_met_without_opening_anything() {
    let mut alone = Alone::new();
    alone.unit(|view| {
        push(view, "list", 3);
        view.set_string(b"string", b"v", Expiry::Clear);
        assert_eq!(len::<List>(view, b"list", Trace::Write), Ok(Some(3)));
        assert_eq!(len::<List>(view, b"none", Trace::Read), Ok(None));
        for key in [&b"list"[..], b"string"] {
            assert_eq!(len::<Set>(view, key, Trace::Read), Err(WrongType));
            assert_eq!(len::<Zset>(view, key, Trace::Write), Err(WrongType));
            assert!(view.read::<Hash>(key).is_err());
            assert!(view.write_or_new(key, |_: &mut Set, _| ()).is_err());
        }
        assert!(view.string(b"list").is_err());
        let edited = view.edit_string(b"list", 1, |_| Ok::<_, WrongType>(()));
        assert_eq!(edited, Err(WrongType));
        let mapped = view.map_string(b"list", |_| Ok::<_, WrongType>((b"v", ())));
        assert_eq!(mapped, Err(WrongType));
        assert_eq!(find(view, b"list").type_name(), "list");
        assert_eq!(find(view, b"string").type_name(), "string");
        view.set_string(b"list", b"0123456789", Expiry::Clear);
        assert_eq!(find(view, b"list").type_name(), "string");
    });
}

#[test]
fn an_expired_collection_is_gone_for_readers_and_writers() {
    let mut alone = Alone::new();
    for reads in [true, false] {
        alone.unit(|view| {
            push(view, "list", 3);
            let at_ms = view.now_ms() + 10;
            assert!(view.set_expiry(b"list", Some(at_ms)));
            push(view, "list", 5);
            assert_eq!(find(view, b"list").expire_at_ms(), Some(at_ms));
        });
        alone.now_ms += 11;
        alone.unit(|view| match reads {
            true => assert_eq!(len::<List>(view, b"list", Trace::Read), Ok(None)),
            false => {
                push(view, "list", 1);
                assert_eq!(len::<List>(view, b"list", Trace::Read), Ok(Some(1)));
                assert!(view.remove(b"list"));
            }
        });
        assert_eq!((alone.space.key_count(0), alone.expiring()), (0, 0));
    }
    assert_eq!(alone.used_bytes(), 0);
}

#[test]
fn walks_see_values_in_passing() {
    let mut alone = Alone::new();
    alone.unit(|view| {
        (0..200).for_each(|n| push(view, &format!("list:{n}"), 1 + n));
        view.set_string(b"string", b"v", Expiry::Clear);
    });
    let mut lens = BTreeSet::new();
    alone.unit(|view| {
        view.database().for_each(|key, value| {
            let name = value.type_name();
            let len = value.with(|value| match value {
                ValueRef::Object(value) => value.len(),
                ValueRef::String(_) => 0,
            });
            assert_eq!(name == "string", key == b"string");
            assert!(lens.insert(len));
        });
    });
    assert!(lens.into_iter().eq(0..=200));
    let met = scan_all(&mut alone, 10, |_| ());
    assert_eq!(met.len(), 201);
}

#[test]
fn a_compaction_moves_small_collections_whole() {
    let mut alone = Alone::new();
    let keys: u32 = if cfg!(miri) { 200 } else { 80_000 };
    let fill = |view: &mut View<'_>, n: u32| {
        let key = format!("hash:{n}");
        view.write_or_new(key.as_bytes(), |hash: &mut Hash, limits| {
            for field in 0..12 {
                let value = format!("value {n}");
                hash.set(
                    format!("field {field}").as_bytes(),
                    value.as_bytes(),
                    limits,
                );
            }
        })
        .expect("a hash");
        let at_ms = n.is_multiple_of(20).then_some(9_000_000);
        assert!(view.set_expiry(key.as_bytes(), at_ms));
    };
    (0..keys).for_each(|n| alone.unit(|view| fill(view, n)));
    for n in (0..keys).filter(|n| !n.is_multiple_of(10)) {
        assert!(alone.unit(|view| view.remove(format!("hash:{n}").as_bytes())));
    }
    alone.local.heap.flush();
    let used = alone.used_bytes();
    let compaction = Compaction::begin();
    assert!(
        compaction.is_some() || cfg!(miri),
        "nine tenths of it are free"
    );
    alone.local.heap.tick();
    let (mut stripe, mut moved) = (0, 0);
    while stripe < STRIPES {
        moved += alone.space.compact_step(&mut alone.local, &mut stripe).done;
    }
    drop(compaction);
    assert!(cfg!(miri) || moved > keys as usize / 100, "{moved} moved");
    assert_eq!(alone.used_bytes(), used);
    assert_eq!(alone.expiring(), u64::from(keys / 20));
    for n in (0..keys).step_by(10) {
        alone.unit(|view| {
            let key = format!("hash:{n}");
            let hash = view.read::<Hash>(key.as_bytes()).unwrap().unwrap();
            assert_eq!(hash.len(), 12);
            let value = hash.get(b"field 7").map(|value| value.to_vec());
            assert_eq!(value, Some(format!("value {n}").into_bytes()));
            let at_ms = find(view, key.as_bytes()).expire_at_ms();
            assert_eq!(at_ms.is_some(), n.is_multiple_of(20));
        });
    }
}

#[test]
fn small_collections_are_evicted_like_any_key() {
    let mut alone = Alone::new();
    let policy = crate::Policy::AllKeysRandom as u32;
    alone.space.settings.policy.store(policy, Ordering::Relaxed);
    for n in 0..500 {
        alone.unit(|view| push(view, &format!("list:{n}"), 1 + n % 30));
    }
    let limit = alone.space.fixed_bytes() + alone.used_bytes() / 2;
    let maxmemory = &alone.space.settings.maxmemory_bytes;
    maxmemory.store(limit, Ordering::Relaxed);
    while alone.space.over_limit() {
        let evicted = alone.space.evict_one(&mut alone.local, 0, &mut |_, _| ());
        assert_eq!(evicted, crate::Evicted::One);
        alone.used_bytes();
    }
    let left = alone.space.key_count(0);
    assert!((1..500).contains(&left), "{left} are left");
    assert!(alone.local.garbage.is_empty(), "nothing is left to free");
}
