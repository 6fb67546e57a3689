//! `acquire`: acquires a lock and leaves it to its lease, for callers that cannot wrap a command.

use std::time::Duration;

use distlock::{Client, Lease, ReleaseOn};
use serde::Serialize;

use crate::args::Acquire;
use crate::date::Date;
use crate::exit::{self, Failure};
use crate::kind::word;
use crate::label;
use crate::out::Out;
use crate::signals::Signals;
use crate::store;
use crate::take::{TakeOutcome, TakeParams, busy, take};
use crate::taken::Taken;

/// The JSON form of an acquired lock.
#[derive(Serialize)]
struct AcquireOutput<'a> {
    name: &'a str,
    kind: &'static str,
    owner: &'a str,
    lease_ms: u64,
    /// `None` unless the lock is fenced.
    token: Option<u64>,
}

pub(crate) async fn acquire(args: Acquire) -> Result<u8, Failure> {
    if Out::is_closed() {
        let message =
            "the output is closed, so that the owner cannot be printed; no lock was acquired";
        return Err(Failure::new(exit::OUTPUT, message));
    }
    let mut signals = Signals::install()?;
    let client = tokio::select! {
        biased;
        client = store::connect(&args.store, ReleaseOn::Lease) => client?,
        code = signals.end() => return Ok(code),
    };
    let done = take_and_print(&client, &args, &mut signals).await;
    store::leave(&client).await;
    done
}

async fn take_and_print(
    client: &Client,
    args: &Acquire,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let params = TakeParams {
        kind: args.kind.kind(),
        names: std::slice::from_ref(&args.name),
        wait: args.wait,
        lease: Some(Lease::Fixed(args.lease)),
        max_hold: None,
        failover_delay: args.store.failover_delay,
    };
    let taken = match take(client, &params, signals).await? {
        TakeOutcome::Granted(taken) => taken,
        TakeOutcome::Busy => return Err(busy(client, &params, args.busy_code).await),
        TakeOutcome::Ended(code) => return Ok(code),
    };
    let command = ["distlock acquire".into()];
    client.set_label(label::of_this_process(Date::now(), true, &command));
    // If printing fails, the owner is unknown and nothing could release the lock: it is released when the guard is
    // dropped.
    print_acquired(args, &taken).map_err(|failure| {
        // Elsewhere a closed output is a success; here the owner was not delivered.
        let unread = failure
            .message
            .unwrap_or_else(|| "the output was closed before the owner was printed".to_owned());
        Failure::new(exit::OUTPUT, format!("{unread}; the lock is released"))
    })?;
    taken.forget();
    Ok(0)
}

fn print_acquired(args: &Acquire, taken: &Taken) -> Result<(), Failure> {
    let mut out = Out::new();
    // One name has exactly one part.
    let Some(part) = taken.parts.first() else {
        return Ok(());
    };
    let (owner, token) = (&*part.owner, part.token.map(u64::from));
    if !args.json {
        // One write for both: a reader that received only the owner could release the lock, but not use it.
        let token = token.map_or_else(String::new, |token| format!("\n{token}"));
        return out.line(format!("{owner}{token}"));
    }
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    out.json(&AcquireOutput {
        name: &args.name,
        kind: word(taken.kind),
        owner,
        lease_ms: millis(args.lease),
        token,
    })
}
