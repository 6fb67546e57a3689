//! Fencing tokens: an account refuses the write of a holder whose lock has expired.
//!
//! ```sh
//! cargo run --release --example fencing                                        # needs no server
//! DISTLOCK_URL=redis://127.0.0.1/ cargo run --release --example fencing        # the same on Redis
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Duration;

use distlock::{Client, Error, FencingToken, Lease};

/// The resource that the lock protects: it remembers the greatest token it has seen.
struct Account {
    balance: i64,
    token: FencingToken,
}

impl Account {
    fn write(&mut self, token: FencingToken, balance: i64) -> &'static str {
        if token < self.token {
            return "refused: somebody has had the lock since";
        }
        (self.token, self.balance) = (token, balance);
        "written"
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:fencing".into());
    let client = Client::connect(&url).await?;
    let mut account = Account {
        balance: 100,
        token: FencingToken::new(0),
    };

    let short = Lease::Fixed(Duration::from_millis(200));
    let slow = client.fenced_lock("account").with_lease(short);
    let slow = slow.acquire().await?;
    let read = account.balance;
    println!("the first has the lock, token {}", slow.token());
    println!("… and stands still for longer than its lease");

    let quick = client.fenced_lock("account").acquire().await?;
    println!("the second has the lock, token {}", quick.token());
    let written = account.write(quick.token(), account.balance - 30);
    println!("the second takes 30: {written}");
    quick.release().await?;

    let written = account.write(slow.token(), read - 50);
    println!("the first goes on and takes 50: {written}");
    println!("balance: {}", account.balance);
    assert_eq!(account.balance, 70, "nothing was lost");
    client.close().await
}
