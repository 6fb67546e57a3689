//! The choice of a master when sentinels disagree. Pure.
//!
//! Every failover has a number, the config epoch, to which a majority of the sentinels has agreed. The report with the highest
//! epoch wins. Among reports with the same epoch the number of sentinels decides.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::engine::redis::node_addr::NodeAddr;

/// A master as sentinels name it, with the config epoch of the failover that promoted it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct NamedMaster {
    pub(super) addr: NodeAddr,
    pub(super) config_epoch: u64,
}

/// Report of one sentinel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct SentinelReport {
    /// Identifies the sentinel, regardless of the address at which it was queried.
    pub(super) sentinel_id: String,
    pub(super) master: NamedMaster,
    /// Number of sentinels that it knows, itself included.
    pub(super) sentinels: usize,
}

/// Conclusion from the reports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum MasterChoice {
    /// This is the master, whatever the other sentinels report.
    Confirmed(NamedMaster),
    /// This is the master unless further reports contradict it.
    Tentative(NamedMaster),
    /// The reports are no reason for a change.
    Unchanged,
}

/// Chooses a master from the reports. `sentinels` is the least number of sentinels that exist; `found_replica` is the address where a
/// replica was found instead of the master.
pub(super) fn choose_master(
    report: &[SentinelReport],
    sentinels: usize,
    current: Option<&NamedMaster>,
    found_replica: Option<&NodeAddr>,
) -> MasterChoice {
    // A sentinel that was queried at two addresses has one vote.
    let report: BTreeMap<&str, &SentinelReport> = report
        .iter()
        .map(|report| (&*report.sentinel_id, report))
        .collect();
    let known = report.values().map(|report| report.sentinels).max();
    let majority = known.unwrap_or(0).max(sentinels) / 2 + 1;
    let mut named: BTreeMap<&NodeAddr, (u64, usize)> = BTreeMap::new();
    for report in report.values() {
        let (epoch, votes) = named.entry(&report.master.addr).or_default();
        *epoch = report.master.config_epoch.max(*epoch);
        *votes += 1;
    }
    let best = named.iter().max_by_key(|(addr, (epoch, votes))| {
        let was = current.is_some_and(|current| current.addr == ***addr);
        (
            *epoch,
            Some(**addr) != found_replica,
            *votes,
            was,
            Reverse(**addr),
        )
    });
    let Some((&addr, &(epoch, votes))) = best else {
        return MasterChoice::Unchanged;
    };
    let best = NamedMaster {
        addr: addr.clone(),
        config_epoch: epoch,
    };
    let most = votes >= majority;
    let Some(current) = current else {
        return if most {
            MasterChoice::Confirmed(best)
        } else {
            MasterChoice::Tentative(best)
        };
    };
    if *current == best {
        return MasterChoice::Unchanged;
    }
    if epoch > current.config_epoch || most {
        return MasterChoice::Confirmed(best);
    }
    if epoch < current.config_epoch {
        // Sentinels with a lower epoch lag behind, unless they are the majority.
        return MasterChoice::Unchanged;
    }
    // Two masters at the same epoch: the operator of one sentinel has changed its master by hand.
    let is_named = named.contains_key(&current.addr);
    if is_named && found_replica != Some(&current.addr) {
        return MasterChoice::Unchanged;
    }
    MasterChoice::Tentative(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> NodeAddr {
        let host = "h".to_owned();
        NodeAddr { host, port }
    }

    fn master(port: u16, epoch: u64) -> NamedMaster {
        let addr = addr(port);
        NamedMaster {
            addr,
            config_epoch: epoch,
        }
    }

    /// Reports of sentinels `a`, `b`, `c`, …, out of three.
    fn report(answers: &[(u16, u64)]) -> Vec<SentinelReport> {
        let answers = ('a'..).zip(answers);
        let report = answers.map(|(sentinel_id, &(port, epoch))| SentinelReport {
            sentinel_id: sentinel_id.into(),
            master: master(port, epoch),
            sentinels: 3,
        });
        report.collect()
    }

    fn verdict(answers: &[(u16, u64)], current: Option<(u16, u64)>) -> MasterChoice {
        let current = current.map(|(port, epoch)| master(port, epoch));
        choose_master(&report(answers), 3, current.as_ref(), None)
    }

    #[test]
    fn no_reports_change_nothing() {
        assert_eq!(verdict(&[], None), MasterChoice::Unchanged);
        assert_eq!(verdict(&[], Some((1, 4))), MasterChoice::Unchanged);
    }

    #[test]
    fn first_choice_is_confirmed_by_a_majority_only() {
        assert_eq!(
            verdict(&[(1, 0)], None),
            MasterChoice::Tentative(master(1, 0))
        );
        let two = [(1, 0), (1, 0)];
        assert_eq!(verdict(&two, None), MasterChoice::Confirmed(master(1, 0)));
        let split = [(1, 0), (2, 0)];
        assert!(matches!(verdict(&split, None), MasterChoice::Tentative(_)));
        let outvoted = [(1, 0), (2, 0), (2, 0)];
        assert_eq!(
            verdict(&outvoted, None),
            MasterChoice::Confirmed(master(2, 0))
        );
    }

    #[test]
    fn largest_known_sentinel_count_sets_the_majority() {
        let mut all = report(&[(1, 0), (1, 0)]);
        all[0].sentinels = 5;
        let verdict = choose_master(&all, 2, None, None);
        assert_eq!(verdict, MasterChoice::Tentative(master(1, 0)));
    }

    #[test]
    fn sentinel_with_two_addresses_has_one_vote() {
        let mut twice = report(&[(1, 0), (1, 0)]);
        twice[1].sentinel_id = twice[0].sentinel_id.clone();
        let verdict = choose_master(&twice, 3, None, None);
        assert_eq!(verdict, MasterChoice::Tentative(master(1, 0)));
    }

    #[test]
    fn higher_epoch_is_confirmed_by_one_sentinel() {
        let choice = verdict(&[(1, 4), (2, 5), (1, 4)], Some((1, 4)));
        assert_eq!(choice, MasterChoice::Confirmed(master(2, 5)));
        // The higher epoch also wins the first choice against more votes.
        let choice = verdict(&[(1, 4), (2, 5), (1, 4)], None);
        assert_eq!(choice, MasterChoice::Tentative(master(2, 5)));
    }

    #[test]
    fn lower_epoch_is_ignored() {
        assert_eq!(verdict(&[(1, 4)], Some((2, 5))), MasterChoice::Unchanged);
    }

    #[test]
    fn majority_with_reset_epochs_is_confirmed() {
        let choice = verdict(&[(1, 0), (1, 0)], Some((2, 5)));
        assert_eq!(choice, MasterChoice::Confirmed(master(1, 0)));
    }

    #[test]
    fn current_master_wins_a_tie_at_the_same_epoch() {
        assert_eq!(
            verdict(&[(1, 0), (2, 0)], Some((1, 0))),
            MasterChoice::Unchanged
        );
        assert_eq!(
            verdict(&[(1, 0), (2, 0)], Some((2, 0))),
            MasterChoice::Unchanged
        );
    }

    #[test]
    fn refused_master_loses_a_tie() {
        let all = report(&[(1, 0), (2, 0)]);
        for (found_replica, other) in [(1, 2), (2, 1)] {
            let current = master(found_replica, 0);
            let verdict = choose_master(&all, 3, Some(&current), Some(&addr(found_replica)));
            assert_eq!(verdict, MasterChoice::Tentative(master(other, 0)));
        }
        // The higher epoch wins: the promoted server may not know of its promotion yet.
        let all = report(&[(1, 4), (2, 5)]);
        let verdict = choose_master(&all, 3, Some(&master(1, 4)), Some(&addr(2)));
        assert_eq!(verdict, MasterChoice::Confirmed(master(2, 5)));
    }

    #[test]
    fn same_master_at_a_higher_epoch_is_a_change() {
        let choice = verdict(&[(1, 6)], Some((1, 4)));
        assert_eq!(choice, MasterChoice::Confirmed(master(1, 6)));
    }
}
