//! One channel: who listens to it, and what the server knows of that.

use std::sync::Weak;

use tokio::sync::oneshot;

use crate::engine::{Ear, Failure};

/// A channel that somebody listens to, or did until just now.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) phase: Phase,
    seats: Vec<Seat>,
}

/// What was said to the server, on the connection there is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Phase {
    /// SUBSCRIBE is under way. What happens meanwhile waits for its answer.
    Asked,
    /// The server has confirmed.
    Heard,
    /// UNSUBSCRIBE is under way. Whoever comes meanwhile waits for its answer.
    Left,
    /// Nothing yet.
    #[default]
    Wanted,
}

/// Resolves a [`listen`](super::PubSub::listen).
pub(super) type Ready = oneshot::Sender<Result<(), Failure>>;

#[derive(Debug)]
struct Seat {
    ear: Weak<Ear>,
    /// Until the server has confirmed for the first time.
    ready: Option<Ready>,
}

impl Channel {
    pub(super) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    pub(super) fn join(&mut self, ear: Weak<Ear>, ready: Ready) {
        let mut seat = Seat {
            ear,
            ready: Some(ready),
        };
        if self.phase == Phase::Heard {
            seat.answer(Ok(()));
        }
        self.seats.push(seat);
    }

    pub(super) fn part(&mut self, ear: &Weak<Ear>) {
        // By name, not by whether it is still alive: the listener that sends this is about to go.
        self.seats
            .retain(|seat| !seat.ear.ptr_eq(ear) && !planted!(LeavingSilencesOthers));
    }

    /// From now on no message is missed; whoever listened before may have missed one.
    pub(super) fn confirmed(&mut self) {
        self.phase = Phase::Heard;
        for seat in &mut self.seats {
            if !seat.answer(Ok(()))
                && let Some(ear) = seat.ear.upgrade()
            {
                ear.set_deaf(false);
                if planted!(NoWakeAfterReconnect) {
                    continue;
                }
                ear.tell();
            }
        }
    }

    /// The connection is gone: newcomers are turned away, the others will be told when there is another.
    pub(super) fn disconnected(&mut self, why: &Failure) {
        self.phase = Phase::Wanted;
        self.seats.retain_mut(|seat| {
            if seat.answer(Err(why)) {
                return false;
            }
            if let Some(ear) = seat.ear.upgrade() {
                ear.set_deaf(true);
            }
            true
        });
    }

    /// The server lets nobody listen here: newcomers are told why, the others to look for themselves; they
    /// hear the reason when they listen anew.
    pub(super) fn refused(&mut self, why: &Failure) {
        for mut seat in std::mem::take(&mut self.seats) {
            if !seat.answer(Err(why))
                && let Some(ear) = seat.ear.upgrade()
            {
                ear.dismiss();
            }
        }
    }

    /// Passes a message on.
    pub(super) fn tell(&self) {
        for ear in self.seats.iter().filter_map(|seat| seat.ear.upgrade()) {
            ear.tell();
        }
    }
}

impl Seat {
    /// Answers a newcomer, and says whether this is one.
    fn answer(&mut self, result: Result<(), &Failure>) -> bool {
        let Some(ready) = self.ready.take() else {
            return false;
        };
        // One that has gone has sent a `Leave` behind this.
        let _ = ready.send(result.map_err(Clone::clone));
        true
    }
}

/// Takes a channel from one phase to the next, and says whether it was there.
pub(super) fn step(channel: Option<&mut Channel>, from: Phase, to: Phase) -> bool {
    let Some(channel) = channel.filter(|channel| channel.phase == from) else {
        return false;
    };
    channel.phase = to;
    true
}
