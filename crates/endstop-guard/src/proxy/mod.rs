//! A transparent reverse proxy, whose requests are decided by a [`Gatekeeper`] and whose responses
//! are read by a [`ResponseObserver`].
//!
//! ```
//! use endstop_guard::proxy::{ForwardAll, Proxy, ProxyOptions, Upstream, UpstreamMap};
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let upstreams = UpstreamMap::new(Upstream::parse("https://api.anthropic.com")?);
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let proxy = Proxy::new(ForwardAll::new(upstreams), ProxyOptions::default());
//! // Serves the listener until the second argument is ready.
//! proxy.run(listener, std::future::ready(())).await;
//! # Ok(()) }
//! ```
//!
//! - Requests go to the upstream unchanged except for the hop-by-hop headers and `Host`; names of
//!   headers keep their case. The proxy adds no header.
//! - Bodies are streamed in both directions. Only a request whose [`BodyMode`] is `Read` is read first,
//!   because it must be decided before it is sent.
//! - Each chunk of a response passes when it arrives; the observer reads a decompressed copy of it before.
//! - Responses pass as they are: errors, redirects, responses that are cut. A response that was cut
//!   never ends cleanly for the client.
//! - [`Access`] decides which clients are served. Requests of web pages are refused in any case.
//! - Requests that a reverse proxy does not serve are refused: `CONNECT`, the URL of another host,
//!   upgrades to another protocol, paths with `..`.
//!
//! Read first: [`gatekeeper`](Gatekeeper) and [`observer`](ResponseObserver) are the two traits,
//! `forward.rs` is one exchange, `passing.rs` the body of its response, `server.rs` the connections,
//! and `upstream.rs` the client side.

mod abort;
mod access;
mod body;
mod connection;
mod decode;
mod forward;
mod gatekeeper;
mod head;
mod headers;
mod observed;
mod observer;
mod passing;
mod refusal;
mod response_body;
mod server;
mod upstream;
mod upstream_map;

pub use crate::answer::Answer;
pub use abort::{AbortToken, Stop};
pub use access::{Access, SecretPath};
pub use decode::Unreadable;
pub use gatekeeper::{
    BodyMode, Disposition, Forward, ForwardAll, Gatekeeper, Notice, RequestBody, Routed,
};
pub use head::{RequestHead, ResponseHead, redacted_url};
pub use observer::{End, Flow, ReadOn, ResponseObserver};
pub use server::{Proxy, ProxyOptions};
pub use upstream_map::{Upstream, UpstreamError, UpstreamMap};
