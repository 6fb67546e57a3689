//! distlock with the library's defaults, without any tuning.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Guard};

use crate::failure::Outcome;
use crate::line::Work;
use crate::serve::Locker;

#[derive(Clone)]
pub(super) struct Distlock(Client);

impl Locker for Distlock {
    type Hold = Guard;

    fn version() -> String {
        format!("distlock {}", env!("CARGO_PKG_VERSION"))
    }

    async fn connect(work: &Work) -> Outcome<Self> {
        let client = connect(work).await?;
        Ok(Self(client))
    }

    async fn acquire(&self, name: &Arc<str>) -> Outcome<Guard> {
        Ok(self.0.lock(name.clone()).acquire().await?)
    }

    async fn release(&self, hold: Guard) -> Outcome {
        Ok(hold.release().await?)
    }

    fn is_held(hold: &Guard) -> bool {
        hold.is_held()
    }

    async fn close(self) -> Outcome {
        Ok(self.0.close().await?)
    }
}

pub(super) async fn connect(work: &Work) -> Outcome<Client> {
    let client = Client::builder(&work.url)
        // A crowded machine is no reason to fail.
        .command_timeout(Duration::from_secs(20))
        .connect()
        .await?;
    Ok(client)
}
