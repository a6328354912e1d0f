//! Values written and read back, the forms of older releases, and payloads that are damaged.

use super::*;
use crate::{RestoreError, crc64, restore};
use redline_types::{
    Bloom, CountMin, Cuckoo, Digest, Element, Hash, List, Pack, Set, TDigest, TopK, VectorSet,
    Zset, cuckoo,
    list::NewNode,
    stream::{Claim, NewId, References, StreamId},
    vector::{Shape, project::Projection, quantize::Quantization},
    zset::AddFlags,
};

#[test]
fn a_payload_for_any_server_is_of_the_lowest_version_that_holds_it() {
    let version = |value: &Value| {
        let payload = crate::dump_for_any(ObjectRef::Value(value), true);
        assert!(restore(&payload, &limits()).is_ok());
        payload[payload.len() - 10]
    };
    let mut set = Set::new();
    set.add(b"member", &limits());
    assert_eq!(version(&set.into()), 10);
    assert_eq!(version(&redline_types::Stream::default().into()), 11);
    let string = crate::dump_for_any(ObjectRef::String(b"text"), true);
    assert_eq!(string[string.len() - 10], 10);
}

#[test]
fn payloads_of_valkeys_version_are_read() {
    let taken = |version: u16| {
        let mut payload = dump(ObjectRef::String(b"text"));
        payload.truncate(payload.len() - 10);
        payload.extend_from_slice(&version.to_le_bytes());
        let checksum = crc64::update(0, &payload);
        payload.extend_from_slice(&checksum.to_le_bytes());
        restore(&payload, &limits()).is_ok()
    };
    let versions = [1, 11, 12, 13, 79, 80, 81].map(taken);
    assert_eq!(versions, [true, true, true, false, false, true, false]);
}

fn dump(object: ObjectRef<'_>) -> Vec<u8> {
    crate::dump(object, true)
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    let mut written = Writer::new(true);
    crate::primitive::write_string(&mut written, text);
    out.append(&mut written);
}

pub(crate) fn limits() -> Limits {
    Limits::default()
}

/// Digest that keeps its input: ordered input as it is, other input sorted.
#[derive(Default)]
struct Told {
    ordered: Vec<String>,
    unordered: Vec<String>,
}

impl Told {
    fn into_lines(mut self) -> Vec<String> {
        self.unordered.sort_unstable();
        self.ordered.append(&mut self.unordered);
        self.ordered
    }
}

impl Digest for Told {
    fn mix(&mut self, bytes: &[u8]) {
        self.ordered.push(bytes.escape_ascii().to_string());
    }

    fn combine(&mut self, bytes: &[u8]) {
        self.unordered.push(bytes.escape_ascii().to_string());
    }

    fn mix_f64(&mut self, number: f64) {
        self.ordered.push(format!("{number:?}"));
    }

    fn combine_part(&mut self, part: &Told) {
        let part = [&part.ordered[..], &part.unordered].concat();
        self.unordered.push(part.join(" "));
    }
}

