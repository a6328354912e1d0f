//! Configuration files: lines of words, with quoting, comments and includes, in redis.conf's syntax.
//!
//! A refusal is one line that names the file and the line, and shows it where it cannot contain a secret ([`shown`]):
//! refusals go to logs. Reading goes on behind one, so that a file is mended in one go. Whether a part exists is checked at
//! the end, for the final values: `save 60 1` is harmless before `save ""`. Must not know any parameter.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use redline_acl::SetUserError;
use redline_observe::{quote::quote, secret::REDACTED};
use redline_resp::split_words;
use redline_spec::nearest;
use redline_types::glob::{self, Case};

use super::report::{Directive, Loaded, Place, Took};
use super::{find, not_built, table, words_of};
use crate::settings::{Settings, UserLine};

/// Limit on the depth of includes.
const DEPTH_MAX: usize = 16;
/// Number of faults behind which nothing more is read: a file that includes itself twice has very many.
const FAULTS_MAX: usize = 100;

/// Collects settings from files, standard input and the command line; later ones win.
#[derive(Default)]
pub struct Loader {
    settings: Settings,
    /// Directives in the order in which they were read.
    directives: Vec<Directive>,
    /// Directive that has set each parameter last: its index.
    last: BTreeMap<&'static str, usize>,
    /// Number of directives that were refused.
    faults: usize,
    /// Names in all `user` lines so far.
    user_names: HashSet<Vec<u8>>,
    depth: usize,
}

impl Loader {
    /// Reads a file; an error is one of opening it.
    pub fn file(&mut self, path: &Path) -> Result<(), String> {
        let text = fs::read(path).map_err(|error| {
            format!(
                "can't open config file '{}': {}",
                path.display(),
                redline_net::error_text(&error)
            )
        })?;
        self.text(&path.display().to_string(), &text);
        Ok(())
    }

