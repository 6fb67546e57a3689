//! Several clients contend for one lock while the network, the server and the clients themselves misbehave.

use crate::judge::Summary;
use crate::run::{Sabotage, Scenario};
use crate::seeds;

/// Only where all that is random is seeded.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_repeats_every_byte() {
    let scenario = Scenario::named("fair");
    for seed in seeds() {
        assert_eq!(scenario.play(seed), scenario.play(seed), "seed {seed}");
    }
}

/// The judges are no judges if they see nothing. Some of these seeds must be found wrong, by the judge that is there for it.
#[test]
fn the_judges_see_what_they_are_there_for() {
    for (sabotage, judged) in [
        (Sabotage::Forget, "was granted Alone"),
        (Sabotage::Orphan, "was left behind"),
        (Sabotage::StayDown, "was not served again"),
    ] {
        let scenario = Scenario::named("plain");
        let seen = (1..=5).any(|seed| {
            let outcome = scenario.play_with(seed, scenario.schedule(seed), Some(sabotage));
            let mut violations = outcome.summary.violations.iter();
            violations.any(|violation| violation.contains(judged))
        });
        assert!(seen, "{sabotage:?} was not seen");
    }
}

fn play(name: &str) {
    let scenario = Scenario::named(name);
    let (mut sum, mut faults) = (Summary::default(), 0);
    for seed in seeds() {
        let outcome = scenario.play(seed);
        let violations = outcome.summary.violations;
        let replay = scenario.replay(seed);
        assert!(
            violations.is_empty(),
            "{violations:#?}; replay it with: {replay}; faults:\n{}",
            outcome.schedule
        );
        sum.grants += outcome.summary.grants;
        sum.errors += outcome.summary.errors;
        sum.losses += outcome.summary.losses;
        faults += outcome.schedule.0.len();
    }
    let Summary {
        grants,
        errors,
        losses,
        ..
    } = sum;
    eprintln!(
        "{name}: {} seeds, {grants} grants, {errors} errors, {losses} losses, {faults} faults, 0 violations",
        seeds().count()
    );
    assert!(grants > 0, "nothing was ever granted");
}

macro_rules! scenarios {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            play(stringify!($name));
        }
    )*};
}

scenarios! { plain fair simple fenced read write permits }
