//! The protocol between orchestrator and contestants: a line of JSON for each message, the same in every language.
//!
//! ```text
//! →  {"url": …, "job": "cycle", "callers": 256, "names": 256, "seconds": 3.0, "warmup": 1.0, …}
//! ←  {"ready": true, "version": "distlock 0.1.0"}     connected and warm; or {"cannot": "does not wait"}
//! →  go                                               the orchestrator has read all its gauges
//! ←  {"cycles": …, "finished": …, "seconds": …, "latency": [[bucket, count], …],
//!     "handoffs": …, "least": …, "most": …}
//! ```
//!
//! - `cycle`: `callers` lock and unlock in a loop. With one name they share it, else each has its part of
//!   the names. `cycles` and `latency` count the cycles completed within the time, `finished` all that were begun.
//! - `step`: after `go`, the reply to each `lock` or `unlock` is `{"at": …}`: when the lock was held, or
//!   when its release was called, on the machine's monotonic clock.
//! - `hold`: after `go`, the contestant acquires all the names, `callers` at a time, and replies `{"held": …}`; after `end`
//!   it releases them and replies `{"lost": …}`.
//! - `queue`: after `go`, `callers` request one name, each in a task of its own; the contestant replies `{"waiting": …}` at
//!   once, and `{"cycles": …, "seconds": …}` when the last of them has had the lock.
//!
//! A reply with `failed` in it is the last. The contestant ends with its input.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The work order of a contestant.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Work {
    pub(crate) url: String,
    pub(crate) job: Job,
    pub(crate) callers: usize,
    pub(crate) names: usize,
    pub(crate) seconds: f64,
    pub(crate) warmup: f64,
    /// Lets other tasks run while it holds the lock. Only the embedded contestants need this: on one thread no task would ever find the
    /// lock held.
    #[serde(default)]
    pub(crate) yields: bool,
}

/// The kind of work.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Job {
    Cycle,
    Hold,
    Queue,
    Step,
}

/// A reply of a contestant.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Answer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cannot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<u64>,
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) tally: Option<Tally>,
}

/// The totals of all `callers`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Tally {
    /// The cycles within the time.
    pub(crate) cycles: u64,
    /// The cycles within the time and a moment longer: the divisor of the costs.
    pub(crate) finished: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Histogram,
    /// Grants within the time to another caller of this process than the one before. A caller that polls mostly sleeps when the lock is
    /// free, so the same caller acquires it over and over.
    #[serde(default)]
    pub(crate) handoffs: u64,
    /// The cycles of the caller with the fewest; `most` has those of the caller with the most.
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Answer {
    pub(crate) fn ready(version: impl Into<String>) -> Self {
        Self {
            ready: Some(true),
            version: Some(version.into()),
            ..Self::default()
        }
    }

    pub(crate) fn cannot(why: impl Into<String>) -> Self {
        Self {
            cannot: Some(why.into()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_parsed_among_other_replies() {
        let mut latency = Histogram::default();
        latency.record(70_000);
        let tally = Tally {
            cycles: 1,
            finished: 2,
            seconds: 0.5,
            latency: latency.clone(),
            handoffs: 1,
            least: 0,
            most: 1,
        };
        let said = Answer {
            tally: Some(tally),
            ..Answer::default()
        };
        let line = serde_json::to_string(&said).expect("it is plain data");
        let heard: Answer = serde_json::from_str(&line).expect("it was just written");
        let tally = heard.tally.expect("it was said");
        assert_eq!((tally.finished, tally.latency), (2, latency));
        assert!(heard.ready.is_none());
    }

    #[test]
    fn a_reply_without_a_tally_has_none() {
        let heard: Answer = serde_json::from_str(r#"{"at": 5}"#).expect("it is whole");
        assert_eq!((heard.at, heard.tally.is_none()), (Some(5), true));
    }
}
