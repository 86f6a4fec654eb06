//! What lies between a server and the client: what floods is dropped here, and the end is seen.
//!
//! ```text
//! let guarded = Guard::new(transport, gone); // `gone` is cancelled where nothing comes any more
//! ```
//!
//! The client answers each request of a server, and starts a task for each notification. A server
//! that sends them faster than it reads the answers would fill the memory.

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

/// How many requests of a server may wait for their answers to be sent; those beyond get none.
const OPEN_REQUESTS: usize = 64;

/// A transport that is guarded.
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

/// One of the answers that are being sent.
struct Answering(Arc<AtomicUsize>);

impl Drop for Answering {
    fn drop(&mut self) {
        // A server that gave two requests one id is answered once.
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
            // What is dropped may come faster than it is read.
            tokio::task::coop::consume_budget().await;
            match self.inner.receive().await {
                // Nothing is done with any: not with progress, which moves no limit, not with logs.
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
