//! Glob patterns as `KEYS`, `SCAN MATCH` and `PSUBSCRIBE` understand them. Must not know the subject of the match.
//! Patterns come from any client: matching never recurses and takes at most `pattern × text` steps, whatever the
//! pattern.
//!
//! The language: `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^a]` one byte of a class, `\x`
//! the byte x, all else itself. Its corner cases are those of Redis: an unclosed class ends with the
//! pattern, `[]` matches nothing, a range compares signed bytes and may be written either way round,
//! of the patterns that could match no bytes at all only the empty one does (KEYS and SCAN take `*` for no
//! pattern), and none matches anything that has more than 1,000 stars before its last item.

/// Treatment of upper and lower case letters (ASCII).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Every byte is itself.
    Sensitive,
    /// `a` matches `A`.
    Insensitive,
}

impl Case {
    #[inline]
    fn fold(self, byte: u8) -> u8 {
        match self {
            Case::Sensitive => byte,
            Case::Insensitive => byte.to_ascii_lowercase(),
        }
    }

    #[inline]
    fn equal(self, a: u8, b: u8) -> bool {
        self.fold(a) == self.fold(b)
    }
}

/// Most stars that have something behind them, neighbours counting as one.
const STARS_MAX: usize = 1000;

/// Returns true if the whole text matches the pattern.
///
/// Every item of a pattern but `*` takes exactly one byte. So when the items behind a `*` fail, only
/// that `*` need take one byte more; an earlier one never has to, since it could only hand the later
/// one a longer text than it has already tried all starts of.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut item, mut at) = (0, 0);
    // The item behind the last `*`, and where the text that it is tried on starts.
    let mut star = None;
    let mut stars = 0;
    loop {
        if pattern.get(item) == Some(&b'*') {
            while pattern.get(item) == Some(&b'*') {
                item += 1;
            }
            if item == pattern.len() {
                return true;
            }
            // No star is met twice: a failed item goes back to those behind the last one.
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            star = Some((item, at));
            continue;
        }
        let Some(&byte) = text.get(at) else {
            return item == pattern.len();
        };
        if let Some(next) = match_byte(pattern, item, byte, case) {
            item = next;
            at += 1;
            continue;
        }
        let Some((behind, start)) = star else {
            return false;
        };
        item = behind;
        at = start + 1;
        star = Some((behind, at));
    }
}

/// Matches the item that starts at `item`, not a `*`, with one byte: returns where the next item starts.
#[inline]
fn match_byte(pattern: &[u8], item: usize, byte: u8, case: Case) -> Option<usize> {
    match *pattern.get(item)? {
        b'?' => Some(item + 1),
        b'[' => match_class(pattern, item + 1, byte, case),
        b'\\' if item + 1 < pattern.len() => {
            case.equal(pattern[item + 1], byte).then_some(item + 2)
        }
        literal => case.equal(literal, byte).then_some(item + 1),
    }
}

/// Matches a class, whose first byte after the bracket is at `at`.
fn match_class(pattern: &[u8], mut at: usize, byte: u8, case: Case) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern[at..] {
            [] => break,
            // An escaped byte keeps its case in either mode.
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                found |= in_range(first, last, byte, case);
                at += 3;
            }
            [literal, ..] => {
                found |= case.equal(literal, byte);
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

/// Orders the ends first and ignores case after, so `[Z-a]` is empty without case.
fn in_range(first: u8, last: u8, byte: u8, case: Case) -> bool {
    let (first, last) = (first as i8, last as i8);
    let fold = |byte: i8| case.fold(byte as u8) as i8;
    let (low, high) = (fold(first.min(last)), fold(first.max(last)));
    (low..=high).contains(&fold(byte as i8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sensitive(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive)
    }

    #[test]
    fn each_item_of_the_language() {
        for (pattern, text) in [
            ("", ""),
            ("*", "anything"),
            ("a**", "a"),
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("\\*", "*"),
            ("a\\", "a\\"),
            ("[a\\]b]", "]"),
            ("[a", "a"),
            ("[^", "x"),
            ("[^]", "x"),
            ("[\\", "\\"),
            ("[a-", "-"),
            ("[a-]", "]"),
            ("*a*b*c", "xxaxxbxxc"),
            ("*ab*", "aab"),
            ("[*]", "*"),
            ("a]", "a]"),
        ] {
            assert!(sensitive(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("*", ""),
            ("**", ""),
            ("a?", "a"),
            ("h[^e]llo", "hello"),
            ("[]a]", "a"),
            ("[]", "a"),
            ("[", "["),
            ("a", "A"),
            ("*b", "abc"),
            ("*a*b*c", "xxaxxcxxb"),
            ("a*a", "a"),
            ("\\*", "a"),
        ] {
            assert!(!sensitive(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_with_very_many_stars_matched() {
        for (stars, matched) in [(1000, true), (1001, false)] {
            for item in ["*a", "*?", "**a"] {
                let pattern = item.repeat(stars);
                assert_eq!(sensitive(&pattern, &"a".repeat(stars)), matched);
                assert_eq!(sensitive(&(pattern + "*"), &"a".repeat(stars)), matched);
            }
        }
    }

    #[test]
    fn without_case_letters_are_folded_but_for_escapes_in_a_class() {
        for (pattern, text, expected) in [
            ("MAXMEMORY*", "maxmemory-policy", true),
            ("\\A", "a", true),
            ("[A-C]", "b", true),
            ("[a]", "A", true),
            ("[\\A]", "a", false),
            ("[\\A]", "A", true),
            ("[Z-a]", "a", false),
            ("[^A]", "a", false),
        ] {
            let found = matches(pattern.as_bytes(), text.as_bytes(), Case::Insensitive);
            assert_eq!(found, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn ranges_compare_signed_bytes() {
        // -128 to 1, not 1 to 128.
        let pattern = b"[\x01-\x80]";
        assert!(matches(pattern, b"\xff", Case::Sensitive));
        assert!(matches(pattern, b"\x00", Case::Sensitive));
        assert!(!matches(pattern, b"\x02", Case::Sensitive));
    }

    /// Matches by the language's definition: tries every length for every `*`.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|n| by_definition(rest, &text[n..])),
            Some(_) => text.first().is_some_and(|&byte| {
                match_byte(pattern, 0, byte, Case::Sensitive)
                    .is_some_and(|next| by_definition(&pattern[next..], &text[1..]))
            }),
        }
    }

    #[test]
    fn random_patterns_agree_with_the_definition() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut matched = 0;
        for _ in 0..200_000 {
            let mut bytes = |alphabet: &[u8], len_max: usize| -> Vec<u8> {
                (0..random.usize(..=len_max))
                    .map(|_| alphabet[random.usize(..alphabet.len())])
                    .collect()
            };
            let (pattern, text) = (bytes(b"**?ab[]^-\\", 8), bytes(b"aab[", 8));
            if text.is_empty() {
                continue;
            }
            let expected = by_definition(&pattern, &text);
            assert_eq!(matches(&pattern, &text, Case::Sensitive), expected);
            matched += usize::from(expected);
        }
        assert!(matched > 10_000, "{matched}");
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_its_length_times_the_text() {
        let pattern = [b"a*".repeat(STARS_MAX), b"b".to_vec()].concat();
        let text = b"a".repeat(20_000);
        assert!(!matches(&pattern, &text, Case::Sensitive));
    }
}
