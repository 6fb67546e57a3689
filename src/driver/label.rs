//! The label of a client, shown to others that inspect the holders of a lock.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Level;

use super::clock::{Clock, with_timeout};
use super::{ClientSettings, Core};
use crate::engine::events::Events;
use crate::engine::{Engine, StoreErrorKind};
use crate::protocol::Moment;

/// TTL of a label; the client publishes it again after every third of it.
const TTL: Duration = Duration::from_secs(90);

/// How often a closed client tries to withdraw its label over connections that end before the reply.
const MAX_TRIES: u32 = 3;

/// The label of one client, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Label {
    state: Mutex<LabelState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct LabelState {
    text: Option<Arc<str>>,
    /// When the last hold ends that was left to its lease. Until then, other clients have to see which client holds the
    /// lock.
    needed_until: Option<Moment>,
}

impl Label {
    pub(crate) fn new(text: Option<Arc<str>>) -> Self {
        let needed_until = None;
        Self {
            state: Mutex::new(LabelState { text, needed_until }),
            changed: Notify::new(),
        }
    }

    /// Changes the label, and announces it at once.
    pub(super) fn change(&self, text: Arc<str>) {
        self.lock().text = Some(text);
        self.changed.notify_one();
    }

    /// Keeps the label for as long as a hold that was left to its lease, even after the client has gone.
    pub(super) fn keep_until(&self, until: Moment) {
        let mut state = self.lock();
        state.needed_until = state.needed_until.max(Some(until));
        drop(state);
        self.changed.notify_one();
    }

    /// Returns the last announcement of a closed client: no label any more, or the label for as long as it is still
    /// needed. `None` if no label was announced.
    pub(super) fn final_announcement(&self, now: Moment) -> Option<(Option<Arc<str>>, Duration)> {
        let mut state = self.lock();
        let text = state.text.take()?;
        let left = state
            .needed_until
            .map_or(Duration::ZERO, |end| end.since(now));
        Some(((!left.is_zero()).then_some(text), left))
    }

    fn current(&self, now: Moment) -> Option<(Arc<str>, Duration)> {
        let state = self.lock();
        let needed = state
            .needed_until
            .map_or(Duration::ZERO, |end| end.since(now));
        state.text.clone().map(|text| (text, needed.max(TTL)))
    }

    fn lock(&self) -> MutexGuard<'_, LabelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Announces the label again and again, for as long as this is polled: one announcement after the other, so that an old
/// one never arrives after a new one.
pub(super) async fn announce(
    label: Arc<Label>,
    engine: Arc<dyn Engine>,
    clock: Clock,
    client: Arc<str>,
    limit: Duration,
    events: Events,
) {
    loop {
        let now = clock.now();
        let mut next = None;
        if let Some((text, ttl)) = label.current(now) {
            let announced = engine.clone().set_label(client.clone(), Some(text), ttl);
            match with_timeout(limit, announced).await {
                Some(Ok(())) => {}
                Some(Err(failure)) => {
                    let why = failure.detail;
                    events.emit(Level::DEBUG, move || {
                        tracing::debug!(target: "distlock::client", error = why, "the client's label was not published");
                    });
                }
                None => events.emit(Level::DEBUG, || {
                    tracing::debug!(target: "distlock::client", "the client's label was not published in time");
                }),
            }
            next = Some(now + TTL / 3);
        }
        tokio::select! {
            () = clock.sleep_until(next) => {}
            () = label.changed.notified() => {}
        }
    }
}

impl Core {
    /// Withdraws the label of a closed client, or leaves it for as long as it is needed. Its time to live ends it if
    /// the store does not reply within the command timeout.
    pub(super) async fn withdraw_label(&self) {
        let ClientSettings {
            label,
            command_timeout,
            ..
        } = &self.settings;
        let Some((text, ttl)) = label.final_announcement(self.clock.now()) else {
            return;
        };
        let announced = async {
            for _ in 0..MAX_TRIES {
                let engine = self.engine.clone();
                let announced = engine.set_label(self.id.clone(), text.clone(), ttl).await;
                // A connection that was idle for long may have ended unnoticed.
                match announced {
                    Err(failure) if failure.kind == StoreErrorKind::Interrupted => {}
                    Ok(()) | Err(_) => break,
                }
            }
        };
        with_timeout(*command_timeout, pin!(announced)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    #[test]
    fn a_client_without_a_label_withdraws_nothing() {
        assert_eq!(Label::default().final_announcement(at(1)), None);
    }

    #[test]
    fn a_label_is_removed_with_its_client() {
        let label = Label::new(Some("a".into()));
        assert_eq!(
            label.final_announcement(at(1)),
            Some((None, Duration::ZERO))
        );
        assert_eq!(
            label.current(at(1)),
            None,
            "nothing is announced afterwards"
        );
    }

    #[test]
    fn a_label_stays_for_a_forgotten_hold() {
        let label = Label::new(Some("a".into()));
        label.keep_until(at(1000));
        label.keep_until(at(600));
        let rest = Duration::from_secs(990);
        assert_eq!(label.current(at(10)), Some(("a".into(), rest)));
        assert_eq!(
            label.final_announcement(at(10)),
            Some((Some("a".into()), rest))
        );
    }
}
