//! What goes wrong where a lease is not renewed in time, and whose fault that is.

use std::time::Duration;

use super::World;
use crate::clock::Stamp;
use crate::failure::Outcome;

impl World {
    /// Does something that goes wrong where a lease of this length is not renewed in time. It is late, not wrong, if this
    /// machine stood still meanwhile, or the server did; or if Java was seen to renew its own hardly in time.
    pub(crate) async fn while_kept<T>(
        &self,
        key: &str,
        lease: Duration,
        javas: bool,
        does: impl Future<Output = Outcome<T>> + Send,
    ) -> Outcome<T> {
        let (mut stall, mut lowest) = (Duration::ZERO, lease);
        let watch = async {
            loop {
                let before = Stamp::now();
                tokio::time::sleep(LOOK).await;
                if let Ok(left) = self.left(key) {
                    lowest = lowest.min(left);
                }
                stall = stall.max(Stamp::now().since(before));
            }
        };
        let done = tokio::select! {
            done = does => done,
            () = watch => unreachable!("it watches until the other is done"),
        };
        done.map_err(|failure| {
            let seen = format_args!("standing still for {stall:?}, {lowest:?} left");
            let slow = stall > lease / 4 || (javas && lowest < lease / 4);
            failure.during(seen).excused_if(slow)
        })
    }
}

/// How often somebody looks whether the machine stands still.
const LOOK: Duration = Duration::from_millis(50);
