//! Keeps a run in its journal: each event before what it asks for is done, a turn's deltas joined.
//!
//! ```ignore
//! let before = recorder.before(&event);             // as JSON, before the kernel takes it
//! let step = run.handle(event, &mut effects);
//! recorder.after(before, &effects, ended);          // on disk when this returns
//! perform(effects);
//! ```
//!
//! A journal that fails does not end the run: what could not be kept is given again with what comes
//! next, and the failure is told once. One that panics is given up.

use super::user_code;
use crate::journal::briefs;
use crate::journal::{Journal, JournalError, JournalErrorKind, Record, RunHeader, RunJournal};
use endstop_core::joiner::Mark;
use endstop_core::{Effect, EffectId, Event, EventKind, Joiner, Outcome, TurnDelta};
use endstop_wire::redact::KnownKeys;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Deltas that waited so long are kept: a call that is lost with its process is then booked for all
/// but its last moment.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// So much of them is kept at once.
const MOST_WAITING: u64 = 4096;
/// Most events are no longer, in bytes.
const USUAL_EVENT: usize = 1024;
/// What waits for a journal that fails, in bytes, before the journal is given up.
const MOST_BEHIND: usize = 64 << 20;

#[derive(Default)]
pub(super) struct Recorder {
    log: Option<Box<dyn RunJournal>>,
    keys: KnownKeys,
    joiner: Joiner,
    joined_at: Duration,
    /// Not kept yet.
    batch: Vec<Record>,
    behind: usize,
    problem: Option<JournalError>,
    told: bool,
}

/// What is kept of an event.
pub(super) enum Before {
    /// It waits with those before it.
    Delta {
        call: EffectId,
        at: Duration,
        mark: Mark,
    },
    /// A response that is whole, and counted: nothing is estimated by what was streamed of it.
    Turn(EffectId, Record),
    Other(Record),
}

impl Recorder {
    pub(super) fn new(log: Box<dyn RunJournal>, keys: KnownKeys) -> Recorder {
        Recorder { log: Some(log), keys, ..Recorder::default() }
    }

    /// Of a run that begins.
    pub(super) fn begin(journal: &dyn Journal, header: &RunHeader, keys: KnownKeys) -> Recorder {
        match catch_unwind(AssertUnwindSafe(|| journal.begin(header))) {
            Ok(Ok(log)) => Recorder::new(log, keys),
            Ok(Err(problem)) => Recorder::failed(problem),
            Err(payload) => Recorder::failed(panicked(&keys, payload)),
        }
    }

    /// One whose journal did not take the run.
    fn failed(problem: JournalError) -> Recorder {
        Recorder { problem: Some(problem), ..Recorder::default() }
    }

    pub(super) fn before(&mut self, event: &Event) -> Option<Before> {
        self.log.as_ref()?;
        Some(match event.kind {
            EventKind::Delta { call, ref delta } => {
                for event in self.joiner.earlier(call) {
                    self.keep(&event, &[], None);
                }
                if self.joiner.waiting() == 0 {
                    self.joined_at = event.at;
                }
                let mark = self.joiner.push(call, delta, event.at);
                Before::Delta { call, at: event.at, mark }
            }
            EventKind::TurnEnded { call, ref turn }
                if turn.usage.input_tokens.is_some() && turn.usage.generated_tokens().is_some() =>
            {
                Before::Turn(call, self.record(event))
            }
            _ => Before::Other(self.record(event)),
        })
    }

