//! Journals the run of a guest on a thread of its own, so that its client never waits for a disk.
//!
//! ```text
//! record.hide(keys of the request);  // before the events that may quote them
//! record.events(guest.take_events(), guest.run().is_none());
//! record.ended(outcome);
//! ```

use super::recorder::Recorder;
use crate::journal::{Journal, RunHeader};
use endstop_core::guest::Recorded;
use endstop_core::{EventKind, Message, Outcome, Part};
use endstop_wire::redact::KnownKeys;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum size in bytes of the events that wait for a slow disk. Above it the journal is given up,
/// because the memory of a guest must be bounded, and its client must not wait.
const MOST_WAITING: u64 = 64 << 20;
/// Assumed size of an event without its content, in bytes.
const USUAL: u64 = 512;
/// Minimum time between two writes of few events. A transaction writes whole pages, however few
/// events are in it, so a write every 10 milliseconds costs a proxy of 50 streams a third more processor
/// time.
const BETWEEN_WRITES: Duration = Duration::from_millis(50);
/// Events of this many bytes are written together, and without delay, because they wait in memory.
const MOST_IN_WRITE: u64 = 256 << 10;

/// The record of a guest's run in a journal.
///
/// No method waits for the journal, except [`close`](GuestRecord::close). Events that arrive within 50
/// milliseconds are written together, and earlier if they are many, so a process that is killed loses at
/// most these and what waits for a slow disk. A journal that fails does not end the run: the failure is
/// reported once.
///
/// ```
/// # #[cfg(feature = "journal")] fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use endstop::agent::GuestRecord;
/// use endstop::core::RunSpec;
/// use endstop::core::guest::{Guest, GuestStart};
/// use endstop::journal::{RunHeader, SqliteJournal};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let folder = tempfile::tempdir()?;
/// let journal = SqliteJournal::open(folder.path().join("journal.db"))?;
/// let spec = RunSpec { guest: Some(Default::default()), ..RunSpec::default() };
/// let header = RunHeader { id: "g1".into(), spec: spec.again(None), ..RunHeader::default() };
/// let record = GuestRecord::begin(Arc::new(journal.clone()), header, |problem| panic!("{problem}"));
///
/// let mut guest = Guest::new(spec, GuestStart { record: true, ..GuestStart::default() });
/// let outcome = guest.close(Duration::from_secs(1), true, "no call was made");
/// record.events(guest.take_events(), true);
/// record.ended(outcome);
/// record.close();
/// assert!(journal.load("g1")?.outcome.is_some());
/// # Ok(()) }
/// # #[cfg(not(feature = "journal"))] fn main() {}
/// ```
pub struct GuestRecord {
    send: Sender<Step>,
    shared: Arc<Shared>,
}

impl fmt::Debug for GuestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestRecord").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    /// Bytes that wait for the journal.
    waiting: AtomicU64,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// `close` waits for the end, so nothing is held back any more.
    is_closing: bool,
    is_done: bool,
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this time, or until the record is closed or enough for a write is waiting.
    fn rest(&self, time: Duration) {
        let must_wait = |progress: &mut Progress| {
            !progress.is_closing && self.waiting.load(Ordering::Relaxed) < MOST_IN_WRITE
        };
        drop(self.changed.wait_timeout_while(self.progress(), time, must_wait));
    }

    /// Ends a rest, because enough for a write is waiting.
    fn end_rest(&self) {
        // With the lock, so that it does not come between the check and the wait.
        let progress = self.progress();
        self.changed.notify_all();
        drop(progress);
    }
}

/// Work for the thread that writes.
enum Step {
    Hide(KnownKeys),
    Events {
        events: Vec<Recorded>,
        ended: bool,
        bytes: u64,
    },
    /// Events were dropped, because too many waited.
    Lost,
    Ended(Arc<Outcome>),
    Close,
}

/// Marks the work as done, even if the thread panics.
struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.progress().is_done = true;
        self.0.changed.notify_all();
    }
}

