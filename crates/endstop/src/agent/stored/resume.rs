//! Resumes a run from the journal: one whose process died, or one that ended without success and
//! now has what it lacked.
//!
//! ```
//! # #[cfg(feature = "journal")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use endstop::journal::SqliteJournal;
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::{Agent, Limits, Termination};
//! use serde_json::json;
//!
//! # let dir = tempfile::tempdir()?;
//! let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
//! let agent = |max_turns| {
//!     let script = [Turn::call("look", &json!({})), Turn::text("Paris.")];
//!     Agent::builder(ScriptedModel::new(script.into_iter().skip(max_turns as usize - 1)))
//!         .limits(Limits { max_turns: Some(max_turns), ..Limits::default() })
//!         .journal(journal.clone())
//!         .build()
//! };
//! let outcome = agent(1)?.run("What is the capital of France?")?.outcome().await;
//! assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
//!
//! // With one more turn it resumes after the last one. What it spent still counts.
//! let id = outcome.run_id.unwrap();
//! let outcome = agent(2)?.resume(id)?.outcome().await;
//! assert_eq!((outcome.termination, outcome.turns), (Termination::Stop, 2));
//! # Ok(()) }
//! # #[cfg(not(feature = "journal"))] fn main() {}
//! ```

use super::end_interrupted::record;
use crate::agent::driver::{Beginning, ResumedRun};
use crate::agent::handle::RunHandle;
use crate::agent::recorder::Recorder;
use crate::agent::session::Session;
use crate::agent::setup::config::Config;
use crate::agent::setup::policy::PolicyTemplate;
use crate::agent::shared::Agent;
use crate::agent::start::conversation::Conversation;
use crate::agent::start::run_setup::Opened;
use crate::agent::start::start_error::StartError;
use crate::clock::wall_ms;
use crate::journal::{Journal, RecordedRun, RunHeader, RunJournal};
use crate::park::{Answer, AnswerRefused, ParkHistory, decided};
use crate::provider::ModelParams;
use crate::schema::OutputSchema;
use endstop_core::replay::{self, CannotResume, Resumed, close};
use endstop_core::{Event, MessageId, Outcome, Price, Replay, Resumption, RunSpec, Step};
use endstop_wire::redact::KnownKeys;
use std::sync::Arc;
use std::time::Duration;

/// The run to resume, and the differences to accept.
#[derive(Clone, Debug)]
#[must_use]
pub struct Resume {
    run: String,
    params: ModelParams,
    schema: Option<Arc<OutputSchema>>,
    answer: Option<Answer>,
    accept_changes: bool,
    accept_redacted: bool,
}

impl Resume {
    /// Resumes the run with this id.
    pub fn new(run: impl Into<String>) -> Resume {
        Resume {
            run: run.into(),
            params: ModelParams::default(),
            schema: None,
            answer: None,
            accept_changes: false,
            accept_redacted: false,
        }
    }

    /// Sets parameters of the requests from here on, as [`RunInput::params`] does for a new run.
    /// Those that are set replace the agent's. Parameters that differ from those of the run are a
    /// change to [accept](Self::accept_changes).
    ///
    /// [`RunInput::params`]: crate::RunInput::params
    pub fn params(mut self, params: ModelParams) -> Resume {
        self.params = params;
        self
    }

    /// Sets the schema of the run's answer, which replaces the agent's. A run that
    /// [`run_typed`](crate::Agent::run_typed) started has the schema of its type; resume it with
    /// [`resume_typed`](crate::Agent::resume_typed), or with the same schema here. Another one is a
    /// change to [accept](Self::accept_changes).
    ///
    /// ```
    /// use endstop::{Resume, schema::OutputSchema};
    /// let schema = OutputSchema::new(serde_json::json!({"type": "object", "required": ["age"]}))?;
    /// let how = Resume::new("018f2b6e").output_schema(schema);
    /// # let _ = how;
    /// # Ok::<(), endstop::schema::SchemaError>(())
    /// ```
    pub fn output_schema(mut self, schema: OutputSchema) -> Resume {
        self.schema = Some(Arc::new(schema));
        self
    }

