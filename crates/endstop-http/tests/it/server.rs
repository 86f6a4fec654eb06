//! Servers for the tests: one that answers requests with fixed bytes, with or without TLS.

use bytes::Bytes;
use endstop_http::{Decoded, Full};
use http::{Request, Response};
use hyper::body::Incoming;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

pub(crate) const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";

/// The connections and requests that a server received.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    pub(crate) requests: Vec<String>,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Mutex<Seen>>,
    /// Receives the number of each connection that the client has closed.
    pub(crate) closed: mpsc::UnboundedReceiver<usize>,
}

/// Accepts connections and hands each, with its number, to a task.
#[expect(clippy::disallowed_methods, reason = "no run has these tasks")]
pub(crate) async fn listen<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(usize, TcpStream) -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            number += 1;
            tokio::spawn(serve(number, stream));
        }
    });
    port
}

impl Server {
    /// Starts a server that answers each request with these bytes.
    pub(crate) async fn start(answer: impl Into<Vec<u8>>) -> Server {
        let answer = answer.into();
        Server::answering(move |_| answer.clone()).await
    }

    /// Starts a server with an answer to each request. Empty bytes hang up.
    pub(crate) async fn answering(
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Server {
        Server::over(None, answer).await
    }

    /// Starts a server behind TLS.
    pub(crate) async fn secured(tls: TlsAcceptor) -> Server {
        Server::over(Some(tls), |_| FINE.into()).await
    }

    async fn over(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Server {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (tell, closed) = mpsc::unbounded_channel();
        let (answer, shared) = (Arc::new(answer), Arc::clone(&seen));
        let port = listen(move |number, stream| {
            let (answer, seen) = (Arc::clone(&answer), Arc::clone(&shared));
            let (tls, tell) = (tls.clone(), tell.clone());
            async move {
                seen.lock().unwrap().connections += 1;
                match tls {
                    None => talk(stream, &seen, &*answer).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            talk(stream, &seen, &*answer).await;
                        }
                    }
                }
                let _ = tell.send(number);
            }
        })
        .await;
        Server { port, seen, closed }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().requests.clone()
    }
}

/// Answers requests until the client closes the connection.
async fn talk(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: &Mutex<Seen>,
    answer: &(impl Fn(&str) -> Vec<u8> + ?Sized),
) {
    loop {
        let mut request = Vec::new();
        while !is_whole(&request) {
            match stream.read_u8().await {
                Ok(byte) => request.push(byte),
                Err(_) => return,
            }
        }
        let request = String::from_utf8(request).unwrap();
        seen.lock().unwrap().requests.push(request.clone());
        let answer = answer(&request);
        if answer.is_empty() || stream.write_all(&answer).await.is_err() {
            return;
        }
        let _ = stream.flush().await;
    }
}

/// `true` if the bytes are a request with its body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.contains("chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

/// Returns TLS for these names with these protocols, and the certificate of its own authority.
pub(crate) fn tls(names: &[&str], protocols: &[&str]) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), authority.as_ref().pem())
}

pub(crate) fn get(url: &str) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).unwrap()
}

/// Reads a response to its end.
pub(crate) async fn text(response: Response<Incoming>) -> String {
    let mut body = Decoded::new(response).into_body();
    let mut all = Vec::new();
    while let Some(chunk) = poll_fn(|cx| body.poll_data(cx)).await {
        all.extend_from_slice(&chunk.unwrap());
    }
    String::from_utf8(all).unwrap()
}
