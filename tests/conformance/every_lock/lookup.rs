//! Lookups: the holders of locks, seen from outside.

use std::time::Duration;

use distlock::{Client, Error, Guard, Lease, ReleaseOn, Severity};

use crate::stage::{CaseResult, Family, PATIENCE, Player, Stage, begun, in_time, seen};
use crate::support::eventually;

with_every_lock! {
    a_free_lock_has_no_visible_holder,
    a_change_of_holder_is_visible,
    a_client_is_visible_by_its_label,
    a_list_shows_the_locks_of_all_clients_in_order,
    a_list_omits_released_locks,
    a_pattern_matches_star_and_question_mark,
    a_backslash_takes_a_character_as_it_is,
    only_star_question_mark_and_backslash_are_special,
    a_question_mark_stands_for_one_character_of_any_script,
    a_new_label_replaces_the_old_one,
    a_label_stays_for_a_forgotten_lock,
    a_forgotten_hold_is_released_by_its_owner_id,
    another_owner_id_releases_nothing,
    an_invalid_owner_id_is_rejected,
    a_suitable_store_passes_the_diagnosis,
    ;
    a_holder_is_visible_with_its_owner_count_and_lease,
    a_guard_is_notified_when_an_admin_releases_its_hold,
}

async fn a_free_lock_has_no_visible_holder(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    assert_eq!(a.admin().inspect(&name).await?, None);
    let held = a.lock(&*name).acquire().await?;
    assert!(b.admin().inspect(&name).await?.is_some());
    held.release().await?;
    assert_eq!(b.admin().inspect(&name).await?, None);
    Ok(())
}

async fn a_holder_is_visible_with_its_owner_count_and_lease(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lease = Duration::from_secs(60);
    let lock = a.lock(&*name).with_lease(Lease::Fixed(lease));
    let held = lock.with_owner(&a.new_owner()).acquire().await?;
    for client in [&a, &b] {
        let lock = seen(client, &name).await?;
        assert_eq!(lock.name, name);
        assert_eq!(lock.holders.len(), 1);
        let holder = &lock.holders[0];
        assert_eq!(holder.owner, held.owner());
        assert_eq!(holder.hold_count, 1);
        assert_eq!(holder.label, None);
        let ttl = lock.ttl.expect("it has an end");
        assert!(ttl <= lease && ttl > lease / 2, "{ttl:?}");
        // Redisson's form: a uuid and a number.
        let (client, number) = holder.owner.split_once(':').expect("two parts");
        assert_eq!(client.len(), 36);
        number.parse::<i64>().expect("a number");
    }
    held.release().await
}

async fn a_change_of_holder_is_visible(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let first = a.lock(&*name).acquire().await?;
    let owner = first.owner();
    assert_eq!(seen(&b, &name).await?.holders[0].owner, owner);
    let waiting = begun(b.lock(&*name).acquire()).await;
    first.release().await?;
    let second = in_time(waiting).await?;
    assert_ne!(second.owner(), owner);
    assert_eq!(seen(&a, &name).await?.holders[0].owner, second.owner());
    second.release().await
}

async fn a_client_is_visible_by_its_label(stage: &Stage<impl Family>) -> CaseResult {
    let nameless = stage.client().await?;
    let label = "billing-7 ✉ {x}";
    let billing = stage.connect(stage.builder().label(label)).await?;
    let (one, two) = (stage.name("one"), stage.name("two"));
    let _held = (
        billing.lock(&*one).acquire().await?,
        nameless.lock(&*two).acquire().await?,
    );
    label_becomes(&nameless, &one, label).await;
    assert_eq!(seen(&billing, &two).await?.holders[0].label, None);
    Ok(())
}

async fn a_list_shows_the_locks_of_all_clients_in_order(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let names = ["b:2", "a:10", "b:1", "a:9", "ä", "{c}"].map(|name| stage.name(name));
    let mut guards = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let client = if n % 2 == 0 { &a } else { &b };
        guards.push(client.lock(&**name).acquire().await?);
    }
    let list = a.admin().list(&stage.name("*")).await?;
    let listed: Vec<_> = list.iter().map(|lock| &*lock.name).collect();
    let sorted = ["a:10", "a:9", "b:1", "b:2", "{c}", "ä"].map(|name| stage.name(name));
    assert_eq!(listed, sorted);
    for lock in list {
        let guard = guards.iter().find(|guard| guard.name() == lock.name);
        let guard = guard.expect("it is one of them");
        assert_eq!(lock.holders[0].owner, guard.owner());
        assert_eq!(lock.holders[0].hold_count, 1);
        assert!(lock.ttl.is_some());
    }
    Ok(())
}

