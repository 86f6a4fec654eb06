//! Drives runs: gives a free place to the next run of the queue, and follows each run to its end.

use super::live::Live;
use super::row::Ending;
use super::shared::{Shared, Waiting};
use crate::agents::{AtEnd, BuiltAgent, RunPlan};
use crate::backend::Stop;
use crate::clock::wall_ms;
use endstop::agent::end_interrupted;
use endstop::core::ParkRequest;
use endstop::journal::JournalErrorKind;
use endstop::park::RunStatus;
use endstop::telemetry::TraceParent;
use endstop::wire::redact::KnownKeys;
use endstop::{AgentEvent, AgentEventKind, Outcome, Resume, RunHandle, RunInput, StartError};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Gives free places to the runs of the queue, in its order.
pub(super) fn dispatch(shared: &Arc<Shared>) {
    loop {
        let waiting = {
            let mut state = shared.state();
            if state.draining || state.running >= shared.options.max_running {
                return;
            }
            let Some(waiting) = state.queue.pop_front() else { return };
            state.running += 1;
            waiting
        };
        begin(Place(Arc::clone(shared)), waiting);
    }
}

/// Starts a run in its place.
pub(super) fn begin(place: Place, waiting: Waiting) {
    let shared = Arc::clone(&place.0);
    shared.tasks.spawn(async move {
        drive(&place.0, waiting).await;
        // Dropped last, so that the next run starts when this one has ended for all.
        drop(place);
    });
}

/// Ends a run that was stopped while it waited, without a place.
pub(super) fn end_waiting(shared: &Arc<Shared>, waiting: Waiting) {
    let own = Arc::clone(shared);
    shared.tasks.spawn(async move { drive(&own, waiting).await });
}

/// A place among the running ones, released however its task ends.
pub(super) struct Place(Arc<Shared>);

impl Place {
    /// Takes a place for a new run, if one is free and no run waits for it.
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Place> {
        let mut state = shared.state();
        let is_free = state.running < shared.options.max_running && state.queue.is_empty();
        (is_free && !state.draining).then(|| {
            state.running += 1;
            Place(Arc::clone(shared))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.ended.notify_waiters();
        // A runtime that goes down starts nothing any more.
        if tokio::runtime::Handle::try_current().is_ok() {
            dispatch(&self.0);
        }
    }
}

/// Writes an ending if the task of a run is dropped, or panics in the code of its agent.
struct Watched<'a> {
    shared: &'a Arc<Shared>,
    waiting: &'a Waiting,
    ended: bool,
    parked: bool,
}

impl Watched<'_> {
    fn end(&mut self, ending: &Ending) {
        self.shared.end(self.waiting, ending);
        self.ended = true;
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if !self.ended && std::thread::panicking() {
            self.shared
                .end(self.waiting, &Ending::interrupted("the code that builds the agent panicked"));
        }
        // A parked run keeps its readers.
        if !self.parked {
            self.shared.forget(self.waiting);
        }
    }
}

/// Follows a run from its start to its end.
async fn drive(shared: &Arc<Shared>, waiting: Waiting) {
    let mut watched = Watched { shared, waiting: &waiting, ended: false, parked: false };
    if !waiting.is_started
        && let Err(error) = shared.store.started(&waiting.id, wall_ms())
    {
        (shared.report)(&error.to_string());
    }
    if waiting.resume {
        tell_earlier(shared, &waiting).await;
    }
    shared.metrics.started(&waiting.request.agent);
    let performed = match build(shared, &waiting).await {
        Ok(built) => perform(&mut watched, built).await,
        Err(why) => Err(why),
    };
    match performed {
        Ok(Performed::Ended) => {}
        Ok(Performed::Parked(request)) => {
            watched.parked = true;
            shared.park(&waiting, request);
            // A stop that came too late for the run, and too early to find it parked.
            if waiting.live.stop_asked().is_some()
                && let Some(parked) = shared.take_parked(&waiting.id)
            {
                end_waiting(shared, parked);
            }
        }
        Err(why) => {
            let ending = end_unstarted(shared, &waiting, why).await;
            watched.end(&ending);
        }
    }
}

/// What became of a run that was started or resumed.
enum Performed {
    Ended,
    Parked(Arc<ParkRequest>),
}

