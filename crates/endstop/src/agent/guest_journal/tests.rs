use super::writer::{BEFORE_WRITE, BETWEEN_WRITES};
use super::*;
use crate::journal::{
    BatchJournal, BatchRunJournal, JournalError, JournalErrorKind, Record, RecordedRun, RunJournal,
    RunWrite,
};
use endstop_core::guest::{Admission, Guest, GuestStart};
use endstop_core::{GuestCall, Message, RunSpec, TurnDelta};
use endstop_wire::redact::KnownKeys;
use serde_json::Map;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The behaviour of [`Memory`].
#[derive(Clone, Copy, Default, PartialEq)]
enum Mode {
    #[default]
    Together,
    Alone,
    Fails,
    Panics,
}

/// Remembers its records, or fails.
#[derive(Clone, Default)]
struct Memory {
    mode: Mode,
    /// The id of the run that this is the record of.
    run: String,
    records: Arc<Mutex<Vec<(String, Record)>>>,
    /// The time of each write, and the number of its records.
    writes: Arc<Mutex<Vec<(Instant, usize)>>>,
}

impl Memory {
    fn of(mode: Mode) -> Memory {
        Memory { mode, ..Memory::default() }
    }

    fn result(&self) -> Result<(), JournalError> {
        let error = || JournalError::new("memory", "it is full", JournalErrorKind::Io);
        if self.mode == Mode::Fails { Err(error()) } else { Ok(()) }
    }

    fn store(&self, run: &str, records: &[Record]) {
        let records = records.iter().cloned().map(|record| (run.to_owned(), record));
        self.records.lock().unwrap().extend(records);
    }

    fn count(&self, records: usize) {
        self.writes.lock().unwrap().push((Instant::now(), records));
    }

    fn records_of(&self, run: &str) -> usize {
        self.records.lock().unwrap().iter().filter(|(of, _)| of == run).count()
    }
}

impl Journal for Memory {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        Ok(Box::new(Memory { run: header.id.clone(), ..self.clone() }))
    }

    fn load(&self, _: &str) -> Result<RecordedRun, JournalError> {
        Ok(RecordedRun::default())
    }

    fn resume(&self, _: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        Ok(Box::new(self.clone()))
    }

    fn batch(&self) -> Option<&dyn BatchJournal> {
        Some(self)
    }
}

impl BatchJournal for Memory {
    fn write_together(&self, writes: &mut [RunWrite<'_>]) -> bool {
        assert!(self.mode != Mode::Panics, "out of memory");
        if self.mode != Mode::Together {
            return false;
        }
        self.count(writes.iter().map(|write| write.records.len()).sum());
        for write in writes {
            if let Some(header) = write.header {
                *write.log = Some(self.begin(header).unwrap());
            }
            let log: &dyn std::any::Any = write.log.as_deref_mut().unwrap().batch().unwrap();
            self.store(&log.downcast_ref::<Memory>().unwrap().run, write.records);
        }
        true
    }
}

impl RunJournal for Memory {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.result()?;
        self.count(records.len());
        self.store(&self.run, records);
        Ok(())
    }

    fn ended(&mut self, _: &Outcome, _: &str) -> Result<(), JournalError> {
        self.result()
    }

    fn batch(&mut self) -> Option<&mut dyn BatchRunJournal> {
        Some(self)
    }
}

impl BatchRunJournal for Memory {
    fn try_append(&mut self, _: &[Record]) -> Option<Result<(), JournalError>> {
        None
    }

    fn messages(&mut self, _: &[Message], _: &KnownKeys) -> bool {
        false
    }
}

fn header(id: &str) -> RunHeader {
    RunHeader { id: id.to_owned(), ..RunHeader::default() }
}

fn guest() -> Guest {
    let start = GuestStart { record: true, ..GuestStart::default() };
    Guest::new(RunSpec::default(), start)
}

fn start(journal: &Memory) -> GuestJournal {
    GuestJournal::start(Arc::new(journal.clone())).unwrap()
}

/// Plays a run that ends at once.
async fn play(record: GuestRecord) {
    let mut guest = guest();
    record.events(guest.take_events(), false);
    let outcome = guest.close(Duration::ZERO, true, "");
    record.events(guest.take_events(), true);
    record.ended(outcome);
    record.close().await;
}

/// Collects the reports.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Reports {
    fn new_one(&self) -> impl FnOnce(String) + Send + 'static {
        let reports = self.clone();
        move |problem| reports.0.lock().unwrap().push(problem)
    }
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn failure_is_reported_once() {
    let reports = Reports::default();
    let guests = start(&Memory::of(Mode::Fails));
    play(guests.begin(header("one"), reports.new_one())).await;
    let reports = reports.all();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("it is full"), "{reports:?}");
}

#[tokio::test]
async fn panic_is_reported_for_each_run() {
    let reports = Reports::default();
    let guests = start(&Memory::of(Mode::Panics));
    for run in ["one", "two"] {
        play(guests.begin(header(run), reports.new_one())).await;
    }
    let reports = reports.all();
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports.iter().all(|report| report.contains("out of memory")), "{reports:?}");
}

