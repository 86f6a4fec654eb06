//! A server with scripted agents, and a client that writes raw requests.

use endstop::journal::SqliteJournal;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::wire::redact::KnownKeys;
use endstop::{Agent, Limits, NanoUsd, Permission, Price};
use endstop_serve::{AgentSource, Agents, BuiltAgent, RunPlan, ServeOptions, Server, Tokens};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

/// A deadline longer than anything in these tests takes, so that only a hang exceeds it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Fails if a future takes so long that it hangs.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it hangs")
}

/// Returns the turns for a task.
type Script = dyn Fn(&str) -> Vec<Turn> + Send + Sync;

/// An agent with a script. Its tool `wait` ends when the test gives a permit, and its tool `ask`
/// needs approval.
#[derive(Clone)]
pub(crate) struct Scripted {
    pub(crate) turns: Arc<Script>,
    pub(crate) system: &'static str,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) limits: Limits,
}

impl Scripted {
    pub(crate) fn new(turns: impl Fn(&str) -> Vec<Turn> + Send + Sync + 'static) -> Scripted {
        let limits = Limits { max_turns: Some(50), ..Limits::default() };
        let permits = Arc::new(Semaphore::new(0));
        Scripted { turns: Arc::new(turns), system: "Be brief.", permits, limits }
    }

    /// Answers with its task.
    pub(crate) fn echo() -> Scripted {
        Scripted::new(|task| vec![Turn::text(task)])
    }

    /// Calls `wait` and then ends.
    pub(crate) fn waiting() -> Scripted {
        Scripted::new(|_| vec![Turn::call("wait", &json!({})), Turn::text("Done.")])
    }

    /// Calls `ask` and then ends.
    pub(crate) fn asking() -> Scripted {
        Scripted::new(|_| vec![Turn::call("ask", &json!({"path": "x"})), Turn::text("Done.")])
    }
}

impl AgentSource for Scripted {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
        let permits = Arc::clone(&self.permits);
        let wait = tool_fn("wait", "Waits.", move |_: Value, _| {
            let permits = Arc::clone(&permits);
            async move {
                let permit = permits.acquire().await.unwrap();
                permit.forget();
                ToolOutput::ok("waited")
            }
        });
        let ask = tool_fn("ask", "Asks.", |arguments: Value, _| async move {
            ToolOutput::ok(format!("asked {arguments}"))
        });
        let price = Price {
            input: NanoUsd::from_usd(3.0),
            output: NanoUsd::from_usd(15.0),
            ..Price::default()
        };
        let agent = Agent::builder(ScriptedModel::new((self.turns)(&plan.task)).price(price))
            .system(self.system)
            .limits(plan.limits.clone())
            .tool(wait)
            .tool(ask)
            .finish_tool(false)
            .permission("ask", Permission::Ask)
            .approval_events(true)
            .journal(plan.journal.clone())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(BuiltAgent {
            agent,
            secrets: KnownKeys::default(),
            resources: Box::new(()),
            at_end: None,
        })
    }
}

/// A server with its journal.
pub(crate) struct Lab {
    pub(crate) address: SocketAddr,
    pub(crate) dir: Arc<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    hurry: Option<oneshot::Sender<()>>,
    serving: JoinSet<()>,
}

/// The settings of a lab.
pub(crate) struct Setup {
    pub(crate) agents: Vec<(&'static str, Scripted)>,
    pub(crate) tokens: Tokens,
    pub(crate) options: ServeOptions,
    pub(crate) dir: Arc<TempDir>,
}

impl Setup {
    pub(crate) fn of(agents: Vec<(&'static str, Scripted)>) -> Setup {
        Setup {
            agents,
            tokens: Tokens::default(),
            options: ServeOptions::default(),
            dir: Arc::new(TempDir::new().unwrap()),
        }
    }

    pub(crate) async fn start(self) -> Lab {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let agents = self
            .agents
            .into_iter()
            .map(|(name, agent)| (name.to_owned(), Arc::new(agent) as Arc<dyn AgentSource>));
        let journal = SqliteJournal::open(self.dir.path().join("journal.db")).unwrap();
        let agents = Agents::new(agents);
        let report = |problem: &str| eprintln!("reported: {problem}");
        let server =
            Server::open(listener, journal, agents, self.tokens, self.options, report).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (hurry, hurried) = oneshot::channel::<()>();
        let mut serving = JoinSet::new();
        serving.spawn(server.run(async { drop(stopped.await) }, async { drop(hurried.await) }));
        Lab { address, dir: self.dir, stop: Some(stop), hurry: Some(hurry), serving }
    }
}

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Lab {
    pub(crate) async fn of(name: &'static str, agent: Scripted) -> Lab {
        Setup::of(vec![(name, agent)]).start().await
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.path().join("journal.db")
    }

    /// Sends bytes as they are, and returns the answer.
    pub(crate) async fn raw(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request.as_ref()).await;
        let mut bytes = Vec::new();
        let _ = in_time(stream.read_to_end(&mut bytes)).await;
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Sends a request with more headers, each ending in `\r\n`.
    pub(crate) async fn ask(&self, line: &str, headers: &str, body: &str) -> Answer {
        let address = self.address;
        let length = body.len();
        self.raw(format!(
            "{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\
             {headers}\r\n{body}"
        ))
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), "", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, "", body).await
    }

