//! The fair lock: first come, first served, between processes and languages.
//!
//! ```sh
//! cargo run --release --example fair_lock                                    # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example fair_lock    # the same on Redis, in Redisson's own queue
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
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:fair".into());
    // The two clients stand for two services: all their waiters join one queue.
    let clients = [Client::connect(&url).await?, Client::connect(&url).await?];
    let line = async || -> Result<usize, Error> {
        let seen = clients[0].admin().inspect("printer").await?;
        Ok(seen.map_or(0, |lock| lock.waiting.len()))
    };

    println!("1. Somebody prints; four come, of two services by turns, and stand in line:");
    let guard = clients[0].fair_lock("printer").acquire().await?;
    let mut waiters = Vec::new();
    for number in 1..=4 {
        let lock = clients[number % 2].fair_lock("printer");
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await?;
            println!("   {number} prints");
            guard.release().await
        }));
        while line().await? < number {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    println!("   {} wait", line().await?);

    println!("\n2. Who asks once does not overtake; who gives up leaves the line at once:");
    let hasty = clients[1].fair_lock("printer").try_acquire().await?;
    println!(
        "   try_acquire: {}",
        if hasty.is_none() { "busy" } else { "got it" }
    );
    waiters.remove(1).abort();
    while line().await? > 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("   2 has left; {} wait", line().await?);

    println!("\n3. It is given back, and goes from each to the next:");
    guard.release().await?;
    for waiter in waiters {
        waiter.await.expect("no waiter panics")?;
    }
    for client in clients {
        client.close().await?;
    }
    Ok(())
}
