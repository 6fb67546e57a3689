//! Every story over every network, with every kind of lock.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Label;
use super::case::Case;
use super::rules::RULES;
use super::server::TestServer;
use super::stories::{Moment, Story};
use crate::support::Semaphore as Permit;
use crate::support::{Fair, Family, Fault, Fenced, Plain, Read, Several, Simple, Write, simulated};

mod any_lost_message_leaves_the_count_of_the_guards_and_no_orphaned_hold {
    use super::*;

    #[test]
    fn of_plain_locks() {
        simulated(async || run_story::<Plain>(400, every_request).await);
    }

    #[test]
    fn of_simple_locks() {
        simulated(async || run_story::<Simple>(400, every_request).await);
    }

    #[test]
    fn of_fenced_locks() {
        simulated(async || run_story::<Fenced>(400, every_request).await);
    }

    #[test]
    fn of_fair_locks() {
        simulated(async || run_story::<Fair>(500, every_request).await);
    }

    #[test]
    fn of_readers() {
        simulated(async || run_story::<Read>(350, every_request).await);
    }

    #[test]
    fn of_writers() {
        simulated(async || run_story::<Write>(350, every_request).await);
    }

    #[test]
    fn of_permits() {
        simulated(async || run_story::<Permit>(250, every_request).await);
    }

    #[test]
    fn of_several_permits() {
        simulated(async || run_story::<Several>(250, every_request).await);
    }
}

/// Without scripts a request is many commands, and each of them is lost.
mod any_lost_command_without_scripts_leaves_the_count_of_the_guards_and_no_orphaned_hold {
    use super::*;

    #[test]
    fn of_plain_locks() {
        simulated(async || run_story::<Plain>(300, every_command).await);
    }

    #[test]
    fn of_simple_locks() {
        simulated(async || run_story::<Simple>(300, every_command).await);
    }

    #[test]
    fn of_fenced_locks() {
        simulated(async || run_story::<Fenced>(300, every_command).await);
    }
}

type Moments = Vec<(&'static Story, Moment)>;

/// Loses each of these moments in each of its ways.
async fn run_story<F: Family>(
    at_least: usize,
    moments: impl AsyncFnOnce(Rc<TestServer<F>>) -> Moments,
) {
    let server = Rc::new(TestServer::start().await);
    let begun = tokio::time::Instant::now();
    let mut cases = 0;
    let mut ways: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (turn, (story, moment)) in moments(server.clone()).await.into_iter().enumerate() {
        for rule in moment.ways(turn) {
            let _label = Label(format!("{:?}, {moment:?}: {}", story.plot, rule.name));
            if let Moment::Command(command) = &moment {
                ways.entry(command.word.clone())
                    .or_default()
                    .insert(rule.name);
            }
            let verdict = Case::run_story(server.clone(), story, rule, moment.clone()).await;
            let harmless = rule.harmless && story.is_whole();
            assert!(verdict.errors == 0 || !harmless, "it did harm");
            assert_eq!(verdict.late, rule.fault == Fault::HoldRequest, "late");
            cases += 1;
        }
    }
    eprintln!("{cases} cases in {:?}", begun.elapsed());
    assert!(cases >= at_least, "only {cases} cases");
    for word in ["EXEC", "MULTI"] {
        let few = ways.get(word).filter(|ways| ways.len() <= RULES.len() / 2);
        assert_eq!(few, None, "{word} is lost only in these ways");
    }
}

async fn every_request<F: Family>(_: Rc<TestServer<F>>) -> Moments {
    let moments = Story::all::<F>().flat_map(|story| {
        let requests = 1..=story.requests;
        requests.map(move |nth| (story, Moment::Request(nth)))
    });
    moments.collect()
}

async fn every_command<F: Family>(server: Rc<TestServer<F>>) -> Moments {
    let mut moments = Vec::new();
    let mut words = BTreeSet::new();
    for story in Story::all::<F>().filter(|story| !story.in_parts.is_empty()) {
        for command in Case::commands(server.clone(), story).await {
            words.insert(command.word.clone());
            moments.push((story, Moment::Command(command)));
        }
    }
    let its_own = match F::COUNTS {
        true => ["HDEL", "HRANDFIELD", "HSET"],
        false => ["DEL", "GETRANGE", "SET"],
    };
    let tokens = ["GETRANGE", "SET"].iter().filter(|_| F::FENCED);
    for word in COMMON.iter().chain(&its_own).chain(tokens) {
        assert!(words.contains(*word), "no {word} among {words:?}");
    }
    moments
}

/// The commands that are sent for every kind of lock.
const COMMON: &[&str] = &[
    "EXEC",
    "MULTI",
    "PEXPIRE",
    "PTTL",
    "PUBLISH",
    "PUBSUB",
    "TIME",
    "UNWATCH",
    "WATCH",
    "ZADD",
    "ZREMRANGEBYSCORE",
    "ZSCORE",
];
