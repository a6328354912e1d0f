//! Users as rules of Redis's ACL, which check every key of every command. Knows no clients.

use redline_acl::{DEFAULT_USER, Dialect, PasswordHash, SetUserError, Users};

use super::{Config, Mode, Secret, User};

/// The configured users.
#[derive(Debug)]
pub struct Identities {
    /// By name.
    pub users: Users,
    /// Names of the users that `AUTH password` alone means, by the password.
    by_password: Vec<(PasswordHash, String)>,
}

impl Identities {
    /// Returns the users of a configuration.
    pub fn of(config: &Config) -> Result<Identities, String> {
        let dialect = dialect();
        let mut identities = Identities {
            users: Users::new(&dialect),
            by_password: Vec::new(),
        };
        for user in &config.users {
            let rules = rules(user)?;
            let words: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
            let set = identities.users.set(user.name.as_bytes(), &words, &dialect);
            set.map_err(|error| format!("user \"{}\": {}", user.name, without_secret(error)))?;
            if let Some(password) = user.password.as_ref().filter(|_| user.by_password) {
                let hash = match password.strip_prefix('#') {
                    Some(digits) => PasswordHash::parse(digits.as_bytes()),
                    None => Some(PasswordHash::of(password.as_bytes())),
                };
                let entry = hash.map(|hash| (hash, user.name.clone()));
                identities.by_password.extend(entry);
            }
        }
        Ok(identities)
    }

    /// Returns the name of the user that `AUTH password` means.
    pub fn name_of(&self, password: &[u8]) -> Option<&str> {
        let hash = PasswordHash::of(password);
        let mut entries = self.by_password.iter();
        let entry = entries.find(|(known, _)| *known == hash);
        entry.map(|(_, name)| name.as_str())
    }

    /// Returns true if any user is found by the password alone.
    pub fn has_passwords(&self) -> bool {
        !self.by_password.is_empty()
    }
}

/// Returns a password as our file has it, where a leading hash sign means a hash.
pub(super) fn stored(password: &str) -> Secret {
    if !password.starts_with('#') {
        return password.into();
    }
    let hash = PasswordHash::of(password.as_bytes());
    Secret::from(format!("#{}", String::from_utf8_lossy(hash.digits())))
}

/// Returns the error's text for logs: it contains a rule only if that cannot be a password, or a part of one.
fn without_secret(error: SetUserError) -> String {
    match &error {
        SetUserError::Rule(rule, why)
            if !matches!(rule.first(), Some(b'+' | b'-' | b'~' | b'%' | b'&' | b'(')) =>
        {
            format!("Error in ACL SETUSER modifier (it may be a password and is not shown): {why}")
        }
        _ => error.to_string(),
    }
}

/// Returns the language of rules.
pub fn dialect() -> Dialect {
    Dialect {
        open_channels: false,
        split: |text| {
            Some(
                text.split(u8::is_ascii_whitespace)
                    .map(<[u8]>::to_vec)
                    .collect(),
            )
        },
    }
}

/// Permissions of a user that may only read: no wider than predixy's mode, with the others that a client needs.
const READ: &[&str] = &[
    "+@read",
    "+@connection",
    "+@pubsub",
    "+@transaction",
    "-publish",
    "-spublish",
    // Questions that cluster clients ask first.
    "+cluster",
    "-@admin",
    "-@dangerous",
    "+info",
    "+sort_ro",
];
/// Permissions of a user that may write.
const WRITE: &[&str] = &[
    "+@all",
    "-@admin",
    "-@dangerous",
    "+info",
    "+sort",
    "+sort_ro",
    "+restore",
];

/// Returns the ACL rules of a user's record.
fn rules(user: &User) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = vec!["reset".into(), "on".into()];
    words.push(match &user.password {
        None => "nopass".to_owned(),
        Some(password) if password.starts_with('#') => password.to_string(),
        Some(password) => format!(">{}", &**password),
    });
    if let Some(rules) = &user.rules {
        words.extend(rules.split_whitespace().map(str::to_owned));
        return Ok(words);
    }
    let mode = match user.mode.unwrap_or_default() {
        Mode::Read => READ,
        Mode::Write => WRITE,
        Mode::Admin => &["+@all"],
    };
    words.extend(mode.iter().map(|&word| word.to_owned()));
    words.push("&*".into());
    let prefixes = [
        &user.key_prefixes,
        &user.read_key_prefixes,
        &user.write_key_prefixes,
    ];
    if prefixes.iter().any(|prefixes| !prefixes.is_empty()) {
        // The keys that a script uses without declaring them are not known.
        words.push("-@scripting".into());
    }
    fn or<'a>(own: &'a [String], both: &'a [String]) -> &'a [String] {
        if own.is_empty() { both } else { own }
    }
    let reads = or(&user.read_key_prefixes, &user.key_prefixes);
    let writes = or(&user.write_key_prefixes, &user.key_prefixes);
    if reads == writes {
        words.extend(patterns("~", reads));
    } else {
        words.extend(patterns("%R~", reads));
        words.extend(patterns("%W~", writes));
    }
    Ok(words)
}

