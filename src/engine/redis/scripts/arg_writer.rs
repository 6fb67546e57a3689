//! Writer of the arguments of a command, directly into the buffer that is sent.

use std::io::Write;
use std::time::Duration;

use redis::{Cmd, RedisWrite};

use crate::engine::redis::keys::Key;
use crate::protocol::owner::CLIENT_LENGTH;
use crate::protocol::{ClientId, OwnerId};

/// The arguments of a command. Arguments that the text of a batch script contains already are omitted.
pub(super) struct ArgWriter {
    cmd: Cmd,
    omitted: &'static [Option<&'static str>],
    /// The client that was written last, and its text: most often the next client is the same.
    client: Option<(ClientId, [u8; CLIENT_LENGTH])>,
}

impl ArgWriter {
    /// Starts a command that runs a script, given by its hash or text, for this many requests.
    pub(super) fn new(arg: &str, script: &str, requests: usize) -> Self {
        // A rough estimate of what one request needs. An estimate that is too low only costs time.
        let mut cmd = Cmd::with_capacity(3 + 7 * requests, script.len() + 192 * requests);
        cmd.write_arg(arg.as_bytes());
        cmd.write_arg(script.as_bytes());
        Self {
            cmd,
            omitted: &[],
            client: None,
        }
    }

    /// Starts the arguments of one request. Arguments with a value here are omitted.
    pub(super) const fn omit(&mut self, omitted: &'static [Option<&'static str>]) {
        self.omitted = omitted;
    }

    pub(super) fn key(&mut self, key: &Key<'_>) {
        let mut arg = self.cmd.writer_for_next_arg();
        for piece in key.pieces() {
            // Writing to memory does not fail.
            let _ = arg.write_all(piece.as_bytes());
        }
    }

    /// Writes a key that ends with a client's uuid.
    pub(super) fn key_of_client(&mut self, key: &Key<'_>, client: Option<ClientId>) {
        let mut arg = self.cmd.writer_for_next_arg();
        for piece in key.pieces() {
            let _ = arg.write_all(piece.as_bytes());
        }
        if let Some(client) = client {
            let _ = arg.write_all(&client.text());
        }
    }

    /// Writes a key or channel as an argument.
    pub(super) fn text(&mut self, text: &Key<'_>) {
        match self.omitted() {
            Some(value) => debug_assert_eq!(value, text.to_string()),
            None => self.key(text),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.cmd.write_arg(bytes);
    }

    pub(super) fn empty(&mut self) {
        self.cmd.write_arg(b"");
    }

    pub(super) fn owner(&mut self, owner: &OwnerId) {
        if let Some(value) = self.omitted() {
            return debug_assert_eq!(value, owner.to_string());
        }
        let id = owner.client();
        let known = self.client.filter(|(client, _)| *client == id);
        let (_, client) = *self.client.insert(known.unwrap_or_else(|| (id, id.text())));
        let mut arg = self.cmd.writer_for_next_arg();
        let _ = arg.write_all(&client);
        let _ = arg.write_all(b":");
        let mut digits = itoa::Buffer::new();
        let _ = arg.write_all(digits.format(owner.number()).as_bytes());
    }

    pub(super) fn number(&mut self, number: impl itoa::Integer) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number);
        match self.omitted() {
            Some(value) => debug_assert_eq!(value, digits),
            None => {
                self.cmd.write_arg(digits.as_bytes());
            }
        }
    }

    pub(super) fn millis(&mut self, time: Duration) {
        self.number(time.as_millis());
    }

    pub(super) fn finish(self) -> Cmd {
        self.cmd
    }

    /// Returns the value of the next argument if that argument is omitted.
    const fn omitted(&mut self) -> Option<&'static str> {
        match self.omitted.split_first() {
            Some((value, rest)) => {
                self.omitted = rest;
                *value
            }
            None => None,
        }
    }
}
