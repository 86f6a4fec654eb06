//! Runs of many guests in one journal: written in common transactions, stored as if each had been
//! written separately.

use super::Place;
use endstop::agent::{GuestJournal, GuestRecord};
use endstop::core::guest::{Admission, Guest, GuestReply, GuestStart};
use endstop::core::{
    Confidence, GuestCall, GuestMode, ModelTurn, RunSpec, SignalReason, TerminationSignal,
    ToolReport,
};
use endstop::journal::{Journal, JournalError, RecordedRun, RunHeader, RunJournal, SqliteJournal};
use endstop::{Limits, Message, Outcome, Part, ToolCall, ToolStatus};
use rusqlite::Connection;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A journal that does not write runs together.
struct Alone(SqliteJournal);

impl Journal for Alone {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        self.0.begin(header)
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        Journal::load(&self.0, id)
    }
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.0.resume(id)
    }
}

fn spec() -> RunSpec {
    let limits = Limits { max_turns: Some(5), ..Limits::default() };
    // Some messages are those of other runs.
    let messages = vec![Message::user("Count."), Message::user("The password is hunter2-hunter2.")];
    RunSpec { limits, messages, guest: Some(GuestMode::default()), ..RunSpec::default() }
}

fn header(id: &str) -> RunHeader {
    RunHeader { id: id.to_owned(), started_ms: 7, spec: spec(), ..RunHeader::default() }
}

/// A guest's run and its record.
struct Playing {
    guest: Guest,
    record: GuestRecord,
}

impl Playing {
    fn new(
        guests: &GuestJournal,
        id: &str,
        report: impl FnOnce(String) + Send + 'static,
    ) -> Playing {
        let record = guests.begin(header(id), report);
        let start = GuestStart { record: true, ..GuestStart::default() };
        let playing = Playing { guest: Guest::new(spec(), start), record };
        playing.send()
    }

    fn send(mut self) -> Playing {
        let events = self.guest.take_events();
        self.record.events(events, self.guest.run().is_none());
        self
    }