impl GuestRecord {
    /// Begins the record. `report` receives the failure of the journal, at most once, on the thread
    /// that writes.
    pub fn begin(
        journal: Arc<dyn Journal>,
        header: RunHeader,
        report: impl FnOnce(String) + Send + 'static,
    ) -> GuestRecord {
        let (send, receive) = channel();
        let shared = Arc::new(Shared::default());
        let done = Done(Arc::clone(&shared));
        let work = move || {
            let_others_first();
            let keys = header.keys.clone();
            // Without a runtime on this thread, `begin` has the journal create the run at once.
            let recorder = Recorder::begin(journal, Box::new(header), keys);
            write(recorder, &receive, &done, Box::new(report));
        };
        // If no thread can be started, the closure is dropped, and with it the marks of `Done`.
        let _ = std::thread::Builder::new().name("guest journal".to_owned()).spawn(work);
        GuestRecord { send, shared }
    }

    /// Redacts these secrets from the records that follow.
    pub fn hide(&self, keys: &KnownKeys) {
        if !keys.is_empty() {
            let _ = self.send.send(Step::Hide(keys.clone()));
        }
    }

    /// Journals events of [`Guest::take_events`](endstop_core::Guest::take_events). `ended` is `true`
    /// if the last of them ended the run.
    pub fn events(&self, events: Vec<Recorded>, ended: bool) {
        if events.is_empty() {
            return;
        }
        let bytes = events.iter().map(bytes_of).sum();
        let before = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        // The channel itself has no bound, because a bounded one would count events and not bytes.
        let step = if before.saturating_add(bytes) > MOST_WAITING {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            Step::Lost
        } else {
            Step::Events { events, ended, bytes }
        };
        let _ = self.send.send(step);
        if before < MOST_IN_WRITE && before.saturating_add(bytes) >= MOST_IN_WRITE {
            self.shared.end_rest();
        }
    }

    /// Journals the outcome; nothing follows.
    pub fn ended(&self, outcome: Arc<Outcome>) {
        let _ = self.send.send(Step::Ended(outcome));
    }

