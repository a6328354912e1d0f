//! Random vector sets against a map of vectors.

use std::collections::BTreeMap;

use super::*;

const DIMENSIONS: usize = 5;

#[test]
fn random_calls_leave_what_a_map_holds() {
    for quantization in [Quantization::None, Quantization::Int8, Quantization::Binary] {
        let mut rng = fastrand::Rng::with_seed(quantization as u64);
        let mut set = VectorSet::new(Shape {
            dimensions: DIMENSIONS,
            quantization,
            links: LINKS_MIN,
            projection: None,
        });
        let mut model: BTreeMap<Vec<u8>, (Stored, Option<Vec<u8>>)> = BTreeMap::new();
        for step in 0..3000 {
            let element = format!("e{}", rng.u32(..120)).into_bytes();
            let attributes = rng
                .bool()
                .then(|| format!("{{\"n\":{}}}", rng.u32(..4)).into_bytes());
            match rng.u8(..10) {
                0..6 => {
                    let vector: Vec<f32> = (0..DIMENSIONS).map(|_| rng.f32() - 0.5).collect();
                    let ef = rng.usize(1..30);
                    let is_new = set.add(&element, &vector, attributes.as_deref(), ef, &mut || {
                        rng.u64(..)
                    });
                    let stored = Stored::new(&vector, quantization);
                    let before = model.remove(&element);
                    assert_eq!(is_new, before.is_none());
                    let attributes = attributes.or(before.and_then(|before| before.1));
                    model.insert(element, (stored, attributes));
                }
                6..9 => assert_eq!(set.remove(&element), model.remove(&element).is_some()),
                _ => {
                    let there = model.get_mut(&element);
                    let is_there = there.is_some();
                    if let Some((_, own)) = there {
                        own.clone_from(&attributes);
                    }
                    assert_eq!(
                        set.set_attributes(&element, attributes.as_deref()),
                        is_there
                    );
                }
            }
            if step % 20 == 0 {
                compare(&set, &model, &mut rng);
            }
        }
        compare(&set.clone(), &model, &mut rng);
        for element in model.keys() {
            assert!(set.remove(element));
        }
        assert_eq!((set.len(), set.attributed, set.text_bytes), (0, 0, 0));
    }
}

fn compare(
    set: &VectorSet,
    model: &BTreeMap<Vec<u8>, (Stored, Option<Vec<u8>>)>,
    rng: &mut fastrand::Rng,
) {
    set.graph.check();
    assert_eq!(set.len(), model.len());
    let attributed = model
        .values()
        .filter(|(_, attributes)| attributes.is_some());
    assert_eq!(set.attributed(), attributed.count());
    let mut seen = BTreeMap::new();
    for element in set.iter() {
        let own = (
            element.stored().clone(),
            element.attributes().map(<[u8]>::to_vec),
        );
        assert!(seen.insert(element.name().to_vec(), own).is_none());
        let found = set.get(element.name()).expect("an element that is there");
        assert_eq!(found.id(), element.id());
    }
    assert_eq!(&seen, model);
    if model.is_empty() {
        return;
    }
    let vector: Vec<f32> = (0..DIMENSIONS).map(|_| rng.f32() - 0.5).collect();
    let query = Stored::new(&vector, set.shape().quantization);
    let filter = Filter::compile(b".n > 1").expect("an expression");
    for filter in [None, Some(&filter)] {
        let mut truth: Vec<f32> = model
            .values()
            .filter(|(_, attributes)| {
                let matches =
                    |filter: &Filter| filter.matches(attributes.as_deref().unwrap_or(b""));
                filter.is_none_or(matches)
            })
            .map(|(stored, _)| query.distance(stored, DIMENSIONS))
            .collect();
        truth.sort_by(f32::total_cmp);
        for (exact, ef) in [(false, set.len()), (true, set.len()), (true, 3)] {
            let search = Search {
                ef,
                filter,
                effort: usize::MAX,
                exact,
            };
            let hits = set.search(&vector, search);
            let distances: Vec<f32> = hits.iter().map(|hit| hit.distance).collect();
            assert_eq!(distances, truth[..ef.min(truth.len())]);
            for hit in hits {
                let (stored, attributes) = &model[hit.element];
                assert_eq!(hit.attributes, attributes.as_deref());
                assert_eq!(hit.distance, query.distance(stored, DIMENSIONS));
            }
        }
    }
}

#[test]
fn random_elements_are_all_about_equally_likely() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut set = VectorSet::new(Shape::default());
    assert_eq!(set.random_element(&mut || rng.u64(..)), None);
    for at in 0..10u8 {
        set.add(&[at], &[1.0], None, 10, &mut || rng.u64(..));
    }
    let mut counts = [0; 10];
    for _ in 0..10_000 {
        let element = set.random_element(&mut || rng.u64(..)).unwrap();
        counts[usize::from(element[0])] += 1;
    }
    assert!(
        counts.iter().all(|count| (800..1200).contains(count)),
        "{counts:?}"
    );
    for wanted in 0..12 {
        let mut drawn = Vec::new();
        set.random_distinct_elements(wanted, &mut || rng.u64(..), |element| {
            drawn.push(element[0])
        });
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), wanted.min(10));
    }
}

#[test]
fn empty_attributes_are_attributes_of_a_new_element_only() {
    let mut set = VectorSet::new(Shape::default());
    let add = |set: &mut VectorSet| set.add(b"e", &[1.0], Some(b""), 1, &mut || 1);
    assert!(add(&mut set));
    assert_eq!(set.get(b"e").unwrap().attributes(), Some(&b""[..]));
    assert!(!add(&mut set));
    assert_eq!(set.get(b"e").unwrap().attributes(), None);
}
