//! Replies as they are on the wire, and the rules by which two of them agree.

use std::fmt;
use std::time::Instant;

/// A reply, by its type on the wire.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reply {
    /// A reply that is written on one line: a status, an error, a number, no value.
    Line(u8, Vec<u8>),
    Bulk(u8, Vec<u8>),
    /// A reply that holds others. The pairs of a map come one after the other.
    Items(u8, Vec<Self>),
}

impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(kind, text) => {
                write!(formatter, "{}{}", char::from(*kind), text.escape_ascii())
            }
            Self::Bulk(_, bytes) => write!(formatter, "\"{}\"", bytes.escape_ascii()),
            Self::Items(kind, items) => {
                write!(formatter, "{}", char::from(*kind))?;
                formatter.debug_list().entries(items).finish()
            }
        }
    }
}

impl Reply {
    /// Takes one reply from the beginning of these bytes, if it has arrived whole.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let (reply, length) = parse(bytes)?;
        bytes.drain(..length);
        Some(reply)
    }

    pub(crate) fn is_push(&self) -> bool {
        matches!(self, Self::Items(b'>', _))
    }

    /// Returns a word that distinguishes replies without their details, to count the different outcomes.
    pub(crate) fn outline(&self) -> String {
        match self {
            Self::Line(b'-', text) => {
                let text = String::from_utf8_lossy(text);
                text.split(' ').take(3).collect::<Vec<_>>().join(" ")
            }
            Self::Line(b':', text) if text.len() > 3 => ":many".to_owned(),
            Self::Line(kind, text) => {
                format!("{}{}", char::from(*kind), String::from_utf8_lossy(text))
            }
            Self::Bulk(..) => "$".to_owned(),
            Self::Items(kind, items) => format!("{}{}", char::from(*kind), items.len().min(3)),
        }
    }

    /// Sorts the items of a reply whose order has no meaning.
    pub(crate) fn sorted(self) -> Self {
        match self {
            Self::Items(kind, items) => {
                let mut items: Vec<Self> = items.into_iter().map(Self::sorted).collect();
                items.sort();
                Self::Items(kind, items)
            }
            other => other,
        }
    }

    /// Sorts the items within each of the items.
    pub(crate) fn with_sorted_items(self) -> Self {
        match self {
            Self::Items(kind, items) => {
                Self::Items(kind, items.into_iter().map(Self::sorted).collect())
            }
            other => other,
        }
    }

    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::Items(_, items) => items,
            _ => &[],
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Line(_, bytes) | Self::Bulk(_, bytes) => bytes,
            Self::Items(..) => &[],
        }
    }
}

fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (kind, line) = (*bytes.first()?, &bytes[1..end]);
    let mut place = end + 2;
    let number = || -> i64 {
        let text = std::str::from_utf8(line).expect("a length is text");
        text.parse().expect("a length is a number")
    };
    let reply = match kind {
        b'$' | b'=' if line != b"-1" => {
            let length = usize::try_from(number()).expect("it is not negative");
            let content = bytes.get(place..place + length)?;
            bytes.get(place + length..place + length + 2)?;
            place += length + 2;
            Reply::Bulk(kind, content.to_vec())
        }
        b'*' | b'%' | b'~' | b'>' if line != b"-1" => {
            let factor = if kind == b'%' { 2 } else { 1 };
            let mut items = Vec::new();
            for _ in 0..number() * factor {
                let (item, length) = parse(&bytes[place..])?;
                place += length;
                items.push(item);
            }
            Reply::Items(kind, items)
        }
        _ => Reply::Line(kind, line.to_vec()),
    };
    Some((reply, place))
}

/// The moment at which a sequence began: by the clocks of both servers, in milliseconds since 1970, and by the test's. The simulated clock
/// hardly moves meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origins {
    pub(crate) real: i128,
    pub(crate) simulated: i128,
    pub(crate) begun: Instant,
}

impl Origins {
    /// Returns whether two replies agree, with moments measured from the beginning of the sequence.
    pub(crate) fn agree(self, real: &Reply, simulated: &Reply) -> bool {
        match (real, simulated) {
            // Servers of other versions write the same number in another way.
            (Reply::Line(b',', _), Reply::Line(b',', _)) if is_one_number(real, simulated) => true,
            (Reply::Line(kind, one), Reply::Line(other, two))
            | (Reply::Bulk(kind, one), Reply::Bulk(other, two)) => {
                kind == other && self.texts_agree(one, two)
            }
            (Reply::Items(kind, one), Reply::Items(other, two)) => {
                let mut pairs = one.iter().zip(two);
                kind == other
                    && one.len() == two.len()
                    && pairs.all(|(one, two)| self.agree(one, two))
            }
            _ => false,
        }
    }

    fn texts_agree(self, real: &[u8], simulated: &[u8]) -> bool {
        if real == simulated {
            return true;
        }
        let (one, two) = (split(real), split(simulated));
        let mut parts = one.iter().zip(&two);
        one.len() == two.len()
            && parts.all(|parts| match parts {
                (Part::Number(one), Part::Number(two)) => self.numbers_agree(*one, *two),
                (Part::Text(one), Part::Text(two)) => one == two,
                _ => false,
            })
    }

    /// Returns whether numbers agree: they are equal; or they are remaining times, or moments, in seconds, milliseconds or microseconds,
    /// that differ by no more than the time that has passed.
    fn numbers_agree(self, real: i128, simulated: i128) -> bool {
        let passed = i128::try_from(self.begun.elapsed().as_millis()).expect("it is short") + 10;
        let is_near = |one: i128, two: i128, unit: i128| (one - two).abs() <= passed * unit;
        if real == simulated || real.min(simulated) > LEAST_LEASE && is_near(real, simulated, 1) {
            return true;
        }
        let (one, two) = (real * 1000 - self.real, simulated * 1000 - self.simulated);
        let are_seconds = one.abs() < MONTH && two.abs() < MONTH;
        if are_seconds && (one - two).abs() <= passed + 1000 {
            return true;
        }
        [1, 1000].into_iter().any(|unit| {
            let (one, two) = (real - self.real * unit, simulated - self.simulated * unit);
            let is_moment = one.abs() < MONTH * unit && two.abs() < MONTH * unit;
            is_moment && is_near(one, two, unit)
        })
    }
}

fn is_one_number(one: &Reply, two: &Reply) -> bool {
    let number = |reply: &Reply| reply.text().parse::<f64>().ok();
    number(one).is_some_and(|one| number(two).is_some_and(|two| one.to_bits() == two.to_bits()))
}

enum Part<'a> {
    Text(&'a [u8]),
    Number(i128),
}

fn split(text: &[u8]) -> Vec<Part<'_>> {
    let runs = text.chunk_by(|one, two| one.is_ascii_digit() == two.is_ascii_digit());
    let parts = runs.map(|run| {
        let digits = std::str::from_utf8(run).ok();
        let number = digits.and_then(|digits| digits.parse().ok());
        number.map_or(Part::Text(run), Part::Number)
    });
    parts.collect()
}

/// The shortest lease that a script gives a key; a smaller number is a count.
const LEAST_LEASE: i128 = 10_000;
const MONTH: i128 = 40 * 24 * 3_600_000;