    /// Waits until everything is written, or could not be written. This blocks the thread.
    pub fn close(&self) {
        if self.send.send(Step::Close).is_err() {
            return;
        }
        let mut progress = self.shared.progress();
        progress.is_closing = true;
        self.shared.changed.notify_all();
        while !progress.is_done {
            progress = self.shared.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Lowers the priority of this thread, so that those that answer clients do not wait for a processor
/// until it has written. It still gets a quarter of a processor that they use completely.
fn let_others_first() {
    // Elsewhere the priority is that of the whole process. If it cannot be changed, it stays.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(5);
}

/// Writes what arrives, until the record is closed or dropped.
fn write(
    mut recorder: Recorder,
    receive: &Receiver<Step>,
    done: &Done,
    report: Box<dyn FnOnce(String) + Send>,
) {
    let mut report = Some(report);
    let mut is_whole = true;
    let mut is_open = true;
    let mut written_at: Option<Instant> = None;
    recorder.hold();
    while is_open && let Ok(first) = receive.recv() {
        if let Some(at) = written_at {
            done.0.rest(BETWEEN_WRITES.saturating_sub(at.elapsed()));
        }
        let mut problem = None;
        let mut unwritten = 0;
        let mut next = Some(first);
        while let Some(step) = next {
            match step {
                Step::Hide(keys) => recorder.hide(&keys),
                Step::Events { events, ended, bytes } => {
                    unwritten += bytes;
                    if is_whole {
                        keep(&mut recorder, events, ended);
                    }
                }
                Step::Lost => {
                    // A journal must have no gaps, so nothing more is stored.
                    is_whole = false;
                    problem = Some(format!(
                        "the journal cannot store this run: it is too slow, and more than {} MiB wait for it",
                        MOST_WAITING >> 20
                    ));
                }
                Step::Ended(outcome) if is_whole => recorder.ended(&mut Outcome::clone(&outcome)),
                Step::Ended(_) => {}
                Step::Close => {
                    is_open = false;
                    break;
                }
            }
            next = if unwritten < MOST_IN_WRITE { receive.try_recv().ok() } else { None };
        }
        recorder.write();
        // If there is more than fits in a write, the next one follows at once.
        written_at = (unwritten < MOST_IN_WRITE).then(Instant::now);
        done.0.waiting.fetch_sub(unwritten, Ordering::Relaxed);
        let problem = problem.or_else(|| recorder.problem());
        if let Some(problem) = problem
            && let Some(report) = report.take()
        {
            report(problem);
        }
    }
    let problem = recorder.close();
    if let (Some(problem), Some(report)) = (problem, report) {
        report(problem);
    }
}

fn keep(recorder: &mut Recorder, events: Vec<Recorded>, ended: bool) {
    let last = events.len();
    for (nth, Recorded { event, effects }) in (1..).zip(events) {
        let before = recorder.before(&event);
        recorder.after(before, &effects, ended && nth == last);
        // Even with less priority, a thread is not interrupted until its slice of a few milliseconds
        // ends, and a thread that has a client's call would wait for that.
        std::thread::yield_now();
    }
}

/// The approximate size of an event's content.
fn bytes_of(recorded: &Recorded) -> u64 {
    let of = |parts: &[Part]| parts.iter().map(Part::byte_len).sum::<u64>();
    let content = match &recorded.event.kind {
        EventKind::Asked { call } => call.input.iter().map(Message::byte_len).sum(),
        EventKind::TurnEnded { turn, .. } | EventKind::TurnFailed { partial: Some(turn), .. } => {
            of(&turn.parts)
        }
        EventKind::ToolEnded { report, .. } => report.content.len() as u64,
        _ => 0,
    };
    USUAL + content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JournalError, JournalErrorKind, Record, RecordedRun, RunJournal};
    use endstop_core::guest::Admission;
    use endstop_core::guest::{Guest, GuestStart};
    use endstop_core::{GuestCall, RunSpec, TurnDelta};
    use serde_json::Map;

    /// Remembers its records, or fails.
    #[derive(Clone, Default)]
    struct Memory {
        records: Arc<Mutex<Vec<Record>>>,
        /// The time of each write, and the number of its records.
        writes: Arc<Mutex<Vec<(Instant, usize)>>>,
        fails: bool,
    }

    impl Memory {
        fn result(&self) -> Result<(), JournalError> {
            let error = || JournalError::new("memory", "it is full", JournalErrorKind::Io);
            if self.fails { Err(error()) } else { Ok(()) }
        }
    }

    impl Journal for Memory {
        fn begin(&self, _: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
            Ok(Box::new(self.clone()))
        }

        fn load(&self, _: &str) -> Result<RecordedRun, JournalError> {
            Ok(RecordedRun::default())
        }

        fn go_on(&self, _: &str) -> Result<Box<dyn RunJournal>, JournalError> {
            Ok(Box::new(self.clone()))
        }
    }

    impl RunJournal for Memory {
        fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
            self.result()?;
            self.writes.lock().unwrap().push((Instant::now(), records.len()));
            self.records.lock().unwrap().extend_from_slice(records);
            Ok(())
        }

        fn ended(&mut self, _: &Outcome, _: &str) -> Result<(), JournalError> {
            self.result()
        }
    }

    fn guest() -> Guest {
        let start = GuestStart { record: true, ..GuestStart::default() };
        Guest::new(RunSpec::default(), start)
    }

    #[test]
    fn failure_is_reported_once() {
        let journal = Memory { fails: true, ..Memory::default() };
        let reports = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&reports);
        let report = move |problem| told.lock().unwrap().push(problem);
        let record = GuestRecord::begin(Arc::new(journal), RunHeader::default(), report);
        let mut guest = guest();
        record.events(guest.take_events(), false);
        let outcome = guest.close(Duration::ZERO, true, "");
        record.events(guest.take_events(), true);
        record.ended(outcome);
        record.close();
        let reports = reports.lock().unwrap();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(reports[0].contains("it is full"), "{reports:?}");
    }

