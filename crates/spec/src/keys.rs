//! Positions of the keys of a call: key specs, and their use on a given argument vector.
//!
//! Positions count from the start of the argument vector, in which the command's name is 0 (a subcommand's is 1).
//! Arguments are read through a closure, so any form of argument vector can be used.

use crate::{Access, CommandId, Flags, gate, resolve, row};

/// Positions of some of a command's keys, and their use.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Position from which [`Find`] counts.
    pub begin: u8,
    /// Layout of the keys.
    pub find: Find,
    /// Use of the keys; with [`Access::VARIABLE_FLAGS`] the widest use.
    pub access: Access,
    /// Note for readers of the documentation.
    pub note: Option<&'static str>,
    /// Narrower use that depends on the arguments.
    pub variable: Option<VariableAccess>,
}

/// Options that are skipped, with their arguments, by the search for a word: their names in upper case, and the number
/// of arguments of each.
pub type SkippedOptions = &'static [(&'static str, u8)];

/// Layout of the keys of a spec from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Every `step`-th argument from the beginning on.
    Range {
        /// Last key: 0 is the beginning itself, -1 the last argument of the call.
        last: i8,
        /// Distance of one key to the next.
        step: u8,
    },
    /// The argument at the beginning is the number of keys after it.
    KeyNum,
    /// The argument at the beginning is the number of pairs after it, each of a key and another word.
    PairNum,
    /// No argument is such a key: they are known only during the run (SORT … BY). COMMAND INFO prints `unknown`.
    Unknown,
    /// The argument after the last `token` from the beginning on. COMMAND INFO prints `unknown`.
    Behind {
        /// Word, in upper case.
        token: &'static str,
        /// Other options.
        options: SkippedOptions,
    },
    /// The one argument after a word (`STORE`), none without the word. COMMAND INFO tells clients to search for the first
    /// from the beginning on; here it is the last that is not an option's argument, which is the one that the handler uses.
    OneBehind {
        /// Word, in upper case.
        keyword: &'static str,
        /// Other options.
        options: SkippedOptions,
    },
    /// The first half of the arguments after a word (`STREAMS`). COMMAND INFO tells clients to search for it from the
    /// beginning on; here it is found by reading the options from the first argument on, as the handler does.
    FirstHalf {
        /// Word, in upper case.
        keyword: &'static str,
        /// Options before it.
        options: SkippedOptions,
    },
    /// The argument at the beginning, unless keys stand behind a word (`KEYS`): then it is none, and has to be empty. COMMAND
    /// INFO tells clients of one key in any case.
    OneUnless {
        /// Word, in upper case.
        keyword: &'static str,
        /// Position from which the word is searched for.
        from: u8,
        /// Other options.
        options: SkippedOptions,
    },
    /// All arguments after a word (`KEYS`), none without the word. COMMAND INFO tells clients to search for it from the last
    /// argument but one backwards; here it is found by reading the options from the beginning on, as the handler does.
    RestBehind {
        /// Word, in upper case.
        keyword: &'static str,
        /// Other options.
        options: SkippedOptions,
    },
}

/// Use of the keys that depends on the words among the arguments.
#[derive(Clone, Copy, Debug)]
pub struct VariableAccess {
    /// Condition.
    pub when: When,
    /// Use if the condition holds.
    pub present: Access,
    /// Use if it does not hold.
    pub absent: Access,
}

/// Condition that decides about a [`VariableAccess`].
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// One of several words is among the arguments from a position on.
    AnyWord {
        /// Words, in upper case.
        tokens: &'static [&'static str],
        /// First position that is searched.
        from: u8,
    },
    /// The arguments from a position on are not a sequence of these operations alone.
    Beyond {
        /// Name of each operation in upper case, and the number of words after it.
        operations: &'static [(&'static str, u8)],
        /// Position of the first operation.
        from: u8,
    },
}

impl KeySpec {
    const fn new(begin: u8, find: Find, access: Access) -> KeySpec {
        KeySpec {
            begin,
            find,
            access,
            note: None,
            variable: None,
        }
    }

    /// Returns the spec of one key at a position.
    pub(crate) const fn at(position: u8, access: Access) -> KeySpec {
        KeySpec::range(position, 0, 1, access)
    }

