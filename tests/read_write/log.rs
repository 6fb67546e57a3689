//! What everybody claims, in the order in which the server was told, and whether it can be true.
//!
//! A claim is made after the grant and given up before the release, so it never says more than the lock does.

use std::collections::{BTreeMap, BTreeSet};

use redis::aio::MultiplexedConnection;

use super::crowd::TASKS;

/// Where it is kept.
pub(crate) const LOG: &str = "log";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Claim {
    /// It holds nothing any more.
    Nothing,
    /// It reads.
    Reads,
    /// It writes.
    Writes,
    /// It has lost what it held, and noticed it before it claimed anything else.
    Lost,
    /// It could not give back what it held: it was lost by then.
    Late,
}

/// One process that writes into it.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) process: u32,
    pub(crate) connection: MultiplexedConnection,
}

impl Writer {
    /// Says what a grant is worth from now on.
    pub(crate) async fn claim(&self, name: &str, grant: u64, claim: Claim) {
        let word = match claim {
            Claim::Nothing => "nothing",
            Claim::Reads => "reads",
            Claim::Writes => "writes",
            Claim::Lost => "lost",
            Claim::Late => "late",
        };
        self.write(format!("{} {grant} {name} {word}", self.process))
            .await;
    }

    /// Says that nothing here ran for a while, or that the server did not.
    pub(crate) async fn stood_still(&self) {
        self.write(still(self.process)).await;
    }

    /// Returns when the server has answered.
    pub(crate) async fn ping(&self) {
        let mut connection = self.connection.clone();
        let answered = redis::cmd("PING").exec_async(&mut connection).await;
        answered.expect("the server is up");
    }

    async fn write(&self, entry: String) {
        let mut connection = self.connection.clone();
        let mut push = redis::cmd("RPUSH");
        let written = push.arg(LOG).arg(entry).exec_async(&mut connection).await;
        written.expect("the server is up");
    }
}

/// The entry that says that a process is going to be killed: from then on nobody relies on what it claims.
pub(crate) fn farewell(process: u32) -> String {
    format!("{process} 0 - killed")
}

/// The entry that says that a process, or its server, stood still for long enough to cost it its locks.
fn still(process: u32) -> String {
    format!("{process} 0 - still")
}

/// What a log that can be true says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// At most so many read at once.
    pub(crate) together: usize,
    pub(crate) lost: usize,
    /// So many of them were lost for no reason: no kill costs the living what they hold, but standing still may, each
    /// time one grant of each task.
    pub(crate) unexplained: usize,
    /// How many claims each process made after the last farewell, of each sort.
    pub(crate) in_the_end: BTreeMap<(u32, bool), u64>,
}

/// Checks it from the beginning.
pub(crate) fn check(log: &[String]) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let lost = log.iter().filter(|entry| entry.ends_with(" lost"));
    let lost: BTreeSet<_> = lost.map(|entry| id(entry)).collect();
    (seen.lost, seen.unexplained) = losses(log);
    let mut killed = BTreeSet::new();
    let mut held: BTreeMap<&str, BTreeMap<(u32, u64), Claim>> = BTreeMap::new();
    for (number, entry) in log.iter().enumerate() {
        let who = id(entry);
        let mut words = entry.split(' ').skip(2);
        let (Some(name), Some(word)) = (words.next(), words.next()) else {
            return Err(format!("{number}: `{entry}` says nothing"));
        };
        if word == "killed" {
            killed.insert(who.0);
            for claims in held.values_mut() {
                claims.retain(|(process, _), _| *process != who.0);
            }
            seen.in_the_end.clear();
            continue;
        }
        if word == "still" {
            continue;
        }
        // What a machine that stood still for a lease did meanwhile no lock can help; nor is a dead one's word any good.
        if lost.contains(&who) || killed.contains(&who.0) {
            continue;
        }
        let claims = held.entry(name).or_default();
        let before = claims.remove(&who);
        let claim = match word {
            "nothing" | "late" => continue,
            "reads" => Claim::Reads,
            "writes" => Claim::Writes,
            _ => return Err(format!("{number}: `{entry}` is no claim")),
        };
        let beside = claims
            .iter()
            .find(|(_, other)| claim == Claim::Writes || **other == Claim::Writes);
        if let Some((other, theirs)) = beside {
            return Err(format!(
                "{number}: `{entry}` beside {other:?}, which {theirs:?}"
            ));
        }
        claims.insert(who, claim);
        seen.together = seen.together.max(claims.len());
        if before.is_none() {
            let writes = claim == Claim::Writes;
            seen.reads += u64::from(!writes);
            seen.writes += u64::from(writes);
            *seen.in_the_end.entry((who.0, writes)).or_default() += 1;
        }
    }
    Ok(seen)
}

