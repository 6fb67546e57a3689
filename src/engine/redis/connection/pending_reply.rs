//! A call in flight.

#![expect(clippy::disallowed_methods, reason = "engines may read the clock")]

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::{Connection, Generation, LiveConnection, lock};
use crate::engine::redis::stall_detector::StallDetector;

/// One call that waits for its reply. If it is dropped without one, a connection that has fallen silent may be given
/// up; calls in flight keep that connection until they are done.
pub(super) struct PendingReply<'a> {
    connection: &'a Connection,
    generation: Generation,
    stall_detector: Arc<Mutex<StallDetector>>,
    begun: Instant,
    has_replied: bool,
}

impl<'a> PendingReply<'a> {
    pub(super) fn begin(connection: &'a Connection, live: &LiveConnection) -> Self {
        let stall_detector = live.stall_detector.clone();
        let begun = Instant::now();
        lock(&stall_detector).on_request(begun);
        Self {
            connection,
            generation: live.generation,
            stall_detector,
            begun,
            has_replied: false,
        }
    }

    pub(super) fn complete(mut self) {
        self.has_replied = true;
        lock(&self.stall_detector).on_reply(Instant::now());
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        if self.has_replied || connection.is_forked() {
            return;
        }
        let waited = self.begun.elapsed();
        connection.close_if_stalled(&self.stall_detector, self.generation, waited);
        lock(&self.stall_detector).on_abandoned();
    }
}
