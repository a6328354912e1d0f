//! Sets: loose members, integers of one width, or a listpack. Must not know other types.

use redline_types::{DataType, Element, IntBuf, Limits, Set};

use crate::{
    Corrupt, ensure,
    format::{CannotTell, FileVersion, ModuleType, Part},
    listpack::{read_pack, write_element, write_elements_packed},
    object::{Codec, Rest},
    packed,
    primitive::{Reader, Writer, write_len, write_string},
};

const LOOSE: u8 = 2;
const INTSET: u8 = 11;
const LISTPACK: u8 = 20;
const LISTPACK_SINCE: u16 = 11;

impl Codec for Set {
    fn parts(_: FileVersion, rdb_type: u8) -> Option<&'static [Part]> {
        use Part::*;
        Some(match rdb_type {
            LOOSE => &[Each(&[String])],
            INTSET | LISTPACK => &[String],
            _ => return None,
        })
    }

    fn rdb_type(&self, version: FileVersion) -> Result<u8, CannotTell> {
        Ok(match self.encoding() {
            "intset" => INTSET,
            "listpack" if version.redis_forms() >= LISTPACK_SINCE => LISTPACK,
            _ => LOOSE,
        })
    }

    fn encode(&self, out: &mut Writer, rdb_type: u8) {
        match rdb_type {
            INTSET => {
                let integers: Vec<i64> = self.iter().filter_map(Element::to_i64).collect();
                let mut blob = Vec::new();
                packed::write_intset(&mut blob, &integers);
                write_string(out, &blob);
            }
            LISTPACK => write_elements_packed(out, self.iter()),
            _ => {
                write_len(out, self.len() as u64);
                self.iter().for_each(|member| write_element(out, member));
            }
        }
    }

    fn encode_head(&self, out: &mut Writer, _: u8) -> Rest {
        write_len(out, self.len() as u64);
        Rest::default()
    }

    fn encode_piece(&mut self, out: &mut Writer, _: u8, _: i64) -> bool {
        self.give_piece(&mut |member| write_element(out, member))
    }

    fn decode(
        reader: &mut Reader<'_>,
        _: FileVersion,
        rdb_type: u8,
        _: Option<ModuleType>,
        limits: &Limits,
    ) -> Result<Set, Corrupt> {
        match rdb_type {
            INTSET => of_integers(&packed::intset(&reader.string()?)?, limits),
            LISTPACK => {
                let pack = read_pack(reader)?;
                Set::from_pack(pack, limits).ok_or(Corrupt("a member twice"))
            }
            _ => read_loose(reader, limits),
        }
    }
}

fn read_loose(reader: &mut Reader<'_>, limits: &Limits) -> Result<Set, Corrupt> {
    let count = reader.count()?;
    let mut set = Set::for_loose(count, limits);
    for _ in 0..count {
        ensure(set.add(&reader.string()?, limits), "a member twice")?;
    }
    Ok(set)
}

fn of_integers(integers: &[i64], limits: &Limits) -> Result<Set, Corrupt> {
    let (mut set, mut buf) = (Set::for_loose(integers.len(), limits), IntBuf::new());
    for integer in integers {
        let member = Element::Int(*integer);
        ensure(set.add(member.bytes(&mut buf), limits), "a member twice")?;
    }
    Ok(set)
}
