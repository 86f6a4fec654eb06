//! A proxy that refuses each call, and records its host. The proxy variables of a program name it, so that most calls to
//! other hosts than loopback are seen. A program that ignores the variables is not.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The most bytes of a request that are read.
const MOST: usize = 8 << 10;

/// The most hosts that are recorded.
const MOST_HOSTS: usize = 50;

/// The recording proxy.
pub(super) struct Elsewhere {
    address: String,
    hosts: Arc<Mutex<BTreeSet<String>>>,
    /// Ends with the value.
    _accepting: JoinSet<()>,
}

impl Elsewhere {
    pub(super) async fn start() -> io::Result<Elsewhere> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = format!("http://{}", listener.local_addr()?);
        let hosts: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let seen = Arc::clone(&hosts);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut refusing = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                refusing.spawn(tokio::time::timeout(Duration::from_secs(5), async move {
                    // A client that closes early is not an error here.
                    let _ = refuse(stream, &seen).await;
                }));
                while refusing.try_join_next().is_some() {}
            }
        });
        Ok(Elsewhere { address, hosts, _accepting: accepting })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

async fn refuse(mut stream: TcpStream, seen: &Mutex<BTreeSet<String>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() < MOST {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    if let Some(host) = host(&String::from_utf8_lossy(&head)) {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MOST_HOSTS {
            seen.insert(host);
        }
    }
    stream
        .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .await
}

/// Returns the host of a request to a proxy.
fn host(head: &str) -> Option<String> {
    let target = head.split(' ').nth(1)?;
    let after = target.split_once("://").map_or(target, |(_, rest)| rest);
    let host = after.split('/').next().unwrap_or_default();
    // It comes from the program, and is printed.
    let host: String = host.chars().filter(char::is_ascii_graphic).take(100).collect();
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn hosts_of_both_kinds_of_requests_are_found() {
        assert_eq!(
            host("CONNECT api.example.com:443 HTTP/1.1\r\n").as_deref(),
            Some("api.example.com:443")
        );
        assert_eq!(host("GET http://example.com/a HTTP/1.1\r\n").as_deref(), Some("example.com"));
        assert_eq!(host("\u{1}\u{2}"), None);
    }
}
