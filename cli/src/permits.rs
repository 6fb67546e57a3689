//! `permits`: how many of a job there may be at once, without taking one.

use clap::Subcommand;
use distlock::{Client, HoldsEndWith, PermitCount};

use crate::args::Named;
use crate::exit::{self, Failure};
use crate::kind::MOST_PERMITS;
use crate::out::{Out, shown};
use crate::store;

/// Say, see or forget how many permits there are.
///
/// What `run --permits N` takes one of. The number stays when all have ended, and the name is a semaphore's as
/// long as it does. Java's side is Redisson's RPermitExpirableSemaphore.
#[derive(clap::Args, Debug)]
pub(crate) struct Permits {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say how many there are, also if it was another number before.
    Set(Set),
    /// Print how many are out and to be had. Ends with 1 if nobody has said.
    Show(Named),
    Delete(Delete),
}

#[derive(clap::Args, Debug)]
struct Set {
    #[command(flatten)]
    named: Named,
    /// How many there are
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_PERMITS))]
    total: u32,
}

/// Forget the number: the name is free for other locks.
///
/// Ends with 1 if nobody has said a number, or if permits are out.
#[derive(clap::Args, Debug)]
struct Delete {
    /// Also if permits are out: whoever has them loses them
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    named: Named,
}

pub(crate) async fn permits(args: Permits) -> Result<u8, Failure> {
    let store = match &args.what {
        What::Set(Set { named, .. }) | What::Show(named) | What::Delete(Delete { named, .. }) => {
            &named.store
        }
    };
    let client = store::connect(store, HoldsEndWith::Process).await?;
    let done = match &args.what {
        What::Set(args) => set(&client, args).await,
        What::Show(args) => show(&client, &args.name).await,
        What::Delete(args) => delete(&client, args).await,
    };
    store::leave(&client).await;
    done
}

async fn set(client: &Client, args: &Set) -> Result<u8, Failure> {
    client.semaphore(&*args.named.name).set(args.total).await?;
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
    let out = match args.force {
        true => 0,
        false => semaphore.count().await?.out,
    };
    if out > 0 {
        let name = shown(name);
        let message = format!("{out} of `{name}` are out; `--force` takes them away");
        return Err(Failure::new(exit::NO, message));
    }
    match semaphore.delete().await? {
        true => Ok(0),
        false => Err(none(name)),
    }
}

fn none(name: &str) -> Failure {
    let message = format!("nobody has said how many permits `{}` has", shown(name));
    Failure::new(exit::NO, message)
}
