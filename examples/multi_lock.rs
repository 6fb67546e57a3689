//! The multi lock: several locks at once, all or none, in any order.
//!
//! ```sh
//! cargo run --release --example multi_lock                                     # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example multi_lock
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use distlock::{Client, Error, MultiLock};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:bank".into());
    let client = Client::connect(&url).await?;
    let accounts = |from: &str, to: &str| {
        MultiLock::new([
            client.lock(format!("account:{from}")).into(),
            client.lock(format!("account:{to}")).into(),
        ])
    };

    println!("1. Two move money in opposite directions, a thousand times each:");
    let there = tokio::spawn(transfer(accounts("anna", "bert"), 1000));
    let back = tokio::spawn(transfer(accounts("bert", "anna"), 1000));
    there.await.expect("no panic")?;
    back.await.expect("no panic")?;
    println!("   done, and nobody waited for ever");

    println!("\n2. One account is busy, so neither is taken:");
    let busy = client.lock("account:bert").acquire().await?;
    let both = accounts("anna", "bert").try_acquire().await?;
    println!("   both: {}", both.is_some());
    let anna = client.lock("account:anna").try_acquire().await?;
    println!("   the other one alone: {}", anna.is_some());
    drop((busy, anna));

    println!("\n3. One of them is taken away; the guard says which:");
    let guard = accounts("anna", "bert").acquire().await?;
    client.admin().force_release("account:bert").await?;
    println!("   {}", guard.lost().await.expect("it was taken"));
    drop(guard);
    client.close().await
}

async fn transfer(lock: MultiLock, times: usize) -> Result<(), Error> {
    for _ in 0..times {
        lock.run(async |_| tokio::task::yield_now().await).await?;
    }
    Ok(())
}
