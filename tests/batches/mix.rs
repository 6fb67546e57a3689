//! What travels in one batch: calls of every sort, each about a lock of its own.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::{Error, Guard, Lock};

use super::support::{Family, Player, Script};
use super::tokens::Tokens;
use super::{COMMAND_TIMEOUT, PATIENCE};

pub(crate) struct Mix {
    pub(crate) name: &'static str,
    pub(crate) kinds: &'static [Kind],
}

/// What is asked of one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Takes once more what is held.
    Again,
    /// Takes what somebody else holds.
    Busy,
    /// Takes what is free.
    Free,
    /// Gives back one of two holds.
    InPart,
    /// Gives back what others of the same client wait for: it is passed on.
    Line,
    /// Gives back what is held.
    Release,
}

/// A lock that has been held for long is not passed on but given back: those come last.
pub(crate) const MIXES: &[Mix] = &[
    Mix {
        name: "takes",
        kinds: &[
            Kind::Free,
            Kind::Busy,
            Kind::Free,
            Kind::Again,
            Kind::Busy,
            Kind::Free,
        ],
    },
    Mix {
        name: "gives back",
        kinds: &[
            Kind::Release,
            Kind::Release,
            Kind::InPart,
            Kind::Line,
            Kind::Line,
        ],
    },
    Mix {
        name: "everything",
        kinds: &[
            Kind::Free,
            Kind::Busy,
            Kind::Release,
            Kind::Again,
            Kind::InPart,
            Kind::Release,
            Kind::Busy,
            Kind::Free,
            Kind::Line,
            Kind::Line,
        ],
    },
];

/// The last of them alone.
pub(crate) const EVERYTHING: &[Mix] = MIXES.split_at(2).1;

/// One lock of a batch, and everyone who has to do with it.
pub(crate) struct Item<F: Family> {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) lock: Lock<F::Kind>,
    /// Ours that are alive.
    pub(crate) guards: Vec<Guard<F::Kind>>,
    /// What somebody else holds.
    pub(crate) theirs: Option<Guard<F::Kind>>,
    /// Who waits here for the lock to be passed on.
    pub(crate) in_line: Option<Acquiring<F::Kind>>,
    pub(crate) tokens: Tokens,
}

/// What a caller has in the end.
pub(crate) enum Ended<K> {
    Failed(Error),
    GaveUp,
    Given,
    Got(Guard<K>),
}

pub(crate) type Calling<K> = Pin<Box<dyn Future<Output = Ended<K>> + Send>>;
pub(crate) type Acquiring<K> = Pin<Box<dyn Future<Output = Result<Guard<K>, Error>> + Send>>;

impl<F: Family> Item<F> {
    /// Arranges things so that the call can be made, over a network that is still whole.
    pub(crate) async fn new(
        kind: Kind,
        name: String,
        client: &Player<F>,
        other: &Player<F>,
    ) -> Self {
        let (nobodys, owner) = (client.lock(name.as_str()), client.new_owner());
        let lock = match kind {
            Kind::Again | Kind::InPart => nobodys.clone().with_owner(&owner),
            Kind::Busy | Kind::Free | Kind::Line | Kind::Release => nobodys.clone(),
        };
        let mut item = Self {
            kind,
            guards: Vec::new(),
            theirs: None,
            in_line: None,
            tokens: Tokens::default(),
            name,
            lock,
        };
        let held = match kind {
            Kind::Busy | Kind::Free => 0,
            Kind::Again | Kind::Line | Kind::Release => 1,
            Kind::InPart => 2,
        };
        for _ in 0..held {
            item.guards.push(acquired(&item.lock).await);
        }
        if kind == Kind::Busy {
            item.theirs = Some(acquired(&other.lock(item.name.as_str())).await);
        }
        if kind == Kind::Line {
            let mut waiting: Acquiring<F::Kind> = Box::pin(nobodys.acquire());
            assert!(begin(waiting.as_mut()), "somebody holds it");
            item.in_line = Some(waiting);
        }
        item
    }

    /// The call itself, not begun yet.
    pub(crate) fn call(&mut self, patience: Option<Duration>) -> Calling<F::Kind> {
        let lock = self.lock.clone();
        match self.kind {
            Kind::Again | Kind::Busy | Kind::Free => Box::pin(async move {
                let got = match patience {
                    Some(patience) => lock.acquire_timeout(patience).await,
                    None => lock.acquire().await.map(Some),
                };
                match got {
                    Ok(Some(guard)) => Ended::Got(guard),
                    Ok(None) => Ended::GaveUp,
                    Err(error) => Ended::Failed(error),
                }
            }),
            Kind::InPart | Kind::Line | Kind::Release => {
                let releasing = self.guards.pop().expect("it is held").release();
                Box::pin(async move {
                    let patience = patience.unwrap_or(PATIENCE);
                    match tokio::time::timeout(patience, releasing).await {
                        Ok(Ok(())) => Ended::Given,
                        Ok(Err(error)) => Ended::Failed(error),
                        Err(_) => Ended::GaveUp,
                    }
                })
            }
        }
    }

    /// Who holds the lock, and how often, as far as anyone here knows.
    pub(crate) fn said(&self) -> BTreeMap<String, u32> {
        let mut said = BTreeMap::new();
        for guard in self.guards.iter().chain(&self.theirs) {
            *said.entry(guard.owner()).or_default() += 1;
        }
        said
    }
}

impl Kind {
    /// The script that carries it out.
    pub(crate) const fn script(self) -> Script {
        match self {
            Self::Again | Self::Busy | Self::Free => Script::Acquire,
            Self::InPart | Self::Release => Script::Release,
            Self::Line => Script::Pass,
        }
    }
}

/// The first poll of a call sends its request, or puts it where it waits; says whether it waits.
pub(crate) fn begin<F: Future + ?Sized>(call: Pin<&mut F>) -> bool {
    call.poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

/// The lock, that nobody else wants. A busy machine may be too slow for the command time-out.
pub(crate) async fn acquired<K>(lock: &Lock<K>) -> Guard<K> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock.acquire_timeout(PATIENCE).await {
            Ok(Some(guard)) => return guard,
            Ok(None) => panic!("it is never free"),
            Err(Error::Timeout { .. } | Error::Unavailable { .. }) if Instant::now() < give_up => {
                tokio::time::sleep(COMMAND_TIMEOUT / 10).await;
            }
            Err(error) => panic!("nobody else has it: {error}"),
        }
    }
}
