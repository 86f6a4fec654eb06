//! The thread that writes: takes what the runs send, and stores it in few transactions.
//!
//! ```text
//! loop {
//!     wait for work; // then 20 to 50 milliseconds for more
//!     journal.write_together(what these runs have to write);
//! }
//! ```

use super::work::{Beginning, MOST_IN_WRITE, Report, Shared, Step, THREAD_ENDED, USUAL, Work};
use crate::agent::recorder::Recorder;
use crate::agent::user_code;
use crate::journal::Journal;
use endstop_core::Outcome;
use endstop_core::guest::Recorded;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Minimum time between two writes of few events. A transaction writes whole pages, however few
/// events are in it, so a write every 10 milliseconds costs a proxy of 50 streams a third more processor
/// time.
pub(super) const BETWEEN_WRITES: Duration = Duration::from_millis(50);

/// Minimum time from the first event after a pause to its write. Calls start and end in groups, and a
/// transaction for the first of each group would cost as much as the one for the rest.
pub(super) const BEFORE_WRITE: Duration = Duration::from_millis(20);

pub(super) struct Writer {
    journal: Arc<dyn Journal>,
    receive: Receiver<Work>,
    shared: Arc<Shared>,
    /// The runs that are recorded, in the order in which they began.
    runs: BTreeMap<u64, Run>,
}

struct Run {
    recorder: Recorder,
    report: Option<Report>,
    /// Bytes that wait for the journal, here and in the channel.
    waiting: Arc<AtomicU64>,
    /// Bytes of those that are here.
    taken: u64,
    /// `false` if events were lost. A journal must have no gaps, so nothing more is stored.
    is_whole: bool,
    has_ended: bool,
    is_closed: bool,
    /// Dropped when the run is written.
    closed: Option<oneshot::Sender<()>>,
    /// `true` if there was work for this run since the last write.
    is_touched: bool,
}

impl Writer {
    pub(super) fn new(
        journal: Arc<dyn Journal>,
        receive: Receiver<Work>,
        shared: Arc<Shared>,
    ) -> Writer {
        Writer { journal, receive, shared, runs: BTreeMap::new() }
    }

    /// Writes until no journal and no record is left.
    pub(super) fn run(mut self) {
        let mut written_at: Option<Instant> = None;
        while let Ok(first) = self.receive.recv() {
            let since = written_at.map_or(Duration::MAX, |at| at.elapsed());
            self.shared.rest(BETWEEN_WRITES.saturating_sub(since).max(BEFORE_WRITE));
            let mut size = 0;
            let mut next = Some(first);
            while let Some(work) = next {
                size += self.take(work);
                next = if size < MOST_IN_WRITE { self.receive.try_recv().ok() } else { None };
            }
            self.write();
            // After a full write the longer of the two times does not apply.
            written_at = (size < MOST_IN_WRITE).then(Instant::now);
        }
    }

    /// Takes the work for a run, and returns its approximate size in bytes.
    fn take(&mut self, Work { run, step }: Work) -> u64 {
        if let Step::Begin(beginning) = step {
            let Beginning { header, report, waiting } = *beginning;
            let recorder = Recorder::later(Arc::clone(&self.journal), Box::new(header));
            self.runs.insert(run, Run::new(recorder, report, waiting));
            return USUAL;
        }
        let size = match &step {
            Step::Events { bytes, .. } => *bytes,
            _ => USUAL,
        };
        match self.runs.get_mut(&run) {
            Some(run) => run.take(step),
            // The run has ended and is written.
            None => {
                if let Step::Events { bytes, .. } = step {
                    self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
                }
            }
        }
        size
    }

    /// Writes what the runs have to write.
    fn write(&mut self) {
        let touched = |run: &&mut Run| run.is_touched;
        for run in self.runs.values_mut().filter(touched) {
            run.with_recorder(Recorder::gather);
        }
        let waiting = self.runs.values_mut().filter(touched);
        let mut writes: Vec<_> = waiting.filter_map(|run| run.recorder.unwritten()).collect();
        let together = || {
            let batch = self.journal.batch();
            writes.is_empty() || batch.is_some_and(|journal| journal.write_together(&mut writes))
        };
        let together = catch_unwind(AssertUnwindSafe(together)).map_err(text_of);
        for run in self.runs.values_mut().filter(touched) {
            match &together {
                Ok(true) => run.recorder.stored_together(),
                Ok(false) => run.with_recorder(Recorder::write_alone),
                // It is not known what was stored.
                Err(panic) => run.recorder.give_up(Some(Box::new(panic.clone()))),
            }
            run.written(&self.shared);
        }
        // To drop a run may call the code of a journal, and shows its end to `close`.
        self.runs.retain(|_, run| !run.is_done());
    }
}

impl Run {
    fn new(recorder: Recorder, report: Report, waiting: Arc<AtomicU64>) -> Run {
        Run {
            recorder,
            report: Some(report),
            waiting,
            taken: 0,
            is_whole: true,
            has_ended: false,
            is_closed: false,
            closed: None,
            is_touched: true,
        }
    }

    fn take(&mut self, step: Step) {
        self.is_touched = true;
        match step {
            // Taken by the writer.
            Step::Begin(_) => {}
            Step::Hide(keys) => self.with_recorder(|recorder| recorder.hide(&keys)),
            Step::Events { events, ended, bytes } => {
                self.taken += bytes;
                if self.is_whole {
                    self.with_recorder(|recorder| keep(recorder, events, ended));
                }
            }
            Step::Lost(most) => {
                self.is_whole = false;
                self.tell(format!(
                    "the journal cannot store this run: it is too slow, and more than {} MiB wait for it",
                    most >> 20
                ));
            }
            Step::Ended(outcome) => {
                self.has_ended = true;
                if self.is_whole {
                    self.with_recorder(|recorder| recorder.ends(Outcome::clone(&outcome)));
                }
            }
            Step::Close(closed) => {
                self.is_closed = true;
                self.closed = closed.or(self.closed.take());
            }
        }
    }

    /// Uses the recorder. If it panics, only the record of this run is given up.
    fn with_recorder(&mut self, work: impl FnOnce(&mut Recorder)) {
        let recorder = &mut self.recorder;
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(recorder))) {
            recorder.give_up(Some(payload));
            self.is_whole = false;
        }
    }

    /// Accounts for a write, successful or not.
    fn written(&mut self, shared: &Shared) {
        self.is_touched = false;
        let bytes = std::mem::take(&mut self.taken);
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(problem) = self.recorder.problem() {
            self.tell(problem);
        }
    }

    /// Reports a failure, the first time only.
    fn tell(&mut self, problem: String) {
        if let Some(report) = self.report.take() {
            let _ = catch_unwind(AssertUnwindSafe(|| report(problem)));
        }
    }

    /// `true` if nothing more is written.
    fn is_done(&self) -> bool {
        self.is_closed || (self.has_ended && !self.recorder.is_ending())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Catches what the destructor of a journal does.
        if let Some(problem) = self.recorder.close() {
            self.tell(problem);
        }
        if std::thread::panicking() {
            self.tell(THREAD_ENDED.to_owned());
        }
    }
}

fn keep(recorder: &mut Recorder, events: Vec<Recorded>, ended: bool) {
    let last = events.len();
    for (nth, Recorded { event, effects }) in (1..).zip(events) {
        let before = recorder.before(&event);
        recorder.after(before, &effects, ended && nth == last);
    }
}

/// Returns the message of a panic.
fn text_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    user_code::let_go(payload);
    text
}
