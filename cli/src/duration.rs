//! Durations as people write and read them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Reads one: numbers with units, one after the other; `0` needs none.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write it as 500ms, 30s, 5m, 2h or 1h30m";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, behind) = rest.split_at(digits);
        if number.is_empty() {
            return Err(FORM.to_owned());
        }
        let letters = behind.len() - behind.trim_start_matches(char::is_alphabetic).len();
        let (unit, behind) = behind.split_at(letters);
        if unit.is_empty() {
            return Err(format!("`{number}` has no unit; {FORM}"));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let Some((_, worth)) = known else {
            return Err(format!("`{unit}` is not a unit; {FORM}"));
        };
        let part = number.parse::<u64>().ok();
        let sum = part.and_then(|number| number.checked_mul(*worth)?.checked_add(millis));
        millis = sum.ok_or("that is longer than anyone can wait")?;
        rest = behind;
    }
    if text.is_empty() {
        return Err(FORM.to_owned());
    }
    Ok(Duration::from_millis(millis))
}

/// Writes one for people to glance at: its two largest units.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
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
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_way_out() {
        for text in [
            "", " ", "s", "5", "-5s", "+5s", "5 s", "5x", "5S", "5sec5", "1.5h", "5s 3", "٥s",
            "ms5",
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains("write it as"), "{text}: {said}");
        }
        for text in [
            "99999999999999999999s",
            "18446744073709551615d",
            "18446744073709551615ms1ms",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_written_to_be_glanced_at() {
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
