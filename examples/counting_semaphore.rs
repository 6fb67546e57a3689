//! The counting semaphore: its permits have no owner, so that any client may release them.
//!
//! ```sh
//! cargo run --release --example counting_semaphore                                     # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example counting_semaphore     # across machines, and with Java
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use std::time::Duration;

use distlock::{Client, CountingSemaphore, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:slots".into());
    let client = Client::connect(&url).await?;
    let slots = client.counting_semaphore("upload slots");
    slots.set_available(2).await?;

    println!("1. Six uploads, two at a time:");
    let uploads = (1..=6).map(|upload| tokio::spawn(send(slots.clone(), upload)));
    for upload in uploads.collect::<Vec<_>>() {
        upload.await.expect("no panic")?;
    }

    println!("\n2. One slot is taken; who wants both waits for it:");
    slots.acquire(1).await?;
    let short = Duration::from_millis(50);
    println!(
        "   both within 50 ms: {}",
        slots.acquire_timeout(2, short).await?
    );
    println!("   given back, though a task that is gone has had it");
    slots.release(1).await?;
    println!("   both: {}", slots.try_acquire(2).await?);
    slots.release(2).await?;

    println!("\n3. All that are left are taken, for a quiet hour:");
    println!("   drained: {}", slots.drain().await?);
    println!("   an upload: {}", slots.try_acquire(1).await?);
    slots.delete().await?;
    client.close().await
}

async fn send(slots: CountingSemaphore, upload: u32) -> Result<(), Error> {
    slots.acquire(1).await?;
    println!("   upload {upload} begins");
    tokio::time::sleep(Duration::from_millis(20)).await;
    slots.release(1).await
}
