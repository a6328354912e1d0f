//! Streams: their entries in listpacks of up to some hundred, their counters, their consumer groups. Must not know other
//! types.
//!
//! A listpack begins with a master entry: the numbers of live and of deleted entries, and the names of the first one's
//! fields. Each entry is its flags, its id less the master's, and its fields; values only, where the names are the
//! master's; and then the number of elements, for reading backwards.

use std::collections::BTreeMap;

use redline_types::{
    DataType, Element, Limits, Pack, Stream, pack,
    stream::{Claim, Contents, Group, NodeView, StreamId},
};

use crate::{
    Corrupt, ensure,
    format::{CannotTell, FileVersion, ModuleType, Part},
    object::{Codec, Rest},
    primitive::{Reader, Writer, write_len, write_string},
};

const WRONG: Corrupt = Corrupt("Stream listpack integrity check failed");

const FIRST: u8 = 15;
const SECOND: u8 = 19;
const THIRD: u8 = 21;
const SECOND_SINCE: u16 = 10;
const THIRD_SINCE: u16 = 11;

/// Stands for an unknown number of entries read.
const UNKNOWN: u64 = u64::MAX;

const DELETED: i64 = 1;
const SAME_NAMES: i64 = 2;

/// The three forms of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// Form without counters.
    First,
    /// Form with the first id, the highest deleted id and the number of entries ever added.
    Second,
    /// Form with the time when a consumer was last active.
    Third,
}

impl Form {
    fn of(rdb_type: u8) -> Form {
        match rdb_type {
            FIRST => Form::First,
            SECOND => Form::Second,
            _ => Form::Third,
        }
    }
}

/// Entries that are pending in a group: id, time and number of deliveries.
const DELIVERIES: Part = Part::Each(&[Part::Bytes(16), Part::Bytes(8), Part::Number]);
/// Consumers of a group: name, time, and the ids of their pending entries.
const CONSUMERS: Part = Part::Each(&[Part::String, Part::Bytes(8), Part::Each(&[Part::Bytes(16)])]);
/// Consumers with the time when they were last active.
const TWICE_TIMED_CONSUMERS: Part = Part::Each(&[
    Part::String,
    Part::Bytes(16),
    Part::Each(&[Part::Bytes(16)]),
]);

/// Returns the parts of a stream with counters and these groups.
const fn with_counters(group: &'static [Part]) -> [Part; 10] {
    use Part::*;
    [
        Each(&[String, String]),
        Number,
        Number,
        Number,
        Number,
        Number,
        Number,
        Number,
        Number,
        Each(group),
    ]
}

