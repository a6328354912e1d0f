//! Suggestion of a known name for an unknown one. Must not know the kind of the names.

/// Returns the one of some names that differs least from `wrong`, if it differs little.
pub fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let fold = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let wrong = fold(wrong);
    let far = |name: &str| distance(wrong.as_bytes(), fold(name).as_bytes());
    let nearest = names.min_by_key(|name| far(name))?;
    (far(nearest) <= 1 + wrong.len() / 3).then_some(nearest)
}

/// Returns Levenshtein's distance.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let here = (before + usize::from(a != b))
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            before = std::mem::replace(&mut row[j + 1], here);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_little_was_meant_and_what_differs_much_was_not() {
        let names = ["maxmemory", "maxmemory-policy", "port"];
        for (wrong, meant) in [
            ("maxmemmory", Some("maxmemory")),
            ("MAXMEMORY_POLICY", Some("maxmemory-policy")),
            ("prot", Some("port")),
            ("elephant", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names.into_iter()), meant, "{wrong}");
        }
    }
}
