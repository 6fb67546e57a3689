//! The semaphore: at most N holders at the same time, on one machine or on many.
//!
//! ```sh
//! cargo run --release --example semaphore                                     # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example semaphore     # shared with Redisson's RPermitExpirableSemaphore
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Lease};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:exports".into());
    let client = Client::connect(&url).await?;
    let exports = client.semaphore("example:exports");
    exports.set_total(3).await?;

    println!("1. Ten want to export, three may at a time:");
    static AT_WORK: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let permit = exports.permit();
        tasks.push(tokio::spawn(async move {
            let permit = permit.acquire().await?;
            MOST.fetch_max(AT_WORK.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(50)).await;
            AT_WORK.fetch_sub(1, Ordering::SeqCst);
            permit.release().await
        }));
    }
    for task in tasks {
        task.await.expect("no panic")?;
    }
    println!("   at most {} were at work", MOST.load(Ordering::SeqCst));

    println!("\n2. Who needs all three is not starved by those who want one:");
    let one = exports.permit().acquire().await?;
    let all = tokio::spawn(exports.permits(3).acquire());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let another = exports.permit().try_acquire().await?;
    println!("   another, while it waits: {}", another.is_some());
    one.release().await?;
    let all = all.await.expect("no panic")?;
    println!("   it has {} permits", all.permit_ids().len());
    all.release().await?;

    println!("\n3. One died with its permit; it comes back with its lease:");
    let short = Lease::Fixed(Duration::from_millis(300));
    let dead = exports.permit().with_lease(short).acquire().await?;
    dead.forget();
    println!("   now: {:?}", exports.count().await?);
    tokio::time::sleep(Duration::from_millis(400)).await;
    println!("   then: {:?}", exports.count().await?);
    exports.delete().await?;
    client.close().await
}