    /// The kernel took the event, and asks for this. Kept when it returns, but for deltas that
    /// nothing was decided on.
    pub(super) fn after(&mut self, before: Option<Before>, effects: &[Effect], ended: bool) {
        let Some(before) = before else { return };
        let record = match before {
            Before::Delta { at, .. } if effects.is_empty() && !ended => {
                let waited = at.saturating_sub(self.joined_at);
                if waited >= LONGEST_WAIT || self.joiner.waiting() >= MOST_WAITING {
                    self.join();
                }
                return self.commit();
            }
            Before::Delta { call, at, mark } => {
                let delta = self.joiner.take_back(mark);
                let delta = delta.unwrap_or(TurnDelta::Text(String::new()));
                self.record(&Event::new(at, EventKind::Delta { call, delta }))
            }
            Before::Turn(call, record) => {
                // One that came too late counts as cut, and is booked by its deltas.
                if !effects.iter().any(|effect| matches!(effect, Effect::AbortModel { .. })) {
                    self.joiner.forget(call);
                }
                record
            }
            Before::Other(record) => record,
        };
        self.join();
        self.push(Record { effects: briefs(effects).map(|text| self.clean(text)), ..record });
        self.commit();
    }

    /// Keeps an event as it is, with what was asked for then.
    pub(super) fn keep(&mut self, event: &Event, effects: &[Effect], wall_ms: Option<u64>) {
        if self.log.is_some() {
            let record = self.record(event);
            let wall_ms = wall_ms.unwrap_or(record.wall_ms);
            let effects = briefs(effects).map(|text| self.clean(text));
            self.push(Record { wall_ms, effects, ..record });
        }
    }

    /// Keeps now what was given to be kept.
    pub(super) fn write(&mut self) {
        self.join();
        self.commit();
    }

    /// The run has ended so.
    pub(super) fn ended(&mut self, outcome: &Outcome) {
        self.write();
        if !self.batch.is_empty() {
            return;
        }
        let text = self.clean(serde_json::to_string(outcome).unwrap_or_default());
        let Some(log) = &mut self.log else { return };
        match catch_unwind(AssertUnwindSafe(|| log.ended(outcome, &text))) {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => drop(self.problem.get_or_insert(problem)),
            Err(payload) => self.give_up(Some(payload)),
        }
    }

    /// What went wrong, once.
    pub(super) fn problem(&mut self) -> Option<String> {
        let problem = self.problem.as_ref().filter(|_| !self.told)?.to_string();
        self.told = true;
        Some(format!("the journal does not keep this run: {problem}"))
    }

    fn join(&mut self) {
        for event in self.joiner.take() {
            self.keep(&event, &[], None);
        }
    }

    fn record(&self, event: &Event) -> Record {
        let mut text = Vec::with_capacity(USUAL_EVENT);
        if serde_json::to_writer(&mut text, &event.kind).is_err() {
            text.clear();
        }
        // JSON is text.
        let text = String::from_utf8(text).unwrap_or_default();
        Record {
            at: event.at,
            wall_ms: crate::clock::wall_ms(),
            name: event.kind.name().to_owned(),
            event: self.clean(text),
            effects: None,
        }
    }

    fn clean(&self, text: String) -> String {
        match self.keys.out_of_text(&text) {
            std::borrow::Cow::Borrowed(_) => text,
            std::borrow::Cow::Owned(clean) => clean,
        }
    }

    fn push(&mut self, record: Record) {
        self.behind += record.event.len();
        self.batch.push(record);
    }

    fn commit(&mut self) {
        let Some(log) = &mut self.log else { return };
        if self.batch.is_empty() {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| log.append(&self.batch))) {
            Ok(Ok(())) => {
                self.batch.clear();
                self.behind = 0;
            }
            Ok(Err(problem)) => {
                self.problem.get_or_insert(problem);
                if self.behind > MOST_BEHIND {
                    self.give_up(None);
                }
            }
            Err(payload) => self.give_up(Some(payload)),
        }
    }

    /// A journal has no holes: what comes later would be none of this run.
    fn give_up(&mut self, payload: Option<Box<dyn Any + Send>>) {
        if let Some(payload) = payload {
            let problem = panicked(&self.keys, payload);
            self.problem.get_or_insert(problem);
        }
        self.batch = Vec::new();
        user_code::let_go(self.log.take());
    }
}

fn panicked(keys: &KnownKeys, payload: Box<dyn Any + Send>) -> JournalError {
    JournalError {
        journal: "the journal's code".to_owned(),
        problem: format!("it panicked: {}", user_code::words(keys, payload)),
        kind: JournalErrorKind::Io,
    }
}
