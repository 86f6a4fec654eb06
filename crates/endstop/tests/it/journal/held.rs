//! A journal that another process has locked, or that is slow: a cancel still works, other tasks of
//! the thread continue, and no effect is performed before its record is on disk.

use super::{Note, Place, agent};
use crate::support::HANG;
use endstop::journal::{
    Journal, JournalError, Record, RecordedRun, RunHeader, RunJournal, SqliteJournal,
};
use endstop::testkit::Turn;
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Outcome, Termination};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
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
            other.busy_timeout(HANG).unwrap();
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

/// Number of tries on a machine that may stop the test for longer than a write waits for the file.
const TRIES: u32 = 20;

/// Time within which a try must release the file, because a write gives up after two seconds. A try
/// that takes longer proves nothing.
const IN_TIME: Duration = Duration::from_millis(1900);

#[tokio::test]
async fn locked_file_does_not_delay_cancel() {
    for _ in 0..TRIES {
        if cancel_ends_while_file_is_locked().await {
            return;
        }
    }
    panic!("the cancel waits for the write");
}

/// Cancels a run while its journal's file is locked. Returns `false` if that took as long as a write
/// that gives up.
async fn cancel_ends_while_file_is_locked() -> bool {
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
    drop(held);
    if took > IN_TIME {
        return false;
    }
    agent.settled().await;
    // The journal kept trying in the background, so the ending is stored.
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.outcome.unwrap()["termination"], "cancelled");
    assert_eq!(run.damage, None);
    true
}

#[tokio::test]
async fn locked_file_does_not_block_thread() {
    for _ in 0..TRIES {
        if thread_continues_while_file_is_locked().await {
            return;
        }
    }
    panic!("the thread waits for the write");
}

/// Starts a run while its journal's file is locked, and unlocks the file from the same thread. Returns
/// `false` if that took as long as a write that gives up.
async fn thread_continues_while_file_is_locked() -> bool {
    let place = Place::new();
    let journal = place.journal();
    let held = Holder::of(place.file());
    let first = Instant::now();
    let agent = agent([Turn::text("done")], &journal).build().unwrap();
    let run = agent.run("q").unwrap();
    let ticks = async {
        // By time and not by count, because a write gives up after two seconds and the ticks of a
        // busy machine are longer.
        while first.elapsed() < Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(held);
        first.elapsed()
    };
    let (outcome, took) = tokio::join!(run.outcome(), ticks);
    assert_eq!(outcome.termination, Termination::Stop);
    if took > IN_TIME {
        return false;
    }
    // The file was unlocked in time, so nothing is lost.
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
    true
}

#[tokio::test]
async fn tool_waits_for_its_record() {
    for _ in 0..TRIES {
        if tools_start_after_their_records().await {
            return;
        }
    }
    panic!("this machine never unlocks the file in time");
}

/// Runs tools while the journal's file is locked now and then. Returns `false` if a write gave up.
async fn tools_start_after_their_records() -> bool {
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
        first.elapsed()
    });
    let outcome = run.outcome().await;
    if hold.await.unwrap() > IN_TIME {
        return false;
    }
    assert_eq!((outcome.termination, outcome.tool_calls), (Termination::Stop, 6));
    assert_eq!(late.load(Ordering::SeqCst), 0, "started before their record was on disk");
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
    true
}

/// Number of runs whose first writes wait for each other.
const RUNS: u32 = 4;

/// A custom journal whose runs wait, in their first write, for the first write of each other run.
#[derive(Clone)]
struct Slow {
    inner: SqliteJournal,
    written: Arc<AtomicU32>,
    writing: Arc<(Mutex<u32>, Condvar)>,
}

struct SlowLog {
    inner: Box<dyn RunJournal>,
    of: Slow,
    is_first: bool,
}

impl Journal for Slow {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        let inner = self.inner.begin(header)?;
        Ok(Box::new(SlowLog { inner, of: self.clone(), is_first: true }))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        self.inner.load(id)
    }
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.inner.resume(id)
    }
}

impl RunJournal for SlowLog {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if std::mem::take(&mut self.is_first) {
            let (writing, changed) = &*self.of.writing;
            let mut now = writing.lock().unwrap();
            *now += 1;
            changed.notify_all();
            drop(changed.wait_timeout_while(now, HANG, |now| *now < RUNS).unwrap());
        }
        self.inner.append(records)?;
        self.of.written.fetch_add(records.len() as u32, Ordering::SeqCst);
        Ok(())
    }
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        self.inner.ended(outcome, text)
    }
}

#[tokio::test]
async fn slow_journals_of_runs_wait_concurrently() {
    let place = Place::new();
    let journal = Slow { inner: place.journal(), written: Arc::default(), writing: Arc::default() };
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
    let agents: Vec<_> = (0..RUNS).map(one).collect();
    let began = Instant::now();
    let runs: Vec<_> = agents.iter().map(|agent| agent.run("look").unwrap()).collect();
    let mut outcomes = Vec::new();
    for run in runs {
        outcomes.push(run.outcome().await);
    }
    let took = began.elapsed();
    for outcome in &outcomes {
        assert_eq!(outcome.termination, Termination::Stop);
        assert!(!format!("{:?}", outcome.messages).contains("too early"));
        let run = plain.load(outcome.run_id.as_deref().unwrap()).unwrap();
        assert_eq!(run.outcome.unwrap(), serde_json::to_value(outcome).unwrap());
    }
    // If the runs wrote one after the other, the first write would give up waiting.
    assert!(took < HANG, "{took:?}");
}
