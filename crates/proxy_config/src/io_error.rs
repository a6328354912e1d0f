//! Errors of files that a configuration is read from.

use std::io;

/// Returns the text of an error as C programs print it: "No such file or directory", without Rust's "(os error 2)".
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => text
            .strip_suffix(&format!(" (os error {code})"))
            .unwrap_or(&text)
            .to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_c_programs_print_them() {
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(error_text(&missing), "No such file or directory");
        let other = io::Error::other("(os error 2)");
        assert_eq!(error_text(&other), "(os error 2)");
    }
}
