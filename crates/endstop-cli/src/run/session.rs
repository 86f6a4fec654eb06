//! A run with everything around it: event file, signals, screen, verifier and card.

use super::agent::Built;
use super::approve::{Asked, Question, answered, ask, next};
use super::cassette::Cassette;
use super::events::{EventFile, Keep};
use super::line::Line;
use super::signals::{Signals, StopSignal};
use super::start::{Begin, start};
use super::steer::{Messages, Steer, Steered};
use super::stream::StreamedText;
use super::verify::verified;
use crate::config::journal_path;
use crate::control::own_run::OwnRun;
use crate::control::{Control, Controlled};
use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::notify;
use crate::output;
use crate::render::advice::{AFTER_DIVERGENCE, Again, Facts, before_repeats, in_journal, of_demo};
use crate::render::card::{Beside, card};
use crate::render::date::now_ms;
use crate::render::parked::{request_lines, resume_command};
use crate::render::screen::Screen;
use crate::telemetry::{self, Telemetry};
use crate::visible::visible;
use endstop::agent::{Agent, RunHandle};
use endstop::core::visible_text;
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::journal::SqliteJournal;
use endstop::park::{ParkRequest, RunStatus};
use endstop::provider::replay::Warning;
use endstop::telemetry::TraceParent;
use endstop::{Limits, Outcome, Termination};
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The last line of a run's events: its outcome, and the first difference if a replay diverged.
#[derive(Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    diverged: Option<&'a Warning>,
}

/// The exit status of a run that was parked (`EX_TEMPFAIL`).
const PARKED: u8 = 75;

/// A run with everything around it: event file, signals, screen, verifier and card.
pub(crate) struct RunSession {
    pub(crate) built: Built,
    pub(crate) events: Option<NewFile>,
    pub(crate) cassette: Cassette,
    /// The journal that stores the run.
    pub(crate) journal: Option<SqliteJournal>,
    /// The journal's file, if commands need `--journal` to find it.
    pub(crate) named_journal: Option<PathBuf>,
    /// `true` for a demo, whose advice cannot name flags because it has none.
    pub(crate) demo: bool,
    /// `true` if only the answer goes to standard output.
    pub(crate) answer_only: bool,
    /// `true` if a diverged replay exits with the status of its run.
    pub(crate) accept_divergence: bool,
    /// The sources of messages for the model while the run works.
    pub(crate) steer: Steer,
    pub(crate) json: bool,
}

/// The outputs that show a run while it works: the event file and the terminal.
struct View {
    events: Option<EventFile>,
    screen: Screen,
    /// Streamed text that may still be the beginning of a secret.
    streamed: StreamedText,
    /// The limits that apply now.
    limits: Limits,
    /// The facts for other commands.
    own: Option<Arc<OwnRun>>,
}

/// The state in which this process leaves a run.
enum Stopped {
    Ended(Arc<Outcome>),
    Parked(Arc<ParkRequest>),
}

impl Stopped {
    fn of(status: RunStatus) -> Result<Stopped> {
        match status {
            RunStatus::Ended(outcome) => Ok(Stopped::Ended(outcome)),
            RunStatus::Parked(request) => Ok(Stopped::Parked(request)),
            _ => Err(Failure::fault("the run ended without an outcome")),
        }
    }
}

impl RunSession {
    /// Runs the task to its end and returns the exit status.
    pub(crate) fn perform(&self, runtime: Runtime, begin: Begin) -> Result {
        output::hide(&self.built.secrets);
        let telemetry = Telemetry::begin(&self.built.secrets, self.built.allow_http);
        let status = runtime.block_on(self.drive(begin));
        // Not a plain drop: a thread that still reads the terminal would block the exit until a
        // line is typed.
        runtime.shutdown_background();
        telemetry.end();
        status
    }

