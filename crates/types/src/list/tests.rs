//! Lists against a deque, and the borders between encodings.

use super::*;
use std::collections::VecDeque;

fn limits(list_max_listpack_size: i32) -> Limits {
    Limits {
        list_max_listpack_size,
        ..Limits::default()
    }
}

fn texts(list: &List) -> Vec<Vec<u8>> {
    list.iter().map(Element::to_vec).collect()
}

/// Returns an element out of few, so that searches find some; now and then a large one.
fn any_element(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..400) {
        0 => vec![b'x'; 5000],
        1 => vec![b'y'; random.usize(8180..8200)],
        2 => vec![b'z'; 70_000],
        3..60 => vec![b'w'; random.usize(..300)],
        60..200 => random.i64(-5..5).to_string().into_bytes(),
        _ => vec![b'a' + random.u8(..20)],
    }
}

fn check(list: &List, model: &VecDeque<Vec<u8>>) {
    assert_eq!(list.len(), model.len());
    assert_eq!(list.is_empty(), model.is_empty());
    assert_eq!(*model, texts(list));
    assert!(
        list.iter()
            .rev()
            .map(Element::to_vec)
            .eq(model.iter().rev().cloned())
    );
    let payload: usize = model.iter().map(Vec::len).sum();
    assert!(list.heap_bytes() >= payload);
    let sum = match &list.repr {
        Repr::Packed(pack) => pack.heap_bytes(),
        Repr::Nodes(nodes) => nodes.heap_bytes_counted(),
    };
    assert_eq!(list.heap_bytes(), sum + size_of::<List>());
}

#[test]
fn random_changes_agree_with_a_deque() {
    for (seed, size) in [-2, -1, -5, 1, 2, 4, 30, 128, 0]
        .into_iter()
        .cycle()
        .take(27)
        .enumerate()
    {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let limits = limits(size);
        let mut list = List::new();
        let mut model = VecDeque::new();
        for step in 0..1500 {
            // Phases that grow and phases that shrink, so that conversions go both ways.
            let growing = (step / 250) % 2 == 0;
            change(&mut random, growing, &mut list, &mut model, &limits);
            look(&mut random, &list, &model);
            if step % 50 == 0 {
                check(&list, &model);
                let copy = list.clone();
                assert_eq!(copy.encoding(), list.encoding());
                check(&copy, &model);
            }
        }
        check(&list, &model);
    }
}

fn change(
    random: &mut fastrand::Rng,
    growing: bool,
    list: &mut List,
    model: &mut VecDeque<Vec<u8>>,
    limits: &Limits,
) {
    let element = any_element(random);
    let some = if model.is_empty() || random.u8(..8) == 0 {
        any_element(random)
    } else {
        model[random.usize(..model.len())].clone()
    };
    match random.u32(..if growing { 8 } else { 18 }) {
        0..=2 => {
            list.push_back(&element, limits);
            model.push_back(element);
        }
        3..=4 => {
            list.push_front(&element, limits);
            model.push_front(element);
        }
        5 => {
            let place = if random.bool() {
                Place::Before
            } else {
                Place::After
            };
            let index = model.iter().position(|other| *other == some);
            assert_eq!(list.insert(place, &some, &element, limits), index.is_some());
            if let Some(index) = index {
                model.insert(index + usize::from(place == Place::After), element);
            }
        }
        6 => {
            let all: Vec<Vec<u8>> = (0..random.usize(..40))
                .map(|_| any_element(random))
                .collect();
            let end = if random.bool() { End::Front } else { End::Back };
            list.push(end, all.iter().map(Vec::as_slice), limits);
            match end {
                End::Front => all
                    .into_iter()
                    .for_each(|element| model.push_front(element)),
                End::Back => model.extend(all),
            }
        }
        7 => {
            let index = random.usize(..model.len() + 2);
            assert_eq!(
                list.set(index as i64, &element, limits),
                index < model.len()
            );
            if let Some(slot) = model.get_mut(index) {
                *slot = element;
            }
        }
        8..=14 => {
            let end = if random.bool() { End::Front } else { End::Back };
            let count = random.usize(..6);
            let mut popped = Vec::new();
            list.pop(end, count, limits, |element| popped.push(element.to_vec()));
            let expected: Vec<_> = (0..count)
                .map_while(|_| match end {
                    End::Front => model.pop_front(),
                    End::Back => model.pop_back(),
                })
                .collect();
            assert_eq!(popped, expected);
        }
        15..=16 => remove(random, list, model, &some, limits),
        _ => {
            let start = random.usize(..model.len() / 20 + 2);
            let end = model
                .len()
                .saturating_sub(random.usize(..model.len() / 20 + 2));
            list.trim(start..end, limits);
            model.truncate(end);
            model.drain(..start.min(model.len()));
        }
    }
}

