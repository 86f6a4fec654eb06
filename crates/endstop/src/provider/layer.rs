//! Layers: wrap a provider to observe or change its calls, for example to log, cache or retry them.
//!
//! ```
//! use endstop::provider::layer::{ProviderExt as _, ProviderLayer};
//! use endstop::provider::{CallSpec, CallStream, ModelSession, Provider, SessionSpec};
//! use endstop::testkit::{ScriptedModel, Turn};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! /// Counts the calls.
//! #[derive(Clone, Default)]
//! struct Count(Arc<AtomicU64>);
//!
//! impl ProviderLayer for Count {
//!     fn open(&self, inner: &Arc<dyn Provider>, spec: SessionSpec) -> Box<dyn ModelSession> {
//!         Box::new(Counted { inner: inner.open(spec), calls: self.clone() })
//!     }
//! }
//!
//! struct Counted { inner: Box<dyn ModelSession>, calls: Count }
//!
//! impl ModelSession for Counted {
//!     fn call(&mut self, call: CallSpec<'_>) -> CallStream {
//!         self.calls.0.fetch_add(1, Ordering::Relaxed);
//!         self.inner.call(call)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let calls = Count::default();
//! let model = ScriptedModel::new([Turn::text("Paris.")]).layer(calls.clone());
//! endstop::Agent::builder(model).build()?.run("The capital of France?")?.outcome().await;
//! assert_eq!(calls.0.load(Ordering::Relaxed), 1);
//! # Ok(()) }
//! ```

use super::{ModelSession, ParamError, Provider, Response, SessionSpec};
use endstop_core::{Attachment, ImageTokens, Price, TerminationSignal};
use endstop_wire::media::UnsupportedMedia;
use endstop_wire::redact::KnownKeys;
use std::fmt;
use std::sync::Arc;

/// A change to a provider. Each method receives the provider below, and by default forwards to it,
/// so that a layer implements only the methods that it changes; most implement
/// [`open`](Self::open).
///
/// The rules of [`Provider`] apply. In addition:
///
/// - The stream of a call owns the stream below, so that dropping it aborts that call too.
/// - A layer that answers from another provider also answers the questions about a response
///   ([`detect_termination`](Self::detect_termination), [`is_terminal`](Self::is_terminal)) from
///   that provider, and sets [`Response::cost`], because the run computes with one price.
pub trait ProviderLayer: Send + Sync {
    /// Opens a session for a run.
    fn open(&self, inner: &Arc<dyn Provider>, spec: SessionSpec) -> Box<dyn ModelSession> {
        inner.open(spec)
    }

    /// Changes [`Provider::check_params`].
    ///
    /// # Errors
    /// Names a parameter that is not taken.
    fn check_params(
        &self,
        inner: &Arc<dyn Provider>,
        spec: &SessionSpec,
    ) -> Result<(), ParamError> {
        inner.check_params(spec)
    }

    /// Changes [`Provider::is_terminal`].
    fn is_terminal(&self, inner: &Arc<dyn Provider>, response: &Response) -> bool {
        inner.is_terminal(response)
    }

    /// Changes [`Provider::detect_termination`].
    fn detect_termination(
        &self,
        inner: &Arc<dyn Provider>,
        response: &Response,
    ) -> Option<TerminationSignal> {
        inner.detect_termination(response)
    }

    /// Changes [`Provider::context_window`].
    fn context_window(&self, inner: &Arc<dyn Provider>) -> Option<u64> {
        inner.context_window()
    }

    /// Changes [`Provider::max_output`].
    fn max_output(&self, inner: &Arc<dyn Provider>) -> Option<u64> {
        inner.max_output()
    }

    /// Changes [`Provider::image_tokens`].
    fn image_tokens(&self, inner: &Arc<dyn Provider>) -> ImageTokens {
        inner.image_tokens()
    }

    /// Changes [`Provider::check_attachment`].
    ///
    /// # Errors
    /// The reason why the attachment is not taken.
    fn check_attachment(
        &self,
        inner: &Arc<dyn Provider>,
        attachment: &Attachment,
    ) -> Result<(), UnsupportedMedia> {
        inner.check_attachment(attachment)
    }

