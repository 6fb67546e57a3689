//! The hammer on read/write locks, with readers and writers of both languages: a writer is alone, readers are not.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{CONTROL, Logs, count, longer, time, work};
use crate::checker::{Grant, Overlap};
use crate::failure::{Failure, Outcome, ensure};
use crate::stage::Fleet;
use crate::support::SeededRng;
use crate::worker::LockMode;

/// Plays a round without locks, which has to go wrong, and then with them.
pub(crate) async fn play(fleet: &mut Fleet) -> Outcome<String> {
    let mut random = SeededRng::from_env_or(20_201_013);
    let mut time = time(fleet);
    let mut short = CONTROL.min(time / 3);
    let control = loop {
        let control = round(fleet, LockMode::Unlocked, short, &mut random).await?;
        if control.counted < control.writes && !control.overlaps.is_empty() {
            break control;
        }
        short = longer(short, || {
            format!("without locks nothing went wrong, so the hammer proves nothing: {control}")
        })?;
    };
    let report = loop {
        let report = round(fleet, LockMode::Mixed, time, &mut random).await?;
        is_right(&report)?;
        let mut by_worker = report.by_worker.values();
        if report.together > 0 && by_worker.all(|sides| sides[0] > 0 && sides[1] > 0) {
            break report;
        }
        time = longer(time, || {
            format!("somebody never read, or never wrote, or never beside the other side: {report}")
        })?;
    };
    Ok(format!("{report}; without locks {control}"))
}

/// Checks that writers were alone, and that no update was lost.
fn is_right(report: &Report) -> Outcome {
    if let Some(Overlap { first, second }) = report.overlaps.first() {
        let (first, second) = (first.line(), second.line());
        let failure = format!("a writer was not alone: {first} and {second}; {report}");
        return Err(Failure::new(failure));
    }
    ensure!(
        report.counted == report.writes && report.mirrored == report.writes,
        "the counters are not exact: {report}"
    );
    Ok(())
}

struct Report {
    counted: u64,
    mirrored: u64,
    writes: u64,
    overlaps: Vec<Overlap>,
    /// The number of reads that began while a reader of the other language was reading.
    together: usize,
    refused: u64,
    /// The number of reads and of writes by worker.
    by_worker: BTreeMap<String, [u64; 2]>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            counted,
            writes,
            overlaps,
            together,
            refused,
            ..
        } = self;
        write!(f, "{writes} writes, counted {counted}")?;
        write!(f, ", {} overlaps", overlaps.len())?;
        write!(f, ", {together} reads beside the other side's")?;
        if *refused > 0 {
            write!(f, ", {refused} waits over")?;
        }
        for (who, [reads, writes]) in &self.by_worker {
            write!(f, ", {who} {reads}+{writes}")?;
        }
        Ok(())
    }
}

async fn round(
    fleet: &Fleet,
    manner: LockMode,
    time: Duration,
    random: &mut SeededRng,
) -> Outcome<Report> {
    let (tally, logs) = work(fleet, manner, time, random).await?;
    let world = &fleet.world;
    let mut report = examine(logs);
    report.counted = count(world.server(), "counter")?;
    report.mirrored = count(world.server(), "mirror")?;
    report.refused = tally.refused;
    Ok(report)
}

fn examine(logs: Logs) -> Report {
    let by_worker = logs.iter().map(|(worker, log)| {
        let all = log.len() as u64;
        let writes = log.iter().filter(|grant| writes(grant)).count() as u64;
        (worker.clone(), [all - writes, writes])
    });
    let by_worker: BTreeMap<_, _> = by_worker.collect();
    let mut grants: Vec<Grant> = logs.into_values().flatten().collect();
    grants.sort_by(|a, b| (&a.name, a.from, a.to).cmp(&(&b.name, b.from, b.to)));
    Report {
        counted: 0,
        mirrored: 0,
        writes: by_worker.values().map(|sides| sides[1]).sum(),
        overlaps: overlaps(&grants),
        together: together(&grants),
        refused: 0,
        by_worker,
    }
}

fn writes(grant: &Grant) -> bool {
    grant.who.ends_with("/write")
}

/// Returns every grant of a writer that began before all others had ended, and every grant of a reader that began before a writer had
/// ended. They are in the order of names and then of time.
fn overlaps(grants: &[Grant]) -> Vec<Overlap> {
    let mut found = Vec::new();
    // The grant that ends last of all that began so far, and of the writers' among them.
    let (mut anybody, mut writer): (Option<&Grant>, Option<&Grant>) = (None, None);
    for grant in grants {
        let before = if writes(grant) { anybody } else { writer };
        if let Some(before) = before
            && before.name == grant.name
            && before.to > grant.from
        {
            found.push(Overlap {
                first: before.clone(),
                second: grant.clone(),
            });
        }
        let later = |last: Option<&Grant>| {
            last.is_none_or(|last| last.name != grant.name || last.to < grant.to)
        };
        if later(anybody) {
            anybody = Some(grant);
        }
        if writes(grant) && later(writer) {
            writer = Some(grant);
        }
    }
    found
}

/// Counts the reads that began while a reader of the other language was reading. The grants are in the order of names and then of time.
fn together(grants: &[Grant]) -> usize {
    let ours = |grant: &Grant| grant.who.starts_with("we-");
    let mut last: [Option<&Grant>; 2] = [None, None];
    let mut found = 0;
    for grant in grants.iter().filter(|grant| !writes(grant)) {
        let (mine, other) = (usize::from(ours(grant)), usize::from(!ours(grant)));
        let beside = last[other];
        found += usize::from(
            beside.is_some_and(|other| other.name == grant.name && other.to > grant.from),
        );
        if last[mine].is_none_or(|last| last.name != grant.name || last.to < grant.to) {
            last[mine] = Some(grant);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker;

    fn report(lines: &[&str]) -> (usize, usize) {
        let log = checker::read(&lines.join("\n")).expect("a history made up here is whole");
        let report = examine(Logs::from([("all".into(), log)]));
        (report.overlaps.len(), report.together)
    }

    #[test]
    fn readers_may_overlap_and_are_together_with_the_other_side_only() {
        let [ours, theirs] = ["a we-1/read 10 30", "a java/read 20 40"];
        assert_eq!(report(&[ours, theirs]), (0, 1));
        assert_eq!(report(&[theirs, ours, "a java/read 50 60"]), (0, 1));
        assert_eq!(report(&[ours, "a we-2/read 20 30"]), (0, 0));
        assert_eq!(report(&[ours, "b java/read 20 30"]), (0, 0));
    }

    #[test]
    fn a_writer_that_overlaps_another_grant_is_found() {
        for pair in [
            ["a we/write 10 30", "a java/write 20 40"],
            ["a we/write 10 30", "a java/read 20 40"],
            ["a we/read 10 30", "a java/write 20 40"],
            ["a we/read 10 30", "a java/write 20 25"],
        ] {
            assert_eq!(report(&pair).0, 1, "{pair:?}");
        }
    }

    #[test]
    fn a_reader_after_others_does_not_hide_the_writer_before_them() {
        let lines = ["a x/write 10 50", "a y/write 60 70", "a z/read 65 90"];
        assert_eq!(report(&lines).0, 1);
        let lines = ["a x/read 10 50", "a y/read 20 30", "a z/write 40 60"];
        assert_eq!(report(&lines).0, 1, "the longer of two readers");
    }

    #[test]
    fn sequential_grants_and_those_of_different_locks_are_valid() {
        let lines = ["a x/write 10 50", "a y/read 50 70", "b z/write 20 90"];
        assert_eq!(report(&lines), (0, 0));
    }
}