    /// Returns the spec of keys from a position on, `last` as in [`Find::Range`].
    pub(crate) const fn range(begin: u8, last: i8, step: u8, access: Access) -> KeySpec {
        KeySpec::new(begin, Find::Range { last, step }, access)
    }

    /// Returns the spec of keys whose number is the argument at a position, directly after it.
    pub(crate) const fn counted_at(position: u8, access: Access) -> KeySpec {
        KeySpec::new(position, Find::KeyNum, access)
    }

    /// Returns the spec of keys that no argument names.
    pub(crate) const fn unknown(access: Access) -> KeySpec {
        KeySpec::new(0, Find::Unknown, access)
    }

    /// Returns the spec of one key after a word, searched for from a position on: see [`Find::Behind`].
    pub(crate) const fn behind(
        begin: u8,
        token: &'static str,
        options: SkippedOptions,
        access: Access,
    ) -> KeySpec {
        KeySpec::new(begin, Find::Behind { token, options }, access)
    }

    /// Returns the spec of one key after a word, which is searched for from a position on and optional: see [`Find::OneBehind`].
    pub(crate) const fn one_behind(
        begin: u8,
        keyword: &'static str,
        options: SkippedOptions,
        access: Access,
    ) -> KeySpec {
        KeySpec::new(begin, Find::OneBehind { keyword, options }, access)
    }

    /// Returns the spec of as many keys as there are other arguments after a word: see [`Find::FirstHalf`].
    pub(crate) const fn first_half(
        begin: u8,
        keyword: &'static str,
        options: SkippedOptions,
        access: Access,
    ) -> KeySpec {
        KeySpec::new(begin, Find::FirstHalf { keyword, options }, access)
    }

    /// Returns the spec of one key at a position, or of none if keys stand behind a word: see [`Find::OneUnless`].
    pub(crate) const fn one_unless(
        position: u8,
        keyword: &'static str,
        from: u8,
        options: SkippedOptions,
        access: Access,
    ) -> KeySpec {
        let find = Find::OneUnless {
            keyword,
            from,
            options,
        };
        KeySpec::new(position, find, access)
    }

    /// Returns the spec of all arguments after a word, which is searched for from a position on: see [`Find::RestBehind`].
    pub(crate) const fn rest_behind(
        begin: u8,
        keyword: &'static str,
        options: SkippedOptions,
        access: Access,
    ) -> KeySpec {
        KeySpec::new(begin, Find::RestBehind { keyword, options }, access)
    }

