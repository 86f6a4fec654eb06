//! Work on threads that may block.

use crate::backend::BackendError;

/// Does work that may wait for a disk on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BackendError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| BackendError::internal())
}
