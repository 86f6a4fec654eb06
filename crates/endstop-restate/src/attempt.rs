//! An attempt at a run: this process drives the run, step by step, until the run ends or parks, or
//! until another process takes over.
//!
//! ```text
//! let mut attempt = Attempt::begin(source, task, past, answer);
//! loop { let step = attempt.next().await; /* the engine stores it */ attempt.stored(); }
//! ```
//!
//! The agent drives its run as it does without an engine. Only its journal is another one: it waits
//! until the engine has a step, so that no effect is performed before the event that requested it is
//! stored. Dropping the attempt terminates the work in this process, which stores nothing more.

use crate::agents::{AgentSource, BuiltAgent, RunPlan};
use crate::bridge::{EngineJournal, Request};
use crate::fork::Fork;
use crate::letter::Content;
use crate::letterbox::{Letterbox, Steerer};
use crate::request::Stop;
use crate::step::{Past, Step, StepEnd, StoredRecord};
use endstop::journal::Record;
use endstop::park::{Answer, ParkRequest, RunStatus};
use endstop::telemetry::TraceParent;
use endstop::{Branch, Limits, Outcome, Resume, RunHandle, RunInput, Session, StartError};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Events that request nothing are stored with the next step, but after this time at the latest. If
/// the worker dies during a call, all but this part of it is charged.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// Size in bytes of the events that are held back, above which they are stored at once.
const MOST_HELD: usize = 64 << 10;

/// The number of times that a run is resumed without progress before it ends.
const MOST_RESUMED: usize = 10;

/// A run that is to be driven.
#[derive(Clone)]
pub struct Task {
    /// Id of the run.
    pub id: String,
    /// The task, as the client wrote it.
    pub task: String,
    /// The limits of the run.
    pub limits: Limits,
    /// Builds the agent.
    pub source: Arc<dyn AgentSource>,
    /// The run that it branches from, if any. Not needed any more when the run has started.
    pub fork: Option<Fork>,
    /// The place of the request in a trace.
    pub trace_parent: Option<TraceParent>,
}

/// An attempt at a run by this process.
pub struct Attempt {
    requests: mpsc::UnboundedReceiver<Request>,
    journal: EngineJournal,
    work: JoinSet<Finish>,
    leash: Leash,
    stopper: Stopper,
    steerer: Steerer,
    letterbox: Letterbox,
    /// The step that was returned last, until it is stored.
    current: Option<(Step, Option<SyncSender<()>>)>,
    held: Vec<StoredRecord>,
    held_until: Option<Instant>,
    /// The hash of the step before the next one.
    last: Option<String>,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// Stops the run of an attempt. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Option<Stop>>);

impl Stopper {
    /// Stops the run. A terminate outranks a cancel, and a second stop does nothing.
    pub fn stop(&self, stop: Stop) {
        self.0.send_if_modified(|now| {
            let more = *now != Some(Stop::Terminate) && *now != Some(stop);
            if more {
                *now = Some(stop);
            }
            more
        });
    }
}

/// The end of the work of this process on a run.
enum Finish {
    Parked(Arc<ParkRequest>),
    Ended(Arc<Outcome>),
    Failed(String),
}

impl Attempt {
    /// Starts the run, or resumes it where its last step has left it; a run that has ended is refused.
    /// `answer` decides the request of a parked run. A run that is to stop from the beginning performs
    /// nothing. Must be called on a tokio runtime.
    pub fn begin(
        task: Task,
        past: Arc<Past>,
        answer: Option<Answer>,
        stop: Option<Stop>,
    ) -> Attempt {
        let last = past.last().map(str::to_owned);
        let (send, requests) = mpsc::unbounded_channel();
        let (stops, stopped) = watch::channel(stop);
        let leash = Leash::default();
        let journal = EngineJournal::new(Arc::clone(&past), task.fork.clone(), send);
        let (steerer, letters) = Steerer::new();
        let letterbox = Letterbox::default();
        let job = Job {
            task,
            past,
            answer,
            journal: journal.clone(),
            leash: leash.clone(),
            letterbox: letterbox.clone(),
        };
        let mut work = JoinSet::new();
        work.spawn(job.perform(stopped, letters));
        Attempt {
            requests,
            journal,
            work,
            leash,
            stopper: Stopper(stops),
            steerer,
            letterbox,
            current: None,
            held: Vec::new(),
            held_until: None,
            last,
        }
    }

    /// Returns a handle that sends letters to the run.
    pub fn steerer(&self) -> Steerer {
        self.steerer.clone()
    }

