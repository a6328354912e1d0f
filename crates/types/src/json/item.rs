//! Values as a reader sees them: a view of a word of a document. Must not know how words are made, nor paths.

use std::{convert::Infallible, ops::Deref};

use super::{Block, Json, PAIR, Place, TAG_BITS};

/// Bytes of a string that count as one value where a search looks at them.
pub(super) const TEXT_BYTES: usize = 64;

/// A value.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer of 64 bits with a sign.
    Integer(i64),
    /// An integer above those.
    Unsigned(u64),
    /// Any other number.
    Double(f64),
    /// A string.
    String(Text<'a>),
    /// An array.
    Array(Array<'a>),
    /// An object.
    Object(Object<'a>),
}

impl Item<'_> {
    /// Returns the name that JSON.TYPE has for the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Item::Null => "null",
            Item::Bool(_) => "boolean",
            Item::Integer(_) | Item::Unsigned(_) => "integer",
            Item::Double(_) => "number",
            Item::String(_) => "string",
            Item::Array(_) => "array",
            Item::Object(_) => "object",
        }
    }

    /// Returns a number as a double; `None` for any other value.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Item::Integer(n) => Some(n as f64),
            Item::Unsigned(n) => Some(n as f64),
            Item::Double(n) => Some(n),
            _ => None,
        }
    }
}

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        let Ok(is_equal) = self.equals(other, &mut |_| Ok::<(), Infallible>(()));
        is_equal
    }
}

impl Item<'_> {
    /// Returns true if the values are equal. `look` is told how many values are looked at; a long string counts as several.
    ///
    /// # Errors
    ///
    /// That of `look`.
    pub(super) fn equals<E>(
        &self,
        other: &Item<'_>,
        look: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        look(1)?;
        Ok(match (self, other) {
            (Item::Null, Item::Null) => true,
            (Item::Bool(a), Item::Bool(b)) => a == b,
            (Item::Integer(a), Item::Integer(b)) => a == b,
            (Item::Unsigned(a), Item::Unsigned(b)) => a == b,
            (Item::Double(a), Item::Double(b)) => a == b,
            (Item::String(a), Item::String(b)) => {
                look(a.len().min(b.len()) / TEXT_BYTES)?;
                **a == **b
            }
            (Item::Array(a), Item::Array(b)) if a.len() == b.len() => {
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.equals(&b, look)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Item::Object(a), Item::Object(b)) if a.len() == b.len() => {
                for (name, value) in a.iter() {
                    let same = b.get(&name).map(|other| value.equals(&other, look));
                    if same.transpose()? != Some(true) {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }
}

/// The bytes of a string, which are UTF-8.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    /// Bytes of a word, behind the first one, which has their number.
    Word([u8; 8]),
    /// Bytes of the document.
    Bytes(&'a [u8]),
}

impl Deref for Text<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Text::Word(word) => &word[1..=usize::from(word[0] >> TAG_BITS)],
            Text::Bytes(bytes) => bytes,
        }
    }
}

/// An array of a document.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    pub(super) json: &'a Json,
    pub(super) block: Block,
}

impl<'a> Array<'a> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.block.len
    }

    /// Returns true if there is no element.
    pub fn is_empty(&self) -> bool {
        self.block.len == 0
    }

    /// Returns the place of an element.
    ///
    /// # Panics
    ///
    /// If the array is not that long.
    pub fn place(&self, at: usize) -> Place {
        assert!(at < self.block.len, "an element of the array");
        Place(self.block.first() + at)
    }

    /// Returns the elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let (json, first) = (self.json, self.block.first());
        (0..self.block.len).map(move |at| json.item(json.words[first + at]))
    }
}

/// An object of a document.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    pub(super) json: &'a Json,
    pub(super) block: Block,
}

impl<'a> Object<'a> {
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.block.len
    }

    /// Returns true if there is no member.
    pub fn is_empty(&self) -> bool {
        self.block.len == 0
    }

    /// Returns the name of the member at a position.
    ///
    /// # Panics
    ///
    /// If there are not that many.
    pub fn name(&self, at: usize) -> Text<'a> {
        assert!(at < self.block.len, "a member of the object");
        self.json
            .text_of(self.json.words[self.block.first() + PAIR * at])
    }

    /// Returns the place of the value of the member at a position.
    ///
    /// # Panics
    ///
    /// If there are not that many.
    pub fn place(&self, at: usize) -> Place {
        assert!(at < self.block.len, "a member of the object");
        Place(self.block.first() + PAIR * at + 1)
    }

    /// Returns the position of a member.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.json.find(self.block, name)
    }

    /// Returns the value of a member.
    pub fn get(&self, name: &[u8]) -> Option<Item<'a>> {
        self.find(name).map(|at| self.json.get(self.place(at)))
    }

    /// Returns the members in order.
    pub fn iter(&self) -> impl Iterator<Item = (Text<'a>, Item<'a>)> + use<'a> {
        let object = *self;
        (0..object.block.len).map(move |at| (object.name(at), object.json.get(object.place(at))))
    }
}
