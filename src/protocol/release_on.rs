//! The events, apart from the end of the lease, that end a hold.

/// The event, apart from the end of their leases, that ends the holds of a client, where the store
/// can see it.
///
/// The embedded store (`sqlite:`) sees at once that a process has ended, also by `kill -9`, and
/// releases its locks. A Redis server cannot see that, and the store in memory ends with its
/// process: for these stores the setting changes nothing.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::ReleaseOn;
///
/// let client = distlock::Client::builder("memory:").release_on(ReleaseOn::Children).connect().await?;
/// # client.close().await }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ReleaseOn {
    /// A hold ends with this process.
    #[default]
    Process,
    /// A hold ends with this process and the last of the children it has started since, and theirs:
    /// each inherits an open file from it. Kept-alive leases do not expire meanwhile: the process
    /// that does the work is still running.
    Children,
    /// No event ends a hold: it stays until its lease ends, even if all its processes are gone.
    Lease,
}
