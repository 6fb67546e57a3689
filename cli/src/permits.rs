//! `permits`: how many of a job there may be at once, without taking one.

use clap::Subcommand;
use distlock::{Client, PermitCount, ReleaseOn};

use crate::args::Named;
use crate::confirm::confirm;
use crate::exit::{self, ExpectedKind, Failure};
use crate::kind::{self, MOST_PERMITS};
use crate::out::{Out, shown};
use crate::store;

/// Say, see or forget how many permits there are.
///
/// Sets, shows or deletes the number of permits that `run --permits N` uses. The number stays when all have ended, and
/// the name is a semaphore's as long as it does. On a server the number is a key of its name, which looks like any other
/// counter. Java's side is Redisson's RPermitExpirableSemaphore.
#[derive(clap::Args, Debug)]
pub(crate) struct Permits {
    #[command(subcommand)]
    what: PermitsCommand,
}

#[derive(Debug, Subcommand)]
enum PermitsCommand {
    Set(Set),
    /// Print how many are out and to be had. Ends with 1 if nobody has said.
    Show(Named),
    Delete(Delete),
}

/// Set how many permits there are in all.
///
/// Asks before it replaces another number, which may be an application's counter; without a terminal that needs
/// `--force`. The same number again changes nothing.
#[derive(clap::Args, Debug)]
struct Set {
    /// Do not ask
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    named: Named,
    /// How many there are
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_PERMITS))]
    total: u32,
}

/// Delete the number: the name is free for other locks.
///
/// Asks first, since the number may be an application's counter; without a terminal that needs `--force`. Holders of
/// permits lose them. Ends with 1 if there is no number.
#[derive(clap::Args, Debug)]
struct Delete {
    /// Do not ask
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    named: Named,
}

pub(crate) async fn permits(args: Permits) -> Result<u8, Failure> {
    let store = match &args.what {
        PermitsCommand::Set(Set { named, .. })
        | PermitsCommand::Show(named)
        | PermitsCommand::Delete(Delete { named, .. }) => &named.store,
    };
    let client = store::connect(store, ReleaseOn::Process).await?;
    let done = match &args.what {
        PermitsCommand::Set(args) => set(&client, args).await,
        PermitsCommand::Show(args) => show(&client, &args.name).await,
        PermitsCommand::Delete(args) => delete(&client, args).await,
    };
    store::leave(&client).await;
    done.map_err(|failure| failure.of(ExpectedKind::Semaphore))
}

async fn set(client: &Client, args: &Set) -> Result<u8, Failure> {
    let semaphore = client.semaphore(&*args.named.name);
    let Some(count) = kind::create(&semaphore, args.total).await? else {
        return Ok(0);
    };
    if total(count) == i64::from(args.total) {
        return Ok(0);
    }
    if !args.force {
        confirm(&state(&args.named, count), "replace the number")?;
    }
    semaphore.set_total(args.total).await?;
    Ok(0)
}

async fn show(client: &Client, name: &str) -> Result<u8, Failure> {
    let PermitCount { available, out, .. } = client.semaphore(name).count().await?;
    if (available, out) == (0, 0) {
        return Err(none(name));
    }
    Out::new().line(format!("{out} out, {available} to be had"))?;
    Ok(0)
}

async fn delete(client: &Client, args: &Delete) -> Result<u8, Failure> {
    let name = &*args.named.name;
    let semaphore = client.semaphore(name);
    if !args.force {
        let count = semaphore.count().await?;
        if (count.available, count.out) == (0, 0) {
            return Err(none(name));
        }
        confirm(&state(&args.named, count), "delete it")?;
    }
    if semaphore.delete().await? {
        return Ok(0);
    }
    Err(none(name))
}

/// How many permits there are in all.
pub(crate) fn total(count: PermitCount) -> i64 {
    let in_use = i64::try_from(count.out).unwrap_or(i64::MAX);
    count.available.saturating_add(in_use)
}

/// What is there, for a question. On a server, a number without a permit in use may be a semaphore's or any other counter.
fn state(args: &Named, count: PermitCount) -> String {
    let (name, total) = (shown(&args.name), total(count));
    match count.out {
        0 if !store::sees_processes(&args.store) => {
            format!("`{name}` is the number {total}: a semaphore, or another program's counter")
        }
        in_use => format!("permits of `{name}`: {total}, in use: {in_use}"),
    }
}

fn none(name: &str) -> Failure {
    let message = format!(
        "nobody has said how many permits `{}` has, or the number is 0",
        shown(name)
    );
    Failure::new(exit::NO, message)
}
