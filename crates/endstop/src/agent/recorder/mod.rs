//! Journals a run: stores each event before the effects that it requests are performed, and merges
//! a turn's deltas into few records.
//!
//! ```text
//! let before = recorder.before(&event);             // as JSON, before the kernel takes it
//! let step = run.handle(event, &mut effects);
//! recorder.after(before, &effects, ended);
//! poll_fn(|cx| recorder.poll_written(cx)).await;    // on disk
//! perform(effects);
//! ```
//!
//! A journal that can write without waiting does so in `after`. Otherwise another thread writes,
//! because the thread of the run has other runs to drive and must react to a cancel.
//!
//! A journal that fails does not end the run: records that could not be stored are retried with the
//! next ones, and the failure is reported once. A journal that panics is not used again.

mod ending;
mod together;

use super::user_code;
use super::user_code::pending::Pending;
use crate::journal::{Journal, JournalError, JournalErrorKind, Record, RunHeader, RunJournal};
use crate::journal::{briefs, with_one_more, without_secrets};
use ending::Ending;
use endstop_core::delta_buffer::Mark;
use endstop_core::{DeltaBuffer, Effect, EffectId, Event, EventKind, Outcome, TurnDelta};
use endstop_wire::redact::{KnownKeys, REDACTED};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Deltas are journalled after this delay at the latest. If the process dies during a call, all but
/// the last moment of it can then be charged.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Size of the unjournalled deltas (bytes of text plus characters of the rest) above which they are
/// journalled without delay.
const MOST_WAITING: u64 = 4096;
/// Initial buffer size for an event's JSON, in bytes. Most events fit.
const USUAL_EVENT: usize = 1024;
/// Size of the unstored records of a failing journal, in bytes, above which the journal is given
/// up.
const MOST_BEHIND: usize = 64 << 20;

/// Least number of bytes at the end of a record that are redacted because they begin a secret.
const LEAST_OPEN: usize = 4;

#[derive(Default)]
pub(super) struct Recorder {
    log: Option<Box<dyn RunJournal>>,
    /// A run that the first write begins.
    begins: Option<(Arc<dyn Journal>, Box<RunHeader>)>,
    /// The end of the run, to be stored after the records.
    ending: Option<Ending>,
    /// A write or the start of the run on another thread, which owns the log in the meantime.
    writing: Option<Pending<Written>>,
    keys: KnownKeys,
    /// These keys, and those that the journal removes itself.
    all_keys: KnownKeys,
    joiner: DeltaBuffer,
    joined_at: Duration,
    /// The end of a call's last journalled text, if it may begin a secret.
    open: Option<(EffectId, String)>,
    /// Records that are not stored yet.
    batch: Vec<Record>,
    /// Records are only stored together with those of other runs, or by `write_alone`.
    is_holding: bool,
    behind: usize,
    problem: Option<JournalError>,
    told: bool,
}

/// A batch that another thread writes, and the result.
struct Written {
    log: Option<Box<dyn RunJournal>>,
    /// Empty once the batch is stored.
    batch: Vec<Record>,
    result: Result<(), Failure>,
}

/// The reason why a journal did not write.
enum Failure {
    Refused(JournalError),
    Panicked(Box<dyn Any + Send>),
}

/// The part of an event that is journalled, computed before the kernel consumes the event.
pub(super) enum Before {
    /// Merged with the deltas before it.
    Delta {
        call: EffectId,
        at: Duration,
        mark: Mark,
    },
    /// A complete response with token counts, so its deltas are not needed for an estimate.
    Turn(EffectId, Record),
    Other(Record),
}

impl Recorder {
    pub(super) fn new(
        journal: &dyn Journal,
        log: Box<dyn RunJournal>,
        keys: KnownKeys,
    ) -> Recorder {
        let all_keys = keys.and(&journal.hidden());
        Recorder { log: Some(log), keys, all_keys, ..Recorder::default() }
    }

    /// Records a new run. Another thread has the journal create it, because that may block.
    pub(super) fn begin(
        journal: Arc<dyn Journal>,
        header: Box<RunHeader>,
        keys: KnownKeys,
    ) -> Recorder {
        let all_keys = keys.and(&hidden(&*journal));
        let begin = move |written: &mut Written| *written = begin(&*journal, &header);
        let nothing = Written { log: None, batch: Vec::new(), result: Ok(()) };
        let writing = Some(Pending::spawn(nothing, begin));
        Recorder { writing, keys, all_keys, ..Recorder::default() }
    }

