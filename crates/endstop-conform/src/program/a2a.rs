//! A client of A2A 1.0 in its JSON-RPC binding over HTTP, for programs that serve it: the task is a message, and the last
//! state of its task is the verdict. An interrupt of the user is `CancelTask`.
//!
//! What the client hears is written as lines of JSON, in which a profile finds the verdict: `state` is the state of the task in
//! small letters (`completed`), `end` is true for one after which nothing may follow, and `event` is the task, or the update of its status.

use bytes::Bytes;
use endstop_http::{Client as Http, Full};
use endstop_wire::stream::sse::{Item, SseDecoder};
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Time after the verdict in which nothing may follow, before the client of a protocol leaves.
pub(super) const AFTER: Duration = Duration::from_secs(1);

/// The same after a cancellation, in which a run that continues would call the model again.
pub(super) const AFTER_CANCEL: Duration = Duration::from_secs(10);

/// Time between two questions: whether the server has started, and for a state that no event has told.
const BETWEEN: Duration = Duration::from_millis(100);

/// The most bytes of an answer that is one object.
const MOST_ANSWER: usize = 16 << 20;

/// The most bytes of events that are evidence, whatever number of answers they come in.
const MOST_EVENTS: usize = 64 << 20;

/// States after which a task does not change.
const ENDS: [&str; 4] = ["completed", "failed", "cancelled", "rejected"];

/// The client of one start.
pub(super) struct Client {
    heard: Arc<Mutex<Heard>>,
    cancel: watch::Sender<bool>,
    /// The conversation, which ends with this value.
    _talk: JoinSet<()>,
}

/// The events of the server so far.
#[derive(Default)]
struct Heard {
    lines: Vec<Value>,
    /// Bytes of the events in the lines.
    size: usize,
    task: Option<String>,
    state: Option<String>,
    /// The time of the first state after which the task does not change.
    ended: Option<Instant>,
    /// `true` once nothing more is expected.
    is_over: bool,
}

impl Client {
    /// Sends the task to the server at this address, once it has started.
    pub(super) fn new(address: String, task: &str) -> io::Result<Client> {
        let http = Http::builder().no_proxy().build().map_err(io::Error::other)?;
        let (cancel, is_cancelled) = watch::channel(false);
        let heard = Arc::new(Mutex::new(Heard::default()));
        let talk = Talk { http, address, heard: Arc::clone(&heard) };
        let message = json!({"messageId": "task", "role": "ROLE_USER", "parts": [{"text": task}]});
        let mut tasks = JoinSet::new();
        tasks.spawn(talk.run(message, is_cancelled));
        Ok(Client { heard, cancel, _talk: tasks })
    }

    /// Cancels the task.
    pub(super) fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// `true` once the client has its verdict, and needs the server no more.
    pub(super) fn has_left(&self) -> bool {
        lock(&self.heard).is_over
    }

    /// The time of the verdict.
    pub(super) fn ended(&self) -> Option<Instant> {
        lock(&self.heard).ended
    }

    /// Returns the events of the server, as lines.
    pub(super) fn said(&self) -> String {
        let lines: Vec<String> = lock(&self.heard).lines.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }
}

fn lock(heard: &Mutex<Heard>) -> std::sync::MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    /// Takes an event: a task, or an update of its state.
    fn take(&mut self, event: Value) -> Result<(), String> {
        self.size += event.to_string().len();
        if self.size > MOST_EVENTS {
            return Err(format!("the server sent more than {} MB", MOST_EVENTS >> 20));
        }
        // The answer to `GetTask` is a task alone.
        let inner = ["task", "statusUpdate"].iter().find_map(|kind| event.get(kind));
        let event = inner.cloned().unwrap_or(event);
        if let Some(task) = ["taskId", "id"].iter().find_map(|name| event[name].as_str()) {
            self.task.get_or_insert_with(|| task.to_owned());
        }
        let state = event.pointer("/status/state").and_then(Value::as_str);
        let state = state.map(plain);
        let end = state.as_deref().is_some_and(|state| ENDS.contains(&state));
        if end {
            self.ended.get_or_insert_with(Instant::now);
        }
        self.lines.push(json!({"state": state, "end": end, "event": event}));
        if state.is_some() {
            self.state = state;
        }
        Ok(())
    }

    /// Time that is left of this one after the end of the task.
    fn left_of(&self, after: Duration) -> Option<Duration> {
        self.ended.map(|at| after.saturating_sub(at.elapsed()))
    }
}

/// A state in the words of the suite.
fn plain(state: &str) -> String {
    match state.trim_start_matches("TASK_STATE_").to_ascii_lowercase().as_str() {
        "canceled" => "cancelled".to_owned(),
        state => state.to_owned(),
    }
}

/// The conversation with the server.
struct Talk {
    http: Http,
    address: String,
    heard: Arc<Mutex<Heard>>,
}

impl Talk {
    async fn run(mut self, message: Value, is_cancelled: watch::Receiver<bool>) {
        if let Err(problem) = self.follow(message, is_cancelled).await {
            lock(&self.heard).lines.push(json!({"state": null, "end": true, "problem": problem}));
        }
        lock(&self.heard).is_over = true;
    }