    #[test]
    fn events_of_a_moment_are_written_together() {
        let journal = Memory::default();
        let record =
            GuestRecord::begin(Arc::new(journal.clone()), RunHeader::default(), |problem| {
                panic!("{problem}")
            });
        let mut guest = guest();
        let began = Instant::now();
        let mut sent = 0;
        // As long as that takes: the thread that writes has less priority than others of the machine.
        while journal.writes.lock().unwrap().len() < 5 {
            let _ = guest.observe(began.elapsed(), Map::new(), Map::new());
            let events = guest.take_events();
            sent += events.len();
            record.events(events, false);
            std::thread::sleep(Duration::from_millis(1));
        }
        record.close();
        assert_eq!(journal.records.lock().unwrap().len(), sent);
        let writes = journal.writes.lock().unwrap();
        // On a machine that is busy, enough for a write arrives while the thread waits for a processor.
        let is_full = |records: usize| records as u64 * USUAL >= MOST_IN_WRITE;
        let has_waited = |pair: &[(Instant, usize)]| {
            pair[1].0 - pair[0].0 >= BETWEEN_WRITES || is_full(pair[0].1) || is_full(pair[1].1)
        };
        // The last one does not wait.
        assert!(writes.windows(2).rev().skip(1).all(has_waited), "{writes:?}");
    }

    #[test]
    fn many_events_are_written_without_delay() {
        let (send, _receive) = channel();
        let shared = Arc::new(Shared::default());
        let record = GuestRecord { send, shared: Arc::clone(&shared) };
        // Much longer than the test may take.
        let rest = Duration::from_secs(600);
        let resting = std::thread::spawn(move || shared.rest(rest));
        let mut guest = guest();
        let began = Instant::now();
        while record.shared.waiting.load(Ordering::Relaxed) < MOST_IN_WRITE {
            assert!(!resting.is_finished());
            let _ = guest.observe(began.elapsed(), Map::new(), Map::new());
            record.events(guest.take_events(), false);
        }
        resting.join().unwrap();
        record.shared.rest(rest);
        assert!(began.elapsed() < rest);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_writing_thread_has_less_priority() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let (send, receive) = channel();
        // The report is made on the thread that writes.
        let report = move |_| send.send(priority()).unwrap();
        let journal = Memory { fails: true, ..Memory::default() };
        let record = GuestRecord::begin(Arc::new(journal), RunHeader::default(), report);
        record.events(guest().take_events(), false);
        record.close();
        assert_eq!(receive.recv().unwrap(), (before + 5).min(19));
        assert_eq!(priority(), before);
    }

    #[test]
    fn secret_in_two_deltas_is_redacted() {
        let journal = Memory::default();
        let record =
            GuestRecord::begin(Arc::new(journal.clone()), RunHeader::default(), |problem| {
                panic!("{problem}")
            });
        let mut guest = guest();
        let at = Duration::ZERO;
        let Admission::Go { call, .. } = guest.ask(at, GuestCall::default()) else { panic!() };
        record.hide(&KnownKeys::new(["own-4f1c9a77b2e84d0d9c3e5a61-key"]));
        for piece in ["It is own-4f1c9a77b2e8", "4d0d9c3e5a61-key, isn't it?"] {
            let _ = guest.delta(at, call, TurnDelta::Text(piece.to_owned()));
            record.events(guest.take_events(), false);
        }
        let _ = guest.terminate(at);
        record.events(guest.take_events(), true);
        record.close();
        let records = journal.records.lock().unwrap();
        let all: String = records.iter().map(|record| record.event.as_str()).collect();
        assert!(all.contains("isn't it?") && !all.contains("4f1c9a77b2e8"), "{all}");
        assert!(!all.contains("9c3e5a61"), "{all}");
    }
}
