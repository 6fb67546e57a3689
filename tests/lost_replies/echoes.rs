//! Several questions of one owner, who waits in the store's line: one that was not answered may come whenever it likes, and
//! brings neither a hold nor a place back that its owner has left.

use std::time::Duration;

use distlock::{Error, Guard};
use tokio::task::JoinHandle;

use super::PATIENCE;
use super::corners::{acquire, injected, proxied, runs};
use super::support::{ChaosProxy, Fair, Fault, Player, Script, eventually};
use super::world::World;

#[tokio::test]
async fn a_question_that_comes_after_its_place_was_left_brings_no_place() {
    let (world, proxy, client) = patient().await;
    let (theirs, waiting) = one_question_held_back(&world, &proxy, &client).await;
    give_up(&client, waiting).await;
    let line = world.line("stock").await;
    assert_eq!(line, [""; 0], "it has left");
    everything_arrives(&proxy).await;
    assert_eq!(world.line("stock").await, [""; 0], "a ghost");
    theirs.release().await.unwrap();
    assert_eq!(world.leftovers("stock").await, [""; 0]);
}

/// It does not hear of its grant either, so that this is taken back while another question is still to come.
#[tokio::test]
async fn a_question_that_comes_after_a_grant_was_taken_back_brings_no_hold() {
    let (world, proxy, client) = patient().await;
    let (theirs, waiting) = one_question_held_back(&world, &proxy, &client).await;
    proxy.rule(runs(Script::Acquire).nth(1), Fault::HoldReply);
    theirs.release().await.unwrap();
    injected(&proxy, 2).await;
    let granted = world.holds("stock").await;
    assert_eq!(granted.len(), 1, "the answer is on its way");
    give_up(&client, waiting).await;
    assert_eq!(world.leftovers("stock").await, [""; 0], "it is taken back");
    everything_arrives(&proxy).await;
    assert_eq!(world.leftovers("stock").await, [""; 0], "a ghost");
}

/// What another client holds, and somebody of ours who waits for it. One of its questions is under way and it has asked
/// again since.
async fn one_question_held_back(
    world: &World<Fair>,
    proxy: &ChaosProxy,
    client: &Player<Fair>,
) -> (Guard<distlock::Fair>, Waiting) {
    let theirs = acquire(&world.other.lock("stock")).await;
    let asked = || {
        let asks = |words: &[String]| Script::Acquire.runs(words);
        world.witness.count("stock", asks)
    };
    eventually(PATIENCE, "theirs is seen", async || asked() == 1).await;
    proxy.rule(runs(Script::Acquire).nth(2), Fault::HoldRequest);
    let waiting = tokio::spawn(client.lock("stock").acquire());
    eventually(PATIENCE, "it asks again", async || asked() == 3).await;
    injected(proxy, 1).await;
    assert_eq!(world.line("stock").await.len(), 1, "it has one place");
    (theirs, waiting)
}

/// Waits no longer; all that the client has to clean up is cleaned up.
async fn give_up(client: &Player<Fair>, waiting: Waiting) {
    waiting.abort();
    let ended = waiting.await;
    assert!(ended.is_err_and(|error| error.is_cancelled()));
    client.close().await.unwrap();
}

async fn everything_arrives(proxy: &ChaosProxy) {
    assert!(proxy.unanswered() > 0, "one is still to come");
    proxy.let_go();
    eventually(PATIENCE, "all requests arrive", async || {
        proxy.unanswered() == 0
    })
    .await;
}

/// Nothing is given up on a busy machine but what is held back.
async fn patient() -> (World<Fair>, ChaosProxy, Player<Fair>) {
    proxied::<Fair>(|builder| builder.command_timeout(Duration::from_millis(800))).await
}

type Waiting = JoinHandle<Result<Guard<distlock::Fair>, Error>>;