    /// Decides the request of a [parked](crate::park) run, and resumes it. The journal has the
    /// decision before the run continues. A run that waits for no decision, or whose request was
    /// decided before, is not resumed.
    pub fn answer(mut self, answer: Answer) -> Resume {
        self.answer = Some(answer);
        self
    }

    /// Resumes even if the agent's model, tools, system prompt, policy or schema differ from those
    /// the run began with. Limits may always differ; those of the agent apply,
    /// also in place of limits that were [changed](crate::Steering::set_limits) while the run worked.
    pub fn accept_changes(mut self) -> Resume {
        self.accept_changes = true;
        self
    }

    /// Resumes even if secrets were removed from the conversation when it was journalled
    /// ([`RecordedRun::redacted`]). The model receives `[redacted]` in their place.
    pub fn accept_redacted(mut self) -> Resume {
        self.accept_redacted = true;
        self
    }
}

impl<T: Into<String>> From<T> for Resume {
    fn from(run: T) -> Resume {
        Resume::new(run)
    }
}

impl Agent {
    /// Resumes a run of the agent's journal, in a new conversation; see [`Session::resume`].
    ///
    /// # Errors
    /// Those of [`Session::resume`].
    pub fn resume(&self, how: impl Into<Resume>) -> Result<RunHandle, StartError> {
        self.session().resume(how)
    }
}

impl Session {
    /// Resumes a run of the agent's journal. The run's conversation replaces the session's.
    ///
    /// Finished work is not repeated. A model call that was in progress is repeated, and its first
    /// attempt is charged as an estimate. A tool that was running starts again if it is
    /// [repeatable](crate::tool::Tool::repeatable); otherwise the model reads that it may have
    /// run. The run's clock continues from the interruption: the time in between does not count.
    ///
    /// A run whose process died keeps its id, which `SqliteJournal::interrupted` lists. The handle has the
    /// events from here on; the outcome counts the turns and the cost of the whole run. A run that had ended keeps its outcome; it continues
    /// as a new run with the same history, from the point before the ending was decided.
    ///
    /// # Errors
    /// Those of [`run`](Self::run). The journal has no such run, or another process drives it; the
    /// run succeeded, or would end again at once; the agent's configuration differs from the run's;
    /// or secrets were removed from the conversation.
    pub fn resume(&self, how: impl Into<Resume>) -> Result<RunHandle, StartError> {
        let how = how.into();
        let slot = self.take_slot()?;
        let config = &slot.agent().config;
        let Some(journal) = &config.journal else {
            return Err(StartError::NoJournal);
        };
        let params = how.params.over(&config.params);
        let schema = how.schema.clone().or_else(|| config.schema.clone());
        if !how.params.is_empty() || how.schema.is_some() {
            config.check_params(&params, schema.as_ref())?;
        }
        let opened = Opened::new(config, params, schema);
        let resumed = find(&**journal, config, opened, &how)?;
        Ok(slot.launch(Beginning::Resumed(Box::new(resumed))))
    }
}

fn find(
    journal: &dyn Journal,
    config: &Config,
    opened: Opened,
    how: &Resume,
) -> Result<ResumedRun, StartError> {
    let (mut recorded, mut log) = take_over(journal, &how.run)?;
    let nothing = Conversation::new(Vec::new(), 0);
    let now = opened.spec(config, nothing, how.run.clone());
    let header = opened.header(config, &now);
    check(&recorded, &header, how)?;
    let keys = config.known_keys().and(&opened.known_keys());
    if let Some(answer) = &how.answer {
        log = Some(decide(journal, &mut recorded, log.take(), answer, &keys)?);
    }
    let with = resumption(&recorded, now, opened.price(config));
    let past = Past { config, how, recorded, with };
    let (resumes, input) = (how.run.clone(), past.input());
    // The process may have died after the ending was decided and before it was written.
    if let Some((events, mut outcome)) = log.as_ref().and_then(|_| past.decided())
        && let Some(log) = log.take()
    {
        let mut recorder = Recorder::new(journal, log, keys.clone());
        record(&mut recorder, past.spec(), &past.recorded, &events);
        // A success needs no continuation, and a run whose cause of its ending has not changed has
        // none: store the outcome and return it.
        if outcome.is_success() || past.ends_again() {
            let (step, at) = (Step::Ended(outcome), Duration::ZERO);
            let (perform, recorder) = (Vec::new(), Box::new(recorder));
            let id = how.run.clone();
            let parks = ParkHistory::default();
            return Ok(ResumedRun {
                opened,
                step,
                perform,
                at,
                recorder,
                resumes,
                id,
                input,
                parks,
            });
        }
        recorder.ended(&mut outcome);
    }
    let Continuation { id, on, spec, log } = match log {
        // The process died, so this is still the same run.
        Some(log) => past.same_run(log)?,
        None => past.new_run(journal, header)?,
    };
    let parks = ParkHistory::of(&on.events);
    let mut recorder = Recorder::new(journal, log, keys);
    let at = on.events.last().map(|event| event.at).unwrap_or_default();
    past.record(&mut recorder, &on, spec);
    let (step, perform, recorder) = (on.step, on.perform, Box::new(recorder));
    Ok(ResumedRun { opened, step, perform, at, recorder, resumes, id, input, parks })
}

