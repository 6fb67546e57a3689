//! Wake sockets: a client that frees a lock sends a datagram to the processes that wait for it.
//!
//! The datagram names the channel. A socket keeps only a few datagrams, so a client that receives
//! many at once may have missed some, and notifies all its subscribers.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::engine::events::Events;
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::{Subscriber, subscriber_map};

/// The subscribers of this client, by channel.
#[derive(Debug, Default)]
pub(super) struct LocalSubscribers(Mutex<subscriber_map::SubscriberMap<String>>);

impl LocalSubscribers {
    /// Adds a subscriber to this channel.
    pub(super) fn add(&self, channel: &str) -> Arc<Subscriber> {
        self.lock().add(channel.to_owned())
    }

    /// Removes a subscriber; reports whether it was the channel's last.
    pub(super) fn remove(&self, channel: &str, subscriber: &Weak<Subscriber>) -> bool {
        self.lock().remove(channel, subscriber)
    }

    /// Reports whether a channel has subscribers.
    pub(super) fn has_subscribers(&self, channel: &str) -> bool {
        !self.lock().of_channel(channel).is_empty()
    }

    /// Notifies a channel's subscribers, given the channel's name or as much of it as is sent.
    pub(super) fn notify(&self, channel: &[u8]) {
        let channel = &channel[..channel.len().min(MAX_DATAGRAM)];
        self.notify_matching(|name| truncated(name) == channel);
    }

    /// Notifies all subscribers.
    pub(super) fn notify_all(&self) {
        self.notify_matching(|_| true);
    }

    fn notify_matching(&self, is_match: impl Fn(&str) -> bool) {
        let subscribers = self.lock();
        let matching = subscribers.all().filter(|(channel, _)| is_match(channel));
        let matching: Vec<_> = matching
            .flat_map(|(_, subscribers)| subscribers)
            .cloned()
            .collect();
        drop(subscribers);
        subscriber_map::notify_all(&matching);
    }

    fn lock(&self) -> MutexGuard<'_, subscriber_map::SubscriberMap<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Binds a wake socket to this address.
pub(super) fn bind(address: &Path) -> io::Result<UnixDatagram> {
    // This removes only this client's own leftover: no other client has this name.
    let _ = std::fs::remove_file(address);
    let socket = UnixDatagram::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Creates the socket that sends wakeups.
pub(super) fn unbound_sender() -> io::Result<UnixDatagram> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    Ok(sender)
}

/// Sends a wakeup; reports whether a socket is bound to the address.
pub(super) fn send_wakeup(sender: &UnixDatagram, address: &Path, channel: &str) -> bool {
    let mut sent = sender.send_to(truncated(channel), address);
    if sent
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        && let Ok(another) = self::unbound_sender()
    {
        // Datagrams that stopped processes have not read count against the socket that sent them:
        // use a new one.
        sent = another.send_to(truncated(channel), address);
    }
    match sent {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        ),
    }
}

/// Passes received wakeups on, for as long as the future is driven.
pub(super) async fn receive(
    socket: UnixDatagram,
    subscribers: Arc<LocalSubscribers>,
    events: Events,
) {
    let Ok(socket) = tokio::net::UnixDatagram::from_std(socket) else {
        return;
    };
    let mut restarts = Restarts::new("notifications", &events);
    while let Err(panicked) = catch_panic(receive_loop(&socket, &subscribers)).await {
        restarts.report_and_wait(panicked).await;
    }
}

async fn receive_loop(socket: &tokio::net::UnixDatagram, subscribers: &LocalSubscribers) {
    let likely_overflow = LIKELY_OVERFLOW.min(longest_queue());
    let mut buffer = vec![0; MAX_DATAGRAM];
    while socket.readable().await.is_ok() {
        let mut count = 0;
        while let Ok(length) = socket.try_recv(&mut buffer) {
            subscribers.notify(&buffer[..length]);
            count += 1;
        }
        if count >= likely_overflow {
            subscribers.notify_all();
        }
    }
}

/// Returns as much of a channel's name as is sent.
fn truncated(channel: &str) -> &[u8] {
    let name = channel.as_bytes();
    &name[..name.len().min(MAX_DATAGRAM)]
}

/// Returns how many datagrams a socket keeps.
fn longest_queue() -> usize {
    let setting = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen");
    let length = setting.ok().and_then(|text| text.trim().parse().ok());
    length.unwrap_or(1).max(1)
}

/// The maximum length of a datagram in bytes. If two channels' names are equal up to this length,
/// both are notified.
const MAX_DATAGRAM: usize = 512;
/// If this many datagrams arrive at once, some may have been lost.
const LIKELY_OVERFLOW: usize = 8;
