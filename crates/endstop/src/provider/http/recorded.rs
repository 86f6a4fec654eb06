//! Recordings of an HTTP provider: what one writes, and one that answers from it.
//!
//! ```text
//! let provider = HttpProvider::builder(model).build()?.record(&recorder)?;
//! let again = HttpProvider::replay(&RecordingReplay::new(recording))?;
//! ```

use super::super::network::web_address;
use super::super::record::Recorder;
use super::super::recording::Header;
use super::super::replay::RecordingReplay;
use super::super::transport::{Address, Transport};
use super::error::{HttpError, RecordedError};
use super::prepared::Prepared;
use super::provider::HttpProvider;
use endstop_wire::catalog::models::ModelLimits;
use endstop_wire::catalog::prices::catalogue_price;
use endstop_wire::redact::address;
use http::header::HeaderMap;
use std::sync::{Arc, OnceLock};

/// Leaves the 53 bits of a seed that every reader of JSON keeps.
const SEED_SHIFT: u32 = 11;

impl HttpProvider {
    /// Records every exchange with this recorder.
    ///
    /// # Errors
    /// The recorder already records another provider.
    pub fn record(mut self, recorder: &Recorder) -> Result<HttpProvider, HttpError> {
        let prepared = &self.prepared;
        let url = address(prepared.whole.url.as_str());
        let stream_url = address(prepared.stream.url.as_str());
        let header = Header {
            provider: prepared.name.to_owned(),
            model: prepared.model.clone(),
            api: prepared.dialect.name.to_owned(),
            stream_url: Some(stream_url).filter(|stream| *stream != url),
            url,
            price: prepared.price,
            context_window: prepared.limits.context_window,
            max_output: prepared.limits.max_output,
            seed: Some(crate::clock::seed(0) >> SEED_SHIFT),
            task: None,
        };
        self.seed = header.seed;
        if !recorder.attach(header, prepared.secrets()) {
            return Err(HttpError::RecorderInUse);
        }
        recorder.hide(&prepared.proxy_keys());
        self.recorder = Some(recorder.clone());
        Ok(self)
    }

    /// Creates a provider that answers from a recording. The model, the dialect and the price are
    /// those of the recording. It needs neither a network nor a key.
    ///
    /// # Errors
    /// The recording's header names an unknown provider or format.
    pub fn replay(replay: &RecordingReplay) -> Result<HttpProvider, HttpError> {
        let recording = replay.recording();
        let header = &recording.header;
        let provider = endstop_wire::catalog::providers::provider(&header.provider)
            .ok_or_else(|| RecordedError::Provider { name: header.provider.clone() })?;
        let place = |field: &'static str, url: &str| {
            web_address(url)
                .map(Address::new)
                .map_err(|source| RecordedError::Address { field, source })
        };
        let whole = place("url", &header.url)?;
        let stream = match &header.stream_url {
            Some(stream) => place("stream_url", stream)?,
            None => Arc::clone(&whole),
        };
        let prepared = Prepared {
            whole,
            stream,
            headers: Arc::new(HeaderMap::new()),
            sent: Arc::new(HeaderMap::new()),
            signer: None,
            keys: None,
            proxy: None,
            known: OnceLock::new(),
            dialect: recording.dialect().map_err(RecordedError::Api)?,
            name: provider.id,
            model: header.model.clone(),
            price: header.price,
            catalogue: catalogue_price(provider.id, &header.model, header.price),
            limits: ModelLimits {
                context_window: header.context_window,
                max_output: header.max_output,
            },
            allow_http: true,
        };
        let transport = Transport::Recording(replay.clone());
        let (prepared, seed) = (Arc::new(prepared), header.seed);
        Ok(HttpProvider { prepared, transport, recorder: None, seed })
    }
}
