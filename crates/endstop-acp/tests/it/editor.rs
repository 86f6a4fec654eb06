//! An editor: the official client, which records every update.

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, InitializeRequest, NewSessionRequest, PermissionOptionKind, PromptRequest,
    PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionId, SessionNotification, SessionUpdate,
};
use agent_client_protocol::{Agent as AgentRole, ByteStreams, Client, Error};
use endstop::Agent;
use endstop::AgentBuilder;
use endstop::testkit::{ScriptedModel, Turn};
use endstop_acp::{AcpError, AcpServer, OpenedSession, SessionRequest};
use std::sync::{Arc, Mutex};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};
use tokio_util::sync::CancellationToken;

/// The answer of the person at the editor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Person {
    Selects(PermissionOptionKind),
    Dismisses,
    /// The editor does not implement the request.
    Absent,
    /// Does not answer before the request is withdrawn.
    Thinks,
}

/// Everything that the editor has seen.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub(crate) updates: Arc<Mutex<Vec<SessionUpdate>>>,
    pub(crate) asked: Arc<Mutex<Vec<RequestPermissionRequest>>>,
    /// Number of questions that were withdrawn.
    pub(crate) withdrawn: Arc<Mutex<u32>>,
}

impl Seen {
    /// Returns the text of all messages.
    pub(crate) fn text(&self) -> String {
        let chunk = |update: &SessionUpdate| match update {
            SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
                ContentBlock::Text(text) => Some(text.text.clone()),
                _ => None,
            },
            _ => None,
        };
        self.updates.lock().unwrap().iter().filter_map(chunk).collect()
    }

    /// Returns all updates as JSON text.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(&*self.updates.lock().unwrap()).unwrap()
    }
}

/// The connection of an editor, and the session it opened.
#[derive(Clone)]
pub(crate) struct Editor {
    pub(crate) agent: ConnectionTo<AgentRole>,
    pub(crate) session: SessionId,
    pub(crate) seen: Seen,
    pub(crate) stop: CancellationToken,
}

impl Editor {
    /// Sends a prompt and returns its answer.
    pub(crate) async fn prompt(&self, text: &str) -> Result<PromptResponse, Error> {
        self.request(text).await
    }

    pub(crate) fn request(
        &self,
        text: &str,
    ) -> impl Future<Output = Result<PromptResponse, Error>> + Send + 'static {
        let prompt = PromptRequest::new(self.session.clone(), vec![text.into()]);
        self.agent.send_request(prompt).block_task()
    }

    /// Opens another session.
    pub(crate) async fn open(&self) -> Editor {
        let request = NewSessionRequest::new(std::env::temp_dir());
        let opened = self.agent.send_request(request).block_task().await.unwrap();
        Editor { session: opened.session_id, ..self.clone() }
    }
}

/// Returns the termination in the answer, as our extension states it.
pub(crate) fn termination(answer: &Result<PromptResponse, Error>) -> String {
    let facts = match answer {
        Ok(response) => response.meta.as_ref().unwrap()["endstop"].clone(),
        Err(error) => error.data.clone().unwrap(),
    };
    facts["termination"].as_str().unwrap().to_owned()
}

/// Serves an agent that this script answers for, and runs `act` as an editor of it. Every session
/// gets the whole script.
pub(crate) async fn with_script<T>(
    turns: Vec<Turn>,
    build: impl Fn(AgentBuilder) -> AgentBuilder + Clone + Send + Sync + 'static,
    person: Person,
    act: impl AsyncFnOnce(Editor) -> T,
) -> (T, Result<(), AcpError>) {
    let source = move |request: SessionRequest| {
        let builder = Agent::builder(ScriptedModel::new(turns.clone()))
            .working_dir(request.dir)
            .approval_events(true);
        let agent = build(builder).build();
        async move {
            let mut servers = Vec::new();
            for server in request.servers {
                servers.push(server.connect().await?);
            }
            drop(servers);
            Ok(OpenedSession::new(agent?))
        }
    };
    serve(AcpServer::new(source), person, act).await
}

/// Serves and runs `act` as an editor with one open session.
pub(crate) async fn serve<T>(
    server: AcpServer,
    person: Person,
    act: impl AsyncFnOnce(Editor) -> T,
) -> (T, Result<(), AcpError>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (input, output) = tokio::io::split(theirs);
    let stop = CancellationToken::new();
    let serving = server.serve(input, output, stop.clone());
    let seen = Seen::default();
    let editing = edit(ours, person, seen, stop, act);
    let (served, acted) = tokio::join!(serving, editing);
    (acted, served)
}

async fn edit<T>(
    pipe: tokio::io::DuplexStream,
    person: Person,
    seen: Seen,
    stop: CancellationToken,
    act: impl AsyncFnOnce(Editor) -> T,
) -> T {
    let (read, write) = tokio::io::split(pipe);
    let (updates, asking) = (seen.clone(), seen.clone());
    let client = Client
        .v1()
        .on_receive_notification(
            async move |update: SessionNotification, _| {
                updates.updates.lock().unwrap().push(update.update);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, connection| {
                asking.asked.lock().unwrap().push(request.clone());
                let outcome = match person {
                    Person::Selects(kind) => {
                        let option = request.options.iter().find(|option| option.kind == kind);
                        let id = option.unwrap().option_id.clone();
                        RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id))
                    }
                    Person::Dismisses => RequestPermissionOutcome::Cancelled,
                    Person::Absent => {
                        return responder.respond_with_error(Error::method_not_found());
                    }
                    Person::Thinks => {
                        let withdrawn = Arc::clone(&asking.withdrawn);
                        let connection: ConnectionTo<AgentRole> = connection;
                        return connection.spawn(async move {
                            responder.cancellation().cancelled().await;
                            *withdrawn.lock().unwrap() += 1;
                            responder.respond_with_error(Error::request_cancelled())
                        });
                    }
                };
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        );
    let transport = ByteStreams::new(write.compat_write(), read.compat());
    client
        .connect_with(transport, async move |agent: ConnectionTo<AgentRole>| {
            let initialize = InitializeRequest::new(ProtocolVersion::V1);
            let said = agent.send_request(initialize).block_task().await?;
            assert_eq!(said.protocol_version, ProtocolVersion::V1);
            assert_eq!(said.agent_info.unwrap().name, "endstop");
            let request = NewSessionRequest::new(std::env::temp_dir());
            let opened = agent.send_request(request).block_task().await?;
            Ok(act(Editor { agent, session: opened.session_id, seen, stop }).await)
        })
        .await
        .unwrap()
}