    /// Returns the spec of pairs of a key and another word, whose number is the argument at a position.
    pub(crate) const fn pairs_counted_at(position: u8, access: Access) -> KeySpec {
        KeySpec::new(position, Find::PairNum, access)
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

    /// Returns true if a valid call may have no key of this spec.
    const fn may_find_none(&self) -> bool {
        matches!(
            self.find,
            Find::Unknown
                | Find::Behind { .. }
                | Find::OneBehind { .. }
                | Find::OneUnless { .. }
                | Find::RestBehind { .. }
        )
    }

    /// Returns true if it finds keys. Channels of shards have specs only so that clients route them.
    fn is_of_keys(&self) -> bool {
        !self.access.has(Access::NOT_KEY)
    }

    /// Returns the keys of this spec in a call; `None` if the call cannot be valid.
    fn locate<'a>(&self, argc: usize, arg: &impl Fn(usize) -> &'a [u8]) -> Option<KeyRange> {
        let begin = usize::from(self.begin);
        let (first, step, count) = match self.find {
            Find::Unknown => (begin, 1, 0),
            Find::Behind {
                token: word,
                options,
            }
            | Find::OneBehind {
                keyword: word,
                options,
            } => match behind(begin, word, options, argc, arg) {
                Some(position) => (position, 1, 1),
                None => (begin, 1, 0),
            },
            Find::Range { last, step } => {
                let last = if last >= 0 {
                    begin + usize::from(last.unsigned_abs())
                } else {
                    argc.checked_sub(usize::from(last.unsigned_abs()))?
                };
                let step = usize::from(step);
                (begin, step, last.checked_sub(begin)? / step + 1)
            }
            Find::KeyNum if begin < argc => (begin + 1, 1, key_count(arg(begin))?),
            Find::PairNum if begin < argc => (begin + 1, 2, key_count(arg(begin))?),
            Find::KeyNum | Find::PairNum => return None,
            Find::FirstHalf { keyword, options } => {
                let first = behind_keyword(1, keyword, options, argc, arg)?;
                let rest = argc - first;
                if rest == 0 || !rest.is_multiple_of(2) {
                    return None;
                }
                (first, 1, rest / 2)
            }
            Find::OneUnless {
                keyword,
                from,
                options,
            } => {
                let behind = behind_keyword(usize::from(from), keyword, options, argc, arg);
                let replaced = behind.is_some_and(|first| first < argc);
                if replaced && !arg(begin).is_empty() {
                    return None;
                }
                (begin, 1, usize::from(!replaced))
            }
            Find::RestBehind { keyword, options } => {
                match behind_keyword(begin, keyword, options, argc, arg) {
                    Some(first) => (first, 1, argc - first),
                    None => (begin, 1, 0),
                }
            }
        };
        let end = step.checked_mul(count)?.checked_add(first)?;
        if count > 0 && end - step >= argc {
            return None;
        }
        let access = match &self.variable {
            Some(variable) => variable.decide(argc, arg),
            None => self.access.without(Access::INCOMPLETE),
        };
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
        let is = |i: usize, token: &str| arg(i).eq_ignore_ascii_case(token.as_bytes());
        let found = match self.when {
            When::AnyWord { tokens, from } => {
                (usize::from(from)..argc).any(|i| tokens.iter().any(|token| is(i, token)))
            }
            When::Beyond { operations, from } => {
                let mut at = usize::from(from);
                while at < argc
                    && let Some((_, words)) = operations
                        .iter()
                        .find(|(name, words)| is(at, name) && argc - at > usize::from(*words))
                {
                    at += 1 + usize::from(*words);
                }
                at < argc
            }
        };
        if found { self.present } else { self.absent }
    }
}

/// Returns the position after the last `token`, if an argument is there.
fn behind<'a>(
    begin: usize,
    token: &str,
    options: &[(&str, u8)],
    argc: usize,
    arg: &impl Fn(usize) -> &'a [u8],
) -> Option<usize> {
    let (mut at, mut found) = (begin, None);
    while at < argc {
        let word = arg(at);
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is(token) {
            found = (at + 1 < argc).then_some(at + 1).or(found);
            at += 1;
        } else if let Some((_, takes)) = options.iter().find(|(name, _)| is(name)) {
            at += usize::from(*takes);
        }
        at += 1;
    }
    found
}

/// Returns the position after the first `keyword` that is not an option's argument.
fn behind_keyword<'a>(
    begin: usize,
    keyword: &str,
    options: &[(&str, u8)],
    argc: usize,
    arg: &impl Fn(usize) -> &'a [u8],
) -> Option<usize> {
    let mut at = begin;
    while at < argc {
        let is = |name: &str| arg(at).eq_ignore_ascii_case(name.as_bytes());
        if is(keyword) {
            return Some(at + 1);
        }
        let option = options.iter().find(|(name, _)| is(name));
        at += 1 + option.map_or(0, |(_, takes)| usize::from(*takes));
    }
    None
}

/// Parses a number of keys, as strictly as the handlers do. A number of more than ten digits is more than an argument
/// vector can hold.
fn key_count(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > 10 || (text[0] == b'0' && text.len() > 1) {
        return None;
    }
    text.iter().try_fold(0usize, |n, &byte| {
        byte.is_ascii_digit()
            .then(|| n * 10 + usize::from(byte - b'0'))
    })
}

/// Largest number of key specs in a row.
pub(crate) const SPECS_MAX: usize = 3;

/// Keys of one spec in a given call: positions `first`, `first + step`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Position of the first key.
    pub first: u32,
    /// Number of keys.
    pub count: u32,
    /// Distance of one key to the next.
    pub step: u32,
    /// Use of the keys by the call.
    pub access: Access,
}

/// Key of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef {
    /// Position in the argument vector.
    pub position: usize,
    /// Use of the key by the call.
    pub access: Access,
}

/// Keys of a call, in the order of the row's key specs.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    ranges: [KeyRange; SPECS_MAX],
    len: u8,
    at: u8,
    within: u32,
}

impl Keys {
    /// List without keys.
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

