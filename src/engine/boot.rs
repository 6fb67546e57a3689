//! The clock that counts from the start of this machine, and which start that was.

use crate::protocol::Moment;

/// The time since the machine started, counted on while it sleeps, the same for all its processes.
#[cfg(target_os = "linux")]
pub fn time() -> Moment {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Moment::at(Duration::new(seconds, nanos))
}

/// Which start of which machine this is, and by which of its clocks.
///
/// # Errors
///
/// If the kernel does not say.
#[cfg(all(target_os = "linux", feature = "sqlite"))]
pub fn id() -> std::io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    // Containers may have a clock of their own.
    let clock = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Ok(format!("{} {}", id.trim(), clock.display()))
}
