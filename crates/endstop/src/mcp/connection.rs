//! A connection to an MCP server: the handshake, tool calls, and the end.
//!
//! ```text
//! let connection = Connection::open(&server, deadline).await?;
//! let output = connection.call("read_file", arguments, &context).await;
//! connection.close().await;
//! ```

use super::error::{McpError, McpErrorKind};
use super::guard::Guard;
use super::http_client::HttpError;
use super::server::{McpServer, Place};
use super::stdio::Process;
use super::{answer, http};
use crate::tool::{ToolContext, ToolOutput};
use endstop_wire::redact::excerpt;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    ErrorData, Implementation, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ServerPeerInfo,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions,
    RequestContext, RequestHandle, RunningService, ServiceError,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time limit for notifying a server that a call was stopped.
const TELL: Duration = Duration::from_millis(250);

/// Time limit for closing a connection, apart from its process.
const CLOSE: Duration = Duration::from_secs(2);

type Running = RunningService<RoleClient, Refuser>;

pub(super) struct Connection {
    name: String,
    version: String,
    peer: Peer<RoleClient>,
    /// Cancelled when nothing more comes from the server.
    gone: CancellationToken,
    process: Option<Process>,
    /// Dropping this value ends the connection.
    running: Mutex<Option<Running>>,
}

/// Refuses all requests of a server. Only `list_roots` is written out, because the crate's default
/// would answer it with an empty list instead of an error.
struct Refuser;

impl ClientHandler for Refuser {
    #[expect(deprecated, reason = "the crate marks what the newest protocol has no more")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::ListRootsRequestMethod>())
    }

    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("endstop", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), client)
    }
}

impl Connection {
    /// Starts or contacts the server and agrees with it on a version of the protocol.
    pub(super) async fn open(
        server: &McpServer,
        deadline: Instant,
    ) -> Result<Connection, McpError> {
        let wrong = |problem| McpError::new(&server.name, McpErrorKind::Config, problem);
        let gone = CancellationToken::new();
        match &server.place {
            Place::Process { line, dir, variables } => {
                let line = line.as_ref().map_err(|problem| wrong(problem.clone()))?;
                let started = Process::start(line, dir.as_deref(), variables, gone.clone());
                let (process, lines) = started.map_err(|error| {
                    let problem = format!("it could not be started: {error}");
                    McpError::new(&server.name, McpErrorKind::Start, problem)
                })?;
                let agreed = agree(Guard::new(lines, gone.clone()), deadline).await;
                Connection::of(server, agreed, gone, Some(process)).await
            }
            Place::Address { url, headers, allow_http } => {
                let transport = http::transport(url, headers, *allow_http).map_err(wrong)?;
                let agreed = agree(Guard::new(transport, gone.clone()), deadline).await;
                Connection::of(server, agreed, gone, None).await
            }
        }
    }

