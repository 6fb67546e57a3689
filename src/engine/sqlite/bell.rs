//! Bells: a client that frees a lock rings at the processes that wait for it.
//!
//! A datagram says which channel. A socket keeps only a few, so a client that finds many at once may have missed some,
//! and tells all its listeners.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::engine::events::Events;
use crate::engine::supervise::{Restarts, caught};
use crate::engine::{Ear, ears};

/// Those in this client who listen, by channel.
#[derive(Debug, Default)]
pub(super) struct Ears(Mutex<ears::Ears<String>>);

impl Ears {
    /// Another ear at this channel.
    pub(super) fn add(&self, channel: &str) -> Arc<Ear> {
        self.lock().add(channel.to_owned())
    }

    /// Takes one away; says whether it was the channel's last.
    pub(super) fn remove(&self, channel: &str, gone: &Weak<Ear>) -> bool {
        self.lock().remove(channel, gone)
    }

    /// Whether anybody listens there.
    pub(super) fn any(&self, channel: &str) -> bool {
        !self.lock().at(channel).is_empty()
    }

    /// Tells those at a channel, given its name or as much of it as is sent.
    pub(super) fn tell(&self, channel: &[u8]) {
        let channel = &channel[..channel.len().min(LONGEST_SENT)];
        self.tell_if(|name| sent(name) == channel);
    }

    /// Tells everybody.
    pub(super) fn tell_all(&self) {
        self.tell_if(|_| true);
    }

    fn tell_if(&self, is_meant: impl Fn(&str) -> bool) {
        let ears = self.lock();
        let told = ears.all().filter(|(channel, _)| is_meant(channel));
        let told: Vec<_> = told.flat_map(|(_, ears)| ears).cloned().collect();
        drop(ears);
        ears::wake(&told);
    }

    fn lock(&self) -> MutexGuard<'_, ears::Ears<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a bell at this address.
pub(super) fn hang(address: &Path) -> io::Result<UnixDatagram> {
    // A leftover of our own, if any: no other client has this name.
    let _ = std::fs::remove_file(address);
    let bell = UnixDatagram::bind(address)?;
    bell.set_nonblocking(true)?;
    Ok(bell)
}

/// What rings bells.
pub(super) fn ringer() -> io::Result<UnixDatagram> {
    let ringer = UnixDatagram::unbound()?;
    ringer.set_nonblocking(true)?;
    Ok(ringer)
}

/// Rings; says whether anybody has a bell there.
pub(super) fn ring(ringer: &UnixDatagram, address: &Path, channel: &str) -> bool {
    let mut rung = ringer.send_to(sent(channel), address);
    if rung
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        && let Ok(another) = self::ringer()
    {
        // Datagrams that stopped processes have not read count against the socket that sent them: use a new one.
        rung = another.send_to(sent(channel), address);
    }
    match rung {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        ),
    }
}

/// Passes on what is rung, for as long as it is driven.
pub(super) async fn hear(bell: UnixDatagram, ears: Arc<Ears>, events: Events) {
    let Ok(bell) = tokio::net::UnixDatagram::from_std(bell) else {
        return;
    };
    let mut restarts = Restarts::of("notifications", &events);
    while let Err(panicked) = caught(hear_on(&bell, &ears)).await {
        restarts.after(panicked).await;
    }
}

async fn hear_on(bell: &tokio::net::UnixDatagram, ears: &Ears) {
    let many = MANY.min(longest_queue());
    let mut rung = vec![0; LONGEST_SENT];
    while bell.readable().await.is_ok() {
        let mut count = 0;
        while let Ok(length) = bell.try_recv(&mut rung) {
            ears.tell(&rung[..length]);
            count += 1;
        }
        if count >= many {
            ears.tell_all();
        }
    }
}

/// As much of a channel's name as is sent.
fn sent(channel: &str) -> &[u8] {
    let name = channel.as_bytes();
    &name[..name.len().min(LONGEST_SENT)]
}

/// How many datagrams a socket keeps.
fn longest_queue() -> usize {
    let setting = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen");
    let length = setting.ok().and_then(|text| text.trim().parse().ok());
    length.unwrap_or(1).max(1)
}

/// In bytes. Two channels whose names begin alike for this long are both told.
const LONGEST_SENT: usize = 512;
/// If this many come at once, some may have been lost.
const MANY: usize = 8;
