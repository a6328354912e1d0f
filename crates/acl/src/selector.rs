//! A selector: commands, keys and channels that go together. A user has one or more, and may make a call that
//! one of them allows as a whole.
//!
//! Which commands are allowed is a bit each. The rules that set the bits are kept as text as well, without those that a
//! later one overrides: the text is what is printed, and parsing it gives the same bits.
//!
//! Must not know: users.

use std::collections::BTreeMap;

use redline_spec::{
    self as spec, Access, Categories, CommandId, Find, Flags, KeySpec, Keys, table,
};
use redline_types::glob::{self, Case};

use crate::rule::{Dialect, RuleError, has_spaces};

/// Commands, keys and channels that go together: see the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    commands: CommandBits,
    /// `+@all` and nothing taken away since: no bit needs to be checked.
    all_commands: bool,
    /// The rules begin with `+@all`: commands that are added later are allowed.
    unknown_commands: bool,
    /// `+get -set …`, separated by single spaces.
    rules: Vec<u8>,
    /// Commands whose bit is not set are allowed with one of these as their first argument.
    first_arguments: BTreeMap<CommandId, Vec<Box<[u8]>>>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Box<[u8]>>,
}

/// Uses of keys: those that a pattern allows, those that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The data is read, copied or returned.
    pub read: bool,
    /// The data is changed, added to or deleted.
    pub write: bool,
}

impl KeyUse {
    /// Reading alone.
    pub const READ: KeyUse = KeyUse {
        read: true,
        write: false,
    };
    /// Reading and changing.
    pub const ALL: KeyUse = KeyUse {
        read: true,
        write: true,
    };

    /// Returns the use that a command makes of a key, reading or writing. To learn that it exists, or its type, is
    /// neither.
    fn of(access: Access) -> KeyUse {
        KeyUse {
            read: access.has(Access::ACCESS),
            write: access.has(Access::INSERT)
                || access.has(Access::UPDATE)
                || access.has(Access::DELETE),
        }
    }

    fn covers(self, needed: KeyUse) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    allows: KeyUse,
    pattern: Box<[u8]>,
}

/// Part of a call that was refused, in the order in which one refusal outweighs another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The command.
    Command,
    /// A key.
    Key,
    /// A login.
    Auth,
    /// A channel.
    Channel,
}

/// A call that a user may not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denied {
    /// Part of the call that was refused.
    pub reason: Reason,
    /// The place of the key or channel in the argument vector; 0 for the command.
    pub position: usize,
}

impl Denied {
    /// The command as such.
    pub const COMMAND: Denied = Denied {
        reason: Reason::Command,
        position: 0,
    };
}

impl Selector {
    /// Returns a selector that allows nothing, channels excepted where the dialect opens them.
    pub fn new(dialect: &Dialect) -> Selector {
        Selector {
            commands: CommandBits::NONE,
            all_commands: false,
            unknown_commands: false,
            rules: Vec::new(),
            first_arguments: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: dialect.open_channels,
            channels: Vec::new(),
        }
    }

    /// Returns the same from the words between parentheses. With an open quote there are no words.
    pub(crate) fn parse(inside: &[u8], dialect: &Dialect) -> Result<Selector, RuleError> {
        let mut selector = Selector::new(dialect);
        for rule in (dialect.split)(inside).unwrap_or_default() {
            selector.apply(&rule)?;
        }
        Ok(selector)
    }

