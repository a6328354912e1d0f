//! A vector set as bytes. Redis has the type in a module, so it has the form of modules' values: after the type's name,
//! parts, each after the number of its kind. Must not know other types.
//!
//! The parts are the shape, then each element with its vector as it is stored and its links, which name other elements
//! by the numbers that these have in the set.

use redline_types::{
    DataType, Limits, VectorSet,
    vector::{
        DIMENSIONS_MAX, Element, LINKS_DEFAULT, LINKS_MAX, LINKS_MIN, Restored, Shape,
        project::Projection,
        quantize::{Quantization, Stored, floats},
    },
};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

const QUANTIZATIONS: [Quantization; 3] =
    [Quantization::None, Quantization::Int8, Quantization::Binary];

const HAS_MATRIX: u64 = 1;
const HAS_ATTRIBUTES: u64 = 2;
/// Form of an element, in the upper byte of the word with its layers.
const FORM: u64 = 1;
const FORM_SHIFT: u32 = 24;
const WRONG_ELEMENT: Corrupt = Corrupt("an element of a vector set");

impl ModuleCodec for VectorSet {
    const WRITTEN: ModuleType = ModuleType::new("vectorset", 0);
    const SINCE: u16 = 12;
    const WHAT: &'static str = "a vector set";

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        let shape = self.shape();
        let quantization = QUANTIZATIONS.iter().position(|q| *q == shape.quantization);
        let quantization = quantization.expect("every quantization has a number") as u64;
        let has_attributes = self.attributed() > 0;
        let mut flags = 0;
        if shape.projection.is_some() {
            flags |= HAS_MATRIX;
        }
        if has_attributes {
            flags |= HAS_ATTRIBUTES;
        }
        fields.unsigned(shape.dimensions as u64);
        fields.unsigned(self.len() as u64);
        fields.unsigned(quantization | (shape.links as u64) << 8);
        fields.unsigned(flags);
        let mut bytes = Vec::new();
        if let Some(projection) = &shape.projection {
            fields.unsigned(projection.inputs() as u64);
            bytes.extend(projection.matrix().flat_map(f32::to_le_bytes));
            fields.string(&bytes);
        }
        for element in self.iter() {
            fields.string(element.name());
            if has_attributes {
                fields.string(element.attributes().unwrap_or_default());
            }
            bytes.clear();
            element.stored().write_bytes(&mut bytes);
            fields.string(&bytes);
            let words = words_of(element);
            fields.unsigned(words.len() as u64);
            words.into_iter().for_each(|word| fields.unsigned(word));
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<VectorSet, Corrupt> {
        let dimensions = read_dimensions(fields)?;
        let count = fields.unsigned()?;
        let form = fields.unsigned()?;
        let quantization = *QUANTIZATIONS
            .get((form & 0xff) as usize)
            .ok_or(Corrupt("a quantization"))?;
        let links = match (form >> 8 & 0xffff) as usize {
            0 => LINKS_DEFAULT,
            links => links,
        };
        ensure(
            (LINKS_MIN..=LINKS_MAX).contains(&links),
            "the links of a vector set",
        )?;
        let flags = fields.unsigned()?;
        let mut projection = None;
        if flags & HAS_MATRIX != 0 {
            let inputs = read_dimensions(fields)?;
            let matrix = floats(&fields.string()?).collect();
            let read = Projection::of_matrix(inputs, dimensions, matrix);
            projection = Some(read.ok_or(Corrupt("a matrix"))?);
        }
        let shape = Shape {
            dimensions,
            quantization,
            links,
            projection,
        };
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(read_element(fields, &shape, flags & HAS_ATTRIBUTES != 0)?);
        }
        VectorSet::restore(shape, elements).ok_or(Corrupt("the links of a vector set"))
    }
}

