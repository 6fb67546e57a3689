//! The disabled twin of `redis.rs`.

use url::Url;

use super::{Connected, HostPorts, StoreConfig};
use crate::error::Error;

#[expect(
    clippy::unused_async,
    reason = "the same signature as in the enabled module"
)]
pub(super) async fn connect(
    _store: &StoreConfig<'_>,
    url: &Url,
    _hosts: HostPorts,
) -> Result<Connected, Error> {
    Err(Error::FeatureOff {
        scheme: url.scheme().to_owned(),
        feature: "redis",
    })
}