    /// Redacts these secrets, too, from the records that follow.
    pub(super) fn hide(&mut self, more: &KnownKeys) {
        self.keys = self.keys.and(more);
        self.all_keys = self.all_keys.and(more);
        if let Some((_, header)) = &mut self.begins {
            header.keys = header.keys.and(more);
        }
    }

    /// `true` unless the journal is known to have refused the run or failed for good.
    pub(super) fn is_recording(&self) -> bool {
        self.log.is_some() || self.writing.is_some() || self.begins.is_some()
    }

    /// `true` if every event so far is on disk.
    pub(super) fn is_stored(&self) -> bool {
        self.writing.is_none() && self.batch.is_empty() && self.log.is_some()
    }

    /// Returns the journal's failure, if there was one.
    pub(super) fn failure(&self) -> Option<JournalError> {
        self.problem.clone()
    }

    /// Returns the secrets that the records do not contain.
    pub(super) fn secrets(&self) -> &KnownKeys {
        &self.all_keys
    }

    /// Takes the journal of a run that this process releases.
    pub(super) fn take_log(&mut self) -> Option<Box<dyn RunJournal>> {
        self.log.take()
    }

    pub(super) fn before(&mut self, event: &Event) -> Option<Before> {
        if !self.is_recording() {
            return None;
        }
        Some(match event.kind {
            EventKind::Delta { call, ref delta } => {
                // Journal the deltas of an earlier call first, so that the records keep the order
                // of the events.
                let earlier = self.joiner.earlier(call);
                self.keep_deltas(earlier);
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

    /// Journals an event that the kernel has taken, with the effects it requested. The records are
    /// on disk once [`poll_written`](Self::poll_written) is ready, except deltas that caused no
    /// decision.
    pub(super) fn after(&mut self, before: Option<Before>, effects: &[Effect], ended: bool) {
        let Some(before) = before else { return };
        let record = match before {
            Before::Delta { at, .. } if effects.is_empty() && !ended => {
                let waited = at.saturating_sub(self.joined_at);
                if waited >= LONGEST_WAIT || self.joiner.waiting() >= MOST_WAITING {
                    self.join_settled();
                    self.joined_at = at;
                }
                return self.commit();
            }
            Before::Delta { call, at, mark } => {
                // The kernel decided on this delta, so it needs a record of its own: a replay must
                // reach the same decision at the same delta.
                let delta = self.joiner.take_back(mark);
                let mut delta = delta.unwrap_or(TurnDelta::Text(String::new()));
                self.join_settled();
                if let TurnDelta::Text(text) = &mut delta {
                    text.insert_str(0, self.joiner.text());
                    self.joiner.forget(call);
                }
                self.join();
                // After the last delta no text can complete a secret.
                let aborts = |effect: &Effect| matches!(effect, Effect::AbortModel { .. });
                let continues = !ended && !effects.iter().any(aborts);
                self.delta_record(&Event::new(at, EventKind::Delta { call, delta }), continues)
            }
            Before::Turn(call, record) => {
                // A turn that arrives after its abort counts as aborted, and its cost is estimated
                // from its deltas.
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

    /// Journals an event unchanged, with the effects it requested at that time.
    pub(super) fn keep(&mut self, event: &Event, effects: &[Effect], wall_ms: Option<u64>) {
        if self.is_recording() {
            let record = self.record(event);
            let wall_ms = wall_ms.unwrap_or(record.wall_ms);
            let effects = briefs(effects).map(|text| self.clean(text));
            self.push(Record { wall_ms, effects, ..record });
        }
    }

    /// Journals an event that requests no effects, after the deltas that came before it.
    pub(super) fn add(&mut self, event: &Event) {
        self.join();
        self.keep(event, &[], None);
    }

    /// Ready when all records have been written, or could not be written.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(writing) = &mut self.writing {
            let written = std::task::ready!(writing.poll(cx));
            self.writing = None;
            if !self.take_back(written) {
                break;
            }
            // Write the records that arrived during the last write.
            self.commit();
        }
        Poll::Ready(())
    }

    /// Writes all records now. This may block the thread.
    pub(super) fn write(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.take_back(writing.wait());
        }
        self.join();
        if self.batch.is_empty() {
            return;
        }
        let (log, batch) = (self.log.take(), std::mem::take(&mut self.batch));
        let mut written = Written { log, batch, result: Ok(()) };
        append(&mut written);
        self.take_back(written);
    }

    /// Closes the journal and returns its failure, if that was not reported yet.
    pub(super) fn close(&mut self) -> Option<String> {
        user_code::let_go(self.log.take());
        self.problem()
    }

    /// Journals the outcome, and returns `true` if it is stored. `outcome` is changed only temporarily,
    /// while it is written. This may block the thread.
    pub(super) fn ended(&mut self, outcome: &mut Outcome) -> bool {
        self.write();
        // An outcome without the events before it would be a journal with a hole.
        if !self.batch.is_empty() {
            return false;
        }
        let Some(log) = &mut self.log else { return false };
        let (messages, keys) = (&outcome.messages, &self.keys);
        let apart = match catch_unwind(AssertUnwindSafe(|| {
            log.batch().is_some_and(|log| log.messages(messages, keys))
        })) {
            Ok(apart) => apart,
            Err(payload) => {
                self.give_up(Some(payload));
                return false;
            }
        };
        // If the journal stores the messages separately, leave them out of the outcome's JSON. They
        // can be megabytes.
        let messages = if apart { std::mem::take(&mut outcome.messages) } else { Vec::new() };
        let text = self.clean(serde_json::to_string(outcome).unwrap_or_default());
        if apart {
            outcome.messages = messages;
        }
        let outcome = &*outcome;
        let Some(log) = &mut self.log else { return false };
        let stored = catch_unwind(AssertUnwindSafe(|| log.ended(outcome, &text)));
        let is_stored = matches!(stored, Ok(Ok(())));
        match stored {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => drop(self.problem.get_or_insert(problem)),
            Err(payload) => self.give_up(Some(payload)),
        }
        is_stored
    }

    /// Returns the journal's failure, the first time only.
    pub(super) fn problem(&mut self) -> Option<String> {
        let problem = self.problem.as_ref().filter(|_| !self.told)?.to_string();
        self.told = true;
        Some(format!("the journal cannot store this run: {problem}"))
    }

    fn join(&mut self) {
        let events = self.joiner.take();
        self.keep_deltas(events);
    }

    /// Journals the waiting deltas, except the end of the text that may begin a secret. The secret
    /// is recognised only if it is journalled as a whole.
    fn join_settled(&mut self) {
        let text = self.joiner.text();
        let open = text.len() - self.all_keys.settled(text);
        let events = self.joiner.take_but(open);
        self.keep_deltas(events);
    }

    fn keep_deltas(&mut self, events: Vec<Event>) {
        for event in events {
            if self.is_recording() {
                let record = self.delta_record(&event, true);
                self.push(record);
            }
        }
    }

    /// Records a delta. Other events must not overtake the text before them, so a record may end
    /// within a secret. If the text continues, its end is then redacted in advance, and the rest of
    /// the secret is cut out of the next record.
    fn delta_record(&mut self, event: &Event, continues: bool) -> Record {
        let EventKind::Delta { call, delta: TurnDelta::Text(text) } = &event.kind else {
            return self.record(event);
        };
        let open = self.open.take().filter(|(of, _)| of == call);
        let before = open.map(|(_, before)| before).unwrap_or_default();
        let rest = if before.is_empty() { 0 } else { self.all_keys.continued(&before, text) };
        let both = before + text;
        let open = both.len() - self.all_keys.settled(&both);
        let known = if continues && open >= LEAST_OPEN { open.min(text.len() - rest) } else { 0 };
        let record = if rest == 0 && known == 0 {
            self.record(event)
        } else {
            let mark = |cut| if cut > 0 { REDACTED } else { "" };
            let kept = &text[rest..text.len() - known];
            let delta = TurnDelta::Text([mark(rest), kept, mark(known)].concat());
            let kind = EventKind::Delta { call: *call, delta };
            let record = self.record(&Event::new(event.at, kind));
            Record { event: with_one_more(record.event), ..record }
        };
        if open > 0 {
            self.open = Some((*call, both[both.len() - open..].to_owned()));
        }
        record
    }

    fn record(&self, event: &Event) -> Record {
        let mut text = Vec::with_capacity(USUAL_EVENT);
        if serde_json::to_writer(&mut text, &event.kind).is_err() {
            text.clear();
        }
        // serde_json writes valid UTF-8.
        let text = String::from_utf8(text).unwrap_or_default();
        Record {
            at: event.at,
            wall_ms: crate::clock::wall_ms(),
            name: event.kind.name().to_owned(),
            event: self.clean(text),
            effects: None,
        }
    }

    fn clean(&self, record: String) -> String {
        without_secrets(&self.keys, record)
    }

    fn push(&mut self, record: Record) {
        self.behind += record.event.len();
        self.batch.push(record);
    }

    /// Writes the waiting records: on this thread if the journal can do so without blocking,
    /// otherwise on another.
    fn commit(&mut self) {
        // One write at a time, so that records stay in order. `poll_written` commits the rest.
        if self.is_holding || self.batch.is_empty() || self.writing.is_some() {
            return;
        }
        let Some(log) = &mut self.log else { return };
        let batch = &self.batch;
        match catch_unwind(AssertUnwindSafe(|| log.batch()?.try_append(batch))) {
            Ok(Some(Ok(()))) => {
                self.batch.clear();
                self.behind = 0;
            }
            Ok(Some(Err(problem))) => self.refused(problem),
            Ok(None) => {
                let (log, batch) = (self.log.take(), std::mem::take(&mut self.batch));
                let written = Written { log, batch, result: Ok(()) };
                self.writing = Some(Pending::spawn(written, append));
            }
            Err(payload) => self.give_up(Some(payload)),
        }
    }

    /// Takes the log back from a write on another thread; `false` if the write failed.
    fn take_back(&mut self, written: Written) -> bool {
        let Written { log, mut batch, result } = written;
        // A runtime that is shutting down drops the write before it begins, and every further one: to try
        // again at once would be an endless loop.
        let stored = batch.is_empty();
        // Records that failed to be written precede those that arrived in the meantime.
        batch.append(&mut self.batch);
        self.behind = batch.iter().map(|record| record.event.len()).sum();
        (self.log, self.batch) = (log, batch);
        let done = result.is_ok() && stored && self.log.is_some();
        match result {
            Ok(()) => {}
            Err(Failure::Refused(problem)) => self.refused(problem),
            Err(Failure::Panicked(payload)) => self.give_up(Some(payload)),
        }
        if self.log.is_none() {
            // The journal refused the run.
            self.batch = Vec::new();
        }
        done
    }

    // Keep the first failure: it is the cause, and later ones usually follow from it.
    fn refused(&mut self, problem: JournalError) {
        self.problem.get_or_insert(problem);
        if self.behind > MOST_BEHIND {
            self.give_up(None);
        }
    }

    /// Stops using the journal. A journal must have no gaps, so later records would be useless.
    pub(super) fn give_up(&mut self, payload: Option<Box<dyn Any + Send>>) {
        if let Some(payload) = payload {
            let problem = panicked(&self.keys, payload);
            self.problem.get_or_insert(problem);
        }
        self.batch = Vec::new();
        (self.begins, self.ending) = (None, None);
        user_code::let_go(self.log.take());
    }
}

/// Returns the secrets that the journal removes itself.
fn hidden(journal: &dyn Journal) -> KnownKeys {
    catch_unwind(AssertUnwindSafe(|| journal.hidden())).unwrap_or_default()
}

/// Has the journal create the run. This may block the thread.
fn begin(journal: &dyn Journal, header: &RunHeader) -> Written {
    let (log, result) = match catch_unwind(AssertUnwindSafe(|| journal.begin(header))) {
        Ok(Ok(log)) => (Some(log), Ok(())),
        Ok(Err(problem)) => (None, Err(Failure::Refused(problem))),
        Err(payload) => (None, Err(Failure::Panicked(payload))),
    };
    Written { log, batch: Vec::new(), result }
}

/// Has the journal append a batch, either all of it or nothing. This may block the thread.
fn append(written: &mut Written) {
    let Written { log: Some(log), batch, result } = written else { return };
    *result = match catch_unwind(AssertUnwindSafe(|| log.append(batch))) {
        Ok(Ok(())) => {
            batch.clear();
            Ok(())
        }
        Ok(Err(problem)) => Err(Failure::Refused(problem)),
        Err(payload) => Err(Failure::Panicked(payload)),
    };
}

fn panicked(keys: &KnownKeys, payload: Box<dyn Any + Send>) -> JournalError {
    JournalError {
        journal: "the journal's code".to_owned(),
        problem: format!("it panicked: {}", user_code::words(keys, payload)),
        kind: JournalErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// A log that only appends on a thread that may block, as that of an engine.
    struct Slow;

    impl RunJournal for Slow {
        fn append(&mut self, _: &[Record]) -> Result<(), JournalError> {
            Ok(())
        }

        fn ended(&mut self, _: &Outcome, _: &str) -> Result<(), JournalError> {
            Ok(())
        }
    }

    /// It was an endless loop, which kept the thread of the runtime from its shutdown.
    #[test]
    fn dropped_write_is_not_repeated() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _entered = handle.enter();
        let mut recorder = Recorder { log: Some(Box::new(Slow)), ..Recorder::default() };
        recorder.push(Record::default());
        recorder.commit();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(recorder.poll_written(&mut cx).is_ready());
        assert!(!recorder.is_stored());
        recorder.write();
        assert!(recorder.is_stored(), "a write that may block needs no runtime");
    }
}