    /// Returns true if it allows everything.
    pub fn is_unrestricted(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Returns true if one of its key patterns allows that use of every key.
    pub fn allows_every_key(&self, needed: KeyUse) -> bool {
        let every =
            |pattern: &KeyPattern| *pattern.pattern == *b"*" && pattern.allows.covers(needed);
        self.all_keys || self.keys.iter().any(every)
    }

    /// Returns true if one of its key patterns allows that use of every key that a glob pattern matches. It compares
    /// how the two begin, so it may return false where the answer is true.
    pub fn allows_keys_like(&self, pattern: &[u8], needed: KeyUse) -> bool {
        let (start, rest) = literal_start(pattern);
        let covers = |known: &KeyPattern| {
            let (own, own_rest) = literal_start(&known.pattern);
            let any_rest = !own_rest.is_empty() && own_rest.iter().all(|byte| *byte == b'*');
            any_rest && start.starts_with(&own) && known.allows.covers(needed)
        };
        let is_one = rest.is_empty() && self.allows_key(&start, needed);
        self.all_keys || is_one || self.keys.iter().any(covers)
    }

    /// Returns its channel patterns; `None`: every channel.
    pub fn channels(&self) -> Option<&[Box<[u8]>]> {
        (!self.all_channels).then_some(&self.channels)
    }

    // ---- rules --------------------------------------------------------------------------------

    /// Applies one rule.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || rule == b"~*" => self.open_keys(true),
            _ if is("resetkeys") => self.open_keys(false),
            _ if is("allchannels") || rule == b"&*" => self.open_channels(true),
            _ if is("resetchannels") => self.open_channels(false),
            _ if is("allcommands") || is("+@all") => self.open_commands(true),
            _ if is("nocommands") || is("-@all") => self.open_commands(false),
            [b'~', pattern @ ..] => return self.add_key(pattern, KeyUse::ALL),
            [b'%', ..] if self.all_keys => return Err(RuleError::KeysAlreadyOpen),
            [b'%', rest @ ..] => {
                let (pattern, allows) = key_use(rest).ok_or(RuleError::Syntax)?;
                return self.add_key(pattern, allows);
            }
            [b'&', pattern @ ..] => return self.add_channel(pattern),
            [b'+', b'@', category @ ..] => return self.set_category(category, true),
            [b'-', b'@', category @ ..] => return self.set_category(category, false),
            [b'+', name @ ..] => return self.allow(name),
            [b'-', name @ ..] => {
                let named = Named::by(name).ok_or(RuleError::UnknownCommand)?;
                self.set_named(named, false);
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn open_keys(&mut self, all: bool) {
        self.all_keys = all;
        self.keys.clear();
    }

    fn open_channels(&mut self, all: bool) {
        self.all_channels = all;
        self.channels.clear();
    }

    fn open_commands(&mut self, all: bool) {
        self.commands = if all {
            CommandBits::ALL
        } else {
            CommandBits::NONE
        };
        self.all_commands = all;
        self.unknown_commands = all;
        self.rules.clear();
        self.first_arguments.clear();
    }

    fn add_key(&mut self, pattern: &[u8], allows: KeyUse) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::KeysAlreadyOpen);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match self
            .keys
            .iter_mut()
            .find(|known| *known.pattern == *pattern)
        {
            Some(known) => {
                known.allows.read |= allows.read;
                known.allows.write |= allows.write;
            }
            None => self.keys.push(KeyPattern {
                allows,
                pattern: pattern.into(),
            }),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::ChannelsAlreadyOpen);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| **known == *pattern) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        if let Some(bar) = name.iter().rposition(|byte| *byte == b'|') {
            let (command, argument) = (&name[..bar], &name[bar + 1..]);
            let named = Named::by(command).ok_or(RuleError::UnknownCommand)?;
            if named.is_subcommand() {
                return Err(RuleError::FirstArgumentOfSubcommand);
            }
            if argument.is_empty() {
                return Err(RuleError::Syntax);
            }
            if !named.has_subcommands() {
                if let Named::Built(id) = named {
                    self.allow_first_argument(id, argument);
                }
                self.note_rule(name, true);
                return Ok(());
            }
        }
        let named = Named::by(name).ok_or(RuleError::UnknownCommand)?;
        self.set_named(named, true);
        Ok(())
    }

    fn allow_first_argument(&mut self, id: CommandId, argument: &[u8]) {
        let known = self.first_arguments.entry(id).or_default();
        if !known.iter().any(|word| word.eq_ignore_ascii_case(argument)) {
            known.push(argument.into());
        }
    }

    fn set_category(&mut self, name: &[u8], allowed: bool) -> Result<(), RuleError> {
        let category = Categories::by_name(name).ok_or(RuleError::UnknownCommand)?;
        self.note_rule(&[b"@", name].concat(), allowed);
        // Containers come first: a rule on one holds for its subcommands too, which may be in the category by
        // themselves.
        let rows = || table::all().iter().filter(|row| row.acl.has(category));
        let containers = rows().filter(|row| row.container.is_none());
        let rest = rows().filter(|row| row.container.is_some());
        for row in containers.chain(rest) {
            self.set_command(row.id, allowed);
        }
        Ok(())
    }

    /// Sets the bits of a name. Of a command that is not built there is only the text: nobody can call it.
    fn set_named(&mut self, named: Named, allowed: bool) {
        if let Named::Built(id) = named {
            self.set_command(id, allowed);
        }
        self.note_rule(named.full_name().as_bytes(), allowed);
    }

    /// Sets the bits of a command and of its subcommands.
    fn set_command(&mut self, id: CommandId, allowed: bool) {
        self.first_arguments.remove(&id);
        self.commands.set(id, allowed);
        if spec::gate(id).has_subcommands {
            for row in table::subcommands(id) {
                self.commands.set(row.id, allowed);
            }
        }
        self.all_commands &= allowed;
    }

    /// Adds a rule to the text, and removes those that it overrides: itself, and those on a part of it.
    fn note_rule(&mut self, rule: &[u8], allowed: bool) {
        let rule = rule.to_ascii_lowercase();
        let overridden = |word: &[u8]| {
            let name = word.get(1..).unwrap_or_default();
            name.strip_prefix(&rule[..])
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'|')
        };
        let sign: &[u8] = if allowed { b"+" } else { b"-" };
        let known = self.rules.split(|byte| *byte == b' ');
        let kept = known.filter(|word| !word.is_empty() && !overridden(word));
        let mut rules = Vec::with_capacity(self.rules.len() + rule.len() + 2);
        for word in kept {
            rules.extend_from_slice(word);
            rules.push(b' ');
        }
        rules.extend_from_slice(sign);
        rules.extend_from_slice(&rule);
        self.rules = rules;
    }

    // ---- printing -----------------------------------------------------------------------------

    /// Returns the rules on commands: `-@all +get`.
    pub fn command_text(&self) -> Vec<u8> {
        let mut text = if self.unknown_commands {
            b"+@all".to_vec()
        } else {
            b"-@all".to_vec()
        };
        if !self.rules.is_empty() {
            text.push(b' ');
            text.extend_from_slice(&self.rules);
        }
        text
    }

    /// Returns the rules on keys: `~a* %R~b*`.
    pub fn key_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let patterns: Vec<Vec<u8>> = self.keys.iter().map(KeyPattern::text).collect();
        patterns.join(&b' ')
    }

    /// Returns the rules on channels: `&news.* &chat`.
    pub fn channel_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let patterns = self.channels.iter();
        let patterns: Vec<Vec<u8>> = patterns.map(|p| [b"&", &p[..]].concat()).collect();
        patterns.join(&b' ')
    }

    /// Returns all its rules, as a file holds them.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.key_text();
        if !text.is_empty() {
            text.push(b' ');
        }
        if !self.all_channels {
            text.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channel_text();
        if !channels.is_empty() {
            text.extend_from_slice(&channels);
            text.push(b' ');
        }
        text.extend_from_slice(&self.command_text());
        text
    }

    // ---- the check ----------------------------------------------------------------------------

    /// Checks a call. Its keys are looked up when they are first needed.
    pub(crate) fn check<'a>(
        &self,
        id: CommandId,
        argc: usize,
        arg: &impl Fn(usize) -> &'a [u8],
        found: &mut Option<Keys>,
    ) -> Result<(), Denied> {
        if !self.all_commands && !self.allows_command(id, argc, arg) {
            return Err(Denied::COMMAND);
        }
        let row = spec::row(id);
        if !self.all_keys && !row.keys.is_empty() {
            let keys = *found.get_or_insert_with(|| keys_of(id, argc, arg));
            for key in keys {
                if !self.allows_key(arg(key.position), KeyUse::of(key.access)) {
                    return Err(Denied {
                        reason: Reason::Key,
                        position: key.position,
                    });
                }
            }
        }
        if let (false, Some(channels)) = (self.all_channels, row.channels) {
            for position in channels.positions(argc) {
                let channel = arg(position);
                let mut rules = self.channels.iter();
                if !rules.any(|rule| channel_suits(rule, channel, channels.patterns)) {
                    return Err(Denied {
                        reason: Reason::Channel,
                        position,
                    });
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn allows_command<'a>(
        &self,
        id: CommandId,
        argc: usize,
        arg: &impl Fn(usize) -> &'a [u8],
    ) -> bool {
        if self.commands.has(id) || spec::gate(id).flags.has(Flags::NO_AUTH) {
            return true;
        }
        let Some(words) = self.first_arguments.get(&id).filter(|_| argc > 1) else {
            return false;
        };
        words.iter().any(|word| word.eq_ignore_ascii_case(arg(1)))
    }

    /// Returns true if the key may be used in this way.
    pub fn allows_key(&self, key: &[u8], needed: KeyUse) -> bool {
        let suits =
            |known: &KeyPattern| known.allows.covers(needed) && matches(&known.pattern, key);
        self.all_keys || self.keys.iter().any(suits)
    }
}

/// Returns true if a pattern of the rules matches a key or channel. An empty one is matched by no `*`: to use it, a
/// user needs the right to all, or an empty pattern.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    glob::matches(pattern, text, Case::Sensitive)
}

/// Returns the text that everything matched by a glob pattern begins with, and the pattern behind that.
fn literal_start(pattern: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut start, mut rest) = (Vec::new(), pattern);
    loop {
        rest = match rest {
            [] | [b'*' | b'?' | b'[', ..] | [b'\\'] => return (start, rest),
            [b'\\', byte, behind @ ..] | [byte, behind @ ..] => {
                start.push(*byte);
                behind
            }
        };
    }
}