/// How many grants were lost, and how many of them by processes that stood still too seldom for that.
fn losses(log: &[String]) -> (usize, usize) {
    let mut lost: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut excused: BTreeMap<u32, usize> = BTreeMap::new();
    for entry in log {
        let (process, grant) = id(entry);
        if entry.ends_with(" lost") || entry.ends_with(" late") {
            lost.entry(process).or_default().insert(grant);
        } else if *entry == still(process) {
            *excused.entry(process).or_default() += TASKS;
        }
    }
    let unexplained = lost.iter().map(|(process, grants)| {
        let excused = excused.get(process).copied();
        grants.len().saturating_sub(excused.unwrap_or(0))
    });
    (lost.values().map(BTreeSet::len).sum(), unexplained.sum())
}

/// The process, and which of its grants it is.
fn id(entry: &str) -> (u32, u64) {
    let mut words = entry.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (process, grant) = (number().unwrap_or(0), number().unwrap_or(0));
    (u32::try_from(process).expect("a pid is short"), grant)
}

#[test]
fn a_log_that_cannot_be_true_is_found_out() {
    let check = |log: &[&str]| {
        let log: Vec<_> = log.iter().map(ToString::to_string).collect();
        check(&log)
    };
    let good = ["1 1 a reads", "2 1 a reads", "2 1 b writes", "1 2 c writes"];
    let seen = check(&good).expect("it is true");
    assert_eq!((seen.reads, seen.writes, seen.together), (2, 2, 2));
    for bad in [
        ["1 1 a reads", "2 1 a writes"],
        ["1 1 a writes", "2 1 a reads"],
        ["1 1 a writes", "2 1 a writes"],
        ["1 1 a writes", "1 2 a writes"],
    ] {
        assert!(check(&bad).is_err(), "{bad:?}");
    }
    for good in [
        &["1 1 a writes", "1 1 a nothing", "2 1 a writes"][..],
        &["1 1 a writes", "1 1 a reads", "2 1 a reads"],
        &["1 1 a reads", "1 1 a writes", "1 1 a nothing"],
        &["1 1 a writes", &farewell(1), "2 1 a writes", "1 2 a reads"],
        &["1 1 a writes", "2 1 a writes", "1 1 a lost"],
    ] {
        assert!(check(good).is_ok(), "{good:?}");
    }
    assert!(check(&["1 1 a reads", "1 1 a writes", "2 1 a reads"]).is_err());
    assert!(check(&["1 1 a writes", "1 1 a reads", "2 1 a writes"]).is_err());
}

#[test]
fn a_grant_that_was_lost_is_explained_by_nothing_but_standing_still() {
    let losses = |log: &[String]| {
        let seen = check(log).expect("it is true");
        (seen.lost, seen.unexplained)
    };
    let late = |process, grant| format!("{process} {grant} a late");
    let mut log = vec![
        "1 1 a reads".to_owned(),
        "1 1 a lost".to_owned(),
        late(1, 1),
    ];
    assert_eq!(losses(&log), (1, 1));
    log.push(late(1, 2));
    assert_eq!(losses(&log), (2, 2));
    log.extend([farewell(1), farewell(2), still(2)]);
    assert_eq!(losses(&log), (2, 2), "of another");
    log.push(still(1));
    assert_eq!(losses(&log), (2, 0));
    log.extend((3..=TASKS as u64 + 1).map(|grant| late(1, grant)));
    assert_eq!(losses(&log), (TASKS + 1, 1));
}
