//! An area as bytes: the number of geometries, then each with its name, in the order of names, as TairGis writes them. Must not
//! know other types.

use redline_types::{Area, Limits, gis::Geometry};

use crate::{
    Corrupt,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

impl ModuleCodec for Area {
    const WRITTEN: ModuleType = ModuleType::new("exgistype", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.iter().len() as u64);
        for member in self.iter() {
            fields.string(&member.name);
            fields.string(member.geometry.as_bytes());
        }
    }

    fn decode(fields: &mut FieldReader<'_, '_>, _: u16, _: &Limits) -> Result<Area, Corrupt> {
        let count = fields.count(2)?;
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let name = fields.string()?.into();
            let geometry = Geometry::of_bytes(&fields.string()?);
            members.push((name, geometry.ok_or(Corrupt("a geometry"))?));
        }
        Ok(Area::of(members))
    }
}
