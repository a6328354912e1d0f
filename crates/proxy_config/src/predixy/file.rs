//! The form of predixy's file: lines of a key and a value, blocks in braces, quotes, comments, `Include`.
//! Knows no directive but `Include`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::io_error::error_text;
use crate::source::text_of;

/// Largest depth of nested blocks.
const DEPTH_MAX: usize = 10;
/// Largest number of files that include each other.
const FILES_MAX: usize = 100;

/// A line, with the lines of its block.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its key as written; case does not matter.
    pub key: String,
    /// The value after the key, without quotes; may be empty.
    pub value: String,
    /// The lines of its block, if it has one.
    pub block: Option<Vec<Line>>,
    /// Its position.
    pub at: At,
}

/// A position in a file.
#[derive(Clone, Debug)]
pub struct At {
    file: Arc<Path>,
    line: usize,
}

impl At {
    /// Returns an error message about it.
    pub fn says(&self, what: impl std::fmt::Display) -> String {
        format!("{}:{}: {what}", self.file.display(), self.line)
    }
}

impl Line {
    /// Returns true if its key is this.
    pub fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }

    /// Returns an error message about it.
    pub fn says(&self, what: impl std::fmt::Display) -> String {
        self.at.says(what)
    }
}

/// Reads a file and those that it includes.
pub fn read(path: &Path) -> Result<Vec<Line>, String> {
    let mut reader = Reader {
        within: Vec::new(),
        files: 0,
        blocks: vec![Block::default()],
    };
    reader.file(path, None)?;
    match reader.blocks.pop() {
        Some(block) => match block.opened {
            None => Ok(block.lines),
            Some(open) => Err(open.says("this block has no } that ends it")),
        },
        None => Ok(Vec::new()),
    }
}

struct Reader {
    /// The files that include this one.
    within: Vec<PathBuf>,
    files: usize,
    /// Open blocks, the outermost first.
    blocks: Vec<Block>,
}

#[derive(Default)]
struct Block {
    lines: Vec<Line>,
    /// The line that opened it; none: the whole file.
    opened: Option<Line>,
}

impl Reader {
    fn file(&mut self, path: &Path, from: Option<&At>) -> Result<(), String> {
        let complain = |what: String| match from {
            Some(at) => at.says(what),
            None => what,
        };
        let unreadable =
            |error: std::io::Error| complain(format!("{}: {}", path.display(), error_text(&error)));
        let whole = path.canonicalize().map_err(unreadable)?;
        if self.within.contains(&whole) {
            return Err(complain(format!(
                "{} includes itself; take this line out",
                path.display()
            )));
        }
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(complain(format!(
                "more than {FILES_MAX} files are included"
            )));
        }
        let text = text_of(path).map_err(complain)?;
        self.within.push(whole);
        let file: Arc<Path> = path.into();
        for (number, text) in text.lines().enumerate() {
            let at = At {
                file: Arc::clone(&file),
                line: number + 1,
            };
            self.line(text, at)?;
        }
        self.within.pop();
        Ok(())
    }

    fn line(&mut self, text: &str, at: At) -> Result<(), String> {
        let parsed = parse(text).map_err(|what| at.says(what))?;
        let Some(Parsed { key, value, opens }) = parsed else {
            return Ok(());
        };
        if key == "}" {
            if self.blocks.len() == 1 {
                return Err(at.says("there is no block that this } could end"));
            }
            if let Some(Block {
                lines,
                opened: Some(mut line),
            }) = self.blocks.pop()
            {
                line.block = Some(lines);
                self.push(line);
            }
            return Ok(());
        }
        if key.eq_ignore_ascii_case("Include") && !opens {
            if value.is_empty() {
                return Err(at.says("Include needs the path of a file"));
            }
            let folder = at.file.parent().unwrap_or(Path::new(""));
            return self.file(&folder.join(value), Some(&at));
        }
        let line = Line {
            key,
            value,
            block: None,
            at,
        };
        if opens {
            if self.blocks.len() > DEPTH_MAX {
                return Err(line.says(format!("more than {DEPTH_MAX} blocks inside each other")));
            }
            self.blocks.push(Block {
                lines: Vec::new(),
                opened: Some(line),
            });
        } else {
            self.push(line);
        }
        Ok(())
    }

    fn push(&mut self, line: Line) {
        if let Some(block) = self.blocks.last_mut() {
            block.lines.push(line);
        }
    }
}

