//! Each request in the life of one lock that is several, lost in each way.

use std::time::Duration;

use distlock::Error;

use super::server::everything_arrives;
use super::{Label, PATIENCE};
use crate::support::{ChaosProxy, Fault, Match};

/// More than a command may take.
pub(crate) const LONG: Duration = super::COMMAND_TIMEOUT.saturating_mul(2);

pub(crate) const FAULTS: [Fault; 7] = [
    Fault::CutAfter,
    Fault::CutBefore,
    Fault::DelayReply(LONG),
    Fault::DelayRequest(LONG),
    Fault::DuplicateRequest,
    Fault::HoldReply,
    Fault::HoldRequest,
];

/// What is done with the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Story {
    /// It is held for as long as some renewals take.
    Renewed,
    /// Tried in vain, waited for, released, tried again and dropped.
    Taken,
}

/// The clients of one case, ours behind proxies.
pub(crate) trait Party {
    fn proxies(&self) -> &[ChaosProxy];

    async fn tell(&self, story: Story);

    /// The story is over and everything was released: whatever still comes takes nothing, nothing is left, and another
    /// client gets all. What was held back comes before the others have it, or afterwards, if it is `late`.
    async fn end(&self, late: bool);
}

/// Plays each case in which some of the first requests to these proxies, all at once, are lost in some way.
pub(crate) async fn lose_everything<P: Party>(
    at_least: usize,
    most_requests: u64,
    groups: &[&[usize]],
    begin: impl AsyncFn(String) -> P,
) {
    let begun = tokio::time::Instant::now();
    let (mut played, mut cases) = (0, 0);
    for story in [Story::Taken, Story::Renewed] {
        // The servers know every script before a network does wrong.
        let known = begin(format!("{story:?}-")).await;
        known.tell(story).await;
        let counts: Vec<u64> = known.proxies().iter().map(requests).collect();
        known.end(false).await;
        for group in groups {
            let count = group.iter().map(|proxy| counts[*proxy]).min();
            for nth in 1..=count.expect("one at least").min(most_requests) {
                for fault in FAULTS {
                    let held_back = matches!(fault, Fault::HoldReply | Fault::HoldRequest);
                    for late in [false, true] {
                        if late && !held_back {
                            continue;
                        }
                        let what = format!("{story:?}, {fault:?} of {nth} to {group:?}, {late}");
                        let _label = Label(what);
                        played += 1;
                        let party = begin(format!("case-{played}-")).await;
                        for proxy in *group {
                            let nth = Match::command("EVALSHA").nth(nth);
                            party.proxies()[*proxy].rule(nth, fault);
                        }
                        party.tell(story).await;
                        let mut has_happened = true;
                        for proxy in *group {
                            let proxy = &party.proxies()[*proxy];
                            has_happened &= is_injected(proxy, nth).await;
                        }
                        cases += usize::from(has_happened);
                        party.proxies().iter().for_each(ChaosProxy::clear_rules);
                        party.end(late).await;
                    }
                }
            }
        }
    }
    eprintln!("{cases} cases in {:?}", begun.elapsed());
    assert!(cases >= at_least, "only {cases} cases");
}

/// Waits until the fault of a request takes effect. A story may take a request less than it took when they were counted: a
/// waiter asks once more if a release falls between its question and its subscription.
async fn is_injected(proxy: &ChaosProxy, nth: u64) -> bool {
    let injected = async {
        while proxy.injected().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let is_injected = tokio::time::timeout(PATIENCE, injected).await.is_ok();
    assert!(is_injected || requests(proxy) < nth, "it was sent");
    is_injected
}

/// What was held back comes now.
pub(crate) async fn let_go(proxies: &[ChaosProxy]) {
    for proxy in proxies {
        proxy.let_go();
        everything_arrives(proxy).await;
    }
}

/// How many scripts were called.
pub(crate) fn requests(proxy: &ChaosProxy) -> u64 {
    let requests = proxy.requests().into_iter();
    requests.filter(|words| words[0] == "EVALSHA").count() as u64
}

/// Trouble is fine if it says that stores have not answered; "lost" would be false.
pub(crate) fn tolerate<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(error.is_transient(), "nobody but us had it, but: {error}");
            None
        }
    }
}
