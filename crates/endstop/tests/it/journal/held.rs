//! A journal that another process has locked, or that is slow: a cancel still works, other tasks of
//! the thread continue, and no effect is performed before its record is on disk.

use super::{Note, Place, agent};
use endstop::journal::{
    Journal, JournalError, Record, RecordedRun, RunHeader, RunJournal, SqliteJournal,
};
use endstop::testkit::Turn;
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Outcome, Termination};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Locks the file, as another process would, until it is dropped.
struct Holder {
    release: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Holder {
    fn of(file: PathBuf) -> Holder {
        let (release, released) = mpsc::channel();
        let (hold, held) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut other = rusqlite::Connection::open(file).unwrap();
            other.busy_timeout(Duration::from_secs(5)).unwrap();
            let behavior = rusqlite::TransactionBehavior::Immediate;
            let transaction = other.transaction_with_behavior(behavior).unwrap();
            hold.send(()).unwrap();
            let _ = released.recv();
            drop(transaction);
        });
        held.recv().unwrap();
        Holder { release: Some(release), thread: Some(thread) }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.release.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

#[tokio::test]
async fn locked_file_does_not_delay_cancel() {
    let place = Place::new();
    let journal = place.journal();
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let wait = tool_fn("wait", "Waits.", move |_: Note, context| {
        let started = started.clone();
        async move {
            started.send(()).unwrap();
            context.cancelled().await;
            ToolOutput::error("stopped")
        }
    });
    let turns = [Turn::call("wait", &json!({"text": ""}))];
    let agent = agent(turns, &journal).tool(wait).build().unwrap();
    let handle = agent.run("wait").unwrap();
    starts.recv().await.unwrap();
    let held = Holder::of(place.file());
    let began = Instant::now();
    handle.cancel();
    let outcome = handle.outcome().await;
    let took = began.elapsed();
    assert_eq!(outcome.termination, Termination::Cancelled);
    // A write waits two seconds for the file, so a shorter time shows that the cancel did not wait.
    assert!(took < Duration::from_millis(1900), "{took:?}");
    drop(held);
    agent.settled().await;
    // The journal kept trying in the background, so the ending is stored.
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.outcome.unwrap()["termination"], "cancelled");
    assert_eq!(run.damage, None);
}

#[tokio::test]
async fn locked_file_does_not_block_thread() {
    let place = Place::new();
    let journal = place.journal();
    let held = Holder::of(place.file());
    let agent = agent([Turn::text("done")], &journal).build().unwrap();
    let run = agent.run("q").unwrap();
    let ticks = async {
        let mut longest = Duration::ZERO;
        // By time and not by count, because a write gives up after two seconds and the ticks of a
        // busy machine are longer.
        let first = Instant::now();
        while first.elapsed() < Duration::from_millis(500) {
            let began = Instant::now();
            tokio::time::sleep(Duration::from_millis(10)).await;
            longest = longest.max(began.elapsed());
        }
        drop(held);
        longest
    };
    let (outcome, longest) = tokio::join!(run.outcome(), ticks);
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(longest < Duration::from_millis(1000), "{longest:?}");
    // The file was unlocked in time, so nothing is lost.
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
}

#[tokio::test]
async fn tool_waits_for_its_record() {
    let place = Place::new();
    let journal = place.journal();
    let (file, late) = (place.file(), Arc::new(AtomicU32::new(0)));
    let look = {
        let late = Arc::clone(&late);
        tool_fn("look", "Looks.", move |_: Note, _| {
            let other = SqliteJournal::read(&file).unwrap();
            let run = other.load(&other.find("last").unwrap()).unwrap();
            let asked = run.effects.last().unwrap();
            if asked.first().is_none_or(|effect| effect["effect"] != "start_tools") {
                late.fetch_add(1, Ordering::SeqCst);
            }
            async { ToolOutput::ok("seen") }
        })
    };
    let turns = (0..6).map(|_| Turn::call("look", &json!({"text": ""})));
    let turns = turns.chain([Turn::text("done")]);
    let limits = endstop::Limits { max_unproductive_turns: None, ..endstop::Limits::default() };
    let agent = agent(turns, &journal).tool(look).limits(limits).build().unwrap();
    let run = agent.run("look").unwrap();
    let file = place.file();
    let hold = tokio::task::spawn_blocking(move || {
        // By time and not by count, because a write gives up after two seconds.
        let first = Instant::now();
        while first.elapsed() < Duration::from_millis(500) {
            let held = Holder::of(file.clone());
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
        }
    });
    let outcome = run.outcome().await;
    hold.await.unwrap();
    assert_eq!((outcome.termination, outcome.tool_calls), (Termination::Stop, 6));
    assert_eq!(late.load(Ordering::SeqCst), 0, "started before their record was on disk");
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
}

/// Duration of a slow write. Long compared with the delays of a busy machine.
const SLOW: Duration = Duration::from_millis(100);

/// A custom journal whose writes are slow.
#[derive(Clone)]
struct Slow {
    inner: SqliteJournal,
    written: Arc<AtomicU32>,
}

struct SlowLog {
    inner: Box<dyn RunJournal>,
    written: Arc<AtomicU32>,
}

impl Journal for Slow {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        let inner = self.inner.begin(header)?;
        Ok(Box::new(SlowLog { inner, written: Arc::clone(&self.written) }))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        self.inner.load(id)
    }
    fn go_on(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.inner.go_on(id)
    }
}

impl RunJournal for SlowLog {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        std::thread::sleep(SLOW);
        self.inner.append(records)?;
        self.written.fetch_add(records.len() as u32, Ordering::SeqCst);
        Ok(())
    }
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        self.inner.ended(outcome, text)
    }
}

#[tokio::test]
async fn slow_journals_of_runs_wait_concurrently() {
    let place = Place::new();
    let journal = Slow { inner: place.journal(), written: Arc::default() };
    let seen = Arc::clone(&journal.written);
    let plain = place.journal();
    let one = |nth: u32| {
        let seen = Arc::clone(&seen);
        let look = tool_fn("look", "Looks.", move |_: Note, _| {
            // The start of the run and the turn that requests this tool were written.
            let written = seen.load(Ordering::SeqCst);
            async move { ToolOutput::ok(if written >= 2 { "on disk" } else { "too early" }) }
        });
        let turns = [Turn::call("look", &json!({"text": nth.to_string()})), Turn::text("done")];
        agent(turns, &plain).journal(journal.clone()).tool(look).build().unwrap()
    };
    let agents: Vec<_> = (0..4).map(one).collect();
    let began = Instant::now();
    let runs: Vec<_> = agents.iter().map(|agent| agent.run("look").unwrap()).collect();
    let mut longest = Duration::ZERO;
    let mut outcomes = Vec::new();
    for run in runs {
        let asked = Instant::now();
        tokio::task::yield_now().await;
        longest = longest.max(asked.elapsed());
        outcomes.push(run.outcome().await);
    }
    let took = began.elapsed();
    for outcome in &outcomes {
        assert_eq!(outcome.termination, Termination::Stop);
        assert!(!format!("{:?}", outcome.messages).contains("too early"));
        let run = plain.load(outcome.run_id.as_deref().unwrap()).unwrap();
        assert_eq!(run.outcome.unwrap(), serde_json::to_value(outcome).unwrap());
    }
    // One after the other, the writes alone would take this long.
    let written = journal.written.load(Ordering::SeqCst);
    let in_turn = SLOW * written;
    assert!(took < in_turn, "{took:?} for {written} records, {longest:?}");
}
