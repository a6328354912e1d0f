//! Versioned symbols that a program needs of shared libraries, read from its ELF file: which glibc it starts with.
//!
//! Must not know which version is wanted.

use std::collections::HashMap;
use std::path::Path;

/// A symbol that a program needs of a shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Name of the symbol.
    pub name: String,
    /// Version, as `GLIBC_2.34`.
    pub version: String,
}

impl Needed {
    /// Returns the version of glibc, as (2, 34); `None`: it is another library's.
    pub fn glibc(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.strip_prefix("GLIBC_")?.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some((major, minor))
    }
}

const DYNSYM: u32 = 11;
const VERNEED: u32 = 0x6fff_fffe;
const VERSYM: u32 = 0x6fff_ffff;
/// Size of an entry of the table of symbols: bytes.
const SYMBOL_BYTES: usize = 24;

/// Returns the versioned symbols of a 64-bit ELF file of this machine's byte order.
pub fn needed(program: &Path) -> Result<Vec<Needed>, String> {
    let file = std::fs::read(program).map_err(|error| format!("{}: {error}", program.display()))?;
    parse(&file).ok_or_else(|| format!("{}: no ELF file that can be read", program.display()))
}

fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    let bytes = file.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn usize_at(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..at.checked_add(8)?)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// A section of the file.
#[derive(Clone, Copy)]
struct Section {
    kind: u32,
    at: usize,
    bytes: usize,
    link: usize,
    info: usize,
}

fn sections(file: &[u8]) -> Option<Vec<Section>> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size) = (usize_at(file, 0x28)?, usize::from(u16_at(file, 0x3a)?));
    let count = usize::from(u16_at(file, 0x3c)?);
    let one = |number: usize| {
        let at = table.checked_add(number * size)?;
        Some(Section {
            kind: u32_at(file, at + 4)?,
            at: usize_at(file, at + 0x18)?,
            bytes: usize_at(file, at + 0x20)?,
            link: u32_at(file, at + 0x28)? as usize,
            info: u32_at(file, at + 0x2c)? as usize,
        })
    };
    (0..count).map(one).collect()
}

fn parse(file: &[u8]) -> Option<Vec<Needed>> {
    let sections = sections(file)?;
    let of_kind = |kind| sections.iter().find(|section| section.kind == kind);
    let text = |table: usize, at: u32| {
        let section = sections.get(table)?;
        let end = section.at.checked_add(section.bytes)?;
        let bytes = file.get(section.at.checked_add(at as usize)?..end)?;
        let len = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
    };
    let (Some(symbols), Some(numbers), Some(libraries)) =
        (of_kind(DYNSYM), of_kind(VERSYM), of_kind(VERNEED))
    else {
        return Some(Vec::new());
    };
    let mut versions = HashMap::new();
    let mut library = libraries.at;
    for _ in 0..libraries.info {
        let count = u16_at(file, library + 2)?;
        let mut version = library + u32_at(file, library + 8)? as usize;
        for _ in 0..count {
            let number = u16_at(file, version + 6)?;
            versions.insert(number, text(libraries.link, u32_at(file, version + 8)?)?);
            version += u32_at(file, version + 12)? as usize;
        }
        library += u32_at(file, library + 12)? as usize;
    }
    let mut needed = Vec::new();
    for number in 0..symbols.bytes / SYMBOL_BYTES {
        let version = u16_at(file, numbers.at + 2 * number)? & 0x7fff;
        if let Some(version) = versions.get(&version) {
            let name = u32_at(file, symbols.at + SYMBOL_BYTES * number)?;
            needed.push(Needed {
                name: text(symbols.link, name)?,
                version: version.clone(),
            });
        }
    }
    Some(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_this_program_have_versions() {
        let found = needed(&std::env::current_exe().unwrap()).unwrap();
        let glibc = found.iter().filter_map(Needed::glibc).max();
        assert!(glibc.is_some_and(|version| version >= (2, 17)), "{found:?}");
        assert!(found.iter().any(|one| one.name == "__libc_start_main"));
    }

    #[test]
    fn what_is_no_program_is_an_error_and_no_panic() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for len in [0, 4, 16, 64, 4096] {
            assert!(parse(&program[..len]).is_none(), "{len}");
        }
        assert!(needed(Path::new("/nosuch")).is_err());
    }
}
