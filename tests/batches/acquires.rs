//! Batches of nothing but acquires: many at a time, and how few calls they need.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Error, Guard};
use tokio::task::{JoinHandle, JoinSet};

use super::PATIENCE;
use super::company::{Call, Company, ended};
use super::support::batch::is_batch;
use super::support::{Fault, Match, RedisServer, eventually};

#[tokio::test]
async fn whatever_becomes_of_a_batch_the_store_has_what_the_guards_say() {
    for fault in [
        Fault::CutAfter,
        Fault::CutBefore,
        Fault::DelayReply(2 * TIME_OUT),
        Fault::DelayRequest(2 * TIME_OUT),
        Fault::DuplicateRequest,
        Fault::HoldReply,
        Fault::HoldRequest,
    ] {
        let (company, acquiring) = under_way(fault).await;
        company.proxy.partition(false);
        let mut guards = BTreeMap::new();
        for (name, outcome) in ended(acquiring).await {
            match outcome {
                Ok(guard) => drop(guards.insert(name, guard)),
                Err(Error::Timeout { .. } | Error::Unavailable { .. }) => {}
                Err(error) => panic!("{fault:?}: {error}"),
            }
        }
        let said: BTreeMap<_, _> = guards
            .iter()
            .map(|(name, guard)| (name.clone(), guard.owner()))
            .collect();
        eventually(PATIENCE, &format!("{fault:?}"), async || {
            company.proxy.injected().len() == 1
        })
        .await;
        let what = format!("{fault:?}: {} are held", said.len());
        eventually(PATIENCE, &what, async || held(&company) == said).await;
        // What was on its way all the time arrives now, and finds itself undone.
        company.proxy.let_go();
        tokio::time::sleep(TIME_OUT).await;
        eventually(PATIENCE, &what, async || held(&company) == said).await;
        for (_, guard) in guards {
            guard.release().await.expect("it is ours");
        }
        let free = async || held(&company).is_empty();
        eventually(PATIENCE, "all are free", free).await;
    }
}

#[tokio::test]
async fn callers_that_go_while_their_batch_is_under_way_leave_nothing_behind() {
    let (company, acquiring) = under_way(Fault::DelayReply(TIME_OUT / 2)).await;
    company.proxy.partition(false);
    eventually(PATIENCE, "the server has carried them out", async || {
        company.proxy.injected().len() == 1
    })
    .await;
    acquiring.iter().for_each(JoinHandle::abort);
    let free = async || held(&company).is_empty();
    eventually(PATIENCE, "all are free", free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_need_few_calls_and_one_needs_two() {
    let company = Company::start().await;
    let calls = || company.server.commandstats("evalsha");
    let before = calls();
    let guard = company.hold("one").await;
    guard.release().await.expect("it is ours");
    assert_eq!(calls() - before, 2);

    let before = calls();
    let mut cycles = JoinSet::new();
    for number in 0..256 {
        let lock = company.client.lock(format!("many-{number}"));
        cycles.spawn(async move {
            for _ in 0..10 {
                let guard = lock.acquire().await.expect("it is free");
                guard.release().await.expect("it is ours");
            }
        });
    }
    cycles.join_all().await;
    let calls = calls() - before;
    eprintln!("{calls} calls for {} cycles", 256 * 10);
    assert!(calls < 256 * 10, "{calls} calls");
}

/// Callers in a hurry whose batch is under way, and this is to befall it. Anew if their time was over before it was sent.
async fn under_way(fault: Fault) -> (Company, Vec<JoinHandle<(String, Result<Guard, Error>)>>) {
    for _ in 0..TRIES {
        let company = hasty().await;
        company.proxy.rule(Match::words(is_batch).nth(1), fault);
        if let Some(acquiring) = company.try_set_off(acquires(&company)).await {
            return (company, acquiring);
        }
    }
    panic!("they never travel together");
}

async fn hasty() -> Company {
    let build = |builder: distlock::ClientBuilder| builder.command_timeout(TIME_OUT);
    Company::on(RedisServer::start(), "", build).await
}

fn acquires(company: &Company) -> Vec<Call<(String, Result<Guard, Error>)>> {
    let names = (0..MANY).map(|number| format!("stock-{number}"));
    let acquire = |name: String| -> Call<_> {
        let acquiring = company.acquire(&name);
        Box::pin(async move { (name, acquiring.await) })
    };
    names.map(acquire).collect()
}

/// Who holds what.
fn held(company: &Company) -> BTreeMap<String, String> {
    let keys = company.server.keys().into_iter();
    let locks = keys.filter(|key| key.starts_with("stock-"));
    let holder = |key: String| {
        let (owner, count) = company.holds(&key).into_iter().next()?;
        assert_eq!(count, "1", "{key}");
        Some((key, owner))
    };
    locks.filter_map(holder).collect()
}

const MANY: usize = 30;
const TRIES: usize = 10;
const TIME_OUT: Duration = Duration::from_secs(1);