/// Puts the events before a restart, or of a decision, into the feed.
async fn tell_earlier(shared: &Arc<Shared>, waiting: &Waiting) {
    let (own, id) = (Arc::clone(shared), waiting.id.clone());
    match blocking(move || own.story(&id)).await {
        Some(Ok(story)) => {
            waiting.live.begin_with_turns(story.turns);
            waiting.live.feed.continue_with(story.frames.iter().cloned());
        }
        failed => {
            // The run is resumed or ended all the same, and its readers begin anew.
            waiting.live.feed.continue_with([]);
            if let Some(Err(error)) = failed {
                (shared.report)(&error.to_string());
            }
        }
    }
}

/// Shows an event to the readers of a run. Returns the ending, which is shown when it is stored.
fn show(live: &Live, event: AgentEvent) -> Option<AgentEvent> {
    if matches!(event.kind, AgentEventKind::Finished { .. }) {
        return Some(event);
    }
    live.note(&event);
    live.feed.push(event);
    None
}

/// Stores the ending of a run, and shows it.
fn show_ending(watched: &mut Watched<'_>, secrets: &KnownKeys, event: AgentEvent) {
    let live = &watched.waiting.live;
    if let AgentEventKind::Finished { outcome, .. } = &event.kind {
        let ending = Ending::of(outcome);
        let evidence = secrets.out_of_text(&ending.evidence).into_owned();
        watched.end(&Ending { evidence, ..ending });
    }
    live.note(&event);
    live.feed.push(event);
}

/// Starts or resumes a run, and follows it to its end, or until it is parked.
///
/// # Errors
/// Describes why it could not be started. It has no ending then.
async fn perform(watched: &mut Watched<'_>, built: BuiltAgent) -> Result<Performed, String> {
    let (shared, waiting) = (watched.shared, watched.waiting);
    let BuiltAgent { agent, secrets, resources, at_end } = built;
    // Ends the part of the feed when it is dropped, which is after the handle.
    let _part = waiting.live.feed.write(secrets.and(&shared.secrets));
    if let Some(stop) = waiting.live.stop_asked() {
        let events = stopped(&agent, waiting, stop).await?;
        for event in events {
            if let Some(ending) = show(&waiting.live, event) {
                show_ending(watched, &secrets, ending);
            }
        }
        release(resources, at_end).await;
        return Ok(Performed::Ended);
    }
    let mut handle = start(&agent, waiting)?;
    let live = Arc::clone(&waiting.live);
    // On the run's task, because to wake this one for each event costs more than to write the event.
    handle.intercept(move |event| {
        let asks =
            matches!(event.kind, AgentEventKind::ApprovalRequested { .. }).then(|| event.clone());
        show(&live, event).or(asks)
    });
    waiting.live.set_approvals(handle.approvals());
    waiting.live.set_steering(handle.steering());
    let mut stops = waiting.live.stops();
    // A stop that came since the check above.
    stops.mark_changed();
    let (mut park_at, mut draining) = (None, false);
    // One wait for all events: each new one takes a lock that all runs share.
    let mut shutdown = std::pin::pin!(shared.shutdown.cancelled());
    loop {
        tokio::select! {
            biased;
            Ok(()) = stops.changed() => match *stops.borrow_and_update() {
                Some(Stop::Cancel) => handle.cancel(),
                Some(Stop::Terminate) => handle.terminate(),
                None => {}
            },
            // The process is about to exit, so what waits for a person does not wait longer.
            () = &mut shutdown, if !draining => {
                draining = true;
                park_at = Some(Instant::now());
            }
            () = until(park_at) => {
                park_at = None;
                ask_to_park(shared, waiting).await;
            }
            event = handle.next() => match event {
                Some(AgentEvent { kind: AgentEventKind::ApprovalRequested { .. }, .. }) => park_at = shared.park_time(),
                Some(ending) => show_ending(watched, &secrets, ending),
                None => break,
            },
        }
    }
    // Tools may outlive the outcome by their grace time, and use the run's resources.
    agent.settled().await;
    if let RunStatus::Parked(request) = handle.status() {
        release(resources, None).await;
        return Ok(Performed::Parked(request));
    }
    release(resources, at_end).await;
    Ok(Performed::Ended)
}

/// Asks a run to park, if it waits for approval and its journal can continue it.
async fn ask_to_park(shared: &Arc<Shared>, waiting: &Waiting) {
    if waiting.live.progress().approvals == 0 {
        return;
    }
    let (own, id) = (Arc::clone(shared), waiting.id.clone());
    // A conversation whose secrets were cut out cannot be continued.
    let whole = blocking(move || own.journal.load(&id).is_ok_and(|run| run.redacted == 0)).await;
    if whole == Some(true) {
        waiting.live.ask_to_park(&shared.terms_of_park());
    }
}