    /// Returns a handle that stops the run, for example from another task.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for the next step, and returns it again until it is [stored](Self::stored). The run does
    /// not continue before that. Cancel-safe.
    pub async fn next(&mut self) -> Step {
        loop {
            if let Some((step, _)) = &self.current {
                return step.clone();
            }
            let hold = self.held_until;
            let held = async {
                match hold {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // Before the end of the work, because its last records must be journalled first.
                Some(request) = self.requests.recv() => self.take(request),
                () = held => self.put(&[], None, None),
                Some(finish) = self.work.join_next() => self.finished(finish.ok()),
                // The work has finished, and its last step is stored.
                else => std::future::pending().await,
            }
        }
    }

    /// Lets the run continue, because the engine has its current step.
    pub fn stored(&mut self) {
        let Some((step, stored)) = self.current.take() else { return };
        self.last = Some(step.sha256());
        if let Some(stored) = stored {
            // The run may have been stopped and no longer wait.
            let _ = stored.send(());
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Append(records, stored) => {
                let size: usize = records.iter().map(|record| record.event.len()).sum();
                let held: usize = self.held.iter().map(|record| record.event.len()).sum();
                if records.iter().all(is_quiet) && size + held <= MOST_HELD {
                    self.held.extend(records.iter().map(StoredRecord::from));
                    self.held_until.get_or_insert_with(|| Instant::now() + LONGEST_HOLD);
                    let _ = stored.send(());
                } else {
                    self.letterbox.note(&records);
                    self.put(&records, None, Some(stored));
                }
            }
            Request::Ended(outcome, stored) => {
                self.put(&[], Some(StepEnd::Ended { outcome }), Some(stored));
            }
            // A step since then may have them.
            Request::Refused if !self.letterbox.has_decisions() => {}
            Request::Refused => self.put(&[], None, None),
        }
    }

    /// Makes the next step, of the events that were held back and these.
    fn put(&mut self, records: &[Record], end: Option<StepEnd>, stored: Option<SyncSender<()>>) {
        self.held_until = None;
        let mut all = std::mem::take(&mut self.held);
        all.extend(records.iter().map(StoredRecord::from));
        let step = Step {
            after: self.last.take(),
            header: self.journal.take_header(),
            records: all,
            steered: self.letterbox.take(),
            end,
        };
        self.current = Some((step, stored));
    }

    fn finished(&mut self, finish: Option<Finish>) {
        let end = match finish {
            Some(Finish::Parked(request)) => {
                StepEnd::Parked { request: Box::new(ParkRequest::clone(&request)) }
            }
            // The journal did not get the outcome, for example because its writer panicked.
            Some(Finish::Ended(outcome)) => {
                let outcome = serde_json::to_string(&*outcome).unwrap_or_default();
                StepEnd::Ended { outcome }
            }
            Some(Finish::Failed(why)) => StepEnd::Refused { why },
            None => StepEnd::Refused { why: "the code of the agent panicked".to_owned() },
        };
        self.put(&[], Some(end), None);
    }
}

impl Drop for Attempt {
    /// Terminates the work first, and only then closes the journal: after a terminate nothing starts,
    /// so the run cannot mistake the closed journal for a failing one and work on.
    fn drop(&mut self) {
        self.leash.release();
    }
}

/// `true` if losing the event changes nothing but the estimated cost of a call that is lost with it.
fn is_quiet(record: &Record) -> bool {
    matches!(record.name.as_str(), "delta" | "tick") && record.effects.is_none()
}

/// The session of the attempt, which the attempt terminates when it is dropped.
#[derive(Clone, Default)]
struct Leash(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    session: Option<Session>,
    released: bool,
}

impl Leash {
    /// Holds a session. `false` if the attempt is over already.
    fn hold(&self, session: &Session) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.session = Some(session.clone());
        !held.released
    }

    fn release(&self) {
        let session = {
            let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            held.released = true;
            held.session.take()
        };
        if let Some(session) = session {
            session.terminate();
        }
    }
}

/// The work of an attempt.
struct Job {
    task: Task,
    past: Arc<Past>,
    answer: Option<Answer>,
    journal: EngineJournal,
    leash: Leash,
    letterbox: Letterbox,
}

/// The numbered letters to a run.
type Letters = mpsc::UnboundedReceiver<(u64, Content)>;

impl Job {
    async fn perform(self, mut stops: watch::Receiver<Option<Stop>>, letters: Letters) -> Finish {
        // To resume an ended run is to continue its conversation, as another run.
        if self.past.outcome().is_some() {
            return Finish::Failed("the run has ended".to_owned());
        }
        let times = self.past.resumed_in_place();
        // The engine allows far more attempts, each of which could repeat a paid model call.
        if times >= MOST_RESUMED {
            return Finish::Failed(format!(
                "the worker died {times} times at the same step of the run"
            ));
        }
        let (source, plan) = (Arc::clone(&self.task.source), self.plan());
        let BuiltAgent { agent, secrets, resources } = match blocking(move || source.build(&plan))
            .await
        {
            Some(Ok(built)) => built,
            Some(Err(why)) => return Finish::Failed(why),
            None => return Finish::Failed("the code that builds the agent panicked".to_owned()),
        };
        self.journal.hide(&secrets);
        let session = agent.session();
        // The attempt may have been dropped meanwhile, when there was no session to terminate.
        if !self.leash.hold(&session) {
            return Finish::Failed("the attempt is over".to_owned());
        }
        let how = self.how();
        let own = session.clone();
        let above = self.task.trace_parent.clone();
        let first = *stops.borrow_and_update();
        let finish = if let Some(stop) = first {
            let stopped = move || stopped(&own, &how, stop);
            blocking(move || TraceParent::above(above.as_ref(), stopped)).await
        } else {
            let start = move || start(&own, &how);
            match blocking(move || TraceParent::above(above.as_ref(), start)).await {
                Some(Ok(handle)) => Some(self.follow(&session, handle, &mut stops, letters).await),
                Some(Err(why)) => Some(Finish::Failed(why)),
                None => None,
            }
        };
        // Tools may outlive the outcome by their grace period, and use the resources; and the journal
        // of a stopped run is written in the background.
        agent.settled().await;
        // The drop may block, for example to remove a folder.
        blocking(move || drop(resources)).await;
        finish.unwrap_or_else(|| Finish::Failed("the code of the agent panicked".to_owned()))
    }

