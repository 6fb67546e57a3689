//! Which master to believe in, when sentinels say different things. Pure.
//!
//! Every failover has a number, the config epoch, which a majority of the sentinels has agreed to: who knows of a later
//! one is right. Sentinels that know of the same one are counted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::engine::redis::site::Site;

/// A master as sentinels name it, and which failover made it that.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Named {
    pub(super) site: Site,
    pub(super) epoch: u64,
}

/// What one sentinel says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Testimony {
    /// Which it is, by whatever address it was asked.
    pub(super) who: String,
    pub(super) master: Named,
    /// How many sentinels it knows of, itself included.
    pub(super) sentinels: usize,
}

/// What follows from it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// This one, whatever the others say.
    Certainly(Named),
    /// This one, if no more is to be heard.
    Perhaps(Named),
    /// Nothing that would change what was believed.
    Stay,
}

/// Makes one of what they say. There are so many `sentinels` at least; `refused` is where a replica was found in place of
/// the master.
pub(super) fn believe(
    said: &[Testimony],
    sentinels: usize,
    current: Option<&Named>,
    refused: Option<&Site>,
) -> Verdict {
    // One that is asked by two addresses has one vote.
    let said: BTreeMap<&str, &Testimony> = said.iter().map(|said| (&*said.who, said)).collect();
    let known = said.values().map(|said| said.sentinels).max();
    let majority = known.unwrap_or(0).max(sentinels) / 2 + 1;
    let mut named: BTreeMap<&Site, (u64, usize)> = BTreeMap::new();
    for said in said.values() {
        let (epoch, votes) = named.entry(&said.master.site).or_default();
        *epoch = said.master.epoch.max(*epoch);
        *votes += 1;
    }
    let best = named.iter().max_by_key(|(site, (epoch, votes))| {
        let was = current.is_some_and(|current| current.site == ***site);
        (
            *epoch,
            Some(**site) != refused,
            *votes,
            was,
            Reverse(**site),
        )
    });
    let Some((&site, &(epoch, votes))) = best else {
        return Verdict::Stay;
    };
    let best = Named {
        site: site.clone(),
        epoch,
    };
    let most = votes >= majority;
    let Some(current) = current else {
        return if most {
            Verdict::Certainly(best)
        } else {
            Verdict::Perhaps(best)
        };
    };
    if *current == best {
        return Verdict::Stay;
    }
    if epoch > current.epoch || most {
        return Verdict::Certainly(best);
    }
    if epoch < current.epoch {
        // They lag behind, unless they are the majority.
        return Verdict::Stay;
    }
    // The same failover, and two masters: one sentinel was told something else by its operator.
    let is_named = named.contains_key(&current.site);
    if is_named && refused != Some(&current.site) {
        return Verdict::Stay;
    }
    Verdict::Perhaps(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(port: u16) -> Site {
        let host = "h".to_owned();
        Site { host, port }
    }

    fn master(port: u16, epoch: u64) -> Named {
        let site = site(port);
        Named { site, epoch }
    }

    /// Sentinels `a`, `b`, `c`, …, of three.
    fn said(answers: &[(u16, u64)]) -> Vec<Testimony> {
        let answers = ('a'..).zip(answers);
        let said = answers.map(|(who, &(port, epoch))| Testimony {
            who: who.into(),
            master: master(port, epoch),
            sentinels: 3,
        });
        said.collect()
    }

    fn verdict(answers: &[(u16, u64)], current: Option<(u16, u64)>) -> Verdict {
        let current = current.map(|(port, epoch)| master(port, epoch));
        believe(&said(answers), 3, current.as_ref(), None)
    }

    #[test]
    fn nobody_says_anything() {
        assert_eq!(verdict(&[], None), Verdict::Stay);
        assert_eq!(verdict(&[], Some((1, 4))), Verdict::Stay);
    }

    #[test]
    fn at_first_a_majority_is_certain_and_fewer_are_not() {
        assert_eq!(verdict(&[(1, 0)], None), Verdict::Perhaps(master(1, 0)));
        let two = [(1, 0), (1, 0)];
        assert_eq!(verdict(&two, None), Verdict::Certainly(master(1, 0)));
        let split = [(1, 0), (2, 0)];
        assert!(matches!(verdict(&split, None), Verdict::Perhaps(_)));
        let outvoted = [(1, 0), (2, 0), (2, 0)];
        assert_eq!(verdict(&outvoted, None), Verdict::Certainly(master(2, 0)));
    }

    #[test]
    fn one_that_says_there_are_more_makes_the_majority_greater() {
        let mut all = said(&[(1, 0), (1, 0)]);
        all[0].sentinels = 5;
        let verdict = believe(&all, 2, None, None);
        assert_eq!(verdict, Verdict::Perhaps(master(1, 0)));
    }

    #[test]
    fn one_that_was_asked_by_two_names_has_one_vote() {
        let mut twice = said(&[(1, 0), (1, 0)]);
        twice[1].who = twice[0].who.clone();
        let verdict = believe(&twice, 3, None, None);
        assert_eq!(verdict, Verdict::Perhaps(master(1, 0)));
    }

    #[test]
    fn a_later_failover_is_believed_of_a_single_one() {
        let told = verdict(&[(1, 4), (2, 5), (1, 4)], Some((1, 4)));
        assert_eq!(told, Verdict::Certainly(master(2, 5)));
        // Also at first, though the others are more.
        let told = verdict(&[(1, 4), (2, 5), (1, 4)], None);
        assert_eq!(told, Verdict::Perhaps(master(2, 5)));
    }

    #[test]
    fn one_that_lags_behind_is_not_believed() {
        assert_eq!(verdict(&[(1, 4)], Some((2, 5))), Verdict::Stay);
    }

    #[test]
    fn a_majority_that_has_begun_anew_is_believed() {
        let told = verdict(&[(1, 0), (1, 0)], Some((2, 5)));
        assert_eq!(told, Verdict::Certainly(master(1, 0)));
    }

    #[test]
    fn of_two_masters_of_one_failover_the_one_we_are_at_stays() {
        assert_eq!(verdict(&[(1, 0), (2, 0)], Some((1, 0))), Verdict::Stay);
        assert_eq!(verdict(&[(1, 0), (2, 0)], Some((2, 0))), Verdict::Stay);
    }

    #[test]
    fn unless_it_was_found_to_be_a_replica() {
        let all = said(&[(1, 0), (2, 0)]);
        for (refused, other) in [(1, 2), (2, 1)] {
            let current = master(refused, 0);
            let verdict = believe(&all, 3, Some(&current), Some(&site(refused)));
            assert_eq!(verdict, Verdict::Perhaps(master(other, 0)));
        }
        // A later failover counts for more: what it promoted may not have been told yet.
        let all = said(&[(1, 4), (2, 5)]);
        let verdict = believe(&all, 3, Some(&master(1, 4)), Some(&site(2)));
        assert_eq!(verdict, Verdict::Certainly(master(2, 5)));
    }

    #[test]
    fn the_same_master_by_a_later_failover_is_news() {
        let told = verdict(&[(1, 6)], Some((1, 4)));
        assert_eq!(told, Verdict::Certainly(master(1, 6)));
    }
}
