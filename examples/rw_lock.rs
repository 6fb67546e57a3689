//! The read/write lock: several readers, or one writer.
//!
//! ```sh
//! cargo run --release --example rw_lock                                        # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example rw_lock        # the same on Redis, together with Java's readers
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use std::time::Duration;

use distlock::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:prices".into());
    let client = Client::connect(&url).await?;
    let prices = client.rw_lock("prices");

    println!("1. Two read at the same time; who wants to write waits for both:");
    let one = prices.read().acquire().await?;
    let two = prices.read().acquire().await?;
    let writer = tokio::spawn(prices.write().acquire());
    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("   it writes: {}", writer.is_finished());

    println!("\n2. Who comes to read now stands behind the writer, so that it gets its turn:");
    let late = prices.read().try_acquire().await?;
    println!("   another reader: {}", told(late.is_some()));
    one.release().await?;
    two.release().await?;
    let writer = writer.await.expect("the writer does not panic")?;
    println!("   both have left; it writes: {}", writer.is_held());

    println!(
        "\n3. The writer looks at what it wrote, and lets others look; nobody writes in between:"
    );
    let reader = writer.downgrade().await?;
    let other = prices.read().try_acquire().await?;
    println!("   another reader: {}", told(other.is_some()));

    println!("\n4. A reader may write if nobody else reads. It never waits for that:");
    let upgraded = reader.try_upgrade().await?;
    println!("   while another reads: {}", told(upgraded.is_some()));
    if let Some(other) = other {
        other.release().await?;
    }
    let upgraded = reader.try_upgrade().await?;
    println!("   alone: {}", told(upgraded.is_some()));
    drop(upgraded);
    reader.release().await?;
    client.close().await
}

const fn told(granted: bool) -> &'static str {
    if granted { "let in" } else { "kept out" }
}
