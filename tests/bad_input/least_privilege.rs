//! The documented ACL line for a user that only uses locks: it is enough, and each of its words is needed.

#![expect(
    clippy::future_not_send,
    reason = "the cases run side by side on one thread"
)]

use std::collections::BTreeSet;

use distlock::{Client, Error, Lock};
use tokio::task::{JoinSet, LocalSet};

use super::PATIENCE;
use super::stage::{Broken, LIMIT, LONG, Stage};
use super::support::{RedisServer, rights, simulated};
use super::{fair, further, read_write, rounds, semaphore};

/// The prefix of all names of such a user.
const PREFIX: &str = "app:";
/// Plays a scenario with all of these rules and the additional ones, then once without each of these.
async fn each_is_needed(
    rules: Vec<&'static str>,
    beside: &[&'static str],
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
    // They run concurrently: most of the time they wait.
    let (here, mut all) = (LocalSet::new(), JoinSet::new());
    for missing in missing {
        let (play, rules) = (play.clone(), [beside, &*rules].concat());
        let left = rules.into_iter().filter(move |rule| Some(*rule) != missing);
        let case = async move {
            // With all rules, no step waits in vain.
            let limit = if missing.is_none() { PATIENCE } else { LONG };
            let played = LIMIT.scope(limit, play(left.collect())).await;
            eprintln!("without {missing:?}: {played:?}");
            match (played, missing) {
                (Ok(()), None) => None,
                (Ok(()), Some(missing)) => Some(format!("{missing} is for nothing")),
                (Err(Broken::Told(Error::PermissionDenied { .. })), Some(_)) => None,
                (Err(Broken::Seen(_)), Some(_)) => None,
                // A key that could have been of the kind was refused: the last such error is reported.
                (Err(Broken::Told(Error::WrongKind { .. })), Some("+del")) => None,
                (Err(broken), missing) => Some(format!("without {missing:?}: {broken:?}")),
            }
        };
        all.spawn_local_on(case, &here);
    }
    let ended = here.run_until(all.join_all()).await;
    let complaints: Vec<String> = ended.into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Plays the steps in order on a server of their own, until one fails.
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

#[test]
fn each_word_of_the_acl_line_is_required() {
    simulated(async || {
        each_is_needed(rights::line(), &[], async |rules| {
            play(rules, "stock").await
        })
        .await;
    });
}

/// The user has the keys and channels of the line as well. Of the lock's own, they cover only those that begin with the prefix.
#[test]
fn each_word_for_names_with_braces_is_required() {
    simulated(async || {
        let braces = rights::added_for("names with a brace");
        each_is_needed(braces, &rights::line(), async |rules| {
            play(rules, "{stock}:1").await
        })
        .await;
    });
}

/// The rights that each kind needs are listed with it; the rights that all kinds need are the line.
#[test]
fn the_acl_line_covers_all_kinds() {
    let fenced = rights::of_fenced_locks();
    let mut all = [rights::commands(), rights::of_simple_locks(), fenced].concat();
    all.extend(rights::of_fair_locks());
    all.extend(rights::of_counting());
    all.extend(rights::of_labels());
    let own = [rights::of_rw_locks("NAME"), rights::of_semaphores("NAME")].concat();
    all.extend(own.iter().map(String::as_str));
    let commands = |rules: &[&'static str]| -> BTreeSet<&'static str> {
        let commands = rules.iter().filter(|rule| rule.starts_with('+'));
        commands.copied().collect()
    };
    let line = rights::line();
    let needed: BTreeSet<&str> = all
        .into_iter()
        .filter(|rule| rule.starts_with('+'))
        .collect();
    assert_eq!(commands(&line), needed);
}

/// Plays on a server of its own, so that its script cache is its own, too.
async fn plays<K: 'static>(
    rules: Vec<&str>,
    parameters: &str,
    needed: impl Fn(&Client, &str) -> Lock<K>,
) -> Result<(), Broken> {
    let server = RedisServer::start();
    let stage = Stage::new(&server, &rules, ["", "needed"], parameters).await?;
    rounds::lock(&stage, needed).await?;
    // Without `UNWATCH` a client succeeds by a detour, so its denial counts as a failure here. The queries of labels and of the server are
    // optional as well; their denial does not count.
    match server.denied().contains(&"unwatch".to_owned()) {
        true => Err(Broken::Seen("nothing was denied")),
        false => Ok(()),
    }
}

/// Fails if anything was denied that is only tried, and not required.
fn nothing_denied(server: &RedisServer) -> Result<(), Broken> {
    match server.denied().is_empty() {
        true => Ok(()),
        false => Err(Broken::Seen("nothing was denied")),
    }
}

const PLAIN: [&str; 3] = ["~needed", "~distlock_undone:*", "&redisson_lock__channel:*"];

#[test]
fn each_right_of_plain_locks_is_required() {
    simulated(async || {
        let rules = [rights::commands(), PLAIN.to_vec()].concat();
        each_is_needed(rules, &[], async |rules| {
            plays(rules, "", |client, name| client.lock(name)).await
        })
        .await;
    });
}

#[test]
fn each_right_of_simple_locks_is_required() {
    simulated(async || {
        let beside = [rights::commands(), PLAIN.to_vec()].concat();
        each_is_needed(rights::of_simple_locks(), &beside, async |rules| {
            plays(rules, "", |client, name| client.simple_lock(name)).await
        })
        .await;
    });
}

#[test]
fn each_right_of_fenced_locks_is_required() {
    simulated(async || {
        let beside = [rights::commands(), PLAIN.to_vec()].concat();
        let mut rules = rights::of_fenced_locks();
        rules.push("~redisson_lock_token:*");
        each_is_needed(rules, &beside, async |rules| {
            let server = RedisServer::start();
            rounds::tokens(&Stage::new(&server, &rules, ["", "needed"], "").await?).await
        })
        .await;
    });
}

#[test]
fn each_right_of_counters_is_required() {
    simulated(async || {
        let beside = [rights::commands(), PLAIN.to_vec()].concat();
        let beside = [beside, vec!["~needed-loaded"]].concat();
        each_is_needed(rights::of_counting(), &beside, async |rules| {
            let server = RedisServer::start();
            rounds::counting(&Stage::new(&server, &rules, ["", "needed"], "").await?).await
        })
        .await;
    });
}

#[test]
fn each_right_is_required_without_scripts() {
    simulated(async || {
        let rules = [rights::without_scripts(), PLAIN.to_vec()].concat();
        let rules = [rules, vec!["~redisson_lock_token:*"]].concat();
        each_is_needed(rules, &[], async |rules| {
            plays(rules.clone(), "?scripts=off", |client, name| {
                client.lock(name)
            })
            .await?;
            plays(rules.clone(), "?scripts=off", |client, name| {
                client.simple_lock(name)
            })
            .await?;
            plays(rules, "?scripts=off", |client, name| {
                client.fenced_lock(name)
            })
            .await
        })
        .await;
    });
}

/// The features beyond locks themselves, each with the rights that the page says to add for it.
#[test]
fn each_word_of_the_optional_acl_rules_is_required() {
    simulated(async || {
        let line = rights::line();
        let added = |what| (rights::added_for(what), &*line);
        let (rules, beside) = added("a database other than 0");
        each_is_needed(rules, beside, async |rules| {
            let server = RedisServer::start();
            further::other_database(&server, &rules).await
        })
        .await;
        let (rules, beside) = added("`admin().list`");
        each_is_needed(rules, beside, async |rules| {
            let server = RedisServer::start();
            further::listed(&server, &rules).await
        })
        .await;
        let (rules, beside) = added("`watch`");
        each_is_needed(rules, beside, async |rules| {
            let server = RedisServer::start();
            further::watched(&server, &rules).await
        })
        .await;
        let (rules, beside) = added("the warning");
        each_is_needed(rules, beside, async |rules| {
            let server = RedisServer::start();
            further::connected(&server, &rules).await?;
            nothing_denied(&server)
        })
        .await;
        let (rules, beside) = added("`durability`");
        each_is_needed(rules, beside, async |rules| {
            let server = RedisServer::start();
            further::durable(&server, &rules).await
        })
        .await;
        let (rules, beside) = added("`failover_delay`");
        each_is_needed(rules, beside, async |rules| {
            let server = RedisServer::start();
            further::delayed(&server, &rules).await
        })
        .await;
        let (rules, beside) = added("`distlock doctor`");
        each_is_needed(rules, beside, async |rules| {
            let server = RedisServer::start();
            further::examined(&server, &rules).await?;
            nothing_denied(&server)
        })
        .await;
    });
}
