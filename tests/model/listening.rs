//! Which listeners are notified of releases, and when all notifications have arrived.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use distlock::internals::engine::{Engine, Subscription};
use distlock::internals::protocol::{
    Action, Channel, ClientId, Entry, Kind, OwnerId, PermitRequest, Subject,
};
use tokio::time::timeout;

use super::compare::Notified;

/// A fence for notifications: its own message arrives behind every message sent before.
pub(crate) struct Fence {
    pub(crate) name: Arc<str>,
    store: Arc<dyn Engine>,
    listeners: Vec<Subscription>,
}

impl Fence {
    /// The number of calls of one wait.
    pub(crate) const CALLS: u64 = 2;

    pub(crate) async fn build(engines: &[Arc<dyn Engine>; 2], lane: &str) -> Self {
        let name: Arc<str> = format!("fence-of-{lane}").into();
        let mut listeners = Vec::new();
        for engine in engines {
            listeners.push(listen(engine.clone(), &name).await);
        }
        Self {
            name,
            store: engines[0].clone(),
            listeners,
        }
    }

    pub(crate) async fn wait(&self) {
        let owner = OwnerId::new(ClientId::new([7; 16]), 1);
        let take = Action::Acquire {
            owner,
            entry: Entry::Fresh,
            lease: Duration::from_secs(60),
            min_token: None,
            waiter_ttl: None,
            other_side: None,
            bypass_writers: false,
            permits: PermitRequest::ONE,
        };
        for action in [take, Action::Release { owner, left: 0 }] {
            let answer = self
                .store
                .clone()
                .call(Subject::new(Kind::Mutex, self.name.clone()).request(action));
            answer.await.expect("the store answers");
        }
        for subscription in &self.listeners {
            // The engine itself has to deliver this message: if it does not arrive, no other would.
            timeout(PATIENCE, subscription.notified())
                .await
                .expect("a release is heard of");
        }
    }
}

/// Subscribes to the plain lock of this name.
pub(crate) async fn listen(engine: Arc<dyn Engine>, name: &str) -> Subscription {
    listen_at(engine, Subject::new(Kind::Mutex, name).channel()).await
}

pub(crate) async fn listen_at(engine: Arc<dyn Engine>, channel: Channel) -> Subscription {
    engine.subscribe(channel).await.expect("anyone may listen")
}

/// Returns which of these listeners, in memory and at the store, were notified since the last call. With `patient` it waits
/// for a store whose notifications may arrive late.
pub(crate) async fn who_heard(
    listeners: &[(Subscription, Subscription)],
    patient: bool,
) -> Notified {
    let mut heard = Notified::default();
    for (here, there) in listeners {
        let memory = has_heard(here);
        let store = match (patient, memory) {
            (false, _) => has_heard(there),
            (true, true) => timeout(PATIENCE, there.notified()).await.is_ok(),
            // The store may notify more often than there are releases.
            (true, false) => false,
        };
        heard.memory.push(memory);
        heard.redis.push(store);
    }
    heard
}

/// Returns whether there was a notification since the last call.
fn has_heard(subscription: &Subscription) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pin!(subscription.notified()).poll(&mut context).is_ready()
}

/// Upper bound for a notification; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(10);
