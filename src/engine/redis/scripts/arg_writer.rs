//! Writes a command word by word, straight to where it is sent from.

use std::io::Write;
use std::time::Duration;

use redis::{Cmd, RedisWrite};

use crate::engine::redis::keys::Key;
use crate::protocol::owner::CLIENT_LENGTH;
use crate::protocol::{ClientId, OwnerId};

/// The words of a command. What a batch's own text says already is left out.
pub(super) struct ArgWriter {
    cmd: Cmd,
    omitted: &'static [Option<&'static str>],
    /// The client that was written last, and how it reads: most often the next one as well.
    client: Option<(ClientId, [u8; CLIENT_LENGTH])>,
}

impl ArgWriter {
    /// Runs a script, given by its hash or text, for this many requests.
    pub(super) fn new(arg: &str, script: &str, requests: usize) -> Self {
        // What one request needs, roughly: too little costs time, never more.
        let mut cmd = Cmd::with_capacity(3 + 7 * requests, script.len() + 192 * requests);
        cmd.write_arg(arg.as_bytes());
        cmd.write_arg(script.as_bytes());
        Self {
            cmd,
            omitted: &[],
            client: None,
        }
    }

    /// The arguments that follow are one request's; those that have a value here go without saying.
    pub(super) const fn omit(&mut self, omitted: &'static [Option<&'static str>]) {
        self.omitted = omitted;
    }

    pub(super) fn key(&mut self, key: &Key<'_>) {
        let mut arg = self.cmd.writer_for_next_arg();
        for piece in key.pieces() {
            // It is written to memory, which does not fail.
            let _ = arg.write_all(piece.as_bytes());
        }
    }

    /// A key that ends with a client's uuid.
    pub(super) fn key_of_client(&mut self, key: &Key<'_>, client: Option<ClientId>) {
        let mut arg = self.cmd.writer_for_next_arg();
        for piece in key.pieces() {
            let _ = arg.write_all(piece.as_bytes());
        }
        if let Some(client) = client {
            let _ = arg.write_all(&client.text());
        }
    }

    /// A key or channel that is an argument.
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

    /// The value of the next argument, if it goes without saying.
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
