//! Messages over the standard streams of a process, one a line.
//!
//! ```text
//! let lines = Lines::new(talk.input, talk.output, said); // a transport of the client
//! lines.closing().cancel(); // ends writing, also where the process does not read
//! ```
//!
//! What is no message goes where complaints go: servers print what they should not. A message that is
//! too large is not held; the call that it answers is told so.

use super::LARGEST_MESSAGE;
use super::stdio::Said;
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

/// A line's room is given back where it was larger.
const USUAL_LINE: usize = 64 * 1024;

pub(super) struct Lines {
    input: Arc<Mutex<Option<Input>>>,
    closing: CancellationToken,
    output: BufReader<Output>,
    /// The line under way.
    line: Vec<u8>,
    /// The line under way is too large: how large it is by now, and whose answer.
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

    /// Where this is cancelled nothing more is written.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// The next line, or who is answered by one that is too large; `Ok(None)`: by that, nobody.
    ///
    /// It may be dropped and called again: what was read of a line is kept.
    async fn next(&mut self) -> Option<Result<(), Option<Answer>>> {
        loop {
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

    /// What the line says. `None`: nothing that is for the client.
    fn read(&self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        let error = match serde_json::from_slice(line) {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        // An answer that cannot be read is one: its call need not wait for another.
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

/// A request, and why there is no answer to it.
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
            // Lines that are no messages may come faster than they are read.
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
        // The end of what the process reads.
        *self.input.lock().await = None;
        Ok(())
    }
}
