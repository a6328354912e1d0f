//! A user: on or off, with passwords, and with selectors that say what it may do. Knows no other users.

use redline_spec::{CommandId, Keys};

use crate::{
    Denied, Dialect, KeyUse, PasswordHash, Reason, RuleError, Selector, selector::channel_suits,
};

/// A user: see the module's text.
#[derive(Clone, Debug)]
pub struct User {
    /// Id of the user that a session belongs to: other than the name, never given twice.
    id: u64,
    name: Box<[u8]>,
    enabled: bool,
    any_password: bool,
    sanitize_payload: bool,
    passwords: Vec<PasswordHash>,
    /// The first is the root selector, to which rules outside of parentheses go.
    selectors: Vec<Selector>,
    /// One of its selectors allows everything.
    unrestricted: bool,
}

impl User {
    /// Returns a user that is off and may do nothing.
    pub(crate) fn new(id: u64, name: &[u8], dialect: &Dialect) -> User {
        User {
            id,
            name: name.into(),
            enabled: false,
            any_password: false,
            sanitize_payload: true,
            passwords: Vec::new(),
            selectors: vec![Selector::new(dialect)],
            unrestricted: false,
        }
    }

    /// Returns the same user under its old number: its sessions stay logged in.
    pub(crate) fn with_id(mut self, id: u64) -> User {
        self.id = id;
        self
    }

    /// Returns its number: unique for the life of the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns true if clients may log in as this user.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns true if any password is accepted.
    pub fn takes_any_password(&self) -> bool {
        self.any_password
    }

