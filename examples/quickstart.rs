//! The plain lock: several tasks take turns; then one loses the lock and is notified.
//!
//! ```sh
//! cargo run --release --example quickstart                                        # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example quickstart        # the same on Redis
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
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:quickstart".into());
    let client = Client::builder(&url).label("quickstart").connect().await?;
    println!("1. Four tasks take turns at the lock `stock`:");
    let tasks = (1..=4).map(|task| tokio::spawn(take_a_turn(client.clone(), task)));
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("the task does not panic")?;
    }

    println!("\n2. Somebody holds `report`; others see who, and do not get it:");
    let guard = client.lock("report").acquire().await?;
    let seen = client.admin().inspect("report").await?;
    let holder = seen.as_ref().map(|lock| &lock.holders[0]);
    let label = holder.and_then(|holder| holder.label.as_deref());
    println!("   held by {}", label.unwrap_or("nobody"));
    let busy = client.lock("report").try_acquire().await?.is_none();
    println!("   try_acquire: {}", if busy { "busy" } else { "got it" });
    guard.release().await?;

    println!(
        "\n3. A holder at work loses its lock to an operator, and is told at its next renewal:"
    );
    let lease = Lease::KeepAlive(Duration::from_secs(3));
    let guard = client.lock("import").with_lease(lease).acquire().await?;
    let operator = Client::connect(&url).await?;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        operator.admin().force_release("import").await
    });
    let work = async {
        for step in 1.. {
            println!("   importing, step {step}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    match guard.while_held(work).await {
        Ok(()) => println!("   finished"),
        Err(error) => println!("   stopped: {error}"),
    }
    client.close().await
}

async fn take_a_turn(client: Client, task: u32) -> Result<(), Error> {
    let guard = client.lock("stock").acquire().await?;
    println!(
        "   task {task} has it, for {:.1?} more unless renewed",
        guard.remaining()
    );
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await
}
