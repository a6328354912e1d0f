//! A value as bytes: the byte that names its form, and the form itself. Must not know what stands around it.
//!
//! Of each type the one form is written that Redis 8.2.3 writes for that encoding; all forms are read that it reads, but
//! for values of modules that are not there.

use redline_types::{
    DataType, Element, Hash, IntBuf, Limits, List, Pack, Set, Value, Zset,
    list::{NewNode, NodeRef},
    number,
    zset::{AddFlags, Added},
};

use crate::{
    Corrupt, ensure, packed,
    primitive::{Reader, Writer, write_len, write_string},
    stream, vector_set,
};

/// A value to be written.
#[derive(Clone, Copy)]
pub enum ObjectRef<'a> {
    /// A string.
    String(&'a [u8]),
    /// Anything else.
    Value(&'a Value),
}

/// A value that was read.
#[derive(Clone)]
pub enum Object {
    /// A string.
    String(Vec<u8>),
    /// Anything else; not empty, unless it is a stream.
    Value(Value),
}

/// The bytes that name the forms.
mod form {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    /// Scores as text.
    pub const ZSET_TEXT: u8 = 3;
    pub const HASH: u8 = 4;
    /// Scores as doubles.
    pub const ZSET: u8 = 5;
    /// A value of a module: here, a vector set.
    pub const MODULE: u8 = 7;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const ZSET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_OF_ZIPLISTS: u8 = 14;
    pub const STREAM_FIRST: u8 = 15;
    pub const HASH_LISTPACK: u8 = 16;
    pub const ZSET_LISTPACK: u8 = 17;
    pub const LIST_OF_NODES: u8 = 18;
    pub const STREAM_SECOND: u8 = 19;
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM: u8 = 21;
    /// With an expiry for each field, counted from the soonest.
    pub const HASH_TIMED: u8 = 24;
    /// Triples of field, value and expiry.
    pub const HASH_LISTPACK_TIMED: u8 = 25;
}

/// Fields expire before this time, as Redis has it: 46 bits of milliseconds.
const EXPIRY_MS_MAX: i64 = (1 << 46) - 1;
/// Stands for the soonest expiry where no field expires.
const NO_EXPIRY_MS: i64 = 0;

/// The kinds of nodes of a list.
mod node {
    pub const ELEMENT: u64 = 1;
    pub const LISTPACK: u64 = 2;
}

/// The byte in front of a value.
pub fn type_of(object: ObjectRef<'_>) -> u8 {
    let ObjectRef::Value(value) = object else {
        return form::STRING;
    };
    match (value, value.encoding()) {
        (Value::List(_), _) => form::LIST_OF_NODES,
        (Value::Set(_), "intset") => form::SET_INTSET,
        (Value::Set(_), "listpack") => form::SET_LISTPACK,
        (Value::Set(_), _) => form::SET,
        (Value::Hash(_), "listpack") => form::HASH_LISTPACK,
        (Value::Hash(_), "listpackex") => form::HASH_LISTPACK_TIMED,
        (Value::Hash(hash), _) if soonest(hash).is_some() => form::HASH_TIMED,
        (Value::Hash(_), _) => form::HASH,
        (Value::Zset(_), "listpack") => form::ZSET_LISTPACK,
        (Value::Zset(_), _) => form::ZSET,
        (Value::Stream(_), _) => form::STREAM,
        (Value::VectorSet(_), _) => form::MODULE,
    }
}

/// Appends a value, in the form that [`type_of`] names.
pub fn write(out: &mut Writer, object: ObjectRef<'_>) {
    let value = match object {
        ObjectRef::String(text) => return write_string(out, text),
        ObjectRef::Value(value) => value,
    };
    match value {
        Value::List(list) => write_list(out, list),
        Value::Set(set) => write_set(out, set),
        Value::Hash(hash) => write_hash(out, hash),
        Value::Zset(zset) => write_zset(out, zset),
        Value::Stream(stream) => stream::write(out, stream),
        Value::VectorSet(set) => vector_set::write(out, set),
    }
}

fn write_list(out: &mut Writer, list: &List) {
    write_len(out, list.nodes().count() as u64);
    for node in list.nodes() {
        match node {
            NodeRef::Packed(pack) => {
                write_len(out, node::LISTPACK);
                write_pack(out, pack);
            }
            NodeRef::Plain(element) => {
                write_len(out, node::ELEMENT);
                write_string(out, element);
            }
        }
    }
}

fn write_set(out: &mut Writer, set: &Set) {
    match set.encoding() {
        "intset" => {
            let integers: Vec<i64> = set.iter().filter_map(Element::to_i64).collect();
            let mut blob = Vec::new();
            packed::write_intset(&mut blob, &integers);
            write_string(out, &blob);
        }
        "listpack" => write_elements_packed(out, set.iter()),
        _ => {
            write_len(out, set.len() as u64);
            set.iter().for_each(|member| write_element(out, member));
        }
    }
}

fn write_hash(out: &mut Writer, hash: &Hash) {
    let elements = hash.iter().flat_map(|(field, value)| [field, value]);
    match (hash.encoding(), soonest(hash)) {
        ("listpack", _) => write_elements_packed(out, elements),
        ("listpackex", soonest) => {
            out.extend_from_slice(&soonest.unwrap_or(NO_EXPIRY_MS).to_le_bytes());
            let mut triples: Vec<_> = hash.iter_timed().collect();
            // The soonest first, those that stay last.
            triples.sort_by_key(|(_, _, at)| at.unwrap_or(i64::MAX));
            let elements = triples
                .into_iter()
                .flat_map(|(field, value, at)| [field, value, Element::Int(at.unwrap_or(0))]);
            write_elements_packed(out, elements);
        }
        (_, Some(soonest)) => {
            out.extend_from_slice(&soonest.to_le_bytes());
            write_len(out, hash.iter_timed().count() as u64);
            for (field, value, at) in hash.iter_timed() {
                write_len(out, at.map_or(0, |at| (at - soonest) as u64 + 1));
                write_element(out, field);
                write_element(out, value);
            }
        }
        (_, None) => {
            write_len(out, hash.len() as u64);
            elements.for_each(|element| write_element(out, element));
        }
    }
}

/// When the first field of a hash expires.
fn soonest(hash: &Hash) -> Option<i64> {
    hash.iter_timed().filter_map(|(_, _, at)| at).min()
}

fn write_zset(out: &mut Writer, zset: &Zset) {
    if let Some(pack) = zset.pack() {
        return write_pack(out, pack);
    }
    write_len(out, zset.len() as u64);
    // Greatest first: a reader then always inserts at the front.
    for (member, score) in zset.iter().rev() {
        write_element(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    }
}

fn write_element(out: &mut Writer, element: Element<'_>) {
    write_string(out, element.bytes(&mut IntBuf::new()));
}

fn write_pack(out: &mut Writer, pack: &Pack) {
    let mut blob = Vec::with_capacity(pack.listpack_bytes());
    pack.write_listpack(&mut blob);
    write_string(out, &blob);
}

fn write_elements_packed<'a>(out: &mut Writer, elements: impl Iterator<Item = Element<'a>>) {
    write_pack(out, &pack_of(elements));
}

/// Reads a value of a form.
pub fn read(reader: &mut Reader<'_>, kind: u8, limits: &Limits) -> Result<Object, Corrupt> {
    let value: Value = match kind {
        form::STRING => return Ok(Object::String(reader.string()?.into_owned())),
        form::LIST | form::LIST_OF_ZIPLISTS | form::LIST_OF_NODES => {
            read_list(reader, kind, limits)?.into()
        }
        form::LIST_ZIPLIST => {
            let blob = reader.string()?;
            List::from_pack(ziplist_pack(&blob)?, limits).into()
        }
        form::SET => read_set(reader, limits)?.into(),
        form::SET_INTSET => {
            let blob = reader.string()?;
            let integers = packed::intset(&blob)?;
            set_of(&integers, limits)?.into()
        }
        form::SET_LISTPACK => {
            let pack = read_pack(reader)?;
            Set::from_pack(pack, limits)
                .ok_or(Corrupt("a member twice"))?
                .into()
        }
        form::HASH => read_hash(reader, limits)?.into(),
        form::HASH_ZIPMAP => {
            let blob = reader.string()?;
            hash_of(packed::zipmap(&blob)?.into_iter(), limits)?.into()
        }
        form::HASH_ZIPLIST => {
            let blob = reader.string()?;
            hash_of(packed::ziplist(&blob)?.into_iter(), &by_count(limits))?.into()
        }
        form::HASH_LISTPACK => hash_of(read_pack(reader)?.iter(), &by_count(limits))?.into(),
        form::HASH_TIMED => read_timed_hash(reader, kind, limits)?.into(),
        form::HASH_LISTPACK_TIMED => read_timed_hash(reader, kind, &by_count(limits))?.into(),
        form::ZSET | form::ZSET_TEXT => read_zset(reader, kind, limits)?.into(),
        form::ZSET_ZIPLIST => {
            let blob = reader.string()?;
            zset_of(packed::ziplist(&blob)?.into_iter(), &by_count(limits))?.into()
        }
        form::ZSET_LISTPACK => zset_of(read_pack(reader)?.iter(), &by_count(limits))?.into(),
        form::STREAM_FIRST => stream::read(reader, stream::Form::First)?.into(),
        form::STREAM_SECOND => stream::read(reader, stream::Form::Second)?.into(),
        form::STREAM => stream::read(reader, stream::Form::Third)?.into(),
        form::MODULE => vector_set::read(reader)?.into(),
        _ => return Err(Corrupt("an unknown type")),
    };
    ensure(!value.leaves_no_key(), "an empty collection")?;
    Ok(Object::Value(value))
}

/// Returns limits under which a value that was packed where it was written stays so, however long its texts are, if
/// there are not too many.
fn by_count(limits: &Limits) -> Limits {
    Limits {
        hash_max_listpack_value: usize::MAX,
        zset_max_listpack_value: usize::MAX,
        ..limits.clone()
    }
}

fn read_pack(reader: &mut Reader<'_>) -> Result<Pack, Corrupt> {
    Pack::from_listpack(&reader.string()?).ok_or(Corrupt("a listpack"))
}

fn read_list(reader: &mut Reader<'_>, kind: u8, limits: &Limits) -> Result<List, Corrupt> {
    let mut list = List::of_nodes(limits);
    for _ in 0..reader.count()? {
        let what = match kind {
            form::LIST_OF_NODES => reader.number()?,
            _ => 0,
        };
        let blob = reader.string()?;
        let before = list.len();
        match what {
            node::ELEMENT => list.append_node(NewNode::Plain(&blob)),
            node::LISTPACK => {
                let pack = Pack::from_listpack(&blob).ok_or(Corrupt("a listpack"))?;
                list.append_node(NewNode::Packed(pack));
            }
            0 if kind == form::LIST => list.push_back(&blob, limits),
            0 if kind == form::LIST_OF_ZIPLISTS => {
                list.append_node(NewNode::Packed(ziplist_pack(&blob)?));
            }
            _ => return Err(Corrupt("an unknown kind of node")),
        }
        ensure(list.len() > before, "an empty node")?;
    }
    list.convert_by_size(limits);
    Ok(list)
}

fn ziplist_pack(blob: &[u8]) -> Result<Pack, Corrupt> {
    ensure(blob.len() <= Pack::SAFE_BYTES_MAX, "a ziplist")?;
    Ok(pack_of(packed::ziplist(blob)?.into_iter()))
}

fn pack_of<'a>(elements: impl Iterator<Item = Element<'a>>) -> Pack {
    let mut pack = Pack::new();
    elements.for_each(|element| pack.push_back(element.canonical()));
    pack
}