/// Returns the contents of a value, in an order that does not depend on its encoding: everything, for types whose
/// digest omits a part, and the input of the digest for the others.
pub(crate) fn contents(object: &Object) -> Vec<String> {
    let value = match object {
        Object::String(text) => return vec![text.escape_ascii().to_string()],
        Object::Value(value) => value,
    };
    match value {
        Value::Stream(stream) => {
            let entries = stream.range(StreamId::MIN, StreamId::MAX);
            let entries = entries.map(|e| format!("{} {:?}", e.id, e.fields().collect::<Vec<_>>()));
            let counters = format!(
                "{} {} {}",
                stream.last_id(),
                stream.log().max_deleted_id(),
                stream.log().entries_added()
            );
            let groups = stream.groups().map(|(name, group)| {
                let consumers = group.consumers().map(|c| {
                    let pending: Vec<_> = c.pending_from(StreamId::MIN).collect();
                    (c.name(), c.seen_at_ms, c.active_at_ms, pending)
                });
                let pending: Vec<_> = group
                    .pending_from(StreamId::MIN)
                    .map(|(id, p)| (id, p.delivered_at_ms, p.deliveries))
                    .collect();
                format!(
                    "{name:?} {} {:?} {pending:?} {:?}",
                    group.last_id(),
                    group.entries_read(),
                    consumers.collect::<Vec<_>>()
                )
            });
            entries.chain([counters]).chain(groups).collect()
        }
        Value::VectorSet(set) => {
            let shape = format!("{:?}", set.shape());
            let elements = set.iter().map(|element| {
                let layers = (0..=element.level()).map(|layer| {
                    let mut links: Vec<_> = element.links(layer).map(|e| e.name()).collect();
                    links.sort_unstable();
                    links
                });
                let (name, id) = (element.name(), element.id());
                let (stored, attributes) = (element.stored(), element.attributes());
                let layers: Vec<_> = layers.collect();
                format!("{name:?} {id} {stored:?} {attributes:?} {layers:?}")
            });
            let mut lines: Vec<_> = elements.chain([shape]).collect();
            lines.sort_unstable();
            lines
        }
        value => {
            let mut told = Told::default();
            value.digest(&mut told);
            told.into_lines()
        }
    }
}

pub(crate) fn object_ref(object: &Object) -> ObjectRef<'_> {
    match object {
        Object::String(text) => ObjectRef::String(text),
        Object::Value(value) => ObjectRef::Value(value),
    }
}

#[test]
fn each_form_is_of_one_type() {
    let redis = (1..=crate::VERSION).map(FileVersion::Redis);
    for version in redis.chain([FileVersion::Valkey(80)]) {
        for rdb_type in 1..=u8::MAX {
            let types = PARTS.iter().filter_map(|parts| parts(version, rdb_type));
            let types: Vec<_> = types.collect();
            assert!(types.len() <= 1 || rdb_type == MODULE, "{rdb_type} twice");
            let is_module = |parts: &&[Part]| **parts == [Part::Module];
            assert!(
                types
                    .iter()
                    .all(|parts| is_module(parts) == (rdb_type == MODULE))
            );
        }
    }
    let mut names: Vec<_> = module_types().iter().map(ToString::to_string).collect();
    let types = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), types, "two types have one name: {names:?}");
    assert!(module_types().into_iter().all(has_module_type));
}

#[test]
fn a_list_keeps_its_nodes_and_a_hash_the_form_for_expiring_fields() {
    let limits = Limits {
        list_max_listpack_size: 3,
        hash_max_listpack_value: 4,
        zset_max_listpack_value: 4,
        ..limits()
    };
    let there_and_back = |value: Value| {
        let payload = dump(ObjectRef::Value(&value));
        match restore(&payload, &limits) {
            Ok(Object::Value(value)) => value,
            _ => panic!("a value of ours is restored"),
        }
    };
    // Two elements in two nodes, which Redis does not join.
    let mut list = List::of_nodes(&limits);
    for text in [&b"a"[..], b"b"] {
        let mut pack = Pack::new();
        pack.push_back(Element::of(text));
        list.append_node(NewNode::Packed(pack));
    }
    let Value::List(list) = there_and_back(list.into()) else {
        panic!("a list");
    };
    assert_eq!((list.nodes().count(), list.encoding()), (2, "quicklist"));
    // A list that shrank to one node becomes a listpack in the payload.
    let mut list = List::of_nodes(&limits);
    list.push_back(b"a", &limits);
    assert_eq!(list.encoding(), "quicklist");
    assert_eq!(there_and_back(list.into()).encoding(), "listpack");
    // No field expires any more, and the value is longer than the limit for new ones.
    let mut hash = Hash::new();
    hash.prepare_expiry();
    hash.set(b"f", b"longer than four", &Limits::default());
    assert_eq!(there_and_back(hash.into()).encoding(), "listpackex");
    let mut zset = Zset::new();
    let (member, usual) = (b"longer than four", Limits::default());
    assert!(zset.add(member, 1.0, AddFlags::default(), &usual).is_ok());
    assert_eq!(there_and_back(zset.into()).encoding(), "listpack");
}

