//! The contestants that are part of this program. rslock is a program of its own beside those of other languages, so that its dependencies
//! do not become ours.

mod distlock;
mod embedded;
mod family;
mod raw;
mod raw_blocking;

use tokio::runtime::Builder;

use self::family::Family;
use crate::failure::{Failure, Outcome};
use crate::serve::serve;

/// Runs the contestant of this name until the input ends.
pub(crate) fn run(name: &str) -> Outcome {
    let many = || Builder::new_multi_thread().enable_all().build();
    let one_worker = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build()
    };
    let one = || Builder::new_current_thread().enable_all().build();
    match name {
        "distlock" => serve::<distlock::Distlock>(&many()?),
        "distlock-one" => serve::<distlock::Distlock>(&one_worker()?),
        "raw" => serve::<raw::Raw>(&many()?),
        "raw-one" => serve::<raw::Raw>(&one_worker()?),
        "raw-yield" => serve::<raw::Yielding>(&many()?),
        "raw-blocking" => raw_blocking::serve(),
        // The embedded contestants are compared on one core.
        "memory" | "sqlite" => serve::<distlock::Distlock>(&one()?),
        "tokio-mutex" => serve::<embedded::TokioMutex>(&one()?),
        "flock" => embedded::serve_flock(),
        "fair" => serve::<Family<family::Fair>>(&many()?),
        "fenced" => serve::<Family<family::Fenced>>(&many()?),
        "read" => serve::<Family<family::Read>>(&many()?),
        "write" => serve::<Family<family::Write>>(&many()?),
        "simple" => serve::<Family<family::Simple>>(&many()?),
        "permit" => serve::<Family<family::Permit>>(&many()?),
        "counted" => serve::<Family<family::Counted>>(&many()?),
        "latch" => serve::<Family<family::Opened>>(&many()?),
        "multi" => serve::<Family<family::Multi>>(&many()?),
        other => Err(Failure::new(format!("there is no contestant `{other}`"))),
    }
}
