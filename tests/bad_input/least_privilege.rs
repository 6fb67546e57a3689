//! The line to copy for a user of one's own: it is enough, and none of its words is for nothing.

#![expect(
    clippy::future_not_send,
    reason = "the cases run side by side on one thread"
)]

use std::collections::BTreeSet;

use distlock::Error;
use tokio::task::{JoinSet, LocalSet};

use super::stage::{Broken, Stage};
use super::support::{RedisServer, rights};
use super::{fair, read_write, rounds, semaphore};

/// What all names of such a user begin with.
const PREFIX: &str = "app:";
/// Most of it is waiting.
const AT_A_TIME: usize = 32;

/// Plays something with all of these rules, then without each of them.
async fn each_is_needed(
    rules: Vec<&'static str>,
    play: impl AsyncFn(Vec<&str>) -> Result<(), Broken> + Clone + 'static,
) {
    let is_right = |rule: &&&str| rule.starts_with(['+', '~', '&']);
    let mut missing: Vec<Option<&str>> = rules.iter().filter(is_right).copied().map(Some).collect();
    missing.push(None);
    assert_eq!(
        missing.iter().collect::<BTreeSet<_>>().len(),
        missing.len(),
        "none is there twice"
    );
    let mut complaints = Vec::new();
    while !missing.is_empty() {
        let some = missing.split_off(missing.len().saturating_sub(AT_A_TIME));
        let (here, mut all) = (LocalSet::new(), JoinSet::new());
        for missing in some {
            let (play, rules) = (play.clone(), rules.clone());
            let left = rules.into_iter().filter(move |rule| Some(*rule) != missing);
            let case = async move {
                let played = play(left.collect()).await;
                eprintln!("without {missing:?}: {played:?}");
                match (played, missing) {
                    (Ok(()), None) => None,
                    (Ok(()), Some(missing)) => Some(format!("{missing} is for nothing")),
                    (Err(Broken::Told(Error::PermissionDenied { .. })), Some(_)) => None,
                    (Err(Broken::Seen(_)), Some(_)) => None,
                    (Err(broken), missing) => Some(format!("without {missing:?}: {broken:?}")),
                }
            };
            all.spawn_local_on(case, &here);
        }
        complaints.extend(here.run_until(all.join_all()).await.into_iter().flatten());
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// One after the other on a server of their own, as far as it goes.
async fn play(rules: Vec<&str>, name: &str) -> Result<(), Broken> {
    let server = RedisServer::start();
    let stage = async || {
        server.flushall();
        Stage::new(&server, &rules, [PREFIX, name], "").await
    };
    rounds::lock(&stage().await?, |client, name| client.lock(name)).await?;
    rounds::lock(&stage().await?, |client, name| client.simple_lock(name)).await?;
    rounds::lock(&stage().await?, |client, name| client.fenced_lock(name)).await?;
    rounds::tokens(&stage().await?).await?;
    rounds::label(&stage().await?).await?;
    rounds::counting(&stage().await?).await?;
    fair::everything(&stage().await?).await?;
    let both = stage().await?;
    read_write::everything(&both.client, &both.other, name).await?;
    semaphore::everything(&stage().await?).await
}

#[tokio::test]
async fn each_word_of_the_line_is_needed() {
    each_is_needed(rights::line(), async |rules| play(rules, "stock").await).await;
}