fn text(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(..6) {
        0 => random.i64(..).to_string().into_bytes(),
        1 => random.i8(..).to_string().into_bytes(),
        2 => (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
        3 => vec![random.u8(..); random.usize(..300)],
        4 => random.i32(..).to_string().into_bytes(),
        _ => (0..random.usize(..8))
            .map(|_| random.u8(b'a'..=b'z'))
            .collect(),
    }
}

/// Returns a value of any type and size.
pub(crate) fn object(random: &mut fastrand::Rng) -> Object {
    let limits = limits();
    let size = [1, 3, 20, 150, 700][random.usize(..5)];
    let value: Value = match random.u8(..10) {
        8 | 9 => sketch(size, random),
        0 => return Object::String(text(random)),
        1 => {
            let mut list = List::new();
            (0..size).for_each(|_| list.push_back(&text(random), &limits));
            list.into()
        }
        2 => {
            let mut set = Set::new();
            for _ in 0..size {
                set.add(&text(random), &limits);
            }
            set.into()
        }
        3 => {
            let mut set = Set::new();
            let bits = random.u32(1..64);
            for _ in 0..size {
                let number = random.i64(..) >> bits;
                set.add(number.to_string().as_bytes(), &limits);
            }
            set.into()
        }
        4 => {
            let mut hash = Hash::new();
            for _ in 0..size {
                hash.set(&text(random), &text(random), &limits);
            }
            hash.into()
        }
        5 => {
            let mut zset = Zset::new();
            for _ in 0..size {
                let score = match random.u8(..4) {
                    0 => f64::INFINITY,
                    1 => f64::from(random.i8(..)),
                    _ => random.f64() * 1e9,
                };
                let _ = zset.add(&text(random), score, AddFlags::default(), &limits);
            }
            zset.into()
        }
        6 => {
            let (inputs, outputs) = (random.usize(1..12), random.usize(1..70));
            let set = VectorSet::new(Shape {
                dimensions: outputs,
                quantization: [Quantization::None, Quantization::Int8, Quantization::Binary]
                    [random.usize(..3)],
                links: random.usize(4..20),
                projection: Projection::new(inputs, outputs).filter(|_| random.bool()),
            });
            vector_set(set, size.min(150), random).into()
        }
        _ => {
            let mut stream = redline_types::Stream::new();
            let mut id = StreamId::new(random.u64(..1 << 40), random.u64(..));
            for _ in 0..size {
                let (name, value, other) = (text(random), text(random), text(random));
                let fields = [&name[..], &value, b"n", &other];
                let fields = if random.bool() {
                    &fields[..2]
                } else {
                    &fields[..]
                };
                stream
                    .add(NewId::Exact(id), 0, fields.iter().copied(), &limits)
                    .unwrap();
                if random.u8(..5) == 0 {
                    stream.delete(id, References::Keep);
                }
                id = StreamId::new(id.ms + random.u64(1..9), random.u64(..9));
            }
            if random.bool() {
                stream.create_group(b"g", id, Some(7).filter(|_| random.bool()));
                stream.edit_group(b"g", |_, group| {
                    let (reader, _) = group.meet_consumer(b"reader", 1_700_000_000_000);
                    group.create_consumer(b"idle", 5);
                    let claim = Claim {
                        now_ms: 9,
                        idle_ms_min: 0,
                        delivered_at_ms: 8,
                        deliveries: Some(3),
                        counts: false,
                        force: true,
                    };
                    group.claim(id, true, reader, &claim);
                    group.claim(StreamId::new(1, 2), true, reader, &claim);
                });
            }
            stream.into()
        }
    };
    Object::Value(value)
}

/// Returns a filter or sketch of any type.
fn sketch(size: usize, random: &mut fastrand::Rng) -> Value {
    match random.u8(..5) {
        0 => {
            let (capacity, growth) = (random.u64(1..50), random.u32(1..4));
            let bloom = Bloom::new(capacity, 0.01, growth, random.u8(..4) == 0);
            let mut bloom = bloom.expect("a small filter");
            for _ in 0..size {
                let added = bloom.add(&text(random));
                assert!(added.is_ok() || bloom.is_fixed());
            }
            bloom.into()
        }
        1 => {
            let (capacity, bucket_size) = (random.u64(2..50), random.u16(1..5));
            let shape = cuckoo::Shape::for_capacity(capacity, bucket_size, 20, random.u16(1..3));
            let mut cuckoo = Cuckoo::new(shape).expect("a small filter");
            let items: Vec<_> = (0..size).map(|_| text(random)).collect();
            for item in &items {
                assert_eq!(cuckoo.add(item, false), cuckoo::Added::Yes);
            }
            items
                .iter()
                .take(size / 3)
                .for_each(|item| assert!(cuckoo.delete(item)));
            cuckoo.into()
        }
        2 => {
            let sketch = CountMin::new(random.u64(1..90), random.u64(1..5));
            let mut sketch = sketch.expect("a small sketch");
            (0..size).for_each(|_| assert!(sketch.add(&text(random), 3) >= 3));
            sketch.into()
        }
        3 => {
            let (k, width) = (random.u32(1..20), random.u32(1..50));
            let mut top = TopK::new(k, width, random.u32(1..5), 0.9).expect("a small one");
            for _ in 0..size {
                // Draws are part of the value: a copy goes on as the first would.
                top.add(&text(random), random.u32(..5));
            }
            top.into()
        }
        _ => {
            let mut digest = TDigest::new(random.u64(1..40)).expect("a small digest");
            for _ in 0..size {
                let value = f64::from(random.i16(..)) / 8.0;
                assert!(digest.extend([value].into_iter()).is_ok());
            }
            digest.into()
        }
    }
}

fn vector_set(mut set: VectorSet, size: usize, random: &mut fastrand::Rng) -> VectorSet {
    for _ in 0..size {
        let components = 0..set.shape().dimensions;
        let vector: Vec<f32> = components.map(|_| random.f32() - 0.5).collect();
        let attributes = text(random);
        // No empty ones: those count as missing once they are written.
        let attributes = Some(&attributes[..]).filter(|text| random.bool() && !text.is_empty());
        let name = text(random);
        set.add(&name, &vector, attributes, 20, &mut || random.u64(..));
        if random.u8(..6) == 0 && set.len() > 1 {
            set.remove(&name);
        }
    }
    set
}

/// Returns the encoding of a value of ours after it is restored under these limits.
fn encoding_restored(payload: &[u8], limits: &Limits) -> &'static str {
    match restore(payload, limits) {
        Ok(Object::Value(value)) => value.encoding(),
        _ => panic!("a value of ours is restored"),
    }
}

