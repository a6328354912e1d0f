//! Lists, node by node. Must not know other types.

use redline_types::{
    DataType, Limits, List, Pack,
    list::{NewNode, NodeRef},
};

use crate::{
    Corrupt, ensure,
    format::{CannotTell, FileVersion, ModuleType, Part},
    listpack::{pack_of, write_element, write_pack},
    object::{Codec, Rest},
    packed,
    primitive::{Reader, Writer, write_len, write_string},
};

/// Form that lists element by element.
const LOOSE: u8 = 1;
const ZIPLIST: u8 = 10;
const OF_ZIPLISTS: u8 = 14;
const OF_NODES: u8 = 18;
const OF_NODES_SINCE: u16 = 10;
const WRONG_ZIPLIST: Corrupt = Corrupt("List ziplist integrity check failed");

/// Kinds of nodes.
mod node {
    pub const ELEMENT: u64 = 1;
    pub const LISTPACK: u64 = 2;
}

impl Codec for List {
    fn parts(_: FileVersion, rdb_type: u8) -> Option<&'static [Part]> {
        use Part::*;
        Some(match rdb_type {
            LOOSE | OF_ZIPLISTS => &[Each(&[String])],
            ZIPLIST => &[String],
            OF_NODES => &[Each(&[Number, String])],
            _ => return None,
        })
    }

    fn rdb_type(&self, version: FileVersion) -> Result<u8, CannotTell> {
        Ok(match version.redis_forms() >= OF_NODES_SINCE {
            true => OF_NODES,
            false => LOOSE,
        })
    }

    fn encode(&self, out: &mut Writer, rdb_type: u8) {
        if rdb_type == LOOSE {
            write_len(out, self.len() as u64);
            return self.iter().for_each(|element| write_element(out, element));
        }
        write_len(out, self.nodes().count() as u64);
        self.nodes().for_each(|node| write_node(out, node));
    }

    fn encode_head(&self, out: &mut Writer, rdb_type: u8) -> Rest {
        let count = match rdb_type {
            LOOSE => self.len(),
            _ => self.nodes().count(),
        };
        write_len(out, count as u64);
        Rest::default()
    }

    fn encode_piece(&mut self, out: &mut Writer, rdb_type: u8, _: i64) -> bool {
        self.give_piece(&mut |node| match (rdb_type, node) {
            (LOOSE, NodeRef::Packed(pack)) => {
                pack.iter().for_each(|element| write_element(out, element));
            }
            (LOOSE, NodeRef::Plain(element)) => write_string(out, element),
            (_, node) => write_node(out, node),
        })
    }

    fn decode(
        reader: &mut Reader<'_>,
        _: FileVersion,
        rdb_type: u8,
        _: Option<ModuleType>,
        limits: &Limits,
    ) -> Result<List, Corrupt> {
        if rdb_type == ZIPLIST {
            return Ok(List::from_pack(ziplist_pack(&reader.string()?)?, limits));
        }
        let mut list = List::of_nodes(limits);
        for _ in 0..reader.count()? {
            let what = match rdb_type {
                OF_NODES => reader.number()?,
                _ => 0,
            };
            let blob = reader.string()?;
            match what {
                node::ELEMENT => {
                    ensure(!blob.is_empty(), "an empty element in a node of its own")?;
                    list.append_node(NewNode::Plain(&blob));
                }
                node::LISTPACK => {
                    let pack = Pack::from_listpack(&blob).ok_or(Corrupt("a listpack"))?;
                    append_packed(&mut list, pack);
                }
                0 if rdb_type == LOOSE => list.push_back(&blob, limits),
                0 if rdb_type == OF_ZIPLISTS => {
                    append_packed(&mut list, ziplist_pack(&blob)?);
                }
                _ => return Err(Corrupt("an unknown kind of node")),
            }
        }
        list.convert_by_size(limits);
        Ok(list)
    }
}

fn write_node(out: &mut Writer, node: NodeRef<'_>) {
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

/// Appends a node; one without elements, which servers before Redis 7.0 could be made to write, is left out, as in Redis.
fn append_packed(list: &mut List, pack: Pack) {
    if !pack.is_empty() {
        list.append_node(NewNode::Packed(pack));
    }
}

fn ziplist_pack(blob: &[u8]) -> Result<Pack, Corrupt> {
    ensure(blob.len() <= Pack::SAFE_BYTES_MAX, WRONG_ZIPLIST.0)?;
    Ok(pack_of(packed::ziplist(blob, WRONG_ZIPLIST)?.into_iter()))
}
