//! The disabled twin of `sqlite.rs`.

use url::Url;

use super::{Connected, StoreConfig};
use crate::error::Error;

#[expect(
    clippy::unused_async,
    reason = "the same signature as in the enabled module"
)]
pub(super) async fn connect(store: &StoreConfig<'_>, url: &Url) -> Result<Connected, Error> {
    if cfg!(feature = "sqlite") {
        return Err(store.invalid("`sqlite:` works on Linux only"));
    }
    Err(Error::FeatureOff {
        scheme: url.scheme().to_owned(),
        feature: "sqlite",
    })
}
