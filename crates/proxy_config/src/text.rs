//! A configuration as TOML: parsed, with suggestions for unknown names, and printed.

use redline_spec::nearest;

use super::Config;

impl Config {
    /// Parses our file. An error names the line, and the most similar known name. It goes to logs, so it does not
    /// contain the line's text, which may be a password.
    pub fn from_toml(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| {
            let mut said = place_and_reason(text, &error);
            if let Some(meant) = meant(error.message()) {
                said += &format!("\ndid you mean `{meant}`?");
            }
            said
        })
    }

    /// Prints it as our file, which [`Config::from_toml`] parses to the same.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("every field has a form in TOML")
    }
}

fn place_and_reason(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = &text.as_bytes()[..start];
    let line_start = before.iter().rposition(|byte| *byte == b'\n');
    let line_start = line_start.map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = start - line_start + 1;
    let whole = text[line_start..].lines().next().unwrap_or_default();
    let whole = whole.to_ascii_lowercase();
    let is_secret = whole.contains("password") || whole.contains("rules");
    let reason = error.message().trim_end();
    // For a value of another kind, the reason contains the value.
    let reason = match is_secret && reason.starts_with("invalid") {
        true => "what stands here is not what is wanted; a text stands in quotes",
        false => reason,
    };
    format!("TOML parse error at line {line}, column {column}: {reason}")
}

/// Returns the most similar known name, by an error of serde's: the first name in it is the unknown one, and the others
/// are the known ones.
fn meant(message: &str) -> Option<&str> {
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let mut names = message.split('`').skip(1).step_by(2);
    let wrong = names.next().filter(|_| unknown)?;
    nearest(wrong, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_with_its_line_and_what_was_meant() {
        for (text, line, name) in [
            ("thread = 3", "line 1", "threads"),
            ("\n[limits]\nclient = 1", "line 3", "clients"),
            (
                "[[pool]]\nname = 'a'\nhash_tag = '{}'",
                "line 3",
                "hash-tag",
            ),
            ("[[pool]]\nkind = 'clutser'", "line 2", "cluster"),
            ("[[pool]]\nhash = 'fnv1a_64'", "line 2", "fnv1a-64"),
            ("[[pool]]\n[[pool.shards]]", "line 2", "shard"),
        ] {
            let said = Config::from_toml(text).unwrap_err();
            assert!(said.contains(line), "{said}");
            assert!(said.contains(&format!("did you mean `{name}`?")), "{said}");
        }
        let said = Config::from_toml("[timeouts]\nconnect = '5'").unwrap_err();
        assert!(
            said.contains("line 2") && said.contains("no span of time"),
            "{said}"
        );
    }

    #[test]
    fn errors_do_not_show_passwords() {
        for text in [
            "[[pool]]\npassword = 5417",
            "[[pool]]\npassword = \"5417",
            "[[pool]]\npassword = '5417' x",
            "[[pool]]\npasword = '5417'",
            "[[pool]]\npassword = 5417x",
            "[[pool]]\npassword = '1'\npassword = '5417'",
            "[[pool]]\nshard = [{ server = [{ address = 'h:1', password = 5417 }] }]",
            "[[user]]\nname = 'u'\nrules = ['+get', '>5417']",
            "[[pool]]\nshard = [{ server = [{ address = 'u:5417@h:1' }] }]",
            "[[listener]]\nbind = 'redis://u:5417@h:1'",
        ] {
            let said = Config::from_toml(text).unwrap_err();
            assert!(!said.contains("5417") && said.contains("line "), "{said}");
        }
    }

    #[test]
    fn names_that_resemble_none_are_not_guessed() {
        let said = Config::from_toml("elephant = 3").unwrap_err();
        assert!(
            said.contains("elephant") && !said.contains("did you mean"),
            "{said}"
        );
    }
}
