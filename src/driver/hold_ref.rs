//! One guard's reference to a hold.

use std::sync::Arc;

use super::hold::Hold;

/// One guard's reference to a hold. Dropping it releases the guard's part.
#[derive(Debug)]
pub(crate) struct HoldRef {
    hold: Option<Arc<Hold>>,
    pub(super) guard: u32,
}

impl HoldRef {
    pub(super) const fn new(hold: Arc<Hold>, guard: u32) -> Self {
        Self {
            hold: Some(hold),
            guard,
        }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        self.hold
            .as_ref()
            .expect("only `into_hold` and `drop` take the hold out of its reference")
    }

    /// Takes the hold out of the reference, so that dropping the reference has no effect.
    pub(super) fn into_hold(mut self) -> Arc<Hold> {
        self.hold
            .take()
            .expect("only `into_hold` and `drop` take the hold out of its reference")
    }
}

impl Drop for HoldRef {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            super::release::abandon(&hold, self.guard);
        }
    }
}