    async fn drive(&self, begin: Begin) -> Result {
        let Built { agent, servers, secrets, questions, notifier, limits, .. } = &self.built;
        let events = match &self.events {
            Some(file) => Some(EventFile::create(file)?),
            None => None,
        };
        // Before the run starts, so that a wrong file costs nothing.
        let asked = questions.take();
        let mut messages = Messages::open(&self.steer, asked.is_some())?;
        questions.set(asked);
        // Registered before the run starts, because until then a signal kills the process.
        let mut signals = Signals::listen()?;
        let streamed = StreamedText::new(secrets.clone());
        let (screen, limits) = (Screen::new(limits.clone()), limits.clone());
        let mut view = View { events, screen, streamed, limits, own: None };
        view.screen.answer_only = self.answer_only;
        let begun = || start(agent, begin, &mut view.screen);
        let mut handle = TraceParent::above(telemetry::parent().as_ref(), begun)?;
        let own = Arc::new(OwnRun::new(agent.clone(), &handle));
        // Bound to a name, because dropping it closes the socket.
        let _control = Control::open(Arc::clone(&own) as Arc<dyn Controlled>);
        view.own = Some(own);
        let (stopped, mut heard) =
            self.follow(&mut handle, &mut view, (&mut signals, &mut messages)).await?;
        // Tools may outlive the outcome by their grace time; servers close only when no tool uses
        // them.
        agent.settled().await;
        servers.close().await;
        view.screen.end_line();
        let outcome = match stopped {
            Stopped::Ended(outcome) => outcome,
            Stopped::Parked(request) => {
                return Ok(self.parked(handle.run_id(), &request, &mut view));
            }
        };
        let mut outcome = Arc::unwrap_or_clone(outcome);
        let mut unverified = false;
        if let Some(command) = self.built.verify.as_ref().filter(|_| outcome.is_success()) {
            if heard == StopSignal::Nothing {
                (outcome.verified, heard) =
                    verified(command, self.built.dir.as_deref(), self.json, &mut signals).await;
            }
            unverified = heard != StopSignal::Nothing;
        }
        self.cassette.ended(&outcome);
        self.warn(&mut view);
        let diverged = self.cassette.divergence();
        let ended = Ended { outcome: &outcome, diverged: diverged.as_ref() };
        if let Some(events) = &mut view.events {
            // Before the card: a reader of the file must find the outcome as soon as the terminal
            // shows it.
            events.write(&ended, Keep::Now);
            events.finish();
        }
        let beside = self.beside(&outcome, diverged.as_ref(), unverified);
        if self.json {
            output::json(&ended);
        } else {
            show_answer(&outcome, self.answer_only);
            let card = card(
                &outcome,
                &view.limits,
                &beside,
                view.screen.color(),
                output::terminal_width(),
            );
            output::painted_note(&format!("\n{card}"));
        }
        notifier.ended(&outcome);
        notifier.finish();
        Ok(match heard {
            StopSignal::Terminate => 143,
            // The run succeeded, but the verifier gave no result, so the status must not be 0.
            StopSignal::Interrupt if unverified => 130,
            // The replay differs from the recorded run, so its ending does not show how the
            // recorded run ends.
            StopSignal::Nothing if diverged.is_some() && !self.accept_divergence => 2,
            StopSignal::Nothing | StopSignal::Interrupt => outcome.exit_status(),
        })
    }

    /// Prints the request of the parked run, and returns the exit status.
    fn parked(&self, run_id: &str, request: &ParkRequest, view: &mut View) -> u8 {
        let line = notify::parked(run_id, request);
        if let Some(events) = &mut view.events {
            events.write(&line, Keep::Now);
            events.finish();
        }
        if self.json {
            output::json(&line);
        } else if let Some(journal) = &self.journal {
            let named = self.named_journal.as_deref();
            let resume = resume_command(journal, run_id, named);
            let stored = journal.pending().unwrap_or_default();
            if let Some(parked) = stored.iter().find(|parked| parked.run_id == run_id) {
                let lines = request_lines(parked, &resume, now_ms(), named);
                output::note(&format!("\nparked: {lines}"));
            }
        }
        self.built.notifier.parked(run_id, request);
        self.built.notifier.finish();
        PARKED
    }

