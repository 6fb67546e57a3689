//! `release`: releases an owner's hold, or a lock by force.

use std::io::IsTerminal;

use distlock::{Client, ReleaseOn};

use crate::args::Release;
use crate::confirm::agrees;
use crate::exit::{self, Failure};
use crate::label::HolderInfo;
use crate::out::{say, shown};
use crate::store;

pub(crate) async fn release(args: Release) -> Result<u8, Failure> {
    let client = store::connect(&args.store, ReleaseOn::Process).await?;
    let released = if let Some(owner) = &args.owner {
        by_owner(&client, &args.name, owner).await
    } else if args.force {
        by_force(&client, &args.name).await
    } else {
        after_confirmation(&client, &args.name).await
    };
    store::leave(&client).await;
    released
}

async fn by_owner(client: &Client, name: &str, owner: &str) -> Result<u8, Failure> {
    if client.admin().release(name, owner).await? {
        return Ok(0);
    }
    let message = format!("`{}` is not held by this owner (any more)", shown(name));
    Err(Failure::new(exit::NO, message))
}

async fn by_force(client: &Client, name: &str) -> Result<u8, Failure> {
    if client.admin().force_release(name).await? {
        return Ok(0);
    }
    Err(nobody(name))
}

async fn after_confirmation(client: &Client, name: &str) -> Result<u8, Failure> {
    let Some(lock) = client.admin().inspect(name).await? else {
        return Err(nobody(name));
    };
    let is_interactive = std::io::stdin().is_terminal();
    let holder = match &lock.holders[..] {
        [] => return Err(nobody(name)),
        [holder] => holder,
        holders => {
            let code = if is_interactive {
                exit::NO
            } else {
                exit::USAGE
            };
            return Err(many(code, name, holders.len()));
        }
    };
    if !is_interactive {
        let message = format!(
            "`{}` is held by {}; the input is not a terminal: use `--force`, or `--owner {}`",
            shown(name),
            HolderInfo::of(holder),
            shown(&holder.owner)
        );
        return Err(Failure::new(exit::USAGE, message));
    }
    let question = format!(
        "release `{}`, held by {}? The holder may still be at work.",
        shown(name),
        HolderInfo::of(holder)
    );
    if !agrees(&question) {
        say("nothing was released");
        return Ok(exit::NO);
    }
    // Release only the holder in the question, not an owner that acquired the lock meanwhile.
    match client.admin().release(name, &holder.owner).await {
        Ok(true) => Ok(0),
        Ok(false) => Err(Failure::new(
            exit::NO,
            "the holder has released or lost the lock meanwhile",
        )),
        Err(error) => Err(error.into()),
    }
}

fn many(code: u8, name: &str, holders: usize) -> Failure {
    let message = format!(
        "`{}` has {holders} holders: `--owner` releases the hold of one of them (`distlock show` lists them), \
         `--force` the holds of all",
        shown(name)
    );
    Failure::new(code, message)
}

fn nobody(name: &str) -> Failure {
    Failure::new(exit::NO, format!("`{}` is not held", shown(name)))
}