    /// Returns the keys as ranges, one for each key spec.
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

/// Error for a call that cannot be valid, so that it has no definite keys: its handler will reply with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKeys;

/// Returns the keys of a call of `argc` words, the command's name included.
///
/// A call that cannot be valid because its keys are cut short, or their number is invalid, gives [`InvalidKeys`].
pub fn keys<'a>(
    id: CommandId,
    argc: usize,
    arg: impl Fn(usize) -> &'a [u8],
) -> Result<Keys, InvalidKeys> {
    locate_all(id, argc, &arg, KeySpec::is_of_keys)
}

/// Returns the words of a call of `argc` words that decide its slot in a cluster: its keys, and the channels of shards.
/// Errors are those of [`keys`].
pub fn routed_keys<'a>(
    id: CommandId,
    argc: usize,
    arg: impl Fn(usize) -> &'a [u8],
) -> Result<Keys, InvalidKeys> {
    locate_all(id, argc, &arg, |_| true)
}

fn locate_all<'a>(
    id: CommandId,
    argc: usize,
    arg: &impl Fn(usize) -> &'a [u8],
    is_wanted: fn(&KeySpec) -> bool,
) -> Result<Keys, InvalidKeys> {
    let mut found = Keys::NONE;
    for spec in row(id).keys.iter().filter(|spec| is_wanted(spec)) {
        let range = spec.locate(argc, arg).ok_or(InvalidKeys)?;
        if range.count > 0 || !spec.may_find_none() {
            found.push(range);
        }
    }
    Ok(found)
}

/// Returns the keys that a call of `argc` words can access, valid or not: where one key spec finds none, the others still count.
///
/// `PFMERGE a` is valid though no source follows the destination, and a handler may access its first key before it
/// finds the rest invalid. A unit locks these keys.
pub fn reachable_keys<'a>(id: CommandId, argc: usize, arg: impl Fn(usize) -> &'a [u8]) -> Keys {
    let mut found = Keys::NONE;
    for range in row(id)
        .keys
        .iter()
        .filter(|spec| spec.is_of_keys())
        .filter_map(|spec| spec.locate(argc, &arg))
    {
        found.push(range);
    }
    found
}

/// Reason why COMMAND GETKEYS fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetKeysError {
    /// There is no such command.
    UnknownCommand,
    /// The command has no keys.
    NoKeys,
    /// The call has too few or too many words.
    WrongArity,
    /// The keys cannot be determined.
    InvalidArguments,
}

impl GetKeysError {
    /// Returns the error line for clients.
    pub const fn message(self) -> &'static str {
        match self {
            GetKeysError::UnknownCommand => "ERR Invalid command specified",
            GetKeysError::NoKeys => "ERR The command has no key arguments",
            GetKeysError::WrongArity => "ERR Invalid number of arguments specified for command",
            GetKeysError::InvalidArguments => "ERR Invalid arguments specified for command",
        }
    }
}

