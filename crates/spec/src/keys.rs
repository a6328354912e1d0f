//! Where the keys of a call are: key specs, and their use on a given argument vector.
//!
//! Positions count from the start of the argument vector, in which the command's name is 0 (a subcommand's is 1).
//! Arguments are reached through a closure, so that any form of argument vector will do.

use crate::{Access, CommandId, Flags, KeyShape, gate, resolve, row};

/// Where some of a command's keys are, and how it uses them.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The position from which [`Find`] counts.
    pub begin: u8,
    /// How the keys follow.
    pub find: Find,
    /// How they are used; with [`Access::VARIABLE_FLAGS`] the widest use.
    pub access: Access,
    /// A remark for people.
    pub note: Option<&'static str>,
    /// How the arguments narrow the use down.
    pub variable: Option<VariableAccess>,
}

/// How the keys of a spec follow its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Every `step`-th argument up to `last`, which counts from the beginning, or if negative from the end of the call.
    Range {
        /// The last key's position.
        last: i8,
        /// From one key to the next.
        step: u8,
    },
    /// The argument at the beginning says how many keys follow it.
    KeyNum,
}

/// A use of the keys that depends on a word among the arguments.
#[derive(Clone, Copy, Debug)]
pub struct VariableAccess {
    /// The word, in upper case.
    pub token: &'static str,
    /// The first position where it is looked for.
    pub from: u8,
    /// The use when the word is there.
    pub present: Access,
    /// The use when it is not.
    pub absent: Access,
}

impl KeySpec {
    /// One key at a position.
    pub(crate) const fn at(position: u8, access: Access) -> KeySpec {
        KeySpec::range(position, 0, 1, access)
    }

    /// Keys from a position to another, `last` as in [`Find::Range`].
    pub(crate) const fn range(begin: u8, last: i8, step: u8, access: Access) -> KeySpec {
        KeySpec {
            begin,
            find: Find::Range { last, step },
            access,
            note: None,
            variable: None,
        }
    }

    /// As many keys as the argument at a position says, right behind it.
    pub(crate) const fn counted_at(position: u8, access: Access) -> KeySpec {
        KeySpec {
            begin: position,
            find: Find::KeyNum,
            access,
            note: None,
            variable: None,
        }
    }

    pub(crate) const fn note(mut self, note: &'static str) -> KeySpec {
        self.note = Some(note);
        self
    }

    pub(crate) const fn variable(mut self, variable: VariableAccess) -> KeySpec {
        self.variable = Some(variable);
        self.access = self.access.with(Access::VARIABLE_FLAGS);
        self
    }

    /// The keys of this spec in a call; `None` if the call cannot be right.
    fn locate<'a>(&self, argc: usize, arg: &impl Fn(usize) -> &'a [u8]) -> Option<KeyRange> {
        let begin = usize::from(self.begin);
        let (first, last, step) = match self.find {
            Find::Range { last, step } => {
                let last = if last >= 0 {
                    begin + usize::from(last.unsigned_abs())
                } else {
                    argc.checked_sub(usize::from(last.unsigned_abs()))?
                };
                (begin, last, usize::from(step))
            }
            Find::KeyNum => {
                if begin >= argc {
                    return None;
                }
                let first = begin + 1;
                (
                    first,
                    first.checked_add(key_count(arg(begin))?)?.checked_sub(1)?,
                    1,
                )
            }
        };
        if first >= argc || last >= argc || last < first {
            return None;
        }
        let access = match &self.variable {
            Some(variable) => variable.decide(argc, arg),
            None => self.access,
        };
        let count = (last - first) / step + 1;
        Some(KeyRange {
            first: u32::try_from(first).ok()?,
            count: u32::try_from(count).ok()?,
            step: u32::try_from(step).ok()?,
            access,
        })
    }
}

impl VariableAccess {
    fn decide<'a>(&self, argc: usize, arg: &impl Fn(usize) -> &'a [u8]) -> Access {
        let found = (usize::from(self.from)..argc)
            .any(|i| arg(i).eq_ignore_ascii_case(self.token.as_bytes()));
        if found { self.present } else { self.absent }
    }
}

/// The number of keys that an argument announces. Larger counts than an argument vector can hold are not told apart.
fn key_count(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > 10 || (text[0] == b'0' && text.len() > 1) {
        return None;
    }
    text.iter().try_fold(0usize, |n, &byte| {
        byte.is_ascii_digit()
            .then(|| n * 10 + usize::from(byte - b'0'))
    })
}