/// Loads the run. If it has not ended, takes it over from the process that drove it, and returns
/// its journal too.
fn take_over(
    journal: &dyn Journal,
    run: &str,
) -> Result<(RecordedRun, Option<Box<dyn RunJournal>>), StartError> {
    let recorded = journal.load(run)?;
    if recorded.outcome.is_some() {
        return Ok((recorded, None));
    }
    // `resume` takes ownership. Load again, because the other process may have written more before
    // that.
    let log = journal.resume(run)?;
    Ok((journal.load(run)?, Some(log)))
}

/// Journals the decision about the request of a parked run.
fn decide(
    journal: &dyn Journal,
    recorded: &mut RecordedRun,
    log: Option<Box<dyn RunJournal>>,
    answer: &Answer,
    keys: &KnownKeys,
) -> Result<Box<dyn RunJournal>, StartError> {
    let run = recorded.header.id.clone();
    let Some(log) = log else {
        let ended = recorded.outcome.as_ref().and_then(|outcome| outcome["termination"].as_str());
        let termination = ended.unwrap_or("unknown").to_owned();
        return Err(AnswerRefused::Ended { run, termination }.into());
    };
    let (history, now_ms) = (ParkHistory::of(&recorded.events), wall_ms());
    let (kind, refused) = match (decided(&run, &history, answer, now_ms), history.open()) {
        (Ok(kind), _) => (kind, None),
        // The expiry is journalled as well, so that a clock that is set back changes nothing.
        (Err(refused @ AnswerRefused::Expired { .. }), Some(request)) => {
            (ParkHistory::expiry(request, now_ms), Some(refused))
        }
        (Err(refused), _) => return Err(refused.into()),
    };
    let at = recorded.events.last().map(|event| event.at).unwrap_or_default();
    let event = Event::new(at, kind);
    let mut recorder = Recorder::new(journal, log, keys.clone());
    recorder.add(&event);
    recorder.write();
    if let Some(problem) = recorder.failure() {
        return Err(problem.into());
    }
    if let Some(refused) = refused {
        return Err(refused.into());
    }
    recorded.events.push(event);
    recorded.wall_ms.push(now_ms);
    recorded.effects.push(Vec::new());
    recorder.take_log().ok_or(StartError::NoJournal)
}

/// Checks that the run is complete, and that the caller accepts how it differs from the agent's.
fn check(recorded: &RecordedRun, header: &RunHeader, how: &Resume) -> Result<(), StartError> {
    if let Some(damage) = &recorded.damage {
        return Err(StartError::Damaged { run: how.run.clone(), damage: damage.clone() });
    }
    let changes = recorded.changes(header);
    if !changes.is_empty() && !how.accept_changes {
        return Err(StartError::Changed(changes));
    }
    if recorded.redacted > 0 && !how.accept_redacted {
        return Err(StartError::Redacted(recorded.redacted));
    }
    Ok(())
}

/// A journalled run that the agent may resume.
struct Past<'a> {
    config: &'a Config,
    how: &'a Resume,
    recorded: RecordedRun,
    with: Resumption,
}

