//! The lines of a connection: bounded on the way in, counted on the way out.

use futures::{Sink, Stream};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

/// Maximum length of a message from the editor, in bytes: images in a prompt are Base64.
const LONGEST: u64 = 64 << 20;

/// Messages that may wait for a slow reader before a run pauses.
const MOST_WAITING: u64 = 1024;

/// Counts the messages that the reader has not taken yet.
///
/// The queue of the connection has no bound, and a run can stream faster than an editor reads.
/// Runs therefore wait here. A run that waits drops the rest of a turn's deltas and nothing else, and
/// the end of the turn has the whole text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    written: AtomicU64,
    progress: Notify,
    /// `true` if the editor closed the pipe that this side writes to.
    is_gone: AtomicBool,
}

impl Backlog {
    /// Counts a message that is handed to the connection.
    pub(crate) fn sent(&self) {
        self.0.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until fewer messages than the maximum are waiting.
    pub(crate) async fn room(&self) {
        loop {
            let progress = self.0.progress.notified();
            // The connection also writes lines of its own, so the difference may be too small. It is
            // never too large, so a run cannot wait for a line that will not be written.
            let sent = self.0.sent.load(Ordering::Relaxed);
            if sent.saturating_sub(self.0.written.load(Ordering::Relaxed)) < MOST_WAITING {
                return;
            }
            progress.await;
        }
    }

    /// `true` if the editor no longer reads, which is a usual end of a connection.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    fn written(&self) {
        self.0.written.fetch_add(1, Ordering::Relaxed);
        self.0.progress.notify_waiters();
    }
}

/// Reads lines. A line that is too long ends the connection with an error.
pub(crate) fn incoming(
    input: impl AsyncRead + Send + 'static,
) -> impl Stream<Item = io::Result<String>> + Send + 'static {
    let reader = Box::pin(BufReader::new(input));
    futures::stream::unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        let mut line = Vec::new();
        match (&mut reader).take(LONGEST + 1).read_until(b'\n', &mut line).await {
            Err(error) => return Some((Err(error), None)),
            Ok(0) => return None,
            Ok(_) => {}
        }
        if line.len() as u64 > LONGEST {
            let problem = format!("a message is longer than {} MiB", LONGEST >> 20);
            return Some((Err(io::Error::new(io::ErrorKind::InvalidData, problem)), None));
        }
        while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            line.pop();
        }
        // JSON is UTF-8. A replaced character could change an argument, so the whole line is replaced
        // by one that is not JSON and is answered as such.
        let line = String::from_utf8(line).unwrap_or_else(|_| "not UTF-8".to_owned());
        Some((Ok(line), Some(reader)))
    })
}

/// Writes lines.
pub(crate) fn outgoing(
    output: impl AsyncWrite + Send + 'static,
    backlog: Backlog,
) -> impl Sink<String, Error = io::Error> + Send + 'static {
    futures::sink::unfold(Box::pin(output), move |mut output, mut line: String| {
        let backlog = backlog.clone();
        async move {
            line.push('\n');
            let written = match output.write_all(line.as_bytes()).await {
                Ok(()) => output.flush().await,
                failed => failed,
            };
            let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
            if written.as_ref().is_err_and(is_gone) {
                backlog.0.is_gone.store(true, Ordering::Relaxed);
            }
            backlog.written();
            written.map(|()| output)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;

    async fn lines_of(input: &'static [u8]) -> Vec<io::Result<String>> {
        Box::pin(incoming(input)).collect().await
    }

    #[tokio::test]
    async fn last_line_needs_no_newline() {
        let lines = lines_of(b"{\"a\":1}\r\n{}").await;
        let lines: Vec<String> = lines.into_iter().map(Result::unwrap).collect();
        assert_eq!(lines, ["{\"a\":1}", "{}"]);
    }

    #[tokio::test]
    async fn invalid_utf8_is_no_json() {
        let lines = lines_of(b"{\"a\":\"\xff\"}\n{}\n").await;
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].as_ref().unwrap(), "not UTF-8");
    }

    #[tokio::test]
    async fn endless_line_is_refused() {
        let endless = tokio::io::repeat(b'x');
        let mut lines = Box::pin(incoming(endless));
        let error = lines.next().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
        assert!(lines.next().await.is_none());
    }

    #[tokio::test]
    async fn slow_reader_makes_runs_wait() {
        let backlog = Backlog::default();
        for _ in 0..MOST_WAITING {
            backlog.room().await;
            backlog.sent();
        }
        let mut waiting = Box::pin(backlog.room());
        assert!(futures::poll!(&mut waiting).is_pending());
        backlog.written();
        waiting.await;
    }
}
