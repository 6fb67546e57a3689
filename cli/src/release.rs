//! `release`: gives back what an owner holds, or takes a lock from whoever holds it.

use std::io::{BufRead, IsTerminal, Write};

use distlock::{Client, Error, Holder, HoldsEndWith};

use crate::args::Release;
use crate::exit::{self, Failure};
use crate::label::Who;
use crate::out::{say, shown};
use crate::store;

pub(crate) async fn release(args: Release) -> Result<u8, Failure> {
    let client = store::connect(&args.store, HoldsEndWith::Process).await?;
    let released = if let Some(owner) = &args.owner {
        by_owner(&client, &args.name, owner).await
    } else if args.force {
        by_force(&client, &args.name).await
    } else {
        after_asking(&client, &args.name).await
    };
    store::leave(&client).await;
    released
}

async fn by_owner(client: &Client, name: &str, owner: &str) -> Result<u8, Failure> {
    if client.admin().release(name, owner).await? {
        return Ok(0);
    }
    let message = format!("that owner does not hold `{}` (any more)", shown(name));
    Err(Failure::new(exit::NO, message))
}

async fn by_force(client: &Client, name: &str) -> Result<u8, Failure> {
    if client.admin().force_release(name).await? {
        return Ok(0);
    }
    Err(nobody(name))
}

async fn after_asking(client: &Client, name: &str) -> Result<u8, Failure> {
    let Some(lock) = client.admin().inspect(name).await? else {
        return Err(nobody(name));
    };
    if !std::io::stdin().is_terminal() {
        let message = "nobody is here to be asked; use `--force`, or `--owner`";
        return Err(Failure::new(exit::USAGE, message));
    }
    let holder = match &lock.holders[..] {
        [] => return Err(nobody(name)),
        [holder] if is_plain(&holder.owner) => holder,
        // All that could be done about these would end whatever is there by then.
        [holder, ..] => return Err(another_kind(name, holder)),
    };
    let question = format!("take `{}` from {}?", shown(name), Who::of(holder));
    if !is_agreed(&question) {
        say("left as it is");
        return Ok(exit::NO);
    }
    // From whom was asked about, and nobody who got it meanwhile.
    match client.admin().release(name, &holder.owner).await {
        Ok(true) => Ok(0),
        Ok(false) => Err(Failure::new(exit::NO, "it was given back meanwhile")),
        Err(Error::InvalidOption { .. }) => Err(another_kind(name, holder)),
        Err(error) => Err(error.into()),
    }
}

/// Whether that is an owner of a plain lock, `<uuid>:<number>`; Redisson's other locks have others
/// (`<uuid>:<number>:write`).
fn is_plain(owner: &str) -> bool {
    let number = owner
        .split_once(':')
        .map(|(_, number)| number.parse::<i64>());
    number.is_some_and(|number| number.is_ok())
}

fn another_kind(name: &str, holder: &Holder) -> Failure {
    let (name, who) = (shown(name), Who::of(holder));
    let message = format!(
        "`{name}` is held by {who}, and not as a plain lock is; `--force` ends whoever holds it"
    );
    Failure::new(exit::NO, message)
}

fn is_agreed(question: &str) -> bool {
    let mut stderr = std::io::stderr();
    let _ = write!(
        stderr,
        "distlock: {question} It may still be at work. [y/N] "
    );
    let _ = stderr.flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn nobody(name: &str) -> Failure {
    Failure::new(exit::NO, format!("nobody holds `{}`", shown(name)))
}
