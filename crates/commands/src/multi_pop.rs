//! The arguments that LMPOP and ZMPOP, and the blocking commands of their kind, have in common: `numkeys key [key …]
//! SIDE [COUNT count]`.

use std::ops::Range;

use redline_resp::Args;

use crate::{
    Error,
    parse::{integer, is},
};

/// The parsed arguments of a pop, for commands whose sides are called differently.
pub(crate) struct MultiPop<S> {
    /// Which arguments are the keys; the first of them that has something is popped from.
    pub keys: Range<usize>,
    pub side: S,
    /// At most so many elements; at least one.
    pub count: usize,
}

impl<S> MultiPop<S> {
    /// `at`: the position of the number of keys. `side`: what the word behind the keys means.
    pub fn parse(
        args: Args<'_>,
        at: usize,
        side: impl FnOnce(&[u8]) -> Result<S, Error>,
    ) -> Result<MultiPop<S>, Error> {
        const NO_COUNT: Error = Error::line("ERR count should be greater than 0");
        let keys = integer(&args[at])
            .ok()
            .filter(|keys| *keys > 0)
            .ok_or(Error::NO_KEYS)?;
        let keys = usize::try_from(keys).map_err(|_| Error::Syntax)?;
        let end_of_keys = keys
            .checked_add(at + 1)
            .filter(|end| *end < args.len())
            .ok_or(Error::Syntax)?;
        let side = side(&args[end_of_keys])?;
        let mut count = None;
        let mut options = args.from(end_of_keys + 1).iter();
        while let Some(option) = options.next() {
            let value = options
                .next()
                .filter(|_| count.is_none() && is(option, "COUNT"));
            let value = integer(value.ok_or(Error::Syntax)?)
                .ok()
                .filter(|count| *count > 0);
            count = Some(value.ok_or(NO_COUNT)?);
        }
        Ok(MultiPop {
            keys: at + 1..end_of_keys,
            side,
            count: count.unwrap_or(1) as usize,
        })
    }

    /// The keys, of the same arguments.
    pub fn keys_of<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        args.from(self.keys.start).first(self.keys.len()).iter()
    }
}
