//! Exchanges messages over the standard streams of a process, one per line.
//!
//! ```text
//! let lines = Lines::new(talk.input, talk.output, said); // a transport of the client
//! lines.closing().cancel(); // ends writing, even if the process does not read
//! ```
//!
//! A line that is not a message is treated like standard error, because some servers print log
//! lines to standard output. A message that is too large is not stored; the call that it answers
//! ends with an error.

use super::log_output::Said;
use super::top_level::TopLevel;
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

type Input = Box<dyn AsyncWrite + Send + Unpin>;
type Output = Box<dyn AsyncRead + Send + Unpin>;

/// The largest message that is accepted, in bytes.
pub(super) const LARGEST_MESSAGE: usize = 4 << 20;

/// Capacity that the line buffer is shrunk to after a longer line.
const USUAL_LINE: usize = 64 * 1024;

pub(super) struct Lines {
    input: Arc<Mutex<Option<Input>>>,
    closing: CancellationToken,
    output: BufReader<Output>,
    /// The current line.
    line: Vec<u8>,
    /// Set if the current line is too large: its size so far, and the parser that finds the request
    /// it answers.
    too_large: Option<(u64, TopLevel)>,
    said: Said,
}

impl Lines {
    pub(super) fn new(input: Input, output: Output, said: Said) -> Lines {
        Lines {
            input: Arc::new(Mutex::new(Some(input))),
            closing: CancellationToken::new(),
            output: BufReader::with_capacity(64 * 1024, output),
            line: Vec::new(),
            too_large: None,
            said,
        }
    }

    /// Returns the token that stops all writing when it is cancelled.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Reads the next line into `line`. For a line that is too large, returns the error for the
    /// request that it answers, or `Err(None)` if it answers none. Returns `None` at the end of the
    /// output.
    ///
    /// The future may be dropped and the method called again, because the part of a line that was
    /// read is stored.
    async fn next(&mut self) -> Option<Result<(), Option<Answer>>> {
        loop {
            // Not `read_until`, because that would store the whole of a line that is too large.
            let bytes = self.output.fill_buf().await.ok().filter(|bytes| !bytes.is_empty())?;
            let newline = bytes.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(bytes.len(), |at| at + 1);
            let bytes = &bytes[..taken];
            if self.too_large.is_none() && self.line.len() + taken > LARGEST_MESSAGE {
                let mut read = TopLevel::default();
                read.take(&self.line);
                self.too_large = Some((self.line.len() as u64, read));
                self.line = Vec::new();
            }
            match &mut self.too_large {
                Some((size, read)) => {
                    *size += taken as u64;
                    read.take(bytes);
                }
                None => self.line.extend_from_slice(bytes),
            }
            self.output.consume(taken);
            if newline.is_none() {
                continue;
            }
            let Some((size, read)) = self.too_large.take() else { return Some(Ok(())) };
            let problem = format!(
                "the server's answer has {size} bytes, but at most {LARGEST_MESSAGE} are accepted; ask for less"
            );
            return Some(Err(read.answers().map(|id| (id, problem))));
        }
    }

    /// Parses the line. Returns `None` if it contains no message.
    fn read(&self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        let error = match serde_json::from_slice(line) {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        // An answer that cannot be parsed still ends its call, because no other answer will come.
        let mut read = TopLevel::default();
        read.take(line);
        if error.is_data()
            && let Some(id) = read.answers()
        {
            return Some(failed((id, format!("the server's answer is invalid: {error}"))));
        }
        self.said.take(&self.line);
        None
    }
}

/// A request id, and the reason for which the request has no valid answer.
type Answer = (RequestId, String);

fn failed((id, problem): Answer) -> RxJsonRpcMessage<RoleClient> {
    JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, problem, None), Some(id))
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (input, closing) = (Arc::clone(&self.input), self.closing.clone());
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let closed = || io::Error::new(io::ErrorKind::NotConnected, "the connection is closed");
            let written = async {
                // The lock keeps two messages from being interleaved, because `write_all` may write
                // in parts.
                let mut input = input.lock().await;
                let input = input.as_mut().ok_or_else(closed)?;
                input.write_all(&line).await?;
                input.flush().await
            };
            tokio::select! {
                biased;
                () = closing.cancelled() => Err(closed()),
                written = written => written,
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            // Lines that are not messages may arrive without a pause, and this loop would then
            // never yield to other tasks.
            tokio::task::coop::consume_budget().await;
            match self.next().await? {
                Ok(()) => {
                    let message = self.read();
                    self.line.clear();
                    self.line.shrink_to(USUAL_LINE);
                    if message.is_some() {
                        return message;
                    }
                }
                Err(Some(answer)) => return Some(failed(answer)),
                Err(None) => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.closing.cancel();
        // Closes the standard input of the process.
        *self.input.lock().await = None;
        Ok(())
    }
}
