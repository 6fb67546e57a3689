//! Durations as users write and read them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

/// The units in milliseconds, with their names.
const UNITS: [(u64, &[&str]); 6] = [
    (1, &["ms", "msec", "millis", "millisecond", "milliseconds"]),
    (1000, &["s", "sec", "secs", "second", "seconds"]),
    (60_000, &["m", "min", "mins", "minute", "minutes"]),
    (3_600_000, &["h", "hr", "hrs", "hour", "hours"]),
    (86_400_000, &["d", "day", "days"]),
    (604_800_000, &["w", "week", "weeks"]),
];

/// Parses a duration: numbers with units, from the largest to the smallest; `0` needs no unit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write it as 500ms, 30s, 5m, 1.5h, 1d or 1h30m";
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(FORM.to_owned());
    }
    let mut smallest = u64::MAX;
    let mut all = Duration::ZERO;
    while !rest.is_empty() {
        let (number, behind) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, behind) = split(behind.trim_start(), char::is_alphabetic);
        if number.is_empty() {
            return Err(FORM.to_owned());
        }
        if unit.is_empty() {
            return Err(format!("`{number}` has no unit; {FORM}"));
        }
        let Some((worth, _)) = UNITS.iter().find(|(_, names)| names.contains(&unit)) else {
            return Err(format!("`{unit}` is not a unit of time; {FORM}"));
        };
        // A repeated unit, or a smaller one first, is a typing error.
        if *worth >= smallest {
            return Err(format!(
                "`{unit}` is repeated, or follows a smaller unit; {FORM}"
            ));
        }
        smallest = *worth;
        let part = part(number, *worth)
            .ok_or_else(|| format!("`{number}` is not a valid number; {FORM}"))?;
        let sum = all.checked_add(part).filter(|sum| *sum <= LONGEST);
        all = sum.ok_or("the limit is 36500d (100 years)")?;
        rest = behind.trim_start();
    }
    Ok(all)
}

/// Returns `number` times `worth` milliseconds.
fn part(number: &str, worth: u64) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let whole = whole
        .parse::<u64>()
        .unwrap_or(u64::MAX)
        .saturating_mul(worth);
    let digits = u32::try_from(fraction.len())
        .ok()
        .filter(|digits| *digits <= 9)?;
    let fraction = fraction.parse::<u64>().ok()?.saturating_mul(worth) / 10_u64.pow(digits);
    Some(Duration::from_millis(whole.saturating_add(fraction)))
}

fn split(text: &str, is_first: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !is_first(c)).unwrap_or(text.len()))
}

/// A hundred years, the upper bound of a lease.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Formats a duration for display: its two largest units.
pub(crate) fn short(time: Duration) -> String {
    let millis = time.as_millis();
    if (1..1000).contains(&millis) {
        return format!("{millis}ms");
    }
    let seconds = time.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    let pair = |one: u64, first: &str, two: u64, second: &str| match two {
        0 => format!("{one}{first}"),
        two => format!("{one}{first} {two}{second}"),
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => pair(minutes, "m", rest, "s"),
        3600..86_400 => pair(hours, "h", minutes, "m"),
        _ => pair(days, "d", hours, "h"),
    }
}

/// Formats the value of an option without loss, except for fractions of a millisecond.
pub(crate) fn exact(time: Duration) -> String {
    let (mut seconds, millis) = (time.as_secs(), time.subsec_millis());
    if seconds == 0 {
        return short(time);
    }
    let mut parts = Vec::new();
    for (unit, worth) in [("d", 86_400), ("h", 3600), ("m", 60)] {
        if seconds >= worth {
            parts.push(format!("{}{unit}", seconds / worth));
            seconds %= worth;
        }
    }
    if millis > 0 {
        let fraction = format!("{millis:03}");
        parts.push(format!("{seconds}.{}s", fraction.trim_end_matches('0')));
    } else if seconds > 0 {
        parts.push(format!("{seconds}s"));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_an_option_value_is_ignored() {
        for text in [
            "200ms",
            "1.2s",
            "1.005s",
            "59.5s",
            "2s",
            "1m",
            "1m 0.5s",
            "1h 30m",
            "1d 2h 3m 4s",
        ] {
            let time = parse(&text.replace(' ', "")).expect("it is one");
            assert_eq!(exact(time), text);
        }
    }

    #[test]
    fn durations_are_parsed_in_common_notations() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1h30m", 5_400_000),
            ("1m500ms", 60_500),
            ("5min", 300_000),
            ("90sec", 90_000),
            ("10 minutes", 600_000),
            ("1h 30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("0.25s", 250),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected_with_a_remedy() {
        for text in [
            "",
            " ",
            "s",
            "5",
            "-5s",
            "+5s",
            "5x",
            "5S",
            "5sec5",
            "1.h",
            ".5h",
            "1.5.5h",
            "5s 3",
            "٥s",
            "ms5",
            "30s1h",
            "1h1h",
            "1.0000000001s",
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains("write it as"), "{text}: {said}");
        }
        for text in [
            "99999999999999999999s",
            "18446744073709551615d",
            "99999999999d",
            "101y",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_formatted_compactly() {
        for (millis, text) in [
            (0, "0s"),
            (350, "350ms"),
            (1_999, "1s"),
            (59_000, "59s"),
            (60_000, "1m"),
            (125_000, "2m 5s"),
            (3_600_000, "1h"),
            (11_520_000, "3h 12m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
    }
}
