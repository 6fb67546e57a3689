//! `latch`: waits until other processes have finished.

use std::time::Duration;

use clap::Subcommand;
use distlock::{Client, ReleaseOn};

use crate::args::Named;
use crate::confirm::confirm;
use crate::duration::{self, short};
use crate::exit::{self, ExpectedKind, Failure};
use crate::out::{Out, shown};
use crate::store;

/// Upper bound of a count in a store.
const MOST: u64 = (1 << 53) - 1;

/// Wait until other processes have finished.
///
/// `set` sets the count, each process counts down when it has finished (`down`), and `wait` returns when the count is
/// zero. Redisson's RCountDownLatch is the same latch for Java.
#[derive(clap::Args, Debug)]
pub(crate) struct Latch {
    #[command(subcommand)]
    what: LatchCommand,
}

#[derive(Debug, Subcommand)]
enum LatchCommand {
    Set(Set),
    /// Count down by one. Prints the remaining count.
    Down(Named),
    Wait(Wait),
    /// Print the remaining count; 0 for a latch that was never set.
    Show(Named),
    Delete(Delete),
}

/// Set the count of the latch.
///
/// Asks before it replaces a number, which may be an application's counter; without a terminal that needs `--force`.
/// Waiters of a replaced latch continue.
#[derive(clap::Args, Debug)]
struct Set {
    /// Do not ask for confirmation
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    named: Named,
    /// The number of count-downs to wait for
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    count: u64,
}

/// Delete the latch: its waiters continue.
///
/// Asks first, since its number may be an application's counter; without a terminal that needs `--force`. Exits with 1
/// if the latch was never set.
#[derive(clap::Args, Debug)]
struct Delete {
    /// Do not ask for confirmation
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    named: Named,
}

/// Wait until the count is zero. A latch that was never set is open.
#[derive(clap::Args, Debug)]
struct Wait {
    /// How long to wait; 0: do not wait [default: forever]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Exit code if the count is not zero at the end of the wait, other than 0
    #[arg(long, value_name = "CODE", default_value_t = exit::BUSY,
          value_parser = clap::value_parser!(u8).range(1..))]
    busy_code: u8,
    #[command(flatten)]
    named: Named,
}

pub(crate) async fn latch(args: Latch) -> Result<u8, Failure> {
    let store = match &args.what {
        LatchCommand::Set(Set { named, .. })
        | LatchCommand::Wait(Wait { named, .. })
        | LatchCommand::Delete(Delete { named, .. }) => &named.store,
        LatchCommand::Down(named) | LatchCommand::Show(named) => &named.store,
    };
    let client = store::connect(store, ReleaseOn::Process).await?;
    let done = match &args.what {
        LatchCommand::Set(args) => set(&client, args).await,
        LatchCommand::Down(args) => down(&client, &args.name).await,
        LatchCommand::Wait(args) => wait(&client, args).await,
        LatchCommand::Show(args) => show(&client, &args.name).await,
        LatchCommand::Delete(args) => delete(&client, args).await,
    };
    store::leave(&client).await;
    done.map_err(|failure| failure.of(ExpectedKind::Latch))
}

/// Describes the current state for a question. On a server a number may belong to any program; in a file it belongs to
/// a latch.
fn state(args: &Named, left: u64) -> String {
    let name = shown(&args.name);
    match left {
        _ if store::sees_processes(&args.store) => {
            format!("`{name}` is a latch with a count of {left}")
        }
        left => format!("`{name}` is the number {left}: a latch, or another program's counter"),
    }
}

/// Rejects a number of 0 or less on a server: a latch is deleted by the last count-down, so such a number is another
/// program's.
fn may_be_a_latch(args: &Named, left: u64) -> Result<(), Failure> {
    if left > 0 || store::sees_processes(&args.store) {
        return Ok(());
    }
    let message = format!(
        "`{}` is not a latch (a number of 0 or less); it was left as it is; choose another name",
        shown(&args.name)
    );
    Err(Failure::new(exit::UNAVAILABLE, message))
}

async fn set(client: &Client, args: &Set) -> Result<u8, Failure> {
    let latch = client.latch(&*args.named.name);
    // Read the count first: a change without an effect would still leave its entry in the dedup table beside the
    // number.
    let mut left = latch.count().await?;
    if left == 0 {
        if latch.try_set(args.count).await? {
            return Ok(0);
        }
        left = latch.count().await?;
    }
    let name = shown(latch.name());
    if !args.force {
        may_be_a_latch(&args.named, left)?;
        confirm(&state(&args.named, left), "replace it")?;
    }
    latch.delete().await?;
    if latch.try_set(args.count).await? {
        return Ok(0);
    }
    let message =
        format!("`{name}` was set by another client meanwhile; its count was not changed");
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

async fn delete(client: &Client, args: &Delete) -> Result<u8, Failure> {
    let latch = client.latch(&*args.named.name);
    let name = shown(latch.name());
    let none = || Failure::new(exit::NO, format!("no latch `{name}` is set"));
    if !args.force {
        let left = latch.count().await?;
        if left == 0 && store::sees_processes(&args.named.store) {
            return Err(none());
        }
        // A latch reports a negative number as 0; a counting semaphore, whose key is the same, reports it as it is.
        if left == 0 && client.counting_semaphore(latch.name()).available().await? == 0 {
            let message = format!(
                "no latch `{name}` is set, or it is the number 0: another program's counter"
            );
            return Err(Failure::new(exit::NO, message));
        }
        may_be_a_latch(&args.named, left)?;
        confirm(&state(&args.named, left), "delete it")?;
    }
    if latch.delete().await? {
        return Ok(0);
    }
    Err(none())
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
    let message = format!("`{name}` is not open: its count is {left}{waited}");
    Err(Failure::new(args.busy_code, message))
}
