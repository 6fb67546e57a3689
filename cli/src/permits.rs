//! `permits`: manages the number of permits of a semaphore, without acquiring one.

use clap::Subcommand;
use distlock::{Client, PermitCount, ReleaseOn};

use crate::args::Named;
use crate::confirm::confirm;
use crate::exit::{self, ExpectedKind, Failure};
use crate::kind::{self, MOST_PERMITS};
use crate::out::{Out, shown};
use crate::store;

/// Set, show or delete the number of permits.
///
/// Sets, shows or deletes the number of permits that `run --permits N` uses. The number stays after all holders have
/// ended, and the name belongs to the semaphore as long as it exists. On a server the number is the key of that name,
/// which looks like any other counter. Redisson's RPermitExpirableSemaphore is the same semaphore for Java.
#[derive(clap::Args, Debug)]
pub(crate) struct Permits {
    #[command(subcommand)]
    what: PermitsCommand,
}

#[derive(Debug, Subcommand)]
enum PermitsCommand {
    Set(Set),
    /// Print how many permits are in use and available. Exits with 1 if the number was never set.
    Show(Named),
    Delete(Delete),
}

/// Set the total number of permits.
///
/// Asks before it replaces another number, which may be an application's counter; without a terminal that needs
/// `--force`. Setting the same number again changes nothing.
#[derive(clap::Args, Debug)]
struct Set {
    /// Do not ask for confirmation
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    named: Named,
    /// The total number of permits
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_PERMITS))]
    total: u32,
}

/// Delete the number: the name is free for other locks.
///
/// Asks first, since the number may be an application's counter; without a terminal that needs `--force`. Holders of
/// permits lose them. Exits with 1 if there is no number.
#[derive(clap::Args, Debug)]
struct Delete {
    /// Do not ask for confirmation
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
    Out::new().line(format!("{out} in use, {available} available"))?;
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

/// Returns the total number of permits.
pub(crate) fn total(count: PermitCount) -> i64 {
    let in_use = i64::try_from(count.out).unwrap_or(i64::MAX);
    count.available.saturating_add(in_use)
}

/// Describes the current state for a question. On a server, a number without a permit in use may belong to a semaphore
/// or be any other counter.
fn state(args: &Named, count: PermitCount) -> String {
    let (name, total) = (shown(&args.name), total(count));
    match count.out {
        0 if !store::sees_processes(&args.store) => {
            format!("`{name}` is the number {total}: a semaphore, or another program's counter")
        }
        in_use => format!("permits of `{name}`: {total} in total, {in_use} in use"),
    }
}

fn none(name: &str) -> Failure {
    let message = format!(
        "no number of permits is set for `{}`, or the number is 0",
        shown(name)
    );
    Failure::new(exit::NO, message)
}
