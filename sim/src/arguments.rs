//! Numbers and words in arguments, as strictly as Redis reads them.

use crate::failure::Failure;

/// Reads a whole number: no sign `+`, no leading zeros, no spaces.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Failure> {
    strict_integer(text).ok_or_else(Failure::not_an_integer)
}

/// Reads a whole number like [`integer`], without an error text.
pub(crate) fn strict_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_number = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_number {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a number with a fraction, as C's `strtod` does, without leading spaces and with nothing behind it.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let lower = text.to_ascii_lowercase();
    let (sign, digits) = match lower.as_bytes() {
        [b'-', ..] => (-1.0, &lower[1..]),
        [b'+', ..] => (1.0, &lower[1..]),
        _ => (1.0, &lower[..]),
    };
    if let Some(hexadecimal) = digits.strip_prefix("0x") {
        let number = u64::from_str_radix(hexadecimal, 16).ok()?;
        #[expect(clippy::cast_precision_loss, reason = "C does the same")]
        return Some(sign * number as f64);
    }
    match digits {
        "inf" | "infinity" => return Some(sign * f64::INFINITY),
        _ if digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') => {}
        _ => return None,
    }
    digits.parse::<f64>().ok().map(|number| sign * number)
}

/// Returns whether an argument is this word, in any case of letters.
pub(crate) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Turns an index that may be counted from the end into one from the beginning, as far as that is within the length.
pub(crate) fn index(index: i64, length: usize) -> i64 {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if index < 0 {
        index.saturating_add(length)
    } else {
        index
    }
}

/// Turns the first and the last index of a range into the positions it covers, which may be none.
pub(crate) fn range(first: i64, last: i64, length: usize) -> std::ops::Range<usize> {
    let first = usize::try_from(index(first, length).max(0)).unwrap_or(usize::MAX);
    let last = index(last, length);
    let Ok(last) = usize::try_from(last) else {
        return 0..0;
    };
    let end = last.saturating_add(1).min(length);
    if first >= end { 0..0 } else { first..end }
}

/// Returns an argument as text, up to its first zero byte, as errors show it.
pub(crate) fn text(argument: &[u8]) -> String {
    let shown = argument.split(|&byte| byte == 0).next();
    String::from_utf8_lossy(shown.unwrap_or_default()).into_owned()
}
