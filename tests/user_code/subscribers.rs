//! A `tracing` subscriber that panics or blocks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::instrument::WithSubscriber;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::{
    Behaviour, Misbehaviour, PATIENCE, Store, a_loss_is_notified, a_release_is_noticed, closes,
    eventually, stays_renewed,
};

/// Subscribes to every event and misbehaves at each.
pub(super) struct MisbehavingSubscriber(pub(super) Arc<Misbehaviour>);

impl Subscriber for MisbehavingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("distlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.call();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

async fn a_bad_subscriber_costs_nobody_a_lock(store: Store, manner: Behaviour, name: &str) {
    let bad = Arc::new(Misbehaviour::new(manner));
    let subscriber = Dispatch::new(MisbehavingSubscriber(bad.clone()));
    // Events of the library's own tasks go to the subscriber that is current while the client connects.
    let connecting = store.builder().connect().with_subscriber(subscriber);
    let client = connecting.await.expect("the store is up");
    let good = client.lock(format!("{name} good")).acquire().await;
    let good = good.expect("it is free");

    // The watchdog, a renewal, cleanup and the subscription task have events to log.
    let short = client.lock(format!("{name} short"));
    let short = short.with_max_hold(Duration::from_millis(100));
    let short = short.acquire().await.expect("it is free");
    let lost = timeout(PATIENCE, short.lost()).await;
    assert!(lost.expect("its holder is notified").is_some());
    tokio::join!(
        a_release_is_noticed(&store, &client, name),
        a_loss_is_notified(&store, &client, name),
        stays_renewed(&good),
    );

    eventually(PATIENCE, "the subscriber is called", async || {
        bad.calls() > 0
    })
    .await;
    if manner == Behaviour::Panics {
        // It is called again after a panic.
        eventually(PATIENCE, "it is called again", async || bad.calls() > 3).await;
    }
    closes(client).await;
    assert!(
        manner == Behaviour::Panics || bad.calls() == 1,
        "it blocks once"
    );
    bad.release();
}

macro_rules! on_every_store {
    ($($test:ident: $store:ident, $manner:ident;)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                let name = stringify!($test);
                a_bad_subscriber_costs_nobody_a_lock(Store::$store(), Behaviour::$manner, name).await;
            }
        )+
    };
}

on_every_store! {
    a_subscriber_that_panics_loses_no_lock_on_redis: redis, Panics;
    a_subscriber_that_blocks_loses_no_lock_on_redis: redis, Blocks;
    a_subscriber_that_panics_loses_no_lock_without_scripts: redis_without_scripts, Panics;
    a_subscriber_that_blocks_loses_no_lock_without_scripts: redis_without_scripts, Blocks;
    a_subscriber_that_panics_loses_no_lock_in_a_file: sqlite, Panics;
    a_subscriber_that_blocks_loses_no_lock_in_a_file: sqlite, Blocks;
}
