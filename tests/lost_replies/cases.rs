//! Many cases, some at a time.

use std::rc::Rc;

use tokio::sync::Semaphore;
use tokio::task::spawn_local;

/// Plays each, so many `at_once`, and says which did not end well.
pub(crate) async fn play_all<C: Copy + std::fmt::Debug + 'static>(
    at_once: usize,
    cases: Vec<C>,
    play: impl AsyncFn(usize, C) + 'static,
) {
    let turns = Rc::new(Semaphore::new(at_once));
    let play = Rc::new(play);
    let cases = cases.into_iter().enumerate().map(|(number, case)| {
        let (play, turns) = (play.clone(), turns.clone());
        let playing = spawn_local(async move {
            let _turn = turns.acquire().await;
            play(number, case).await;
        });
        (case, playing)
    });
    let mut failed = Vec::new();
    for (case, playing) in cases.collect::<Vec<_>>() {
        if let Err(error) = playing.await {
            failed.push((case, error.to_string()));
        }
    }
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
}
