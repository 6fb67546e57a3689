//! Frames: the parser by itself, and subscriptions through the proxy.

use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncWriteExt, duplex};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use super::support::resp::{Frames, words};
use super::support::{Fault, Match, eventually};
use super::{PATIENCE, incr, patient, proxied};

#[tokio::test]
async fn frames_are_found_however_the_bytes_arrive() {
    let frames: &[&[u8]] = &[
        b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n",
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-7\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*3\r\n:1\r\n*2\r\n$-1\r\n+x\r\n_\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n#t\r\n",
        b"~2\r\n,1.5\r\n(12345678901234567890\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n=7\r\ntxt:a\r\n\r\n",
        b"!5\r\nERR a\r\n",
        // An attribute and the value it describes are one answer.
        b"|1\r\n+ttl\r\n:9\r\n$1\r\nv\r\n",
    ];
    let all = frames.concat();
    for chunk in [1, 7, all.len()] {
        let (mut wire, reader) = duplex(chunk);
        let bytes = all.clone();
        let writing = tokio::spawn(async move {
            wire.write_all(&bytes).await.unwrap();
            wire.write_all(b"$9\r\nhalf a").await.unwrap();
        });
        let mut found = Frames::new(reader);
        for frame in frames {
            assert_eq!(found.next().await.unwrap().unwrap(), *frame);
        }
        assert!(found.next().await.unwrap().is_none());
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn bytes_that_are_not_resp_are_an_error() {
    for wrong in [&b"GET a\r\n"[..], b"$x\r\n", b"*1\r\n$-2\r\n", b"\r\n"] {
        assert!(Frames::new(wrong).next().await.is_err());
    }
}

#[test]
fn words_are_the_strings_of_a_request() {
    assert_eq!(
        words(b"*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$0\r\n\r\n"),
        [&b"SET"[..], b"\r\n", b""]
    );
    assert_eq!(words(b">2\r\n+message\r\n:1\r\n"), [&b"message"[..], b"1"]);
}

#[tokio::test]
async fn a_resp2_subscription_passes_through_and_can_be_cut() {
    let (server, proxy) = proxied();
    // Would hit confirmations and messages if they were taken for replies.
    proxy.rule(Match::any(), Fault::SwallowReply);
    let (from, mut to) = TcpStream::connect(proxy.addr()).await.unwrap().into_split();
    let mut frames = Frames::new(from);
    to.write_all(b"*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n")
        .await
        .unwrap();
    assert_eq!(
        next(&mut frames).await.unwrap(),
        [&b"subscribe"[..], b"a", b"1"]
    );
    assert_eq!(
        next(&mut frames).await.unwrap(),
        [&b"subscribe"[..], b"b", b"2"]
    );
    server.cmd(&["PUBLISH", "b", "hello"]);
    assert_eq!(
        next(&mut frames).await.unwrap(),
        [&b"message"[..], b"b", b"hello"]
    );
    to.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
    assert_eq!(next(&mut frames).await.unwrap(), [&b"pong"[..], b""]);
    assert_eq!(proxy.injected(), Vec::<String>::new());
    assert_eq!(
        proxy.requests(),
        [vec!["SUBSCRIBE", "a", "b"], vec!["PING"]]
    );

    proxy.cut_all();
    assert!(next(&mut frames).await.is_none());
    eventually(PATIENCE, "the server noticed", async || {
        server.pubsub_channels().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_subscription_can_be_held() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("SUBSCRIBE"), Fault::HoldRequest);
    let mut listener = redis::Client::open(proxy.url())
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    let subscribing = tokio::spawn(async move { listener.subscribe("one").await });
    eventually(PATIENCE, "the subscription is held", async || {
        !proxy.injected().is_empty()
    })
    .await;
    assert!(server.pubsub_channels().is_empty());
    proxy.let_go();
    subscribing.await.unwrap().unwrap();
}

#[tokio::test]
async fn resp3_pushes_are_not_taken_for_replies() {
    let (server, proxy) = proxied();
    let url = format!("{}?protocol=resp3", proxy.url());
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = redis::AsyncConnectionConfig::new()
        .set_push_sender(sender)
        .set_response_timeout(Some(PATIENCE));
    let mut connection: MultiplexedConnection = redis::Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    connection.subscribe(&["one", "two"]).await.unwrap();
    for _ in 0..2 {
        assert_eq!(
            pushes.recv().await.unwrap().kind,
            redis::PushKind::Subscribe
        );
    }
    // The reply to the second INCR is hit, whatever is pushed in between.
    proxy.rule(Match::command("INCR").nth(2), Fault::HoldReply);
    assert_eq!(incr(&mut connection).await.unwrap(), 1);
    server.cmd(&["PUBLISH", "one", "hello"]);
    assert_eq!(pushes.recv().await.unwrap().kind, redis::PushKind::Message);
    let second = tokio::spawn(async move { incr(&mut connection).await });
    eventually(PATIENCE, "the reply is held", async || {
        proxy.injected() == ["HoldReply: INCR counter"]
    })
    .await;
    assert!(!second.is_finished());
    proxy.let_go();
    assert_eq!(second.await.unwrap().unwrap(), 2);
    let mut other = patient(&server.url()).await;
    assert_eq!(incr(&mut other).await.unwrap(), 3);
}

async fn next(frames: &mut Frames<OwnedReadHalf>) -> Option<Vec<Vec<u8>>> {
    let frame = tokio::time::timeout(PATIENCE, frames.next())
        .await
        .expect("there is something to read");
    frame.unwrap().map(|frame| words(&frame))
}
