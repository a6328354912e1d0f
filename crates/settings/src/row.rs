//! A parameter as a row. Must not know how rows are found or shown.

use crate::value::{RawValue, Refusal, Syntax, Value, default_of, numbers};

/// Time at which a change of a parameter takes effect.
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

/// Words of a line of a configuration file, after the name.
pub type Line = Vec<Vec<u8>>;

/// Facts about a parameter.
#[derive(Clone, Copy)]
pub struct Row {
    /// Name of the parameter.
    pub name: &'static str,
    /// Another name of it: an older one, or a newer one of Valkey's.
    pub alias: Option<&'static str>,
    /// Time at which a change takes effect.
    pub class: Class,
    /// Values that the parameter takes.
    pub syntax: Syntax,
    /// Default value.
    pub default: &'static str,
    /// Description of the parameter's effect.
    pub doc: &'static str,
    /// True if CONFIG SET needs `enable-protected-configs`.
    pub protected: bool,
    /// True if CONFIG SET is refused while data is loaded.
    pub rests_while_loading: bool,
    /// True if the value is a secret: logs do not show it.
    pub secret: bool,
    /// True if several lines of a file add up.
    pub adds_up: bool,
    /// True if CONFIG REWRITE adds its line even if the value is the default.
    pub always_written: bool,
    /// True if a line of a file needs a value, although CONFIG SET takes an empty one.
    pub needs_words: bool,
    /// Lines of a rewritten file; `None`: one line.
    pub lines: Option<fn(&Value) -> Vec<Line>>,
    /// Range of numbers; others mean its nearest end.
    within: Option<(i64, i64)>,
    /// Subsystem that it would configure, if that does not exist yet.
    unbuilt: Option<Unbuilt>,
}

/// A subsystem that does not exist yet, and the values that do not need it.
#[derive(Clone, Copy)]
struct Unbuilt {
    part: &'static str,
    harmless: fn(&[u8]) -> bool,
}

impl Row {
    /// Returns the name, and the other one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.alias)
    }

    /// Returns true if the parameter has an effect.
    pub fn is_effective(&self) -> bool {
        matches!(self.class, Class::Live | Class::Start)
    }

    /// Returns true if CONFIG SET may change it.
    pub fn is_immutable(&self) -> bool {
        matches!(self.class, Class::Start | Class::InertFixed)
    }

    /// Reads a value.
    pub fn parse(&self, words: &RawValue<'_>) -> Result<Value, Refusal> {
        let mut value = self.syntax.parse(words)?;
        if let (Some((least, most)), Value::Integer(number)) = (self.within, &mut value) {
            *number = (*number).clamp(least, most);
        }
        Ok(value)
    }

    /// Returns the values in words, for an operator; `None` for any text, and for words that a function checks.
    pub fn values(&self) -> Option<String> {
        match self.within {
            Some((least, most)) => Some(numbers(least, most)),
            None => self.syntax.values(),
        }
    }

    /// Returns the default, as a value.
    pub fn default_value(&self) -> Value {
        default_of(self.syntax, self.default)
    }

    /// Returns the subsystem that it would configure, if that does not exist yet.
    pub fn unbuilt_part(&self) -> Option<&'static str> {
        self.unbuilt.map(|unbuilt| unbuilt.part)
    }

    /// Returns the subsystem that a value needs and that does not exist yet.
    pub fn missing_part(&self, text: &[u8]) -> Option<&'static str> {
        let unbuilt = self.unbuilt.filter(|unbuilt| !(unbuilt.harmless)(text));
        unbuilt.map(|unbuilt| unbuilt.part)
    }
}

/// A row, and the field of `S` that it sets, if the parameter has an effect.
pub struct Setting<S: 'static> {
    /// Facts about the parameter.
    pub row: Row,
    /// Access to the field.
    pub field: Option<Field<S>>,
}

/// Access to a field of `S`.
pub struct Field<S: 'static> {
    read: fn(&S) -> Value,
    write: fn(&mut S, &Value) -> Result<(), Refusal>,
    then: Option<fn(&mut S)>,
}

impl<S> Clone for Field<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Field<S> {}

impl<S> Field<S> {
    /// Returns the value of the field.
    pub fn value(&self, settings: &S) -> Value {
        (self.read)(settings)
    }

    /// Writes the field, and applies the change.
    pub fn set(&self, settings: &mut S, value: &Value) -> Result<(), Refusal> {
        (self.write)(settings, value)?;
        if let Some(then) = self.then {
            then(settings);
        }
        Ok(())
    }
}

impl<S> Setting<S> {
    /// Creates a row without options; called by [`settings!`](crate::settings).
    pub const fn new(
        name: &'static str,
        class: Class,
        syntax: Syntax,
        default: &'static str,
        doc: &'static str,
    ) -> Setting<S> {
        Setting {
            row: Row {
                name,
                alias: None,
                class,
                syntax,
                default,
                doc,
                protected: false,
                rests_while_loading: false,
                secret: false,
                adds_up: false,
                always_written: false,
                needs_words: false,
                lines: None,
                within: None,
                unbuilt: None,
            },
            field: None,
        }
    }

