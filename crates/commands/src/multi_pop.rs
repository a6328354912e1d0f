//! Common arguments of LMPOP and ZMPOP, and of their blocking forms: `numkeys key [key …] SIDE [COUNT count]`.

use std::ops::Range;

use redline_resp::Args;

use crate::{
    Error,
    words::{Words, integer_in},
};

/// Parsed arguments of a pop, for commands with different names for the sides.
pub(crate) struct MultiPop<S> {
    /// Arguments that are the keys; the first of them with elements is popped from.
    pub keys: Range<usize>,
    pub side: S,
    /// Largest number of elements; at least one.
    pub count: usize,
}

impl<S: Copy> MultiPop<S> {
    /// Reads from the number of keys on. `sides`: meanings of the words after the keys.
    pub fn parse(mut words: Words<'_>, sides: &[(&str, S)]) -> Result<MultiPop<S>, Error> {
        const NO_COUNT: Error = Error::line("ERR count should be greater than 0");
        let keys = integer_in(words.read()?, 1.., Error::NO_KEYS)?;
        let first = words.at();
        let keys = words.take_args(keys as usize).ok_or(Error::Syntax)?;
        let side = words.one_of(sides).ok_or(Error::Syntax)?;
        let mut count = None;
        while !words.is_empty() {
            let value = words.value("COUNT").filter(|_| count.is_none());
            count = Some(integer_in(value.ok_or(Error::Syntax)?, 1.., NO_COUNT)?);
        }
        Ok(MultiPop {
            keys: first..first + keys.len(),
            side,
            count: count.unwrap_or(1) as usize,
        })
    }

    /// Returns the keys, of the same arguments.
    pub fn keys_of<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        args.from(self.keys.start).first(self.keys.len()).iter()
    }
}
