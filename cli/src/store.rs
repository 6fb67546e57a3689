//! The store the locks live in.

use std::time::Duration;

use distlock::{Client, ClientBuilder};

use crate::args;
use crate::exit::Failure;
use crate::out::say;

/// The user's own file.
const DEFAULT: &str = "sqlite:";

/// However the store is, nobody waits longer for it when all is done.
const LONGEST_GOODBYE: Duration = Duration::from_secs(2);

/// With what a hold ends, where the store can tell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndsWith {
    /// Nothing else.
    Lease,
    /// This process.
    Process,
    /// This process and all that it has started.
    Tree,
}

pub(crate) async fn connect(store: &args::Store, ends: EndsWith) -> Result<Client, Failure> {
    // A variable that is set to nothing is how some places unset one.
    let url = store.url.as_deref().filter(|url| !url.is_empty());
    let builder = Client::builder(url.unwrap_or(DEFAULT));
    Ok(bound(builder, ends).connect().await?)
}

fn bound(builder: ClientBuilder, ends: EndsWith) -> ClientBuilder {
    match ends {
        // bound_to(Bound::Lease) once the embedded engine is there
        EndsWith::Lease => builder,
        // bound_to(Bound::Process), the default
        EndsWith::Process => builder,
        // bound_to(Bound::Children) once the embedded engine is there
        EndsWith::Tree => builder,
    }
}

/// Closes the client. What the store does not hear of in time is left to its lease.
pub(crate) async fn leave(client: &Client) {
    let closed = tokio::time::timeout(LONGEST_GOODBYE, client.close()).await;
    if let Ok(Err(error)) = closed {
        say(error);
    }
}
