//! The recipients of messages, and the number of messages.

use super::history::History;
use super::monitor::Monitor;
use super::support::{RedisServer, eventually};
use super::{CHANNEL, NAME, PATIENCE, connect, leaves_nothing, line, take, until_queued};

#[tokio::test]
async fn a_hand_off_is_one_message_to_the_head_of_the_queue() {
    let server = RedisServer::start();
    let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = take(&client).await;
    let history = History::start(&server).await;
    let mut waiting = Vec::new();
    for number in 0..CROWD {
        let client = if number % 2 == 0 { &client } else { &other };
        waiting.push(tokio::spawn(client.fair_lock(NAME).acquire()));
        until_queued(&server, number + 1).await;
    }
    let came = line(&server);
    let channels: Vec<String> = came
        .iter()
        .map(|owner| format!("{CHANNEL}:{owner}"))
        .collect();
    eventually(
        PATIENCE,
        "each listens at a channel of its own",
        async || {
            let mut all = channels.clone();
            all.sort();
            server.pubsub_channels() == all
        },
    )
    .await;

    let messages = messages(&server).await;
    held.release().await.expect("it is ours");
    for waiter in waiting {
        let guard = tokio::time::timeout(PATIENCE, waiter)
            .await
            .expect("in time");
        let guard = guard.expect("no panic").expect("the server answers");
        guard.release().await.expect("it is ours");
    }
    // The release by the last waiter finds an empty queue: its message is for waiters of the plain lock of this name.
    let mut expected = channels;
    expected.push(CHANNEL.to_owned());
    eventually(PATIENCE, "the last message is seen", async || {
        messages
            .seen()
            .last()
            .is_some_and(|(channel, _)| channel == CHANNEL)
    })
    .await;
    let (told, words): (Vec<_>, Vec<_>) = messages.seen().into_iter().unzip();
    eventually(PATIENCE, "every grant is seen", async || {
        history.granted().len() == CROWD
    })
    .await;
    // A waiter that has lost its place is notified again, and so is the next one.
    if history.silent().is_empty() {
        assert_eq!(told, expected);
        assert!(words.iter().all(|word| word == "0"), "{words:?}");
    }
    leaves_nothing(&server).await;
}

/// A head of the queue that gives up notifies the next waiter, which has to know when the holder's lease expires. Any other waiter that
/// gives up notifies none.
#[tokio::test]
async fn leaving_the_queue_notifies_no_waiter_unless_the_head_leaves() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(tokio::spawn(client.fair_lock(NAME).acquire()));
        until_queued(&server, number + 1).await;
    }
    let came = line(&server);
    let messages = messages(&server).await;
    for (gone, left) in [(2, 3), (3, 2), (0, 1)] {
        waiting[gone].abort();
        until_queued(&server, left).await;
    }
    eventually(PATIENCE, "the next is told", async || {
        !messages.seen().is_empty()
    })
    .await;
    waiting[1].abort();
    until_queued(&server, 0).await;
    held.release().await.expect("it is ours");
    eventually(PATIENCE, "the last message is seen", async || {
        messages
            .seen()
            .last()
            .is_some_and(|(channel, _)| channel == CHANNEL)
    })
    .await;
    let told: Vec<String> = messages
        .seen()
        .into_iter()
        .map(|(channel, _)| channel)
        .collect();
    assert_eq!(told, [format!("{CHANNEL}:{}", came[1]), CHANNEL.to_owned()]);
    leaves_nothing(&server).await;
}

/// Records every message that is sent: its channel and its content.
async fn messages(server: &RedisServer) -> Monitor<(String, String)> {
    Monitor::start(server, |_, words| match words {
        ["PUBLISH", channel, word] => Some(((*channel).to_owned(), (*word).to_owned())),
        _ => None,
    })
    .await
}

const CROWD: usize = 20;