/// A run at the point where it continues, with the journal that it continues in.
struct Continuation {
    id: String,
    on: Resumed,
    spec: RunSpec,
    log: Box<dyn RunJournal>,
}

impl Past<'_> {
    /// Returns the run's settings, with a copy of the agent's policy.
    fn spec(&self) -> RunSpec {
        self.recorded.header.spec.clone_with(self.config.policy.as_ref().map(PolicyTemplate::copy))
    }

    /// Returns the newest message of the run's input.
    fn input(&self) -> Option<MessageId> {
        self.recorded.header.spec.messages.iter().map(|message| message.id).max()
    }

    /// Returns the outcome that was decided, with the events that led to it since the last record.
    fn decided(&self) -> Option<(Vec<Event>, Box<Outcome>)> {
        close(self.spec(), &self.recorded.events)
    }

    /// Returns the run with this id, and its settings.
    fn at_interruption(&self, id: &str) -> Result<(Resumed, RunSpec), StartError> {
        let spec = || RunSpec { run_id: Some(id.to_owned()), ..self.spec() };
        replay::resume(spec, self.recorded.events.clone(), self.with.clone())
            .map_err(|why| StartError::Ended { run: self.how.run.clone(), why })
            .map(|on| (on, spec()))
    }

    /// `true` if the run would end again at once.
    fn ends_again(&self) -> bool {
        let again = self.at_interruption(&self.how.run);
        matches!(again, Err(StartError::Ended { why: CannotResume::EndsAgain(_), .. }))
    }

    /// Continues the run under its id.
    fn same_run(&self, log: Box<dyn RunJournal>) -> Result<Continuation, StartError> {
        let id = self.how.run.clone();
        let (on, spec) = self.at_interruption(&id)?;
        Ok(Continuation { id, on, spec, log })
    }

    /// Continues the run as a new one that includes the history of the old one, because a run ends
    /// only once.
    fn new_run(
        &self,
        journal: &dyn Journal,
        header: RunHeader,
    ) -> Result<Continuation, StartError> {
        let id = crate::clock::run_id();
        let (mut on, spec) = self.at_interruption(&id)?;
        // Nothing of the history is in the new run's journal yet.
        on.kept = 0;
        let continues = Some(self.recorded.header.id.clone());
        // The copied history contains the redactions of the old run.
        let redacted = self.recorded.redacted;
        let header = RunHeader {
            id: id.clone(),
            continues,
            redacted,
            spec: spec.clone_with(None),
            ..header
        };
        let log = journal.begin(&header)?;
        Ok(Continuation { id, on, spec, log })
    }

    /// Journals the events that are not in the journal yet. Replays all of them, so that the
    /// journal gets the effects that each of them requested.
    fn record(&self, recorder: &mut Recorder, on: &Resumed, spec: RunSpec) {
        let mut replay = Replay::new(spec);
        for (nth, event) in on.events.iter().enumerate() {
            let effects = replay.feed(event.clone());
            if nth >= on.kept {
                recorder.keep(event, effects, self.recorded.wall_ms.get(nth).copied());
            }
        }
        recorder.write();
    }
}

/// Returns the settings that differ from the recorded run, for the kernel.
fn resumption(recorded: &RecordedRun, now: RunSpec, price: Option<Price>) -> Resumption {
    let then = &recorded.header.spec;
    let changed = |was: &Option<String>, is: Option<String>| if *was == is { None } else { is };
    Resumption {
        limits: Some(now.limits).filter(|limits| *limits != recorded.limits()),
        tools: Some(now.tools).filter(|tools| *tools != then.tools),
        model: changed(&then.model, now.model),
        provider: changed(&then.provider, now.provider),
        price,
        fallbacks: Some(now.fallbacks).filter(|fallbacks| *fallbacks != then.fallbacks),
        output_schema: Some(now.output_schema).filter(|schema| *schema != then.output_schema),
        verifier: Some(now.verifier).filter(|verifier| *verifier != then.verifier),
        wall_ms: Some(crate::clock::wall_ms()),
        ..Resumption::default()
    }
}
