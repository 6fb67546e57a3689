//! Valid and invalid names of locks.

use distlock::Error;
use tokio::time::Instant;

use crate::stage::{CaseResult, Family, Stage, begun, in_time, seen, soon, waits};

with_every_lock! {
    any_text_names_a_lock,
    names_that_look_alike_are_different_locks,
    a_name_that_is_empty_or_too_long_is_rejected,
    prefixes_isolate_clients,
}

const NAMES: [&str; 16] = [
    "plain",
    "with spaces  in it ",
    "colons:and::slashes/\\",
    "{braces}",
    "open{brace",
    "close}brace",
    "{}",
    "}{",
    "nul\0inside\0",
    "line\nbreak\ttab\r",
    "naïve Übergröße",
    "名前 имя όνομα اسم",
    "🔒👩‍👩‍👧",
    "*?[a-z]",
    "'quotes\" %s $1 `",
    "\u{feff}\u{200b}",
];

async fn any_text_names_a_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    for name in NAMES {
        let name = stage.name(name);
        if stage.refuses(&name) {
            let refused = a.lock(&*name).acquire().await;
            assert!(
                matches!(refused, Err(Error::InvalidName { .. })),
                "{name:?}"
            );
            continue;
        }
        let held = a.lock(&*name).acquire().await?;
        assert_eq!(held.name(), name);
        assert!(b.lock(&*name).try_acquire().await?.is_none(), "{name:?}");
        let seen = seen(&b, &name).await?;
        assert_eq!(seen.name, name);
        assert_eq!(seen.holders[0].owner, held.owner());
        // A waiter is notified of its release as well.
        held.release().await?;
        soon(stage, async || {
            let held = a.lock(&*name).acquire().await?;
            let mut waiting = begun(b.lock(&*name).acquire()).await;
            assert!(waits(&mut waiting).await, "{name:?}");
            let released = Instant::now();
            held.release().await?;
            let next = in_time(waiting).await?;
            let waited = released.elapsed();
            assert!(a.admin().force_release(&name).await?);
            drop(next);
            Ok(waited)
        })
        .await?;
        assert_eq!(a.admin().inspect(&name).await?, None);
    }
    Ok(())
}

async fn names_that_look_alike_are_different_locks(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let names = [
        "a", "A", "a ", " a", "{a}", "a{", "a}", "a\0", "a:", "a/", "\u{e4}", "a\u{308}", "а",
    ];
    let mut guards = Vec::new();
    for name in names {
        let name = stage.name(name);
        if stage.refuses(&name) {
            continue;
        }
        let held = a.lock(&*name).try_acquire().await?;
        guards.push(held.unwrap_or_else(|| panic!("{name:?} is not the same as others")));
        assert!(b.lock(&*name).try_acquire().await?.is_none());
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn a_name_that_is_empty_or_too_long_is_rejected(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let invalid = |error| matches!(error, Error::InvalidName { .. });
    let endless = "x".repeat(1_000_000);
    for name in ["", &*endless] {
        let lock = client.lock(name);
        assert!(lock.acquire().await.is_err_and(invalid));
        assert!(lock.try_acquire().await.is_err_and(invalid));
        let done = lock.run(async |_| ()).await.map_err(Error::from);
        assert!(done.is_err_and(invalid));
        let admin = client.admin();
        assert!(admin.inspect(name).await.is_err_and(invalid));
        assert!(admin.force_release(name).await.is_err_and(invalid));
    }
    // A long name is valid.
    let long = stage.name(&"x".repeat(10_000));
    client.lock(long).acquire().await?.release().await
}

/// A key prefix works like Redisson's `NameMapper`; clients without one see the whole name.
async fn prefixes_isolate_clients(stage: &Stage<impl Family>) -> CaseResult {
    let (red, blue) = (stage.name("red:"), stage.name("blue*:"));
    let plain = stage.client().await?;
    let in_red = stage.connect(stage.builder().key_prefix(&red)).await?;
    let too = stage.connect(stage.builder().key_prefix(&red)).await?;
    let in_blue = stage.connect(stage.builder().key_prefix(&blue)).await?;

    let held = in_red.lock("stock").acquire().await?;
    assert_eq!(held.name(), "stock");
    assert!(too.lock("stock").try_acquire().await?.is_none());
    let other = in_blue.lock("stock").try_acquire().await?;
    assert!(other.is_some(), "another prefix is another lock");
    let whole = plain.lock(format!("{red}stock")).try_acquire().await?;
    assert!(
        whole.is_none(),
        "the prefix is part of the name in the store"
    );

    for client in [&in_red, &in_blue] {
        let locks = client.admin().list("*").await?;
        let names: Vec<_> = locks.iter().map(|lock| &*lock.name).collect();
        assert_eq!(names, ["stock"], "and of no name outside of it");
    }
    held.release().await
}
