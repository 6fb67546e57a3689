//! Points in time as text, in UTC: `2026-11-16T07:40:00Z`.
//!
//! The format is sortable, has no time zone to confuse, and is the same on every machine that shows a label.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A second of the wall clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Date {
    /// Seconds since the epoch.
    seconds: u64,
}

impl Date {
    pub(crate) fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.unwrap_or_default().as_secs();
        Self { seconds }
    }

    /// Returns the time since `earlier`; zero if the clocks disagree.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.seconds.saturating_sub(earlier.seconds))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('Z').filter(|text| text.is_ascii())?;
        let (date, time) = text.split_once('T')?;
        let [year, month, day] = numbers(date, '-')?;
        let [hour, minute, second] = numbers(time, ':')?;
        let sane = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        let seconds = sane
            .then(|| days_before(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)?;
        Some(Self { seconds })
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = day_after(self.seconds / 86_400);
        let (hour, minute) = (self.seconds / 3600 % 24, self.seconds / 60 % 60);
        let second = self.seconds % 60;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let mut parts = text.split(between).map(str::parse);
    let three = [
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    ];
    parts.next().is_none().then_some(three)
}

// Years begin in March here, so that the leap day is the last of its year:
// https://howardhinnant.github.io/date_algorithms.html

const DAYS_TO_EPOCH: u64 = 719_468;

/// Returns the number of days from the epoch to this day.
const fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_TO_EPOCH
}

/// Returns the year, month and day that many days after the epoch.
const fn day_after(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_EPOCH;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_parsed_as_they_are_formatted() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let date = Date { seconds };
            assert_eq!(date.to_string(), text);
            assert_eq!(Date::parse(text), Some(date));
        }
    }

    #[test]
    fn every_day_of_four_centuries_round_trips() {
        for day in 0..146_097 {
            let date = Date {
                seconds: day * 86_400 + 12_345,
            };
            assert_eq!(Date::parse(&date.to_string()), Some(date));
        }
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in [
            "",
            "Z",
            "yesterday",
            "2026-11-16",
            "2026-13-01T00:00:00Z",
            "2026-11-16T24:00:00Z",
            "2026-11-16T07:40:00+01:00",
            "1969-12-31T23:59:59Z",
            "99999-01-01T00:00:00Z",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }
}
