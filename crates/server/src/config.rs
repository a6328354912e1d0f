//! The configuration table: one row per parameter, and everything derived from it.
//!
//! Start in [`table`] for the rows. The structures of settings and their defaults, CONFIG GET and SET, CONFIG REWRITE,
//! the configuration file, the command line and `--help` are all derived from them. A parameter without effect keeps
//! its value in [`Settings::kept`], so that CONFIG GET shows the value that was set.
//!
//! Must not know: workers, sessions, sockets.

mod checks;
mod codecs;
pub mod convert;
pub mod file;
pub mod report;
pub mod rewrite;
pub mod table;

use std::{collections::BTreeMap, ops::Deref};

pub use redline_settings::Class;
use redline_settings::{
    Field, Row, Setting,
    value::{RawValue, Refusal, Value},
};

use crate::settings::{ServiceSettings, Settings, TlsSettings};

/// One parameter of the server: a row, and the place of its value.
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Title of its section.
    pub section: &'static str,
    row: Row,
    place: Place,
}

/// The structure that holds a parameter's value.
#[derive(Clone, Copy)]
enum Place {
    Own(Field<Settings>),
    Engine(Field<redline_engine::Settings>),
    Process(Field<ServiceSettings>),
    Tls(Field<TlsSettings>),
    /// No structure: it has no effect.
    Kept,
}

/// Rows of one structure that stand together.
#[derive(Clone, Copy)]
pub enum Group {
    /// Rows of the server.
    Own(&'static [Setting<Settings>]),
    /// Rows of the engine.
    Engine(&'static [Setting<redline_engine::Settings>]),
    /// Rows of the process.
    Process(&'static [Setting<ServiceSettings>]),
    /// Rows of TLS.
    Tls(&'static [Setting<TlsSettings>]),
}

/// Groups under one title.
#[derive(Clone, Copy)]
pub struct Section {
    /// Title, as `--help` shows it.
    pub title: &'static str,
    /// Groups of the section.
    pub groups: &'static [Group],
}

/// Values of parameters without effect that were set.
pub type Kept = BTreeMap<&'static str, Value>;

/// Returns the parameter of that name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Parameter> {
    table::ROWS.iter().find(|row| {
        row.names()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    })
}

impl Group {
    const fn len(self) -> usize {
        match self {
            Group::Own(rows) => rows.len(),
            Group::Engine(rows) => rows.len(),
            Group::Process(rows) => rows.len(),
            Group::Tls(rows) => rows.len(),
        }
    }

    /// Returns the row at `at`, and its place.
    const fn at(self, at: usize) -> (Row, Place) {
        macro_rules! placed {
            ($rows:ident, $place:ident) => {
                match $rows[at].field {
                    Some(field) => ($rows[at].row, Place::$place(field)),
                    None => ($rows[at].row, Place::Kept),
                }
            };
        }
        match self {
            Group::Own(rows) => placed!(rows, Own),
            Group::Engine(rows) => placed!(rows, Engine),
            Group::Process(rows) => placed!(rows, Process),
            Group::Tls(rows) => placed!(rows, Tls),
        }
    }
}

/// Returns the number of rows.
const fn count(sections: &[Section]) -> usize {
    let (mut rows, mut section) = (0, 0);
    while section < sections.len() {
        let mut group = 0;
        while group < sections[section].groups.len() {
            rows += sections[section].groups[group].len();
            group += 1;
        }
        section += 1;
    }
    rows
}

/// Puts all rows into one array.
const fn assemble<const COUNT: usize>(sections: &[Section]) -> [Parameter; COUNT] {
    let (row, place) = sections[0].groups[0].at(0);
    let mut all = [Parameter {
        section: sections[0].title,
        row,
        place,
    }; COUNT];
    let (mut at, mut section) = (0, 0);
    while section < sections.len() {
        let Section { title, groups } = sections[section];
        let mut group = 0;
        while group < groups.len() {
            let mut next = 0;
            while next < groups[group].len() {
                let (row, place) = groups[group].at(next);
                all[at] = Parameter {
                    section: title,
                    row,
                    place,
                };
                (at, next) = (at + 1, next + 1);
            }
            group += 1;
        }
        section += 1;
    }
    all
}

impl Deref for Parameter {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

impl Parameter {
    /// Returns true if it is a setting of connections with TLS. Then these are prepared anew when it is set, also to
    /// the same value: the file of that name may have changed. The interval of checks of the files is not one.
    pub fn concerns_tls(&self) -> bool {
        self.name.starts_with("tls-") && self.name != "tls-auto-reload-interval"
    }

    /// Returns its value.
    pub fn value(&self, settings: &Settings) -> Value {
        match self.place {
            Place::Own(field) => field.value(settings),
            Place::Engine(field) => field.value(&settings.engine),
            Place::Process(field) => field.value(&settings.service),
            Place::Tls(field) => field.value(&settings.tls),
            Place::Kept => match settings.kept.get(self.name) {
                Some(value) => value.clone(),
                None => self.default_value(),
            },
        }
    }

    /// Returns its value as CONFIG GET shows it.
    pub fn text(&self, settings: &Settings) -> Vec<u8> {
        self.syntax.text(&self.value(settings))
    }

    /// Parses `words` and stores the value.
    pub fn set(&self, settings: &mut Settings, words: &RawValue<'_>) -> Result<(), Refusal> {
        let value = self.parse(words)?;
        match self.place {
            Place::Own(field) => field.set(settings, &value),
            Place::Engine(field) => field.set(&mut settings.engine, &value),
            Place::Process(field) => field.set(&mut settings.service, &value),
            Place::Tls(field) => field.set(&mut settings.tls, &value),
            Place::Kept => {
                settings.kept.insert(self.name, value);
                Ok(())
            }
        }
    }

    /// Does the same for a line that follows one of the same parameter: the lines of some add up.
    pub fn add(&self, settings: &mut Settings, words: &RawValue<'_>) -> Result<(), Refusal> {
        let (true, Value::Words(more)) = (self.adds_up, self.parse(words)?) else {
            return self.set(settings, words);
        };
        let (false, Value::Words(mut all)) = (more.is_empty(), self.value(settings)) else {
            return self.set(settings, words);
        };
        all.extend(more);
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        self.set(settings, &all)
    }

    /// Returns a refusal with the missing part if the value needs one that does not exist.
    pub fn check_built(&self, settings: &Settings) -> Result<(), Refusal> {
        match self.missing_part(&self.text(settings)) {
            Some(part) => Err(not_built(part)),
            None => Ok(()),
        }
    }
}

/// Returns the refusal for a part that is not implemented yet.
fn not_built(part: &str) -> Refusal {
    let verb = if part.ends_with('s') { "are" } else { "is" };
    format!("{part} {verb} not built yet")
}

/// Splits CONFIG SET's one argument by the parameter's syntax.
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
            let has_field = !matches!(row.place, Place::Kept);
            assert_eq!(
                row.is_effective(),
                has_field,
                "{}: a parameter has a field exactly if it has an effect",
                row.name
            );
        }
    }

    #[test]
    fn defaults_are_what_the_settings_begin_with() {
        let settings = Settings::default();
        let query_buffer = redline_resp::limits::QUERY_BUFFER_BYTES_MAX;
        assert_eq!(settings.query_buffer_bytes_max, query_buffer);
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
