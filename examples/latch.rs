//! The latch: all waiters continue when the last worker has finished.
//!
//! ```sh
//! cargo run --release --example latch                                     # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example latch     # across machines, and with Java
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use std::time::Duration;

use distlock::{Client, Error, Latch};

const SHARDS: u64 = 3;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:latch".into());
    let client = Client::connect(&url).await?;
    let loaded = client.latch("shards loaded");

    println!("1. {SHARDS} shards are to be loaded before anybody is served:");
    println!("   set: {}", loaded.try_set(SHARDS).await?);
    println!("   set again: {}", loaded.try_set(SHARDS).await?);
    let servers = (1..=2).map(|server| tokio::spawn(serve(loaded.clone(), server)));
    let servers: Vec<_> = servers.collect();

    println!("\n2. Who does not want to wait for ever says so:");
    let open = loaded.wait_timeout(Duration::from_millis(50)).await?;
    println!("   open after 50 ms: {open}");

    println!("\n3. One shard after the other:");
    for shard in 1..=SHARDS {
        let left = loaded.count_down().await?;
        println!("   shard {shard} is loaded, {left} to go");
    }
    for server in servers {
        server.await.expect("no panic")?;
    }
    client.close().await
}

async fn serve(loaded: Latch, server: u32) -> Result<(), Error> {
    loaded.wait().await?;
    println!("   server {server} begins to serve");
    Ok(())
}
