//! The simple lock: it is compatible with redis-py, redsync and node-redlock.
//!
//! ```sh
//! cargo run --release --example simple_lock                                    # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example simple_lock    # the same on Redis; meanwhile, elsewhere:
//! python3 -c 'import redis; print(redis.Redis().lock("report", timeout=5).acquire(blocking=False))'
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use std::time::Duration;

use distlock::{Client, Error, Lease};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:simple".into());
    let client = Client::connect(&url).await?;
    let lock = client.simple_lock("report");

    println!("1. Somebody holds `report`; whoever asks is refused, in whichever language:");
    let guard = lock.acquire().await?;
    println!("   the key `report` holds {}", guard.owner());
    let refused = lock.try_acquire().await?.is_none();
    println!(
        "   try_acquire: {}",
        if refused { "busy" } else { "got it" }
    );

    println!("\n2. A waiter has it as soon as it is given back:");
    let waiter = tokio::spawn(lock.acquire());
    tokio::time::sleep(Duration::from_secs(2)).await;
    guard.release().await?;
    let guard = waiter.await.expect("the waiter does not panic")?;
    println!("   now it holds {}", guard.owner());

    println!("\n3. A name is a lock of one kind at a time:");
    if let Err(error) = client.lock("report").try_acquire().await {
        println!("   {error}");
    }
    guard.release().await?;

    println!("\n4. A fixed lease that nobody extends is free for the next:");
    let short = lock
        .clone()
        .with_lease(Lease::Fixed(Duration::from_secs(1)));
    let guard = short.acquire().await?;
    let next = lock.acquire().await?;
    let first = guard.is_held();
    println!(
        "   the first holds it: {first}, the next: {}",
        next.is_held()
    );
    next.release().await?;
    client.close().await
}