/// Waits until a time; for ever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Releases the resources of a run on a thread that may block.
async fn release(resources: Box<dyn Any + Send>, at_end: Option<AtEnd>) {
    // Those of most agents are empty, and each change of threads has its price.
    if at_end.is_none() && resources.is::<()>() {
        return;
    }
    blocking(move || {
        drop(resources);
        if let Some(at_end) = at_end {
            at_end();
        }
    })
    .await;
}

/// Builds the agent of a run, on a thread that may block.
async fn build(shared: &Arc<Shared>, waiting: &Waiting) -> Result<BuiltAgent, String> {
    let name = &waiting.request.agent;
    let source = shared.agents.get(name).cloned();
    let source = source.ok_or_else(|| format!("the agent {name:?} is no longer configured"))?;
    let mut limits = waiting.request.limits_over(&source.limits())?;
    let (run_id, task) = (waiting.id.clone(), waiting.request.task.clone());
    let (journal, resume) = (shared.journal.clone(), waiting.resume);
    let built = blocking(move || {
        // Without it a limit that a client has lowered would be forgotten.
        if resume && let Ok(recorded) = journal.load(&run_id) {
            limits = recorded.tightened(&limits);
        }
        source.build(&RunPlan { run_id, task, limits, journal })
    })
    .await;
    built.unwrap_or_else(|| Err("the code that builds the agent panicked".to_owned()))
}

/// Starts or resumes the run, or starts it as a branch.
fn start(agent: &endstop::Agent, waiting: &Waiting) -> Result<RunHandle, String> {
    let start = || {
        if waiting.resume {
            agent.resume(Resume::new(&waiting.id))
        } else if let Some(origin) = &waiting.request.origin {
            agent.branch(origin.branch(&waiting.id))
        } else {
            agent.run(RunInput::new(&waiting.request.task).id(&waiting.id))
        }
    };
    let started = TraceParent::above(waiting.request.trace_parent.as_ref(), start);
    started.map_err(|error| match error {
        StartError::Changed(_) => format!("the agent has changed since the run started: {error}"),
        error => error.to_string(),
    })
}

/// Starts a run and stops it before anything of it is performed, so that its ending is decided and
/// journalled by the kernel. Returns its events.
async fn stopped(
    agent: &endstop::Agent,
    waiting: &Waiting,
    stop: Stop,
) -> Result<Vec<AgentEvent>, String> {
    let (agent, waiting) = (agent.clone(), waiting.clone());
    let ended = blocking(move || {
        // On a runtime with one thread the run's task cannot begin before this task waits, and by
        // then the run is stopped.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let mut handle = start(&agent, &waiting)?;
            match stop {
                Stop::Cancel => handle.cancel(),
                Stop::Terminate => handle.terminate(),
            }
            let mut events = Vec::new();
            while let Some(event) = handle.next().await {
                events.push(event);
            }
            agent.settled().await;
            Ok(events)
        })
    });
    ended.await.unwrap_or_else(|| Err("the code of the agent panicked".to_owned()))
}

/// Ends a run that cannot be started or resumed. If the journal has a part of it, the journal gets
/// the ending too.
async fn end_unstarted(shared: &Arc<Shared>, waiting: &Waiting, why: String) -> Ending {
    let (own, id) = (Arc::clone(shared), waiting.id.clone());
    let cause = own.secrets.out_of_text(&why).into_owned();
    let ended = blocking(move || -> Result<Outcome, String> {
        match end_interrupted(&own.journal, &id, &cause) {
            Ok(outcome) => Ok(outcome),
            Err(error) => {
                if error.kind != JournalErrorKind::NotFound {
                    (own.report)(&error.to_string());
                }
                Err(cause)
            }
        }
    });
    let outcome = if waiting.resume { ended.await } else { None };
    match outcome {
        Some(Ok(outcome)) => Ending::of(&outcome),
        Some(Err(why)) => Ending::interrupted(&why),
        None => Ending::interrupted(&why),
    }
}

/// Runs code that may block. `None` if it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Waits until no run works any more, at most for this long.
pub(super) async fn idle(shared: &Shared, most: Duration) -> bool {
    let waited = tokio::time::timeout(most, async {
        loop {
            // Before the check, so that a run that ends in between is not missed.
            let ended = shared.ended.notified();
            if shared.state().running == 0 {
                return;
            }
            ended.await;
        }
    });
    waited.await.is_ok()
}