/// Ensures the result of Redis 8.2.3 for a dump of a server whose packs took two members.
#[test]
fn more_loose_members_than_an_intset_takes_are_a_table() {
    let no_packs = Limits {
        set_max_listpack_entries: 2,
        ..limits()
    };
    let mut set = Set::new();
    set.add_all([&b"1"[..], b"2", b"3", b"x", b"y"].into_iter(), &no_packs);
    let payload = dump(ObjectRef::Value(&set.into()));
    for (set_max_intset_entries, expected) in [(4, "hashtable"), (5, "listpack")] {
        let limits = Limits {
            set_max_intset_entries,
            ..limits()
        };
        assert_eq!(encoding_restored(&payload, &limits), expected);
    }
}

/// Ensures the same for an intset, where none is to be made.
#[test]
fn integers_were_packed_where_an_intset_takes_none() {
    let mut set = Set::new();
    set.add_all([&b"1"[..], b"2"].into_iter(), &limits());
    let payload = dump(ObjectRef::Value(&set.into()));
    for (set_max_intset_entries, expected) in [(0, "hashtable"), (2, "intset")] {
        let limits = Limits {
            set_max_intset_entries,
            ..limits()
        };
        assert_eq!(encoding_restored(&payload, &limits), expected);
    }
}

#[test]
fn every_value_comes_back() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..120 {
        let before = object(&mut random);
        let payload = dump(object_ref(&before));
        let Ok(after) = restore(&payload, &limits()) else {
            panic!("refused: {:?}", contents(&before));
        };
        assert_eq!(contents(&after), contents(&before));
        if let (Object::Value(before), Object::Value(after)) = (&before, &after) {
            assert_eq!(before.encoding(), after.encoding());
        }
    }
}

