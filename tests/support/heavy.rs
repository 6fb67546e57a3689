//! Turns for tests that keep the processors busy.
//!
//! Most tests wait, so many run at the same time. Those that compute would make each other late, and everything beside them.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Waits until few others of this program compute, and counts as one of them for as long as this is kept.
pub(crate) async fn heavy() -> SemaphorePermit<'static> {
    static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);
    TURNS.acquire().await.expect("it is never closed")
}

/// Two keep two processors busy, and one more while these wait.
const AT_ONCE: usize = 3;