fn read_set(reader: &mut Reader<'_>, limits: &Limits) -> Result<Set, Corrupt> {
    let count = reader.count()?;
    let mut set = Set::for_loose(count, limits);
    for _ in 0..count {
        ensure(set.add(&reader.string()?, limits), "a member twice")?;
    }
    Ok(set)
}

fn set_of(integers: &[i64], limits: &Limits) -> Result<Set, Corrupt> {
    let (mut set, mut buf) = (Set::for_loose(integers.len(), limits), IntBuf::new());
    for integer in integers {
        let member = Element::Int(*integer);
        ensure(set.add(member.bytes(&mut buf), limits), "a member twice")?;
    }
    Ok(set)
}

fn read_hash(reader: &mut Reader<'_>, limits: &Limits) -> Result<Hash, Corrupt> {
    let count = reader.count()?;
    let mut hash = Hash::for_loose(count, limits);
    for _ in 0..count {
        let (field, value) = (reader.string()?, reader.string()?);
        ensure(hash.set(&field, &value, limits), "a field twice")?;
    }
    Ok(hash)
}

fn hash_of<'a>(
    mut elements: impl Iterator<Item = Element<'a>>,
    limits: &Limits,
) -> Result<Hash, Corrupt> {
    let mut hash = Hash::new();
    let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
    while let Some(field) = elements.next() {
        let value = elements.next().ok_or(Corrupt("a field without a value"))?;
        let (field, value) = (field.bytes(&mut field_buf), value.bytes(&mut value_buf));
        ensure(hash.set(field, value, limits), "a field twice")?;
    }
    Ok(hash)
}