    async fn of(
        server: &McpServer,
        agreed: Result<Running, Refused>,
        gone: CancellationToken,
        process: Option<Process>,
    ) -> Result<Connection, McpError> {
        let refused = match agreed {
            Ok(running) => match version_of(running.peer().peer_info()) {
                Ok(version) => {
                    return Ok(Connection {
                        name: server.name.clone(),
                        version,
                        peer: running.peer().clone(),
                        gone,
                        process,
                        running: Mutex::new(Some(running)),
                    });
                }
                Err(refused) => refused,
            },
            Err(refused) => refused,
        };
        let mut problem = match refused.kind {
            McpErrorKind::Timeout => format!(
                "it was not ready within {}: allow more time, or check what it is waiting for",
                seconds(server.ready_within)
            ),
            _ => refused.problem,
        };
        if let Some(process) = process {
            // The exit status explains the problem only if the server exited by itself.
            if refused.kind == McpErrorKind::Start
                && let Some(how) = process.ended().await
            {
                problem = format!("it exited before it was ready: {how}");
            }
            // The server has done nothing yet, so it is killed without waiting for it to exit.
            if let Some(said) = process.kill().await.short() {
                problem = format!("{problem}; its output: {said}");
            }
        }
        Err(McpError::new(&server.name, refused.kind, problem))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the error for a server that was not ready in time.
    pub(super) fn late(&self, what: &str, limit: Duration) -> McpError {
        let problem = format!("{what} within {}", seconds(limit));
        McpError::new(&self.name, McpErrorKind::Timeout, problem)
    }

    /// Lists one page of the server's tools.
    pub(super) async fn list(
        &self,
        page: PaginatedRequestParams,
    ) -> Result<ListToolsResult, McpError> {
        match self.peer.list_tools(Some(page)).await {
            Ok(page) => Ok(page),
            Err(error) => {
                let problem = format!("it did not list its tools: {}", self.failed(error).await);
                Err(McpError::new(&self.name, McpErrorKind::Protocol, problem))
            }
        }
    }

    /// Calls a tool. Notifies the server if the call is stopped or dropped.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        context: &ToolContext,
    ) -> ToolOutput {
        // The client would accept the request and wait for an answer that cannot come.
        if self.gone.is_cancelled() {
            return ToolOutput::error(self.dead("").await);
        }
        let asked = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let asked = ClientRequest::CallToolRequest(CallToolRequest::new(asked));
        let sent = self.peer.send_cancellable_request(asked, PeerRequestOptions::no_options());
        let handle = match sent.await {
            Ok(handle) => handle,
            Err(error) => return ToolOutput::error(self.failed(error).await),
        };
        let mut open = Open { handle: Some(handle), context };
        tokio::select! {
            // An answer that has arrived is used even if the call was stopped at the same moment.
            biased;
            answered = open.answered() => match answered {
                Some(Ok(answer)) => answer::output(answer),
                Some(Err(error)) => ToolOutput::error(self.failed(error).await),
                None => ToolOutput::error(self.dead(" during the call").await),
            },
            () = self.gone.cancelled() => {
                // The connection is gone, so dropping `open` must not try to notify the server.
                open.handle = None;
                ToolOutput::error(self.dead(" during the call").await)
            }
            () = context.cancelled() => {
                if let Some(telling) = open.tell() {
                    telling.await;
                }
                ToolOutput::error(
                    "stopped: the server was notified, but may already have carried out the call",
                )
            }
        }
    }

    /// Describes a failed call, for the model.
    async fn failed(&self, error: ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => {
                format!("the server refused: {} ({})", excerpt(&error.message), error.code.0)
            }
            ServiceError::TransportSend(error) => {
                format!("the request could not be sent to the server: {}", innermost(&*error.error))
            }
            ServiceError::TransportClosed => self.dead("").await,
            other => excerpt(&other.to_string()),
        }
    }

    /// Describes how the server ended, for the model.
    async fn dead(&self, when: &str) -> String {
        let ended = format!("the MCP server `{}` exited{when}", self.name);
        let Some(process) = &self.process else { return ended };
        let how = process.ended().await.map(|how| format!(" ({how})")).unwrap_or_default();
        let said =
            process.said.short().map(|said| format!("; its output: {said}")).unwrap_or_default();
        format!("{ended}{how}{said}. It is not restarted, so its tools can no longer be called")
    }

    /// Closes the connection and ends a server process.
    pub(super) async fn close(&self) {
        // Taken out, so that a second call of `close` finds nothing to do.
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(process) = &self.process {
            // First, because a message that is being written to a process that does not read would
            // delay the close.
            process.closing.cancel();
        }
        let service = async {
            if let Some(mut running) = running {
                // A connection that takes too long to close is dropped.
                let _ = running.close_with_timeout(CLOSE).await;
            }
        };
        let process = async {
            if let Some(process) = &self.process {
                process.close().await;
            }
        };
        tokio::join!(service, process);
    }
}

