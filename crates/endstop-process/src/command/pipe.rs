//! Reading the output of a command.
//!
//! ```text
//! tokio::select! {
//!     () = reached(deadline) => { … }
//!     read = read_some(&mut pipe, &mut buffer) => capture.take(&buffer[..read]),
//! }
//! ```

use std::io;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep_until};

#[cfg(unix)]
pub(crate) fn into_stdout(pipe: io::PipeReader) -> std::process::ChildStdout {
    std::os::fd::OwnedFd::from(pipe).into()
}

#[cfg(windows)]
pub(crate) fn into_stdout(pipe: io::PipeReader) -> std::process::ChildStdout {
    std::os::windows::io::OwnedHandle::from(pipe).into()
}

/// Waits until the deadline; for ever if there is none.
pub async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Reads the available bytes. Closes the pipe at its end; after that, the future never completes,
/// so that a `select!` ignores it.
pub async fn read_some(pipe: &mut Option<ChildStdout>, buffer: &mut [u8]) -> usize {
    let Some(reader) = pipe else { return std::future::pending().await };
    match reader.read(buffer).await {
        Ok(0) | Err(_) => {
            *pipe = None;
            0
        }
        Ok(read) => read,
    }
}
