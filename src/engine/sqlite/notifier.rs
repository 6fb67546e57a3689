//! Notifies other clients of the changes of a transaction, once it is committed.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::Level;

use super::client_dir::ClientDir;
use super::liveness::Liveness;
use super::wake_socket::{self, LocalSubscribers};
use crate::engine::events::Events;

/// The effects of a transaction on other clients.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// Channels where something was freed, with the clients that are registered there.
    pub(super) released: Vec<(String, Vec<String>)>,
    /// Clients that have gone and have no rows in the tables any more.
    pub(super) reaped: Vec<String>,
    /// Clients that hold a lock that a waiter was just refused, with the waiter's channel.
    pub(super) busy: Vec<(String, String)>,
}

/// Delivers notifications to other clients.
#[derive(Debug)]
pub(super) struct Notifier {
    pub(super) client_dir: ClientDir,
    pub(super) subscribers: Arc<LocalSubscribers>,
    liveness: Arc<Liveness>,
    sender: UnixDatagram,
    /// The id of this client.
    client: Arc<str>,
    background: Handle,
    events: Events,
    /// The task that receives from this client's wake socket.
    receiver: Option<AbortHandle>,
}

impl Notifier {
    pub(super) fn new(
        client_dir: ClientDir,
        subscribers: Arc<LocalSubscribers>,
        liveness: Arc<Liveness>,
        client: Arc<str>,
        background: Handle,
        events: Events,
    ) -> io::Result<Self> {
        Ok(Self {
            client_dir,
            subscribers,
            liveness,
            sender: wake_socket::unbound_sender()?,
            client,
            background,
            events,
            receiver: None,
        })
    }

    /// Binds this client's wake socket. If that fails, its waiters retry by themselves.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the store")]
    pub(super) fn bind_socket(&mut self) {
        let address = self.client_dir.socket_path(&self.client);
        if self.receiver.is_some() && address.exists() {
            return;
        }
        match wake_socket::bind(&address) {
            Ok(socket) => {
                self.close_socket();
                let receiver =
                    wake_socket::receive(socket, self.subscribers.clone(), self.events.clone());
                let receiver = self.background.spawn(receiver);
                self.receiver = Some(receiver.abort_handle());
            }
            Err(error) => {
                let file = address.display().to_string();
                self.events.emit(Level::WARN, move || {
                    tracing::warn!(target: "distlock::connection", file, %error, "no wake socket: waiters poll every two seconds");
                });
            }
        }
    }

    /// Stops receiving: no waiter of this client is left.
    pub(super) fn close_socket(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            receiver.abort();
        }
    }

    /// Delivers all notifications; returns the clients that have no wake socket any more.
    pub(super) fn deliver(&self, notifications: Notifications) -> Vec<String> {
        for client in notifications.reaped {
            self.client_dir.remove_files(&client);
        }
        for (client, channel) in notifications.busy {
            if *client != *self.client && self.subscribers.has_subscribers(&channel) {
                self.liveness.watch(&self.client_dir, &client, &channel);
            }
        }
        let mut unreachable_clients = Vec::new();
        for (channel, clients) in notifications.released {
            for client in clients {
                if *client == *self.client {
                    self.subscribers.notify(channel.as_bytes());
                } else if !wake_socket::send_wakeup(
                    &self.sender,
                    &self.client_dir.socket_path(&client),
                    &channel,
                ) {
                    unreachable_clients.push(client);
                }
            }
        }
        unreachable_clients
    }
}
