//! Inspection behind sentinels.

use super::{PATIENCE, connect, patient};
use crate::support::{Topology, eventually, simulated};

/// A12: a text in another program's data, or in a label, was taken for the reply of a replica.
#[test]
fn a_text_that_mentions_a_replica_is_no_error_of_one() {
    const TEXT: &str = "READONLY You can't write against a read only replica.";
    simulated(async || {
        let topology = Topology::start().await;
        let client = patient(&topology.url()).label(TEXT).connect().await;
        let client = client.expect("the master is up");
        let held = client.lock("stock").acquire().await.expect("it is free");
        let master = topology.master();
        master.cmd(&["HSET", "bull:q:123", "failedReason", TEXT]);
        master.cmd(&["SET", "last error", TEXT]);
        master.cmd(&["HSET", "device", "mode", TEXT]);
        let other = connect(&topology).await;
        eventually(PATIENCE, "the label is set", async || {
            let listed = other.admin().list("*").await.expect("the master is up");
            let [lock] = &*listed else {
                panic!("{listed:?}");
            };
            lock.holders[0].label.as_deref() == Some(TEXT)
        })
        .await;
        held.release().await.expect("it is held");
    });
}
