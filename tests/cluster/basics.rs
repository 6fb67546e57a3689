use crate::support::Cluster;
use crate::{connect, patient};

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_all_slots_are_held_renewed_listed_and_given_back() {
    let cluster = Cluster::start_masters();
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let mut guards = Vec::new();
    for number in 0..30 {
        let name = format!("lock-{number}");
        guards.push(one.lock(&*name).acquire().await.expect("it is free"));
        let refused = other.lock(&*name).try_acquire().await;
        assert!(refused.expect("it answers").is_none(), "{name} is held");
    }
    let listed = other
        .admin()
        .list("lock-*")
        .await
        .expect("they can be listed");
    assert_eq!(listed.len(), 30);
    for guard in guards {
        guard.release().await.expect("it is ours");
    }
    assert_eq!(cluster.keys(), Vec::<String>::new());
    let _ = patient;
}