    /// Changes [`Provider::known_keys`].
    fn known_keys(&self, inner: &Arc<dyn Provider>) -> KnownKeys {
        inner.known_keys()
    }

    /// Changes [`Provider::price`].
    fn price(&self, inner: &Arc<dyn Provider>) -> Option<Price> {
        inner.price()
    }
}

/// Adds layers to any provider.
pub trait ProviderExt: Provider + Sized + 'static {
    /// Returns this provider with a layer around it. The last layer added sees a call first.
    fn layer<L: ProviderLayer>(self, layer: L) -> Layered<L> {
        Layered { inner: Arc::new(self), layer }
    }
}

impl<P: Provider + 'static> ProviderExt for P {}

/// A provider with a layer around it; see [`ProviderExt::layer`].
#[derive(Clone)]
pub struct Layered<L> {
    inner: Arc<dyn Provider>,
    layer: L,
}

impl<L> fmt::Debug for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither layers nor providers need to be `Debug`.
        f.debug_struct("Layered")
            .field("provider", &self.inner.name())
            .field("model", &self.inner.model())
            .finish_non_exhaustive()
    }
}

// A method of `Provider` that these implementations forgot would silently use its default.
#[deny(clippy::missing_trait_methods)]
impl<L: ProviderLayer> Provider for Layered<L> {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn model(&self) -> &str {
        self.inner.model()
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        self.layer.open(&self.inner, spec)
    }
    fn check_params(&self, spec: &SessionSpec) -> Result<(), ParamError> {
        self.layer.check_params(&self.inner, spec)
    }
    fn is_terminal(&self, response: &Response) -> bool {
        self.layer.is_terminal(&self.inner, response)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        self.layer.detect_termination(&self.inner, response)
    }
    fn context_window(&self) -> Option<u64> {
        self.layer.context_window(&self.inner)
    }
    fn max_output(&self) -> Option<u64> {
        self.layer.max_output(&self.inner)
    }
    fn seed(&self) -> Option<u64> {
        self.inner.seed()
    }
    fn image_tokens(&self) -> ImageTokens {
        self.layer.image_tokens(&self.inner)
    }
    fn check_attachment(&self, attachment: &Attachment) -> Result<(), UnsupportedMedia> {
        self.layer.check_attachment(&self.inner, attachment)
    }
    fn wire_format(&self) -> Option<&str> {
        self.inner.wire_format()
    }
    fn known_keys(&self) -> KnownKeys {
        self.layer.known_keys(&self.inner)
    }
    fn server(&self) -> Option<(&str, u16)> {
        self.inner.server()
    }
    fn price(&self) -> Option<Price> {
        self.layer.price(&self.inner)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn model(&self) -> &str {
        (**self).model()
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        (**self).open(spec)
    }
    fn check_params(&self, spec: &SessionSpec) -> Result<(), ParamError> {
        (**self).check_params(spec)
    }
    fn is_terminal(&self, response: &Response) -> bool {
        (**self).is_terminal(response)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        (**self).detect_termination(response)
    }
    fn context_window(&self) -> Option<u64> {
        (**self).context_window()
    }
    fn max_output(&self) -> Option<u64> {
        (**self).max_output()
    }
    fn seed(&self) -> Option<u64> {
        (**self).seed()
    }
    fn image_tokens(&self) -> ImageTokens {
        (**self).image_tokens()
    }
    fn check_attachment(&self, attachment: &Attachment) -> Result<(), UnsupportedMedia> {
        (**self).check_attachment(attachment)
    }
    fn wire_format(&self) -> Option<&str> {
        (**self).wire_format()
    }
    fn known_keys(&self) -> KnownKeys {
        (**self).known_keys()
    }
    fn server(&self) -> Option<(&str, u16)> {
        (**self).server()
    }
    fn price(&self) -> Option<Price> {
        (**self).price()
    }
}
