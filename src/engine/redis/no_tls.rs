//! The disabled twin of `tls.rs`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo};

use super::papers::{Papers, Part, Unfit};
use crate::engine::Failure;
use crate::engine::events::Events;

/// There is none.
#[derive(Clone, Debug)]
pub enum Tls {}

impl Tls {
    /// Whether it is compiled in.
    pub const IS_THERE: bool = false;

    /// Never succeeds.
    ///
    /// # Errors
    ///
    /// Always.
    #[expect(clippy::unused_async, reason = "the same shape as its twin")]
    pub async fn load(_: Papers) -> Result<Self, Unfit> {
        Err(Unfit {
            part: Part::System,
            reason: "TLS is not compiled in".into(),
        })
    }

    pub(super) const fn emitting_to(&self, _: &Events) -> Self {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the same shape as its twin")]
    pub(super) async fn open(
        &self,
        _: &ConnectionInfo,
        _: AsyncConnectionConfig,
        _: Duration,
    ) -> Result<MultiplexedConnection, Failure> {
        match *self {}
    }
}
