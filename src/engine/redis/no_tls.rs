//! TLS in a build without the `tls` feature: the disabled twin of `tls.rs`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo};

use super::tls_material::{TlsConfigError, TlsMaterial, TlsPart};
use crate::engine::StoreError;
use crate::engine::events::Events;

/// An uninhabited type: TLS is not compiled in.
#[derive(Clone, Debug)]
pub enum Tls {}

impl Tls {
    /// Whether TLS is compiled in.
    pub const IS_AVAILABLE: bool = false;

    /// Fails, because TLS is not compiled in.
    ///
    /// # Errors
    ///
    /// Always.
    #[expect(
        clippy::unused_async,
        reason = "the same signature as in the enabled module"
    )]
    pub async fn load(_: TlsMaterial) -> Result<Self, TlsConfigError> {
        Err(TlsConfigError {
            part: TlsPart::System,
            reason: "TLS is not compiled in".into(),
        })
    }

    pub(super) const fn emitting_to(&self, _: &Events) -> Self {
        match *self {}
    }

    #[expect(
        clippy::unused_async,
        reason = "the same signature as in the enabled module"
    )]
    pub(super) async fn open(
        &self,
        _: &ConnectionInfo,
        _: AsyncConnectionConfig,
        _: Duration,
    ) -> Result<MultiplexedConnection, StoreError> {
        match *self {}
    }
}
