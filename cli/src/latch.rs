//! `latch`: some wait until others have finished.

use std::time::Duration;

use clap::Subcommand;
use distlock::{Client, HoldsEndWith};

use crate::args::Named;
use crate::duration::{self, short};
use crate::exit::{self, Failure};
use crate::out::{Out, shown};
use crate::store;

/// What a store can count.
const MOST: u64 = (1 << 53) - 1;

/// Wait until others have finished.
///
/// Somebody says how many there are to wait for (`set`), each says when it has finished (`down`), and whoever
/// waits goes on when the last one has (`wait`). Java's side is Redisson's RCountDownLatch.
#[derive(clap::Args, Debug)]
pub(crate) struct Latch {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say how many there are to wait for. Ends with 1 if somebody has said so.
    Set(Set),
    /// One has finished. Prints how many are left.
    Down(Named),
    Wait(Wait),
    /// Print how many are left; 0 of a latch that nobody has set.
    Show(Named),
    /// Take it away: whoever waits goes on. Ends with 1 if nobody has set it.
    Delete(Named),
}

#[derive(clap::Args, Debug)]
struct Set {
    #[command(flatten)]
    named: Named,
    /// How many there are to wait for
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    count: u64,
}

/// Wait until none is left. A latch that nobody has set is open.
#[derive(clap::Args, Debug)]
struct Wait {
    /// How long to wait; 0: not at all [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// The exit code if some are left then, other than 0
    #[arg(long, value_name = "CODE", default_value_t = exit::BUSY,
          value_parser = clap::value_parser!(u8).range(1..))]
    busy_code: u8,
    #[command(flatten)]
    named: Named,
}

pub(crate) async fn latch(args: Latch) -> Result<u8, Failure> {
    let store = match &args.what {
        What::Set(Set { named, .. }) | What::Wait(Wait { named, .. }) => &named.store,
        What::Down(named) | What::Show(named) | What::Delete(named) => &named.store,
    };
    let client = store::connect(store, HoldsEndWith::Process).await?;
    let done = match &args.what {
        What::Set(args) => set(&client, args).await,
        What::Down(args) => down(&client, &args.name).await,
        What::Wait(args) => wait(&client, args).await,
        What::Show(args) => show(&client, &args.name).await,
        What::Delete(args) => delete(&client, &args.name).await,
    };
    store::leave(&client).await;
    done
}

async fn set(client: &Client, args: &Set) -> Result<u8, Failure> {
    if client.latch(&*args.named.name).try_set(args.count).await? {
        return Ok(0);
    }
    let left = client.latch(&*args.named.name).count().await?;
    let name = shown(&args.named.name);
    let message = format!("`{name}` is set already, with {left} left");
    Err(Failure::new(exit::NO, message))
}

async fn down(client: &Client, name: &str) -> Result<u8, Failure> {
    let left = client.latch(name).count_down().await?;
    Out::new().line(left.to_string())?;
    Ok(0)
}

async fn show(client: &Client, name: &str) -> Result<u8, Failure> {
    let left = client.latch(name).count().await?;
    Out::new().line(left.to_string())?;
    Ok(0)
}

async fn delete(client: &Client, name: &str) -> Result<u8, Failure> {
    if client.latch(name).delete().await? {
        return Ok(0);
    }
    let message = format!("nobody has set `{}`", shown(name));
    Err(Failure::new(exit::NO, message))
}

async fn wait(client: &Client, args: &Wait) -> Result<u8, Failure> {
    let latch = client.latch(&*args.named.name);
    let Some(patience) = args.wait else {
        latch.wait().await?;
        return Ok(0);
    };
    let open = match patience {
        Duration::ZERO => latch.count().await? == 0,
        patience => latch.wait_timeout(patience).await?,
    };
    if open {
        return Ok(0);
    }
    let left = latch.count().await.unwrap_or(0);
    let name = shown(&args.named.name);
    let waited = match patience {
        Duration::ZERO => String::new(),
        patience => format!(" (waited {})", short(patience)),
    };
    let message = format!("`{name}` has {left} left{waited}");
    Err(Failure::new(args.busy_code, message))
}
