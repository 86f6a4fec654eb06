//! The HTTP client of Endstop: pooled connections with proxies, private certificate authorities
//! and timeouts, over [`hyper_util`].
//!
//! ```
//! use bytes::Bytes;
//! use endstop_http::{Client, Full, Stage};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().no_proxy().build()?;
//! let request = http::Request::get("http://127.0.0.1:1/status").body(Full::<Bytes>::default())?;
//! let error = client.send(request).await.unwrap_err(); // nothing listens there
//! assert_eq!((error.stage(), error.host()), (Stage::Connect, "127.0.0.1:1"));
//! # Ok(()) }
//! ```
//!
//! Servers use [`check_source`], which keeps web pages out, and [`Connections`].
//!
//! A client speaks HTTP/1.1, and HTTP/2 if a server with TLS chooses it. It follows no redirect and
//! refuses upgrades. Responses arrive as [`hyper::body::Incoming`], undecoded; [`Decoded`] unpacks
//! those that are compressed with gzip. No error and no `Debug` output contains a credential.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod client;
mod decoded;
mod dial;
mod error;
mod exchange;
mod host;
mod no_proxy;
mod proxy;
mod server;
mod stream;
mod tls;
mod tunnel;

pub use client::{Client, ClientBuilder};
pub use decoded::{BodyError, Decoded};
pub use error::{Error, SettingsError, Stage};
pub use exchange::ResponseFuture;
pub use http_body_util::Full;
pub use no_proxy::NoProxy;
pub use server::{Connections, Names, Place, SourceError, check_source};
pub use tls::{CertificateError, Certificates};
