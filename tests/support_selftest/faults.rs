//! Each fault does to a request what its name says, and nothing to the others.

use std::time::{Duration, Instant};

use super::support::{ChaosProxy, Fault, Match, eventually};
use super::{HASTE, PATIENCE, counter, hasty, incr, patient, proxied};

#[tokio::test]
async fn without_a_rule_nothing_changes() {
    let (server, proxy) = proxied();
    let mut connection = patient(&proxy.url()).await;
    proxy.clear_requests();
    for expected in 1..=50 {
        assert_eq!(incr(&mut connection).await.unwrap(), expected);
    }
    // Larger than any buffer on the way.
    let large = "x".repeat(3_000_000);
    let () = redis::cmd("SET")
        .arg("large")
        .arg(&large)
        .query_async(&mut connection)
        .await
        .unwrap();
    let got: String = redis::cmd("GET")
        .arg("large")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(got == large);
    assert_eq!(counter(&server), 50);
    assert_eq!(proxy.injected(), Vec::<String>::new());
    assert_eq!(proxy.unanswered(), 0);
    assert_eq!(proxy.requests().len(), 52);
    assert_eq!(proxy.requests()[0], ["INCR", "counter"]);
}

#[tokio::test]
async fn a_swallowed_reply_never_comes_but_the_server_has_executed() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("incr").nth(1), Fault::SwallowReply);
    let mut connection = hasty(&proxy.url()).await;
    assert!(incr(&mut connection).await.unwrap_err().is_timeout());
    recorded(&proxy, "SwallowReply: INCR counter").await;
    assert_eq!(proxy.unanswered(), 0);
    assert_eq!(counter(&server), 1);
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 2);
}

#[tokio::test]
async fn a_duplicated_request_is_executed_twice_and_answered_once() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR").nth(1), Fault::DuplicateRequest);
    let mut first = patient(&proxy.url()).await;
    let mut second = first.clone();
    // Both under way at once: were the second copy's reply forwarded, it would be taken for the
    // other request's.
    let (first, second) = tokio::join!(incr(&mut first), incr(&mut second));
    assert_eq!((first.unwrap(), second.unwrap()), (1, 3));
    recorded(&proxy, "DuplicateRequest: INCR counter").await;
    assert_eq!(counter(&server), 3);
}

#[tokio::test]
async fn a_cut_before_keeps_the_request_from_the_server() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR").nth(1), Fault::CutBefore);
    let error = incr(&mut patient(&proxy.url()).await).await.unwrap_err();
    assert!(error.is_connection_dropped(), "{error}");
    recorded(&proxy, "CutBefore: INCR counter").await;
    assert_eq!(proxy.unanswered(), 0);
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 1);
    assert_eq!(counter(&server), 1);
}

#[tokio::test]
async fn a_cut_after_lets_the_server_execute() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR").nth(1), Fault::CutAfter);
    let error = incr(&mut patient(&proxy.url()).await).await.unwrap_err();
    assert!(error.is_connection_dropped(), "{error}");
    recorded(&proxy, "CutAfter: INCR counter").await;
    assert_eq!(proxy.unanswered(), 0);
    assert_eq!(counter(&server), 1);
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 2);
}

#[tokio::test]
async fn a_delayed_reply_and_those_behind_it_come_later() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR").nth(1), Fault::DelayReply(DELAY));
    let mut first = patient(&proxy.url()).await;
    let mut second = first.clone();
    let started = Instant::now();
    let first = tokio::spawn(async move { incr(&mut first).await });
    recorded(&proxy, &format!("DelayReply({DELAY:?}): INCR counter")).await;
    assert_eq!(counter(&server), 1);
    assert_eq!(incr(&mut second).await.unwrap(), 2);
    assert!(started.elapsed() >= DELAY);
    assert_eq!(first.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_delayed_request_arrives_later_even_if_its_client_has_gone() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR").nth(1), Fault::DelayRequest(DELAY));
    let mut connection = hasty(&proxy.url()).await;
    let started = Instant::now();
    assert!(incr(&mut connection).await.is_err());
    drop(connection);
    recorded(&proxy, &format!("DelayRequest({DELAY:?}): INCR counter")).await;
    eventually(PATIENCE, "the request arrives", async || {
        counter(&server) == 1
    })
    .await;
    assert!(started.elapsed() >= DELAY);
}

#[tokio::test]
async fn a_held_request_is_delivered_after_its_client_has_gone() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR").nth(1), Fault::HoldRequest);
    let mut connection = hasty(&proxy.url()).await;
    let mut behind = connection.clone();
    assert!(incr(&mut connection).await.unwrap_err().is_timeout());
    assert!(incr(&mut behind).await.unwrap_err().is_timeout());
    drop((connection, behind));
    recorded(&proxy, "HoldRequest: INCR counter").await;

    // Another connection is not behind it, and overtakes.
    let mut other = patient(&proxy.url()).await;
    let () = redis::cmd("SET")
        .arg("counter")
        .arg(10)
        .query_async(&mut other)
        .await
        .unwrap();
    assert_eq!(counter(&server), 10);
    assert_eq!(proxy.unanswered(), 2);
    proxy.let_go();
    eventually(PATIENCE, "both requests are answered", async || {
        proxy.unanswered() == 0
    })
    .await;
    assert_eq!(counter(&server), 12);
}