/// Restores a body with a valid checksum.
fn restore_body(body: &[u8]) -> Result<Object, RestoreError> {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&crate::VERSION.to_le_bytes());
    payload.extend_from_slice(&crc64::update(0, &payload).to_le_bytes());
    restore(&payload, &limits())
}

#[test]
fn damaged_bodies_are_refused_or_are_values() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..60 {
        let payload = dump(object_ref(&object(&mut random)));
        let body = &payload[..payload.len() - 10];
        for _ in 0..15 {
            let mut damaged = body.to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..damaged.len());
                match random.u8(..4) {
                    0 => damaged[at] ^= 1 << random.u8(..8),
                    1 => damaged[at] = [0, 0xff, 0x80, 0x81, 0xc3, 0x7f][random.usize(..6)],
                    2 => damaged.truncate(at + 1),
                    _ => damaged.insert(at, random.u8(..)),
                }
            }
            if let Ok(value) = restore_body(&damaged) {
                // It is an ordinary value.
                let again = restore(&dump(object_ref(&value)), &limits());
                assert_eq!(
                    contents(&again.unwrap_or_else(|e| panic!("{e:?}"))),
                    contents(&value)
                );
            }
        }
    }
}

#[test]
fn the_footer_is_checked() {
    let payload = dump(ObjectRef::String(b"hello"));
    // Reply of Redis 8.2.3 to DUMP for this value.
    assert_eq!(
        payload,
        b"\x00\x05hello\x0c\x00\xa8\x04\xeb\xb6\x9f\x1e\xbe\x43"
    );
    for at in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[at] ^= 1;
        assert_eq!(
            restore(&damaged, &limits()).err(),
            Some(RestoreError::VersionOrChecksum)
        );
        assert!(restore(&payload[..at], &limits()).is_err());
    }
    let mut newer = payload[..7].to_vec();
    newer.extend_from_slice(&(crate::VERSION + 1).to_le_bytes());
    newer.extend_from_slice(&crc64::update(0, &newer).to_le_bytes());
    assert!(matches!(
        restore(&newer, &limits()),
        Err(RestoreError::VersionOrChecksum)
    ));
}

fn restored(body: &[u8]) -> Vec<String> {
    match restore_body(body) {
        Ok(object) => contents(&object),
        Err(error) => panic!("{error:?}: {body:?}"),
    }
}

