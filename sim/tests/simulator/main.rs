//! Properties that only the simulated servers have, and the differential test cannot compare: virtual time, faults, replication lag,
//! elections.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the tasks of a world and waits in it"
)]

mod cluster;
mod replication;
mod sentinel;
mod server;

use distlock_sim::{Server, Value};
use tokio::io::DuplexStream;

/// Executes a request, whatever state the server is in.
fn call(server: &Server, request: &str) -> Value {
    let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    server.call(&words)
}

/// Opens a connection to the server.
fn connect(server: &Server) -> DuplexStream {
    let (near, far) = tokio::io::duplex(1 << 20);
    let server = server.clone();
    tokio::spawn(async move { server.serve(far).await });
    near
}
