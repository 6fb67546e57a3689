//! Permits seen from outside: by inspection, in lists and by a watch.

use std::time::Duration;

use distlock::{Change, Error, LockKind, Watch};
use tokio::time::sleep;

use super::{counts, release};
use crate::stage::{CaseResult, Semaphore, Stage, in_time, seen};

on_every_engine_with_scripts! { play with Semaphore:
    permit_holders_are_visible,
    a_watch_reports_permits,
}

async fn permit_holders_are_visible(stage: &Stage<Semaphore>) -> CaseResult {
    let name = stage.name("exports");
    let labelled = stage.builder().label("exporter");
    let a = stage.connect(labelled).await?;
    let b = stage.client().await?;
    let semaphore = a.semaphore(&*name).with_permits(4);
    assert!(b.admin().inspect(&name).await?.is_none());
    let one = semaphore.permit().acquire().await?;
    let two = b.semaphore(&*name).permits(2).acquire().await?;
    let waiting = tokio::spawn(a.semaphore(&*name).permits(3).acquire());
    let seen = in_time(async {
        loop {
            let seen = seen(&b, &name).await?;
            let labelled = seen.holders.iter().any(|holder| holder.label.is_some());
            if labelled && !seen.waiting.is_empty() {
                return Ok::<_, Error>(seen);
            }
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await?;
    assert_eq!(seen.kind, LockKind::Semaphore);
    let permits = seen.permits.expect("it has some");
    assert_eq!((permits.available, permits.out), (1, 3));
    assert_eq!(seen.waiting.len(), 1);
    assert_eq!(seen.holders.len(), 2);
    for (guard, count, label) in [(&one, 1, Some("exporter")), (&two, 2, None)] {
        let mut holders = seen.holders.iter();
        let holder = holders.find(|holder| holder.owner == guard.owner());
        let holder = holder.expect("it is seen");
        assert_eq!((holder.hold_count, holder.label.as_deref()), (count, label));
        assert!(holder.ttl.is_some());
    }
    let listed = b.admin().list(&format!("{name}*")).await?;
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].name, listed[0].holders.len()), (&*name, 2));
    assert!(b.admin().release(&name, &two.owner()).await?);
    assert!(!b.admin().release(&name, &two.owner()).await?);
    assert!(two.release().await.is_err());
    let three = in_time(waiting).await.expect("no panic")?;
    release(vec![one, three]).await?;
    assert!(b.admin().inspect(&name).await?.is_none(), "nobody has any");
    assert!(b.admin().list(&format!("{name}*")).await?.is_empty());
    assert!(!b.admin().force_release(&name).await?);
    counts(&semaphore, 4, 0).await
}

async fn a_watch_reports_permits(stage: &Stage<Semaphore>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let semaphore = a.semaphore(&*name).with_permits(2);
    let first = semaphore.permit().acquire().await?;
    let mut watch = b.admin().watch(&*name);
    expect_event(&mut watch, Change::Held, first.owner()).await?;
    let second = semaphore.permit().acquire().await?;
    expect_event(&mut watch, Change::Granted, second.owner()).await?;
    let (owner, id) = (first.owner(), first.permit_ids()[0]);
    first.forget();
    assert!(semaphore.release(id).await?);
    expect_event(&mut watch, Change::Released, owner).await?;
    let owner = second.owner();
    second.release().await?;
    expect_event(&mut watch, Change::Released, owner).await
}

async fn expect_event(watch: &mut Watch, change: Change, owner: String) -> CaseResult {
    let event = in_time(watch.next()).await?;
    assert_eq!((event.change, event.owner), (change, Some(owner)));
    assert_eq!(event.kind, Some(LockKind::Semaphore));
    Ok(())
}
