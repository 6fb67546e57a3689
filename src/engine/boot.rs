//! The clock that counts from the machine's start (boot), and the identity of that boot.

#[cfg(all(target_os = "linux", feature = "sqlite"))]
use std::{fmt, path::PathBuf, sync::Arc};

use crate::protocol::Moment;

/// Returns the time since the machine started. The clock goes on while the machine sleeps, and is
/// the same for all its processes.
#[cfg(target_os = "linux")]
pub fn time() -> Moment {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Moment::at(Duration::new(seconds, nanos))
}

/// The clock of the leases in a file: [`time`], unless a test sets another.
#[cfg(all(target_os = "linux", feature = "sqlite"))]
#[derive(Clone)]
pub struct BootClock(Arc<dyn Fn() -> Moment + Send + Sync>);

#[cfg(all(target_os = "linux", feature = "sqlite"))]
impl BootClock {
    /// Creates a clock that shows what `now` returns.
    pub fn new(now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time.
    pub fn now(&self) -> Moment {
        (self.0)()
    }
}

#[cfg(all(target_os = "linux", feature = "sqlite"))]
impl Default for BootClock {
    fn default() -> Self {
        Self::new(time)
    }
}

#[cfg(all(target_os = "linux", feature = "sqlite"))]
impl fmt::Debug for BootClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BootClock").field(&self.now()).finish()
    }
}

/// Identifies the boot that a moment belongs to, and the clock that it was read from.
#[cfg(all(target_os = "linux", feature = "sqlite"))]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Boot {
    /// The kernel's id of this boot.
    pub id: String,
    /// How far [`time`] is ahead of the machine's own clock: a container may have a time namespace with an offset. Two
    /// processes of one boot can compare their moments exactly if this is equal.
    pub clock: String,
}

#[cfg(all(target_os = "linux", feature = "sqlite"))]
impl Boot {
    /// Returns the boot that this process runs in.
    ///
    /// # Errors
    ///
    /// If the kernel does not report it, or reports it for the children's clock alone.
    pub fn current() -> std::io::Result<Self> {
        let namespace = |name| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        check_time_namespace(namespace("time"), namespace("time_for_children"))?;
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let offsets = match std::fs::read_to_string("/proc/self/timens_offsets") {
            Ok(offsets) => offsets,
            // A kernel without time namespaces has one clock.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            id: id.trim().to_owned(),
            clock: boottime_offset(&offsets),
        })
    }
}

/// Refuses a process whose children get another clock: the kernel lists the offsets of the
/// children's time namespace, but nowhere those of the process itself. A kernel without time
/// namespaces has neither.
#[cfg(all(target_os = "linux", feature = "sqlite"))]
fn check_time_namespace(own: Option<PathBuf>, children: Option<PathBuf>) -> std::io::Result<()> {
    if own == children {
        return Ok(());
    }
    let why = "the children of this process have another time namespace, so the clock offset of this process is unknown; \
               start the program with `unshare --time --fork`";
    Err(std::io::Error::other(why))
}

/// Returns the offset of the boottime clock, one of the two that the kernel lists.
///
/// The clock is identified by its offset, not by the namespace's inode: a restarted container has a
/// new namespace with the same clock, and the inode of a namespace that has ended may be used
/// again.
#[cfg(all(target_os = "linux", feature = "sqlite"))]
fn boottime_offset(offsets: &str) -> String {
    let fields = offsets.lines().map(|line| line.split_whitespace());
    let mut offset = fields.filter_map(|mut fields| {
        let clock = fields.next()?;
        (clock == "boottime" || clock == "7").then(|| (fields.next(), fields.next()))
    });
    let (seconds, nanos) = match offset.next() {
        Some((seconds, nanos)) => (seconds.unwrap_or("0"), nanos.unwrap_or("0")),
        None => ("0", "0"),
    };
    format!("boottime {seconds} {nanos}")
}

#[cfg(all(test, target_os = "linux", feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_children_get_another_clock_is_refused() {
        let namespace = |inode: u32| Some(PathBuf::from(format!("time:[{inode}]")));
        assert!(check_time_namespace(namespace(1), namespace(1)).is_ok());
        assert!(
            check_time_namespace(None, None).is_ok(),
            "no time namespaces"
        );
        assert!(check_time_namespace(namespace(1), namespace(2)).is_err());
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_part_of_the_identity() {
        let own = "monotonic           0         0\nboottime            0         0\n";
        assert_eq!(boottime_offset(own), "boottime 0 0");
        let container = "monotonic           5         0\nboottime       100000         7\n";
        assert_eq!(boottime_offset(container), "boottime 100000 7");
        assert_eq!(boottime_offset(""), "boottime 0 0", "no time namespaces");
    }
}
