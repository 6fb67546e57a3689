//! A call under way.

#![expect(clippy::disallowed_methods, reason = "engines may read the clock")]

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::{Connection, Generation, Live, lock};
use crate::engine::redis::silence::Silence;

/// One call that waits for its answer. Dropped without one, it may be the last straw for a connection
/// that has fallen silent; calls under way keep that until they are done.
pub(super) struct Wait<'a> {
    connection: &'a Connection,
    generation: Generation,
    silence: Arc<Mutex<Silence>>,
    begun: Instant,
    answered: bool,
}

impl<'a> Wait<'a> {
    pub(super) fn begin(connection: &'a Connection, live: &Live) -> Self {
        let silence = live.silence.clone();
        let begun = Instant::now();
        lock(&silence).asked(begun);
        Self {
            connection,
            generation: live.generation,
            silence,
            begun,
            answered: false,
        }
    }

    pub(super) fn end(mut self) {
        self.answered = true;
        lock(&self.silence).answered(Instant::now());
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        if self.answered || connection.is_forked() {
            return;
        }
        let waited = self.begun.elapsed();
        connection.judge(&self.silence, self.generation, waited);
        lock(&self.silence).abandoned();
    }
}