    async fn follow(
        &mut self,
        message: Value,
        mut is_cancelled: watch::Receiver<bool>,
    ) -> Result<(), String> {
        self.find().await?;
        let params = json!({"message": message});
        let stream = self.stream(&params);
        let cancel = async {
            // The sender lives as long as this task.
            let _ = is_cancelled.wait_for(|is| *is).await;
            self.cancel().await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = stream => done?,
            () = cancel => {}
        }
        // Some servers end the stream before the task.
        while lock(&self.heard).ended.is_none() {
            tokio::time::sleep(BETWEEN).await;
            if *is_cancelled.borrow() {
                self.cancel().await;
            }
            self.look().await?;
        }
        let after = if *is_cancelled.borrow() { AFTER_CANCEL } else { AFTER };
        let left = lock(&self.heard).left_of(after).unwrap_or_default();
        tokio::time::sleep(left).await;
        // A server that has ended with its task has no other state.
        let _ = self.look().await;
        Ok(())
    }

    /// Waits for the server, and asks its card for the address of its methods.
    async fn find(&mut self) -> Result<(), String> {
        let card = loop {
            let address =
                format!("{}/.well-known/agent-card.json", self.address.trim_end_matches('/'));
            let request = http::Request::get(address).body(Full::<Bytes>::default());
            match self.http.send(request.map_err(|error| error.to_string())?).await {
                Ok(response) if response.status().is_success() => break whole(response).await?,
                // A card may need a login; the methods say what they need.
                Ok(_) => return Ok(()),
                // Not there yet. The patience of the suite ends this.
                Err(_) => tokio::time::sleep(BETWEEN).await,
            }
        };
        let interfaces = card["supportedInterfaces"].as_array().cloned().unwrap_or_default();
        let is_known = |one: &&Value| {
            one["protocolBinding"] == "JSONRPC"
                && one["protocolVersion"].as_str().is_some_and(|version| version.starts_with("1."))
        };
        let Some(interface) = interfaces.iter().find(is_known) else {
            return Err("the card of the server has no JSONRPC interface of A2A 1.0".to_owned());
        };
        // The path alone, because the suite calls the program that it has started, and nothing else.
        let url: http::Uri = interface["url"]
            .as_str()
            .and_then(|url| url.parse().ok())
            .ok_or("the card of the server has no valid `url`")?;
        let base: http::Uri = self.address.parse().map_err(|_| "the address is not valid")?;
        let host = base.authority().map(ToString::to_string).unwrap_or_default();
        self.address = format!("http://{host}{}", url.path());
        Ok(())
    }

    /// Sends the message, and takes each event of the answer.
    async fn stream(&self, params: &Value) -> Result<(), String> {
        let mut response = self.send("SendStreamingMessage", params).await?;
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if !is_stream {
            let answer = whole(response).await?;
            return self.take(answer);
        }
        let mut decoder = SseDecoder::new();
        loop {
            let next = response.body_mut().frame();
            // A server may hold the stream open after the end.
            let left = lock(&self.heard).left_of(AFTER).unwrap_or(Duration::MAX);
            let Ok(frame) = tokio::time::timeout(left, next).await else { return Ok(()) };
            // A stream that breaks off may belong to a task that continues.
            let Some(Ok(frame)) = frame else { return Ok(()) };
            let Ok(bytes) = frame.into_data() else { continue };
            let mut events = Vec::new();
            let pushed = decoder.push(&bytes, &mut |item| {
                if let Item::Event { data, .. } = item {
                    events.push(serde_json::from_str::<Value>(data));
                }
            });
            pushed.map_err(|error| error.to_string())?;
            for event in events {
                self.take(event.map_err(|error| format!("an event is not JSON: {error}"))?)?;
            }
        }
    }

    /// Asks for the task, and takes its state if it has changed.
    async fn look(&self) -> Result<(), String> {
        let Some(task) = lock(&self.heard).task.clone() else {
            return Err("the server has named no task".to_owned());
        };
        let answer = whole(self.send("GetTask", &json!({"id": task})).await?).await?;
        let state = answer["result"]["status"]["state"].as_str().map(plain);
        if state.is_some() && state != lock(&self.heard).state {
            return self.take(answer);
        }
        Ok(())
    }

    async fn cancel(&self) {
        let task = loop {
            if let Some(task) = lock(&self.heard).task.clone() {
                break task;
            }
            tokio::time::sleep(BETWEEN).await;
        };
        // Whatever it answers, the state of the task is the verdict.
        let _ = self.send("CancelTask", &json!({"id": task})).await;
    }

    fn take(&self, mut answer: Value) -> Result<(), String> {
        let result = answer.get_mut("result").map(Value::take);
        let result = result.ok_or_else(|| format!("the server refused: {}", answer["error"]))?;
        lock(&self.heard).take(result)
    }

    async fn send(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<http::Response<hyper::body::Incoming>, String> {
        let body = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        let request = http::Request::post(&self.address)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json")
            .header("a2a-version", "1.0")
            .body(Full::from(body.to_string()))
            .map_err(|error| error.to_string())?;
        self.http.send(request).await.map_err(|error| error.to_string())
    }
}

/// Reads an answer that is one object.
async fn whole(response: http::Response<hyper::body::Incoming>) -> Result<Value, String> {
    let status = response.status();
    let body = http_body_util::Limited::new(response.into_body(), MOST_ANSWER);
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| format!("status {status}, no JSON: {error}"))
}
