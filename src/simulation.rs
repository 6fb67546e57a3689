//! A simulated network and clock, for this project's own tests. Nothing in it is stable.
//!
//! A client that is built with [`ClientBuilder::simulated`](crate::ClientBuilder::simulated) opens its connections with
//! [`Host::connect`], reads the time from [`Host::now`], and runs its background work on the caller's runtime, whose time
//! a test may pause. Everything else is the code that every client runs.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection's bytes.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The answer to [`Host::connect`].
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// The machine that a client runs on: its network and its clock.
pub trait Host: fmt::Debug + Send + Sync {
    /// Opens a connection to a server.
    fn connect(&self, host: &str, port: u16) -> Connecting;

    /// The time since the machine started.
    fn now(&self) -> Duration;
}