async fn a_list_omits_released_locks(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let fixed = Lease::Fixed(Duration::from_secs(4));
    let short = client
        .lock(stage.name("expires"))
        .with_lease(fixed)
        .acquire()
        .await?;
    let given = client.lock(stage.name("released")).acquire().await?;
    let forced = client.lock(stage.name("forced")).acquire().await?;
    let kept = client.lock(stage.name("kept")).acquire().await?;
    assert_eq!(names(&client, &stage.name("*")).await?.len(), 4);
    given.release().await?;
    client.admin().force_release(forced.name()).await?;
    eventually(PATIENCE, "only one is held", async || {
        let listed = names(&client, &stage.name("*")).await;
        listed.is_ok_and(|listed| listed == [kept.name()])
    })
    .await;
    assert!(!short.is_held());
    kept.release().await
}

async fn a_pattern_matches_star_and_question_mark(stage: &Stage<impl Family>) -> CaseResult {
    let held = ["order:1", "order:2", "order:12", "orders", "reorder:1"];
    let client = holding(stage, &held).await?;
    for (pattern, chosen) in [
        ("order:*", &["order:1", "order:12", "order:2"][..]),
        ("order:?", &["order:1", "order:2"]),
        ("order:??", &["order:12"]),
        ("*order*1", &["order:1", "reorder:1"]),
        ("order:1", &["order:1"]),
        ("ord", &[]),
        ("", &[]),
        (
            "*",
            &["order:1", "order:12", "order:2", "orders", "reorder:1"],
        ),
    ] {
        assert_eq!(
            chosen_by(stage, &client.0, pattern).await?,
            chosen,
            "{pattern}"
        );
    }
    Ok(())
}

