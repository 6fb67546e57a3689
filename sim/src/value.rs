//! Replies and pushes, and their bytes in both protocols.

use std::borrow::Cow;

use crate::failure::Failure;

/// A reply or a push of the server.
///
/// Some kinds exist in version 3 of the protocol only; [`Value::encode`] writes what version 2 has in their place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A status, such as `OK`.
    Simple(Cow<'static, str>),
    /// An error: its code and its message.
    Error(String),
    /// A whole number.
    Integer(i64),
    /// Any bytes.
    Bulk(Vec<u8>),
    /// No value.
    Nil,
    /// No array, the reply to a transaction that was not executed.
    NilArray,
    /// Several values.
    Array(Vec<Self>),
    /// Pairs; in version 2 of the protocol an array of twice as many items.
    Map(Vec<(Self, Self)>),
    /// Different values; in version 2 of the protocol an array.
    Set(Vec<Self>),
    /// A number; in version 2 of the protocol its text.
    Double(f64),
    /// Members of a sorted set with their scores: pairs in version 3 of the protocol, a flat array in version 2.
    Scored(Vec<(Vec<u8>, f64)>),
    /// A text for people; in version 2 of the protocol any bytes.
    Verbatim(String),
    /// A message that no request has asked for; in version 2 of the protocol an array.
    Push(Vec<Self>),
    /// Several replies to one request: a subscription to several channels is confirmed for each.
    Several(Vec<Self>),
}

impl Value {
    /// The usual status.
    pub(crate) const OK: Self = Self::Simple(Cow::Borrowed("OK"));

    /// Makes a string value of text or bytes.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// Makes the integer of a count.
    pub(crate) fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Makes an array of strings.
    pub(crate) fn bulks<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::Array(items.into_iter().map(Self::bulk).collect())
    }

    /// Makes a string, or no value.
    pub(crate) fn optional(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }

    /// Appends the bytes of this value in version 2 or 3 of the protocol.
    pub fn encode(&self, protocol: u8, out: &mut Vec<u8>) {
        let third = protocol >= 3;
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Integer(number) => line(out, b':', &number.to_string()),
            Self::Bulk(bytes) => bulk(out, bytes),
            Self::Nil if third => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::NilArray if third => out.extend_from_slice(b"_\r\n"),
            Self::NilArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Array(items) => sequence(out, b'*', items, protocol),
            Self::Set(items) => sequence(out, if third { b'~' } else { b'*' }, items, protocol),
            Self::Push(items) => sequence(out, if third { b'>' } else { b'*' }, items, protocol),
            Self::Several(items) => {
                for item in items {
                    item.encode(protocol, out);
                }
            }
            Self::Map(pairs) => {
                if third {
                    line(out, b'%', &pairs.len().to_string());
                } else {
                    line(out, b'*', &(pairs.len() * 2).to_string());
                }
                for (key, value) in pairs {
                    key.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
            Self::Double(number) if third => line(out, b',', &double(*number)),
            Self::Double(number) => bulk(out, double(*number).as_bytes()),
            Self::Scored(pairs) => {
                let factor = if third { 1 } else { 2 };
                line(out, b'*', &(pairs.len() * factor).to_string());
                for (member, score) in pairs {
                    if third {
                        line(out, b'*', "2");
                    }
                    bulk(out, member);
                    Self::Double(*score).encode(protocol, out);
                }
            }
            Self::Verbatim(text) if third => {
                line(out, b'=', &(text.len() + 4).to_string());
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Verbatim(text) => bulk(out, text.as_bytes()),
        }
    }
}

impl From<Failure> for Value {
    fn from(failure: Failure) -> Self {
        Self::Error(failure.into_text())
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    // The end of a line within the text would end the reply.
    out.extend(text.bytes().map(|byte| match byte {
        b'\r' | b'\n' => b' ',
        other => other,
    }));
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    line(out, b'$', &bytes.len().to_string());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn sequence(out: &mut Vec<u8>, kind: u8, items: &[Value], protocol: u8) {
    line(out, kind, &items.len().to_string());
    for item in items {
        item.encode(protocol, out);
    }
}

/// Writes a number as C's `%.17g` does, which is how Redis writes scores.
pub(crate) fn double(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.is_nan() {
        return if number.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if number.fract() == 0.0 && number.abs() < 1e17 {
        return format!("{number:.0}");
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return trimmed(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &Value, protocol: u8) -> String {
        let mut out = Vec::new();
        value.encode(protocol, &mut out);
        String::from_utf8(out).expect("these are texts")
    }

    #[test]
    fn scores_are_written_with_seventeen_digits() {
        let cases = [
            (1.1, "1.1000000000000001"),
            (3.0, "3"),
            (-0.5, "-0.5"),
            (1e20, "1e+20"),
            (1e-7, "9.9999999999999995e-08"),
            (f64::INFINITY, "inf"),
            (1_893_456_000_000.0, "1893456000000"),
        ];
        for (number, text) in cases {
            assert_eq!(double(number), text);
        }
    }

    #[test]
    fn types_that_resp2_lacks_have_substitutes() {
        let scored = Value::Scored(vec![(b"a".to_vec(), 1.5)]);
        assert_eq!(encoded(&scored, 2), "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n");
        assert_eq!(encoded(&scored, 3), "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n");
        assert_eq!(encoded(&Value::NilArray, 2), "*-1\r\n");
        assert_eq!(encoded(&Value::Nil, 3), "_\r\n");
    }
}