    /// Reads the text of a file, or of standard input. A refused line is kept for [`Loader::loaded`].
    pub fn text(&mut self, name: &str, text: &[u8]) {
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let place = Place {
                line: Some(format!("{name}:{}", number + 1)),
                shown: shown(line).into_owned(),
            };
            match split_words(line) {
                Some(words) => self.directive(place, &words),
                None => {
                    let why = "Unbalanced quotes in configuration line".into();
                    self.took(place, Took::Refused(why));
                }
            }
        }
    }

    /// Applies one directive; `place` names it in a refusal.
    pub fn directive(&mut self, place: Place, words: &[Vec<u8>]) {
        let Some((name, values)) = words.split_first() else {
            return;
        };
        if self.faults >= FAULTS_MAX {
            return;
        }
        let is = |known: &&str| known.as_bytes().eq_ignore_ascii_case(name);
        if is(&"include") {
            return self.include(place, values);
        }
        let took = match self.take(name, values) {
            Ok(took) => took,
            Err(why) => Took::Refused(why),
        };
        self.took(place, took);
    }

    /// Takes a directive that is no `include`.
    fn take(&mut self, name: &[u8], values: &[Vec<u8>]) -> Result<Took, String> {
        let is = |known: &&str| known.as_bytes().eq_ignore_ascii_case(name);
        let wrong = || String::from("wrong number of arguments");
        if is(&"user") {
            return self.user(values).map(|()| Took::Other);
        }
        if is(&"rename-command") {
            let [old, new] = values else {
                return Err(wrong());
            };
            let renamed = self.settings.names.rename(old, new);
            return renamed.map(|()| Took::Other).map_err(str::to_owned);
        }
        let Some(parameter) = find(name) else {
            if table::RETIRED_DIRECTIVES.iter().any(is) {
                return Ok(Took::Retired);
            }
            let unbuilt = table::UNBUILT_DIRECTIVES
                .iter()
                .find(|(known, _)| is(known));
            return match unbuilt {
                Some((_, part)) => Ok(Took::Unbuilt(not_built(part))),
                None => Err(unknown(name)),
            };
        };
        if values.is_empty() && parameter.needs_words {
            return Err(wrong());
        }
        let values: Vec<&[u8]> = match values {
            // Several words in quotes are several words, as for CONFIG SET.
            [one] if !one.is_empty() => words_of(parameter, one),
            _ => values.iter().map(Vec::as_slice).collect(),
        };
        // The first line replaces the default.
        match self.last.insert(parameter.name, self.directives.len()) {
            Some(_) => parameter.add(&mut self.settings, &values)?,
            None => parameter.set(&mut self.settings, &values)?,
        }
        Ok(Took::Parameter(parameter))
    }

    fn took(&mut self, place: Place, took: Took) {
        self.faults += usize::from(matches!(took, Took::Refused(_) | Took::Unbuilt(_)));
        self.directives.push(Directive { place, took });
    }

    /// Adds a user. Its rules are tried, so that a wrong one is reported with its line.
    fn user(&mut self, words: &[Vec<u8>]) -> Result<(), String> {
        let Some((name, rules)) = words.split_first() else {
            return Err("wrong number of arguments".into());
        };
        let is_name = redline_acl::is_user_name(name);
        // An invalid name may be a whole line in quotes.
        let declared = String::from_utf8_lossy(if is_name { name.as_slice() } else { REDACTED });
        let wrong = |why: String| Err(format!("Error in user declaration '{declared}': {why}"));
        if !is_name {
            return wrong("Spaces not allowed in ACL usernames".into());
        }
        if !self.user_names.insert(name.clone()) {
            return wrong(redline_acl::RuleError::DuplicateUser.to_string());
        }
        let slices: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
        self.settings.acl_user_lines.push(UserLine {
            name: name.clone(),
            rules: rules.to_vec(),
        });
        let dialect = self.settings.acl_dialect();
        let tried = redline_acl::Users::new(&dialect).set(b"a", &slices, &dialect);
        tried.or_else(|error| {
            wrong(match error {
                SetUserError::Rule(rule, why) if !is_open_rule(&rule) => {
                    SetUserError::Rule(REDACTED.to_vec(), why).to_string()
                }
                error => error.to_string(),
            })
        })
    }

    /// Returns the settings, if nothing was refused and no part is needed that does not exist; else the refusals, one a
    /// line.
    pub fn finish(self) -> Result<Settings, String> {
        let loaded = self.loaded();
        match loaded.faults().collect::<Vec<_>>() {
            none if none.is_empty() => Ok(loaded.settings),
            faults => Err(faults.join("\n")),
        }
    }

    /// Returns the settings with what became of each directive.
    pub fn loaded(mut self) -> Loaded {
        for (name, at) in &self.last {
            let parameter = find(name.as_bytes()).expect("only known parameters are set");
            if let Err(why) = parameter.check_built(&self.settings)
                && !matches!(self.directives[*at].took, Took::Refused(_))
            {
                self.directives[*at].took = Took::Unbuilt(why);
            }
        }
        Loaded {
            settings: self.settings,
            directives: self.directives,
        }
    }

    fn include(&mut self, place: Place, values: &[Vec<u8>]) {
        let [path] = values else {
            return self.took(place, Took::Refused("wrong number of arguments".into()));
        };
        let path = Path::new(OsStr::from_bytes(path));
        if self.depth == DEPTH_MAX {
            let why = format!("more than {DEPTH_MAX} includes within each other");
            return self.took(place, Took::Refused(why));
        }
        self.depth += 1;
        let paths = match has_wildcards(path.as_os_str()) {
            false => vec![path.to_owned()],
            true => matching(path),
        };
        for path in paths {
            if let Err(why) = self.file(&path) {
                self.took(place.clone(), Took::Refused(why));
            }
        }
        self.depth -= 1;
    }
}

fn has_wildcards(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// Returns the existing paths that match a path with wildcards, by name; there may be none. A name that begins with a
/// dot is found only by a pattern that does.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        if !has_wildcards(part) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        found = found
            .iter()
            .flat_map(|folder| entries_like(folder, part))
            .collect();
    }
    found.retain(|path| path.exists());
    found.sort();
    found
}

fn entries_like(folder: &Path, pattern: &OsStr) -> Vec<PathBuf> {
    let pattern = pattern.as_bytes();
    let readable = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let Ok(entries) = fs::read_dir(readable) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    names
        .filter(|name| pattern.starts_with(b".") || !name.as_bytes().starts_with(b"."))
        .filter(|name| glob::matches(pattern, name.as_bytes(), Case::Sensitive))
        .map(|name| folder.join(name))
        .collect()
}

