//! The configuration table: one row per parameter, and everything that comes out of it.
//!
//! Start in [`table`] for the rows. CONFIG GET and SET, CONFIG REWRITE, the configuration file, the command line
//! and `--help` are all derived from it. A parameter without effect keeps its value in [`Settings::kept`], so that
//! CONFIG GET shows what was set.
//!
//! Must not know: workers, sessions, sockets.

pub mod file;
pub mod rewrite;
pub mod table;
pub mod value;

use std::collections::BTreeMap;

use crate::settings::Settings;
use value::{Refusal, Syntax, Value, Words};

/// When a change of a parameter takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// At once, by CONFIG SET.
    Live,
    /// At the start only.
    Start,
    /// Never: accepted so that files written for Redis work.
    Inert,
    /// Never, and CONFIG SET refuses to change it, as Redis does.
    InertFixed,
}

/// One parameter.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Another name for the same: an older one, or a newer one of Valkey's.
    pub alias: Option<&'static str>,
    /// When it takes effect.
    pub class: Class,
    /// Values that the parameter takes.
    pub syntax: Syntax,
    /// Default value.
    pub default: &'static str,
    /// Description of the parameter's effect.
    pub doc: &'static str,
    /// CONFIG SET needs `enable-protected-configs`.
    pub protected: bool,
    /// Its value is a secret: logs do not show it.
    pub secret: bool,
    /// Several lines of a file add up.
    pub adds_up: bool,
    /// A smaller number means this one.
    raised_to: Option<i64>,
    /// Where its value is kept, if it has an effect.
    field: Option<Field>,
    /// The part that it would configure, if that part does not exist yet.
    unbuilt: Option<Unbuilt>,
}

/// A parameter's place in [`Settings`].
#[derive(Clone, Copy)]
struct Field {
    read: fn(&Settings) -> Value,
    write: fn(&mut Settings, &Value) -> Result<(), Refusal>,
}

/// A part that does not exist yet, and the values that do not need it.
#[derive(Clone, Copy)]
struct Unbuilt {
    part: &'static str,
    harmless: fn(&[u8]) -> bool,
}

/// Values of parameters without effect, where they were set.
pub type Kept = BTreeMap<&'static str, Value>;

/// The parameter of that name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Parameter> {
    table::ROWS.iter().find(|row| {
        row.names()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    })
}

impl Parameter {
    /// Its name, and the other one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.alias)
    }

    /// Does it say how connections with TLS are made? Then they are prepared anew when it is set, also to the same value:
    /// a file of that name may have become another. How often the files are looked at is another matter.
    pub fn concerns_tls(&self) -> bool {
        self.name.starts_with("tls-") && self.name != "tls-auto-reload-interval"
    }

    /// May CONFIG SET change it?
    pub fn is_immutable(&self) -> bool {
        matches!(self.class, Class::Start | Class::InertFixed)
    }

    /// Its value.
    pub fn value(&self, settings: &Settings) -> Value {
        match self.field {
            Some(field) => (field.read)(settings),
            None => settings
                .kept
                .get(self.name)
                .cloned()
                .unwrap_or_else(|| self.default_value()),
        }
    }

    /// Its value as CONFIG GET shows it.
    pub fn text(&self, settings: &Settings) -> Vec<u8> {
        self.syntax.text(&self.value(settings))
    }

    /// Reads `words` and stores what they say.
    pub fn set(&self, settings: &mut Settings, words: &Words<'_>) -> Result<(), Refusal> {
        let mut value = self.syntax.parse(words)?;
        if let (Some(least), Value::Integer(number)) = (self.raised_to, &mut value) {
            *number = least.max(*number);
        }
        match self.field {
            Some(field) => (field.write)(settings, &value),
            None => {
                settings.kept.insert(self.name, value);
                Ok(())
            }
        }
    }

    /// The same for a line of a file, after earlier lines: of some parameters the lines add up.
    pub fn add(&self, settings: &mut Settings, words: &Words<'_>) -> Result<(), Refusal> {
        if !self.adds_up || self.field.is_some() {
            return self.set(settings, words);
        }
        let Value::Words(more) = self.syntax.parse(words)? else {
            return self.set(settings, words);
        };
        let kept = settings
            .kept
            .entry(self.name)
            .or_insert(Value::Words(Vec::new()));
        match kept {
            Value::Words(all) if !more.is_empty() => all.extend(more),
            kept => *kept = Value::Words(more),
        }
        Ok(())
    }

    /// Says which part is missing if the value needs one that does not exist.
    pub fn check_built(&self, settings: &Settings) -> Result<(), Refusal> {
        match self.unbuilt {
            Some(unbuilt) if !(unbuilt.harmless)(&self.text(settings)) => {
                Err(not_built(unbuilt.part))
            }
            _ => Ok(()),
        }
    }

    /// The part that it would configure, if that does not exist yet.
    pub fn unbuilt_part(&self) -> Option<&'static str> {
        self.unbuilt.map(|unbuilt| unbuilt.part)
    }

    fn default_value(&self) -> Value {
        let words: Vec<&[u8]> = match self.syntax.is_wordy() {
            true => self
                .default
                .split(' ')
                .filter(|w| !w.is_empty())
                .map(str::as_bytes)
                .collect(),
            false => vec![self.default.as_bytes()],
        };
        self.syntax
            .parse(&words)
            .expect("a test reads every row's default")
    }
}

/// Returns the refusal for a part that is not implemented yet.
fn not_built(part: &str) -> Refusal {
    let verb = if part.ends_with('s') { "are" } else { "is" };
    format!("{part} {verb} not built yet")
}

/// Splits CONFIG SET's one argument as the parameter wants it.
pub fn words_of<'a>(parameter: &Parameter, argument: &'a [u8]) -> Vec<&'a [u8]> {
    match parameter.syntax.is_wordy() {
        true => argument.split(|byte| *byte == b' ').collect(),
        false => vec![argument],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_rows_say_something() {
        let mut seen = std::collections::HashSet::new();
        for row in table::ROWS {
            for name in row.names() {
                assert!(seen.insert(name), "{name} twice");
            }
            assert!(
                row.doc.ends_with('.') && row.doc.len() > 10,
                "{}: {}",
                row.name,
                row.doc
            );
            let effect = matches!(row.class, Class::Live | Class::Start);
            assert!(
                effect == row.field.is_some() || row.unbuilt.is_some(),
                "{}: a parameter has a field exactly if it has an effect",
                row.name
            );
        }
    }

    #[test]
    fn defaults_are_what_the_settings_begin_with() {
        let settings = Settings::default();
        for row in table::ROWS.iter().filter(|row| row.name != "dir") {
            let shown = String::from_utf8(row.text(&settings)).unwrap();
            assert_eq!(shown, row.default, "{}", row.name);
            assert_eq!(
                row.syntax.text(&row.default_value()),
                row.default.as_bytes(),
                "{}",
                row.name
            );
            assert_eq!(row.check_built(&settings), Ok(()), "{}", row.name);
        }
    }

    #[test]
    fn what_is_shown_can_be_set() {
        for row in table::ROWS.iter().filter(|row| row.name != "dir") {
            let mut settings = Settings::default();
            let words = words_of(row, row.default.as_bytes());
            row.set(&mut settings, &words)
                .unwrap_or_else(|e| panic!("{}: {e}", row.name));
            assert_eq!(row.text(&settings), row.default.as_bytes(), "{}", row.name);
        }
    }
}
