//! Acquired locks of any kind, one or several, behind one type.

use std::pin::Pin;

use distlock::{Error, FencingToken, Guard, LockKind, Lost, MultiGuard};

/// A guard, without its kind in its type.
pub(crate) struct Taken {
    pub(crate) kind: LockKind,
    /// One part for each name, in the order they were given.
    pub(crate) parts: Vec<Part>,
    guard: Box<dyn AnyGuard>,
}

/// One acquired lock.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) owner: String,
    /// The token of the grant, for a fenced lock.
    pub(crate) token: Option<FencingToken>,
}

impl Taken {
    pub(crate) fn new<K: 'static>(
        kind: LockKind,
        guard: Guard<K>,
        token: Option<FencingToken>,
    ) -> Self {
        let part = Part {
            name: guard.name().to_owned(),
            owner: guard.owner(),
            token,
        };
        Self {
            kind,
            parts: vec![part],
            guard: Box::new(guard),
        }
    }

    pub(crate) fn several(kind: LockKind, names: &[String], guard: MultiGuard) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for name in names {
            let owner = guard.owner(name).filter(|_| !has(&parts, name));
            parts.extend(owner.map(|owner| Part {
                name: name.clone(),
                owner,
                token: guard.token(name),
            }));
        }
        Self {
            kind,
            parts,
            guard: Box::new(guard),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    pub(crate) fn lost(&self) -> BoxFuture<Option<Lost>> {
        self.guard.lost()
    }

    /// Releases the locks, and reports whether they were still held.
    pub(crate) async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }

    /// Leaves the locks to their leases.
    pub(crate) fn forget(self) {
        self.guard.forget();
    }
}

fn has(parts: &[Part], name: &str) -> bool {
    parts.iter().any(|part| part.name == name)
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The operations of a guard of any kind.
trait AnyGuard: Send + Sync {
    fn is_held(&self) -> bool;
    fn lost(&self) -> BoxFuture<Option<Lost>>;
    fn release(self: Box<Self>) -> BoxFuture<Result<(), Error>>;
    fn forget(self: Box<Self>);
}

impl<K: 'static> AnyGuard for Guard<K> {
    fn is_held(&self) -> bool {
        (**self).is_held()
    }

    fn lost(&self) -> BoxFuture<Option<Lost>> {
        Box::pin((**self).lost())
    }

    fn release(self: Box<Self>) -> BoxFuture<Result<(), Error>> {
        Box::pin(Self::release(*self))
    }

    fn forget(self: Box<Self>) {
        Self::forget(*self);
    }
}

impl AnyGuard for MultiGuard {
    fn is_held(&self) -> bool {
        (**self).is_held()
    }

    fn lost(&self) -> BoxFuture<Option<Lost>> {
        Box::pin((**self).lost())
    }

    fn release(self: Box<Self>) -> BoxFuture<Result<(), Error>> {
        Box::pin(Self::release(*self))
    }

    fn forget(self: Box<Self>) {
        Self::forget(*self);
    }
}
