//! Sets: loose members, integers of one width, or a listpack. Must not know other types.

use redline_types::{DataType, Element, IntBuf, Limits, Set};

use crate::{
    Corrupt, ensure,
    listpack::{read_pack, write_element, write_elements_packed},
    object::Codec,
    packed,
    primitive::{Reader, Writer, write_len, write_string},
};

const LOOSE: u8 = 2;
const INTSET: u8 = 11;
const LISTPACK: u8 = 20;

impl Codec for Set {
    const RDB_TYPES: &'static [u8] = &[LOOSE, INTSET, LISTPACK];

    fn rdb_type(&self) -> u8 {
        match self.encoding() {
            "intset" => INTSET,
            "listpack" => LISTPACK,
            _ => LOOSE,
        }
    }

    fn encode(&self, out: &mut Writer) {
        match self.encoding() {
            "intset" => {
                let integers: Vec<i64> = self.iter().filter_map(Element::to_i64).collect();
                let mut blob = Vec::new();
                packed::write_intset(&mut blob, &integers);
                write_string(out, &blob);
            }
            "listpack" => write_elements_packed(out, self.iter()),
            _ => {
                write_len(out, self.len() as u64);
                self.iter().for_each(|member| write_element(out, member));
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, rdb_type: u8, limits: &Limits) -> Result<Set, Corrupt> {
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
