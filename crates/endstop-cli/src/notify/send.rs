//! Delivers notices on a thread of its own: to a command, which gets a line of JSON on its standard input, and to a
//! webhook, which gets `{"text": …}` as Slack and others read it. Nothing of a run is in the arguments of the command.

use super::notice::sentence;
use crate::output;
use crate::visible::visible;
use endstop::process::CommandLine;
use endstop::process::talk::{self, Talk};
use endstop::wire::redact::Redacted;
use endstop_http::{Client, Full};
use http::{HeaderValue, Request, header};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

/// Receives the problems of notices, which change nothing.
pub(crate) type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Interval at which the time of a run is compared with its limit.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Number of notices that wait. More are dropped and counted, because a run does not wait for a person.
const MOST_WAITING: usize = 1024;

/// Time that the command has.
const COMMAND: Duration = Duration::from_secs(30);

/// Time that a request to the webhook has.
const REQUEST: Duration = Duration::from_secs(5);

/// Waits between the attempts at one notice.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

/// Time at the end of the process for what is not delivered yet, if there is no command.
const LAST: Duration = Duration::from_secs(10);

/// Most bytes of the command's standard error that are shown.
const MOST_ERRORS: usize = 2000;

/// The queue of notices, and the thread behind it.
pub(super) struct Sender {
    queue: Mutex<Option<SyncSender<Value>>>,
    done: Mutex<Receiver<()>>,
    shared: Arc<Shared>,
    patience: Duration,
}

struct Shared {
    report: Option<Report>,
    /// Problems that wait for the end of the process.
    held: Mutex<Vec<String>>,
    lost: AtomicU64,
    problems: AtomicU64,
    /// The time until which the process waits, once it is about to end.
    waits_until: OnceLock<Instant>,
}

impl Shared {
    /// Reports the first, second, fourth, eighth … problem: a webhook may fail for hours.
    fn problem(&self, problem: &str) {
        let count = self.problems.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let more = if count == 1 { String::new() } else { format!(" ({count} in all)") };
            self.report(format!("{}{more}", visible(problem)));
        }
    }

    /// `true` if the process does not end before.
    fn has_time_for(&self, time: Duration) -> bool {
        self.waits_until.get().is_none_or(|until| Instant::now() + time <= *until)
    }

    fn report(&self, problem: String) {
        match &self.report {
            Some(report) => report(&problem),
            None => self.held.lock().unwrap_or_else(PoisonError::into_inner).push(problem),
        }
    }
}

impl Sender {
    /// Starts the thread. `look` is called at least every [`LOOK_EVERY`] while nothing is delivered.
    pub(super) fn begin(
        command: Option<String>,
        webhook: Option<Url>,
        look: impl Fn() + Send + 'static,
        report: Option<Report>,
    ) -> Sender {
        let (queue, notices) = sync_channel(MOST_WAITING);
        let (finished, done) = sync_channel(1);
        let shared = Arc::new(Shared {
            report,
            held: Mutex::default(),
            lost: AtomicU64::new(0),
            problems: AtomicU64::new(0),
            waits_until: OnceLock::new(),
        });
        let patience = if command.is_some() { COMMAND + REQUEST } else { LAST };
        let own = Arc::clone(&shared);
        let started = std::thread::Builder::new().name("notify".to_owned()).spawn(move || {
            deliver(&notices, command.as_deref(), webhook.as_ref(), &look, &own);
            // The receiver is gone if the process no longer waits.
            let _ = finished.send(());
        });
        if let Err(error) = started {
            shared.problem(&format!("[notify]: no notices are sent: {error}"));
        }
        Sender { queue: Mutex::new(Some(queue)), done: Mutex::new(done), shared, patience }
    }