    /// Follows the run to its end, stops it on request, and gives it the letters.
    async fn follow(
        &self,
        session: &Session,
        handle: RunHandle,
        stops: &mut watch::Receiver<Option<Stop>>,
        mut letters: Letters,
    ) -> Finish {
        let steering = handle.steering();
        let mut takes_letters = true;
        let mut status = std::pin::pin!(handle.wait_for_status());
        loop {
            tokio::select! {
                biased;
                Ok(()) = stops.changed() => match *stops.borrow_and_update() {
                    Some(Stop::Cancel) => session.cancel(),
                    Some(Stop::Terminate) => session.terminate(),
                    None => {}
                },
                status = &mut status => return finish_of(status),
                Some((number, content)) = letters.recv(), if takes_letters => {
                    takes_letters = self.letterbox.give(&steering, number, content);
                    if self.letterbox.has_decisions() {
                        self.journal.refused();
                    }
                }
            }
        }
    }

    fn plan(&self) -> RunPlan {
        // Without it a limit that was lowered while the run worked would be forgotten.
        let limits = match self.past.recorded() {
            Ok(recorded) => recorded.tightened(&self.task.limits),
            // The run has not begun, or cannot be read, which its resume reports.
            Err(_) => self.task.limits.clone(),
        };
        RunPlan {
            run_id: self.task.id.clone(),
            task: self.task.task.clone(),
            limits,
            journal: self.journal.clone(),
        }
    }

    fn how(&self) -> How {
        let (id, task) = (self.task.id.clone(), self.task.task.clone());
        match &self.task.fork {
            // A branch has the conversation of the other run in its own header.
            _ if self.past.has_begun() => {}
            Some(fork) => return How::Fork(Box::new(fork.origin.branch(&id))),
            None => return How::New(RunInput::new(task).id(id)),
        }
        // The redactions of the journal were made by this program, and are the same for all workers.
        How::Again(Resume::new(id).accept_redacted(), self.answer.clone())
    }
}

/// The way in which a run begins in this process.
enum How {
    New(RunInput),
    Fork(Box<Branch>),
    Again(Resume, Option<Answer>),
}

/// Starts or resumes the run. Blocks the thread.
fn start(session: &Session, how: &How) -> Result<RunHandle, String> {
    let started = match how {
        How::New(input) => session.run(input.clone()),
        How::Fork(branch) => session.branch(Branch::clone(branch)),
        How::Again(resume, None) => session.resume(resume.clone()),
        How::Again(resume, Some(answer)) => {
            match session.resume(resume.clone().answer(answer.clone())) {
                // The decision does not count, for example because it came too late. The run continues
                // as if there were none.
                Err(StartError::Answer(_)) => session.resume(resume.clone()),
                started => started,
            }
        }
    };
    started.map_err(|error| match error {
        StartError::Changed(_) => format!("the agent has changed since the run started: {error}"),
        error => error.to_string(),
    })
}

/// Starts the run and stops it before anything of it is performed, so that the kernel decides its
/// ending. Blocks the thread.
fn stopped(session: &Session, how: &How, stop: Stop) -> Finish {
    // On a runtime with one thread the task of the run cannot begin before this one waits, and by then
    // the run is stopped.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Finish::Failed(format!("could not start a runtime: {error}")),
    };
    runtime.block_on(async {
        let handle = match start(session, how) {
            Ok(handle) => handle,
            Err(why) => return Finish::Failed(why),
        };
        match stop {
            Stop::Cancel => handle.cancel(),
            Stop::Terminate => handle.terminate(),
        }
        let finish = finish_of(handle.wait_for_status().await);
        // The tasks of the run belong to this runtime.
        session.settled().await;
        finish
    })
}

fn finish_of(status: RunStatus) -> Finish {
    match status {
        RunStatus::Parked(request) => Finish::Parked(request),
        RunStatus::Ended(outcome) => Finish::Ended(outcome),
        _ => Finish::Failed("the run was lost".to_owned()),
    }
}

/// Runs code that may block. `None` if it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