#[tokio::test]
async fn panic_of_report_spares_other_runs() {
    let reports = Reports::default();
    let guests = start(&Memory::of(Mode::Fails));
    play(guests.begin(header("one"), |_| panic!("on purpose"))).await;
    play(guests.begin(header("two"), reports.new_one())).await;
    assert_eq!(reports.all().len(), 1);
}

#[tokio::test]
async fn events_of_a_moment_are_written_together() {
    let journal = Memory::default();
    let guests = start(&journal);
    let started = Instant::now();
    // Among several runs, so that the end of one does not hurry.
    let _other = guests.begin(header("other"), |problem| panic!("{problem}"));
    let runs = ["one", "two", "three"];
    let records = runs.map(|run| guests.begin(header(run), |problem| panic!("{problem}")));
    let mut played = runs.map(|_| guest());
    let began = Instant::now();
    let mut sent = 0;
    // As long as that takes: the thread that writes has less priority than others of the machine.
    while journal.writes.lock().unwrap().len() < 5 {
        for (guest, record) in played.iter_mut().zip(&records) {
            let _ = guest.observe(began.elapsed(), Map::new(), Map::new());
            let events = guest.take_events();
            sent += events.len();
            record.events(events, false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for record in records {
        record.close().await;
    }
    assert_eq!(journal.records.lock().unwrap().len(), sent);
    let writes = journal.writes.lock().unwrap();
    // On a machine that is busy, enough for a write arrives while the thread waits for a processor.
    let is_full = |records: usize| records as u64 * USUAL >= MOST_IN_WRITE;
    let has_waited = |pair: &[(Instant, usize)]| {
        pair[1].0 - pair[0].0 >= BETWEEN_WRITES || is_full(pair[0].1) || is_full(pair[1].1)
    };
    assert!(writes.windows(2).all(has_waited), "{writes:?}");
    assert!(writes[0].0 - started >= BEFORE_WRITE || is_full(writes[0].1), "{writes:?}");
}

#[tokio::test]
async fn end_of_the_only_run_does_not_wait() {
    let shared = Arc::new(Shared::default());
    let (send, _receive) = channel();
    let guests = GuestJournal { send, shared: Arc::clone(&shared) };
    // Much longer than the test may take.
    let rest = Duration::from_secs(600);
    let (one, two) = (guests.begin(header("one"), drop), guests.begin(header("two"), drop));
    drop(one);
    let resting = std::thread::spawn(move || shared.rest(rest));
    let rested = async {
        while !resting.is_finished() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = two.close() => panic!("there is no thread that writes"),
        () = rested => {}
    }
}

#[test]
fn many_events_are_written_without_delay() {
    let (send, _receive) = channel();
    let shared = Arc::new(Shared::default());
    let guests = GuestJournal { send, shared: Arc::clone(&shared) };
    let record = guests.begin(header("one"), drop);
    // Much longer than the test may take.
    let rest = Duration::from_secs(600);
    let resting = {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || shared.rest(rest))
    };
    let mut guest = guest();
    let began = Instant::now();
    while shared.waiting.load(Ordering::Relaxed) < MOST_IN_WRITE {
        assert!(!resting.is_finished());
        let _ = guest.observe(began.elapsed(), Map::new(), Map::new());
        record.events(guest.take_events(), false);
    }
    resting.join().unwrap();
    shared.rest(rest);
    assert!(began.elapsed() < rest);
}

#[tokio::test]
async fn lost_events_end_only_their_record() {
    let journal = Memory::default();
    let guests = start(&journal);
    let reports = Reports::default();
    let big = guests.begin(header("big"), reports.new_one());
    let small = guests.begin(header("small"), |problem| panic!("{problem}"));
    let mut played = guest();
    big.events(played.take_events(), false);
    let input = vec![endstop_core::Message::user("x".repeat(MOST_WAITING as usize))];
    let _ = played.ask(Duration::ZERO, GuestCall { input, ..GuestCall::default() });
    big.events(played.take_events(), false);
    play(big).await;
    play(small).await;
    let reports = reports.all();
    assert!(reports.len() == 1 && reports[0].contains("more than 64 MiB"), "{reports:?}");
    assert!(journal.records_of("small") > journal.records_of("big"));
    assert_eq!(guests.shared.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn secret_in_two_deltas_is_redacted() {
    for mode in [Mode::Together, Mode::Alone] {
        let journal = Memory::of(mode);
        let record = start(&journal).begin(header("one"), |problem| panic!("{problem}"));
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
        record.close().await;
        let records = journal.records.lock().unwrap();
        let all: String = records.iter().map(|(_, record)| record.event.as_str()).collect();
        assert!(all.contains("isn't it?") && !all.contains("4f1c9a77b2e8"), "{all}");
        assert!(!all.contains("9c3e5a61"), "{all}");
    }
}
