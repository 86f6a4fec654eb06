//! The server: the requests of an editor, and the end of a connection.

use crate::lines::{Backlog, incoming, outgoing};
use crate::mcp_servers::servers;
use crate::prompt::input_of;
use crate::run::PromptRun;
use crate::sessions::Sessions;
use crate::source::{SessionRequest, SessionSource};
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, CloseSessionRequest, CloseSessionResponse,
    Implementation, InitializeRequest, InitializeResponse, McpCapabilities, NewSessionRequest,
    NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse, SessionCapabilities,
    SessionCloseCapabilities,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, Lines};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// The reason why a connection ended early: its input or output failed, or the editor broke the
/// protocol.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the connection to the editor failed: {0}")]
pub struct AcpError(String);

/// Serves agents over the Agent Client Protocol, version 1.
pub struct AcpServer {
    source: Arc<dyn SessionSource>,
}

impl fmt::Debug for AcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcpServer").finish_non_exhaustive()
    }
}

impl AcpServer {
    /// Creates a server whose sessions this source opens.
    pub fn new(source: impl SessionSource) -> AcpServer {
        AcpServer { source: Arc::new(source) }
    }

    /// Serves one connection until its input ends or `stop` is cancelled. In both cases the runs are
    /// cancelled and answered, and the sessions are closed, before this returns.
    ///
    /// # Errors
    /// The connection failed, or a message was longer than 64 MiB. The sessions are closed then, too.
    pub async fn serve(
        &self,
        input: impl AsyncRead + Send + 'static,
        output: impl AsyncWrite + Send + 'static,
        stop: CancellationToken,
    ) -> Result<(), AcpError> {
        let backlog = Backlog::default();
        let lines =
            Lines::new(Box::pin(outgoing(output, backlog.clone())), Box::pin(incoming(input)));
        let connection =
            Connection { source: Arc::clone(&self.source), sessions: Sessions::default(), backlog };
        let (sessions, backlog) = (connection.sessions.clone(), connection.backlog.clone());
        let served = connection.run(lines, stop).await;
        // Not left to drop: a dropped agent cannot wait for the end of its tools.
        sessions.close_all().await;
        if backlog.is_gone() {
            return Ok(());
        }
        served.map_err(|error| AcpError(error.to_string()))
    }
}

/// One connection.
#[derive(Clone)]
struct Connection {
    source: Arc<dyn SessionSource>,
    sessions: Sessions,
    backlog: Backlog,
}

impl Connection {
    async fn run<O, I>(self, lines: Lines<O, I>, stop: CancellationToken) -> Result<(), Error>
    where
        O: futures::Sink<String, Error = std::io::Error> + Send + 'static,
        I: futures::Stream<Item = std::io::Result<String>> + Send + 'static,
    {
        let (opening, prompting, closing, cancelling) =
            (self.clone(), self.clone(), self.clone(), self.sessions.clone());
        Agent
            .v1()
            .name("endstop")
            .on_receive_request(
                async |request: InitializeRequest, responder: Responder<InitializeResponse>, _| {
                    responder.respond(initialized(&request))
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: NewSessionRequest, responder, editor| {
                    opening.open(request, responder, &editor)
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: PromptRequest, responder, editor| {
                    prompting.prompt(request, responder, &editor)
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: CloseSessionRequest, responder, editor| {
                    closing.close(request, responder, &editor)
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_notification(
                async move |cancel: CancelNotification, _| {
                    // A session that was closed meanwhile has nothing to cancel.
                    if let Ok(open) = cancelling.get(&cancel.session_id) {
                        open.session.cancel();
                    }
                    Ok(())
                },
                agent_client_protocol::on_receive_notification!(),
            )
            .connect_with(lines, async move |editor: ConnectionTo<Client>| {
                tokio::select! {
                    () = editor.incoming_closed() => {}
                    () = stop.cancelled() => {}
                }
                self.sessions.stop_runs().await;
                Ok(())
            })
            .await
    }

    /// Opens a session in a task of its own, because MCP servers take time to start.
    fn open(
        &self,
        request: NewSessionRequest,
        responder: Responder<NewSessionResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let checked = folder(&request.cwd)
            .and_then(|()| servers(request.mcp_servers, &request.cwd))
            .map(|servers| SessionRequest { dir: request.cwd, servers });
        let request = match checked {
            Ok(request) => request,
            Err(error) => return responder.respond_with_error(error),
        };
        let (source, sessions) = (Arc::clone(&self.source), self.sessions.clone());
        // A task that fails ends the whole connection, so problems are answered and not returned.
        editor.spawn(async move {
            let dir = request.dir.clone();
            let opened = match source.open(request).await {
                Ok(opened) => sessions.add(dir, opened).await,
                Err(error) => Err(Error::internal_error().data(error.to_string())),
            };
            responder.respond_with_result(opened.map(NewSessionResponse::new))
        })
    }

    /// Starts the run of a prompt before the next message is read, so that a cancel that follows
    /// finds it.
    fn prompt(
        &self,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let started = self.sessions.get(&request.session_id).and_then(|open| {
            let input = input_of(request.prompt)?;
            let handle = open.session.run(input).map_err(|error| match error {
                endstop::StartError::Busy => {
                    Error::invalid_request().data("a prompt of this session is still running")
                }
                error => Error::invalid_params().data(error.to_string()),
            })?;
            Ok((open, handle))
        });
        match started {
            Err(error) => responder.respond_with_error(error),
            Ok((open, handle)) => {
                let backlog = self.backlog.clone();
                let run = PromptRun {
                    id: request.session_id,
                    open,
                    handle,
                    editor: editor.clone(),
                    backlog,
                };
                editor.spawn(run.drive(responder))
            }
        }
    }

    fn close(
        &self,
        request: CloseSessionRequest,
        responder: Responder<CloseSessionResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let sessions = self.sessions.clone();
        editor.spawn(async move {
            let closed = sessions.close(&request.session_id).await;
            responder.respond_with_result(closed.map(|()| CloseSessionResponse::new()))
        })
    }
}

/// Answers `initialize`: the version, and what this server can do.
fn initialized(request: &InitializeRequest) -> InitializeResponse {
    // A client with a later version is answered with ours, and decides whether it continues.
    let version = request.protocol_version.min(ProtocolVersion::V1);
    let capabilities = AgentCapabilities::new()
        .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
        .mcp_capabilities(McpCapabilities::new().http(true))
        .session_capabilities(SessionCapabilities::new().close(SessionCloseCapabilities::new()));
    InitializeResponse::new(version).agent_capabilities(capabilities).agent_info(
        Implementation::new("endstop", env!("CARGO_PKG_VERSION")).title("Endstop".to_owned()),
    )
}

/// Refuses a folder that tools could not work in.
fn folder(dir: &Path) -> Result<(), Error> {
    let problem = if !dir.is_absolute() {
        "expected an absolute path"
    } else if !dir.is_dir() {
        "not a folder"
    } else {
        return Ok(());
    };
    Err(Error::invalid_params().data(format!("cwd: {}: {problem}", dir.display())))
}
