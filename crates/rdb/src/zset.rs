//! Sorted sets: members and scores, loose or packed. Must not know other types.

use redline_types::{
    DataType, Element, IntBuf, Limits, Zset, number,
    zset::{AddFlags, Added},
};

use crate::{
    Corrupt,
    format::{CannotTell, FileVersion, ModuleType, Part},
    listpack::{read_pack, write_element, write_pack},
    object::{Codec, Rest},
    packed,
    primitive::{Reader, Writer, write_len},
};

/// Form with scores as text.
const LOOSE_TEXT: u8 = 3;
/// Form with scores as doubles.
const LOOSE: u8 = 5;
const ZIPLIST: u8 = 12;
const LISTPACK: u8 = 17;
const LISTPACK_SINCE: u16 = 10;
const WRONG_ZIPLIST: Corrupt = Corrupt("Zset ziplist integrity check failed");

impl Codec for Zset {
    fn parts(_: FileVersion, rdb_type: u8) -> Option<&'static [Part]> {
        use Part::*;
        Some(match rdb_type {
            LOOSE_TEXT => &[Each(&[String, DoubleText])],
            LOOSE => &[Each(&[String, Bytes(8)])],
            ZIPLIST | LISTPACK => &[String],
            _ => return None,
        })
    }

    fn rdb_type(&self, version: FileVersion) -> Result<u8, CannotTell> {
        Ok(match self.pack() {
            Some(_) if version.redis_forms() >= LISTPACK_SINCE => LISTPACK,
            _ => LOOSE,
        })
    }

    fn encode(&self, out: &mut Writer, rdb_type: u8) {
        if rdb_type == LISTPACK
            && let Some(pack) = self.pack()
        {
            return write_pack(out, pack);
        }
        write_len(out, self.len() as u64);
        // Largest first: a reader then always inserts at the front.
        for (member, score) in self.iter().rev() {
            write_element(out, member);
            out.extend_from_slice(&score.to_le_bytes());
        }
    }

    fn encode_head(&self, out: &mut Writer, _: u8) -> Rest {
        write_len(out, self.len() as u64);
        Rest::default()
    }

    fn encode_piece(&mut self, out: &mut Writer, _: u8, _: i64) -> bool {
        self.give_piece(&mut |member, score| {
            write_element(out, member);
            out.extend_from_slice(&score.to_le_bytes());
        })
    }

    fn decode(
        reader: &mut Reader<'_>,
        _: FileVersion,
        rdb_type: u8,
        _: Option<ModuleType>,
        limits: &Limits,
    ) -> Result<Zset, Corrupt> {
        match rdb_type {
            ZIPLIST => {
                let blob = reader.string()?;
                let elements = packed::ziplist(&blob, WRONG_ZIPLIST)?;
                of_elements(elements.into_iter(), &by_count(limits))
            }
            LISTPACK => of_elements(read_pack(reader)?.iter(), &by_count(limits)),
            _ => read_loose(reader, rdb_type, limits),
        }
    }
}

/// Returns limits under which a set that was packed by its writer stays packed, whatever the length of its members,
/// unless it has too many.
fn by_count(limits: &Limits) -> Limits {
    Limits {
        zset_max_listpack_value: usize::MAX,
        ..limits.clone()
    }
}

fn read_loose(reader: &mut Reader<'_>, rdb_type: u8, limits: &Limits) -> Result<Zset, Corrupt> {
    let mut zset = Zset::new();
    for _ in 0..reader.count()? {
        let member = reader.string()?;
        let score = match rdb_type {
            LOOSE => reader.double()?,
            _ => reader.double_as_text()?,
        };
        add_scored(&mut zset, &member, score, limits)?;
    }
    Ok(zset)
}

fn of_elements<'a>(
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