    /// Builds the additional rows of the card, and stores the verifier's result in the journal.
    fn beside(&self, outcome: &Outcome, diverged: Option<&Warning>, unverified: bool) -> Beside {
        let mut beside = Beside { unverified, ..Beside::default() };
        let facts = Facts::of(outcome);
        let (mut again, mut back) = (None, None);
        if self.journal.is_none() {
            beside.run = journal_path::not_stored(self.named_journal.as_deref(), None);
        }
        if let (Some(journal), Some(id)) = (&self.journal, outcome.run_id.as_deref()) {
            if let Some(verified) = outcome.verified
                && let Err(error) = journal.verified(id, verified)
            {
                output::note(&format!(
                    "endstop: the verifier's result could not be stored: {error}"
                ));
            }
            if let Ok(id) = journal.find(id) {
                let named = self.named_journal.as_deref();
                if facts.remedy().is_some()
                    && let Ok(recorded) = journal.load(&id)
                {
                    again = Again::of(facts, &recorded, &id, named);
                    back = before_repeats(outcome, &recorded, &id, named);
                }
                let explain = in_journal(&format!("endstop explain {id}"), named);
                beside.run = Some(format!("{id} ({explain})"));
            }
        }
        let mut next = match diverged {
            Some(_) => AFTER_DIVERGENCE.to_owned(),
            None => {
                back.unwrap_or_else(|| facts.next(again.as_ref(), self.named_journal.as_deref()))
            }
        };
        if self.demo && facts.is_failure() {
            next = of_demo(&next);
        }
        beside.next = Some(next);
        beside.diverged = diverged.map(|diverged| diverged.message.clone());
        beside
    }

    /// Reports each difference from the recording.
    fn warn(&self, view: &mut View) {
        for warning in self.cassette.warnings() {
            if let Some(events) = &mut view.events {
                events.write(&warning, Keep::Now);
            }
            if self.json {
                output::json(&warning);
            }
            view.screen.end_line();
            output::note(&format!("⚠ {}", visible(&warning.message)));
        }
    }

