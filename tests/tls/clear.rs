//! The bytes that an eavesdropper on the network can read.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use distlock::Client;

use crate::support::RedisServer;
use crate::tls::certificates::Authority;
use crate::tls::stage::{Stage, connect};

/// Starts a server that sends this reply to anything, and records what it receives.
fn recorder(answer: &'static [u8]) -> (u16, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut heard = vec![0; 16 * 1024];
        let first = socket.read(&mut heard).unwrap();
        heard.truncate(first);
        let _ = socket.write_all(answer);
        // The rest of the input.
        let _ = socket.read_to_end(&mut heard);
        heard
    });
    (port, heard)
}

/// Starts a proxy before a server, which records the bytes of both directions.
fn eavesdropper(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let notes = heard.clone();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(server).unwrap();
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            for (from, to) in [(client, server), back] {
                let notes = notes.clone();
                thread::spawn(move || pass_on(from, to, &notes));
            }
        }
    });
    (place, heard)
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, notes: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(said @ 1..) = from.read(&mut buffer) {
        notes.lock().unwrap().extend(&buffer[..said]);
        if to.write_all(&buffer[..said]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[tokio::test]
async fn nothing_is_sent_unencrypted() {
    // A server that refuses TLS, one that requires the password, and one that sends nothing.
    let answers: [&[u8]; 3] = [
        b"-ERR TLS is not spoken here\r\n",
        b"-NOAUTH HELLO must be called with the client already authenticated\r\n",
        b"",
    ];
    for answer in answers {
        let (port, heard) = recorder(answer);
        let authority = Authority::new("the authority");
        let connected = Client::builder(&format!("rediss://app:hush@localhost:{port}/"))
            .tls_ca(&authority.pem)
            .connect_timeout(Duration::from_secs(3))
            .connect()
            .await;
        connected.expect_err("nobody is there");
        let heard = heard.join().unwrap();
        assert_eq!(heard[..3], [0x16, 3, 1], "a TLS handshake");
        for secret in ["hush", "app", "HELLO", "AUTH"] {
            assert!(!has(&heard, secret), "{secret} was said");
        }
    }
}

/// Returns the bytes that an eavesdropper records while a lock is acquired and released.
async fn overheard(server: &RedisServer, url: impl Fn(SocketAddr) -> String) -> Vec<u8> {
    let user = ["ACL", "SETUSER", "app", "on", ">hush", "~*", "&*", "+@all"];
    server.cmd(&user);
    let (place, heard) = eavesdropper(server.addr());
    let client = connect(&url(place)).await;
    let guard = client.lock("a-name").acquire().await.unwrap();
    let listening = tokio::spawn({
        let lock = client.lock("a-name");
        async move { lock.acquire().await }
    });
    guard.release().await.unwrap();
    listening.await.unwrap().unwrap().release().await.unwrap();
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 1000, "{}", heard.len());
    heard.clone()
}

#[tokio::test]
async fn neither_names_nor_passwords_are_visible_on_the_wire() {
    let stage = Stage::new();
    let heard = overheard(&stage.server, |place| {
        format!("rediss://app:hush@{place}/?ca={}", stage.ca.display())
    });
    let heard = heard.await;
    for secret in ["hush", "a-name", "HELLO", "EVALSHA", "redisson"] {
        assert!(!has(&heard, secret), "{secret} was seen");
    }
    // Without TLS an eavesdropper would have seen them.
    let open = RedisServer::start();
    let heard = overheard(&open, |place| format!("redis://app:hush@{place}/")).await;
    for secret in ["hush", "a-name", "HELLO"] {
        assert!(has(&heard, secret), "{secret} was not seen");
    }
}

fn has(bytes: &[u8], word: &str) -> bool {
    let mut windows = bytes.windows(word.len());
    windows.any(|window| window == word.as_bytes())
}
