//! What carries spans to the collector: the HTTP client that is there anyway, and what is done to
//! the spans before they go.
//!
//! ```ignore
//! let client = Client::new(&endpoint, timeout, Arc::clone(&lost))?;
//! let exporter = Exporter::new(otlp, secrets, lost); // keys cut out, finish reasons a list
//! ```
//!
//! Both work on the exporter's own thread, never on that of the run.

use endstop::wire::endpoint::is_loopback;
use endstop::wire::redact::KnownKeys;
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanData;
use reqwest::Url;
use std::borrow::Cow;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// More than this of an answer is not read: nothing is done with it.
const MOST_OF_AN_ANSWER: usize = 64 << 10;

/// What did not arrive.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    spans: usize,
    /// The last thing that went wrong, in words of ours.
    why: String,
}

impl Lost {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn went_wrong(&self, why: String) {
        self.state().why = why;
    }

    /// How many spans, and why; `None`: none that is known of.
    pub(super) fn told(&self) -> Option<(String, String)> {
        let state = self.state();
        let spans = match state.spans {
            0 => return None,
            1 => "1 span".to_owned(),
            more => format!("{more} spans"),
        };
        Some((spans, state.why.clone()))
    }
}

/// Cuts keys out of spans, and makes of an attribute what the convention wants it to be.
#[derive(Debug)]
pub(super) struct Exporter {
    to: SpanExporter,
    secrets: KnownKeys,
    lost: Arc<Lost>,
}

impl Exporter {
    pub(super) fn new(to: SpanExporter, secrets: KnownKeys, lost: Arc<Lost>) -> Exporter {
        Exporter { to, secrets, lost }
    }

    fn dress(&self, span: &mut SpanData) {
        if let Cow::Owned(name) = self.secrets.out_of_text(&span.name) {
            span.name = name.into();
        }
        for KeyValue { key, value, .. } in &mut span.attributes {
            let Value::String(text) = value else { continue };
            // What a provider calls a model or an ending is the provider's to say.
            let text: StringValue = match self.secrets.out_of_text(text.as_str()) {
                Cow::Owned(clean) => clean.into(),
                Cow::Borrowed(_) => text.clone(),
            };
            // A field of a span is one value; this attribute is a list, of one for each generation.
            *value = match key.as_str() {
                "gen_ai.response.finish_reasons" => Value::Array(Array::String(vec![text])),
                _ => Value::String(text),
            };
        }
    }
}

impl opentelemetry_sdk::trace::SpanExporter for Exporter {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        for span in &mut batch {
            self.dress(span);
        }
        let sent = self.to.export(batch).await;
        if sent.is_err() {
            self.lost.state().spans += spans;
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.to.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.to.set_resource(resource);
    }
}

/// An HTTP client with a runtime of its own: the exporter's thread has none.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    runtime: Runtime,
    lost: Arc<Lost>,
}

impl Client {
    pub(super) fn new(
        endpoint: &Url,
        timeout: Duration,
        lost: Arc<Lost>,
    ) -> Result<Client, String> {
        let mut builder = reqwest::Client::builder()
            .timeout(timeout)
            .user_agent(concat!("endstop/", env!("CARGO_PKG_VERSION")))
            // The headers may hold a key: they go nowhere but where they were meant to.
            .redirect(reqwest::redirect::Policy::none());
        if endpoint.scheme() == "http" {
            builder = builder.tls_certs_only([]).http1_only();
        }
        if endpoint.host_str().is_some_and(is_loopback) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| format!("the HTTP client could not be made: {error}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("the runtime did not start: {error}"))?;
        Ok(Client { http, runtime, lost })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.block_on(async {
            let mut response = self.http.execute(request.try_into()?).await?;
            let status = response.status();
            let mut body = Vec::new();
            while let Some(more) = response.chunk().await? {
                if body.len() + more.len() > MOST_OF_AN_ANSWER {
                    break;
                }
                body.extend_from_slice(&more);
            }
            let mut whole = Response::new(Bytes::from(body));
            *whole.status_mut() = status;
            // A throttled collector says when to come back.
            *whole.headers_mut() = std::mem::take(response.headers_mut());
            Ok::<_, reqwest::Error>(whole)
        });
        let why = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status().as_u16())),
            // An error of the client would quote the address.
            Err(error) if error.is_timeout() => Some("it did not answer".to_owned()),
            Err(error) if error.is_connect() => Some("it could not be connected to".to_owned()),
            Err(_) => Some("the connection broke".to_owned()),
        };
        if let Some(why) = why {
            self.lost.went_wrong(why);
        }
        sent.map_err(|error| error.without_url().into())
    }
}

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(ready(self.send(request)))
    }
}
