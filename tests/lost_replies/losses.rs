//! Each request in the life of one lock that consists of several, lost in each way.

use std::time::Duration;

use distlock::Error;

use super::server::everything_arrives;
use super::{Label, PATIENCE};
use crate::support::{ChaosProxy, Fault, Match, eventually};

/// A time that is longer than the command time-out.
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

/// The use of the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Story {
    /// The lock is held for as long as some renewals take.
    Renewed,
    /// The lock is tried in vain, waited for, released, tried again and dropped.
    Taken,
}

/// The clients of one case, ours behind proxies.
pub(crate) trait Party {
    fn proxies(&self) -> &[ChaosProxy];

    async fn run_story(&self, story: Story);

    /// Checks the end of the story, in which everything was released: late messages acquire nothing, nothing is left, and another client
    /// acquires all. Messages that were held back arrive before the other client's acquire, or afterwards if `late`.
    async fn end(&self, late: bool);
}

/// Loses the first request to these proxies, all at once, in each way, then the second, and so on until the story sends no more or has sent
/// `most_requests`. A waiter with other random numbers may send one more: no count of an earlier run is used.
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
        known.run_story(story).await;
        known.end(false).await;
        for group in groups {
            for nth in 1..=most_requests {
                let before = cases;
                for (fault, late) in ways() {
                    let what = format!("{story:?}, {fault:?} of {nth} to {group:?}, {late}");
                    let _label = Label(what);
                    played += 1;
                    let party = begin(format!("case-{played}-")).await;
                    let proxies = group.iter().map(|proxy| &party.proxies()[*proxy]);
                    for proxy in proxies.clone() {
                        proxy.rule(Match::command("EVALSHA").nth(nth), fault);
                    }
                    party.run_story(story).await;
                    let mut is_injected = true;
                    for proxy in proxies {
                        is_injected &= takes_effect(proxy, nth).await;
                    }
                    cases += usize::from(is_injected);
                    party.proxies().iter().for_each(ChaosProxy::clear_rules);
                    party.end(late).await;
                }
                if cases == before {
                    break;
                }
            }
        }
    }
    eprintln!("{cases} cases in {:?}", begun.elapsed());
    assert!(cases >= at_least, "only {cases} cases");
}

/// Returns each fault, and whether a message that it holds back arrives after another client has acquired the lock.
fn ways() -> impl Iterator<Item = (Fault, bool)> {
    FAULTS.into_iter().flat_map(|fault| {
        let holds_back = matches!(fault, Fault::HoldReply | Fault::HoldRequest);
        [false, true]
            .map(|late| (fault, late))
            .into_iter()
            .take(1 + usize::from(holds_back))
    })
}

/// Waits until the fault of a request takes effect. Returns `false` if the request was not sent.
async fn takes_effect(proxy: &ChaosProxy, nth: u64) -> bool {
    let is_sent = requests(proxy) >= nth;
    if is_sent {
        eventually(PATIENCE, "the fault takes effect", async || {
            !proxy.injected().is_empty()
        })
        .await;
    }
    is_sent
}

/// Delivers the messages that were held back.
pub(crate) async fn deliver_held(proxies: &[ChaosProxy]) {
    for proxy in proxies {
        proxy.deliver_held();
        everything_arrives(proxy).await;
    }
}

/// Returns how many scripts were called.
pub(crate) fn requests(proxy: &ChaosProxy) -> u64 {
    let requests = proxy.requests().into_iter();
    requests.filter(|words| words[0] == "EVALSHA").count() as u64
}

/// Accepts an error that says that stores have not answered; "lost" would be false.
pub(crate) fn tolerate<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(error.is_transient(), "nobody but us had it, but: {error}");
            None
        }
    }
}
