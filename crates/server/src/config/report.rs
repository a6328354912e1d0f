//! The effect of a configuration: each directive of its files and its command line, and whether it has an effect.
//!
//! Must not know: any parameter, how files are read.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::{self, Write as _},
    path::PathBuf,
};

use super::{Class, Parameter};
use crate::{log::quoted, settings::Settings};

/// Where a directive stands.
#[derive(Clone, Debug)]
pub struct Place {
    /// File and line; none: the command line.
    pub line: Option<String>,
    /// The directive, as far as it cannot contain a secret.
    pub shown: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) if self.shown.is_empty() => f.write_str(line),
            Some(line) => write!(f, "{line}: {}", self.shown),
            None => f.write_str(&self.shown),
        }
    }
}

/// A directive that was read.
pub struct Directive {
    /// Where it stands.
    pub place: Place,
    /// The result of reading it.
    pub took: Took,
}

/// The result of reading a directive.
pub enum Took {
    /// It has set a parameter.
    Parameter(&'static Parameter),
    /// It has defined a user, or renamed a command.
    Other,
    /// Redis has retired it, and accepts it.
    Retired,
    /// It was refused, for this reason.
    Refused(String),
    /// It was refused, since it needs a part that is not built.
    Unbuilt(String),
}

/// Settings, and what became of each directive.
pub struct Loaded {
    /// The settings; without those that were refused.
    pub settings: Settings,
    /// Directives in the order in which they were read.
    pub directives: Vec<Directive>,
}

/// The effect of a directive in the end.
pub enum Outcome<'a> {
    /// A parameter has another value than its default.
    Changed,
    /// It is the default.
    Same,
    /// No effect, and the reason.
    NoEffect(Cow<'a, str>),
    /// A later directive sets the same parameter.
    Replaced(&'a Place),
    /// It was refused, for this reason.
    Fault(&'a str),
    /// A fault: it needs a part that is not built.
    Unbuilt(&'a str),
}

impl Loaded {
    /// Returns the refusals: place and reason.
    pub fn faults(&self) -> impl Iterator<Item = String> {
        self.directives.iter().filter_map(|one| match &one.took {
            Took::Refused(why) | Took::Unbuilt(why) => Some(format!("{}: {why}", one.place)),
            _ => None,
        })
    }

    /// Returns the files that were read, each once.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        let lines = self
            .directives
            .iter()
            .filter_map(|one| one.place.line.as_ref());
        let files = lines.filter_map(|line| line.rsplit_once(':'));
        files
            .map(|(file, _)| PathBuf::from(file))
            .filter(|file| file.is_file())
            .collect()
    }

    /// Returns true if a directive has no effect.
    pub fn has_idle(&self) -> bool {
        let mut all = self.outcomes();
        all.any(|(_, outcome)| matches!(outcome, Outcome::NoEffect(_)))
    }

    /// Returns each directive with its effect.
    pub fn outcomes(&self) -> impl Iterator<Item = (&Place, Outcome<'_>)> {
        let all = self.directives.iter().enumerate();
        all.map(|(at, one)| (&one.place, self.outcome(at)))
    }

    fn outcome(&self, at: usize) -> Outcome<'_> {
        let parameter = match &self.directives[at].took {
            Took::Refused(why) => return Outcome::Fault(why),
            Took::Unbuilt(why) => return Outcome::Unbuilt(why),
            Took::Retired => return Outcome::NoEffect("Redis has retired it.".into()),
            Took::Other => return Outcome::Changed,
            Took::Parameter(parameter) => *parameter,
        };
        let sets_the_same = |other: &&Directive| {
            let Took::Parameter(other) = other.took else {
                return false;
            };
            other.name == parameter.name
        };
        let last = self.directives[at + 1..].iter().rfind(sets_the_same);
        match last {
            Some(last) if !has_several_lines(parameter) => Outcome::Replaced(&last.place),
            _ if !parameter.is_effective() => Outcome::NoEffect(why_idle(parameter)),
            _ if parameter.text(&self.settings) == parameter.default.as_bytes() => Outcome::Same,
            _ => Outcome::Changed,
        }
    }

    /// Returns the report as text; there are no faults.
    pub fn text(&self) -> String {
        let listed = |wanted: fn(&Outcome<'_>) -> bool| {
            let all = self.outcomes();
            all.filter(move |(_, outcome)| wanted(outcome)).count()
        };
        let count = self.directives.len();
        let mut text = format!(
            "The configuration is valid: {count} directive{}",
            if count == 1 { "" } else { "s" }
        );
        let (changed, same) = (
            listed(|one| matches!(one, Outcome::Changed)),
            listed(|one| matches!(one, Outcome::Same)),
        );
        let (idle, replaced) = (
            listed(|one| matches!(one, Outcome::NoEffect(_))),
            listed(|one| matches!(one, Outcome::Replaced(_))),
        );
        let parts = [
            (changed, "changes a default", "change a default"),
            (same, "repeats it", "repeat it"),
            (idle, "has no effect", "have no effect"),
            (
                replaced,
                "is replaced by a later one",
                "are replaced by later ones",
            ),
        ];
        let mut parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
            .collect();
        if let Some(last) = parts.pop() {
            text += ", of which ";
            if !parts.is_empty() {
                text += &format!("{} and ", parts.join(", "));
            }
            text += &last;
        }
        text += ".\n";
        self.list(&mut text, "Changed from the default", |one| match one {
            Outcome::Changed => Some(None),
            _ => None,
        });
        self.list(&mut text, "Without effect here", |one| match one {
            Outcome::NoEffect(why) => Some(Some(format!("\n      {why}"))),
            _ => None,
        });
        self.list(
            &mut text,
            "Replaced by a later directive",
            |one| match one {
                Outcome::Replaced(later) => Some(Some(format!(
                    " (see {})",
                    later.line.as_deref().unwrap_or(&later.shown)
                ))),
                _ => None,
            },
        );
        self.list(&mut text, "Same as the default", |one| match one {
            Outcome::Same => Some(None),
            _ => None,
        });
        text
    }

    /// Adds the directives of one kind, each with what `more` returns for it.
    fn list(
        &self,
        text: &mut String,
        title: &str,
        more: impl Fn(Outcome<'_>) -> Option<Option<String>>,
    ) {
        let mut is_first = true;
        for (place, outcome) in self.outcomes() {
            let Some(more) = more(outcome) else { continue };
            if is_first {
                let _ = write!(text, "\n{title}:\n");
            }
            is_first = false;
            let _ = writeln!(text, "  {place}{}", more.unwrap_or_default());
        }
    }

    /// Returns the report as JSON. `more`: faults that belong to no directive.
    pub fn json(&self, more: &[String]) -> String {
        let lines = self.outcomes().map(|(place, outcome)| {
            let (name, why) = match outcome {
                Outcome::Changed => ("changed", None),
                Outcome::Same => ("default", None),
                Outcome::NoEffect(why) => ("no-effect", Some(why.into_owned())),
                Outcome::Replaced(later) => ("replaced", Some(format!("by {later}"))),
                Outcome::Fault(why) | Outcome::Unbuilt(why) => ("fault", Some(why.to_owned())),
            };
            let why = why.map(|why| format!(", \"why\": {}", quoted(&why)));
            format!(
                "    {{\"place\": {}, \"directive\": {}, \"outcome\": \"{name}\"{}}}",
                quoted(place.line.as_deref().unwrap_or("command line")),
                quoted(&place.shown),
                why.unwrap_or_default()
            )
        });
        let lines: Vec<String> = lines.collect();
        let faults: Vec<String> = self.faults().chain(more.iter().cloned()).collect();
        let faults_text: Vec<String> = faults.iter().map(|fault| quoted(fault)).collect();
        format!(
            "{{\n  \"valid\": {},\n  \"faults\": [{}],\n  \"lines\": [\n{}\n  ]\n}}\n",
            faults.is_empty(),
            faults_text.join(", "),
            lines.join(",\n")
        )
    }
}

/// Returns true if a line of the parameter leaves what others have set.
fn has_several_lines(parameter: &Parameter) -> bool {
    parameter.adds_up || parameter.lines.is_some()
}

/// Returns why a parameter has no effect: what it is for, and what is here instead of it.
fn why_idle(parameter: &Parameter) -> Cow<'static, str> {
    match parameter.doc.contains(": ") {
        true => parameter.doc.into(),
        false => format!("{} That is not built.", parameter.doc).into(),
    }
}

/// Returns a line on the parameters that were set to another value than Redis's default and have no effect, if there are
/// any.
pub fn asked_in_vain(settings: &Settings) -> Option<String> {
    let rows = super::table::ROWS.iter();
    let in_vain = rows.filter(|row| !matches!(row.class, Class::Live | Class::Start));
    let in_vain = in_vain.filter(|row| row.text(settings) != row.default.as_bytes());
    let words: Vec<String> = in_vain
        .map(|row| {
            let value = row.text(settings);
            format!("{} {}", row.name, String::from_utf8_lossy(&value))
        })
        .collect();
    match words.is_empty() {
        true => None,
        false => Some(format!(
            "Without effect here: {} (--check-config says why)",
            words.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::Loader;

    #[test]
    fn lines_of_one_parameter_that_add_up_were_called_replaced() {
        let mut loader = Loader::default();
        let text = "save 60 1\nsave 9 9\nclient-output-buffer-limit normal 1 1 1\nclient-output-buffer-limit pubsub 1 1 1\n";
        loader.text("r.conf", text.as_bytes());
        let report = loader.loaded().text();
        assert!(
            report.contains("4 directives, of which 4 change a default.\n"),
            "{report}"
        );
    }

    #[test]
    fn nothing_at_all_is_valid() {
        let report = Loader::default().loaded();
        assert_eq!(report.text(), "The configuration is valid: 0 directives.\n");
        assert!(!report.has_idle() && report.json(&[]).contains("\"valid\": true"));
    }
}