/// The most key specs that a row has; held by a test.
const SPECS_MAX: usize = 2;

/// The keys of one spec in a given call: positions `first`, `first + step`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key's position.
    pub first: u32,
    /// How many keys.
    pub count: u32,
    /// From one key to the next.
    pub step: u32,
    /// How the call uses them.
    pub access: Access,
}

/// One key of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef {
    /// Its position in the argument vector.
    pub position: usize,
    /// How the call uses it.
    pub access: Access,
}

/// The keys of a call, in the order of the row's key specs.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    ranges: [KeyRange; SPECS_MAX],
    len: u8,
    at: u8,
    within: u32,
}

impl Keys {
    /// No keys.
    pub const NONE: Keys = Keys {
        ranges: [KeyRange {
            first: 0,
            count: 0,
            step: 1,
            access: Access::RO,
        }; SPECS_MAX],
        len: 0,
        at: 0,
        within: 0,
    };

    fn push(&mut self, range: KeyRange) {
        self.ranges[usize::from(self.len)] = range;
        self.len += 1;
    }

    /// The keys as ranges, one for each key spec.
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges[..usize::from(self.len)]
    }
}

impl Iterator for Keys {
    type Item = KeyRef;

    fn next(&mut self) -> Option<KeyRef> {
        while self.at < self.len {
            let range = &self.ranges[usize::from(self.at)];
            if self.within < range.count {
                let position = range.first as usize + self.within as usize * range.step as usize;
                self.within += 1;
                return Some(KeyRef {
                    position,
                    access: range.access,
                });
            }
            self.at += 1;
            self.within = 0;
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self
            .ranges()
            .iter()
            .skip(usize::from(self.at))
            .map(|range| range.count as usize);
        let rest = rest.sum::<usize>() - self.within as usize;
        (rest, Some(rest))
    }
}

impl ExactSizeIterator for Keys {}

/// The call cannot be right, so it has no keys that one could name: its handler will answer with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKeys;

/// The keys of a call of `argc` words, the command's name included.
///
/// A call whose arity is right but whose key count is nonsense gives [`InvalidKeys`]; a command without keys none.
pub fn keys<'a>(
    id: CommandId,
    argc: usize,
    arg: impl Fn(usize) -> &'a [u8],
) -> Result<Keys, InvalidKeys> {
    let mut found = Keys::NONE;
    match gate(id).keys {
        KeyShape::None => {}
        KeyShape::One | KeyShape::Range | KeyShape::Specs => {
            for spec in row(id).keys {
                found.push(spec.locate(argc, &arg).ok_or(InvalidKeys)?);
            }
        }
    }
    Ok(found)
}

/// Why COMMAND GETKEYS has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetKeysError {
    /// There is no such command.
    UnknownCommand,
    /// The command never has keys.
    NoKeys,
    /// The call has too few or too many words.
    WrongArity,
    /// The keys cannot be told.
    InvalidArguments,
}

impl GetKeysError {
    /// The error line that clients see.
    pub const fn message(self) -> &'static str {
        match self {
            GetKeysError::UnknownCommand => "ERR Invalid command specified",
            GetKeysError::NoKeys => "ERR The command has no key arguments",
            GetKeysError::WrongArity => "ERR Invalid number of arguments specified for command",
            GetKeysError::InvalidArguments => "ERR Invalid arguments specified for command",
        }
    }
}

/// What COMMAND GETKEYS and COMMAND GETKEYSANDFLAGS answer for a call of `argc` words, name included.
pub fn getkeys<'a>(argc: usize, arg: impl Fn(usize) -> &'a [u8]) -> Result<Keys, GetKeysError> {
    let second = (argc > 1).then(|| arg(1));
    let id = match argc {
        0 => return Err(GetKeysError::UnknownCommand),
        _ => resolve(arg(0), second).map_err(|_| GetKeysError::UnknownCommand)?,
    };
    let gate = gate(id);
    if gate.keys == KeyShape::None {
        return Err(GetKeysError::NoKeys);
    }
    if !gate.arity_allows(argc) {
        return Err(GetKeysError::WrongArity);
    }
    match keys(id, argc, arg) {
        Ok(keys) => Ok(keys),
        Err(InvalidKeys) if gate.flags.has(Flags::NO_MANDATORY_KEYS) => Ok(Keys::NONE),
        Err(InvalidKeys) => Err(GetKeysError::InvalidArguments),
    }
}
