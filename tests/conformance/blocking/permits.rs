//! Permits of a semaphore in the blocking API.

use super::connect;
use crate::stage::{CaseResult, PATIENCE, Stage};

on_every_engine_with_scripts! { call with Plain:
    permits_are_counted_and_released,
}

fn permits_are_counted_and_released(stage: &Stage) -> CaseResult {
    let client = connect(stage)?;
    let semaphore = client.semaphore(stage.name("exports"));
    assert!(semaphore.try_set(2)?);
    let both = semaphore.permits(2).acquire()?;
    assert!(semaphore.permit().try_acquire()?.is_none());
    semaphore.set_total(3)?;
    let third = semaphore.permit().acquire_timeout(PATIENCE)?;
    let third = third.expect("there is one more");
    let id = third.permit_ids()[0];
    third.forget();
    assert!(semaphore.release(id)?);
    let count = semaphore.count()?;
    assert_eq!((count.available, count.out), (1, 2));
    both.release()?;
    assert!(semaphore.delete()?);
    assert_eq!(semaphore.clone().with_permits(1).count()?.available, 0);
    client.close()
}
