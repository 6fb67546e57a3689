//! The disabled twin of `tls.rs`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo};

use super::tls_material::{TlsConfigError, TlsMaterial, TlsPart};
use crate::engine::StoreError;
use crate::engine::events::Events;

/// There is none.
#[derive(Clone, Debug)]
pub enum Tls {}

impl Tls {
    /// Whether it is compiled in.
    pub const IS_AVAILABLE: bool = false;

    /// Never succeeds.
    ///
    /// # Errors
    ///
    /// Always.
    #[expect(clippy::unused_async, reason = "the same shape as its twin")]
    pub async fn load(_: TlsMaterial) -> Result<Self, TlsConfigError> {
        Err(TlsConfigError {
            part: TlsPart::System,
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
    ) -> Result<MultiplexedConnection, StoreError> {
        match *self {}
    }
}
