//! The packed sequence against a deque, in every form of an entry, and damaged.

use super::*;
use std::collections::VecDeque;

fn samples() -> Vec<Vec<u8>> {
    let mut samples: Vec<Vec<u8>> = vec![b"".to_vec(), b"-0".to_vec(), b"007".to_vec()];
    for shift in 0..64 {
        for near in -2i64..=2 {
            let value = (1i64 << shift).wrapping_add(near);
            samples.push(value.to_string().into_bytes());
            samples.push(value.wrapping_neg().to_string().into_bytes());
        }
    }
    for len in [
        1, 5, 62, 63, 64, 65, 125, 126, 127, 128, 4094, 4095, 4096, 16_376, 16_377, 16_378, 16_379,
        70_000,
    ] {
        samples.push(vec![b'x'; len]);
    }
    samples
}

fn texts(pack: &Pack) -> VecDeque<Vec<u8>> {
    pack.iter().map(Element::to_vec).collect()
}

#[test]
fn every_form_of_an_entry_is_read_from_both_ends() {
    let samples = samples();
    let mut pack = Pack::new();
    for sample in &samples {
        pack.push_back(Element::of(sample));
    }
    assert_eq!(texts(&pack), samples);
    let backwards: Vec<_> = pack.iter().rev().map(Element::to_vec).collect();
    assert!(backwards.iter().eq(samples.iter().rev()));
    for (index, sample) in samples.iter().enumerate() {
        let at = pack.seek(index).unwrap();
        assert_eq!(pack.get(at).unwrap().to_vec(), *sample);
        assert!(pack.find(pack.begin(), Element::of(sample), 0).unwrap() <= at);
        let next = pack.next(at).unwrap();
        assert_eq!(pack.prev(next), Some(at));
        assert_eq!(
            next.offset() - at.offset(),
            Element::of(sample).packed_bytes()
        );
    }
    assert_eq!(pack.seek(samples.len()), None);
    assert_eq!(pack.get(pack.end()), None);
    assert_eq!(pack.next(pack.end()), None);
    assert_eq!(pack.prev(pack.begin()), None);
}

#[test]
fn the_bytes_are_those_of_a_listpack() {
    let mut pack = Pack::new();
    for text in [
        "hello",
        "127",
        "128",
        "-1",
        "32767",
        "8388607",
        "2147483647",
        "4294967296",
    ] {
        pack.push_back(Element::of(text.as_bytes()));
    }
    let mut bytes = Vec::new();
    pack.write_listpack(&mut bytes);
    let mut expected = vec![47, 0, 0, 0, 8, 0];
    expected.extend_from_slice(b"\x85hello\x06");
    expected.extend_from_slice(&[127, 1, 0xc0, 128, 2, 0xdf, 0xff, 2]);
    expected.extend_from_slice(&[0xf1, 0xff, 0x7f, 3, 0xf2, 0xff, 0xff, 0x7f, 4]);
    expected.extend_from_slice(&[0xf3, 0xff, 0xff, 0xff, 0x7f, 5]);
    expected.extend_from_slice(&[0xf4, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0xff]);
    assert_eq!(bytes, expected);
    assert_eq!(bytes.len(), pack.listpack_bytes());
    assert_eq!(texts(&Pack::from_listpack(&bytes).unwrap()), texts(&pack));
}

#[test]
fn a_damaged_listpack_is_refused_or_read_but_never_panics() {
    let mut pack = Pack::new();
    for sample in samples().iter().filter(|sample| sample.len() < 200) {
        pack.push_back(Element::of(sample));
    }
    let mut bytes = Vec::new();
    pack.write_listpack(&mut bytes);
    assert!(Pack::from_listpack(&bytes).is_some());
    for len in 0..bytes.len() {
        assert!(Pack::from_listpack(&bytes[..len]).is_none());
    }
    for at in 0..bytes.len() {
        for flip in [1, 0x40, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            if let Some(pack) = Pack::from_listpack(&damaged) {
                assert_eq!(pack.iter().count(), pack.len());
            }
        }
    }
}