impl Codec for Stream {
    fn parts(_: FileVersion, rdb_type: u8) -> Option<&'static [Part]> {
        use Part::*;
        // Nodes, counters, and groups: name, last id, number of entries read, deliveries, consumers.
        Some(match rdb_type {
            FIRST => &[
                Each(&[String, String]),
                Number,
                Number,
                Number,
                Each(&[String, Number, Number, DELIVERIES, CONSUMERS]),
            ],
            SECOND => {
                const { &with_counters(&[String, Number, Number, Number, DELIVERIES, CONSUMERS]) }
            }
            THIRD => {
                const {
                    &with_counters(&[
                        String,
                        Number,
                        Number,
                        Number,
                        DELIVERIES,
                        TWICE_TIMED_CONSUMERS,
                    ])
                }
            }
            _ => return None,
        })
    }

    fn rdb_type(&self, version: FileVersion) -> Result<u8, CannotTell> {
        Ok(match version.redis_forms() {
            ..SECOND_SINCE => FIRST,
            SECOND_SINCE..THIRD_SINCE => SECOND,
            _ => THIRD,
        })
    }

    fn encode(&self, out: &mut Writer, rdb_type: u8) {
        let form = Form::of(rdb_type);
        write_len(out, self.log().node_count() as u64);
        self.log().nodes().for_each(|node| write_node(out, &node));
        write_tail(out, self, form);
    }

    fn encode_head(&self, out: &mut Writer, rdb_type: u8) -> Rest {
        write_len(out, self.log().node_count() as u64);
        // Uncompressed: names are short.
        let mut tail = Writer::new(false);
        write_tail(&mut tail, self, Form::of(rdb_type));
        Rest {
            number: 0,
            tail: tail.into_bytes(),
        }
    }

    fn encode_piece(&mut self, out: &mut Writer, _: u8, _: i64) -> bool {
        self.give_piece(&mut |node| write_node(out, &node))
    }

    fn decode(
        reader: &mut Reader<'_>,
        _: FileVersion,
        rdb_type: u8,
        _: Option<ModuleType>,
        _: &Limits,
    ) -> Result<Stream, Corrupt> {
        let form = Form::of(rdb_type);
        let mut stream = Stream::new();
        for _ in 0..reader.count()? {
            let key = reader.string()?;
            let (ms, seq) = key
                .split_first_chunk::<8>()
                .ok_or(Corrupt("the key of a node"))?;
            let seq = <[u8; 8]>::try_from(seq).map_err(|_| Corrupt("the key of a node"))?;
            let first = StreamId::new(u64::from_be_bytes(*ms), u64::from_be_bytes(seq));
            let pack = Pack::from_listpack(&reader.string()?).ok_or(WRONG)?;
            read_node(&mut stream, first, &pack)?;
        }
        ensure(
            reader.number()? == stream.len() as u64,
            "the number of entries",
        )?;
        let last = read_id(reader)?;
        ensure(last >= stream.last_id(), "the last id")?;
        let (mut max_deleted, mut added) = (StreamId::MIN, stream.len() as u64);
        if form >= Form::Second {
            let _first = read_id(reader)?; // follows from the entries
            max_deleted = read_id(reader)?;
            added = reader.number()?;
            ensure(added >= stream.len() as u64, "the number of entries added")?;
            ensure(max_deleted <= last, "the highest deleted id")?;
        }
        stream.set_counters(last, Some(added), Some(max_deleted));
        for _ in 0..reader.count()? {
            read_group(reader, form, &mut stream)?;
        }
        Ok(stream)
    }
}

fn write_node(out: &mut Writer, node: &NodeView<'_>) {
    let (first, pack) = (node.first, node_pack(node));
    let key = [first.ms.to_be_bytes(), first.seq.to_be_bytes()].concat();
    write_string(out, &key);
    let mut blob = Vec::with_capacity(pack.listpack_bytes());
    pack.write_listpack(&mut blob);
    write_string(out, &blob);
}

/// Appends the counters and the groups.
fn write_tail(out: &mut Writer, stream: &Stream, form: Form) {
    write_len(out, stream.len() as u64);
    write_id(out, stream.last_id());
    if form >= Form::Second {
        write_id(
            out,
            stream.first_entry().map_or(StreamId::MIN, |entry| entry.id),
        );
        write_id(out, stream.log().max_deleted_id());
        write_len(out, stream.log().entries_added());
    }
    write_len(out, stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        write_string(out, name);
        write_group(out, group, form);
    }
}

fn write_group(out: &mut Writer, group: &Group, form: Form) {
    write_id(out, group.last_id());
    if form >= Form::Second {
        write_len(out, group.entries_read().unwrap_or(UNKNOWN));
    }
    write_len(out, group.pending_len() as u64);
    for (id, pending) in group.pending_from(StreamId::MIN) {
        write_raw_id(out, id);
        out.extend_from_slice(&pending.delivered_at_ms.to_le_bytes());
        write_len(out, pending.deliveries);
    }
    write_len(out, group.consumers().len() as u64);
    for consumer in group.consumers() {
        write_string(out, consumer.name());
        out.extend_from_slice(&consumer.seen_at_ms.to_le_bytes());
        if form >= Form::Third {
            out.extend_from_slice(&consumer.active_at_ms.unwrap_or(-1).to_le_bytes());
        }
        write_len(out, consumer.pending_len() as u64);
        consumer
            .pending_from(StreamId::MIN)
            .for_each(|id| write_raw_id(out, id));
    }
}