/// A hash whose fields may expire.
fn read_timed_hash(reader: &mut Reader<'_>, kind: u8, limits: &Limits) -> Result<Hash, Corrupt> {
    const WRONG: Corrupt = Corrupt("the expiry of a field");
    let soonest_ms = i64::from_le_bytes(reader.array()?);
    let count = match kind {
        form::HASH_TIMED => reader.count()?,
        _ => 0,
    };
    let mut hash = Hash::for_loose(count, limits);
    if kind == form::HASH_LISTPACK_TIMED {
        // Also where no field expires any more.
        hash.prepare_expiry();
    }
    let mut add = |field: &[u8], value: &[u8], at_ms: i64| {
        ensure(hash.set(field, value, limits), "a field twice")?;
        ensure((0..=EXPIRY_MS_MAX).contains(&at_ms), WRONG.0)?;
        if at_ms > 0 {
            hash.set_expire_at_ms(field, Some(at_ms));
        }
        Ok(())
    };
    if kind == form::HASH_TIMED {
        for _ in 0..count {
            let span = i64::try_from(reader.number()?).map_err(|_| WRONG)?;
            let at_ms = match span {
                0 => 0,
                span => soonest_ms.checked_add(span - 1).ok_or(WRONG)?,
            };
            add(&reader.string()?, &reader.string()?, at_ms)?;
        }
        return Ok(hash);
    }
    let pack = read_pack(reader)?;
    let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
    let mut elements = pack.iter();
    while let Some(field) = elements.next() {
        let value = elements.next().ok_or(Corrupt("a field without a value"))?;
        let Some(Element::Int(at_ms)) = elements.next() else {
            return Err(WRONG);
        };
        add(
            field.bytes(&mut field_buf),
            value.bytes(&mut value_buf),
            at_ms,
        )?;
    }
    Ok(hash)
}