/// Returns the keys of a call. A call whose keys cannot be determined, or that announces none, uses none: its handler
/// answers with an error. But `PFMERGE a` is valid, though its sources are missing: where keys have fixed places, a
/// call has those that are there.
fn keys_of<'a>(id: CommandId, argc: usize, arg: &impl Fn(usize) -> &'a [u8]) -> Keys {
    let in_places = |keys: &KeySpec| !matches!(keys.find, Find::KeyNum);
    match spec::keys(id, argc, arg) {
        Ok(keys) if keys.ranges().iter().all(|range| range.count > 0) => keys,
        _ if spec::row(id).keys.iter().all(in_places) => spec::reachable_keys(id, argc, arg),
        _ => Keys::NONE,
    }
}

/// Returns true if a channel pattern of the rules allows this channel. A pattern is allowed if it is equal to one of
/// the rules.
pub(crate) fn channel_suits(rule: &[u8], channel: &[u8], is_pattern: bool) -> bool {
    match is_pattern {
        true => *rule == *channel,
        false => matches(rule, channel),
    }
}

impl KeyPattern {
    fn text(&self) -> Vec<u8> {
        let sign: &[u8] = match (self.allows.read, self.allows.write) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            _ => b"~",
        };
        [sign, &self.pattern].concat()
    }
}