#[tokio::test]
async fn a_held_request_survives_a_cut() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR"), Fault::HoldRequest);
    let mut connection = patient(&proxy.url()).await;
    let asking = tokio::spawn(async move { incr(&mut connection).await });
    recorded(&proxy, "HoldRequest: INCR counter").await;
    proxy.cut_all();
    assert!(asking.await.unwrap().is_err());
    assert_eq!(counter(&server), 0);
    proxy.let_go();
    eventually(PATIENCE, "the request arrives", async || {
        counter(&server) == 1
    })
    .await;
}

#[tokio::test]
async fn a_held_request_does_not_hold_up_earlier_replies() {
    let (_server, proxy) = proxied();
    proxy.rule(Match::command("INCR").nth(1), Fault::DelayReply(DELAY));
    proxy.rule(Match::command("INCR").nth(2), Fault::HoldRequest);
    let mut first = patient(&proxy.url()).await;
    let mut second = first.clone();
    let first = tokio::spawn(async move { incr(&mut first).await });
    eventually(PATIENCE, "the first reply is on its way", async || {
        proxy.injected().len() == 1
    })
    .await;
    let second = tokio::spawn(async move { incr(&mut second).await });
    recorded(&proxy, "HoldRequest: INCR counter").await;
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert!(!second.is_finished());
    proxy.let_go();
    assert_eq!(second.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn a_held_reply_comes_when_let_go_and_the_next_is_held_again() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR"), Fault::HoldReply);
    let connection = patient(&proxy.url()).await;
    // Lets go of nothing: what is held later stays held.
    proxy.let_go();
    for round in 1..=2 {
        let mut connection = connection.clone();
        let mut asking = tokio::spawn(async move { incr(&mut connection).await });
        eventually(PATIENCE, "the reply is held", async || {
            proxy.injected().len() == round
        })
        .await;
        assert_eq!(counter(&server), round as u64);
        assert!(tokio::time::timeout(HASTE, &mut asking).await.is_err());
        proxy.let_go();
        assert_eq!(asking.await.unwrap().unwrap(), round as u64);
    }
}

#[tokio::test]
async fn a_rule_hits_the_nth_request_it_selects_on_whatever_connection() {
    let (server, proxy) = proxied();
    let mut connection = patient(&proxy.url()).await;
    incr(&mut connection).await.unwrap();
    proxy.rule(
        Match::command("INCR").arg(1, "counter").nth(3),
        Fault::CutBefore,
    );
    incr(&mut connection).await.unwrap();
    // Not selected, so not counted.
    let () = redis::cmd("INCR")
        .arg("other")
        .query_async(&mut connection)
        .await
        .unwrap();
    incr(&mut patient(&proxy.url()).await).await.unwrap();
    assert!(incr(&mut connection).await.is_err());
    assert_eq!(proxy.injected(), ["CutBefore: INCR counter"]);
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 4);
    assert_eq!(counter(&server), 4);
}

#[tokio::test]
async fn the_rule_added_first_has_its_way_and_all_of_them_count() {
    let (server, proxy) = proxied();
    proxy.rule(
        Match::words(|words| words[0] == b"INCR").nth(1),
        Fault::DuplicateRequest,
    );
    proxy.rule(Match::command("INCR").nth(1), Fault::CutBefore);
    proxy.rule(Match::command("INCR").nth(2), Fault::CutAfter);
    let mut connection = patient(&proxy.url()).await;
    assert_eq!(incr(&mut connection).await.unwrap(), 1);
    assert!(incr(&mut connection).await.is_err());
    recorded(&proxy, "CutAfter: INCR counter").await;
    assert_eq!(
        proxy.injected(),
        ["DuplicateRequest: INCR counter", "CutAfter: INCR counter"]
    );
    assert_eq!(counter(&server), 3);

    proxy.rule(Match::command("INCR"), Fault::CutBefore);
    proxy.clear_rules();
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 4);
}

#[tokio::test]
async fn a_script_is_selected_by_its_hash_or_its_text() {
    let (server, proxy) = proxied();
    let bump = redis::Script::new("return redis.call('INCR', KEYS[1])");
    let other = redis::Script::new("return 7");
    proxy.rule(
        Match::script(&[bump.get_hash()]).nth(1),
        Fault::DuplicateRequest,
    );
    proxy.rule(
        Match::script(&["return redis.call('INCR', KEYS[1])"]),
        Fault::CutAfter,
    );
    server.cmd(&["SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])"]);

    let mut connection = patient(&proxy.url()).await;
    assert_eq!(
        other.invoke_async::<_, u64>(&mut connection).await.unwrap(),
        7
    );
    assert_eq!(
        bump.key("counter")
            .invoke_async::<u64>(&mut connection)
            .await
            .unwrap(),
        1
    );
    recorded(
        &proxy,
        &format!("DuplicateRequest: EVALSHA {} 1 counter", bump.get_hash()),
    )
    .await;
    assert_eq!(counter(&server), 2);
    let text = redis::cmd("EVAL")
        .arg("return redis.call('INCR', KEYS[1])")
        .arg(1)
        .arg("counter")
        .to_owned();
    assert!(text.query_async::<u64>(&mut connection).await.is_err());
    assert_eq!(counter(&server), 3);
}

async fn recorded(proxy: &ChaosProxy, what: &str) {
    eventually(PATIENCE, what, async || {
        proxy.injected().iter().any(|text| text == what)
    })
    .await;
}

const DELAY: Duration = Duration::from_millis(300);
