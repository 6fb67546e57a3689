//! Connections over the machine's own network, for a proxy between a client and a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub(crate) type Stream = TcpStream;

/// Connects to a server.
pub(crate) async fn connect(addr: SocketAddr) -> io::Result<Stream> {
    let stream = TcpStream::connect(addr).await?;
    // A small frame must not wait for another. The call fails only for a socket that has already closed.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A free port that is bound but not served yet.
pub(crate) struct Port(TcpListener);

impl Port {
    pub(crate) fn bind() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free"))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.local_addr().expect("it is bound")
    }

    /// Serves each connection, which is given its number, on a thread of this port's own.
    pub(crate) fn serve<F>(self, connection: impl Fn(u64, Stream) -> F + Send + 'static) -> Listener
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("chaos-proxy".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime can be had");
                runtime.block_on(accept(self.0, connection, stopped));
            })
            .expect("threads can be started");
        Listener {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

/// The thread that serves a port. When this is dropped, the thread and every connection end.
pub(crate) struct Listener {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.take();
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = ended
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// Accepts connections and owns their tasks, which end with this future.
async fn accept<F>(
    listener: TcpListener,
    connection: impl Fn(u64, Stream) -> F,
    mut stopped: oneshot::Receiver<()>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    listener
        .set_nonblocking(true)
        .expect("sockets can be nonblocking");
    let listener = tokio::net::TcpListener::from_std(listener).expect("this is a runtime");
    let mut connections = JoinSet::new();
    for number in 0.. {
        let accepted = tokio::select! {
            // Poll in this order: a panic is passed on even if the test ends because of it.
            biased;
            Some(ended) = connections.join_next() => {
                // A closure in a rule is the test's own code; its panic must reach the test.
                if let Err(error) = ended
                    && let Ok(panic) = error.try_into_panic()
                {
                    resume_unwind(panic);
                }
                continue;
            }
            _ = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((client, _)) = accepted else {
            // The likely cause is a lack of file descriptors: an attempt without a pause would only spin.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // The reasons are those of `connect`.
        let _ = client.set_nodelay(true);
        connections.spawn(connection(number, client));
    }
}
