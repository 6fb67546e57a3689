//! Patterns of keys and channels.

/// Whether a text matches a pattern, by the rules of Redis' `stringmatchlen`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else {
        return text.is_empty();
    };
    match first {
        b'*' => {
            let rest = &pattern[pattern.iter().take_while(|&&byte| byte == b'*').count()..];
            rest.is_empty() || (0..=text.len()).any(|start| matches(rest, &text[start..]))
        }
        b'?' => !text.is_empty() && matches(rest, &text[1..]),
        b'[' => {
            let Some((&byte, tail)) = text.split_first() else {
                return false;
            };
            let (is_in, rest) = class(rest, byte);
            is_in && matches(rest, tail)
        }
        b'\\' if !rest.is_empty() => {
            text.first() == rest.first() && matches(&rest[1..], &text[1..])
        }
        literal => text.first() == Some(&literal) && matches(rest, &text[1..]),
    }
}

/// Whether a byte is in the class that begins here, and what follows the class.
fn class(mut pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = pattern.first() == Some(&b'^');
    if negated {
        pattern = &pattern[1..];
    }
    let mut is_in = false;
    loop {
        match pattern {
            [] => break,
            [b']', rest @ ..] => {
                pattern = rest;
                break;
            }
            [b'\\', escaped, rest @ ..] => {
                is_in |= *escaped == byte;
                pattern = rest;
            }
            [from, b'-', to, rest @ ..] => {
                let (low, high) = (from.min(to), from.max(to));
                is_in |= (low..=high).contains(&&byte);
                pattern = rest;
            }
            [one, rest @ ..] => {
                is_in |= *one == byte;
                pattern = rest;
            }
        }
    }
    (is_in != negated, pattern)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a?c", "ac", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[^a]llo", "hallo", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("", "", true),
        ];
        for (pattern, text, expected) in cases {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern} {text}");
        }
    }
}