    pub(crate) async fn post_with(&self, path: &str, headers: &str, body: &Value) -> Answer {
        let headers = format!("content-type: application/json\r\n{headers}");
        self.ask(&format!("POST {path}"), &headers, &body.to_string()).await
    }

    /// Starts a run and returns its id.
    pub(crate) async fn start(&self, agent: &str, task: &str) -> String {
        let answer = self.post("/v1/runs", &json!({"agent": agent, "task": task})).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["run_id"].as_str().unwrap().to_owned()
    }

    /// Reads the events of a run after this number until the stream ends.
    pub(crate) async fn events(&self, id: &str, after: u64) -> Vec<Event> {
        let mut reader = self.reader(id, after).await;
        let mut events = Vec::new();
        while let Some(event) = reader.next().await {
            events.push(event);
        }
        events
    }

    /// Opens the event stream of a run.
    pub(crate) async fn reader(&self, id: &str, after: u64) -> EventReader {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let address = self.address;
        let request = format!(
            "GET /v1/runs/{id}/events HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             last-event-id: {after}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        EventReader { stream: BufReader::new(stream), text: String::new() }
    }

    /// Waits until the run has ended, and returns it.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        self.events(id, 0).await;
        let run = self.get(&format!("/v1/runs/{id}")).await.json();
        assert_eq!(run["state"], "ended", "{run}");
        run
    }

    /// Waits until an event of this kind has come, and returns it.
    pub(crate) async fn event(&self, id: &str, kind: &str) -> Event {
        let mut reader = self.reader(id, 0).await;
        while let Some(event) = reader.next().await {
            if event.kind == kind {
                return event;
            }
        }
        panic!("no event {kind} in run {id}");
    }

    /// Begins a shutdown.
    pub(crate) fn begin_stop(&mut self) {
        self.stop = None;
    }

    /// Ends the grace period.
    pub(crate) fn hurry(&mut self) {
        self.hurry = None;
    }

    /// Waits until the server has ended.
    pub(crate) async fn stopped(&mut self) {
        in_time(self.serving.join_next()).await.unwrap().unwrap();
    }

    /// Stops the server at once, and waits until it has ended.
    pub(crate) async fn stop(mut self) -> Arc<TempDir> {
        self.begin_stop();
        self.hurry();
        self.stopped().await;
        self.dir
    }
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// The number; `None` for deltas.
    pub(crate) number: Option<u64>,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// A reader of an event stream.
pub(crate) struct EventReader {
    stream: BufReader<TcpStream>,
    /// The lines of the event so far.
    text: String,
}

impl EventReader {
    /// Returns the next event; `None` after the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let mut line = String::new();
            // Bodies are chunked, so lines with a length come in between; no event has such a line.
            if in_time(self.stream.read_line(&mut line)).await.unwrap_or(0) == 0 {
                return None;
            }
            if line.starts_with("id: ") || line.starts_with("event: ") || line.starts_with("data: ")
            {
                self.text.push_str(&line);
            } else if line == "\n" && self.text.contains("data: ") {
                return Some(event(&std::mem::take(&mut self.text)));
            }
        }
    }
}

fn event(text: &str) -> Event {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    Event {
        number: field("id: ").map(|number| number.parse().unwrap()),
        kind: field("event: ").unwrap_or_default().to_owned(),
        data: serde_json::from_str(field("data: ").unwrap()).unwrap(),
    }
}

/// Returns the numbered events.
pub(crate) fn numbered(events: &[Event]) -> Vec<Event> {
    events.iter().filter(|event| event.number.is_some()).cloned().collect()
}

/// Returns the kinds of events.
pub(crate) fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}
