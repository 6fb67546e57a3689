//! With what a hold ends, beside its lease.

/// With what the holds of a client end beside their leases, where the store can tell.
///
/// The embedded store (`sqlite:`) sees at once that a process has gone, also by `kill -9`, and frees what it held. A
/// Redis server sees nothing of the kind, and the store in memory goes with its process: there, this
/// changes nothing.
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
    /// With this process.
    #[default]
    Process,
    /// With this process and the last of the children it has started since, and theirs: each has an open file
    /// from it. Kept-alive leases do not run out meanwhile: whoever does the work is still there.
    Children,
    /// With nothing: it is there until its lease ends, whoever has gone.
    Lease,
}
