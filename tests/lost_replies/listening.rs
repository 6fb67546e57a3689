//! Listening, and its end, when they are lost, late or cut off: who waits gets its turn all the same, and nobody listens
//! in the end.

use std::rc::Rc;
use std::time::Duration;

use distlock::{Client, Lease};
use tokio::task::{JoinSet, LocalSet};

use super::corners::injected;
use super::support::form::Form;
use super::support::{
    Fair, Family, Fault, Fenced, Match, Plain, Player, Simple, eventually, paced_timeout,
};
use super::world::World;
use super::{CONNECT_TIMEOUT, LEASE, PATIENCE};

mod whatever_becomes_of_its_listening_a_waiter_gets_its_turn {
    use super::*;

    #[tokio::test]
    async fn with_plain_locks() {
        listen_everyhow::<Plain>().await;
    }

    #[tokio::test]
    async fn with_simple_locks() {
        listen_everyhow::<Simple>().await;
    }

    #[tokio::test]
    async fn with_fenced_locks() {
        listen_everyhow::<Fenced>().await;
    }

    #[tokio::test]
    async fn with_fair_locks() {
        listen_everyhow::<Fair>().await;
    }
}

async fn listen_everyhow<F: Family>() {
    let world = Rc::new(World::<F>::start().await);
    let cases = async {
        let mut cases = JoinSet::new();
        for (number, (word, fault)) in WRONG.iter().copied().enumerate() {
            let name = format!("heard-{number}-{word}");
            cases.spawn_local(listen(world.clone(), name, word, fault));
        }
        cases.join_all().await;
    };
    LocalSet::new().run_until(cases).await;
}

async fn listen<F: Family>(
    world: Rc<World<F>>,
    name: String,
    word: &'static str,
    fault: Option<Fault>,
) {
    // A cluster has channels that belong to a slot.
    let (begins, channels) = match world.server.form() {
        Form::Plain => ("", "CHANNELS"),
        Form::Both | Form::Sharded => ("S", "SHARDCHANNELS"),
    };
    let proxy = world.server.proxy();
    let client = Client::builder(&proxy.url())
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(SLOW)
        .connect_timeout(CONNECT_TIMEOUT)
        // Whoever is next in line gets it through the store.
        .handoff_limit(0);
    let client = client.connect().await;
    let client = Player::<F>::new(client.expect("the network is still whole"));
    let theirs = world.other.lock(name.as_str()).acquire().await;
    let theirs = theirs.expect("their network is fine");
    if let Some(fault) = fault {
        let command = Match::command(&format!("{begins}{word}"));
        proxy.rule(command.nth(1), fault);
    }
    let listened_to = async || {
        let heard = format!("*{name}*");
        let channels = redis::cmd("PUBSUB").arg(channels).arg(heard).to_owned();
        !world.ask::<Vec<String>>(&channels).await.is_empty()
    };
    let waiting = tokio::spawn(client.lock(name.as_str()).acquire());
    if word == "SUBSCRIBE" && fault.is_some() {
        injected(&proxy, 1).await;
    } else {
        eventually(PATIENCE, "it listens", listened_to).await;
    }
    if fault.is_none() {
        proxy.cut_all();
    }
    theirs.release().await.expect("their network is fine");
    let turn = paced_timeout(SOON, waiting).await;
    let (turn, _) = turn.unwrap_or_else(|| panic!("{word}, {fault:?}: no turn"));
    let guard = turn.expect("no panic").expect("it has waited");
    injected(&proxy, usize::from(fault.is_some())).await;
    assert_eq!(world.holds(&name).await.len(), 1);
    guard.release().await.expect("nothing else goes wrong");
    proxy.let_go();
    let what = format!("{word}, {fault:?}: nobody listens");
    eventually(PATIENCE, &what, async || !listened_to().await).await;
    assert_eq!(world.leftovers(&name).await, [""; 0]);
}

/// What goes wrong with the first of these commands, or once it has been carried out.
const WRONG: &[(&str, Option<Fault>)] = &[
    ("SUBSCRIBE", Some(Fault::CutBefore)),
    ("SUBSCRIBE", Some(Fault::DelayRequest(LONG))),
    ("SUBSCRIBE", Some(Fault::HoldRequest)),
    ("SUBSCRIBE", None),
    ("UNSUBSCRIBE", Some(Fault::CutBefore)),
    ("UNSUBSCRIBE", Some(Fault::DelayRequest(LONG))),
    ("UNSUBSCRIBE", Some(Fault::HoldRequest)),
];
/// Nothing else goes wrong, so that a busy machine may take its time with it.
const SLOW: Duration = Duration::from_millis(1500);
const LONG: Duration = SLOW.saturating_mul(2);
/// Longer than anybody sleeps without asking; sooner than those who have gone would be passed over in a line.
const SOON: Duration = Duration::from_secs(8);
