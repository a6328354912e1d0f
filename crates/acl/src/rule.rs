//! Common parts of all rules: how their words are put together, and the errors of a wrong one.
//! Knows no users.

use std::fmt;

/// Choices of the server about the language of rules.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// A fresh selector may use every channel (`acl-pubsub-default allchannels`).
    pub open_channels: bool,
    /// Splits the inside of `(…)` into words as a line of the configuration file is split; `None`: a quote is open.
    pub split: fn(&[u8]) -> Option<Vec<Vec<u8>>>,
}

/// Reason why a rule was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// There is no such command, subcommand or category.
    UnknownCommand,
    /// It is no rule.
    Syntax,
    /// A key pattern where every key is allowed already.
    KeysAlreadyOpen,
    /// A channel pattern where every channel is allowed already.
    ChannelsAlreadyOpen,
    /// It is not a hash.
    NoSuchPassword,
    /// A hash that is none.
    BadHash,
    /// The first argument of a subcommand.
    FirstArgumentOfSubcommand,
    /// A user that was defined before.
    DuplicateUser,
}

/// Formats as the text that clients see.
impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::UnknownCommand => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::KeysAlreadyOpen => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::ChannelsAlreadyOpen => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::FirstArgumentOfSubcommand => {
                "Allowing first-arg of a subcommand is not supported"
            }
            RuleError::DuplicateUser => {
                "Duplicate user found. A user can only be defined once in config files"
            }
        })
    }
}

/// A `(` that no word closes: the place of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmatchedParenthesis(pub usize);

/// Puts the words of each selector together: `(+get`, `~a)` is one rule, `(+get ~a)`.
pub fn merge_selectors(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, UnmatchedParenthesis> {
    let mut rules = Vec::with_capacity(words.len());
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (at, word) in words.iter().enumerate() {
        let closes = word.last() == Some(&b')');
        match &mut open {
            Some((_, rule)) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                if closes {
                    rules.extend(open.take().map(|(_, rule)| rule));
                }
            }
            None if word.first() == Some(&b'(') && !closes => open = Some((at, word.to_vec())),
            None => rules.push(word.to_vec()),
        }
    }
    match open {
        Some((at, _)) => Err(UnmatchedParenthesis(at)),
        None => Ok(rules),
    }
}

/// Returns true if the text has a space of any kind, or a zero byte: neither may be in a name or a pattern.
pub(crate) fn has_spaces(text: &[u8]) -> bool {
    text.iter()
        .any(|byte| matches!(byte, b' ' | b'\t'..=b'\r' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(words: &str) -> Result<Vec<String>, UnmatchedParenthesis> {
        let words: Vec<&[u8]> = words.split('|').map(str::as_bytes).collect();
        let rules = merge_selectors(&words)?.into_iter();
        Ok(rules.map(|rule| String::from_utf8(rule).unwrap()).collect())
    }

    #[test]
    fn the_words_of_a_selector_become_one_rule() {
        assert_eq!(
            merged("on|(+get|~a)|(+set)").unwrap(),
            ["on", "(+get ~a)", "(+set)"]
        );
        assert_eq!(merged("( +get|~x)|").unwrap(), ["( +get ~x)", ""]);
        assert_eq!(merged("(+a|(+b|c)").unwrap(), ["(+a (+b c)"]);
        assert_eq!(merged("on|(+a|b"), Err(UnmatchedParenthesis(1)));
        assert_eq!(merged("("), Err(UnmatchedParenthesis(0)));
        assert_eq!(merged(")").unwrap(), [")"]);
    }
}
