//! The quorum lock: one lock on a majority of several servers, which survives the loss of the others.
//!
//! ```sh
//! cargo run --release --example quorum_lock                                    # five stores in memory
//! DISTLOCK_URLS=redis://a/,redis://b/,redis://c/ cargo run --release --example quorum_lock
//! ```
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use distlock::{Client, Error, QuorumLock};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let urls = std::env::var("DISTLOCK_URLS")
        .unwrap_or_else(|_| "memory:,memory:,memory:,memory:,memory:".into());
    let mut clients = Vec::new();
    for url in urls.split(',') {
        // Some servers may be down when we start.
        clients.push(Client::builder(url).lazy_connect(true).connect().await?);
    }
    let members = clients.iter().map(|client| client.lock("nightly").into());
    let lock = QuorumLock::new(members);
    println!("1. Most of {} servers grant it:", clients.len());
    // Servers that were started a moment ago have no vote for a lease: this call waits for them.
    let guard = lock.acquire().await?;
    println!(
        "   held on {}, for {:?} from now",
        guard.votes(),
        guard.remaining()
    );
    println!("   somebody else: {}", lock.try_acquire().await?.is_some());

    // The replies of the other servers arrive a moment later, unless they are down.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    println!("\n2. One server loses it, and nothing happens:");
    clients[0].admin().force_release("nightly").await?;
    println!("   held on {}: {}", guard.votes(), guard.is_held());

    println!("\n3. Most lose it, and the work is told:");
    let work = guard.while_held(std::future::pending::<()>());
    let loss = async {
        for client in &clients[1..=clients.len() / 2] {
            client.admin().force_release("nightly").await?;
        }
        Ok::<_, Error>(())
    };
    let (worked, lost) = tokio::join!(work, loss);
    lost?;
    println!("   {}", worked.expect_err("it was lost"));
    drop(guard);
    for client in &clients {
        // Some servers may be down by now.
        let _ = client.close().await;
    }
    Ok(())
}
