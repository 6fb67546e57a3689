//! Planted bugs: each breaks one rule on purpose, so that a test can show that the checks of the
//! simulation detect it.
//!
//! Only a build with `--cfg distlock_planted` has them (`scripts/lib/simulation.sh`). There
//! `DISTLOCK_PLANTED` names the bug that is active in this process. In any other build `planted!`
//! is `false` and nothing else is left of them.

#[cfg(not(distlock_planted))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

#[cfg(distlock_planted)]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is($crate::planted::Planted::$bug)
    };
}

#[cfg(distlock_planted)]
mod bugs;

#[cfg(distlock_planted)]
pub use self::bugs::{Bug, active, bugs, was_reached};
#[cfg(distlock_planted)]
pub(crate) use self::bugs::{Planted, is, script};
