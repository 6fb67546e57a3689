//! Operations on a whole database that is full of other programs' data.

use distlock::{Change, Client};

use super::PATIENCE;
use super::corpus::shapes;
use super::stage::Stage;
use super::support::eventually;

/// The operations on a database that this file tests.
pub(crate) const COVERS: &[&str] = &[
    "Admin::examine",
    "Admin::examine_with_probe",
    "Admin::list_with_progress",
    "Admin::watch",
    "Client::set_label",
    "Watch::next",
];

#[tokio::test]
async fn reading_the_whole_database_writes_nothing() {
    read_everything("").await;
}

#[tokio::test]
async fn reading_the_whole_database_without_scripts_writes_nothing() {
    read_everything("?scripts=off").await;
}

async fn read_everything(parameters: &str) {
    let mut stage = Stage::start();
    let holder = stage.builder("").label("holder").connect().await;
    let holder: Client = holder.expect("the server is up");
    let _held = holder.lock("held").acquire().await.expect("it is free");
    let client = stage.client(parameters).await;
    holder.set_label("READONLY You can't write against a read only replica.");
    let admin = client.admin();
    eventually(PATIENCE, "the label is there", async || {
        let seen = admin.inspect("held").await.expect("it can be seen");
        let seen = seen.and_then(|seen| seen.holders[0].label.clone());
        seen.is_some_and(|label| label.starts_with("READONLY"))
    })
    .await;

    let before = stage.reading();
    let found = admin.list_with_progress("*", |_| {}).await;
    let found = found.expect("it can be listed");
    let mut names = found.iter().map(|lock| &*lock.name);
    assert_eq!(names.next(), Some("bull:mail:22:lock"), "{found:?}");
    assert_eq!(names.next(), Some("held"), "{found:?}");
    assert_eq!(names.next(), None, "{found:?}");
    let cost = before.until(stage.reading());
    assert_eq!(cost.writes, 0, "{cost:?}");
    assert!(cost.commands < 20 * shapes().count() as u64, "{cost:?}");
    assert!(cost.in_scripts < 1 << 20, "{cost:?}");

    let before = stage.reading();
    let mut watch = admin.watch("*");
    for name in ["bull:mail:22:lock", "held"] {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await;
        let event = event.expect("it is said").expect("it can be watched");
        assert_eq!((&*event.name, event.change), (name, Change::Held));
    }
    let looks = tokio::time::timeout(QUIET, watch.next()).await;
    assert!(looks.is_err(), "nothing happens: {looks:?}");
    let cost = before.until(stage.reading());
    assert_eq!(cost.writes, 0, "{cost:?}");

    admin.examine().await.expect("it can be examined");
    stage.all_unchanged("examined");
    let probed = admin.examine_with_probe().await;
    probed.expect("it can be examined");
    stage.all_unchanged("probed");
    client.close().await.expect("nothing is under way");
    holder.close().await.expect("nothing is under way");
    stage.end();
}

/// Long enough for several polls of a watch.
const QUIET: std::time::Duration = std::time::Duration::from_millis(700);
