//! Glob patterns for names, the same on every store.

/// Reports whether a name matches: `*` stands for any characters, `?` for one, and `\` quotes the
/// character behind it.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // The last star, and how far the name had been read when it was met.
    let mut star: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
                continue;
            }
            Some('?') => {
                p += 1;
                n += 1;
                continue;
            }
            Some('\\') if pattern.get(p + 1) == Some(&name[n]) => {
                p += 2;
                n += 1;
                continue;
            }
            Some(c) if *c == name[n] && *c != '\\' => {
                p += 1;
                n += 1;
                continue;
            }
            _ => {}
        }
        let Some((star_p, star_n)) = star else {
            return false;
        };
        star = Some((star_p, star_n + 1));
        p = star_p + 1;
        n = star_n + 1;
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("order:*", "order:1", true),
            ("order:*", "orders", false),
            ("*:1", "a:1:1", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            ("a*b*c", "a--b--b--c", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} on {name}");
        }
    }
}
