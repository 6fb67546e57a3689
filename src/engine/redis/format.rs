//! Redisson's formats, for the path without scripts: the same rules as `lua/format/*.lua`.

/// Maximum number of owners in a lock's hash: a lock has one, a few more are accepted.
pub(super) const MOST_OWNERS: usize = 16;

/// Maximum length of a simple lock's holder: no library writes a longer one.
pub(super) const LONGEST_HOLDER: usize = 256;

/// Maximum number of digits of a hold count.
pub(super) const LONGEST_COUNT: usize = 9;

/// Maximum number of bytes of a fencing token, and of a number of permits: 2^53 - 1 with a sign.
pub(super) const LONGEST_TOKEN: usize = 17;

/// The side of a read/write lock that an owner is on; the owner of another lock is written as a reader is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    Reader,
    Writer,
}

/// Parses an owner: `<uuid>:<thread>`, with `:write` behind a writer, and with `:<id>` behind both in a transaction.
pub(super) fn owner(text: &[u8]) -> Option<Side> {
    let text = std::str::from_utf8(text).ok()?;
    let (client, rest) = text.split_at_checked(36)?;
    let is_uuid = client.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => is_digit(byte),
    });
    let rest = rest.strip_prefix(':').filter(|_| is_uuid)?;
    let (thread, rest) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
    let number: i64 = thread.parse().ok()?;
    if number.to_string() != thread {
        return None;
    }
    let writer = rest.strip_prefix(":write");
    let transaction = writer.unwrap_or(rest);
    let side = writer.map_or(Side::Reader, |_| Side::Writer);
    match transaction.strip_prefix(':') {
        None => transaction.is_empty().then_some(side),
        Some(id) => (id.len() == 32 && id.bytes().all(is_digit)).then_some(side),
    }
}

/// Returns whether the text is a hold count: a positive decimal number.
pub(super) fn is_hold_count(text: &[u8]) -> bool {
    let digits = text.iter().all(u8::is_ascii_digit);
    digits && (1..=LONGEST_COUNT).contains(&text.len()) && text[0] != b'0'
}

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11";
    const TRANSACTION: &str = "00112233445566778899aabbccddeeff";

    fn side(rest: &str) -> Option<Side> {
        owner(format!("{CLIENT}{rest}").as_bytes())
    }

    #[test]
    fn owners_of_every_version_of_redisson_are_owners() {
        for rest in ["47", "0", "-1", "-9223372036854775808"] {
            assert_eq!(side(&format!(":{rest}")), Some(Side::Reader));
            assert_eq!(side(&format!(":{rest}:{TRANSACTION}")), Some(Side::Reader));
            assert_eq!(side(&format!(":{rest}:write")), Some(Side::Writer));
            let write = format!(":{rest}:write:{TRANSACTION}");
            assert_eq!(side(&write), Some(Side::Writer));
        }
    }

    #[test]
    fn other_text_is_no_owner() {
        for rest in [
            "",
            ":",
            ":x",
            ":+1",
            ":01",
            ":-0",
            ":1:",
            ":1:expire_time",
            ":1:write:",
            ":1:writer",
            "0:1",
        ] {
            assert_eq!(side(rest), None, "{rest}");
        }
        for text in ["", "visits", "mode", "71b96ce827464c1e9f3b0a5c1c0f9c11:1"] {
            assert_eq!(owner(text.as_bytes()), None, "{text}");
        }
        assert_eq!(owner(format!("{CLIENT}:1").to_uppercase().as_bytes()), None);
        assert_eq!(owner(b"\xff\xfe"), None);
    }

    #[test]
    fn hold_counts_are_small_positive_integers() {
        for count in ["1", "20", "999999999"] {
            assert!(is_hold_count(count.as_bytes()), "{count}");
        }
        for other in [
            "",
            "0",
            "01",
            "-1",
            "1.0",
            "1e9",
            "inf",
            "0x1",
            "1000000000",
        ] {
            assert!(!is_hold_count(other.as_bytes()), "{other}");
        }
    }
}
