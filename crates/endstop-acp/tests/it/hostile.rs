//! Requests that are refused, secrets, and editors that do not read.

use crate::editor::{Person, serve, with_script};
use agent_client_protocol::v1::schema::{
    HttpHeader, McpServer, McpServerSse, McpServerStdio, NewSessionRequest, PromptRequest,
};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::wire::redact::KnownKeys;
use endstop::{Agent, AgentEvent, AgentEventKind};
use endstop_acp::{AcpServer, OpenError, OpenedSession, SessionRequest};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn invalid_requests_name_the_field() {
    with_script(
        vec![Turn::text("a")],
        |b| b,
        Person::Absent,
        async |editor| {
            let here = std::env::temp_dir();
            let removed = tempfile::tempdir().unwrap().path().to_owned();
            let sse = McpServer::Sse(McpServerSse::new("s", "http://localhost/"));
            let twice = McpServer::Stdio(McpServerStdio::new("s", "/bin/cat"));
            for (request, words) in [
                (NewSessionRequest::new("here"), "cwd: here: expected an absolute path"),
                (NewSessionRequest::new(removed), "not a folder"),
                (NewSessionRequest::new(&here).mcp_servers(vec![sse]), "SSE transport"),
                (
                    NewSessionRequest::new(&here).mcp_servers(vec![twice.clone(), twice]),
                    "given twice",
                ),
            ] {
                let error = editor.agent.send_request(request).block_task().await.unwrap_err();
                assert!(error.data.unwrap().to_string().contains(words), "{words}");
            }
            let blank = PromptRequest::new(editor.session.clone(), vec![" ".into()]);
            let error = editor.agent.send_request(blank).block_task().await.unwrap_err();
            assert!(error.data.unwrap().to_string().contains("blank"));
            // The session still works.
            editor.prompt("Go.").await.unwrap();
        },
    )
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn second_prompt_is_refused() {
    let slow = vec![Turn::text("a").after(Duration::from_millis(200))];
    with_script(
        slow,
        |b| b,
        Person::Absent,
        async |editor| {
            let (first, second) = tokio::join!(editor.prompt("Go."), editor.prompt("Go."));
            first.unwrap();
            assert!(second.unwrap_err().data.unwrap().to_string().contains("still running"));
        },
    )
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn failed_opening_is_reported() {
    let server = AcpServer::new(|request: SessionRequest| async move {
        if request.servers.is_empty() {
            Ok(OpenedSession::new(Agent::builder(ScriptedModel::new([])).build()?))
        } else {
            Err(OpenError::new("no model is configured"))
        }
    });
    serve(server, Person::Absent, async |editor| {
        let server = McpServer::Stdio(McpServerStdio::new("s", "/bin/cat"));
        let request = NewSessionRequest::new(std::env::temp_dir()).mcp_servers(vec![server]);
        let error = editor.agent.send_request(request).block_task().await.unwrap_err();
        assert_eq!(error.data.unwrap(), "no model is configured");
    })
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn split_secrets_are_removed() {
    const SECRET: &str = "sk-proj-4fQ9xYz12345678abcdefgh";
    let server = AcpServer::new(|_| async {
        let turn = Turn::pieces(&["The key is sk-proj-4fQ9x", "Yz12345678abcdefgh, keep it."]);
        let agent = Agent::builder(ScriptedModel::new([turn])).build()?;
        Ok(OpenedSession::new(agent).hide(KnownKeys::new([SECRET])))
    });
    serve(server, Person::Absent, async |editor| {
        editor.prompt("Go.").await.unwrap();
        let text = editor.seen.text();
        assert_eq!(text, "The key is [redacted], keep it.", "{}", editor.seen.json());
    })
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn session_closes_its_resources() {
    let closed = CancellationToken::new();
    let done = closed.clone();
    let server = AcpServer::new(move |_| {
        let done = done.clone();
        async move {
            let agent = Agent::builder(ScriptedModel::new([])).build()?;
            Ok(OpenedSession::new(agent).on_close(async move { done.cancel() }))
        }
    });
    serve(server, Person::Absent, async |_| {}).await.1.unwrap();
    assert!(closed.is_cancelled());
}

#[tokio::test]
async fn headers_are_not_in_debug() {
    let (opened, request) = tokio::sync::oneshot::channel();
    let opened = std::sync::Mutex::new(Some(opened));
    let server = AcpServer::new(move |request: SessionRequest| {
        if let Some(opened) = opened.lock().unwrap().take_if(|_| !request.servers.is_empty()) {
            let _ = opened.send(format!("{request:?}"));
        }
        async { Ok(OpenedSession::new(Agent::builder(ScriptedModel::new([])).build()?)) }
    });
    serve(server, Person::Absent, async |editor| {
        let http = agent_client_protocol::v1::schema::McpServerHttp::new("h", "https://h.example/")
            .headers(vec![HttpHeader::new("authorization", "Bearer swordfish-123")]);
        let stdio = McpServerStdio::new("s", "/bin/cat").env(vec![
            agent_client_protocol::v1::schema::EnvVariable::new("API_KEY", "swordfish-456"),
        ]);
        let servers = vec![McpServer::Http(http), McpServer::Stdio(stdio)];
        let request = NewSessionRequest::new(std::env::temp_dir()).mcp_servers(servers);
        editor.agent.send_request(request).block_task().await.unwrap();
    })
    .await
    .1
    .unwrap();
    let shown = request.await.unwrap();
    assert!(shown.contains("API_KEY") && !shown.contains("swordfish"), "{shown}");
}

/// Sends raw lines and returns everything that was answered.
async fn raw(input: &[u8]) -> String {
    let server = AcpServer::new(|_| async {
        Ok(OpenedSession::new(Agent::builder(ScriptedModel::new([Turn::text("a")])).build()?))
    });
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let (read, write) = tokio::io::split(theirs);
    let serving = server.serve(read, write, CancellationToken::new());
    let sending = async {
        ours.write_all(input).await.unwrap();
        ours.shutdown().await.unwrap();
        let mut said = String::new();
        ours.read_to_string(&mut said).await.unwrap();
        said
    };
    tokio::join!(serving, sending).1
}

#[tokio::test]
async fn garbage_is_answered_as_error() {
    let deep = format!("{}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    for (line, code) in [
        ("not json\n", "-32700"),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{}}\n",
            "initialization must",
        ),
        ("[]\n", "-32600"),
        (&*deep, "-32700"),
    ] {
        let said = raw(line.as_bytes()).await;
        assert!(said.contains(code), "{line:.60}: {said}");
    }
}

/// A pipe to a server, without the official client.
struct Pipe(BufReader<DuplexStream>);

impl Pipe {
    async fn send(&mut self, message: &Value) {
        self.0.get_mut().write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Reads until the answer to this request, and returns it.
    async fn answer(&mut self, id: u32) -> Value {
        loop {
            let said = self.next().await;
            if said["id"] == id {
                return said["result"].clone();
            }
        }
    }
}

#[tokio::test]
async fn editor_that_does_not_read_is_bounded() {
    let words: Vec<String> = (0..20_000).map(|n| format!("{n} ")).collect();
    let turn = Turn::pieces(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let streamed = CancellationToken::new();
    let done = streamed.clone();
    let server = AcpServer::new(move |_| {
        let done = done.clone();
        // Observers see every event, also those that a reader that lags misses.
        let observer = move |event: &AgentEvent| {
            if matches!(event.kind, AgentEventKind::TurnFinished { .. }) {
                done.cancel();
            }
        };
        let builder = Agent::builder(ScriptedModel::new([turn.clone()])).on_event(observer);
        let agent = builder.build();
        async move { Ok(OpenedSession::new(agent?)) }
    });
    let (ours, theirs) = tokio::io::duplex(4096);
    let (read, write) = tokio::io::split(theirs);
    let serving = server.serve(read, write, CancellationToken::new());
    let act = async {
        let mut pipe = Pipe(BufReader::new(ours));
        let request = |id: u32, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        pipe.send(&request(1, "initialize", json!({"protocolVersion": 1}))).await;
        pipe.answer(1).await;
        let folder = std::env::temp_dir();
        let open = json!({"cwd": folder, "mcpServers": []});
        pipe.send(&request(2, "session/new", open)).await;
        let session = pipe.answer(2).await["sessionId"].clone();
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go."}]});
        pipe.send(&request(3, "session/prompt", prompt)).await;
        // Nothing is read until the model has streamed everything.
        streamed.cancelled().await;
        let (mut text, mut updates) = (String::new(), 0);
        loop {
            let said = pipe.next().await;
            if said["id"] == 3 {
                break;
            }
            updates += 1;
            text.push_str(said["params"]["update"]["content"]["text"].as_str().unwrap());
        }
        (text, updates)
    };
    let (served, (text, updates)) = tokio::join!(serving, act);
    served.unwrap();
    // Deltas were dropped meanwhile, and the end of the turn brought their text.
    assert_eq!(text, words.concat());
    assert!(updates < words.len() / 2, "{updates}");
}
