//! The value of a lock of another library is arbitrary.

use super::is_still;
use crate::failure::{Outcome, ensure};
use crate::library::Library;
use crate::simple::{MINUTES, Side, Stage};
use crate::world::until;

/// Values that applications choose, that look like a number, like an owner of ours or of Redisson's, or like nothing.
const VALUES: [&str; 9] = [
    "",
    "0",
    "1",
    "locked",
    "host-7:pid 42",
    "na\u{ef}ve \u{9375} \u{1f511}",
    "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:-5",
    "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:47:00112233445566778899aabbccddeeff",
    "{\"host\":\"web-7\",\"pid\":42,\"since\":\"2026-11-16T02:00:00Z\"}",
];

/// A lock with any value keeps the other side out, is left as it is, and is handed over when it is released. redis-py uses the
/// application's value; the other libraries, and ours, make their own.
pub(in super::super) async fn any_value(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
    } = stage;
    let name = "simple-values";
    let chooses = matches!(holder, Side::Theirs(client) if client.library() == Library::RedisPy);
    let values = if chooses { &VALUES[..] } else { &VALUES[..1] };
    for &value in values {
        match &mut *holder {
            Side::Theirs(client) if chooses => {
                client.lock_with(name, value, MINUTES.time()).await?;
                ensure!(holder.value(name)? == value, "{value:?} was not taken");
            }
            holder => {
                holder.lock(name, MINUTES).await?;
            }
        }
        is_still(world, holder, other, name)
            .await
            .map_err(|failure| failure.during(format_args!("{value:?}")))?;
        let asked = super::exclusion::questions(world);
        let unlock = async {
            let again = || super::exclusion::questions(world) >= asked + 2;
            until("the other has asked", again).await?;
            holder.unlock(name).await?.done()
        };
        let (waited, freed) = tokio::try_join!(other.lock(name, MINUTES), unlock)?;
        ensure!(waited.to > freed.from, "it had the lock before");
        other.unlock(name).await?.done()?;
    }
    Ok(if chooses {
        format!("{} values", VALUES.len())
    } else {
        "a value of its own".into()
    })
}