fn read_zset(reader: &mut Reader<'_>, kind: u8, limits: &Limits) -> Result<Zset, Corrupt> {
    let mut zset = Zset::new();
    for _ in 0..reader.count()? {
        let member = reader.string()?;
        let score = match kind {
            form::ZSET => reader.double()?,
            _ => reader.double_as_text()?,
        };
        add_scored(&mut zset, &member, score, limits)?;
    }
    Ok(zset)
}

fn zset_of<'a>(
    mut elements: impl Iterator<Item = Element<'a>>,
    limits: &Limits,
) -> Result<Zset, Corrupt> {
    let (mut zset, mut buf) = (Zset::new(), IntBuf::new());
    while let Some(member) = elements.next() {
        let score = match elements.next().ok_or(Corrupt("a member without a score"))? {
            Element::Int(score) => score as f64,
            Element::Bytes(text) => number::parse_f64(text).ok_or(Corrupt("a score"))?,
        };
        add_scored(&mut zset, member.bytes(&mut buf), score, limits)?;
    }
    Ok(zset)
}

fn add_scored(zset: &mut Zset, member: &[u8], score: f64, limits: &Limits) -> Result<(), Corrupt> {
    match zset.add(member, score, AddFlags::default(), limits) {
        Ok(Added::New(_)) => Ok(()),
        Ok(_) => Err(Corrupt("a member twice")),
        Err(_) => Err(Corrupt("a score, or more members than there can be")),
    }
}

#[cfg(test)]
mod tests;