    /// Sets the row's field; called by [`settings!`](crate::settings).
    pub const fn kept_in(
        mut self,
        read: fn(&S) -> Value,
        write: fn(&mut S, &Value) -> Result<(), Refusal>,
    ) -> Setting<S> {
        self.field = Some(Field {
            read,
            write,
            then: None,
        });
        self
    }

    /// Sets another name.
    pub const fn alias(mut self, name: &'static str) -> Setting<S> {
        self.row.alias = Some(name);
        self
    }

    /// Requires `enable-protected-configs` for CONFIG SET.
    pub const fn protected(mut self) -> Setting<S> {
        self.row.protected = true;
        self
    }

    /// Has CONFIG SET refused while data is loaded.
    pub const fn rests_while_loading(mut self) -> Setting<S> {
        self.row.rests_while_loading = true;
        self
    }

    /// Marks the value as a secret.
    pub const fn secret(mut self) -> Setting<S> {
        self.row.secret = true;
        self
    }

    /// Lets several lines of a file add up.
    pub const fn adds_up(mut self) -> Setting<S> {
        self.row.adds_up = true;
        self
    }

    /// Lets CONFIG REWRITE add the line even if the value is the default.
    pub const fn always_written(mut self) -> Setting<S> {
        self.row.always_written = true;
        self
    }

    /// Requires a value in a file's line, although CONFIG SET takes an empty one.
    pub const fn needs_words(mut self) -> Setting<S> {
        self.row.needs_words = true;
        self
    }

    /// Lets CONFIG REWRITE write several lines, which a function makes of the value.
    pub const fn lines(mut self, of: fn(&Value) -> Vec<Line>) -> Setting<S> {
        self.row.lines = Some(of);
        self
    }

    /// Sets a range: smaller and larger numbers mean its ends.
    pub const fn within(mut self, least: i64, most: i64) -> Setting<S> {
        self.row.within = Some((least, most));
        self
    }

    /// Names a subsystem that does not exist yet; `harmless` returns true for values that do not need it.
    pub const fn unbuilt(mut self, part: &'static str, harmless: fn(&[u8]) -> bool) -> Setting<S> {
        self.row.unbuilt = Some(Unbuilt { part, harmless });
        self
    }

    /// Sets a function that is called whenever the field was set.
    pub const fn then(mut self, function: fn(&mut S)) -> Setting<S> {
        let Some(field) = self.field else {
            panic!("a row without a field has no effect")
        };
        self.field = Some(Field {
            then: Some(function),
            ..field
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{settings, value::Unit};

    const SMALL: Syntax = Syntax::Integer {
        min: 0,
        max: 1000,
        unit: Unit::Plain,
        unsigned: false,
    };

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Colour {
        Red,
        Blue,
    }

    crate::choices! {
        Colour: Colour { "red" => Red, "blue" => Blue, "azure" => Blue }
    }

    #[derive(Debug, Default)]
    pub struct Inner {
        depth: u32,
    }

    settings! {
        /// Settings of this test.
        #[derive(Debug)]
        pub struct Toy {
            /// Something that no parameter sets.
            inner: Inner = Inner::default();
            /// Counts how often the width was set.
            width_changes: u32 = 0;
        }

        /// The only group.
        ALL = {
            width: u64 = ("width", Live, SMALL, "7", "Width of it.").alias("breadth").within(5, 10).then(|toy: &mut Toy| toy.width_changes += 1);
            colour: Colour as Colour = ("colour", Start, Syntax::Choice(Colour::NAMES), "red", "Colour of it.");
            [inner.depth]: u32 = ("depth", Live, SMALL, "3", "Depth of it.");
            _ = ("sound", Inert, Syntax::Switch, "no", "Sound of it.").secret();
        }
    }

    fn set(toy: &mut Toy, at: usize, word: &str) {
        let value = ALL[at].row.parse(&[word.as_bytes()]).unwrap();
        ALL[at].field.unwrap().set(toy, &value).unwrap();
    }

    #[test]
    fn a_row_gives_field_and_default() {
        let toy = Toy::default();
        assert_eq!((toy.width, toy.inner.depth), (7, 3));
        assert_eq!(toy.colour, Colour::Red);
        let [width, _, depth, sound] = ALL else {
            panic!("four rows")
        };
        assert_eq!(width.row.names().collect::<Vec<_>>(), ["width", "breadth"]);
        assert_eq!(depth.field.unwrap().value(&toy), Value::Integer(3));
        assert!(sound.field.is_none() && sound.row.secret);
    }

    #[test]
    fn what_is_set_is_read_within_its_bounds() {
        let mut toy = Toy::default();
        set(&mut toy, 0, "1000");
        assert_eq!((toy.width, toy.width_changes), (10, 1));
        set(&mut toy, 0, "0");
        assert_eq!((toy.width, toy.width_changes), (5, 2));
        set(&mut toy, 1, "azure");
        assert_eq!(toy.colour, Colour::Blue);
        let shown = ALL[1].field.unwrap().value(&toy);
        assert_eq!(ALL[1].row.syntax.text(&shown), b"blue");
        set(&mut toy, 2, "9");
        assert_eq!(toy.inner.depth, 9);
    }
}
