//! Latencies, to within one part in 128, in the form every contestant writes.
//!
//! A value below 256 is its own bucket. Above, a bucket is the position of the highest bit and the seven
//! bits below it: `shift = highest bit - 7; bucket = shift * 128 + (value >> shift)`. The other languages
//! have the same two lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The number of values in each bucket: pairs of bucket and count, on the wire too.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "Vec<(u32, u64)>", into = "Vec<(u32, u64)>")]
pub(crate) struct Histogram(BTreeMap<u32, u64>);

impl Histogram {
    pub(crate) fn record(&mut self, value: u64) {
        *self.0.entry(bucket(value)).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the value that this part of all values do not exceed; `None` without any.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let count = self.count();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank between 1 and the count"
        )]
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (bucket, count) in &self.0 {
            seen += count;
            if seen >= rank {
                return Some(middle(*bucket));
            }
        }
        None
    }
}

impl From<Vec<(u32, u64)>> for Histogram {
    fn from(pairs: Vec<(u32, u64)>) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl From<Histogram> for Vec<(u32, u64)> {
    fn from(histogram: Histogram) -> Self {
        histogram.0.into_iter().collect()
    }
}

fn bucket(value: u64) -> u32 {
    let shift = value.max(1).ilog2().saturating_sub(7);
    let mantissa = u32::try_from(value >> shift).expect("eight bits are left");
    shift * 128 + mantissa
}

fn middle(bucket: u32) -> f64 {
    let shift = (bucket >> 7).saturating_sub(1);
    let mantissa = bucket - shift * 128;
    let width = f64::from(shift).exp2();
    if shift == 0 {
        return f64::from(mantissa);
    }
    (f64::from(mantissa) + 0.5) * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_round_trips_within_one_part_in_128() {
        for value in (0..63).map(|bit| 1_u64 << bit).flat_map(|v| [v, v + v / 3]) {
            let back = middle(bucket(value));
            let wrong = (back - value as f64).abs() / (value as f64);
            assert!(wrong <= 1.0 / 128.0, "{value} came back as {back}");
        }
    }

    #[test]
    fn a_quantile_is_the_rank_among_all() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|value| histogram.record(value));
        assert_eq!(histogram.quantile(0.5), Some(50.0));
        assert_eq!(histogram.quantile(0.99), Some(99.0));
        assert_eq!(histogram.quantile(1.0), Some(100.0));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn two_histograms_are_added_bucket_by_bucket() {
        let mut one = Histogram::default();
        one.record(5);
        let mut other = one.clone();
        other.record(1_000_000);
        one.add(&other);
        assert_eq!(one.count(), 3);
    }
}
