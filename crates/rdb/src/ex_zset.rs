//! An exZset as bytes: the number of its members, that of the parts of a score, and of each member, the last one first,
//! its name and the parts of its score. Must not know other types.

use redline_types::{
    DataType, ExZset, Limits,
    zset::several::{Added, PARTS_MAX},
};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

impl ModuleCodec for ExZset {
    const WRITTEN: ModuleType = ModuleType::new("tairzset_", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.len() as u64);
        fields.unsigned(self.parts() as u64);
        for (member, score) in self.range(0..self.len()).rev() {
            fields.string(member);
            score.iter().for_each(|part| fields.double(*part));
        }
    }

    fn decode(fields: &mut FieldReader<'_, '_>, _: u16, _: &Limits) -> Result<ExZset, Corrupt> {
        let count = fields.unsigned()?;
        let parts = usize::try_from(fields.unsigned()?).unwrap_or(usize::MAX);
        ensure(
            count == 0 || (1..=PARTS_MAX).contains(&parts),
            "the parts of a score",
        )?;
        let mut zset = ExZset::default();
        let mut score = Vec::new();
        for _ in 0..count {
            let member = fields.string()?;
            score.clear();
            for _ in 0..parts {
                let part = fields.double()?;
                ensure(!part.is_nan(), "a score that is no number")?;
                score.push(part);
            }
            let added = zset.add(&member, &score);
            let added = added.map_err(|_| Corrupt("too many members of an exZset"))?;
            ensure(added == Added::New, "a member of an exZset twice")?;
        }
        Ok(zset)
    }
}
