//! A lock that was taken, of whichever kind: from then on they are all alike.

use std::pin::Pin;

use distlock::{Error, FencingToken, Guard, LockKind, LostSignal};

/// The guard, without its kind in its type.
pub(crate) struct Taken {
    pub(crate) kind: LockKind,
    /// Which grant it is, of a fenced lock.
    pub(crate) token: Option<FencingToken>,
    guard: Box<dyn AnyGuard>,
}

impl Taken {
    pub(crate) fn new<K: 'static>(
        kind: LockKind,
        guard: Guard<K>,
        token: Option<FencingToken>,
    ) -> Self {
        Self {
            kind,
            token,
            guard: Box::new(guard),
        }
    }

    pub(crate) fn owner(&self) -> String {
        self.guard.owner()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    pub(crate) fn lost(&self) -> LostSignal {
        self.guard.lost()
    }

    /// Gives it back, and says whether it was still ours.
    pub(crate) async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }

    /// Leaves it to its lease.
    pub(crate) fn forget(self) {
        self.guard.forget();
    }
}

/// What a guard of any kind can do.
trait AnyGuard: Send + Sync {
    fn owner(&self) -> String;
    fn is_held(&self) -> bool;
    fn lost(&self) -> LostSignal;
    fn release(self: Box<Self>) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
    fn forget(self: Box<Self>);
}

impl<K: 'static> AnyGuard for Guard<K> {
    fn owner(&self) -> String {
        (**self).owner()
    }

    fn is_held(&self) -> bool {
        (**self).is_held()
    }

    fn lost(&self) -> LostSignal {
        (**self).lost()
    }

    fn release(self: Box<Self>) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(Self::release(*self))
    }

    fn forget(self: Box<Self>) {
        Self::forget(*self);
    }
}