    /// Plays a turn with a tool.
    fn turn(mut self, number: u64) -> Playing {
        let now = Duration::from_millis(10 * number);
        let input = vec![Message::user(format!("Turn {number}."))];
        let call = GuestCall { input, prompt_bytes: 100 * number, ..GuestCall::default() };
        let Admission::Go { call, .. } = self.guest.ask(now, call) else { return self.send() };
        let arguments = format!(r#"{{"n":{number}}}"#);
        let part = ToolCall { id: format!("c{number}"), name: "any".into(), arguments };
        let signal = TerminationSignal::new(SignalReason::ToolUse, Confidence::High);
        let response = ModelTurn::new(vec![Part::ToolCall(part)], signal);
        if let GuestReply::Tools(calls) = self.guest.turn(now, call, response) {
            for call in calls {
                self.guest.result(now, &call.id, ToolReport::new(ToolStatus::Ok, "done"));
            }
        }
        self.send()
    }

    async fn end(mut self) -> Arc<Outcome> {
        let outcome = self.guest.close(Duration::from_secs(1), true, "the program ended");
        let playing = self.send();
        playing.record.ended(Arc::clone(&outcome));
        playing.record.close().await;
        outcome
    }
}

fn no_problem(problem: String) {
    panic!("{problem}");
}

/// Everything that is stored of a run, except the times of the wall clock.
fn stored(journal: &SqliteJournal, id: &str) -> String {
    let mut run = journal.load(id).unwrap();
    assert_eq!(run.damage, None);
    run.wall_ms = Vec::new();
    format!("{run:?}")
}

/// The number of rows in the tables that runs share.
fn shared_rows(place: &Place) -> (i64, i64) {
    let connection = Connection::open(place.file()).unwrap();
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    (count("texts"), count("conversations"))
}

#[tokio::test]
async fn runs_written_together_are_stored_as_alone() {
    let places = [Place::new(), Place::new()];
    let journals = [places[0].journal(), places[1].journal()];
    for (at, journal) in journals.iter().enumerate() {
        let writes: Arc<dyn Journal> =
            if at == 0 { Arc::new(journal.clone()) } else { Arc::new(Alone(journal.clone())) };
        let guests = GuestJournal::start(writes).unwrap();
        // Of different lengths, so that some begin and end while others continue. Some end in the same
        // moment in which they begin.
        let mut runs: Vec<_> = (0..30)
            .map(|run| (run, Playing::new(&guests, &format!("run{run}"), no_problem)))
            .collect();
        for number in 1.. {
            let mut next = Vec::new();
            for (run, playing) in runs {
                if run % 8 < number {
                    playing.end().await;
                } else {
                    next.push((run, playing.turn(number)));
                }
            }
            runs = next;
            if runs.is_empty() {
                break;
            }
        }
    }
    for run in 0..30 {
        let id = format!("run{run}");
        assert_eq!(stored(&journals[0], &id), stored(&journals[1], &id));
        assert!(journals[0].load(&id).unwrap().outcome.is_some());
    }
    assert_eq!(shared_rows(&places[0]), shared_rows(&places[1]));
}

#[tokio::test]
async fn refused_run_spares_those_written_with_it() {
    let place = Place::new();
    let journal = place.journal();
    drop(journal.begin(&header("taken")).unwrap());
    let guests = GuestJournal::start(Arc::new(journal.clone())).unwrap();
    let problems = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&problems);
    let report = move |problem| told.lock().unwrap().push(problem);
    let before = Playing::new(&guests, "before", no_problem);
    let refused = Playing::new(&guests, "taken", report);
    let after = Playing::new(&guests, "after", no_problem);
    let runs = [before.turn(1), refused.turn(1), after.turn(1)];
    for run in runs {
        run.end().await;
    }
    let problems = problems.lock().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("runs.id"), "{problems:?}");
    assert!(journal.load("before").unwrap().outcome.is_some());
    assert!(journal.load("after").unwrap().outcome.is_some());
    assert!(journal.load("taken").unwrap().outcome.is_none());
}

/// Makes the file refuse events of this name, as a full disk would.
fn refuse(place: &Place, name: Option<&str>) {
    let connection = Connection::open(place.file()).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    let sql = match name {
        Some(name) => format!(
            "CREATE TRIGGER full BEFORE INSERT ON log WHEN NEW.name = '{name}'
             BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END"
        ),
        None => "DROP TRIGGER full".to_owned(),
    };
    connection.execute(&sql, []).unwrap();
}

#[tokio::test]
async fn events_that_failed_are_written_later() {
    let place = Place::new();
    let journal = place.journal();
    let guests = GuestJournal::start(Arc::new(journal.clone())).unwrap();
    let (send, mut problems) = tokio::sync::mpsc::unbounded_channel();
    let run = |id: &str| {
        let send = send.clone();
        Playing::new(&guests, id, move |problem| send.send(problem).unwrap())
    };
    let (full, idle) = (run("full"), run("idle"));
    // The run is there before the disk is full.
    while journal.is_running("idle").is_err() {
        tokio::task::yield_now().await;
    }
    refuse(&place, Some("turn_ended"));
    let full = full.turn(1);
    let problem = problems.recv().await.unwrap();
    assert!(problem.contains("the disk is full"), "{problem}");
    refuse(&place, None);
    let outcomes = [full.turn(2).end().await, idle.end().await];
    for (id, outcome) in ["full", "idle"].into_iter().zip(outcomes) {
        let run = journal.load(id).unwrap();
        assert_eq!(run.replay(None).unwrap().outcome(), Some(&*outcome));
        assert_eq!(run.outcome.unwrap()["turns"], outcome.turns);
    }
    assert!(problems.try_recv().is_err());
}