/// Returns the numbers that describe an element's graph node: its number, its layers, and for each layer its links,
/// with the farthest of them and its distance; and the two floats that belong to its vector.
fn words_of(element: Element<'_>) -> Vec<u64> {
    let mut words = vec![element.id(), element.level() as u64 | FORM << FORM_SHIFT];
    for layer in 0..=element.level() {
        let links = element.links(layer);
        let max = element.links_max(layer).max(links.len());
        words.extend([links.len() as u64, max as u64]);
        let (mut farthest, mut distance) = (0, 0.0f32);
        for (at, other) in (0u64..).zip(links) {
            words.push(other.id());
            let far = element.distance(other);
            if far > distance {
                (farthest, distance) = (at, far);
            }
        }
        words.push(farthest | u64::from(distance.to_bits()) << 32);
    }
    let stored = element.stored();
    words.push(u64::from(stored.norm.to_bits()) | u64::from(stored.range.to_bits()) << 32);
    words
}

fn read_dimensions(fields: &mut FieldReader<'_, '_>) -> Result<usize, Corrupt> {
    let number = usize::try_from(fields.unsigned()?).unwrap_or(usize::MAX);
    ensure(
        (1..=DIMENSIONS_MAX).contains(&number),
        "the dimensions of a vector set",
    )?;
    Ok(number)
}

fn read_element(
    fields: &mut FieldReader<'_, '_>,
    shape: &Shape,
    has_attributes: bool,
) -> Result<Restored, Corrupt> {
    let name = fields.string()?;
    let attributes = match has_attributes {
        true => Some(fields.string()?).filter(|attributes| !attributes.is_empty()),
        false => None,
    };
    let bytes = fields.string()?;
    let count = fields.unsigned()?;
    let mut words = Vec::new();
    for _ in 0..count {
        words.push(fields.unsigned()?);
    }
    let mut words = words.into_iter();
    let mut word = || words.next().ok_or(WRONG_ELEMENT);
    let (id, form) = (word()?, word()?);
    let (level, form) = (form & 0xff, form >> FORM_SHIFT & 0xff);
    ensure(form <= FORM, WRONG_ELEMENT.0)?;
    let mut layers = Vec::new();
    for _ in 0..=level {
        let (count, _max) = (word()?, word()?);
        let mut links = Vec::new();
        for _ in 0..count {
            links.push(word()?);
        }
        layers.push(links);
        if form == FORM {
            word()?;
        }
    }
    let floats = word()?;
    let (norm, range) = (
        f32::from_bits(floats as u32),
        f32::from_bits((floats >> 32) as u32),
    );
    let stored = Stored::from_bytes(&bytes, norm, range, shape.dimensions, shape.quantization);
    Ok(Restored {
        id,
        name: name.into(),
        attributes: attributes.map(Into::into),
        stored: stored.ok_or(Corrupt("a vector"))?,
        layers,
    })
}

#[cfg(test)]
mod tests {
    use redline_types::Value;

    use super::*;
    use crate::{Object, ObjectRef, dump, restore};

    /// Reply of Redis 8.2.3 to DUMP, after `VADD k VALUES 2 1 2 a`, the same with `2 2 a`, `VADD k VALUES 2 1 2 b
    /// SETATTR {}` and `VREM k a`.
    const VECTOR_SET_OF_REDIS: &[u8] = b"\x07\x81\xbd\xe7-\xa2\xbb\x1e\xb4\x00\x02\x02\x02\x01\x02P\x01\x02\x02\x05\x01b\x05\x02{}\x05\x02?\x7f\x02\t\x02\x03\x02\x80\x01\x00\x00\x01\x02\x00\x02 \x02\x00\x02\x00\x02\x10\x02\x00\x02\x81?d\xf9.@\x0f\x1b\xbd\x00\x0c\x00R\xc9\xf8\xde\xef\xa4\xa6J";

    #[test]
    fn a_vector_set_has_the_bytes_of_redis() {
        let object = restore(VECTOR_SET_OF_REDIS, &Limits::default()).expect("a payload");
        let Object::Value(value @ Value::VectorSet(set)) = &object else {
            panic!("not a vector set");
        };
        let element = set.get(b"b").expect("an element");
        assert_eq!(element.attributes(), Some(&b"{}"[..]));
        assert_eq!(element.vector(), [0.992_125_9, 2.0]);
        assert_eq!((element.level(), set.last_member()), (1, 3));
        assert_eq!(dump(ObjectRef::Value(value), true), VECTOR_SET_OF_REDIS);
    }
}
