//! The futures that a backend returns.

use super::error::BackendError;
use std::future::Future;
use std::pin::Pin;

/// The future of a result.
pub type Answering<'a, T> = Waiting<'a, Result<T, BackendError>>;

/// A future that can be sent to another thread.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