fn remove(
    random: &mut fastrand::Rng,
    list: &mut List,
    model: &mut VecDeque<Vec<u8>>,
    wanted: &[u8],
    limits: &Limits,
) {
    let count = random.i64(-3..=3);
    let mut at: Vec<usize> = (0..model.len()).filter(|&i| model[i] == wanted).collect();
    let max = if count == 0 {
        at.len()
    } else {
        count.unsigned_abs() as usize
    };
    if count < 0 {
        at.drain(..at.len().saturating_sub(max));
    } else {
        at.truncate(max);
    }
    assert_eq!(list.remove(count, wanted, limits), at.len());
    at.into_iter().rev().for_each(|i| drop(model.remove(i)));
}

/// Calls all functions that read, at a random place.
fn look(random: &mut fastrand::Rng, list: &List, model: &VecDeque<Vec<u8>>) {
    let len = model.len();
    let index = random.usize(..len + 2);
    let owned = |element: Option<Element<'_>>| element.map(Element::to_vec);
    assert_eq!(owned(list.get(index as i64)), model.get(index).cloned());
    let from_back = len.checked_sub(index).and_then(|i| model.get(i)).cloned();
    assert_eq!(
        owned(list.get(-(index as i64))),
        if index == 0 {
            model.front().cloned()
        } else {
            from_back
        }
    );
    assert!(
        list.iter_from(index).take(20).map(Element::to_vec).eq(model
            .iter()
            .skip(index)
            .take(20)
            .cloned())
    );
    let index = index.min(len);
    assert!(
        list.iter_to(index)
            .rev()
            .take(20)
            .map(Element::to_vec)
            .eq(model.iter().take(index).rev().take(20).cloned())
    );

    let wanted = any_element(random);
    let (rank, count, max) = (
        random.i64(1..4),
        random.usize(1..4),
        random.usize(..len + 2),
    );
    for rank in [rank, -rank] {
        let mut found = Vec::new();
        list.positions(&wanted, rank, max, |index| {
            found.push(index);
            if found.len() == count {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let order: Vec<usize> = if rank < 0 {
            (0..len).rev().collect()
        } else {
            (0..len).collect()
        };
        let expected: Vec<usize> = order
            .into_iter()
            .take(max)
            .filter(|&i| model[i] == wanted)
            .skip(rank.unsigned_abs() as usize - 1)
            .take(count)
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_list_converts_at_the_size_of_one_node_and_back_at_half() {
    let limits = limits(-2);
    let mut list = List::new();
    // 7 bytes of envelope, and 2 + 62 for each element.
    while list.len() < 128 {
        assert_eq!(list.encoding(), "listpack");
        list.push_back(&[b'x'; 62], &limits);
    }
    assert_eq!(list.encoding(), "quicklist");
    while list.len() > 63 {
        assert_eq!(list.encoding(), "quicklist");
        list.pop(End::Back, 1, &limits, |_| {});
    }
    assert_eq!(list.encoding(), "listpack");
}

#[test]
fn nodes_grow_by_the_limit_of_their_beginning_and_shrink_by_the_one_of_now() {
    let (few, many) = (limits(1), limits(8));
    let mut list = List::new();
    list.push(End::Back, [&b"a"[..], b"b", b"c"].into_iter(), &few);
    assert_eq!(list.encoding(), "quicklist");
    list.push_back(b"d", &many);
    assert_eq!(list.nodes().count(), 4);
    list.pop(End::Back, 3, &few, |_| {});
    assert_eq!((list.nodes().count(), list.encoding()), (1, "quicklist"));
    list.push_back(b"b", &many);
    assert_eq!(list.nodes().count(), 2);
    list.pop(End::Back, 1, &many, |_| {});
    assert_eq!(list.encoding(), "listpack");
}

#[test]
fn moving_within_a_list_converts_by_its_size_afterwards() {
    let limits = limits(2);
    let mut list = List::new();
    list.push(End::Back, [&b"a"[..], b"b", b"c"].into_iter(), &limits);
    list.pop(End::Front, 1, &limits, |_| {});
    assert_eq!((list.len(), list.encoding()), (2, "quicklist"));
    list.rotate(End::Front, End::Back, &limits, |element| {
        assert_eq!(element.to_vec(), b"b");
    });
    assert_eq!(texts(&list), [b"c", b"b"]);
    assert_eq!(list.encoding(), "quicklist");
}

#[test]
fn a_limit_by_count_is_one_of_bytes_too() {
    let limits = limits(4);
    let mut list = List::new();
    for i in 0..5 {
        assert_eq!(
            list.encoding(),
            if i < 5 { "listpack" } else { "quicklist" }
        );
        list.push_back(b"a", &limits);
    }
    assert_eq!(list.encoding(), "quicklist");
    list.trim(0..3, &limits);
    assert_eq!(list.encoding(), "quicklist");
    list.trim(0..2, &limits);
    assert_eq!(list.encoding(), "listpack");
    list.push_back(&[b'x'; 8192], &limits);
    assert_eq!(list.encoding(), "quicklist");
}

#[test]
fn an_index_beyond_any_length_is_no_element() {
    let mut list = List::new();
    list.push_back(b"a", &Limits::default());
    for index in [i64::MIN, -2, 1, i64::MAX] {
        assert_eq!(list.get(index), None);
        assert!(!list.set(index, b"b", &Limits::default()));
    }
    assert_eq!(list.get(-1), Some(Element::Bytes(b"a")));
}

#[test]
fn memory_stays_near_the_payload() {
    let limits = Limits::default();
    for end in [End::Front, End::Back] {
        let mut list = List::new();
        for _ in 0..100_000 {
            list.push(end, std::iter::once(&b"sixteen bytes 16"[..]), &limits);
        }
        let per_element = list.heap_bytes() as f64 / 100_000.0;
        assert!(per_element < 18.0 * 1.02, "{per_element}");
        list.pop(End::Front, 99_990, &limits, |_| {});
        assert!(list.heap_bytes() < 2000, "{}", list.heap_bytes());
    }
}

#[test]
fn a_large_element_set_inside_a_node_splits_it_and_what_fits_is_merged() {
    // Node counts captured from Redis 8.2.3.
    let limits = limits(20);
    for (len, popped, index, nodes) in [
        (40, 0, 25, 4),
        (40, 0, 20, 3),
        (40, 0, 39, 3),
        (40, 10, 20, 3),
        (24, 0, 10, 3),
        (24, 0, 2, 4),
        (24, 3, 18, 3),
        (24, 3, 20, 2),
    ] {
        let mut list = List::new();
        (0..len).for_each(|i: i32| list.push_back(format!("e{i}").as_bytes(), &limits));
        list.pop(End::Front, popped, &limits, |_| {});
        assert!(list.set(index, &[b'z'; 8193], &limits));
        assert_eq!(list.free_effort(), nodes, "{len} - {popped} at {index}");
    }
}
