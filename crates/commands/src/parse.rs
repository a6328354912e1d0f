//! Arguments as numbers and options, in Redis's manner. Must not know: any one command.

use redline_types::number;

use crate::Error;

/// A 64-bit integer argument.
pub(crate) fn integer(argument: &[u8]) -> Result<i64, Error> {
    number::parse_i64(argument).ok_or(Error::NotInteger)
}

/// A 32-bit integer argument: what Redis reads into an `int`.
pub fn int(argument: &[u8]) -> Result<i32, Error> {
    i32::try_from(integer(argument)?).map_err(|_| {
        Error::line("ERR value is out of range, value must between -2147483648 and 2147483647")
    })
}

/// A count of elements to take.
pub(crate) fn positive(argument: &[u8]) -> Result<usize, Error> {
    let count = integer(argument).map_err(|_| Error::NOT_POSITIVE)?;
    usize::try_from(count).map_err(|_| Error::NOT_POSITIVE)
}

/// A count whose sign says how, or from where: its opposite is a 64-bit integer as well.
pub(crate) fn signed_count(argument: &[u8]) -> Result<i64, Error> {
    let count = integer(argument)?;
    if count == i64::MIN {
        return Err(Error::line(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    Ok(count)
}

/// A number argument.
pub(crate) fn float(argument: &[u8]) -> Result<f64, Error> {
    number::parse_f64(argument).ok_or(Error::NotFloat)
}

/// Does the argument spell this option, in any case?
pub(crate) fn is(argument: &[u8], option: &str) -> bool {
    argument.eq_ignore_ascii_case(option.as_bytes())
}
