//! All users. A value: the server changes a copy and publishes it whole. Knows no files, only their text.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{Dialect, RuleError, UnmatchedParenthesis, User, merge_selectors, rule::has_spaces};

/// The user of a connection that has not logged in.
pub const DEFAULT_USER: &[u8] = b"default";

/// All users: see the module's text. There is always a default user.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    next_id: u64,
    version: u64,
}

/// Reason why [`Users::set`] changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUserError {
    /// A selector is not closed: the place of its first word.
    Unmatched(UnmatchedParenthesis),
    /// This rule, for this reason.
    Rule(Vec<u8>, RuleError),
}

/// Formats as the text that ACL SETUSER answers.
impl fmt::Display for SetUserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetUserError::Unmatched(_) => f.write_str("Unmatched parenthesis in acl selector"),
            SetUserError::Rule(rule, why) => {
                let rule = String::from_utf8_lossy(rule);
                write!(f, "Error in ACL SETUSER modifier '{rule}': {why}")
            }
        }
    }
}

/// Returns true if a user may have this name.
pub fn is_user_name(name: &[u8]) -> bool {
    !has_spaces(name)
}

impl Users {
    /// Returns the default user alone, which may do everything without a password.
    pub fn new(dialect: &Dialect) -> Users {
        let mut users = Users {
            by_name: BTreeMap::new(),
            next_id: 0,
            version: 0,
        };
        let default = users.fresh_default(dialect);
        users.by_name.insert(DEFAULT_USER.into(), Arc::new(default));
        users
    }

    fn fresh_default(&mut self, dialect: &Dialect) -> User {
        let mut user = User::new(self.new_id(), DEFAULT_USER, dialect);
        for rule in ["+@all", "~*", "&*", "on", "nopass"] {
            let applied = user.apply(rule.as_bytes(), dialect);
            debug_assert_eq!(applied, Ok(()));
        }
        user
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Version of the users, which changes with every change.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the user of that name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Returns the default user.
    pub fn default_user(&self) -> &Arc<User> {
        &self.by_name[DEFAULT_USER]
    }

    /// Returns true if a connection must log in before it may do anything.
    pub fn login_required(&self) -> bool {
        let default = self.default_user();
        !default.takes_any_password() || !default.is_enabled()
    }

    /// Returns all users, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// Returns the user, if the password is right and the user is on. The check of a user that does not exist takes as
    /// long.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        match self.get(name) {
            Some(user) => user.accepts(password).then_some(user),
            None => {
                std::hint::black_box(crate::PasswordHash::of(password));
                None
            }
        }
    }

    /// Returns true if this is a password of the default user. A user that accepts any password has none.
    pub fn is_default_password(&self, password: &[u8]) -> bool {
        let default = self.default_user();
        !default.takes_any_password() && default.accepts(password)
    }

    // ---- changes ------------------------------------------------------------------------------

    /// Creates a user or changes one: applies all rules, or none of them.
    pub fn set(
        &mut self,
        name: &[u8],
        rules: &[&[u8]],
        dialect: &Dialect,
    ) -> Result<(), SetUserError> {
        let rules = merge_selectors(rules).map_err(SetUserError::Unmatched)?;
        let mut user = match self.get(name) {
            Some(user) => User::clone(user),
            None => User::new(self.next_id + 1, name, dialect),
        };
        for rule in rules {
            user.apply(&rule, dialect)
                .map_err(|why| SetUserError::Rule(rule, why))?;
        }
        self.next_id = self.next_id.max(user.id());
        self.version += 1;
        self.by_name.insert(name.into(), Arc::new(user));
        Ok(())
    }

    /// Gives the default user this password; without one, it accepts any.
    pub fn set_default_password(&mut self, password: Option<&[u8]>, dialect: &Dialect) {
        let rule = match password {
            Some(password) => [b">", password].concat(),
            None => b"nopass".to_vec(),
        };
        let done = self.set(DEFAULT_USER, &[b"resetpass", &rule], dialect);
        debug_assert_eq!(done, Ok(()));
    }

    /// Removes a user. The default user stays.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let removed = name != DEFAULT_USER && self.by_name.remove(name).is_some();
        self.version += u64::from(removed);
        removed
    }

    // ---- files --------------------------------------------------------------------------------

    /// Returns the text of a file that holds all users.
    pub fn file_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for user in self.iter() {
            text.extend(user.line());
            text.push(b'\n');
        }
        text
    }

    /// Returns the users that a file describes instead of these; those that stay keep their numbers. `path` names the
    /// file in errors, all of which are reported.
    pub fn from_file(&self, path: &str, text: &[u8], dialect: &Dialect) -> Result<Users, String> {
        let mut users = Users {
            by_name: BTreeMap::new(),
            next_id: self.next_id,
            version: self.version + 1,
        };
        let mut errors = String::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = trimmed(line);
            if !line.is_empty() {
                users.take_line(&Place(path, number + 1), line, dialect, &mut errors);
            }
        }
        if !errors.is_empty() {
            return Err(format!(
                "{errors}WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            ));
        }
        if !users.by_name.contains_key(DEFAULT_USER) {
            let default = users.fresh_default(dialect);
            users.by_name.insert(DEFAULT_USER.into(), Arc::new(default));
        }
        for (name, user) in &mut users.by_name {
            if let Some(known) = self.by_name.get(name) {
                *user = Arc::new(User::clone(user).with_id(known.id()));
            }
        }
        Ok(users)
    }

    fn take_line(&mut self, at: &Place<'_>, line: &[u8], dialect: &Dialect, errors: &mut String) {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [b"user", name, rules @ ..] = &words[..] else {
            *errors += &format!(
                "{}:{} should start with user keyword followed by the username. ",
                at.0, at.1
            );
            return;
        };
        let shown = String::from_utf8_lossy(name);
        if has_spaces(name) {
            *errors += &format!(
                "'{}:{}: username '{shown}' contains invalid characters. ",
                at.0, at.1
            );
            return;
        }
        if self.by_name.contains_key(*name) {
            *errors += &format!("WARNING: Duplicate user '{shown}' found on line {}. ", at.1);
            return;
        }
        let mut user = User::new(self.new_id(), name, dialect);
        let Ok(rules) = merge_selectors(rules) else {
            *errors += &format!(
                "{}:{}: Unmatched parenthesis in selector definition.",
                at.0, at.1
            );
            return;
        };
        let mut told = false;
        for rule in &rules {
            let rule = trimmed_of_controls(rule);
            match user.apply(rule, dialect) {
                Ok(()) => {}
                Err(why @ RuleError::UnknownCommand) => {
                    let rule = String::from_utf8_lossy(rule);
                    *errors += &format!(
                        "{}:{}: Error in applying operation '{rule}': {why}. ",
                        at.0, at.1
                    );
                }
                // A first mistake makes others look like mistakes.
                Err(why) if !told => {
                    told = true;
                    *errors += &format!("{}:{}: {why}. ", at.0, at.1);
                }
                Err(_) => {}
            }
        }
        self.by_name.insert((*name).into(), Arc::new(user));
    }
}

/// A file and a line of it.
struct Place<'a>(&'a str, usize);

fn trimmed(mut text: &[u8]) -> &[u8] {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    while let [first, rest @ ..] = text
        && space(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && space(last)
    {
        text = rest;
    }
    text
}

fn trimmed_of_controls(mut text: &[u8]) -> &[u8] {
    while let [b'\t' | b'\r' | b'\n', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b'\t' | b'\r' | b'\n'] = text {
        text = rest;
    }
    text
}