fn write_raw_id(out: &mut Vec<u8>, id: StreamId) {
    out.extend_from_slice(&id.ms.to_be_bytes());
    out.extend_from_slice(&id.seq.to_be_bytes());
}

fn write_id(out: &mut Vec<u8>, id: StreamId) {
    write_len(out, id.ms);
    write_len(out, id.seq);
}

fn node_pack(node: &NodeView<'_>) -> Pack {
    let (first, mut pack) = (node.first, Pack::new());
    let int = |pack: &mut Pack, value: i64| pack.push_back(Element::Int(value));
    int(&mut pack, node.live() as i64);
    int(&mut pack, node.deleted() as i64);
    int(&mut pack, node.names().count() as i64);
    node.names()
        .for_each(|name| pack.push_back(Element::of(name)));
    int(&mut pack, 0);
    for entry in node.entries() {
        let count = entry.fields().len() as i64;
        let same = entry.fields().map(|(name, _)| name).eq(node.names());
        let names = if same { SAME_NAMES } else { 0 };
        let place = if entry.is_deleted() { DELETED } else { 0 };
        int(&mut pack, names | place);
        int(&mut pack, entry.id.ms.wrapping_sub(first.ms) as i64);
        int(&mut pack, entry.id.seq.wrapping_sub(first.seq) as i64);
        if !same {
            int(&mut pack, count);
        }
        for (name, value) in entry.fields() {
            if !same {
                pack.push_back(Element::of(name));
            }
            pack.push_back(Element::of(value));
        }
        int(&mut pack, if same { count + 3 } else { 2 * count + 4 });
    }
    pack
}

fn read_group(reader: &mut Reader<'_>, form: Form, stream: &mut Stream) -> Result<(), Corrupt> {
    let (name, last) = (reader.string()?, read_id(reader)?);
    let entries_read = match form {
        Form::First => stream.log().added_until(last),
        _ => Some(reader.number()?).filter(|read| *read != UNKNOWN),
    };
    ensure(
        stream.create_group(&name, last, entries_read),
        "a group twice",
    )?;
    let mut deliveries = BTreeMap::new();
    for _ in 0..reader.count()? {
        let id = read_raw_id(reader)?;
        let delivery = (i64::from_le_bytes(reader.array()?), reader.number()?);
        ensure(
            deliveries.insert(id, delivery).is_none(),
            "a delivery twice",
        )?;
    }
    let read = stream.edit_group(&name, |_, group| -> Result<(), Corrupt> {
        for _ in 0..reader.count()? {
            read_consumer(reader, form, group, &mut deliveries)?;
        }
        Ok(())
    });
    read.ok_or(Corrupt("a group"))??;
    ensure(deliveries.is_empty(), "a delivery to nobody")
}

/// Reads a consumer; its pending entries must be among the group's deliveries, each of which belongs to one consumer.
fn read_consumer(
    reader: &mut Reader<'_>,
    form: Form,
    group: &mut Group,
    deliveries: &mut BTreeMap<StreamId, (i64, u64)>,
) -> Result<(), Corrupt> {
    let name = reader.string()?;
    let seen_at_ms = i64::from_le_bytes(reader.array()?);
    let active_at_ms = match form {
        Form::Third => i64::from_le_bytes(reader.array()?),
        _ => seen_at_ms,
    };
    let (consumer, made) = group.meet_consumer(&name, seen_at_ms);
    ensure(made, "Duplicate stream consumer detected")?;
    for _ in 0..reader.count()? {
        let id = read_raw_id(reader)?;
        let delivery = deliveries.remove(&id);
        let (delivered_at_ms, count) = delivery.ok_or(Corrupt("an entry that nobody delivered"))?;
        let claim = Claim {
            now_ms: active_at_ms,
            idle_ms_min: 0,
            delivered_at_ms,
            deliveries: Some(count),
            counts: false,
            force: true,
        };
        group.claim(id, true, consumer, &claim);
    }
    let active_at_ms = Some(active_at_ms).filter(|at| *at >= 0);
    group.set_times(consumer, seen_at_ms, active_at_ms);
    Ok(())
}

