//! A subscriber that calls the guard that an event is about.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock::{Client, QuorumHeld, QuorumLock};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::PATIENCE;

/// Checks the guard at every warning about a quorum.
#[derive(Default)]
struct GuardCheck {
    held: OnceLock<QuorumHeld>,
    has_asked: AtomicBool,
}

struct CheckingSubscriber(Arc<GuardCheck>);

impl Subscriber for CheckingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if let Some(held) = self.0.held.get()
            && event
                .metadata()
                .module_path()
                .is_some_and(|path| path.contains("quorum"))
        {
            assert!(!held.is_held());
            self.0.has_asked.store(true, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_may_query_the_quorum_guard_of_an_event() {
    let curious = Arc::new(GuardCheck::default());
    let subscriber = Dispatch::new(CheckingSubscriber(curious.clone()));
    let (done, is_done) = std::sync::mpsc::channel();
    // On a thread of its own: a thread that waits for itself never comes back.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build();
        // For all tasks of this runtime.
        let _current = tracing::dispatcher::set_default(&subscriber);
        let runtime = runtime.expect("a runtime can be had");
        runtime.block_on(loses(curious));
        let _ = done.send(());
    });
    let done = is_done.recv_timeout(PATIENCE);
    done.expect("nobody waits for itself");
}

async fn loses(curious: Arc<GuardCheck>) {
    let mut clients = Vec::new();
    for member in 0..3 {
        let url = format!("memory:a curious subscriber's {member}");
        clients.push(Client::connect(&url).await.expect("it is there"));
    }
    let members = clients.iter().map(|client| client.lock("a").into());
    let guard = QuorumLock::new(members).acquire().await;
    let guard = guard.expect("it is free");
    assert!(curious.held.set(guard.held()).is_ok());
    for client in &clients[..2] {
        let forced = client.admin().force_release("a").await;
        assert!(forced.expect("it is there"), "it is held there");
    }
    let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
    assert!(lost.expect("it is lost").is_some());
    assert!(curious.has_asked.load(Ordering::Relaxed), "it was asked");
}