/// Parses `R~pattern`: returns the pattern, and the use that it allows; the `~` may be missing, and then there is no pattern.
fn key_use(rest: &[u8]) -> Option<(&[u8], KeyUse)> {
    let mut allows = KeyUse {
        read: false,
        write: false,
    };
    let mut pattern: &[u8] = b"";
    for (at, byte) in rest.iter().enumerate() {
        match byte.to_ascii_uppercase() {
            b'R' if !allows.read => allows.read = true,
            b'W' if !allows.write => allows.write = true,
            b'~' => {
                pattern = &rest[at + 1..];
                break;
            }
            _ => return None,
        }
    }
    (allows.read || allows.write).then_some((pattern, allows))
}

/// Command that `get` or `config|get` names.
#[derive(Clone, Copy)]
enum Named {
    Built(CommandId),
    /// Command or category that only the reference server has.
    Unbuilt(&'static str),
}

impl Named {
    fn by(name: &[u8]) -> Option<Named> {
        let built = built(name).map(Named::Built);
        built.or_else(|| spec::unbuilt(name).map(Named::Unbuilt))
    }

    fn full_name(self) -> &'static str {
        match self {
            Named::Built(id) => spec::row(id).full_name,
            Named::Unbuilt(full_name) => full_name,
        }
    }

    fn is_subcommand(self) -> bool {
        self.full_name().contains('|')
    }

    fn has_subcommands(self) -> bool {
        match self {
            Named::Built(id) => spec::gate(id).has_subcommands,
            // All commands with subcommands are built.
            Named::Unbuilt(_) => false,
        }
    }
}

fn built(name: &[u8]) -> Option<CommandId> {
    let mut words = name.split(|byte| *byte == b'|');
    let first = spec::lookup(words.next()?)?;
    match (words.next(), words.next()) {
        (None, _) => Some(first),
        (Some(second), None) if spec::gate(first).has_subcommands => {
            spec::lookup_subcommand(first, second)
        }
        _ => None,
    }
}

const WORDS: usize = CommandId::COUNT.div_ceil(64);

/// One bit for each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommandBits([u64; WORDS]);

impl CommandBits {
    const NONE: CommandBits = CommandBits([0; WORDS]);
    const ALL: CommandBits = CommandBits([u64::MAX; WORDS]);

    #[inline]
    fn has(&self, id: CommandId) -> bool {
        self.0[id as usize / 64] >> (id as usize % 64) & 1 == 1
    }

    fn set(&mut self, id: CommandId, on: bool) {
        let bit = 1 << (id as usize % 64);
        let word = &mut self.0[id as usize / 64];
        *word = if on { *word | bit } else { *word & !bit };
    }
}