fn read_raw_id(reader: &mut Reader<'_>) -> Result<StreamId, Corrupt> {
    let ms = u64::from_be_bytes(reader.array()?);
    Ok(StreamId::new(ms, u64::from_be_bytes(reader.array()?)))
}

fn read_id(reader: &mut Reader<'_>) -> Result<StreamId, Corrupt> {
    Ok(StreamId::new(reader.number()?, reader.number()?))
}

/// Adds a node as it is, deleted entries included: they count when the next entry checks for room there. Each entry
/// must have a higher id than all before it.
fn read_node(stream: &mut Stream, first: StreamId, pack: &Pack) -> Result<(), Corrupt> {
    let mut elements = pack.iter();
    let (living, deleted) = (int(&mut elements)?, int(&mut elements)?);
    let name_count = usize::try_from(int(&mut elements)?).map_err(|_| WRONG)?;
    let names: Vec<Element<'_>> = elements.by_ref().take(name_count).collect();
    ensure(names.len() == name_count && name_count > 0, WRONG.0)?;
    // A node may hold no live entry: a trim leaves such a node until the next one.
    ensure(
        living >= 0 && deleted >= 0 && (living, deleted) != (0, 0),
        WRONG.0,
    )?;
    ensure(int(&mut elements)? == 0, WRONG.0)?;
    let texts: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    stream
        .open_node(first, texts.iter().map(Vec::as_slice))
        .map_err(|_| Corrupt("the id of a node"))?;
    let (mut seen_living, mut seen_deleted) = (0, 0);
    let mut fields: Vec<Vec<u8>> = Vec::new();
    while seen_living + seen_deleted < living.saturating_add(deleted) {
        let flags = int(&mut elements)?;
        let (ms, seq) = (int(&mut elements)?, int(&mut elements)?);
        let id = StreamId::new(
            first.ms.wrapping_add(ms as u64),
            first.seq.wrapping_add(seq as u64),
        );
        let same = flags & SAME_NAMES != 0;
        let count = if same {
            name_count
        } else {
            usize::try_from(int(&mut elements)?).map_err(|_| WRONG)?
        };
        ensure(count > 0, WRONG.0)?;
        fields.clear();
        // Names that the node holds already are not read again for each entry: they may be long, and the entries many.
        for _ in 0..if same { count } else { 2 * count } {
            fields.push(elements.next().ok_or(WRONG)?.to_vec());
        }
        let walk_back = if same { count + 3 } else { 2 * count + 4 };
        ensure(int(&mut elements)? == walk_back as i64, WRONG.0)?;
        let is_deleted = flags & DELETED != 0;
        *if is_deleted {
            &mut seen_deleted
        } else {
            &mut seen_living
        } += 1;
        let contents = match same {
            true => Contents::Values(fields.iter().map(Vec::as_slice)),
            false => Contents::Fields(fields.iter().map(Vec::as_slice)),
        };
        stream
            .append(id, contents, is_deleted)
            .map_err(|_| Corrupt("the id of an entry"))?;
    }
    ensure(
        (seen_living, seen_deleted) == (living, deleted) && elements.next().is_none(),
        WRONG.0,
    )
}

fn int(elements: &mut pack::Iter<'_>) -> Result<i64, Corrupt> {
    match elements.next() {
        Some(Element::Int(value)) => Ok(value),
        _ => Err(WRONG),
    }
}