    /// Adds a notice. Does not wait.
    pub(super) fn send(&self, notice: Value) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = &*queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(notice) {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is delivered, or for a bounded time.
    pub(super) fn finish(&self) {
        let _ = self.shared.waits_until.set(Instant::now() + self.patience);
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(self.patience) == Err(RecvTimeoutError::Timeout) {
            self.shared.report("[notify]: some notices may not have arrived in time".to_owned());
        }
        let lost = self.shared.lost.load(Ordering::Relaxed);
        if lost > 0 {
            let problem = format!("[notify]: {lost} notices were dropped, because others waited");
            self.shared.report(problem);
        }
        let held =
            std::mem::take(&mut *self.shared.held.lock().unwrap_or_else(PoisonError::into_inner));
        for problem in held {
            output::note(&format!("endstop: {problem}"));
        }
    }
}

/// Delivers notices until the queue is closed and empty.
fn deliver(
    notices: &Receiver<Value>,
    command: Option<&str>,
    webhook: Option<&Url>,
    look: &dyn Fn(),
    shared: &Shared,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let client = webhook.map(client).transpose();
    let (runtime, client) = match (runtime, client) {
        (Ok(runtime), Ok(client)) => (runtime, client),
        (Err(error), _) => return shared.problem(&format!("[notify]: {error}")),
        (_, Err(problem)) => return shared.problem(&problem),
    };
    loop {
        let notice = match notices.recv_timeout(LOOK_EVERY) {
            Ok(notice) => notice,
            Err(RecvTimeoutError::Timeout) => {
                look();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let by_command = async {
            let Some(command) = command else { return };
            if let Err(problem) = notified(command, &notice).await {
                shared.problem(&format!("--notify: {problem}"));
            }
        };
        let by_webhook = async {
            let (Some(client), Some(url)) = (&client, webhook) else { return };
            if let Err(problem) = posted(client, url, &notice, shared).await {
                let host = url.host_str().unwrap_or_default();
                shared.problem(&format!("[notify]: the webhook at {host} {problem}"));
            }
        };
        // At once, so that a webhook that hangs does not delay the command.
        runtime.block_on(async { tokio::join!(by_command, by_webhook) });
        look();
    }
}

fn client(url: &Url) -> Result<Client, String> {
    let wrong = |error| format!("[notify]: could not create the HTTP client: {error}");
    let client = Client::builder()
        .connect_timeout(REQUEST)
        .user_agent(HeaderValue::from_static(concat!("endstop/", env!("CARGO_PKG_VERSION"))))
        .build()
        .map_err(wrong)?;
    if url.scheme() == "https" {
        client.load_certificates().map_err(wrong)?;
    }
    Ok(client)
}

/// Posts a notice to the webhook, with bounded retries.
async fn posted(client: &Client, url: &Url, notice: &Value, shared: &Shared) -> Result<(), String> {
    let body = json!({"text": format!("endstop: {}", sentence(notice))});
    let body = output::keys().redact_json(&body).map_err(|error| error.to_string())?;
    let mut pauses = PAUSES.iter();
    loop {
        let sent = tokio::time::timeout(REQUEST, post(client, url, &body)).await;
        let (problem, may_retry) = match sent {
            Ok(Ok(200..=299)) => return Ok(()),
            Ok(Ok(status @ 300..=399)) => {
                (format!("answered with status {status}: redirects are not followed"), false)
            }
            Ok(Ok(status)) => {
                (format!("answered with status {status}"), status == 429 || status >= 500)
            }
            Ok(Err(problem)) => (problem, true),
            Err(_) => (format!("did not answer within {} s", REQUEST.as_secs()), true),
        };
        match pauses.next() {
            Some(pause) if may_retry && shared.has_time_for(*pause + REQUEST) => {
                tokio::time::sleep(*pause).await;
            }
            _ => return Err(problem),
        }
    }
}

/// Returns the status. The body is not read, because nothing in it matters.
async fn post(client: &Client, url: &Url, body: &Redacted) -> Result<u16, String> {
    let request = Request::post(url.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(bytes::Bytes::copy_from_slice(body.as_bytes())))
        .map_err(|_| "has an address that cannot be called".to_owned())?;
    // The text of an error names the host alone.
    let response = client.send(request).await.map_err(|_| "could not be reached".to_owned())?;
    Ok(response.status().as_u16())
}

/// Runs the command.
async fn notified(command: &str, notice: &Value) -> Result<(), String> {
    let line = output::keys().redact_json(notice).map_err(|error| error.to_string())?;
    tokio::time::timeout(COMMAND, tell(command, &line))
        .await
        .unwrap_or_else(|_| Err(format!("it was killed after {} s", COMMAND.as_secs())))
}
async fn tell(command: &str, line: &Redacted) -> Result<(), String> {
    let line_of = CommandLine::new(command).whole_environment();
    let Talk { mut command, mut input, mut output, mut errors } =
        talk::start(&line_of).map_err(|error| error.to_string())?;
    let (mut printed, mut failed) = (Vec::new(), Vec::new());
    let write = async move {
        // A command that reads nothing closes its input. That does not count as a failure.
        let _ = input.write_all(format!("{line}\n").as_bytes()).await;
        let _ = input.shutdown().await;
    };
    // Its output is read, so that the command never waits for a reader.
    let read = read_most(&mut output, &mut printed);
    let read_errors = read_most(&mut errors, &mut failed);
    tokio::join!(write, read, read_errors);
    let how = command.ended().await;
    if how == "exit status 0" {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&failed);
    Err(format!("{how}: {}", said.trim()))
}

/// Reads a stream to its end, and keeps its beginning.
async fn read_most(from: &mut (impl AsyncReadExt + Unpin), kept: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = MOST_ERRORS.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
}
