//! Tasks of one client with different requests of one semaphore: none waits for permits that only another one lacks.

use tokio::time::sleep;

use super::{counts, two};
use crate::stage::{ASLEEP, CaseResult, Semaphore, Stage, in_time};

on_every_engine_with_scripts! { play with Semaphore:
    a_request_above_the_total_blocks_no_call_of_its_own_client,
    a_request_above_the_available_permits_leaves_them_to_its_own_client,
    a_call_that_sets_the_total_does_not_wait_behind_one_that_cannot,
    a_request_for_several_permits_is_not_starved_by_its_own_client,
}

async fn a_request_above_the_total_blocks_no_call_of_its_own_client(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, _) = two(stage, 2).await?;
    let too_many = tokio::spawn(a.permits(3).acquire());
    sleep(ASLEEP).await;
    in_time(a.permit().acquire()).await?.release().await?;
    in_time(a.permits(2).acquire()).await?.release().await?;
    a.set_total(3).await?;
    let all = in_time(too_many).await.expect("no panic")?;
    all.release().await?;
    counts(&a, 3, 0).await
}

async fn a_request_above_the_available_permits_leaves_them_to_its_own_client(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, b) = two(stage, 3).await?;
    let held = b.permit().acquire().await?;
    let waiting = tokio::spawn(a.permits(3).acquire());
    sleep(ASLEEP).await;
    b.set_total(2).await?;
    held.release().await?;
    in_time(a.permit().acquire()).await?.release().await?;
    waiting.abort();
    counts(&a, 2, 0).await
}

async fn a_call_that_sets_the_total_does_not_wait_behind_one_that_cannot(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, _) = stage.clients().await?;
    let semaphore = a.semaphore(stage.name("exports"));
    let waiting = tokio::spawn(semaphore.permit().acquire());
    sleep(ASLEEP).await;
    let held = in_time(semaphore.clone().with_permits(2).permit().acquire()).await?;
    let waited = in_time(waiting).await.expect("no panic")?;
    counts(&semaphore, 0, 2).await?;
    held.release().await?;
    waited.release().await
}

/// The tasks have separate queues in the client; in the store's queue the first one is served.
async fn a_request_for_several_permits_is_not_starved_by_its_own_client(
    stage: &Stage<Semaphore>,
) -> CaseResult {
    let (a, _) = two(stage, 3).await?;
    let held = a.permits(3).acquire().await?;
    let big = tokio::spawn(a.permits(3).acquire());
    sleep(ASLEEP).await;
    let small: Vec<_> = (0..8)
        .map(|_| {
            let a = a.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    a.permit().acquire().await?.release().await?;
                }
                Ok::<_, distlock::Error>(())
            })
        })
        .collect();
    sleep(ASLEEP).await;
    held.release().await?;
    let big = in_time(big).await.expect("no panic")?;
    big.release().await?;
    for task in small {
        in_time(task).await.expect("no panic")?;
    }
    counts(&a, 3, 0).await
}
