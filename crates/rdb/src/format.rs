//! The versions of the format of files, and the parts of which the forms of values consist. Must not know single
//! types, nor how a file is read or written.

use std::fmt;

/// A version of the format, with the server whose count it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileVersion {
    /// A version of Redis, and of Valkey before 9; at most 9999.
    Redis(u16),
    /// A version of Valkey since 9; at most 999.
    Valkey(u16),
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Version of the file, which decides the forms of values.
    pub version: FileVersion,
    /// Long strings are compressed, where that helps (`rdbcompression`). Whoever creates a
    /// [`Writer`](crate::primitive::Writer) for the file hands this on to it.
    pub compresses: bool,
    /// The file ends with a checksum (`rdbchecksum`); without one, zeros stand in its place.
    pub checksums: bool,
}

/// Number of bytes before everything else in a file.
pub const MAGIC_BYTES: usize = 9;

/// Version since which a file ends with a checksum.
const CHECKSUM_SINCE: u16 = 5;
/// Version since which a file may hold libraries of functions.
const FUNCTIONS_SINCE: u16 = 10;
/// The version of Redis from which Valkey's own count went on.
const VALKEY_FROM: u16 = 11;

impl FileVersion {
    /// The version that holds every value; that of payloads.
    pub const LATEST: FileVersion = FileVersion::Redis(crate::VERSION);
    /// The one version of Valkey's own count that is read.
    pub const VALKEY: FileVersion = FileVersion::Valkey(80);

    /// Returns the version that a file names in its first bytes; `None` if they are not those of such a file.
    pub fn of_magic(magic: &[u8; MAGIC_BYTES]) -> Option<FileVersion> {
        let number = |digits: &[u8]| {
            let digits = digits.iter().map(|digit| match digit {
                b'0'..=b'9' => Some(u16::from(digit - b'0')),
                _ => None,
            });
            digits
                .into_iter()
                .try_fold(0, |number, digit| Some(number * 10 + digit?))
        };
        match magic {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => number(digits).map(FileVersion::Redis),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => {
                number(digits).map(FileVersion::Valkey)
            }
            _ => None,
        }
    }

    /// Returns the first bytes of a file.
    pub fn magic(self) -> [u8; MAGIC_BYTES] {
        let (mut magic, mut number, digits_from) = match self {
            FileVersion::Redis(number) => (*b"REDIS0000", number, 5),
            FileVersion::Valkey(number) => (*b"VALKEY000", number, 6),
        };
        for digit in magic[digits_from..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        magic
    }

    /// Returns true if files of this version can be read.
    pub fn is_read(self) -> bool {
        match self {
            FileVersion::Redis(number) => (1..=crate::VERSION).contains(&number),
            FileVersion::Valkey(_) => self == FileVersion::VALKEY,
        }
    }

    /// Returns true if libraries of functions can be written to files of this version.
    pub fn has_functions(self) -> bool {
        self.redis_forms() >= FUNCTIONS_SINCE
    }

    /// Returns true if a file of this version ends with a checksum, or zeros.
    pub fn has_checksum(self) -> bool {
        self.redis_forms() >= CHECKSUM_SINCE
    }

    /// Returns the version of Redis whose forms of values are in this one.
    pub fn redis_forms(self) -> u16 {
        match self {
            FileVersion::Redis(number) => number,
            FileVersion::Valkey(_) => VALKEY_FROM,
        }
    }
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileVersion::Redis(number) => write!(f, "REDIS{number:04}"),
            FileVersion::Valkey(number) => write!(f, "VALKEY{number:03}"),
        }
    }
}

/// Error for a value that files of a version cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotTell {
    /// The kind of value, for a log.
    pub what: &'static str,
}

impl fmt::Display for CannotTell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a file of this version cannot hold {}", self.what)
    }
}

impl std::error::Error for CannotTell {}

/// A part of a form. From the parts follows where a value ends, without its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A number in the form of a length.
    Number,
    /// A string of any form.
    String,
    /// This number of bytes.
    Bytes(u8),
    /// A double as text.
    DoubleText,
    /// A number, and as many times these parts, which are at least one byte.
    Each(&'static [Part]),
    /// The name of a module's type, and a module's value.
    Module,
}

/// Name of a type of a module: nine characters of 6 bits, and the version of its form in 10 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleType(
    /// Number in which both travel.
    pub u64,
);

/// Characters of the names of modules' types, in the order of their numbers.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const NAME_LETTERS: usize = 9;
const LETTER_BITS: u32 = 6;
const VERSION_BITS: u32 = 10;

impl ModuleType {
    /// Returns the type of a name and a version.
    ///
    /// # Panics
    ///
    /// If the name has other than nine characters, or one that is no letter, digit, `-` or `_`; or the version is
    /// above 1023.
    pub const fn new(name: &str, version: u16) -> ModuleType {
        let name = name.as_bytes();
        assert!(name.len() == NAME_LETTERS, "nine characters");
        assert!(version < 1 << VERSION_BITS, "ten bits");
        let (mut number, mut at) = (0, 0);
        while at < name.len() {
            let mut letter = 0;
            while LETTERS[letter] != name[at] {
                letter += 1;
            }
            number = number << LETTER_BITS | letter as u64;
            at += 1;
        }
        ModuleType(number << VERSION_BITS | version as u64)
    }

    /// Returns the version of the form.
    pub const fn version(self) -> u16 {
        (self.0 & ((1 << VERSION_BITS) - 1)) as u16
    }

    /// Returns the name as a number.
    pub(crate) const fn name(self) -> u64 {
        self.0 >> VERSION_BITS
    }
}

/// The name.
impl fmt::Display for ModuleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in (0..NAME_LETTERS as u32).rev() {
            let letter = LETTERS[(self.name() >> (LETTER_BITS * place) & 63) as usize];
            write!(f, "{}", char::from(letter))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_comes_back() {
        for (version, magic) in [
            (FileVersion::Redis(1), b"REDIS0001"),
            (FileVersion::Redis(12), b"REDIS0012"),
            (FileVersion::Valkey(80), b"VALKEY080"),
        ] {
            assert_eq!(&version.magic(), magic);
            assert_eq!(FileVersion::of_magic(magic), Some(version));
            assert_eq!(version.to_string().as_bytes(), magic);
            assert!(version.is_read());
        }
        for magic in [b"REDIS001x", b"REDIS 012", b"VALKEY+80", b"redis0012"] {
            assert_eq!(FileVersion::of_magic(magic), None);
        }
        for version in [
            FileVersion::Redis(0),
            FileVersion::Redis(13),
            FileVersion::Redis(80),
            FileVersion::Valkey(11),
            FileVersion::Valkey(81),
        ] {
            assert!(!version.is_read(), "{version}");
        }
    }

    #[test]
    fn the_name_of_a_module_s_type_is_in_its_number() {
        assert_eq!(ModuleType(0xbde7_2da2_bb1e_b400).to_string(), "vectorset");
        assert_eq!(ModuleType::new("vectorset", 0).0, 0xbde7_2da2_bb1e_b400);
        assert_eq!(ModuleType::new("ReJSON-RL", 3).0, 0x45e2_5238_df91_2c03);
        assert_eq!(ModuleType::new("ReJSON-RL", 3).version(), 3);
    }
}