/// Ensures that forms of servers before 7.0 are read.
#[test]
fn older_forms_are_read() {
    // A list, a set and a hash element by element; a sorted set with scores as text.
    assert_eq!(restored(b"\x01\x02\x01a\xc0\x05"), ["a", "5"]);
    assert_eq!(restored(b"\x02\x02\x01a\xc0\x05"), ["5", "a"]);
    assert_eq!(restored(b"\x04\x01\x01f\x01v"), ["f v"]);
    assert_eq!(
        restored(b"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff"),
        ["a 1.5", "b inf", "c -inf"]
    );
    // Ziplists: alone as list, hash and sorted set, and in the nodes of a list.
    let ziplist = b"\x10\0\0\0\x0d\0\0\0\x02\0\x00\x01f\x03\xf2\xff";
    let with = |head: &[u8]| [head, &[ziplist.len() as u8], ziplist].concat();
    assert_eq!(restored(&with(b"\x0a")), ["f", "1"]);
    assert_eq!(restored(&with(b"\x0d")), ["f 1"]);
    assert_eq!(restored(&with(b"\x0c")), ["f 1.0"]);
    assert_eq!(restored(&with(b"\x0e\x01")), ["f", "1"]);
    assert_eq!(restored(b"\x09\x0b\x01\x03foo\x03\x00bar\xff"), ["foo bar"]);
    // Hashes in which fields may expire, and none does.
    assert_eq!(restored(b"\x18\0\0\0\0\0\0\0\0\x01\x00\x01f\x01v"), ["f v"]);
}

#[test]
fn a_number_that_a_ziplist_keeps_as_text_is_found_as_a_number() {
    // One element, the text "12", which no server writes so but which may be sent.
    let ziplist = b"\x0f\0\0\0\x0a\0\0\0\x01\0\x00\x0212\xff";
    for head in [&b"\x0a"[..], b"\x0e\x01"] {
        let body = [head, &[ziplist.len() as u8], ziplist].concat();
        let Ok(Object::Value(Value::List(list))) = restore_body(&body) else {
            panic!("{head:?} is not a list");
        };
        let found = list
            .iter()
            .filter(|element| matches!(element, Element::Int(12)));
        assert_eq!(found.count(), 1, "{head:?}");
    }
}

#[test]
fn what_redis_refuses_is_refused() {
    for (body, what) in [
        (&b"\x01\x00"[..], "an empty list"),
        (b"\x02\x00", "an empty set"),
        (b"\x02\x02\x01a\x01a", "a member twice"),
        (b"\x04\x02\x01f\x01v\x01f\x01w", "a field twice"),
        (
            b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f",
            "a score that is no number",
        ),
        (b"\x03\x01\x01a\xfd", "the same as text"),
        (b"\x12\x01\x01", "a node cut off"),
        (b"\x12\x01\x03\x01a", "an unknown kind of node"),
        (b"\x12\x01\x02\x07\x07\0\0\0\0\0\xff", "an empty node"),
        (b"\x06\x00", "a module's value"),
        (b"\xff\x00", "no type at all"),
        (b"\x00\x01ab", "more bytes than the value"),
    ] {
        assert!(
            matches!(restore_body(body), Err(RestoreError::Object(_))),
            "{what}"
        );
    }
}

