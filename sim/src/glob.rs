//! Patterns of keys and channels.

/// Returns whether a text matches a pattern, by the rules of Redis' `stringmatchlen`: an empty text matches no pattern, not even `*`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    is_match(pattern, text, &mut false)
}

/// Returns whether a key or member is selected: like [`matches`], except that `*` selects everything.
pub(crate) fn selects(pattern: &[u8], text: &[u8]) -> bool {
    pattern == b"*" || matches(pattern, text)
}

/// Matches a part of a text. Once `gives_up` is set, no later part can match either: the pattern behind the last `*` occurs nowhere in it.
fn is_match(mut pattern: &[u8], mut text: &[u8], gives_up: &mut bool) -> bool {
    while let (Some((&first, rest)), Some((&byte, tail))) =
        (pattern.split_first(), text.split_first())
    {
        pattern = match first {
            b'*' => {
                let stars = pattern.iter().take_while(|&&byte| byte == b'*').count();
                let rest = &pattern[stars..];
                if rest.is_empty() {
                    return true;
                }
                for start in 0..text.len() {
                    if is_match(rest, &text[start..], gives_up) {
                        return true;
                    }
                    if *gives_up {
                        return false;
                    }
                }
                *gives_up = true;
                return false;
            }
            b'?' => rest,
            b'[' => {
                let (is_in, rest) = class(rest, byte);
                if !is_in {
                    return false;
                }
                rest
            }
            b'\\' if !rest.is_empty() => {
                if rest[0] != byte {
                    return false;
                }
                &rest[1..]
            }
            literal if literal == byte => rest,
            _ => return false,
        };
        text = tail;
        if text.is_empty() {
            let stars = pattern.iter().take_while(|&&byte| byte == b'*').count();
            pattern = &pattern[stars..];
        }
    }
    pattern.is_empty() && text.is_empty()
}

/// Returns whether a byte is in the class that begins here, and the pattern behind the class.
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
            ("*", "", false),
            ("a*", "a", true),
            ("*b", "aab", true),
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
