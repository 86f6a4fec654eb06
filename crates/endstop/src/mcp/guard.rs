//! Wraps a transport: drops messages that flood the client, and reports the end of the connection.
//!
//! ```text
//! let guarded = Guard::new(transport, gone); // cancels `gone` at the end
//! ```
//!
//! The client answers each request of a server and starts a task for each notification. A server
//! that sends them faster than it reads the answers would exhaust the memory.

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

/// Number of a server's requests whose answers may be waiting to be sent. Further requests get no
/// answer.
const OPEN_REQUESTS: usize = 64;

/// A transport with these protections.
pub(super) struct Guard<T> {
    inner: T,
    open: Arc<AtomicUsize>,
    gone: CancellationToken,
}

impl<T> Guard<T> {
    pub(super) fn new(inner: T, gone: CancellationToken) -> Guard<T> {
        Guard { inner, open: Arc::default(), gone }
    }
}

/// An answer that is being sent.
struct Answering(Arc<AtomicUsize>);

impl Drop for Answering {
    fn drop(&mut self) {
        // The count is not exact, because a server that used one id for two requests is answered
        // once. It must not wrap below zero.
        let less = |open: usize| open.checked_sub(1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guard<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answers = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        // The guard is held by the future, so the count also drops if sending fails or is aborted.
        let answering = answers.then(|| Answering(Arc::clone(&self.open)));
        let sending = self.inner.send(message);
        async move {
            let sent = sending.await;
            drop(answering);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            // Dropped messages may arrive without a pause, and this loop would then never yield to
            // other tasks.
            tokio::task::coop::consume_budget().await;
            match self.inner.receive().await {
                // No notification has an effect: progress does not extend a time limit, and logs
                // are not shown.
                Some(JsonRpcMessage::Notification(_)) => {}
                Some(message @ JsonRpcMessage::Request(_)) => {
                    if self.open.load(Ordering::Relaxed) < OPEN_REQUESTS {
                        self.open.fetch_add(1, Ordering::Relaxed);
                        return Some(message);
                    }
                }
                Some(message) => return Some(message),
                None => {
                    self.gone.cancel();
                    return None;
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.inner.close()
    }
}
