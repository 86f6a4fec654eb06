//! A connection to a server through a proxy that cannot read it, with `CONNECT`.

use crate::error::BoxError;
use crate::host::host_port;
use crate::proxy::Proxy;
use crate::stream::Io;
use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::pin::pin;

/// The reason why a proxy did not connect to the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    #[error("a proxy that speaks `{0}` is not supported; expected http or https")]
    Scheme(String),
    #[error("the proxy answered {0}")]
    Refused(StatusCode),
    #[error("the proxy sent data before the server was asked for any")]
    Early,
}

/// Asks the proxy at the other end of a stream for a connection to a server.
pub(crate) async fn tunnel(
    stream: Box<dyn Io>,
    proxy: &Proxy,
    server: &Uri,
    user_agent: Option<&HeaderValue>,
) -> Result<Box<dyn Io>, BoxError> {
    let to = host_port(server);
    let mut request = Request::builder().method(Method::CONNECT).uri(&to).header(HOST, &to);
    if let Some(headers) = request.headers_mut() {
        headers.extend(proxy.login.clone().map(|login| (PROXY_AUTHORIZATION, login)));
        headers.extend(user_agent.cloned().map(|name| (USER_AGENT, name)));
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut sending = pin!(sender.send_request(request));
    // A shutdown at the end would close the stream that is the tunnel.
    let mut connection = pin!(connection.without_shutdown());
    let mut parts = None;
    let response = loop {
        tokio::select! {
            response = &mut sending => break response?,
            ended = &mut connection, if parts.is_none() => parts = Some(ended?),
        }
    };
    if !response.status().is_success() {
        return Err(TunnelError::Refused(response.status()).into());
    }
    let parts = match parts {
        Some(parts) => parts,
        None => connection.await?,
    };
    // A client of TLS speaks first, so these bytes cannot be an answer of the server.
    if parts.read_buf.is_empty() {
        Ok(parts.io.into_inner())
    } else {
        Err(TunnelError::Early.into())
    }
}
