//! The lines of `endstop guard --json` and `--events`: the steps of all conversations, each with the
//! name of its conversation.
//!
//! ```text
//! {"type":"thread_started","thread":"main","sub_agent":false}
//! {"type":"turn_started","thread":"main","turn":1,"attempt":1}
//! {"type":"limit_told","thread":"main"}
//! ```

use crate::output;
use crate::run::events::{EventFile, Keep};
use endstop_guard::run::{GuardEvent, RunHandle};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Number of lines that wait for a slow reader. More are dropped and counted, because a guarded
/// program must not wait for the reader of its events.
const MOST_WAITING: usize = 4096;

/// Writes lines on a thread of its own, because events arrive under the lock of the run.
#[derive(Clone)]
pub(crate) struct GuardLines {
    send: SyncSender<Value>,
    lost: Arc<AtomicU64>,
    /// The run, whose requests contain secrets that are known only later.
    run: Arc<OnceLock<RunHandle>>,
}

/// The thread that writes, and what it needs for its last line.
pub(crate) struct Writer {
    work: Option<JoinHandle<()>>,
}

impl GuardLines {
    /// Starts to write to the file and, with `json`, to standard output.
    pub(crate) fn begin(file: Option<EventFile>, json: bool) -> (GuardLines, Writer) {
        let (send, receive) = sync_channel(MOST_WAITING);
        let lines = GuardLines { send, lost: Arc::default(), run: Arc::default() };
        let run = Arc::clone(&lines.run);
        // Without a thread the channel is closed, and no line is written.
        let work = std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || write(&receive, file, json, &run))
            .inspect_err(|error| output::note(&format!("endstop: no events are written: {error}")))
            .ok();
        (lines, Writer { work })
    }

    /// Sets the run whose secrets are redacted.
    pub(crate) fn set_run(&self, run: &RunHandle) {
        let _ = self.run.set(run.clone());
    }

    /// Writes the line of an event, if it has one.
    pub(crate) fn event(&self, event: &GuardEvent) {
        if let Some(line) = line(event) {
            self.line(line);
        }
    }

    pub(crate) fn warning(&self, message: &str) {
        self.line(json!({"type": "warning", "message": message}));
    }

    fn line(&self, line: Value) {
        if let Err(TrySendError::Full(_)) = self.send.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the last line, and waits until everything is written.
    pub(crate) fn finish(self, outcome: Value, writer: Writer) {
        let lost = self.lost.load(Ordering::Relaxed);
        let warning = format!("{lost} events were lost, because they were not read in time");
        let warning = json!({"type": "warning", "message": warning});
        let last = (lost > 0).then_some(warning).into_iter().chain([outcome]);
        for line in last {
            // Unlike the others, these wait for the reader.
            let _ = self.send.send(line);
        }
        drop(self);
        writer.wait();
    }
}

impl Writer {
    fn wait(self) {
        if let Some(work) = self.work {
            let _ = work.join();
        }
    }
}

fn write(
    receive: &Receiver<Value>,
    mut file: Option<EventFile>,
    json: bool,
    run: &OnceLock<RunHandle>,
) {
    while let Ok(line) = receive.recv() {
        let is_last = line["type"] == "outcome";
        if let Some(run) = run.get() {
            output::hide(&run.secrets());
        }
        if let Some(file) = &mut file {
            file.write(&line, Keep::Now);
        }
        if json {
            output::json(&line);
        }
        // Other holders of the channel may live longer.
        if is_last {
            break;
        }
    }
    if let Some(file) = &mut file {
        file.finish();
    }
}

/// Returns the line of an event.
fn line(event: &GuardEvent) -> Option<Value> {
    Some(match event {
        GuardEvent::ThreadStarted { thread, sub_agent, .. } => {
            json!({"type": "thread_started", "thread": thread, "sub_agent": sub_agent})
        }
        GuardEvent::Run { thread, event, .. } => {
            let mut line = event.to_value().ok()?;
            line.as_object_mut()?.insert("thread".to_owned(), thread.as_str().into());
            line
        }
        GuardEvent::LimitTold { thread, .. } => json!({"type": "limit_told", "thread": thread}),
        GuardEvent::CallRefused { thread, .. } => json!({"type": "refusal", "thread": thread}),
        GuardEvent::Passed { target, reason } => {
            json!({"type": "warning", "message": format!("passed without a check: {target}: {reason}")})
        }
        GuardEvent::Refused { target, reason } => {
            json!({"type": "warning", "message": format!("refused: {target}: {reason}")})
        }
        GuardEvent::Upgrade { target } => {
            json!({"type": "warning", "message": format!("refused: {target}: not HTTP")})
        }
        GuardEvent::Stranger { reason, count } => {
            json!({"type": "warning", "message": format!("refused: {reason} ({count} in all)")})
        }
        _ => return None,
    })
}
