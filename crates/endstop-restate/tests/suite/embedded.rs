//! The embedded driver: a run in this process, with a journal in SQLite.

use crate::run::{Boxed, Case, Driver, Ended, Live, TASK};
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::journal::SqliteJournal;
use endstop::{Agent, Outcome, RunHandle, RunInput, Session};
use endstop_restate::Stop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Embedded {
    journal: SqliteJournal,
    next: AtomicU64,
    _folder: tempfile::TempDir,
}

impl Embedded {
    pub fn new() -> Embedded {
        let folder = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(folder.path().join("journal.db")).unwrap();
        Embedded { journal, next: AtomicU64::new(1), _folder: folder }
    }
}

impl Driver for Embedded {
    fn start(&self, case: Case) -> Boxed<'_, Result<Box<dyn Live>, String>> {
        Box::pin(async move {
            let id = format!("run{}", self.next.fetch_add(1, Ordering::SeqCst));
            let journal = self.journal.clone();
            let agent = (case.build)().limits(case.limits).journal(journal.clone()).build();
            let agent = agent.map_err(|error| error.to_string())?;
            let session = agent.session();
            let input = RunInput::new(TASK).id(&id);
            let run = match case.stop_first {
                Some(stop) => Running::Over(Box::new(stopped(session.clone(), input, stop).await)),
                None => Running::Live(session.run(input).map_err(|error| error.to_string())?),
            };
            Ok(Box::new(Embed { agent, session, run: Mutex::new(Some(run)), journal, id }) as _)
        })
    }
}

/// Starts a run and stops it at once. On a runtime with one thread the task of the run cannot begin
/// before the stop.
async fn stopped(session: Session, input: RunInput, stop: Stop) -> (Vec<AgentEvent>, Outcome) {
    let work = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let handle = session.run(input).unwrap();
            match stop {
                Stop::Cancel => session.cancel(),
                Stop::Terminate => session.terminate(),
            }
            let ended = events(handle).await;
            session.settled().await;
            ended
        })
    });
    work.await.unwrap()
}

async fn events(mut handle: RunHandle) -> (Vec<AgentEvent>, Outcome) {
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        events.push(event);
    }
    (events, handle.await)
}

enum Running {
    Live(RunHandle),
    Over(Box<(Vec<AgentEvent>, Outcome)>),
}

struct Embed {
    agent: Agent,
    session: Session,
    run: Mutex<Option<Running>>,
    journal: SqliteJournal,
    id: String,
}

impl Live for Embed {
    fn stop(&self, stop: Stop) -> Boxed<'_, ()> {
        match stop {
            Stop::Cancel => self.session.cancel(),
            Stop::Terminate => self.session.terminate(),
        }
        Box::pin(std::future::ready(()))
    }

    fn end(&mut self) -> Boxed<'_, Ended> {
        let run = self.run.lock().unwrap().take().expect("the run ends once");
        Box::pin(async move {
            let (events, outcome) = match run {
                Running::Live(handle) => events(handle).await,
                Running::Over(ended) => *ended,
            };
            self.agent.settled().await;
            let own = |event: &&AgentEvent| {
                event.path().is_empty() && matches!(event.kind, AgentEventKind::Finished { .. })
            };
            Ended {
                endings: events.iter().filter(own).count(),
                last: events.last().is_some_and(|event| own(&event)),
                recorded: self.journal.load(&self.id).unwrap(),
                outcome,
            }
        })
    }

    fn stored(&self) -> Boxed<'_, Outcome> {
        let outcome = self.journal.load(&self.id).unwrap().outcome.expect("an outcome");
        Box::pin(std::future::ready(serde_json::from_value(outcome).unwrap()))
    }

    fn again(&self) -> Boxed<'_, String> {
        let refused = self.session.run(RunInput::new(TASK)).map(|_| ()).unwrap_err().to_string();
        Box::pin(std::future::ready(refused))
    }
}
