//! The simple lock, shared with the libraries that have no other.

mod exclusion;
mod keeping;
mod loss;
mod values;

pub(super) use exclusion::{excludes, hands_over, names, unscripted};
pub(super) use keeping::{expires, is_kept};
pub(super) use loss::is_taken;
pub(super) use values::any_value;

use crate::failure::{Outcome, ensure};
use crate::simple::Side;
use crate::world::World;

/// Checks that the key is this side's, and that the other can neither acquire the lock nor change that.
async fn is_still(world: &World, holder: &Side, other: &mut Side, name: &str) -> Outcome {
    let (who, value) = (holder.title(), holder.value(name)?);
    let found: Option<String> = world.server().query(&["GET", name]);
    ensure!(
        found.as_deref() == Some(&*value),
        "`{name}` is {found:?}, not {value:?} of {who}"
    );
    ensure!(holder.is_held(name).await?, "{who} does not think so");
    other.is_excluded(name).await
}