/// Covers the class of CVE-2026-25243 and related ones: a body with a valid checksum and false contents.
#[test]
fn lies_about_lengths_are_refused_in_every_form() {
    let huge = b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff";
    for kind in 0..=25 {
        assert!(restore_body(&[&[kind][..], huge].concat()).is_err());
        assert!(restore_body(&[&[kind][..], huge, b"\x01a\x01b"].concat()).is_err());
        assert!(restore_body(&[kind, 0xff]).is_err());
        assert!(restore_body(&[kind]).is_err());
    }
    for (body, what) in [
        // Integers: an invalid width, more than there are, fewer, in disorder, twice.
        (
            &b"\x0b\x0a\x01\0\0\0\x02\0\0\0\x01\x02"[..],
            "an intset of bytes",
        ),
        (b"\x0b\x0a\x02\0\0\0\x03\0\0\0\x01\0", "an intset cut off"),
        (b"\x0b\x0a\x02\0\0\0\0\0\0\0\x01\0", "an intset with a tail"),
        (
            b"\x0b\x0a\x08\0\0\0\0\0\0\x20\x01\0",
            "a product beyond 32 bits",
        ),
        (
            b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x02\0\x01\0",
            "an intset in disorder",
        ),
        // Listpacks: total, count, tail, an element beyond the end, no end mark.
        (b"\x14\x09\x0a\0\0\0\x01\0\x01\x01\xff", "its bytes"),
        (b"\x14\x0a\x0a\0\0\0\x02\0\x01\x01\xff\xff", "its count"),
        (
            b"\x14\x09\x09\0\0\0\x01\0\x01\x02\xff",
            "a way back that is too long",
        ),
        (
            b"\x14\x09\x09\0\0\0\x01\0\xbf\x01\xff",
            "an element beyond the end",
        ),
        (
            b"\x14\x0d\x0d\0\0\0\x01\0\xf0\xff\xff\xff\xff\x05\xff",
            "32 bits of length",
        ),
        (b"\x14\x09\x09\0\0\0\x01\0\x01\x01\x00", "no end mark"),
        (
            b"\x14\x0b\x0b\0\0\0\x02\0\x01\x01\x01\x01\xff",
            "a member twice",
        ),
        (
            b"\x10\x09\x09\0\0\0\x01\0\x01\x01\xff",
            "a field without a value",
        ),
        (
            b"\x11\x09\x09\0\0\0\x01\0\x01\x01\xff",
            "a member without a score",
        ),
        (
            b"\x11\x0e\x0e\0\0\0\x02\0\x01\x01\x83nan\x04\xff",
            "a score that is no number",
        ),
        // Compressed strings: longer or shorter than declared, and beyond their beginning.
        (b"\x00\xc3\x02\x05\x00a", "shorter than it says"),
        (b"\x00\xc3\x04\x02\x02abc", "longer than it says"),
        (b"\x00\xc3\x02\x03\x20\xff", "from before its beginning"),
        // Streams: a node without a key, an entry with the id of another, one of zero, too few elements.
        (b"\x0f\x01\x01a\x01b", "a key that is no id"),
        (b"\x15\x00\x05\x00\x00", "entries that are nowhere"),
        (
            b"\x15\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
            "a group that is cut off",
        ),
    ] {
        assert!(
            matches!(restore_body(body), Err(RestoreError::Object(_))),
            "{what}"
        );
    }
    assert!(restore_body(b"\x15\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00").is_ok());
}

/// Returns a node of a stream, one entry of one field, from the elements of its listpack.
fn stream_of(elements: &[&str]) -> Vec<u8> {
    let mut pack = Pack::new();
    elements
        .iter()
        .for_each(|text| pack.push_back(Element::of(text.as_bytes())));
    let mut body = b"\x0f\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01".to_vec();
    let mut blob = Vec::new();
    pack.write_listpack(&mut blob);
    write_string(&mut body, &blob);
    // One entry, the last id 5-9, no groups.
    body.extend_from_slice(b"\x01\x05\x09\x00");
    body
}

#[test]
fn lies_inside_a_stream_are_refused() {
    let right = ["1", "0", "1", "f", "0", "2", "0", "0", "v", "4"];
    assert_eq!(
        restored(&stream_of(&right)),
        ["5-1 [([102], [118])]", "5-9 0-0 1"]
    );
    for (at, lie) in [
        (0, "2"),                    // more entries than there are
        (0, "0"),                    // none
        (0, "x"),                    // no number
        (1, "1"),                    // a deleted one that is not there
        (1, "-1"),                   // fewer than none
        (2, "0"),                    // no names
        (2, "9223372036854775807"),  // more names than there can be
        (2, "-1"),                   // fewer than none
        (4, "1"),                    // no end of the names
        (5, "0"),                    // its own names, which are not there
        (6, "-9223372036854775808"), // an id far away
        (7, "9"),                    // an id above the last
        (9, "5"),                    // a way back that is too long
    ] {
        let mut elements = right;
        elements[at] = lie;
        assert!(
            restore_body(&stream_of(&elements)).is_err(),
            "element {at} as {lie}"
        );
    }
    for len in 0..right.len() {
        assert!(restore_body(&stream_of(&right[..len])).is_err());
    }
}