/// Returns patterns for keys with these prefixes; any key, if there are none.
fn patterns(right: &str, prefixes: &[String]) -> Vec<String> {
    if prefixes.is_empty() {
        return vec![format!("{right}*")];
    }
    let pattern = |prefix: &String| {
        let literal: String = prefix.chars().fold(String::new(), |mut literal, c| {
            if matches!(c, '*' | '?' | '[' | ']' | '\\') {
                literal.push('\\');
            }
            literal.push(c);
            literal
        });
        format!("{right}{literal}*")
    };
    prefixes.iter().map(pattern).collect()
}

/// Returns true if a name is that of the default user, the user of clients without authentication.
pub fn is_default(name: &str) -> bool {
    name.as_bytes() == DEFAULT_USER
}

#[cfg(test)]
mod tests {
    use redline_spec::lookup;

    use super::*;

    fn identities(users: Vec<User>) -> Identities {
        let config = Config {
            users,
            ..Config::default()
        };
        Identities::of(&config).unwrap()
    }

    fn may(identities: &Identities, name: &str, words: &[&str]) -> bool {
        let user = identities.users.get(name.as_bytes()).unwrap();
        let id = redline_spec::resolve(words[0].as_bytes(), words.get(1).map(|w| w.as_bytes()));
        let id = id.unwrap();
        user.check(id, words.len(), |at| words[at].as_bytes())
            .is_ok()
    }

    #[test]
    fn modes_and_prefixes_hold_for_every_key_of_every_command() {
        let prefixes = |prefixes: &[&str]| prefixes.iter().map(|&p| p.to_owned()).collect();
        let known = identities(vec![
            User {
                name: "reader".into(),
                password: Some("r".into()),
                by_password: true,
                mode: Some(Mode::Read),
                key_prefixes: prefixes(&["a", "ab", "x*"]),
                ..User::default()
            },
            User {
                name: "writer".into(),
                mode: Some(Mode::Write),
                read_key_prefixes: prefixes(&["r:"]),
                write_key_prefixes: prefixes(&["w:"]),
                ..User::default()
            },
            User {
                name: "admin".into(),
                mode: Some(Mode::Admin),
                ..User::default()
            },
        ]);
        assert!(lookup(b"get").is_some());
        for (name, words, wanted) in [
            ("reader", &["get", "a1"][..], true),
            // predixy compared the nearest prefix only.
            ("reader", &["get", "ac"], true),
            ("reader", &["get", "b"], false),
            ("reader", &["mget", "a1", "b"], false),
            ("reader", &["get", "x*1"], true),
            ("reader", &["get", "xy"], false),
            ("reader", &["set", "a1", "v"], false),
            ("reader", &["flushall"], false),
            ("reader", &["subscribe", "c"], true),
            ("reader", &["publish", "c", "m"], false),
            ("reader", &["info"], true),
            ("reader", &["ping"], true),
            ("writer", &["get", "r:1"], true),
            ("writer", &["get", "w:1"], false),
            ("writer", &["set", "w:1", "v"], true),
            ("writer", &["set", "r:1", "v"], false),
            ("writer", &["rename", "w:1", "r:1"], false),
            ("writer", &["sunionstore", "w:1", "r:1", "q"], false),
            ("writer", &["sunionstore", "w:1", "r:1", "r:2"], true),
            ("writer", &["eval", "return 1", "2", "w:1", "q"], false),
            ("writer", &["config", "get", "x"], false),
            ("admin", &["config", "get", "x"], true),
            ("admin", &["flushall"], true),
        ] {
            assert_eq!(may(&known, name, words), wanted, "{name} {words:?}");
        }
        assert_eq!(known.name_of(b"r"), Some("reader"));
        assert_eq!(known.name_of(b"x"), None);
    }

    #[test]
    fn rules_are_those_of_redis_and_a_wrong_one_is_named() {
        let user = |rules: &str| User {
            name: "u".into(),
            rules: Some(rules.into()),
            ..User::default()
        };
        let known = identities(vec![user("+get ~a*")]);
        assert!(may(&known, "u", &["get", "a"]) && !may(&known, "u", &["get", "b"]));
        let config = Config {
            users: vec![user("+nonsense")],
            ..Config::default()
        };
        let said = Identities::of(&config).unwrap_err();
        assert!(
            said.starts_with("user \"u\": ") && said.contains("+nonsense"),
            "{said}"
        );
        for wrong in [
            user("+get >my 5417"),
            user("+get #5417"),
            User {
                password: Some("#5417".into()),
                ..user("+get")
            },
        ] {
            let config = Config {
                users: vec![wrong],
                ..Config::default()
            };
            let said = Identities::of(&config).unwrap_err();
            assert!(said.contains("ACL") && !said.contains("5417"), "{said}");
        }
    }
}