async fn a_backslash_takes_a_character_as_it_is(stage: &Stage<impl Family>) -> CaseResult {
    let held = ["a*", "ab", "a?", r"a\", r"a\b"];
    let client = holding(stage, &held).await?;
    for (pattern, chosen) in [
        (r"a\*", &["a*"][..]),
        (r"a\?", &["a?"]),
        (r"a\b", &["ab"]),
        (r"a\\", &[r"a\"]),
        (r"a\\*", &[r"a\", r"a\b"]),
        ("a?", &["a*", "a?", r"a\", "ab"]),
    ] {
        assert_eq!(
            chosen_by(stage, &client.0, pattern).await?,
            chosen,
            "{pattern}"
        );
    }
    Ok(())
}

async fn only_star_question_mark_and_backslash_are_special(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let held = ["[ab]", "a", "{a,b}", "(a|b)", "a.c", "abc"];
    let client = holding(stage, &held).await?;
    for pattern in held {
        assert_eq!(chosen_by(stage, &client.0, pattern).await?, [pattern]);
    }
    assert_eq!(chosen_by(stage, &client.0, "[a*").await?, ["[ab]"]);
    Ok(())
}

async fn a_question_mark_stands_for_one_character_of_any_script(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let held = ["x", "é", "名", "🔒", "éé"];
    let client = holding(stage, &held).await?;
    assert_eq!(
        chosen_by(stage, &client.0, "?").await?,
        ["x", "é", "名", "🔒"]
    );
    assert_eq!(chosen_by(stage, &client.0, "??").await?, ["éé"]);
    Ok(())
}

async fn a_new_label_replaces_the_old_one(stage: &Stage<impl Family>) -> CaseResult {
    let (named, watcher) = stage.clients().await?;
    let name = stage.name("stock");
    let held = named.lock(&*name).acquire().await?;
    for label in ["first", "second"] {
        named.set_label(label);
        label_becomes(&watcher, &name, label).await;
    }
    held.release().await
}

async fn a_label_stays_for_a_forgotten_lock(stage: &Stage<impl Family>) -> CaseResult {
    let watcher = stage.client().await?;
    let gone = stage.builder().label("left behind");
    let gone = stage.connect(gone.release_on(ReleaseOn::Lease)).await?;
    let (left, given) = (stage.name("left"), stage.name("given"));
    let lease = Lease::Fixed(Duration::from_secs(600));
    gone.lock(&*left)
        .with_lease(lease)
        .acquire()
        .await?
        .forget();
    let held = gone.lock(&*given).acquire().await?;
    gone.close().await?;
    assert!(!held.is_held());
    label_becomes(&watcher, &left, "left behind").await;
    assert!(watcher.admin().inspect(&given).await?.is_none());
    Ok(())
}

async fn a_forgotten_hold_is_released_by_its_owner_id(stage: &Stage<impl Family>) -> CaseResult {
    let a = stage
        .connect(stage.builder().release_on(ReleaseOn::Lease))
        .await?;
    let b = stage.client().await?;
    let name = stage.name("deploy");
    let lease = Lease::Fixed(Duration::from_secs(600));
    let guard = a.lock(&*name).with_lease(lease).acquire().await?;
    let owner = guard.owner();
    guard.forget();
    a.close().await?;
    let waiting = begun(b.lock(&*name).acquire()).await;
    assert!(b.admin().release(&name, &owner).await?);
    let next = in_time(waiting).await?;
    assert!(
        !b.admin().release(&name, &owner).await?,
        "it holds it no longer"
    );
    next.release().await
}

async fn another_owner_id_releases_nothing(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let other = b.lock(stage.name("other")).acquire().await?;
    assert!(!b.admin().release(&name, &other.owner()).await?);
    assert!(
        !b.admin()
            .release(&stage.name("free"), &held.owner())
            .await?
    );
    assert!(held.is_held() && other.is_held());
    held.release().await?;
    other.release().await
}

async fn a_guard_is_notified_when_an_admin_releases_its_hold(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let me = client.new_owner();
    let lock = client.lock(&*name).with_owner(&me);
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    assert!(client.admin().release(&name, &outer.owner()).await?);
    assert!(
        !outer.is_held() && !inner.is_held(),
        "however often it was held"
    );
    assert_eq!(client.admin().inspect(&name).await?, None);
    Ok(())
}

async fn an_invalid_owner_id_is_rejected(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let refused = client
        .admin()
        .release(&stage.name("stock"), "somebody")
        .await;
    let Err(Error::InvalidOption { option, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(option, "owner");
    Ok(())
}

async fn a_suitable_store_passes_the_diagnosis(stage: &Stage<impl Family>) -> CaseResult {
    let findings = stage.client().await?.admin().examine_with_probe().await?;
    assert!(!findings.is_empty());
    for finding in findings {
        assert_ne!(finding.severity, Severity::Fail, "{finding:?}");
        let fine = finding.severity == Severity::Ok;
        assert_eq!(finding.advice.is_none(), fine, "{finding:?}");
    }
    Ok(())
}

/// Waits until a label is visible; the client announces it in the background.
async fn label_becomes(watcher: &Client, name: &str, label: &str) {
    eventually(PATIENCE, "the label is seen", async || {
        let seen = seen(watcher, name).await;
        seen.is_ok_and(|lock| lock.holders[0].label.as_deref() == Some(label))
    })
    .await;
}

/// Returns a client, and its guards of these locks.
async fn holding<F: Family>(
    stage: &Stage<F>,
    names: &[&str],
) -> Result<(Player<F>, Vec<Guard<F::Kind>>), Error> {
    let client = stage.client().await?;
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.lock(stage.name(name)).acquire().await?);
    }
    Ok((client, guards))
}

/// Returns the names that match a pattern, without the prefix that makes them this case's own.
async fn chosen_by(
    stage: &Stage<impl Family>,
    client: &Client,
    pattern: &str,
) -> Result<Vec<String>, Error> {
    let own = stage.name("");
    let listed = names(client, &stage.name(pattern)).await?;
    let short = |name: &String| name.strip_prefix(&own).map(str::to_owned);
    Ok(listed.iter().filter_map(short).collect())
}

async fn names(client: &Client, pattern: &str) -> Result<Vec<String>, Error> {
    let listed = client.admin().list(pattern).await?;
    Ok(listed.into_iter().map(|lock| lock.name).collect())
}