/// A running call. If it is dropped, the server is notified, and the run waits for that.
struct Open<'a> {
    handle: Option<RequestHandle<RoleClient>>,
    context: &'a ToolContext,
}

impl Open<'_> {
    /// Waits for the answer. Returns `None` if the connection has ended.
    async fn answered(&mut self) -> Option<Result<rmcp::model::ServerResult, ServiceError>> {
        let answered = match &mut self.handle {
            Some(handle) => (&mut handle.rx).await.ok(),
            None => None,
        };
        self.handle = None;
        answered
    }

    /// Notifies the server that the answer is no longer needed.
    fn tell(&mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let handle = self.handle.take()?;
        Some(async move {
            let why = Some("the call was stopped".to_owned());
            // A server that does not read its input must not delay the run.
            let _ = timeout(TELL, handle.cancel(why)).await;
        })
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(telling) = self.tell() {
            self.context.leave_behind(telling);
        }
    }
}

/// The reason for which there is no connection.
struct Refused {
    kind: McpErrorKind,
    problem: String,
}

/// Performs the handshake. Servers of the newest protocol are asked for their versions first; older
/// servers refuse that request and then get `initialize`.
async fn agree<T: Transport<RoleClient> + 'static>(
    transport: T,
    deadline: Instant,
) -> Result<Running, Refused> {
    let mode = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    match timeout_at(deadline, Refuser.serve_with_lifecycle(transport, mode)).await {
        Ok(Ok(running)) => Ok(running),
        Ok(Err(error)) => Err(why(&error)),
        Err(_) => Err(Refused { kind: McpErrorKind::Timeout, problem: String::new() }),
    }
}

fn why(error: &ClientInitializeError) -> Refused {
    use ClientInitializeError as E;
    let (kind, problem) = match error {
        E::LegacyFallbackFailed { fallback, .. } => return why(fallback),
        E::NoCompatibleProtocolVersion { server_supported, .. } => {
            let theirs: Vec<&str> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            return other_version(&theirs.join(", "));
        }
        E::ConnectionClosed(_) => {
            (McpErrorKind::Start, "it closed the connection before it was ready".to_owned())
        }
        E::TransportError { error, .. } => {
            let problem = format!("it could not be reached: {}", innermost(&*error.error));
            (McpErrorKind::Start, problem)
        }
        E::JsonRpcError(error) => {
            let problem = format!("it refused: {} ({})", excerpt(&error.message), error.code.0);
            (McpErrorKind::Protocol, problem)
        }
        // The texts of these errors may contain a whole message of the server.
        _ => (McpErrorKind::Protocol, "its answer is not a valid MCP message".to_owned()),
    };
    Refused { kind, problem }
}

/// Returns the version that client and server agreed on, if the client knows it.
fn version_of(info: Option<Arc<ServerPeerInfo>>) -> Result<String, Refused> {
    let version = info.map(|info| info.protocol_version.clone()).unwrap_or_default();
    if ProtocolVersion::KNOWN_VERSIONS.contains(&version) {
        Ok(version.as_str().to_owned())
    } else {
        Err(other_version(version.as_str()))
    }
}

fn other_version(theirs: &str) -> Refused {
    let ours: Vec<&str> =
        ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
    let problem = format!(
        "it speaks version {} of MCP, but this program supports {}; use another version of the server",
        excerpt(theirs),
        ours.join(", ")
    );
    Refused { kind: McpErrorKind::Version, problem }
}

/// Returns the innermost cause, for example "Connection refused", because the outer errors only
/// wrap it. Contains no credentials.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    loop {
        let next = match cause.downcast_ref::<StreamableHttpError<HttpError>>() {
            // This error does not return its cause as its `source`.
            Some(StreamableHttpError::Client(error)) => Some(error as &(dyn Error + 'static)),
            _ => cause.source(),
        };
        match next {
            Some(next) => cause = next,
            None => return excerpt(&cause.to_string()),
        }
    }
}

fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}