/// Returns a word as it is written to a file: in quotes where it needs them.
pub fn quoted(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if !word.is_empty() && word[0] != b'#' && word.iter().all(plain) {
        return word.to_vec();
    }
    in_quotes(word)
}

/// Returns a word in quotes, needed or not.
pub fn in_quotes(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    quote(word, &mut out);
    out
}

/// Returns the part of a line that a refusal shows: all of it, if it sets a parameter that is no secret. Of any other,
/// the beginning of its first word that may be a directive's name: the rest may be a password, also behind a name that
/// is misspelt.
pub fn shown(line: &[u8]) -> Cow<'_, str> {
    let first = line.split(u8::is_ascii_whitespace).next();
    let first = first.unwrap_or_default();
    if find(first).is_some_and(|parameter| !parameter.secret) {
        return String::from_utf8_lossy(line);
    }
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    let end = first.iter().position(|byte| !is_of_name(byte));
    String::from_utf8_lossy(&first[..end.unwrap_or(first.len())])
}

/// Returns true if a rule of a user is one of those for commands, keys and channels. Another may be a password, or a
/// part of one.
fn is_open_rule(rule: &[u8]) -> bool {
    matches!(rule, [b'+' | b'-' | b'~' | b'%' | b'&', ..])
}

/// Returns the error for an unknown directive: Redis's words, and a suggestion.
fn unknown(name: &[u8]) -> String {
    let known = table::ROWS.iter().flat_map(|row| row.names());
    let known = known.chain(["include", "user", "rename-command"]);
    let meant = nearest(&String::from_utf8_lossy(name), known);
    let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?"));
    format!(
        "Bad directive or wrong number of arguments{}",
        meant.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Settings, String> {
        let mut loader = Loader::default();
        loader.text("r.conf", text.as_bytes());
        loader.finish()
    }

    #[test]
    fn addresses_beyond_those_that_are_told_apart_were_taken() {
        for name in ["bind", "metrics-bind"] {
            let line = |count| format!("{name}{}", " 127.0.0.1".repeat(count));
            assert!(load(&line(16)).is_ok());
            let refused = load(&line(17)).unwrap_err();
            assert!(
                refused.ends_with(": Too many bind addresses specified."),
                "{refused}"
            );
        }
    }

    #[test]
    fn databases_beyond_all_memory_were_taken() {
        assert_eq!(load("databases 1048576").unwrap().databases, 1 << 20);
        for number in ["1048577", "2147483647", "0"] {
            let error = load(&format!("databases {number}")).unwrap_err();
            let bounds = "argument must be between 1 and 1048576 inclusive";
            assert!(error.contains(bounds), "{error}");
        }
    }

    #[test]
    fn what_is_quoted_is_read_back() {
        for word in [
            &b""[..],
            b"plain",
            b"a b",
            b"\"",
            b"\\x",
            b"\x00\xff\r\n",
            b"#x",
            b"it's",
        ] {
            assert_eq!(
                split_words(&quoted(word)),
                Some(vec![word.to_vec()]),
                "{word:?}"
            );
        }
    }

    #[test]
    fn lines_set_parameters() {
        let settings = load(
            "# a comment\n\nPort 7001\r\n  maxmemory 1mb\nbind 127.0.0.1 ::1\nsave 60 1\nsave \"\"\nappendonly no\n",
        )
        .unwrap();
        assert_eq!(settings.port, Some(7001));
        assert_eq!(settings.maxmemory_bytes, 1 << 20);
        assert_eq!(settings.bind, ["127.0.0.1", "::1"]);
    }

    #[test]
    fn lines_of_save_points_add_up() {
        let saved = |text: &str| load(text).unwrap().save_points;
        assert_eq!(saved("save 900 1\n"), [(900, 1)], "the default is gone");
        assert_eq!(
            saved("save 900 1\nsave 300 10 60 10000\n"),
            [(900, 1), (300, 10), (60, 10_000)]
        );
        assert_eq!(saved("save 900 1\nsave \"\"\n"), []);
        assert_eq!(saved("save 900 1\nsave \"\"\nsave 300 10\n"), [(300, 10)]);
    }

    #[test]
    fn several_words_in_one_argument_were_one() {
        let settings = load("bind \"127.0.0.1 ::1\"\nshutdown-on-sigterm \"nosave force\"\n");
        assert_eq!(settings.unwrap().bind, ["127.0.0.1", "::1"]);
    }

    #[test]
    fn a_parameter_of_several_words_may_have_none() {
        let settings =
            load("save\nclient-output-buffer-limit\nlatency-tracking-info-percentiles\n");
        assert!(settings.is_ok(), "{:?}", settings.err());
    }

    #[test]
    fn a_refusal_names_file_and_line() {
        for (text, line) in [
            (
                "\nport x",
                "r.conf:2: port x: argument couldn't be parsed into an integer",
            ),
            ("port 1 2", "r.conf:1: port 1 2: wrong number of arguments"),
            ("port", "r.conf:1: port: wrong number of arguments"),
            (
                "shutdown-on-sigterm",
                "r.conf:1: shutdown-on-sigterm: argument(s) must be one of the following: default, save, nosave, now, force",
            ),
            (
                "port \"1",
                "r.conf:1: port \"1: Unbalanced quotes in configuration line",
            ),
            (
                "foo bar",
                "r.conf:1: foo: Bad directive or wrong number of arguments",
            ),
            (
                "max-memory 1gb",
                "r.conf:1: max-memory: Bad directive or wrong number of arguments; did you mean \"maxmemory\"?",
            ),
            (
                "port 1\nmptcp yes",
                "r.conf:2: mptcp yes: Multipath TCP is not built yet",
            ),
            (
                "replicaof a b",
                "r.conf:1: replicaof a b: Invalid master port",
            ),
            (
                "replicaof",
                "r.conf:1: replicaof: wrong number of arguments",
            ),
            (
                "slaveof a",
                "r.conf:1: slaveof a: wrong number of arguments",
            ),
            (
                "loadmodule x",
                "r.conf:1: loadmodule: modules are not built yet",
            ),
            (
                "user a on +foo",
                "r.conf:1: user: Error in user declaration 'a': Error in ACL SETUSER modifier '+foo': Unknown command or category name in ACL",
            ),
            (
                "user a on\nuser a off",
                "r.conf:2: user: Error in user declaration 'a': Duplicate user found. A user can only be defined once in config files",
            ),
            ("user", "r.conf:1: user: wrong number of arguments"),
            (
                "rename-command nosuch x",
                "r.conf:1: rename-command: No such command in rename-command",
            ),
        ] {
            assert_eq!(load(text).unwrap_err(), line);
        }
    }

    #[test]
    fn refusals_showed_passwords() {
        for text in [
            "requirepass 5417 x",
            "REQUIREPASS 5417 x",
            "\"requirepass\" 5417 x",
            "requirepass \"5417",
            "\"requirepass\" \"5417",
            "requirepass '5417'x",
            "requirepas 5417",
            "requirepass=5417",
            "requirepass:5417 x",
            "requirepass\x0b5417 x",
            "masterauth 5417 x",
            "tls-key-file-pass 5417 x",
            "masteruser 5417 x",
            "user alice >5417 badrule",
            "user alice on #5417",
            "user alice on <5417",
            "user alice on >my 5417",
            "user alice (+get >5417)",
            "user alice (+get >5417",
            "user \"alice >5417\"",
            "user alice >\"5417",
            "user a\nuser a >5417",
            "sentinel auth-pass mine 5417",
            "rename-command nosuch 5417",
            "rename-command CONFIG 5417 x",
        ] {
            let said = load(text).unwrap_err();
            assert!(!said.contains("5417"), "{said}");
            assert!(said.starts_with("r.conf:"), "{said}");
        }
        let said = load("requirepass a b").unwrap_err();
        assert_eq!(said, "r.conf:1: requirepass: wrong number of arguments");
        let said = load("\"requirepass\" \"a").unwrap_err();
        assert_eq!(said, "r.conf:1: Unbalanced quotes in configuration line");
    }
}