    /// Returns true if it may do everything, so that no call needs a check.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.unrestricted
    }

    /// Returns the words for its switches, in the order in which they are printed.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.any_password {
            flags.push("nopass");
        }
        flags.push(match self.sanitize_payload {
            true => "sanitize-payload",
            false => "skip-sanitize-payload",
        });
        flags
    }

    /// Returns its passwords.
    pub fn passwords(&self) -> &[PasswordHash] {
        &self.passwords
    }

    /// Returns the selector of rules outside of parentheses.
    pub fn root(&self) -> &Selector {
        &self.selectors[0]
    }

    /// Returns the selectors behind the root selector.
    pub fn further_selectors(&self) -> &[Selector] {
        &self.selectors[1..]
    }

    /// Returns its name and its rules on one line, without an end: as a file and ACL LIST have it.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", self.name(), b" ", &self.text()].concat()
    }

    /// Returns its rules, as that line has them.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        for password in &self.passwords {
            text.extend_from_slice(b" #");
            text.extend_from_slice(password.digits());
        }
        text.push(b' ');
        text.extend(self.root().text());
        for selector in self.further_selectors() {
            text.extend_from_slice(b" (");
            text.extend(selector.text());
            text.push(b')');
        }
        text
    }

    /// Returns true if this is its password.
    pub(crate) fn accepts(&self, password: &[u8]) -> bool {
        // The password is hashed in any case, and every hash is compared: the time tells little.
        let given = PasswordHash::of(password);
        let compared = self.passwords.iter();
        let known = compared.fold(false, |known, hash| known | (*hash == given));
        self.enabled && (self.any_password || known)
    }

    // ---- rules --------------------------------------------------------------------------------

    /// Applies one rule.
    pub(crate) fn apply(&mut self, rule: &[u8], dialect: &Dialect) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            b"" => {}
            _ if is("on") => self.enabled = true,
            _ if is("off") => self.enabled = false,
            _ if is("nopass") => {
                self.any_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.any_password = false;
                self.passwords.clear();
            }
            _ if is("sanitize-payload") => self.sanitize_payload = true,
            _ if is("skip-sanitize-payload") => self.sanitize_payload = false,
            _ if is("clearselectors") => self.selectors.truncate(1),
            _ if is("reset") => *self = User::new(self.id, &self.name, dialect),
            [b'>', password @ ..] => self.add_password(PasswordHash::of(password)),
            [b'#', hash @ ..] => {
                self.add_password(PasswordHash::parse(hash).ok_or(RuleError::BadHash)?);
            }
            [b'<', password @ ..] => self.remove_password(&PasswordHash::of(password))?,
            [b'!', hash @ ..] => {
                self.remove_password(&PasswordHash::parse(hash).ok_or(RuleError::BadHash)?)?;
            }
            [b'(', inside @ .., b')'] => self.selectors.push(Selector::parse(inside, dialect)?),
            _ => self.selectors[0].apply(rule)?,
        }
        self.unrestricted = self.selectors.iter().any(Selector::is_unrestricted);
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.any_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    // ---- checks -------------------------------------------------------------------------------

    /// Checks a call of `argc` words. The error names what the selector that came furthest refused.
    pub fn check<'a>(
        &self,
        id: CommandId,
        argc: usize,
        arg: impl Fn(usize) -> &'a [u8],
    ) -> Result<(), Denied> {
        let mut found: Option<Keys> = None;
        let mut refusal = Denied::COMMAND;
        for selector in &self.selectors {
            match selector.check(id, argc, &arg, &mut found) {
                Ok(()) => return Ok(()),
                Err(denied) => refusal = refusal.max(denied),
            }
        }
        Err(refusal)
    }

    /// Checks a call that uses any keys, which the arguments do not name, in this way.
    pub fn check_every_key<'a>(
        &self,
        id: CommandId,
        argc: usize,
        arg: impl Fn(usize) -> &'a [u8],
        needed: KeyUse,
    ) -> bool {
        let mut found: Option<Keys> = None;
        self.selectors.iter().any(|selector| {
            selector.allows_every_key(needed) && selector.check(id, argc, &arg, &mut found).is_ok()
        })
    }

    /// Checks a call that uses every key that a glob pattern matches in this way. See [`Selector::allows_keys_like`].
    pub fn check_keys_like<'a>(
        &self,
        id: CommandId,
        argc: usize,
        arg: impl Fn(usize) -> &'a [u8],
        pattern: &[u8],
        needed: KeyUse,
    ) -> bool {
        let mut found: Option<Keys> = None;
        self.selectors.iter().any(|selector| {
            selector.allows_keys_like(pattern, needed)
                && selector.check(id, argc, &arg, &mut found).is_ok()
        })
    }

    /// Returns true if it may use this key in this way, by any call.
    pub fn allows_key(&self, key: &[u8], needed: KeyUse) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.allows_key(key, needed))
    }

    /// Returns the channels that it may still use, if it could use others before the change; `None`: nothing was taken
    /// away.
    pub fn channels_left_after(&self, before: &User) -> Option<ChannelsLeft<'_>> {
        let mut left: Vec<&[u8]> = Vec::new();
        for selector in &self.selectors {
            left.extend(selector.channels()?.iter().map(|rule| &**rule));
        }
        let kept = before.selectors.iter().all(|selector| {
            let channels = selector.channels();
            channels.is_some_and(|channels| channels.iter().all(|known| left.contains(&&**known)))
        });
        (!kept).then_some(ChannelsLeft(left))
    }

    /// Returns the text of a refusal. `naming`: with the key or channel.
    pub fn refusal(&self, reason: Reason, command: &str, object: &[u8], naming: bool) -> String {
        let name = String::from_utf8_lossy(&self.name);
        let object = String::from_utf8_lossy(object);
        match (reason, naming) {
            (Reason::Command | Reason::Auth, _) => {
                format!("User {name} has no permissions to run the '{command}' command")
            }
            (Reason::Key, true) => {
                format!("User {name} has no permissions to access the '{object}' key")
            }
            (Reason::Key, false) => "No permissions to access a key".into(),
            (Reason::Channel, true) => {
                format!("User {name} has no permissions to access the '{object}' channel")
            }
            (Reason::Channel, false) => "No permissions to access a channel".into(),
        }
    }
}

/// Channels that a user may still use: see [`User::channels_left_after`].
pub struct ChannelsLeft<'a>(Vec<&'a [u8]>);

impl ChannelsLeft<'_> {
    /// Returns true if a subscription to this channel, or to this pattern, may stay.
    pub fn allow(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.0
            .iter()
            .any(|known| channel_suits(known, channel, is_pattern))
    }
}
