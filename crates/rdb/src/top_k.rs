//! The most frequent items as bytes, in the form of RedisBloom's `TopK-TYPE`: the shape, the counters in one string, the
//! heap in another, and its items. Must not know other types.
//!
//! The heap is a dump of memory: a place has an address, which nobody reads. In that of the first place is the number of
//! the last draw.

use redline_types::{
    Limits, TopK,
    top_k::{CELL_BYTES, Cell, ENTRY_BYTES, Entry},
};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

const WRONG: Corrupt = Corrupt("the heap of the most frequent items");
/// Byte behind each item.
const ITEM_END: u8 = 0;

impl ModuleCodec for TopK {
    const WRITTEN: ModuleType = ModuleType::new("TopK-TYPE", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.k().into());
        fields.unsigned(self.width().into());
        fields.unsigned(self.depth().into());
        fields.double(self.decay());
        let mut bytes = Vec::with_capacity(self.cells().len() * CELL_BYTES);
        for cell in self.cells() {
            bytes.extend(cell.fingerprint.to_le_bytes());
            bytes.extend(cell.count.to_le_bytes());
        }
        fields.string(&bytes);
        bytes.clear();
        for (at, entry) in self.heap().iter().enumerate() {
            let address = if at == 0 { self.draws() } else { 0 };
            bytes.extend(entry.fingerprint.to_le_bytes());
            bytes.extend((entry.item.len() as u32).to_le_bytes());
            bytes.extend(address.to_le_bytes());
            bytes.extend(u64::from(entry.count).to_le_bytes());
        }
        fields.string(&bytes);
        for entry in self.heap() {
            bytes.clear();
            bytes.extend_from_slice(&entry.item);
            bytes.push(ITEM_END);
            fields.string(&bytes);
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<TopK, Corrupt> {
        let mut small = || u32::try_from(fields.unsigned()?).map_err(|_| WRONG);
        let (k, width, depth) = (small()?, small()?, small()?);
        let decay = fields.double()?;
        let bytes = fields.string()?;
        let (cells, rest) = bytes.as_chunks::<CELL_BYTES>();
        let count = u64::from(width) * u64::from(depth);
        ensure(
            rest.is_empty() && cells.len() as u64 == count,
            "the counters of the most frequent items",
        )?;
        let cells = cells.iter().map(|cell| Cell {
            fingerprint: number(cell, 0),
            count: number(cell, 4),
        });
        let cells = cells.collect();
        let bytes = fields.string()?;
        let (places, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        ensure(rest.is_empty() && places.len() == k as usize, WRONG.0)?;
        let draws = places.first().map_or(0, |place| {
            u64::from(number(place, 8)) | u64::from(number(place, 12)) << 32
        });
        let mut heap = Vec::with_capacity(places.len());
        for place in places {
            let item = fields.string()?;
            let item = item.strip_suffix(&[ITEM_END]).ok_or(WRONG)?;
            let count = number(place, 16);
            ensure(item.len() == number(place, 4) as usize, WRONG.0)?;
            ensure(count > 0 || item.is_empty(), WRONG.0)?;
            heap.push(Entry {
                fingerprint: number(place, 0),
                count,
                item: item.into(),
            });
        }
        TopK::restore(width, decay, draws, cells, heap.into()).ok_or(WRONG)
    }
}

/// Returns the number at a place among bytes, which it must be in.
fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..].first_chunk();
    u32::from_le_bytes(*bytes.expect("a number inside"))
}
