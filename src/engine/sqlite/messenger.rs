//! Tells other clients what a transaction has changed, once it is done.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::Level;

use super::bell::{self, Ears};
use super::folder::Folder;
use super::liveness::Liveness;
use crate::engine::events::Events;

/// What a transaction has changed for others.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Channels where something was freed, and the clients that listen there.
    pub(super) freed: Vec<(String, Vec<String>)>,
    /// Clients that have gone and of whom the tables hold nothing any more.
    pub(super) gone: Vec<String>,
    /// Clients holding a lock that a waiter was just refused, and the waiter's channel.
    pub(super) busy: Vec<(String, String)>,
}

/// Carries the news to other clients.
#[derive(Debug)]
pub(super) struct Messenger {
    pub(super) folder: Folder,
    pub(super) ears: Arc<Ears>,
    liveness: Arc<Liveness>,
    ringer: UnixDatagram,
    /// Ourselves.
    client: Arc<str>,
    background: Handle,
    events: Events,
    /// Hears our own bell.
    hearing: Option<AbortHandle>,
}

impl Messenger {
    pub(super) fn new(
        folder: Folder,
        ears: Arc<Ears>,
        liveness: Arc<Liveness>,
        client: Arc<str>,
        background: Handle,
        events: Events,
    ) -> io::Result<Self> {
        Ok(Self {
            folder,
            ears,
            liveness,
            ringer: bell::ringer()?,
            client,
            background,
            events,
            hearing: None,
        })
    }

    /// Sets up our bell. If that fails, our waiters ask again by themselves.
    #[expect(clippy::disallowed_methods, reason = "ends with the store")]
    pub(super) fn hang_bell(&mut self) {
        let address = self.folder.socket(&self.client);
        if self.hearing.is_some() && address.exists() {
            return;
        }
        match bell::hang(&address) {
            Ok(bell) => {
                self.take_bell_down();
                let hearing = bell::hear(bell, self.ears.clone(), self.events.clone());
                let hearing = self.background.spawn(hearing);
                self.hearing = Some(hearing.abort_handle());
            }
            Err(error) => {
                let file = address.display().to_string();
                self.events.emit(Level::WARN, move || {
                    tracing::warn!(file, %error, "no bell: those who wait ask every two seconds");
                });
            }
        }
    }

    /// Nobody here listens any more.
    pub(super) fn take_bell_down(&mut self) {
        if let Some(hearing) = self.hearing.take() {
            hearing.abort();
        }
    }

    /// Tells everybody; returns the clients that have no bell any more.
    pub(super) fn spread(&self, news: News) -> Vec<String> {
        for client in news.gone {
            self.folder.clear(&client);
        }
        for (client, channel) in news.busy {
            if *client != *self.client && self.ears.any(&channel) {
                self.liveness.watch(&self.folder, &client, &channel);
            }
        }
        let mut deaf = Vec::new();
        for (channel, listeners) in news.freed {
            for listener in listeners {
                if *listener == *self.client {
                    self.ears.tell(channel.as_bytes());
                } else if !bell::ring(&self.ringer, &self.folder.socket(&listener), &channel) {
                    deaf.push(listener);
                }
            }
        }
        deaf
    }
}