#[derive(Debug, PartialEq)]
struct Parsed {
    key: String,
    value: String,
    opens: bool,
}

/// Parses one line; `None`: it is empty.
fn parse(text: &str) -> Result<Option<Parsed>, &'static str> {
    let text = text.trim();
    let end = text.find(['#', ' ', '\t']);
    let (key, rest) = text.split_at(end.unwrap_or(text.len()));
    if key.is_empty() {
        return Ok(None);
    }
    let rest = rest.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(rest) => quoted(rest)?,
        None => {
            let plain = rest.split('#').next().unwrap_or_default().trim_end();
            let (value, brace) = match plain.strip_suffix('{') {
                Some(value) => (value.trim_end(), "{"),
                None => (plain, ""),
            };
            (value.to_owned(), brace)
        }
    };
    let opens = match rest.split('#').next().unwrap_or_default().trim() {
        "" => false,
        "{" => true,
        _ => return Err("after the quoted value there may be { and nothing else"),
    };
    let key = key.to_owned();
    Ok(Some(Parsed { key, value, opens }))
}

/// Returns the text between quotes, and the text after them.
fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(chars.next().ok_or("the quote does not end on this line")?.1),
            c => value.push(c),
        }
    }
    Err("the quote does not end on this line")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_have_keys_values_quotes_braces_and_comments() {
        let parsed = |text| parse(text).unwrap().map(|p| (p.key, p.value, p.opens));
        let is = |key: &str, value: &str, opens| Some((key.to_owned(), value.to_owned(), opens));
        for (text, wanted) in [
            ("", None),
            ("  # all of it", None),
            ("Name x", is("Name", "x", false)),
            ("Name", is("Name", "", false)),
            ("\tName  a b # c", is("Name", "a b", false)),
            ("Auth {", is("Auth", "", true)),
            ("Auth pass word { # c", is("Auth", "pass word", true)),
            ("Auth \"\" {", is("Auth", "", true)),
            (r##"Auth "a\"#\\ {" {"##, is("Auth", r##"a"#\ {"##, true)),
            ("Name \"a # b\" # c", is("Name", "a # b", false)),
            ("} # end", is("}", "", false)),
            ("+ 10.0.0.1:6379", is("+", "10.0.0.1:6379", false)),
        ] {
            assert_eq!(parsed(text), wanted, "{text}");
        }
        for wrong in ["Name \"a", "Name \"a\" b", "Name \"a\\"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_include_files_but_not_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("more")).unwrap();
        fs::write(
            path("main.conf"),
            "Name a\nBlock {\nInclude more/one.conf\n}\n",
        )
        .unwrap();
        fs::write(path("more/one.conf"), "+ 1\nInclude two.conf\n").unwrap();
        fs::write(path("more/two.conf"), "+ 2\n").unwrap();
        let lines = read(&path("main.conf")).unwrap();
        let block = lines[1].block.as_ref().unwrap();
        let values: Vec<&str> = block.iter().map(|line| line.value.as_str()).collect();
        assert_eq!(values, ["1", "2"]);
        assert!(block[1].says("x").ends_with("two.conf:1: x"));
        fs::write(path("more/two.conf"), "\nInclude ../main.conf\n").unwrap();
        let said = read(&path("main.conf")).unwrap_err();
        assert!(
            said.contains("two.conf:2: ") && said.contains("includes itself"),
            "{said}"
        );
        fs::write(path("more/two.conf"), "Include nothing.conf\n").unwrap();
        assert!(
            read(&path("main.conf"))
                .unwrap_err()
                .contains("two.conf:1: ")
        );
        fs::write(path("more/two.conf"), "}\n}\n").unwrap();
        assert!(
            read(&path("main.conf"))
                .unwrap_err()
                .contains("two.conf:2: ")
        );
        fs::write(path("more/two.conf"), "A {\n").unwrap();
        assert!(
            read(&path("main.conf"))
                .unwrap_err()
                .contains("no } that ends it")
        );
    }
}