    /// Shows events until the run has ended, and reacts to signals.
    async fn follow(
        &self,
        handle: &mut RunHandle,
        view: &mut View,
        (signals, messages): (&mut Signals, &mut Messages),
    ) -> Result<(Stopped, StopSignal)> {
        let mut heard = StopSignal::Nothing;
        let agent = &self.built.agent;
        let mut questions = self.built.questions.take();
        let mut asked: Option<Asked> = None;
        let mut redraw = tokio::time::interval(Duration::from_millis(200));
        // A late redraw is not made up for, because it would show the same state again.
        redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                // Biased, so that a signal is handled before a flood of events, and a question is
                // asked only after the events before it were shown.
                biased;
                signal = signals.next() => {
                    react(signal, &mut heard, agent);
                    if asked.is_some() {
                        // The cursor is after the question's prompt.
                        output::note("");
                    }
                    view.screen.end_line();
                    output::note(&format!("■ {}", signal.words(agent.lifecycle())));
                }
                stopped = self.cassette.hung_up() => {
                    stop_like(stopped, agent, &mut view.screen);
                    self.warn(view);
                }
                event = handle.next() => match event {
                    Some(AgentEvent { kind: AgentEventKind::Finished { outcome, .. }, .. }) => {
                        view.screen.resume();
                        for line in view.streamed.rest() {
                            self.write(&line, view);
                        }
                        return Ok((Stopped::Ended(outcome), heard));
                    }
                    Some(event) => {
                        self.show(event, view);
                    }
                    None => return Ok((Stopped::of(handle.status())?, heard)),
                },
                // Reached only if no event is ready.
                () = std::future::ready(()), if view.streamed.is_waiting() => {
                    if let Some(line) = view.streamed.started() {
                        self.write(&line, view);
                    }
                }
                question = next(&mut questions), if asked.is_none() => {
                    view.screen.pause();
                    let Question { call, answer } = question;
                    // One question at a time: the others wait in the channel until this one is
                    // answered.
                    asked = Some(Asked { typed: ask(call), answer });
                }
                message = messages.next() => {
                    steer(handle, message, &mut view.screen);
                }
                typed = answered(&mut asked), if asked.is_some() => {
                    match (typed, asked.take()) {
                        // The run may have stopped waiting for the answer.
                        (Some(typed), Some(asked)) => drop(asked.answer.send(typed)),
                        _ => output::note("\n? the question was withdrawn"),
                    }
                    view.screen.resume();
                }
                _ = redraw.tick(), if view.screen.terminal && !self.json => {
                    view.screen.draw_status();
                }
            }
        }
    }

    /// Shows an event on the screen or writes it, with what the replay has noticed since.
    fn show(&self, event: AgentEvent, view: &mut View) {
        if let Some(own) = &view.own {
            own.saw(&event);
        }
        if let AgentEventKind::LimitsChanged { limits } = &event.kind
            && event.path().is_empty()
        {
            limits.apply(&mut view.limits);
        }
        if !self.json {
            view.screen.show(&event);
        }
        if self.json || view.events.is_some() {
            for line in view.streamed.take(event) {
                self.write(&line, view);
            }
        }
        self.warn(view);
    }

    /// Writes a line to the file of events and, with `--json`, to standard output.
    fn write(&self, line: &Line, view: &mut View) {
        if let Some(events) = &mut view.events {
            // Deltas are flushed later: a crash may lose streamed text, but never an event of the
            // run.
            let delta = matches!(line, Line::Delta(_));
            events.write(line, if delta { Keep::Soon } else { Keep::Now });
        }
        if self.json {
            output::json(line);
        }
    }
}

/// Sends a message of the user to the model.
fn steer(handle: &RunHandle, message: Steered, screen: &mut Screen) {
    let sent = match message {
        Steered::Line(text) => handle.say(text).map_err(|error| error.to_string()),
        Steered::TooLong => Err("the line is too long; at most 64 KiB are allowed".to_owned()),
    };
    screen.end_line();
    match sent {
        Ok(()) => output::note("· the message is sent with the next model call"),
        Err(problem) => output::note(&format!("⚠ the message was not sent: {problem}")),
    }
}

/// The first signal cancels the runs of the agent; any later one terminates them.
fn react(signal: StopSignal, heard: &mut StopSignal, agent: &Agent) {
    if *heard == StopSignal::Nothing {
        *heard = signal;
        agent.cancel();
    } else {
        agent.terminate();
    }
}

/// Stops the run if the recorded run was stopped at this point.
fn stop_like(recorded: Option<Termination>, agent: &Agent, screen: &mut Screen) {
    match recorded {
        Some(Termination::Terminated) => agent.terminate(),
        Some(_) => agent.cancel(),
        None => {}
    }
    if let Some(how) = recorded {
        screen.end_line();
        output::note(&format!("■ the recorded run was {how} at this point"));
    }
}

/// Prints the answer to standard output, unless its text was streamed there already; `alone` means
/// that no text was.
fn show_answer(outcome: &Outcome, alone: bool) {
    if !outcome.is_success() {
        return;
    }
    let Some(answer) = outcome.answer() else { return };
    let streamed = outcome.last_text.as_deref().map(visible_text);
    if alone || streamed != Some(answer.as_str()) {
        // A pipe gets the answer unchanged, because a program reads it.
        let shown = if io::stdout().is_terminal() { visible(&answer) } else { answer };
        output::answer(&format!("{shown}\n"));
    }
}
