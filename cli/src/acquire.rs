//! `acquire`: takes a lock and leaves it to its lease, for whoever cannot wrap a command.

use std::time::Duration;

use distlock::{Client, HoldsEndWith, Lease, Lock, LockKind};
use serde::Serialize;

use crate::args::Acquire;
use crate::date::Date;
use crate::exit::{self, Failure};
use crate::label;
use crate::list::kind_word;
use crate::out::Out;
use crate::signals::Signals;
use crate::store;
use crate::take::{Waited, busy, take};

/// What was taken, for programs.
#[derive(Serialize)]
struct Taken<'a> {
    name: &'a str,
    kind: &'static str,
    owner: &'a str,
    lease_ms: u64,
}

pub(crate) async fn acquire(args: Acquire) -> Result<u8, Failure> {
    if Out::is_closed() {
        let message = "the output is closed: nobody would learn the owner";
        return Err(Failure::new(exit::OUTPUT, message));
    }
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        biased;
        client = store::connect(&args.store, HoldsEndWith::Lease) => client?,
        code = signals.end() => return Ok(code),
    };
    let done = if args.simple {
        let lock = client.simple_lock(&*args.name);
        take_and_tell(&client, lock, &args, &mut signals).await
    } else {
        take_and_tell(&client, client.lock(&*args.name), &args, &mut signals).await
    };
    store::leave(&client).await;
    done
}

async fn take_and_tell<K>(
    client: &Client,
    lock: Lock<K>,
    args: &Acquire,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lock = lock.with_lease(Lease::Fixed(args.lease));
    let guard = match take(client, &lock, args.wait, signals).await? {
        Waited::Granted(guard) => guard,
        Waited::Busy => return Err(busy(client, &args.name, args.wait, args.busy_code).await),
        Waited::Ended(code) => return Ok(code),
    };
    let command = ["distlock acquire".into()];
    client.relabel(label::of_this_process(Date::now(), true, &command));
    // If that fails nobody knows the owner, and nobody could give it back: it goes with the guard.
    tell(args, &guard.owner()).map_err(|failure| {
        // Elsewhere a reader that has gone is no trouble; here nobody has learnt the owner.
        let unread = failure
            .message
            .unwrap_or_else(|| "nobody reads the owner".to_owned());
        Failure::new(exit::OUTPUT, format!("{unread}; the lock is given back"))
    })?;
    guard.forget();
    Ok(0)
}

fn tell(args: &Acquire, owner: &str) -> Result<(), Failure> {
    let mut out = Out::new();
    if !args.json {
        return out.line(owner);
    }
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let kind = if args.simple {
        LockKind::Simple
    } else {
        LockKind::Plain
    };
    out.json(&Taken {
        name: &args.name,
        kind: kind_word(kind),
        owner,
        lease_ms: millis(args.lease),
    })
}