#[test]
fn random_changes_agree_with_a_deque() {
    let mut random = fastrand::Rng::with_seed(7);
    let samples: Vec<_> = samples()
        .into_iter()
        .filter(|sample| sample.len() < 5000)
        .collect();
    for round in 0..200 {
        let mut pack = Pack::new();
        let mut model = VecDeque::new();
        // Small and large payloads, growing and shrinking phases.
        let longest = [8, 70, 5000][round % 3];
        let samples: Vec<_> = samples.iter().filter(|s| s.len() <= longest).collect();
        for step in 0..400 {
            let sample = samples[random.usize(..samples.len())];
            let element = Element::of(sample);
            let index = random.usize(..=model.len());
            let growing = step % 200 < 120;
            match random.u8(..if growing { 8 } else { 14 }) {
                0..=2 => {
                    pack.push_back(element);
                    model.push_back(sample.clone());
                }
                3..=5 => {
                    pack.push_front(element);
                    model.push_front(sample.clone());
                }
                6 => {
                    let at = pack.seek(index).unwrap_or(pack.end());
                    pack.insert(at, element);
                    model.insert(index, sample.clone());
                }
                7 => {
                    if let Some(at) = pack.seek(index) {
                        pack.replace(at, element);
                        model[index] = sample.clone();
                    }
                }
                8 => {
                    assert_eq!(
                        pack.pop(End::Back, |element| element.to_vec()),
                        model.pop_back()
                    );
                    assert_eq!(
                        pack.pop(End::Front, |element| element.to_vec()),
                        model.pop_front()
                    );
                }
                9..=11 => {
                    let removed = pack.remove_many(pack.begin(), 1);
                    assert_eq!(removed, usize::from(model.pop_front().is_some()));
                }
                12 => {
                    let at = pack.seek(index).unwrap_or(pack.end());
                    let count = random.usize(..5).min(model.len() - index);
                    assert_eq!(pack.remove_many(at, count), count);
                    model.drain(index..index + count);
                }
                _ => {
                    let tail = pack.split_off(index);
                    assert_eq!(texts(&tail), model.split_off(index));
                    if random.bool() {
                        model.extend(texts(&tail));
                        pack.append(&tail);
                    }
                }
            }
            assert_eq!(pack.len(), model.len());
        }
        assert_eq!(texts(&pack), model);
        assert_eq!(texts(&pack.clone()), model);
        let packed: usize = model
            .iter()
            .map(|text| Element::of(text).packed_bytes())
            .sum();
        assert_eq!(pack.listpack_bytes(), packed + 7);
        assert!(
            pack.heap_bytes() <= 5 * packed + SHRINK_BYTES_MIN,
            "{} for {packed}",
            pack.heap_bytes()
        );
    }
}

#[test]
fn find_compares_every_nth_element_only() {
    let mut pack = Pack::new();
    for text in ["a", "b", "b", "a", "1", "01"] {
        pack.push_back(Element::of(text.as_bytes()));
    }
    let find = |text: &str, skip| {
        let at = pack.find(pack.begin(), Element::of(text.as_bytes()), skip)?;
        Some(pack.iter_to(at).count())
    };
    assert_eq!(find("b", 0), Some(1));
    assert_eq!(find("b", 1), Some(2));
    assert_eq!(find("a", 2), Some(0));
    assert_eq!(find("01", 0), Some(5));
    assert_eq!(find("01", 1), None);
    assert_eq!(find("", 0), None);
    assert_eq!(find("2", 0), None);
}

#[test]
fn a_queue_does_not_grow() {
    let mut pack = Pack::new();
    for i in 0..100_000 {
        pack.push_back(Element::Int(i));
        if pack.len() > 50 {
            pack.remove(pack.begin());
        }
    }
    assert!(pack.heap_bytes() < 1024);
}

#[test]
fn positions_are_those_of_equal_elements() {
    let mut rng = fastrand::Rng::with_seed(5);
    let long = "x".repeat(5_000);
    let texts = [
        "",
        "a",
        "ab",
        "1",
        "01",
        "128",
        "-7",
        "4000",
        "70000",
        "aaaaaaa",
        "aaaaaaab",
        "aaaaaaac",
        &long[..70],
        &long,
    ];
    let mut pack = Pack::new();
    for _ in 0..300 {
        pack.push_back(Element::of(texts[rng.usize(..texts.len())].as_bytes()));
    }
    for wanted in texts.iter().chain(["b", "2", &long[..71]].iter()) {
        let wanted = Element::of(wanted.as_bytes());
        let equal = pack
            .iter()
            .enumerate()
            .filter(|(_, element)| *element == wanted);
        let expected: Vec<usize> = equal.map(|(index, _)| index).collect();
        let mut found = Vec::new();
        let all = pack.positions(wanted, |index| {
            found.push(index);
            ControlFlow::Continue(())
        });
        assert_eq!((found, all), (expected, ControlFlow::Continue(())));
    }
}
