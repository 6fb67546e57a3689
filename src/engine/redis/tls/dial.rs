//! TCP connection to the first of a host's addresses that accepts one.

use std::io;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

pub(super) async fn dial(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    // All addresses are tried at once, and all attempts end with this call: an address that leads nowhere must not take
    // the others' time.
    let mut attempts: JoinSet<io::Result<TcpStream>> = lookup_host((host, port))
        .await?
        .map(TcpStream::connect)
        .collect();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "no address found for this host");
    while let Some(attempt) = attempts.join_next().await {
        match attempt.map_err(io::Error::other).and_then(|made| made) {
            Ok(socket) => {
                set_up(&socket, settings)?;
                return Ok(socket);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn set_up(socket: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    socket.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(socket);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}
