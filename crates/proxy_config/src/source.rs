//! Configuration files as text: bounded, in UTF-8, without a byte order mark. Must not know their form.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::io_error::error_text;

/// Largest configuration file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a file's bytes. The error begins with its name.
pub fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| format!("{shown}: {}", error_text(&error));
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let mut file = file.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!(
            "{shown}: larger than {} MiB, which no configuration is",
            FILE_BYTES_MAX >> 20
        )),
        false => Ok(bytes),
    }
}

/// Returns the text of the file `shown`. The error has the line of a byte that is not UTF-8.
pub fn text_in(shown: &str, bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{shown}:{line}: not UTF-8; convert the file, as by iconv -f latin1 -t utf-8")
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Reads a file as text.
pub fn text_of(path: &Path) -> Result<String, String> {
    text_in(&path.display().to_string(), bytes_of(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_an_error_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            text_of(&path)
        };
        assert_eq!(read(b"\xef\xbb\xbfa\r\nb").unwrap(), "a\r\nb");
        let error = read(b"a\nb\nna\xefve").unwrap_err();
        assert!(error.contains("f:3: not UTF-8"), "{error}");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(100 << 20)
            .unwrap();
        let error = text_of(&path).unwrap_err();
        assert!(error.contains("f: larger than 16 MiB"), "{error}");
    }
}