/// Returns the keys of the reply to COMMAND GETKEYS and COMMAND GETKEYSANDFLAGS for a call of `argc` words, name included.
pub fn getkeys<'a>(argc: usize, arg: impl Fn(usize) -> &'a [u8]) -> Result<Keys, GetKeysError> {
    let second = (argc > 1).then(|| arg(1));
    let id = match argc {
        0 => return Err(GetKeysError::UnknownCommand),
        _ => resolve(arg(0), second).map_err(|_| GetKeysError::UnknownCommand)?,
    };
    let gate = gate(id);
    if !row(id).keys.iter().any(KeySpec::is_of_keys) {
        return Err(GetKeysError::NoKeys);
    }
    if !gate.arity_allows(argc) {
        return Err(match gate.lets_pass(argc) {
            true => GetKeysError::InvalidArguments,
            false => GetKeysError::WrongArity,
        });
    }
    let keys = keys(id, argc, arg);
    if gate.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Ok(keys.unwrap_or(Keys::NONE));
    }
    match keys {
        Ok(keys) if keys.ranges().iter().all(|range| range.count > 0) => Ok(keys),
        _ => Err(GetKeysError::InvalidArguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Access = Access::RO.with(Access::ACCESS);
    const READ_UPDATE: Access = Access::RW.with(Access::ACCESS).with(Access::UPDATE);
    const OVERWRITE: Access = Access::OW.with(Access::UPDATE);

    fn positions(call: &str) -> Result<Vec<usize>, InvalidKeys> {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        let id = resolve(words[0], words.get(1).copied()).unwrap();
        Ok(keys(id, words.len(), |i| words[i])?
            .map(|key| key.position)
            .collect())
    }

    fn uses(call: &str) -> Vec<Access> {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        getkeys(words.len(), |i| words[i])
            .unwrap()
            .map(|key| key.access)
            .collect()
    }

    fn getkeys_error(call: &str) -> &'static str {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        getkeys(words.len(), |i| words[i]).unwrap_err().message()
    }

    #[test]
    fn fixed_keys() {
        assert_eq!(positions("get k"), Ok(vec![1]));
        assert_eq!(positions("object encoding k"), Ok(vec![2]));
        assert_eq!(positions("rename a b"), Ok(vec![1, 2]));
        assert_eq!(positions("ping"), Ok(vec![]));
        assert_eq!(positions("get"), Err(InvalidKeys));
    }

    #[test]
    fn ranges_of_keys() {
        assert_eq!(positions("del a b c"), Ok(vec![1, 2, 3]));
        assert_eq!(positions("mset a 1 b 2"), Ok(vec![1, 3]));
        assert_eq!(positions("mset a 1 b"), Ok(vec![1, 3]));
        assert_eq!(positions("lcs a b IDX"), Ok(vec![1, 2]));
        assert_eq!(positions("sdiffstore d a b"), Ok(vec![1, 2, 3]));
        assert_eq!(positions("del"), Err(InvalidKeys));
    }

    #[test]
    fn counted_keys() {
        assert_eq!(positions("lmpop 2 a b LEFT"), Ok(vec![2, 3]));
        assert_eq!(positions("eval s 1 k arg"), Ok(vec![3]));
        assert_eq!(positions("eval s 0 arg"), Ok(vec![]));
        assert_eq!(positions("zunionstore d 2 a b"), Ok(vec![1, 3, 4]));
        assert_eq!(positions("msetex 2 a 1 b 2 nx"), Ok(vec![2, 4]));
        assert_eq!(positions("msetex 3 a 1 b 2"), Err(InvalidKeys));
        for wrong in [
            "lmpop 3 a b",
            "lmpop -1 a b",
            "lmpop x a b",
            "lmpop 01 a b",
            "lmpop  a b",
            "lmpop",
            "eval s",
        ] {
            assert_eq!(positions(wrong), Err(InvalidKeys), "{wrong}");
        }
        for huge in [
            "4294967296",
            "4294967297",
            "9999999999",
            "18446744073709551617",
            "99999999999999999999",
        ] {
            assert_eq!(
                positions(&format!("lmpop {huge} a b")),
                Err(InvalidKeys),
                "{huge}"
            );
        }
    }

    #[test]
    fn the_key_behind_a_word() {
        assert_eq!(positions("sort k"), Ok(vec![1]));
        assert_eq!(positions("sort k by w* get # store d"), Ok(vec![1, 7]));
        assert_eq!(positions("sort k STORE d store e"), Ok(vec![1, 5]));
        assert_eq!(positions("sort k by store d"), Ok(vec![1]));
        assert_eq!(positions("sort k limit store 1 store"), Ok(vec![1]));
        assert_eq!(positions("sort k store by store e"), Ok(vec![1, 5]));
        assert_eq!(positions("sort_ro k store d"), Ok(vec![1]));
        assert_eq!(uses("sort k store d"), [READ, OVERWRITE]);
    }

    #[test]
    fn keys_behind_a_keyword() {
        assert_eq!(
            positions("xreadgroup group g c streams a b 1 2"),
            Ok(vec![5, 6])
        );
        assert_eq!(
            positions("xreadgroup count 5 GROUP g c STREAMS a >"),
            Ok(vec![7])
        );
        assert_eq!(
            positions("xreadgroup group streams streams streams a >"),
            Ok(vec![5])
        );
        assert_eq!(positions("xreadgroup streams streams streams"), Ok(vec![2]));
        assert_eq!(positions("xreadgroup streams a b 1"), Err(InvalidKeys));
        assert_eq!(positions("xreadgroup block 1 streams"), Err(InvalidKeys));
        assert_eq!(positions("xreadgroup count 1 a"), Err(InvalidKeys));
        assert_eq!(positions("xread streams a b 1 2"), Ok(vec![2, 3]));
        assert_eq!(positions("xread count 5 STREAMS a $"), Ok(vec![4]));
        assert_eq!(positions("xread count streams streams a $"), Ok(vec![4]));
        assert_eq!(positions("xread streams streams streams"), Ok(vec![2]));
        assert_eq!(positions("xread streams a b 1"), Err(InvalidKeys));
        assert_eq!(positions("xread block 1 streams"), Err(InvalidKeys));
        assert_eq!(positions("xread count 1 a"), Err(InvalidKeys));
    }

    #[test]
    fn all_keys_behind_a_keyword_in_place_of_one() {
        assert_eq!(positions("migrate h 1 k 0 1"), Ok(vec![3]));
        assert_eq!(positions("migrate h 1 k 0 1 COPY"), Ok(vec![3]));
        assert_eq!(positions("migrate h 1  0 1 KEYS"), Ok(vec![3]));
        assert_eq!(
            positions("migrate h 1  0 1 COPY auth keys Keys a b"),
            Ok(vec![10, 11])
        );
        assert_eq!(
            positions("migrate h 1  0 1 AUTH2 keys keys keys a b"),
            Ok(vec![10, 11])
        );
        assert_eq!(positions("migrate h 1 k 0 1 KEYS a"), Err(InvalidKeys));
        assert_eq!(
            getkeys_error("migrate h 1 k 0 1 KEYS a"),
            "ERR Invalid arguments specified for command"
        );
        assert_eq!(
            uses("migrate h 1  0 1 KEYS a"),
            [Access::RW.with(Access::ACCESS).with(Access::DELETE)]
        );
    }

    #[test]
    fn the_get_of_set_makes_it_a_read() {
        assert_eq!(uses("set k v"), [OVERWRITE]);
        assert_eq!(uses("set k v ex 10 gEt"), [READ_UPDATE]);
        assert_eq!(uses("set get get"), [OVERWRITE]);
        assert_eq!(uses("zunionstore d 1 a"), [OVERWRITE, READ]);
    }

    #[test]
    fn a_unit_reaches_the_keys_that_are_there() {
        let reached = |call: &str| {
            let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
            let id = resolve(words[0], words.get(1).copied()).unwrap();
            reachable_keys(id, words.len(), |i| words[i])
                .map(|key| key.position)
                .collect::<Vec<_>>()
        };
        assert_eq!(positions("pfmerge a"), Err(InvalidKeys));
        assert_eq!(reached("pfmerge a"), [1]);
        assert_eq!(reached("pfmerge a b"), [1, 2]);
        assert_eq!(reached("lmpop x a"), []);
    }

    #[test]
    fn getkeys_errors() {
        assert_eq!(getkeys_error("nosuch k"), "ERR Invalid command specified");
        assert_eq!(
            getkeys_error("config nosuch"),
            "ERR Invalid command specified"
        );
        assert_eq!(
            getkeys_error("config"),
            "ERR The command has no key arguments"
        );
        assert_eq!(
            getkeys_error("ping"),
            "ERR The command has no key arguments"
        );
        assert_eq!(
            getkeys_error("get a b"),
            "ERR Invalid number of arguments specified for command"
        );
        assert_eq!(
            getkeys_error("lmpop 0 a LEFT"),
            "ERR Invalid arguments specified for command"
        );
        assert_eq!(
            getkeys_error("lmpop x a LEFT"),
            "ERR Invalid arguments specified for command"
        );
        assert_eq!(uses("eval s x a"), []);
        assert_eq!(uses("eval s 0 a"), []);
        assert_eq!(
            getkeys(0, |_| b"").unwrap_err(),
            GetKeysError::UnknownCommand
        );
    }

    #[test]
    fn the_iterator_knows_how_many_keys_are_left() {
        let words = ["zunionstore", "d", "2", "a", "b"];
        let mut keys = keys(CommandId::Zunionstore, words.len(), |i| words[i].as_bytes()).unwrap();
        for left in (0..=3).rev() {
            assert_eq!(keys.len(), left);
            assert_eq!(keys.next().is_some(), left > 0);
        }
        assert_eq!(keys.next(), None);
    }
}
